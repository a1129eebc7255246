"""Golden numbers and laws of the statistics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_ablate.stats.summary import (
    clopper_pearson,
    holm,
    paired_difference,
    sign_flip_p,
    summarise,
)

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


def test_t_interval_of_one_two_three() -> None:
    summary = summarise([1.0, 2.0, 3.0])
    assert (summary.n, summary.mean, summary.sd) == (3, 2.0, 1.0)
    assert summary.half_width == pytest.approx(2.484138, abs=1e-6)
    assert not summary.zero_width


def test_one_seed_has_a_value_and_no_interval() -> None:
    summary = summarise([0.5])
    assert (summary.mean, summary.sd, summary.low, summary.half_width) == (0.5, None, None, None)


def test_no_seed_has_nothing() -> None:
    assert summarise([]).mean is None
    assert summarise([math.nan, math.inf]).mean is None


def test_values_that_are_not_finite_are_counted_never_averaged() -> None:
    summary = summarise([1.0, math.nan, 3.0, -math.inf])
    assert (summary.n, summary.mean, summary.excluded) == (2, 2.0, 2)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.3, 1e-9])
def test_equal_values_have_an_interval_without_width(value: float) -> None:
    summary = summarise([value] * 3)
    assert summary.zero_width
    assert summary.low == summary.high == summary.mean == value


def test_differences_equal_but_for_rounding_carry_no_p() -> None:
    difference = paired_difference({0: 0.3, 1: 0.5, 2: 0.9}, {0: 0.2, 1: 0.4, 2: 0.8})
    assert difference.summary.zero_width
    assert difference.p is None
    assert difference.p_sign_flip == 0.25


def test_pairs_are_by_seed_and_need_both_sides() -> None:
    difference = paired_difference({2: 5.0, 0: 1.0, 1: math.nan, 7: 9.0}, {0: 0.5, 1: 1.0, 2: 2.0, 8: 0.0})
    assert difference.differences == {0: 0.5, 2: 3.0}
    assert difference.summary.n == 2


def test_paired_p_matches_scipy() -> None:
    from scipy import stats

    a, b = [0.9, 0.7, 0.8, 0.95], [0.6, 0.65, 0.5, 0.7]
    mine = paired_difference(dict(enumerate(a)), dict(enumerate(b)))
    assert mine.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


def test_paired_t_test_holds_its_level_under_the_null() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 2500, 5)) + rng.normal(size=(2500, 5))
    p = [paired_difference(dict(enumerate(x)), dict(enumerate(y))).p for x, y in zip(a, b, strict=True)]
    rate = np.mean([v is not None and v < 0.05 for v in p])
    assert 0.03 <= rate <= 0.07


@pytest.mark.parametrize("n", [5, 6, 8])
def test_smallest_sign_flip_p(n: int) -> None:
    assert sign_flip_p([1.0 + 0.1 * i for i in range(n)]) == 2.0 ** (1 - n)


def test_sign_flip_has_no_p_without_seeds_or_with_too_many() -> None:
    assert sign_flip_p([]) is None
    assert sign_flip_p([1.0] * 21) is None
    assert sign_flip_p([0.0, 0.0]) == 1.0


@settings(deadline=None)  # the machine is shared
@given(st.lists(VALUES, min_size=1, max_size=10))
def test_sign_flip_p_is_a_multiple_of_two_to_the_minus_n(x: list[float]) -> None:
    p = sign_flip_p(x)
    assert p is not None
    assert 2.0 ** (1 - len(x)) <= p <= 1
    assert (p * 2 ** len(x)).is_integer()


def test_holm_golden() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def test_holm_counts_a_contrast_without_p() -> None:
    assert holm([0.01, None, 0.02]) == [pytest.approx(0.03), None, pytest.approx(0.04)]


@settings(deadline=None)  # the machine is shared
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_monotone_and_between_p_and_bonferroni(p: list[float]) -> None:
    corrected = [c for c in holm(p) if c is not None]
    assert all(a <= c <= min(1.0, a * len(p)) for a, c in zip(p, corrected, strict=True))
    by_p = [c for _, c in sorted(zip(p, corrected, strict=True))]
    assert by_p == sorted(by_p)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(3, 3, 0.292, 1), (8, 8, 0.631, 1), (0, 10, 0, 0.308), (8, 10, 0.444, 0.975)]
)
def test_clopper_pearson_golden(k: int, n: int, low: float, high: float) -> None:
    assert clopper_pearson(k, n) == pytest.approx((low, high), abs=5e-4)


def test_clopper_pearson_edges() -> None:
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="k=4, n=3"):
        clopper_pearson(4, 3)


@settings(deadline=None)  # the machine is shared
@given(st.integers(0, 30), st.integers(0, 30))
def test_clopper_pearson_holds_the_share_and_mirrors(k: int, misses: int) -> None:
    n = k + misses
    interval, mirrored = clopper_pearson(k, n), clopper_pearson(misses, n)
    assert 0 <= interval[0] <= k / max(n, 1) <= interval[1] <= 1
    assert mirrored == pytest.approx((1 - interval[1], 1 - interval[0]), abs=1e-9)


@settings(deadline=None)  # the machine is shared
@given(st.lists(VALUES, min_size=2, max_size=12), st.floats(-100, 100))
def test_interval_is_about_the_mean_and_moves_with_it(x: list[float], shift: float) -> None:
    a, b = summarise(x), summarise([v + shift for v in x])
    assert a.low is not None
    assert a.high is not None
    assert a.mean is not None
    assert b.mean is not None
    assert a.low <= a.mean <= a.high
    assert b.mean == pytest.approx(a.mean + shift, abs=1e-6)
    assert summarise(reversed(x)).mean == pytest.approx(a.mean, abs=1e-6)


@settings(deadline=None)  # the machine is shared
@given(st.dictionaries(st.integers(0, 9), VALUES), st.dictionaries(st.integers(0, 9), VALUES))
def test_swapping_arms_flips_the_effect_and_keeps_p(a: dict[int, float], b: dict[int, float]) -> None:
    one, two = paired_difference(a, b), paired_difference(b, a)
    assert one.summary.n == two.summary.n == len(a.keys() & b.keys())
    if one.summary.mean is not None and two.summary.mean is not None:
        assert one.summary.mean == -two.summary.mean
    assert one.p == two.p
    assert one.p_sign_flip == two.p_sign_flip
