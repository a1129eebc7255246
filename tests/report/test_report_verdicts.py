"""Verdicts follow from stored values and the claim alone: swap the arms and they swap, remove seeds and they go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.stored import SEEDS, Stored, claim, failures, stored
from transformer_ablate.measures.exact import Checked
from transformer_ablate.study.claims import (
    AtBestSetting,
    Best,
    Minus,
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
    NeverFails,
    Within,
)
from transformer_ablate.verdicts.judge import judge

OPPOSITE = {"supported": "refuted", "indicated": "counter-indicated", "inconclusive": "inconclusive"}


LARGER = claim(Beyond(0.02), difference("a", "b", "g2p/nll/test"))
NOISE = np.random.default_rng(0).normal(0, 0.01, (2, SEEDS))
APART = stored(1.0 + NOISE[0], 0.8 + NOISE[1])


def test_an_effect_past_its_margin_is_supported_and_the_swapped_one_refuted() -> None:
    found = judge(LARGER, APART)
    assert found.word == "supported"
    assert found.n == SEEDS
    assert found.effect == pytest.approx(float((1.0 + NOISE[0] - 0.8 - NOISE[1]).mean()))
    assert judge(LARGER, APART.swapped()).word == "refuted"


@pytest.mark.parametrize(
    ("seeds", "word"), [(8, "supported"), (7, "indicated"), (3, "indicated"), (2, "inconclusive"), (1, "inconclusive")]
)
def test_with_fewer_seeds_a_verdict_weakens(seeds: int, word: str) -> None:
    assert judge(LARGER, APART.first(seeds)).word == word


def test_without_values_nothing_was_run_and_the_arms_are_named() -> None:
    found = judge(LARGER, Stored())
    assert found.word == "not run"
    assert "a in g2p" in found.note


def test_an_interval_without_width_decides_nothing() -> None:
    found = judge(LARGER, stored([1.0] * SEEDS, [0.5] * SEEDS))
    assert found.word == "inconclusive"
    assert "no width" in found.note


def test_an_effect_below_three_margins_is_not_indicated() -> None:
    near = stored([0.05, 0.055, 0.045], [0.0, 0.0, 0.0])
    assert judge(LARGER, near).word == "inconclusive"
    assert judge(claim(Beyond(0.01), *LARGER.statistics), near).word == "indicated"


def test_seeds_of_one_mind_that_are_too_near_to_indicate_anything_are_remarked_on() -> None:
    remark = "all seeds on one side, by less than three margins on average"
    b = [0.0, 0.0, 0.0]
    assert judge(LARGER, stored([0.05, 0.055, 0.045], b)).note == remark
    assert judge(LARGER, stored([-0.01, 0.0, -0.02], b)).note == remark  # all of them short of the bound, too
    assert judge(LARGER, stored([0.05, 0.055, -0.045], b)).note == ""
    assert judge(LARGER, stored([0.05, 0.055], b[:2])).note == ""  # two seeds are of one mind too easily
    assert judge(LARGER, stored([0.5, 0.55, 0.45], b)).note == ""  # indicated: the word says it
    counted = claim(Beyond(0.05, counted=True), difference("a", "b", "copy/em/1"))
    assert judge(counted, stored([0.06, 0.07, 0.08], b, "copy/em/1")).note.endswith(remark)


def test_an_undecided_claim_says_how_many_seeds_would_decide() -> None:
    wide = stored(np.linspace(-0.1, 0.2, SEEDS), [0.0] * SEEDS)
    found = judge(LARGER, wide)
    assert found.word == "inconclusive"
    assert found.n_needed is not None
    assert found.n_needed > SEEDS


def test_one_seed_that_is_not_finite_is_left_out() -> None:
    values = [math.nan, *(1.0 + NOISE[0][1:])]
    assert judge(LARGER, stored(values, 0.8 + NOISE[1])).n == SEEDS - 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12))
def test_without_a_margin_swapping_the_arms_turns_every_verdict_round(values: list[float]) -> None:
    rule = claim(Beyond(0.0), difference("a", "b", "g2p/nll/test"))
    pairs = stored(values, [0.0] * len(values))
    word, turned = judge(rule, pairs).word, judge(rule, pairs.swapped()).word
    assert turned == OPPOSITE.get(word, {v: k for k, v in OPPOSITE.items()}.get(word))


def test_exact_match_is_judged_by_counted_seeds() -> None:
    rule = claim(Beyond(0.05, counted=True), difference("a", "b", "copy/em/2"))
    collapsed = stored([1.0] * SEEDS, [0.0] * SEEDS, "copy/em/2")
    assert judge(rule, collapsed).word == "supported"
    assert judge(rule, collapsed.swapped()).word == "refuted"
    assert judge(rule, collapsed.first(5)).word == "indicated"
    mixed = stored([1.0] * 4 + [0.0] * 4, [0.0] * SEEDS, "copy/em/2")
    assert judge(rule, mixed).word == "inconclusive"


def test_several_comparisons_must_hold_together() -> None:
    both = Stored(
        {
            **APART.table,
            ("b", "g2p/nll/other"): dict(enumerate(1.0 + NOISE[1])),
            ("a", "g2p/nll/other"): dict(enumerate(1.0 + NOISE[0])),
        }
    )
    family = claim(Beyond(0.02), difference("a", "b", "g2p/nll/test"), difference("a", "b", "g2p/nll/other"))
    assert judge(claim(Beyond(0.02), family.statistics[0]), both).word == "supported"
    assert judge(family, both).word != "supported"


def test_equivalence_needs_both_tests() -> None:
    rule = claim(Within(0.05), difference("a", "b", "g2p/nll/test"))
    same = stored(1.0 + NOISE[0], 1.0 + NOISE[1])
    assert judge(rule, same).word == "supported"
    assert judge(rule, APART).word == "refuted"
    assert judge(rule, same.first(2)).word == "inconclusive"
    assert judge(rule, APART.first(4)).word == "counter-indicated"


def lengths(ratios: Sequence[Sequence[float]]) -> Stored:
    names = ("1", "1.5", "2")
    return Stored({("a", f"copy/em/{n}"): dict(enumerate(v)) for n, v in zip(names, ratios, strict=True)})


@pytest.mark.parametrize(
    ("at_twice", "word"),
    [([0.95] * 8, "supported"), ([0.95] * 7 + [0.0], "supported"), ([0.95] * 4 + [0.0] * 4, "inconclusive"),
     ([0.0] * 8, "refuted"), ([0.0] * 7 + [0.95], "refuted"), ([0.95] * 3, "indicated"),
     ([0.0] * 3, "counter-indicated")],
)  # fmt: skip
def test_a_length_is_reached_where_most_seeds_keep_their_exact_match(at_twice: list[float], word: str) -> None:
    ones, n = [1.0] * len(at_twice), len(at_twice)
    found = judge(claim(KeepsTo("a", "copy", 2)), lengths([ones, ones, at_twice]))
    assert found.word == word
    # The number beside the interval is what the interval is of: the share of seeds.
    assert found.effect == sum(value >= 0.9 for value in at_twice) / n
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.effect <= found.high
    assert f"{sum(at_twice) / n:.2g} in the mean" in found.note


def test_a_length_is_not_reached_over_a_gap() -> None:
    gap = lengths([[1.0] * 8, [0.0] * 8, [1.0] * 8])
    assert judge(claim(KeepsTo("a", "copy", 2)), gap).word == "inconclusive"


def test_shares_of_failed_seeds_are_compared_by_fisher() -> None:
    rule = claim(FailsMore("a", "b", "deep"))
    clear = failures([True] * 8, [False] * 8)
    assert judge(rule, clear).word == "supported"
    assert judge(rule, clear.swapped()).word == "refuted"
    assert judge(rule, clear.first(3)).word == "indicated"
    assert judge(rule, failures([True] * 3 + [False] * 5, [False] * 8)).word == "inconclusive"
    assert judge(rule, Stored()).word == "not run"


def test_never_failing_is_refuted_by_a_certain_majority_of_failures() -> None:
    rule = claim(NeverFails(("a",), "deep"))
    assert judge(rule, failures([False] * 8, [])).word == "supported"
    assert judge(rule, failures([True] * 8, [])).word == "refuted"
    assert judge(rule, failures([True] + [False] * 7, [])).word == "inconclusive"


def at_rates(slow: Sequence[float], fast: Sequence[float]) -> Stored:
    """At the slow rate no seed fails without warmup, at the fast one all do; losses of the warmed arms as given."""
    losses = {"warmed": slow, "warmed-fast": fast}
    evidence = Stored({(arm, "deep/valid_nll"): dict(enumerate(values)) for arm, values in losses.items()})
    for arm, fails in (("warmed", False), ("cold", False), ("warmed-fast", False), ("cold-fast", True)):
        evidence.failures[arm] = dict.fromkeys(range(SEEDS), fails)
    return evidence


@pytest.mark.parametrize(
    ("slow", "fast", "word"),
    [
        ([0.5] * SEEDS, [0.4] * SEEDS, "supported"),
        ([0.4] * SEEDS, [0.5] * SEEDS, "refuted"),
        # One seed of the fast arm has no finite loss: the rest of it must not make it the best.
        ([0.5] * SEEDS, [math.nan, *[0.4] * (SEEDS - 1)], "refuted"),
        ([], [0.4] * SEEDS, "supported"),  # what was not run is not chosen
        ([], [], "not run"),
    ],
)
def test_a_rule_is_applied_where_an_arm_does_best_on_validation_data(
    slow: list[float], fast: list[float], word: str
) -> None:
    rules = {
        "warmed": FailsMore("cold", "warmed", "deep"),
        "warmed-fast": FailsMore("cold-fast", "warmed-fast", "deep"),
    }
    rule = claim(AtBest(rules, "deep/valid_nll"))
    found = judge(rule, at_rates(slow, fast))
    assert found.word == word
    if word != "not run":
        assert f"at {'warmed-fast' if word == 'supported' else 'warmed'}, the best by deep/valid_nll" in found.note
    assert judge(rule, at_rates(slow, fast).first(2)).word in ("inconclusive", "not run")


@pytest.mark.parametrize(
    ("slow", "fast", "word"),
    [
        ([0.5] * SEEDS, [0.4] * SEEDS, "supported"),
        ([0.4] * SEEDS, [0.5] * SEEDS, "refuted"),
        ([0.5] * SEEDS, [math.inf, *[0.4] * (SEEDS - 1)], "refuted"),
        ([0.5] * SEEDS, [0.4] * (SEEDS - 1), "refuted"),  # a seed of the fast one crashed
        ([math.inf] * SEEDS, [math.inf] * SEEDS, "not run"),
        ([0.5] * SEEDS, [], "not run"),  # one arm searched for less than another is no comparison
        ([], [], "not run"),
    ],
)
def test_an_arm_is_compared_at_the_setting_that_has_its_lowest_validation_loss(
    slow: list[float], fast: list[float], word: str
) -> None:
    settings = AtBestSetting(("a", "a-fast"), "g2p/per/test", "g2p/valid_nll")
    lower = claim(Beyond(0.0, below=True), Minus((settings, Value("b", "g2p/per/test"))))
    table = {
        ("a", "g2p/per/test"): dict(enumerate(0.3 + NOISE[0])),
        ("a-fast", "g2p/per/test"): dict(enumerate(0.1 + NOISE[0])),
        ("b", "g2p/per/test"): dict(enumerate(0.2 + NOISE[1])),
        ("a", "g2p/valid_nll"): dict(enumerate(slow)),
        ("a-fast", "g2p/valid_nll"): dict(enumerate(fast)),
    }
    found = judge(lower, Stored(table))
    assert found.word == word
    if word == "supported":
        assert found.note == "at a-fast, the best by g2p/valid_nll: a 0.5, a-fast 0.4"


@pytest.mark.parametrize(("holds", "word"), [(True, "supported"), (False, "refuted")])
def test_exact_claims_are_decided_by_their_check_at_any_n(holds: bool, word: str) -> None:
    exact = claim(Holds("theorem"), kind="exact")
    assert judge(exact, Stored(checks={"theorem": Checked(holds, 0.5, 1.0, "computed")})).word == word
    assert judge(exact, Stored()).word == "not run"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([2.0, 2.0], "supported"),
        ([1.0], "refuted"),
        ([2.0, 1.0], "inconclusive"),
        ([2.0, 2.4], "inconclusive"),  # chance has a part in it
        ([], "not run"),
    ],
)
def test_counts_without_chance_are_decided_at_any_n(values: list[float], word: str) -> None:
    evidence = stored(values, [], "long/memory_exponent")
    statistic = Value("a", "long/memory_exponent")
    assert judge(claim(Deterministic(1.8), statistic, kind="exact"), evidence).word == word
    assert judge(claim(Deterministic(1.8, below=True), statistic, kind="exact"), evidence).word == (
        {"supported": "refuted", "refuted": "supported"}.get(word, word)
    )


@pytest.mark.parametrize("below", [True, False])
def test_a_count_at_its_bound_is_within_it(below: bool) -> None:
    at = claim(Deterministic(2.0, below), Value("a", "long/memory_exponent"), kind="exact")
    assert judge(at, stored([2.0], [], "long/memory_exponent")).word == "supported"


def test_the_best_of_several_arms_is_named_beside_the_verdict() -> None:
    key = "g2p/per/test"
    table = {(arm, key): dict(enumerate(level + NOISE[0])) for arm, level in (("a", 0.3), ("b", 0.2), ("c", 0.25))}
    lower = claim(Beyond(0.0, below=True), Minus((Value("a", key), Best(("b", "c"), key, lowest=True))))
    table["a", key] = dict(enumerate(0.3 + NOISE[1]))
    found = judge(lower, Stored(table))
    assert found.word == "refuted"
    assert found.note == "the best is b"


def test_a_computed_bound_holds_in_every_seed_or_not_at_all() -> None:
    bound = claim(Bounded("bound"), Value("a", "copy/em/1"))
    evidence = stored([0.1, 0.2, 0.3], [0.0] * 3, "copy/em/1")
    evidence.checks["bound"] = Checked(True, 0.3, 0.3, "computed")
    assert judge(bound, evidence).word == "supported"
    evidence.table["a", "copy/em/1"][1] = 0.31
    assert judge(bound, evidence).word == "refuted"
    assert judge(replace(bound, rule=Bounded("bound", slack=0.02)), evidence).word == "supported"


def test_a_bound_says_nothing_of_models_that_are_nowhere_near_it() -> None:
    floor = claim(Bounded("floor", below=False, near=0.05), Value("a", "copy/nll/1"))
    evidence = stored([0.10, 0.12], [0.0] * 2, "copy/nll/1")
    evidence.checks["floor"] = Checked(True, 0.1, 0.1, "computed")
    assert judge(floor, evidence).word == "supported"
    evidence.table["a", "copy/nll/1"][1] = 2.8
    assert judge(floor, evidence).word == "inconclusive"
    evidence.table["a", "copy/nll/1"][1] = 0.05
    assert judge(floor, evidence).word == "refuted"


def test_what_needs_a_gpu_is_not_run_without_one() -> None:
    needs = replace(LARGER, cuda=True)
    assert judge(needs, APART).word == "not run"
    assert judge(needs, APART, cuda=True).word == "supported"
