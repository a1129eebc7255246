"""Rotary position embedding: door (b)."""

from __future__ import annotations

import torch
from torch import Tensor

from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, frequencies, wide
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS

LAYOUTS = ("interleaved", "half")


def rotate_interleaved(x: Tensor, turn: Tensor) -> Tensor:
    """Rotates the pairs (2i, 2i+1) of the last dimension of ``x`` (..., L, d_head).

    A pair is a complex number and ``turn`` (L, d_head / 2) holds ``e^(i angle)``: one complex product is several times
    as fast as the four real ones.
    """
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(-2)


def rotate_half(x: Tensor, turn: Tensor) -> Tensor:
    """Rotates the pairs (i, i + d_head/2): another function of the same weights than the interleaved layout."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = turn.real, turn.imag
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


@POSITIONS.register("rope")
@CROSS_POSITIONS.register("rotary")
class Rotary(PositionalEncoding):
    """RoPE: queries and keys are rotated by position, so scores depend on i - j alone (Su et al. 2021, eq. 14).

    In cross-attention the query is rotated by its target position and the key by its source position. It has no
    parameters. Angles are computed in float64 and applied in float32 (or wider), whatever the autocast.

    Args:
        geometry: see :class:`Geometry`; the head width must be even.
        base: ratio that the wavelengths span.
        layout: ``interleaved`` pairs channels (2i, 2i+1) as in the paper, ``half`` pairs (i, i + d_head/2).
    """

    def __init__(self, geometry: Geometry, base: float = 10_000.0, layout: str = "interleaved") -> None:
        super().__init__(geometry)
        if geometry.d_head % 2:
            raise ConfigError(
                "model.n_heads",
                geometry.n_heads,
                f"a number that makes d_model / n_heads even for rotary positions"
                f" (d_model={geometry.d_model} gives {geometry.d_head})",
            )
        if layout not in LAYOUTS:
            raise ConfigError("model.position_options.layout", layout, ", ".join(LAYOUTS))
        if not base > 1:
            raise ConfigError("model.position_options.base", base, "a number above 1")
        self.base = base
        self._rotate = rotate_interleaved if layout == "interleaved" else rotate_half

    def point_table(self, positions: Tensor, dtype: torch.dtype) -> Tensor:
        inverse = frequencies(self.geometry.d_head, self.base, positions.device)
        angles = positions.to(torch.float64)[:, None] * inverse
        return torch.polar(torch.ones_like(angles), angles).to(wide(dtype).to_complex())

    def transform_query(self, q: Tensor, table: Tensor, layer: int) -> Tensor:
        return self._rotate(q.to(wide(q.dtype)), table).to(q.dtype)

    def transform_key(self, k: Tensor, table: Tensor, layer: int) -> Tensor:
        return self._rotate(k.to(wide(k.dtype)), table).to(k.dtype)
