"""Statements that theory fixes, computed numerically with the project's own parts: no training, no seeds.

Each check is a function of the base recipes of a study's cells; :data:`CHECKS` has them by name.
"""

from transformer_ablate.measures.exact import attention, bounds, positions, sizes
from transformer_ablate.measures.exact.base import CHECKS, Check, Checked, check

__all__ = ["CHECKS", "Check", "Checked", "attention", "bounds", "check", "positions", "sizes"]
