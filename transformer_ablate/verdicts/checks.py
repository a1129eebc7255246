"""The exact checks that a study's claims name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ablate.config import Recipe
from transformer_ablate.measures.exact import CHECKS, Checked
from transformer_ablate.study.claims import Claim


def run_checks(claims: Sequence[Claim], bases: Mapping[str, Mapping[str, Any]]) -> dict[str, Checked]:
    """Makes the checks that the claims' rules name, each once.

    Args:
        claims: of one study.
        bases: the base recipe of each of its cells, as flat fields.
    """
    recipes = {cell: Recipe().replace(fields) for cell, fields in bases.items()}
    names = dict.fromkeys(name for claim in claims for name in claim.rule.checks())
    return {name: CHECKS[name](recipes) for name in names}
