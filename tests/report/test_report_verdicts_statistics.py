"""Statistics that verdicts rest on, and what they make of missing values."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.report.stored import SEEDS, Stored, claim, stored
from transformer_ablate.study.claims import (
    GapClosed,
    InterquartileMean,
    Minus,
    Ratio,
    Value,
    difference,
)
from transformer_ablate.study.rules import (
    AtBest,
    Beyond,
    Bounded,
    Deterministic,
    FailsMore,
    Holds,
    KeepsTo,
    MoreVariance,
    NeverFails,
    Rule,
    Within,
)
from transformer_ablate.verdicts.judge import judge


def test_statistics_are_computed_seed_by_seed() -> None:
    evidence = Stored(
        {
            ("a", "x/r2/0"): {0: 0.9, 1: 0.8},
            ("a", "x/r2/1"): {0: 0.7, 1: 0.8},
            ("a", "x/r2/2"): {0: 0.5, 1: 0.8},
            ("b", "x/r2/0"): {0: 0.3, 2: 0.4},
        }
    )
    assert difference("a", "b", "x/r2/0").per_seed(evidence) == pytest.approx({0: 0.6})
    assert Ratio((Value("a", "x/r2/0"), Value("b", "x/r2/0"))).per_seed(evidence) == pytest.approx({0: 3.0})
    assert Minus((Value("a", "x/r2/0"), Value("a", "x/r2/9"))).per_seed(evidence) == {}


def test_a_mean_of_the_middle_half_leaves_a_quarter_out_at_each_end() -> None:
    def middle(*x: float) -> dict[int, float]:
        arms = [Value(str(i), "x/r2/0") for i in range(len(x))]
        return InterquartileMean(tuple(arms)).per_seed(
            Stored({(arm.arm, arm.key): {0: v} for arm, v in zip(arms, x, strict=True)})
        )

    assert middle(*range(8)) == {0: 3.5}
    assert middle(1e9, 0, 1, 2, 3, 4, 5, -1e9) == {0: 2.5}
    assert middle(1.0, 2.0, 6.0) == {0: 3.0}  # a quarter of three values is none
    assert middle(math.nan, 2.0) == {}


def crossed_values(seeds: int) -> tuple[dict[tuple[str, str], str], Stored]:
    """Arms p and q by settings x, y, z: the setting moves the metric, the arm hardly does."""
    table = {(row, column): row + column for row in "pq" for column in "xyz"}
    by_column, noise = {"x": 0.0, "y": 0.5, "z": 1.0}, np.random.default_rng(1)
    values = {
        (arm, "copy/em/2"): {
            seed: by_column[arm[1]] + 0.01 * (arm[0] == "q") + float(noise.normal(0, 0.05)) for seed in range(seeds)
        }
        for arm in table.values()
    }
    return table, Stored(values)


def test_the_factor_that_moves_the_metric_explains_more_of_its_variance() -> None:
    table, evidence = crossed_values(SEEDS)
    found = judge(claim(MoreVariance(table, "copy/em/2")), evidence)
    assert found.word == "supported"
    assert found.effect is not None
    assert 0.9 < found.effect <= 1
    turned = claim(MoreVariance({(c, r): arm for (r, c), arm in table.items()}, "copy/em/2"))
    assert judge(turned, evidence).word == "refuted"
    assert judge(claim(MoreVariance(table, "copy/em/2")), evidence.first(4)).word == "indicated"
    assert judge(claim(MoreVariance(table, "copy/em/2")), evidence.first(2)).word == "inconclusive"
    assert judge(claim(MoreVariance(table, "copy/em/2")), Stored()).word == "not run"


def test_models_that_have_learnt_nothing_decide_nothing() -> None:
    key = "copy/em/1"
    evidence = stored([0.9 + 0.001 * s for s in range(SEEDS)], [0.2 + 0.002 * s for s in range(SEEDS)], key)
    statistic = difference("a", "b", key)
    asked = {least: claim(Beyond(0.1), statistic, learnt=((Value("a", key), least),)) for least in (0.5, 0.95)}
    assert judge(asked[0.5], evidence).word == "supported"
    found = judge(asked[0.95], evidence)
    assert (found.word, found.effect) == ("inconclusive", judge(asked[0.5], evidence).effect)
    assert "not learnt: copy/em/1 of a 0.903, at least 0.95" in found.note
    # Nor does it wait for more seeds where it is undecided anyway: more of such models would not help.
    few = judge(asked[0.95], evidence.first(2))
    assert (few.word, few.n_needed) == ("inconclusive", None)
    assert few.note.startswith("not learnt: ")
    unknown = claim(Beyond(0.1), statistic, learnt=((Value("c", key), 0.5),))
    assert "unknown" in judge(unknown, evidence).note
    # What was not run stays so.
    assert judge(asked[0.95], Stored()).word == "not run"


@pytest.mark.parametrize(
    ("start", "middle", "end", "lower", "closed"),
    [
        (0.4, 0.3, 0.2, True, 0.5),
        (0.4, 0.5, 0.2, True, -0.5),
        (0.2, 0.5, 0.3, True, None),  # the end is worse than the start: there is no gap to close
        (0.2, 0.2, 0.2, True, None),
        (0.1, 0.4, 0.7, False, 0.5),
        (0.7, 0.4, 0.1, False, None),
    ],
)
def test_a_gap_that_is_not_there_cannot_be_closed(
    start: float, middle: float, end: float, lower: bool, closed: float | None
) -> None:
    key = "g2p/per/test"
    evidence = Stored({(arm, key): {0: value} for arm, value in zip("abc", (start, middle, end), strict=True)})
    found = GapClosed(tuple(Value(arm, key) for arm in "abc"), lower=lower).per_seed(evidence)
    assert found == ({} if closed is None else {0: pytest.approx(closed)})


KEEPS, CROSSED = KeepsTo("a", "copy", 2), MoreVariance({("x", "u"): "a", ("x", "v"): "b"}, "copy/em/2")


@pytest.mark.parametrize(
    ("rule", "needs", "by_length", "checks"),
    [
        (Beyond(0.1), [], [], []),
        (Beyond(0.1, counted=True), [], [("a", "g2p"), ("b", "g2p")], []),
        (Within(0.1), [], [], []),
        (KEEPS, [("a", "copy")], [("a", "copy")], []),
        (CROSSED, [("a", "copy"), ("b", "copy")], [("a", "copy"), ("b", "copy")], []),
        (FailsMore("a", "b", "deep"), [("a", "deep"), ("b", "deep")], [], []),
        (NeverFails(("a", "c"), "deep"), [("a", "deep"), ("c", "deep")], [], []),
        (Deterministic(1.0), [], [], []),
        (Holds("theorem"), [], [], ["theorem"]),
        (Bounded("bound"), [], [], ["bound"]),
        (
            AtBest({"a": Holds("theorem"), "b": FailsMore("c", "b", "deep")}, "deep/valid_nll"),
            [("a", "deep"), ("b", "deep"), ("c", "deep")], [], ["theorem"],
        ),
    ],
)  # fmt: skip
def test_a_rule_says_what_it_reads_and_what_it_is_about(
    rule: Rule, needs: list[Any], by_length: list[Any], checks: list[str]
) -> None:
    of = claim(rule, difference("a", "b", "g2p/nll/test"))
    assert (list(rule.needs(of)), list(rule.by_length(of)), list(rule.checks())) == (needs, by_length, checks)


def test_what_a_study_declares_is_imported_without_what_judges_it() -> None:
    code = "import sys, transformer_ablate.study.rules; print({'torch', 'scipy.stats'} & sys.modules.keys() or '-')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "-\n"
