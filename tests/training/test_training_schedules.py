"""Learning rates by update, counted from 1."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import PEAKS, Recipe, TrainConfig
from transformer_ablate.registry import SCHEDULES
from transformer_ablate.training.module import Seq2SeqModule
from transformer_ablate.training.schedules import PEAK_RATES, peak_rate

NAMES = SCHEDULES.names()


def rate(name: str, update: int, d_model: int = 64, **options: Any) -> float:
    return float(SCHEDULES[name](update, TrainConfig(schedule=name, **options), d_model))


def peak_of(name: str, peak: str, lr: float, warmup: int, d_model: int = 64) -> float:
    """The highest rate; noam couples it with the warmup whatever ``peak`` says."""
    return lr / math.sqrt(d_model * max(1, warmup)) if "noam" in (name, peak) else lr


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


def test_every_peak_that_a_recipe_may_name_is_there() -> None:
    assert set(PEAK_RATES) == set(PEAKS)


@pytest.mark.parametrize(
    ("peak", "d_model", "warmup", "expected"),
    [
        ("lr", 512, 4000, 1.0),
        ("lr", 512, 0, 1.0),
        ("noam", 512, 4000, 6.98771243e-4),
        ("noam", 64, 400, 6.25e-3),
        ("noam", 128, 400, 4.419417e-3),
        ("noam", 256, 4000, 9.882118e-4),
        ("noam", 64, 1, 0.125),
        ("noam", 64, 0, 0.125),
    ],
)
def test_peak_values(peak: str, d_model: int, warmup: int, expected: float) -> None:
    for factor in (1.0, 2.0):
        config = TrainConfig(lr=factor, warmup_steps=warmup, peak=peak)
        assert peak_rate(config, d_model) == pytest.approx(factor * expected, rel=1e-7)


@given(
    lr=st.floats(1e-6, 10),
    d_model=st.integers(1, 2048),
    warmup=st.integers(0, 500),
    peak=st.sampled_from(PEAKS),
    update=st.integers(1, 2000),
)
def test_noam_is_the_inverse_square_root_under_a_coupled_peak(
    lr: float, d_model: int, warmup: int, peak: str, update: int
) -> None:
    value = rate("noam", update, d_model, lr=lr, warmup_steps=warmup, peak=peak)
    assert value == rate("inverse_sqrt", update, d_model, lr=lr, warmup_steps=warmup, peak="noam")
    rise = update / warmup**1.5 if warmup else math.inf  # the paper's equation 3, word for word
    assert value == pytest.approx(lr / math.sqrt(d_model) * min(1 / math.sqrt(update), rise), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(peak=st.sampled_from(PEAKS), warmup=st.integers(3, 300), lr=st.floats(1e-6, 10))
def test_warmup_rises_in_equal_steps_from_one_share(name: str, peak: str, warmup: int, lr: float) -> None:
    options: dict[str, Any] = {"lr": lr, "warmup_steps": warmup, "max_steps": 1000, "peak": peak}
    rates = [rate(name, s, **options) for s in (1, 2, 3, warmup)]
    assert rates[1] / rates[0] == pytest.approx(2)
    assert rates[2] / rates[0] == pytest.approx(3)
    assert rates[3] == pytest.approx(warmup * rates[0])
    assert rates[3] == pytest.approx(peak_of(name, peak, lr, warmup), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(
    peak=st.sampled_from(PEAKS),
    warmup=st.integers(0, 60),
    steps=st.integers(1, 80),
    lr=st.floats(1e-6, 10),
    d_model=st.integers(1, 600),
    last=st.sampled_from([0.0, 0.02, 1.0]),
)
def test_rates_are_positive_and_highest_where_warmup_ends(
    name: str, peak: str, warmup: int, steps: int, lr: float, d_model: int, last: float
) -> None:
    # Warmups longer than training are among them: they end on the way.
    config = TrainConfig(lr=lr, warmup_steps=warmup, max_steps=steps, final_lr_ratio=last, peak=peak)
    rates = [SCHEDULES[name](s, config, d_model) for s in range(1, steps + 1)]
    highest, end = peak_of(name, peak, lr, warmup, d_model), max(1, warmup)
    assert all(math.isfinite(value) and value <= highest * (1 + 1e-12) for value in rates)
    # A rate of zero is allowed at the end of a schedule that was told to end there, never before.
    assert min(rates[:-1], default=1.0) > 0
    assert rates[-1] > 0 or (last == 0 and steps > end)
    for s, value in enumerate(rates[:end], 1):
        assert value == pytest.approx(highest * s / end, rel=1e-12)
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in zip(rates[end - 1 :], rates[end:], strict=False))


@pytest.mark.parametrize("peak", PEAKS)
@pytest.mark.parametrize("name", NAMES)
def test_without_warmup_the_first_update_has_the_peak_rate(name: str, peak: str) -> None:
    expected = peak_of(name, peak, 0.5, 0)
    for steps in (1, 2, 100):
        assert rate(name, 1, lr=0.5, warmup_steps=0, max_steps=steps, peak=peak) == pytest.approx(expected)
        # One step of warmup is none.
        assert rate(name, 1, lr=0.5, warmup_steps=1, max_steps=steps, peak=peak) == pytest.approx(expected)


@pytest.mark.parametrize("warmup", [0, 3, 50])
@pytest.mark.parametrize("peak", PEAKS)
@pytest.mark.parametrize("name", NAMES)
def test_updates_use_their_rates_from_the_first_on(name: str, peak: str, warmup: int) -> None:
    delta = {"train.schedule": name, "train.peak": peak, "train.warmup_steps": warmup, "train.max_steps": 9}
    size = {"model.d_model": 8, "model.n_heads": 1, "model.d_ff": 4, "train.lr": 0.7, "train.optimizer": "sgd"}
    recipe = Recipe().replace({**size, **delta, "model.encoder_layers": 1, "model.decoder_layers": 1})
    configured: Any = Seq2SeqModule(recipe, 6, 6).configure_optimizers()
    optimizer, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    for update in range(1, 10):
        assert optimizer.param_groups[0]["lr"] == SCHEDULES[name](update, recipe.train, 8)
        optimizer.step()
        scheduler.step()
    highest = max(SCHEDULES[name](s, recipe.train, 8) for s in range(1, 10))
    assert highest == pytest.approx(peak_of(name, peak, 0.7, warmup, 8) * min(1, 9 / max(1, warmup)))


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
    options: dict[str, Any] = {"lr": 2.0, "warmup_steps": warmup, "max_steps": warmup + span, "final_lr_ratio": ratio}
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


def test_warmup_stable_decay_falls_over_the_last_fifth_or_what_warmup_leaves() -> None:
    def falling(warmup: int) -> list[int]:
        rates = [rate("wsd", s, warmup_steps=warmup, max_steps=100, final_lr_ratio=0.1) for s in range(1, 101)]
        return [s for s in range(2, 101) if rates[s - 1] < rates[s - 2]]

    assert falling(0) == falling(80) == list(range(81, 101))
    assert falling(95) == list(range(96, 101))
    assert falling(100) == falling(300) == []
    assert rate("wsd", 100, lr=1.0, warmup_steps=95, max_steps=100, final_lr_ratio=0.1) == pytest.approx(0.1)
