"""Rotary position embedding: door (b)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, frequencies, wide
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS

LAYOUTS = ("interleaved", "half")


class Rotation(NamedTuple):
    """Cosines and sines of the angles of L positions, each (L, d_head / 2)."""

    cos: Tensor
    sin: Tensor


def rotate_interleaved(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotates the pairs (2i, 2i+1) of the last dimension of ``x`` (..., L, d_head) by the angles of each position."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = rotation
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def rotate_half(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotates the pairs (i, i + d_head/2): another function of the same weights than the interleaved layout."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = rotation
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

    def point_table(self, positions: Tensor, dtype: torch.dtype) -> Rotation:
        inverse = frequencies(self.geometry.d_head, self.base, positions.device)
        angles = positions.to(torch.float64)[:, None] * inverse
        return Rotation(angles.cos().to(wide(dtype)), angles.sin().to(wide(dtype)))

    def transform_query(self, q: Tensor, table: Rotation, layer: int) -> Tensor:
        return self._rotate(q, table).to(q.dtype)

    def transform_key(self, k: Tensor, table: Rotation, layer: int) -> Tensor:
        return self._rotate(k, table).to(k.dtype)
