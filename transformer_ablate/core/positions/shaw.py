"""Relative position representations: door (c), with a term that depends on the query."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, wide
from transformer_ablate.core.positions.bias import offsets
from transformer_ablate.registry import POSITIONS


@POSITIONS.register("shaw")
class Shaw(PositionalEncoding):
    """``q_i . a_(j-i) / sqrt(d_head)`` on the scores, a learned vector an offset (Shaw et al. 2018, eq. 3 and 4).

    With ``values``, also ``sum_j weight_ij a'_(j-i)`` on what the head returns. Each head of each layer has tables of
    its own. Offsets beyond the clip share a row, so that no distance is out of distribution. The term has the scale of
    ``q k^T``, whatever that is.

    Args:
        geometry: see :class:`Geometry`.
        clip: k of the paper: offsets are clipped to [-k, k]; below the training length, or far rows stay untrained.
        values: add to the values as well. Attention then shows its weights, which the fused kernel cannot.
    """

    def __init__(self, geometry: Geometry, clip: int = 16, values: bool = False) -> None:
        super().__init__(geometry)
        self.clip = options.whole(f"{OPTIONS}.clip", clip, at_least=1)
        options.switch(f"{OPTIONS}.values", values)
        shape = (geometry.layers, geometry.n_heads, 2 * clip + 1, geometry.d_head)
        self.keys = nn.Parameter(torch.empty(shape))
        self.values = nn.Parameter(torch.empty(shape)) if values else None
        self.adds_values = values

    def initialise(self, generator: torch.Generator) -> None:
        # Keys first: with and without values they start alike.
        for table in (self.keys, self.values):
            if table is not None:
                nn.init.normal_(table, std=self.geometry.d_head**-0.5, generator=generator)

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Row of each pair's offset, (1, L, S) or (B, 1, L, S)."""
        rows = offsets(query_positions, key_positions).clamp(-self.clip, self.clip) + self.clip
        return rows.unsqueeze(-3)

    def score_term(self, q: Tensor, k: Tensor, table: Tensor, layer: int) -> Tensor:
        # All 2k + 1 products of each query, then the one of each key's offset: no (L, S, d_head) table is ever made.
        products = q @ self.keys[layer].to(q.dtype).mT * self.geometry.scale  # (B, H, L, 2k + 1)
        return products.gather(-1, table.expand(*q.shape[:2], *table.shape[-2:]))

    def value_term(self, weights: Tensor, table: Tensor, layer: int) -> Tensor | None:
        if self.values is None:
            return None
        # Weights of keys that share a row are summed first, so that again 2k + 1 vectors do.
        sums = weights.new_zeros(*weights.shape[:-1], 2 * self.clip + 1, dtype=wide(weights.dtype))
        sums = sums.scatter_add(-1, table.expand_as(weights), weights.to(sums.dtype))  # (B, H, L, 2k + 1)
        return sums.to(weights.dtype) @ self.values[layer].to(weights.dtype)
