"""Golden numbers and laws of the tests that claims are decided by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from transformer_ablate.errors import ConfigError
from transformer_ablate.stats.hypotheses import (
    fisher,
    n_needed,
    paired_power,
    tost,
)


@pytest.mark.parametrize(("n", "effect"), [(3, 3.264), (5, 1.68), (8, 1.16), (10, 1.00), (20, 0.66)])
def test_the_effect_that_is_found_in_four_of_five_cases_golden(n: int, effect: float) -> None:
    assert paired_power(n, effect) == pytest.approx(0.8, abs=0.005)


def integrated_power(n: int, effect: float) -> float:
    """Power by integration of the normal tails over the chi-square of the variance: no noncentral t in it."""
    critical, shift = stats.t.ppf(0.975, n - 1), effect * math.sqrt(n)

    def density(v: float) -> float:
        edge = critical * math.sqrt(v / (n - 1))
        return float((stats.norm.sf(edge - shift) + stats.norm.cdf(-edge - shift)) * stats.chi2.pdf(v, n - 1))

    return float(integrate.quad(density, 0, 20 * n, limit=200)[0])


@pytest.mark.parametrize(("n", "effect"), [(2, 1.0), (3, 3.264), (8, 0.0), (8, -0.5), (8, 2.0), (20, 0.66)])
def test_power_matches_an_integration_without_the_noncentral_t(n: int, effect: float) -> None:
    assert paired_power(n, effect) == pytest.approx(integrated_power(n, abs(effect)), abs=1e-6)


@settings(deadline=None, max_examples=15)  # the machine is shared
@given(st.floats(0.05, 20), st.floats(0.5, 0.99))
def test_n_needed_is_the_first_number_with_the_power(effect: float, power: float) -> None:
    n = n_needed(1.0, effect, power)
    assert n is not None
    assert paired_power(n, effect) >= power
    assert n == 2 or paired_power(n - 1, effect) < power


def test_n_needed_depends_on_the_ratio_alone_and_can_be_none_or_huge() -> None:
    assert n_needed(1.0, 1.0) == n_needed(0.02, -0.02) == 10
    assert n_needed(1.0, 1.17) == 8
    assert n_needed(1.0, 0.0) is n_needed(0.0, 1.0) is n_needed(math.nan, 1.0) is None
    assert n_needed(1.0, 1e-4) == 784_887_974  # (1.9599640 + .8416212)² · 10⁸


@pytest.mark.parametrize("power", [0.0, 0.49, 1.0, math.nan])
def test_power_outside_its_range_is_refused(power: float) -> None:
    with pytest.raises(ConfigError, match="power"):
        n_needed(1.0, 1.0, power)


def test_tost_matches_two_one_sided_tests_of_scipy() -> None:
    x = [0.02, -0.01, 0.03, 0.00, 0.015, -0.02]
    found = tost(x, 0.03)
    low = stats.ttest_1samp(x, -0.03, alternative="greater")
    high = stats.ttest_1samp(x, 0.03, alternative="less")
    assert found == pytest.approx(max(low.pvalue, high.pvalue), rel=1e-9)
    assert found < 0.05


@settings(deadline=None, max_examples=30)  # the machine is shared
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=10), st.floats(0.01, 3))
def test_equivalence_is_the_90_percent_interval_within_the_margin(x: list[float], margin: float) -> None:
    found = tost(x, margin)
    assert found == tost([-d for d in x], margin)
    if found is not None and abs(found - 0.05) > 1e-9:
        interval = stats.ttest_1samp(x, 0.0).confidence_interval(0.9)
        assert (found < 0.05) == (-margin < interval.low and interval.high < margin)


def test_tost_without_width_never_decides() -> None:
    for x in ([0.0, 0.0, 0.0, 0.0], [0.1 + 0.2 - 0.3, 0.0, 0.0], [0.5]):
        assert tost(x, 0.05) is None


def test_tost_leaves_out_values_that_are_not_finite() -> None:
    assert tost([0.01, math.nan, 0.02, -math.inf], 0.5) == tost([0.01, 0.02], 0.5)
    assert tost([0.01, math.nan], 0.5) is None


@pytest.mark.parametrize("margin", [0.0, -1.0, math.nan, math.inf])
def test_margin_must_be_positive(margin: float) -> None:
    with pytest.raises(ConfigError, match="margin"):
        tost([0.1, 0.2], margin)


def test_fisher_golden() -> None:
    found = fisher(8, 8, 3, 8)  # by hand: C(8,3) / C(16,5) tables have all 5 failures in b
    assert found == pytest.approx((56 / 4368, 1.0), rel=1e-9)
    assert fisher(3, 3, 0, 3)[0] == pytest.approx(0.05)  # three seeds a side cannot get below 5 %


def test_fisher_without_seeds_and_with_impossible_counts() -> None:
    with pytest.raises(ConfigError, match="n_a = 0"):
        fisher(0, 0, 3, 8)
    with pytest.raises(ConfigError, match="k_b: got 9"):
        fisher(1, 8, 9, 8)


@settings(deadline=None, max_examples=15)  # the machine is shared
@given(st.integers(0, 8), st.integers(0, 8))
def test_fisher_swaps_with_its_sides(k_a: int, k_b: int) -> None:
    one, two = fisher(k_a, 8, k_b, 8), fisher(k_b, 8, k_a, 8)
    assert one == pytest.approx(two[::-1], rel=1e-9)
