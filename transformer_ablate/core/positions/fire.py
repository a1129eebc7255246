"""FIRE: a bias by a small network of the distance, as a share of the length so far: door (c)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.linear import Linear
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, wide
from transformer_ablate.core.positions.bias import offsets
from transformer_ablate.registry import POSITIONS


class HiddenLayer(Linear):
    """A linear map whose biases are drawn as well, U(-1/sqrt(d_in), 1/sqrt(d_in)), as torch's own are.

    Of one non-negative input and without biases, ReLU would make a straight line, and half of the units never live.
    """

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        bound = self.in_features**-0.5
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)


def _apply(layer: Linear, x: Tensor) -> Tensor:
    """The layer in the precision of ``x``: in that of a bfloat16 model neighbouring distances would be one."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))


class DistanceNetwork(nn.Module):
    """``f(psi(distance) / psi(max(L, reach)))``, one value a head, with psi(x) = ln(c x + 1) and learned c, L > 0.

    Args:
        heads: values for each input.
        width: hidden units.
        c, threshold: first values of c and L; their logarithms are the parameters.
    """

    def __init__(self, heads: int, width: int, c: float, threshold: float) -> None:
        super().__init__()
        self.hidden = HiddenLayer(1, width)
        self.out = Linear(width, heads)
        self.first = (c, threshold)
        self.log_c = nn.Parameter(torch.empty(()))
        self.log_threshold = nn.Parameter(torch.empty(()))

    def initialise(self, generator: torch.Generator) -> None:
        """Sets c and L; the linear maps draw for themselves."""
        for parameter, value in zip((self.log_c, self.log_threshold), self.first, strict=True):
            nn.init.constant_(parameter, math.log(value))

    def share(self, distance: Tensor, reach: Tensor) -> Tensor:
        """Distance as a share of the reach, on the scale of psi: at most 1 where distance <= reach."""
        c = self.log_c.to(distance.dtype).exp()
        normaliser = torch.maximum(self.log_threshold.to(distance.dtype).exp(), reach)
        return torch.log1p(c * distance) / torch.log1p(c * normaliser)

    def forward(self, distance: Tensor, reach: Tensor) -> Tensor:
        """(..., L, S) and, broadcastable to it, (..., L, S or 1) -> (..., heads, L, S), all of one dtype."""
        x = self.share(distance, reach)[..., None]
        return _apply(self.out, F.relu(_apply(self.hidden, x))).movedim(-1, -3)


@POSITIONS.register("fire")
class FIRE(PositionalEncoding):
    """``f(psi(|i - j|) / psi(max(L, i)))`` with a small network f and psi(x) = ln(c x + 1) (Li et al. 2024, section 3).

    Positions are counted from 0. The term depends on i as well as on i - j: a common shift changes it once positions
    exceed L. f has one hidden layer with ReLU and one output a head. The paper treats causal stacks. Elsewhere
    max(L, i, j) normalises, and for keys after the query f has outputs of their own, so that left and right differ.
    It takes memory for ``width`` values a pair of tokens and layer.

    Args:
        geometry: see :class:`Geometry`.
        width: hidden units of f.
        c: its first value.
        threshold: first value of L. The paper's 512 was a quarter of its training length; far above that length no
            distance is ever rescaled.
        shared: one f, c and L for all layers (the paper's FIRE-S) instead of one for each.
    """

    def __init__(
        self, geometry: Geometry, width: int = 32, c: float = 0.1, threshold: float = 512.0, shared: bool = False
    ) -> None:
        super().__init__(geometry)
        options.switch(f"{OPTIONS}.shared", shared)
        options.whole(f"{OPTIONS}.width", width, at_least=1)
        options.number_above(f"{OPTIONS}.c", c, 0)
        options.number_above(f"{OPTIONS}.threshold", threshold, 0)
        self.sides = 1 if geometry.causal else 2
        networks = 1 if shared else geometry.layers
        outputs = self.sides * geometry.n_heads
        self.networks = nn.ModuleList(DistanceNetwork(outputs, width, c, threshold) for _ in range(networks))

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Term of each network, (H, L, S) or (B, H, L, S)."""
        offset = offsets(query_positions, key_positions)
        reach = query_positions[..., :, None].to(wide(dtype))
        if self.sides == 2:
            reach = torch.maximum(reach, key_positions[..., None, :].to(reach.dtype))
        terms = []
        with torch.autocast(offset.device.type, enabled=False):
            for network in self.networks:
                term = network(offset.abs().to(reach.dtype), reach)  # (..., sides H, L, S)
                sides = term.chunk(self.sides, dim=-3)
                terms.append(torch.where(offset.unsqueeze(-3) > 0, sides[-1], sides[0]))
        return terms

    def score_term(self, q: Tensor, k: Tensor, table: list[Tensor], layer: int) -> Tensor:
        return table[layer % len(table)]
