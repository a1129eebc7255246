"""Evidence from a table, and claims on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_ablate.measures.exact import Checked
from transformer_ablate.study.claims import (
    Claim,
)

SEEDS = 8


@dataclass
class Stored:
    """Values as a report would have them."""

    table: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    failures: dict[str, dict[int, bool]] = field(default_factory=dict)
    checks: dict[str, Checked] = field(default_factory=dict)

    def values(self, arm: str, key: str) -> Mapping[int, float]:
        return self.table.get((arm, key), {})

    def buckets(self, cell: str, metric: str) -> Sequence[tuple[str, float]]:
        return [("1", 1.0), ("1.5", 1.5), ("2", 2.0)]

    def outcomes(self, arm: str, cell: str) -> Mapping[int, bool]:
        return self.failures.get(arm, {})

    def check(self, name: str) -> Checked | None:
        return self.checks.get(name)

    def swapped(self) -> Stored:
        other = {"a": "b", "b": "a"}
        return Stored(
            {(other[arm], key): values for (arm, key), values in self.table.items()},
            {other[arm]: seeds for arm, seeds in self.failures.items()},
        )

    def first(self, n: int) -> Stored:
        kept = {place: {s: v for s, v in values.items() if s < n} for place, values in self.table.items()}
        return Stored(kept, {arm: {s: v for s, v in seeds.items() if s < n} for arm, seeds in self.failures.items()})


def stored(a: Sequence[float], b: Sequence[float], key: str = "g2p/nll/test") -> Stored:
    return Stored({("a", key): dict(enumerate(a)), ("b", key): dict(enumerate(b))})


def claim(rule: Any, *statistics: Any, **more: Any) -> Claim:
    return Claim("id", "a statement", "somebody", "a cell", rule, tuple(statistics), **more)


def failures(a: Sequence[bool], b: Sequence[bool]) -> Stored:
    return Stored(failures={"a": dict(enumerate(a)), "b": dict(enumerate(b))})
