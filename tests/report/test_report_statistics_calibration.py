"""Every test that claims rest on, under at least 2 000 simulated nulls, and its power where theory gives it.

A 5 % test that is exact must be wrong in 3 to 7 % of them (with 2 000 nulls .05 ± .02 is four standard errors). The
paired t-test itself is in test_report_statistics.
"""

from __future__ import annotations

import functools
from itertools import product

import numpy as np
import pytest
from scipy import stats

from transformer_ablate.stats.designs import factorial_effects, variance_shares
from transformer_ablate.stats.hypotheses import fisher, paired_power, tost
from transformer_ablate.stats.summary import paired_difference, sign_flip_p

NULLS = 2_000


def seeded(x: np.ndarray) -> dict[int, float]:
    return dict(enumerate(x.tolist()))


def test_sign_flips_hold_their_level_with_eight_seeds() -> None:
    x = np.random.default_rng(1).standard_t(3, size=(NULLS, 8))  # any symmetric distribution will do
    rate = np.mean([(sign_flip_p(row) or 0) <= 0.05 for row in x.tolist()])
    assert 0.03 <= rate <= 0.07


@pytest.mark.parametrize("side", [-1, 1])
def test_tost_at_the_margin_is_wrong_in_five_percent(side: int) -> None:
    x = side * 1.0 + 0.2 * np.random.default_rng(2 + side).normal(size=(NULLS, 8))
    rate = np.mean([(tost(row, 1.0) or 1.0) < 0.05 for row in x.tolist()])
    assert 0.03 <= rate <= 0.07


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_fisher_is_conservative(share: float) -> None:
    test = functools.cache(fisher)
    counts = np.random.default_rng(4).binomial(8, share, size=(NULLS, 2)).tolist()
    found = np.array([test(a, 8, b, 8) for a, b in counts])
    assert (np.mean(found <= 0.05, axis=0) <= 0.07).all()
    assert found.min() < 0.05  # and yet it can reject


def test_equal_variance_shares_are_told_apart_in_five_percent() -> None:
    rng = np.random.default_rng(7)
    a = np.array([-1.0, 1.0]) / np.sqrt(2)  # Σα² / (|A| − 1) = 1, as for b
    b = np.array([-1.0, 0.0, 0.0, 1.0]) * np.sqrt(1.5)
    x = a[:, None, None] + b[:, None] + rng.normal(size=(NULLS, 2, 4, 8)) + 0.5 * rng.normal(size=(NULLS, 1, 1, 8))
    tables = [{(str(i), str(j)): seeded(y[i, j]) for i, j in np.ndindex(2, 4)} for y in x]
    found = [variance_shares(table).difference for table in tables]
    low, high = (np.mean([d.excludes(0.0) and sign * (d.estimate or 0) > 0 for d in found]) for sign in (-1, 1))
    assert 0.03 <= low + high <= 0.07
    assert min(low, high) >= 0.01  # on both sides


def test_factorial_effects_without_effect_are_found_in_five_percent() -> None:
    rng = np.random.default_rng(8)
    runs = [(*levels, int(np.prod(levels))) for levels in product((-1, 1), repeat=4)]
    p: list[float] = []
    for _ in range(NULLS // 15 + 1):  # 15 effects each, independent of each other: their contrasts are orthogonal
        y = rng.normal(size=(16, 8)) + rng.normal(size=8)
        effects = factorial_effects(dict(zip(runs, map(seeded, y), strict=True)), "ABCDE")
        p += [e.effect.p or 0.0 for e in effects]
    assert len(p) >= NULLS
    assert 0.03 <= np.mean(np.array(p) < 0.05) <= 0.07


@pytest.mark.parametrize(("n", "effect", "golden"), [(8, 2.0, None), (8, 1.16, 0.8), (5, 1.68, 0.8)])
def test_power_of_the_paired_t_test_is_that_of_the_noncentral_t(n: int, effect: float, golden: float | None) -> None:
    x = effect + np.random.default_rng(10).normal(size=(NULLS, n))
    p = [paired_difference(seeded(row), dict.fromkeys(range(n), 0.0)).p for row in x]
    rate = np.mean([v is not None and v < 0.05 for v in p])
    assert rate == pytest.approx(paired_power(n, effect), abs=0.03)
    critical = stats.t.ppf(0.975, n - 1)
    assert rate == pytest.approx(stats.nct.sf(critical, n - 1, effect * n**0.5), abs=0.03)
    if golden is not None:
        assert paired_power(n, effect) == pytest.approx(golden, abs=0.005)
