"""Positional encodings; importing this package registers the built-in ones."""

from transformer_ablate.core.positions.absolute import Learned, NoPosition, Sinusoidal, sinusoidal_table
from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, build_position
from transformer_ablate.core.positions.bias import ALiBi, T5Bias
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.core.positions.shaw import Shaw

__all__ = [
    "ALiBi",
    "Geometry",
    "Learned",
    "NoPosition",
    "PositionalEncoding",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "build_position",
    "sinusoidal_table",
]
