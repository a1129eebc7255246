"""Positional encodings; importing this package registers the built-in ones."""

from transformer_ablate.core.positions.absolute import Learned, NoPosition, Sinusoidal, sinusoidal_table
from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, build_position
from transformer_ablate.core.positions.rotary import Rotary

__all__ = [
    "Geometry",
    "Learned",
    "NoPosition",
    "PositionalEncoding",
    "Rotary",
    "Sinusoidal",
    "build_position",
    "sinusoidal_table",
]
