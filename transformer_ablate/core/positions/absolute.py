"""Encodings that add a vector of the absolute position to the embeddings: door (a)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, frequencies, wide
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS


@POSITIONS.register("none")
@CROSS_POSITIONS.register("none")
class NoPosition(PositionalEncoding):
    """No position term anywhere: the encoder is permutation-equivariant; a causal decoder of >= 2 layers is not."""


def sinusoidal_table(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """``PE[p, 2i] = sin(p base^(-2i/d))``, ``PE[p, 2i+1] = cos(same)``: (L,) -> (L, d_model), float64.

    Sine and cosine are interleaved, as in the paper; tensor2tensor's halves are another function. An odd ``d_model``
    ends with a sine. Source: Vaswani et al. 2017, section 3.5.
    """
    angles = positions.to(torch.float64)[:, None] * frequencies(d_model, base, positions.device)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :d_model]


@POSITIONS.register("sinusoidal")
class Sinusoidal(PositionalEncoding):
    """Fixed sines and cosines of geometric wavelengths, added to the embeddings (Vaswani et al. 2017, section 3.5).

    Args:
        geometry: see :class:`Geometry`.
        base: ratio that the wavelengths span; 2 pi to just under ``base`` * 2 pi.
    """

    def __init__(self, geometry: Geometry, base: float = 10_000.0) -> None:
        super().__init__(geometry)
        if not base > 1:
            raise ConfigError("model.position_options.base", base, "a number above 1")
        self.base = base

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        table = sinusoidal_table(positions, self.geometry.d_model, self.base).to(wide(x.dtype))
        return (x + table).to(x.dtype)


@POSITIONS.register("learned")
class Learned(PositionalEncoding):
    """One trained vector a position, N(0, 1/d) at first (Gehring et al. 2017; Vaswani et al. 2017, table 3 row E).

    Rows past the training length exist but never receive a gradient: they keep their initial values, which makes this
    the honest extrapolation arm. A position past the last row is an error and is never clamped.

    Args:
        geometry: see :class:`Geometry`.
        rows: positions that the table has.
    """

    def __init__(self, geometry: Geometry, rows: int = 512) -> None:
        super().__init__(geometry)
        if not (isinstance(rows, int) and rows >= 1):
            raise ConfigError("model.position_options.rows", rows, "an integer at least 1")
        self.rows = rows
        self.weight = nn.Parameter(torch.empty(rows, geometry.d_model))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.geometry.d_model**-0.5, generator=generator)

    def check_length(self, longest: int) -> None:
        if longest > self.rows:
            allowed = f"at least {longest} for a sequence of {longest} tokens"
            raise ConfigError("model.position_options.rows", self.rows, allowed, "raise it or shorten the data")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions]
