"""Golden numbers and laws of variance shares and factorial effects."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from transformer_ablate.errors import ConfigError
from transformer_ablate.stats.designs import VarianceShares, factorial_effects, variance_shares
from transformer_ablate.stats.resampling import Interval

Array = np.ndarray


def as_table(y: Array) -> dict[tuple[str, str], dict[int, float]]:
    """(|A|, |B|, seeds) to cells."""
    return {(f"a{i}", f"b{j}"): dict(enumerate(y[i, j].tolist())) for i, j in np.ndindex(*y.shape[:2])}


def test_intervals_without_width_never_decide() -> None:
    solid = variance_shares(as_table(np.ones((1, 1, 8)) * np.array([[0.0, 0.1], [0.7, 0.8]])[..., None]))
    assert solid.difference.estimate == pytest.approx(0.49 / 0.5 - 0.01 / 0.5)
    assert (solid.difference.zero_width, solid.difference.excludes(0.0)) == (True, False)
    assert not Interval(3, 0.5).excludes(0.0)
    assert Interval(8, 0.5, 0.1, 0.9).excludes(0.0)
    assert not Interval(8, 0.5, 0.1, 0.9).excludes(0.1)


def naive_components(y: Array) -> tuple[float, float, float, float]:
    """The four components by mean squares, seed as a block and every effect against its interaction with it."""
    a, b, n = y.shape
    m = y.mean()
    seed = y.mean((0, 1)) - m
    effect_a, effect_b = y.mean((1, 2)) - m, y.mean((0, 2)) - m
    ab = y.mean(2) - m - effect_a[:, None] - effect_b
    a_seed = y.mean(1) - m - effect_a[:, None] - seed
    b_seed = y.mean(0) - m - effect_b[:, None] - seed
    rest = y - m - effect_a[:, None, None] - effect_b[:, None] - seed
    rest = rest - ab[..., None] - a_seed[:, None] - b_seed[None]
    da, db, ds = a - 1, b - 1, n - 1
    ms_a, ms_b, ms_ab = b * n * sum(effect_a**2) / da, a * n * sum(effect_b**2) / db, n * (ab**2).sum() / (da * db)
    ms_as, ms_bs = b * (a_seed**2).sum() / (da * ds), a * (b_seed**2).sum() / (db * ds)
    ms_rest = (rest**2).sum() / (da * db * ds)
    return (ms_a - ms_as) / (b * n), (ms_b - ms_bs) / (a * n), (ms_ab - ms_rest) / n, y.var(axis=2, ddof=1).mean()


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 2, 8), (5, 3, 2)])
def test_components_are_those_of_the_mean_squares(shape: tuple[int, int, int]) -> None:
    y = 100 + np.random.default_rng(0).normal(size=shape) + np.arange(shape[1])[:, None]
    found = variance_shares(as_table(y))
    assert list(found.components.values()) == pytest.approx(naive_components(y), abs=1e-10)


def shares_of(found: VarianceShares) -> list[float]:
    return [share.estimate or 0.0 for share in (found.a, found.b, found.interaction, found.residual)]


def test_shares_recover_planted_components() -> None:
    rng = np.random.default_rng(5)
    y = np.array([-1.0, 1.0])[:, None, None] + np.array([-1.0, 0.0, 1.0])[:, None] + rng.normal(size=(2, 3, 400))
    found = variance_shares(as_table(y))
    assert shares_of(found) == pytest.approx([0.5, 0.25, 0.0, 0.25], abs=0.03)  # Σα²/(|A|−1) = 2, 1, 0, 1
    assert found.difference.excludes(0.0)
    assert found.a.low is not None
    assert found.a.high is not None
    assert found.a.low < 0.5 < found.a.high


def test_a_common_seed_effect_is_residual_and_never_a_factor() -> None:
    y = np.zeros((2, 3, 8)) + np.random.default_rng(2).normal(size=8)
    assert shares_of(variance_shares(as_table(y))) == pytest.approx([0, 0, 0, 1], abs=1e-12)


def test_negative_components_count_as_zero() -> None:
    sign = np.array([1.0, -1.0] * 4)  # the effect of A changes sign with the seed: its mean is 0, below its own noise
    y = np.array([-1.0, 1.0])[:, None, None] * sign + np.zeros((2, 2, 8))
    found = variance_shares(as_table(y))
    assert found.components["a"] < 0
    assert shares_of(found) == [0.0, 0.0, 0.0, 1.0]


@settings(deadline=None, max_examples=15)  # the machine is shared
@given(st.integers(0, 10**6), st.floats(-5, 5), st.floats(0.1, 10))
def test_shares_sum_to_one_ignore_units_and_swap_with_the_factors(seed: int, shift: float, scale: float) -> None:
    y = np.random.default_rng(seed).normal(size=(2, 3, 6)) + np.arange(2)[:, None, None]
    found, other = (variance_shares(as_table(v)) for v in (y, shift + scale * y))
    assert sum(shares_of(found)) == pytest.approx(1)
    assert shares_of(other) == pytest.approx(shares_of(found), abs=1e-9)
    swapped = variance_shares(as_table(y.transpose(1, 0, 2)))
    assert swapped.difference.low == pytest.approx(-(found.difference.high or 0.0), abs=1e-9)
    assert swapped.difference.estimate == pytest.approx(-(found.difference.estimate or 0.0), abs=1e-9)


def test_variance_shares_with_few_seeds_or_nothing_to_share() -> None:
    y = np.random.default_rng(0).normal(size=(2, 2, 5))
    few = variance_shares(as_table(y[..., :2]))
    assert few.a.estimate is not None
    assert (few.a.low, few.difference.excludes(0.0)) == (None, False)
    assert variance_shares(as_table(y[..., :1])).a.estimate is None
    assert variance_shares(as_table(0.1 * np.ones((2, 2, 8)))).residual.estimate is None
    holed = as_table(y)
    holed["a0", "b0"][3] = math.nan
    assert (variance_shares(holed).a.n, variance_shares(holed).a.excluded) == (4, 1)


def test_variance_shares_refuses_designs_that_are_not_crossed() -> None:
    table = as_table(np.zeros((2, 2, 3)))
    del table["a1", "b0"]
    with pytest.raises(ConfigError, match=r"a1.*b0"):
        variance_shares(table)
    with pytest.raises(ConfigError, match="factor B"):
        variance_shares(as_table(np.zeros((2, 1, 3))))


def design(k: int, *, half: bool = False, seeds: int = 4) -> dict[tuple[int, ...], dict[int, float]]:
    """2^k runs, or 2^(k−1) with the last factor the product of the others: y = 3 + 2 A − 1 B + .5 AB, noisy by seed."""
    noise = np.random.default_rng(0).normal(size=seeds)
    runs = {}
    for levels in product((-1, 1), repeat=k - half):
        full = (*levels, math.prod(levels)) if half else levels
        a, b = full[:2]
        runs[full] = {s: 3 + 2 * a - b + 0.5 * a * b + 0.1 * noise[s] * a + noise[s] for s in range(seeds)}
    return runs


@pytest.mark.parametrize("half", [False, True])
def test_factorial_effects_recover_a_planted_model(half: bool) -> None:
    effects = {e.name: e for e in factorial_effects(design(5, half=half), "ABCDE")}
    assert len(effects) == 15
    noise = np.random.default_rng(0).normal(size=4)
    per_seed = 2 * (2 + 0.1 * noise)  # from −1 to +1 is two units; the seed's own level cancels
    assert list(effects["A"].effect.differences.values()) == pytest.approx(per_seed.tolist())
    assert effects["A"].effect.p == pytest.approx(stats.ttest_1samp(per_seed, 0).pvalue, rel=1e-6)
    assert effects["B"].effect.summary.mean == pytest.approx(-2.0)
    assert effects["A × B"].effect.summary.mean == pytest.approx(1.0)
    assert effects["C × D"].effect.summary.mean == pytest.approx(0.0, abs=1e-12)


def test_effects_that_do_not_vary_over_seeds_carry_no_p() -> None:
    effects = {e.name: e for e in factorial_effects(design(3), "ABC")}
    assert effects["B"].effect.summary.zero_width
    assert effects["B"].effect.p is None
    assert effects["A"].effect.p is not None


def test_half_fraction_of_resolution_five_names_its_aliases() -> None:
    effects = {e.name: e for e in factorial_effects(design(5, half=True), "ABCDE")}
    assert effects["A"].alias == ("B", "C", "D", "E")
    assert effects["E"].alias == ("A", "B", "C", "D")
    assert effects["B × D"].alias == ("A", "C", "E")
    assert all(e.alias is None for e in factorial_effects(design(3), "ABC"))


def test_aliases_of_a_defining_word_that_leaves_a_factor_out() -> None:
    runs = {(a, b, c, a * b): {0: 0.0} for a, b, c in product((-1, 1), repeat=3)}  # D = AB, the word is ABD
    effects = {e.name: e for e in factorial_effects(runs, "ABCD")}
    assert effects["A"].alias == ("B", "D")
    assert effects["C"].alias == ("A", "B", "C", "D")
    assert effects["A × C"].alias == ("B", "C", "D")


def test_an_aliased_effect_is_seen_under_the_name_of_its_alias() -> None:
    runs = {levels: {0: float(levels[2] * levels[3] * levels[4])} for levels in design(5, half=True)}
    effects = {e.name: e for e in factorial_effects(runs, "ABCDE")}
    assert {name for name, e in effects.items() if e.effect.summary.mean} == {"A × B"}
    assert effects["A × B"].alias == ("C", "D", "E")


def test_seeds_that_lack_a_run_are_left_out_of_factorial_effects() -> None:
    runs = design(3)
    runs[1, 1, 1][0] = math.nan
    del runs[1, 1, -1][2]
    assert list(factorial_effects(runs, "ABC")[0].effect.differences) == [1, 3]


@pytest.mark.parametrize(
    ("runs", "factors"),
    [
        ([(1, 1), (1, -1), (-1, 1)], "AB"),  # three of four
        ([(1, 1), (1, -1)], "AB"),  # A never changes
        ([(1, 1), (-1, -1)], "AB"),  # A and B change together
        ([(1, 0), (1, -1), (-1, 1), (-1, -1)], "AB"),  # 0 is no level
        ([(1,), (-1,)], "AB"),
        ([(1, 1), (1, -1), (-1, 1), (-1, -1)], "AA"),
        ([(1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1)], "ABC"),  # half, but no product is fixed
    ],
)
def test_factorial_effects_refuses_other_designs(runs: list[tuple[int, ...]], factors: str) -> None:
    with pytest.raises(ConfigError):
        factorial_effects({levels: {0: 1.0} for levels in runs}, factors)
