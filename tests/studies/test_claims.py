"""Statistics: a number for each seed, from stored values alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from transformer_ablate.measures.exact import Checked
from transformer_ablate.study.claims import Relative, Value


class Stored:
    """Evidence from a table: (arm, key) to seed to value."""

    def __init__(self, table: Mapping[tuple[str, str], Mapping[int, float]]) -> None:
        self.table = table

    def values(self, arm: str, key: str) -> Mapping[int, float]:
        return self.table.get((arm, key), {})

    def buckets(self, cell: str, metric: str) -> Sequence[tuple[str, float]]:
        return []

    def outcomes(self, arm: str, cell: str) -> Mapping[int, bool]:
        return {}

    def check(self, name: str) -> Checked | None:
        return None


A, B = Value("a", "g2p/nll/test"), Value("b", "g2p/nll/test")


def test_a_relative_difference_is_a_share_of_the_second_and_needs_both_of_a_seed() -> None:
    a = {0: 1.1, 1: 0.9, 2: math.nan, 3: 1.0, 4: 1.0}
    b = {0: 1.0, 1: 1.2, 2: 1.0, 4: 0.0}
    stored = Stored({("a", A.key): a, ("b", B.key): b})
    assert Relative((A, B)).per_seed(stored) == pytest.approx({0: 0.1, 1: -0.25})
    assert Relative((B, A)).per_seed(stored) == pytest.approx({0: -0.1 / 1.1, 1: 0.3 / 0.9, 4: -1.0})
    assert list(Relative((A, B)).needs()) == [("a", "g2p"), ("b", "g2p")]
