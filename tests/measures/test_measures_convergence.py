"""Figures of hand-made training curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures.convergence import Convergence, diverged, first_below, running_mean
from transformer_ablate.training.curve import COLUMNS, Curve

V = 20
LN_V = math.log(V)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=70), st.integers(1, 30))
def test_running_mean(values: list[float], width: int) -> None:
    naive = [np.mean(values[max(0, i + 1 - width) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(running_mean(values, width), naive, atol=1e-8)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 50, 99])
def test_a_loss_that_is_no_number_is_divergence(value: float, at: int) -> None:
    nll = [0.1] * 100
    assert not diverged(nll, V)
    nll[at] = value
    assert diverged(nll, V)


def test_a_run_too_short_to_judge_is_judged_by_its_numbers_alone() -> None:
    assert not diverged([LN_V] * 24, V)
    assert not diverged([LN_V] * (LEAST_UPDATES - 1), V)
    assert diverged([LN_V] * LEAST_UPDATES, V)
    assert diverged([LN_V] * 23 + [math.inf], V)
    assert diverged([1.0, math.nan], V)


@pytest.mark.parametrize(("share", "expected"), [(0.89, False), (0.91, True), (1.0, True)])
def test_a_run_that_learnt_nothing_counts_as_diverged(share: float, expected: bool) -> None:
    assert diverged([LN_V] * 50 + [share * LN_V] * 100, V) == expected
    # The mean of the last twenty updates decides, not one lucky or unlucky batch.
    assert diverged([share * LN_V] * 100 + [0.95 * LN_V] * 1, V) == expected


@pytest.mark.parametrize(
    ("rise", "updates", "expected"),
    [(2.0, 150, True), (2.0, 60, False), (0.9, 150, False), (1.1, 150, True)],
)
def test_a_lasting_rise_is_divergence_even_after_recovery(rise: float, updates: int, expected: bool) -> None:
    nll = [0.3] * 50 + [0.3 + rise] * updates + [0.3] * 60
    assert diverged(nll, 1000) == expected


def test_a_rise_lasts_for_a_hundred_updates_on_end() -> None:
    # A running mean over 20 of a jump from 0 to 2 is above 1 from its 11th update to the 9th after it.
    for updates, expected in ((100, False), (101, True)):
        assert diverged([0.0] * 30 + [2.0] * updates + [0.0] * 30, 1000) == expected
    interrupted = [0.0] * 30 + ([2.0] * 80 + [0.0] * 30) * 3
    assert not diverged(interrupted, 1000)


@given(st.lists(st.tuples(st.floats(0, 4), st.integers(1, 90)), min_size=1, max_size=6))
def test_divergence_rule(pieces: list[tuple[float, int]]) -> None:
    nll = [value for value, n in pieces for _ in range(n)]
    smooth = [np.mean(nll[max(0, i - 19) : i + 1]) for i in range(len(nll))]
    lasting = [
        all(smooth[j] > min(smooth[: j + 1]) + 1 for j in range(i, i + 100)) for i in range(len(nll) - 99)
    ]  # fmt: skip
    margin = min(abs(smooth[-1] - 0.9 * LN_V), *(abs(s - min(smooth[: j + 1]) - 1) for j, s in enumerate(smooth)))
    if margin > 1e-9:  # where rounding cannot decide
        assert diverged(nll, V) == (len(nll) >= LEAST_UPDATES and (smooth[-1] > 0.9 * LN_V or any(lasting)))


def test_first_below() -> None:
    smooth = np.array([3.0, 2.0, 1.0, 2.0, 0.5])
    assert first_below(smooth, 2.0) == 2  # updates count from 1, and the bound itself is below
    assert first_below(smooth, 0.6) == 5
    assert math.isnan(first_below(smooth, 0.4))
    assert first_below(np.array([math.nan, 1.0]), 1.0) == 2


def curve(nll: list[float]) -> Curve:
    n = len(nll)
    result = Curve()
    steps = [float(i) for i in range(1, n + 1)]
    result.columns = {
        "step": steps,
        "nll": nll,
        "tokens": [100 * s for s in steps],
        "seconds": [0.5 * s for s in steps],
        "lr": [1e-3] * n,
        "grad_norm": [1.0 + (s == 3) for s in steps],
    }
    assert set(result.columns) == set(COLUMNS)
    return result


@pytest.fixture
def measured(half_trained: Evaluation) -> Any:
    def measure(nll: list[float]) -> dict[str, float]:
        task, recipe = half_trained.task, half_trained.recipe
        return dict(Convergence().measure(Evaluation(half_trained.model, task, recipe, curve(nll))).metrics)

    return measure


def test_figures_of_a_curve(measured: Any) -> None:
    # From 2 to 0.1 after update 20. The mean of 20 is 2 - 1.9 k/20 after k of the low ones: at most 1 from k = 11 on,
    # and 0.1 at k = 20.
    metrics = measured([2.0] * 20 + [0.1] * 40)
    assert metrics["initial_nll"] == 2
    assert metrics["final_nll"] == pytest.approx(0.1)
    assert metrics["steps_to_half"] == 31
    assert metrics["seconds_to_half"] == 15.5
    assert metrics["tokens_to_half"] == 3100
    assert metrics["steps_to_tenth"] == 39  # 2 - 1.9 * 19/20 = 0.195
    assert metrics["area"] == pytest.approx((20 * 2 + 40 * 0.1) / 60)
    assert metrics["grad_norm_max"] == 2
    assert metrics["diverged"] == 0
    assert metrics["train_seconds"] == 30
    assert metrics["train_tokens_per_second"] == 200


def test_thresholds_that_are_never_reached(measured: Any) -> None:
    metrics = measured([2.0] * 60)
    names = ("steps_to_half", "steps_to_tenth", "seconds_to_half", "tokens_to_half")
    assert all(math.isnan(metrics[name]) for name in names)
    assert metrics["diverged"] == 0  # 2 < .9 ln 12
    assert measured([2.4] * 100)["diverged"] == 1


def test_a_curve_that_ends_in_nan(measured: Any) -> None:
    metrics = measured([2.0, 1.9, math.nan, math.nan])
    assert metrics["diverged"] == 1
    assert metrics["initial_nll"] == 2
    assert math.isnan(metrics["final_nll"])


def test_a_bare_checkpoint_has_no_figures(half_trained: Evaluation) -> None:
    run = Evaluation(half_trained.model, half_trained.task, half_trained.recipe)
    assert Convergence().measure(run).metrics == {}
