"""Positional encodings; importing this package registers the built-in ones."""

from transformer_ablate.core.positions.absolute import Integer, Learned, NoPosition, Sinusoidal, sinusoidal_table
from transformer_ablate.core.positions.base import Geometry, PositionalEncoding, build_position
from transformer_ablate.core.positions.bias import ALiBi, T5Bias
from transformer_ablate.core.positions.cope import CoPE
from transformer_ablate.core.positions.fire import FIRE
from transformer_ablate.core.positions.kerple import Kerple
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.core.positions.shaw import Shaw
from transformer_ablate.core.positions.xpos import XPos

__all__ = [
    "FIRE",
    "ALiBi",
    "CoPE",
    "Geometry",
    "Integer",
    "Kerple",
    "Learned",
    "NoPosition",
    "PositionalEncoding",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "T5Bias",
    "XPos",
    "build_position",
    "sinusoidal_table",
]
