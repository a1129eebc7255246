"""Checks of the values that a component's own options may have; each error names the field."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from transformer_ablate.errors import ConfigError, unknown_name


def whole(field: str, value: Any, at_least: int) -> int:
    """``value`` if it is an integer of at least ``at_least``; ConfigError if not."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ConfigError(field, value, f"an integer at least {at_least}")
    return value


def number_above(field: str, value: Any, bound: float) -> float:
    """``value`` if it is a finite number above ``bound``; ConfigError if not."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not bound < value < math.inf:
        raise ConfigError(field, value, f"a number above {bound:g}")
    return float(value)


def switch(field: str, value: Any) -> bool:
    """``value`` if it is true or false; ConfigError if not."""
    if not isinstance(value, bool):
        raise ConfigError(field, value, "true or false")
    return value


def name(field: str, value: Any, known: Iterable[str]) -> str:
    """``value`` if it is one of the ``known`` names; ConfigError, with the nearest of them, if not."""
    names = tuple(known)
    if not isinstance(value, str) or value not in names:
        raise unknown_name(field, value, names)
    return value
