"""CoPE: positions that count what the query chooses to count: door (c)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, wide
from transformer_ablate.core.positions.bias import offsets
from transformer_ablate.registry import POSITIONS


@POSITIONS.register("cope")
class CoPE(PositionalEncoding):
    """``q_i . e[p_ij]`` on the scores, p_ij being how many keys from j to i the query counts (Golovneva et al. 2024).

    ``p_ij = sum_t sigmoid(q_i . k_t)`` over t from j to i, and e is interpolated linearly between whole numbers. The
    term is not scaled, as in the paper's listing. (The authors' released training code scales both by default.) A layer
    has one table for all its heads, zero at first, as in their code: the model starts as one without positions.

    The paper treats causal stacks. Elsewhere the query counts outwards to either side, itself included, and each side
    has a table of its own. Padding lies beyond all real tokens and is counted for none of them. Positions serve only to
    find the query among the keys: they must increase.

    Args:
        geometry: see :class:`Geometry`.
        p_max: counts are capped at this; the table has p_max + 1 rows.
        scaled_gate: the gate takes the scaled score, as in the authors' code, and not ``q_i . k_t``, as in the paper.
    """

    def __init__(self, geometry: Geometry, p_max: int = 64, scaled_gate: bool = False) -> None:
        super().__init__(geometry)
        self.p_max = options.whole(f"{OPTIONS}.p_max", p_max, at_least=1)
        self.gate_scale = geometry.scale if options.switch(f"{OPTIONS}.scaled_gate", scaled_gate) else 1.0
        self.sides = 1 if geometry.causal else 2
        self.tables = nn.Parameter(torch.empty(geometry.layers, self.sides, p_max + 1, geometry.d_head))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.tables)

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
        """Steps from the query to each key in the row of keys, (1, L, S) or (B, 1, L, S).

        Trailing keys may share the last position (padding of randomised positions): the query is the first of them.
        """
        behind = offsets(query_positions, key_positions) < 0
        own = behind.sum(dim=-1, keepdim=True)  # (..., L, 1) index of the query among the keys
        return (torch.arange(behind.shape[-1], device=behind.device) - own).unsqueeze(-3)

    def score_term(self, q: Tensor, k: Tensor, table: Tensor, layer: int) -> Tensor:
        precision = wide(q.dtype)
        with torch.autocast(q.device.type, enabled=False):
            q, k = q.to(precision), k.to(precision)
            gates = (q @ k.mT * self.gate_scale).sigmoid()  # (B, H, L, S)
            counts = self._counts(gates, table)
            products = q @ self.tables[layer].to(precision).flatten(0, 1).mT  # (B, H, L, sides (p_max + 1))
        first_row = (table > 0) * (self.p_max + 1) if self.sides == 2 else 0
        at = counts.nan_to_num()  # a model that diverged must come out as NaN, not as an index out of range
        below = products.gather(-1, at.floor().long() + first_row)
        above = products.gather(-1, at.ceil().long() + first_row)
        return torch.lerp(below, above, counts - counts.floor())

    def _counts(self, gates: Tensor, steps: Tensor) -> Tensor:
        """p of each pair, at most p_max; 0 for keys that a causal query does not see."""
        back = gates.masked_fill(steps > 0, 0.0)
        counts = back.flip(-1).cumsum(-1).flip(-1)
        if self.sides == 2:
            ahead = gates.masked_fill(steps < 0, 0.0).cumsum(-1)
            counts = torch.where(steps > 0, ahead, counts)
        return counts.clamp(max=self.p_max)
