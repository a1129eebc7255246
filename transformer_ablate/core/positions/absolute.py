"""Encodings that add a vector of the absolute position to the embeddings: door (a)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, frequencies, wide
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS


@POSITIONS.register("none")
@CROSS_POSITIONS.register("none")
class NoPosition(PositionalEncoding):
    """No position term anywhere: the encoder is permutation-equivariant; a causal decoder of >= 2 layers is not."""


# What is made of a position before it scales the vector of :class:`Integer`.
INTEGER_SCALES: dict[str, Callable[[Tensor], Tensor]] = {"raw": lambda positions: positions, "log": torch.log1p}


def sinusoidal_table(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """``PE[p, 2i] = sin(p base^(-2i/d))``, ``PE[p, 2i+1] = cos(same)``: (..., L) -> (..., L, d_model), float64.

    Sine and cosine are interleaved, as in the paper; tensor2tensor's halves are another function. An odd ``d_model``
    ends with a sine. Source: Vaswani et al. 2017, section 3.5.
    """
    angles = positions.to(torch.float64)[..., None] * frequencies(d_model, base, positions.device)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model]


@POSITIONS.register("sinusoidal")
class Sinusoidal(PositionalEncoding):
    """Fixed sines and cosines of geometric wavelengths, added to the embeddings (Vaswani et al. 2017, section 3.5).

    Args:
        geometry: see :class:`Geometry`.
        base: ratio that the wavelengths span; 2 pi to just under ``base`` * 2 pi.
    """

    def __init__(self, geometry: Geometry, base: float = 10_000.0) -> None:
        super().__init__(geometry)
        self.base = options.number_above(f"{OPTIONS}.base", base, 1)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        table = sinusoidal_table(positions, self.geometry.d_model, self.base).to(wide(x.dtype))
        return (x + table).to(x.dtype)


@POSITIONS.register("integer")
class Integer(PositionalEncoding):
    """One learned vector times the position itself, ``x + pos / divisor * w``, or times its logarithm.

    The vector is N(0, 1/d) at first, so that position 1 is as large as a learned row. With ``channels: equal`` it is
    one learned number in all channels, which LayerNorm takes out again: in a pre-norm stack that is no position at all.

    Args:
        geometry: see :class:`Geometry`.
        channels: ``each`` has a weight of its own, or all have an ``equal`` one.
        scale: ``raw`` for pos, ``log`` for ``log(1 + pos)``.
        divisor: what pos is divided by first.
    """

    def __init__(self, geometry: Geometry, channels: str = "each", scale: str = "raw", divisor: float = 1.0) -> None:
        super().__init__(geometry)
        widths = {"each": geometry.d_model, "equal": 1}
        options.name(f"{OPTIONS}.channels", channels, widths)
        self.divisor = options.number_above(f"{OPTIONS}.divisor", divisor, 0)
        self._scale = INTEGER_SCALES[options.name(f"{OPTIONS}.scale", scale, INTEGER_SCALES)]
        self.direction = nn.Parameter(torch.empty(widths[channels]))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.direction, std=self.geometry.d_model**-0.5, generator=generator)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        sizes = self._scale(positions.to(wide(x.dtype))[..., None] / self.divisor)  # (L, 1) or (B, L, 1)
        return (x + sizes * self.direction).to(x.dtype)


# Kinds of Learned: whether positions past the last row share it, and how many rows there are by default.
BEYOND: dict[str, tuple[bool, int | None]] = {"untrained": (False, 512), "clamp": (True, None), "error": (False, None)}


@POSITIONS.register("learned")
class Learned(PositionalEncoding):
    """One trained vector a position, N(0, 1/d) at first (Gehring et al. 2017; Vaswani et al. 2017, table 3 row E).

    Args:
        geometry: see :class:`Geometry`.
        rows: positions that the table has; 512 by default for ``untrained``, to be given for the others.
        beyond: what stands past the longest training sequence. ``untrained``: rows that exist but never receive a
            gradient, so that they keep their initial values, which makes this the honest extrapolation arm. ``clamp``:
            the last row, for all further positions. ``error``: nothing. The last two need ``rows`` to be that longest
            sequence. Unless clamped, a position past the last row is an error.
    """

    def __init__(self, geometry: Geometry, rows: int | None = None, beyond: str = "untrained") -> None:
        super().__init__(geometry)
        self.clamps, usual = BEYOND[options.name(f"{OPTIONS}.beyond", beyond, BEYOND)]
        rows = usual if rows is None else rows
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            allowed = "an integer at least 1" if usual else f"the longest training sequence, for beyond={beyond}"
            raise ConfigError("model.position_options.rows", rows, allowed)
        self.rows = rows
        self.weight = nn.Parameter(torch.empty(rows, geometry.d_model))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.weight, std=self.geometry.d_model**-0.5, generator=generator)

    def check_length(self, longest: int) -> None:
        if longest > self.rows and not self.clamps:
            allowed = f"at least {longest} for a sequence of {longest} tokens"
            raise ConfigError("model.position_options.rows", self.rows, allowed, "raise it or shorten the data")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.weight[positions.clamp(max=self.rows - 1) if self.clamps else positions]
