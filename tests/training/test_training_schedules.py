"""Learning rates by update, counted from 1."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import TrainConfig
from transformer_ablate.registry import SCHEDULES

NAMES = SCHEDULES.names()


def rate(name: str, update: int, d_model: int = 64, **options: Any) -> float:
    return float(SCHEDULES[name](update, TrainConfig(schedule=name, **options), d_model))


@pytest.mark.parametrize(
    ("d_model", "warmup", "update", "expected"),
    [
        (512, 4000, 1, 1.746928107e-7),
        (512, 4000, 2, 3.493856215e-7),
        (512, 4000, 2000, 3.493856215e-4),
        (512, 4000, 4000, 6.98771243e-4),
        (512, 4000, 8000, 4.941058844e-4),
        (512, 4000, 16000, 3.493856215e-4),
        (512, 4000, 100000, 1.397542486e-4),
        (64, 400, 1, 1.5625e-5),
        (64, 400, 400, 6.25e-3),
        (128, 400, 400, 4.419417e-3),
        (256, 4000, 4000, 9.882118e-4),
    ],
)
def test_noam_values(d_model: int, warmup: int, update: int, expected: float) -> None:
    for factor in (1.0, 2.0):
        given_rate = rate("noam", update, d_model, lr=factor, warmup_steps=warmup, max_steps=100_000)
        assert given_rate == pytest.approx(factor * expected, rel=1e-7)


def test_noam_peaks_at_the_end_of_warmup() -> None:
    rates = [rate("noam", s, warmup_steps=40, lr=1.0) for s in range(1, 200)]
    assert rates.index(max(rates)) + 1 == 40


@pytest.mark.parametrize("name", NAMES)
@given(warmup=st.integers(3, 300), lr=st.floats(1e-6, 10))
def test_warmup_rises_in_equal_steps_from_one_share(name: str, warmup: int, lr: float) -> None:
    rates = [rate(name, s, lr=lr, warmup_steps=warmup, max_steps=1000) for s in (1, 2, 3, warmup)]
    assert rates[1] / rates[0] == pytest.approx(2)
    assert rates[2] / rates[0] == pytest.approx(3)
    assert rates[3] / rates[0] == pytest.approx(warmup)


@pytest.mark.parametrize("name", NAMES)
@given(
    warmup=st.integers(0, 60), steps=st.integers(1, 80), lr=st.floats(1e-6, 10), last=st.sampled_from([0.0, 0.02, 1.0])
)
def test_rates_are_positive_and_never_above_the_peak(
    name: str, warmup: int, steps: int, lr: float, last: float
) -> None:
    # The peak is lr itself, but for noam, whose lr is a factor; without warmup noam starts at its peak.
    peak = lr * 64**-0.5 * max(1, warmup) ** -0.5 if name == "noam" else lr
    for s in range(1, steps + 1):
        value = rate(name, s, lr=lr, warmup_steps=warmup, max_steps=steps, final_lr_ratio=last)
        assert math.isfinite(value)
        assert value <= peak * (1 + 1e-12)
        # A rate of zero is allowed at the end of a schedule that was told to end there, never before.
        assert value > 0 or (last == 0 and s == steps > 1)


@pytest.mark.parametrize("name", NAMES)
def test_without_warmup_the_first_update_has_the_peak_rate(name: str) -> None:
    expected = {"noam": 0.5 * 64**-0.5}.get(name, 0.5)
    assert rate(name, 1, lr=0.5, warmup_steps=0) == pytest.approx(expected)


def test_constant() -> None:
    assert [rate("constant", s, lr=0.3, warmup_steps=4) for s in (1, 2, 3, 4, 5, 500)] == pytest.approx(
        [0.075, 0.15, 0.225, 0.3, 0.3, 0.3]
    )


def test_inverse_sqrt() -> None:
    assert [rate("inverse_sqrt", s, lr=0.3, warmup_steps=4) for s in (1, 4, 16, 400)] == pytest.approx(
        [0.075, 0.3, 0.15, 0.03]
    )
    assert [rate("inverse_sqrt", s, lr=0.3, warmup_steps=0) for s in (1, 4, 9)] == pytest.approx([0.3, 0.15, 0.1])


@given(warmup=st.integers(1, 50), span=st.integers(1, 100), ratio=st.floats(0, 1))
def test_linear_is_a_straight_line_to_its_last_rate(warmup: int, span: int, ratio: float) -> None:
    options = {"lr": 2.0, "warmup_steps": warmup, "max_steps": warmup + span, "final_lr_ratio": ratio}
    for s in range(warmup, warmup + span + 1):
        expected = 2.0 + (s - warmup) / span * (2.0 * ratio - 2.0)
        assert rate("linear", s, **options) == pytest.approx(expected, abs=1e-12)
    assert rate("linear", warmup + span + 9, **options) == pytest.approx(2.0 * ratio, abs=1e-12)


def test_linear_without_warmup_ends_at_its_last_rate() -> None:
    assert rate("linear", 10, lr=1.0, warmup_steps=0, max_steps=10, final_lr_ratio=0.0) == pytest.approx(0, abs=1e-12)


def test_cosine_and_warmup_stable_decay_at_their_corners() -> None:
    config = TrainConfig(lr=2.0, warmup_steps=10, max_steps=110, final_lr_ratio=0.1)
    cosine, wsd = SCHEDULES["cosine"], SCHEDULES["wsd"]
    assert [cosine(s, config, 64) for s in (1, 10, 60, 110)] == pytest.approx([0.2, 2.0, 1.1, 0.2])
    assert [wsd(s, config, 64) for s in (1, 10, 88, 99, 110)] == pytest.approx([0.2, 2.0, 2.0, 1.1, 0.2])
