"""xPos: rotary positions whose scores fade with distance, door (b)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry
from transformer_ablate.core.positions.rotary import Rotary, turns
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import POSITIONS

# Largest exponent of e in a factor on a key: float32 ends at e^88.7, and the key itself needs some room.
LARGEST_EXPONENT = 80


@POSITIONS.register("xpos")
class XPos(Rotary):
    """RoPE with each pair's score times ``zeta^((i - j) / scale_base)``, zeta < 1 (Sun et al. 2022, section 3.2).

    Pair p of a query at position n is multiplied by ``zeta_p^(n / scale_base)`` and that of a key by the inverse, where
    ``zeta_p = (2p / d_head + gamma) / (1 + gamma)``. It needs i >= j: where keys may lie ahead (geometry.causal is
    False, as in an encoder) scores would grow with the distance, so there it is plain rotation.

    The authors' code counts positions from the middle of the sequence, which cancels in the scores but moves with each
    cached step. Here they count from 0: that small queries meet large keys costs no digits in floating point until a
    key overflows, and positions that far are refused.

    Args:
        geometry: see :class:`Geometry`; the head width must be even.
        base, layout: as in :class:`Rotary`.
        gamma: above 0; the smaller, the faster the fast pairs fade.
        scale_base: distance at which the product of pair p is multiplied by ``zeta_p``.
    """

    def __init__(
        self,
        geometry: Geometry,
        base: float = 10_000.0,
        layout: str = "interleaved",
        gamma: float = 0.4,
        scale_base: float = 512.0,
    ) -> None:
        super().__init__(geometry, base, layout)
        self.gamma = options.number_above(f"{OPTIONS}.gamma", gamma, 0)
        self.scale_base = options.number_above(f"{OPTIONS}.scale_base", scale_base, 0)

    def zetas(self, device: torch.device) -> Tensor:
        """Fading of each pair over ``scale_base`` positions: (d_head / 2,), float64."""
        width = self.geometry.d_head
        return (torch.arange(0, width, 2, dtype=torch.float64, device=device) / width + self.gamma) / (1 + self.gamma)

    def check_length(self, longest: int) -> None:
        if not self.geometry.causal:
            return
        steepest = math.log((1 + self.gamma) / self.gamma)
        if longest * steepest / self.scale_base > LARGEST_EXPONENT:
            allowed = f"at least {longest * steepest / LARGEST_EXPONENT:.0f} for positions up to {longest}"
            raise ConfigError("model.position_options.scale_base", self.scale_base, allowed)

    def point_table(self, positions: Tensor, lengths: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Turns of queries and of keys at ``positions``, each as in :class:`Rotary`."""
        if not self.geometry.causal:
            table: Tensor = super().point_table(positions, lengths, dtype)
            return table, table
        angles = self.angles(positions, lengths)
        exponents = positions.to(torch.float64)[..., None] / self.scale_base
        fading = self.zetas(positions.device) ** exponents
        return turns(fading, angles, dtype), turns(1 / fading, angles, dtype)

    def transform_query(self, q: Tensor, table: tuple[Tensor, Tensor], layer: int) -> Tensor:
        return super().transform_query(q, table[0], layer)

    def transform_key(self, k: Tensor, table: tuple[Tensor, Tensor], layer: int) -> Tensor:
        return super().transform_key(k, table[1], layer)
