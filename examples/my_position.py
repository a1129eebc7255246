"""A positional encoding of one's own, beside the built-in ones.

python -m experiments.pe_extrapolation --plugin examples/my_position.py --variants my-triangle,sinusoidal,none
"""

from __future__ import annotations

import torch
from torch import Tensor

from transformer_ablate.core.positions import Geometry, PositionalEncoding
from transformer_ablate.registry import POSITIONS
from transformer_ablate.study.declarations import Variant


@POSITIONS.register("triangle")
class Triangle(PositionalEncoding):
    """Triangle waves of doubling periods in the place of sines.

    Args:
        geometry: sizes of the model, given by it.
        shortest: the shortest period, in positions; an option: ``--model.position_options '{shortest: 2}'``.
    """

    def __init__(self, geometry: Geometry, shortest: float = 4.0) -> None:
        super().__init__(geometry)
        self.shortest = shortest

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Adds the waves to embeddings (B, L, d_model) at positions (L,) or (B, L)."""
        periods = self.shortest * 2 ** torch.linspace(0, 8, x.shape[-1], device=x.device)
        phase = (positions[..., None] / periods) % 1.0  # (..., L, d_model)
        return x + (4 * (phase - 0.5).abs() - 1)


VARIANTS = (Variant("my-triangle", {"model.position": "triangle"}, why="triangle waves, added"),)
