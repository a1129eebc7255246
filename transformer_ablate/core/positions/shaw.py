"""Relative position representations: door (c), with a term that depends on the query."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transformer_ablate.core.positions.base import Geometry, PositionalEncoding
from transformer_ablate.core.positions.bias import offsets
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import POSITIONS


@POSITIONS.register("shaw")
class Shaw(PositionalEncoding):
    """``q_i . a_(j-i) / sqrt(d_head)`` on the scores, a learned vector an offset (Shaw et al. 2018, eq. 4).

    Each head of each layer has a table of its own. Offsets beyond the clip share a row, so that no distance is
    out of distribution.

    Args:
        geometry: see :class:`Geometry`.
        clip: k of the paper: offsets are clipped to [-k, k]; below the training length, or far rows stay untrained.
    """

    def __init__(self, geometry: Geometry, clip: int = 16) -> None:
        super().__init__(geometry)
        if clip < 1:
            raise ConfigError("model.position_options.clip", clip, "an integer at least 1")
        self.clip = clip
        self.keys = nn.Parameter(torch.empty(geometry.layers, geometry.n_heads, 2 * clip + 1, geometry.d_head))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.keys, std=self.geometry.d_head**-0.5, generator=generator)

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Row of each pair's offset, (L, S)."""
        return offsets(query_positions, key_positions).clamp(-self.clip, self.clip) + self.clip

    def score_term(self, q: Tensor, k: Tensor, table: Tensor, layer: int) -> Tensor:
        # All 2k + 1 products of each query, then the one of each key's offset: no (L, S, d_head) table is ever made.
        products = q @ self.keys[layer].to(q.dtype).mT / math.sqrt(q.shape[-1])  # (B, H, L, 2k + 1)
        return products.gather(-1, table.expand(*q.shape[:2], *table.shape))
