"""Times and memory by length. Times are compared with times of the same test only: the machine may be busy."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data.examples import decoder_inputs
from transformer_ablate.data.task import load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.lock import machine_lock
from transformer_ablate.measures import Evaluation, benchmark, timing, workloads
from transformer_ablate.measures.throughput import Throughput, batch_rows, measured_lengths
from transformer_ablate.measures.timing import FEWEST_REPEATS, FEWEST_WARM_UPS, Timing, TimingError
from transformer_ablate.tokens import BOS, EOS, PAD

CPU = torch.device("cpu")
V = 12
TINY: dict[str, Any] = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 40,
    "data.vocab_size": 8,
    "data.train_examples": 40,
    "data.valid_examples": 10,
    "data.test_examples": 10,
    "data.batch_tokens": 256,
    "train.max_steps": 1,
}
QUICK = Throughput(shortest=16, seconds=0.01)


@pytest.fixture(autouse=True)
def own_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other tests, and runs, need not wait for these."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def evaluation(**delta: Any) -> Evaluation:
    recipe = Recipe().replace({**TINY, **{name.replace("__", "."): value for name, value in delta.items()}})
    task = load_task(recipe.data)
    return Evaluation(build_model(recipe.model, V, V, 0), task, recipe)


def contestant(**delta: Any) -> workloads.Contestant:
    run = evaluation(**delta)
    return workloads.Contestant(run.recipe, run.model, (V, V), CPU)


def batch(rows: int, length: int) -> Any:
    return workloads.random_batch(rows, length, (V, V), torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(512, [64, 128, 256, 512]), (600, [64, 128, 256, 512]), (64, [64]), (127, [64]), (40, [32]), (1, [1])],
)
def test_lengths_are_powers_of_two_up_to_the_longest(longest: int, lengths: list[int]) -> None:
    assert measured_lengths(longest) == lengths


def test_a_batch_has_the_same_tokens_at_every_length_and_no_padding() -> None:
    assert batch_rows([64, 128, 256], 1_280) == {64: 8, 128: 4, 256: 2}
    assert batch_rows([64, 128], 10) == {64: 2, 128: 1}
    for rows, length in ((3, 16), (1, 1)):
        made = batch(rows, length)
        assert made.source_tokens == made.target_tokens == rows * length
        assert made.source.shape == (rows, length)
        assert (decoder_inputs(made.target) != PAD).sum() == rows * length
        assert (made.target[:, 0] == BOS).all()
        assert (made.target[:, -1] == EOS).all()


def test_median_spread_and_paired_ratio_are_those_of_the_numbers() -> None:
    slow, fast = Timing(np.array([2.0, 4.0, 6.0, 80.0, 10.0]), 2), Timing(np.array([1.0, 2.0, 2.0, 40.0, 5.0]), 2)
    assert slow.median == 6.0
    assert slow.iqr == 6.0  # 10 - 4
    # A round in which everything took ten times as long changes nothing: 2, 2, 3, 2, 2.
    assert slow.ratio(fast) == 2.0


def test_slope_is_the_power() -> None:
    assert timing.slope((64, 128), (3 * 64.0**1.7, 3 * 128.0**1.7)) == pytest.approx(1.7)
    assert math.isnan(timing.slope((64, 128), (0.0, 1.0)))
    assert math.isnan(timing.slope((64, 128), (math.nan, 1.0)))


def test_calls_take_turns_in_both_orders_and_stop_when_the_time_is_over() -> None:
    seen: list[str] = []
    times = timing.interleaved({name: lambda name=name: seen.append(name) for name in "ab"}, CPU, 0.0)
    rounds = FEWEST_WARM_UPS + FEWEST_REPEATS
    assert len(seen) == 2 * rounds
    assert "".join(seen[: 2 * FEWEST_WARM_UPS]) == "abba"
    assert "".join(seen[2 * FEWEST_WARM_UPS :][:4]) == "abba"
    assert all(len(t.seconds) == FEWEST_REPEATS and t.warm_ups == FEWEST_WARM_UPS for t in times.values())
    much = timing.interleaved({"nothing": lambda: None}, CPU, 600.0)["nothing"]
    assert (much.warm_ups, len(much.seconds)) == (20, 30)


def test_what_takes_longer_is_seen_to() -> None:
    times = timing.interleaved({"long": lambda: time.sleep(0.012), "short": lambda: time.sleep(0.003)}, CPU, 0.0)
    assert times["long"].seconds.min() >= 0.012
    assert times["long"].ratio(times["short"]) > 1.2


def test_memory_is_the_most_that_was_allocated_at_one_time() -> None:
    def call() -> None:
        for _ in range(3):  # one after the other: 4 MB each
            torch.empty(1_000_000)
        kept = torch.empty(500_000)
        del kept

    assert timing.footprint(call, CPU).peak_bytes == pytest.approx(4e6, rel=0.01)
    assert timing.footprint(call, CPU).kernels == ()


def test_memory_of_the_math_kernel_is_quadratic_and_of_the_fused_one_linear() -> None:
    peaks: dict[str, list[float]] = {"math": [], "fused": []}
    arm = contestant()
    for kernel, found in peaks.items():
        for length in (1_024, 2_048):
            with arm.inference():
                call = workloads.scores_call(arm.model, 1, length, torch.Generator().manual_seed(0))
                assert call is not None
                need = timing.footprint(workloads.with_kernel(call, kernel), CPU)
            found.append(need.peak_bytes)
            assert ("scaled_dot_product_attention_math" in need.kernels) == (kernel == "math")
    scores = 2 * 2_048**2 * 4  # bytes of two heads' scores
    assert scores <= peaks["math"][1] <= 4 * scores
    assert timing.slope((1, 2), (peaks["math"][0], peaks["math"][1])) == pytest.approx(2.0, abs=0.1)
    assert peaks["fused"][1] < scores / 10
    assert timing.slope((1, 2), (peaks["fused"][0], peaks["fused"][1])) < 1.1


@pytest.mark.parametrize("position", ["sinusoidal", "t5", "shaw"])
def test_scores_alone_are_what_attention_computes(position: str) -> None:
    run = evaluation(model__position=position)
    generator = torch.Generator().manual_seed(4)
    with torch.inference_mode():
        call = workloads.scores_call(run.model, 3, 10, generator)
        assert call is not None
        found = call()
        draws = torch.Generator().manual_seed(4)
        q, k, v = (torch.randn(3, 10, 16, generator=draws).unflatten(-1, (2, 8)).transpose(1, 2) for _ in range(3))
        encoder: Any = run.model.encoder
        places = torch.arange(10)
        term = encoder.position.score_term(q, k, encoder.position.pair_table(places, places, q.dtype), 0)
        scores = q @ k.mT / 8**0.5
        expected = (scores if term is None else scores + term).softmax(-1) @ v
    assert isinstance(found, torch.Tensor)
    torch.testing.assert_close(found, expected.transpose(1, 2).flatten(-2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["transformer", "gru", "convs2s"])
def test_steps_with_and_without_a_cache_choose_the_same_tokens(architecture: str) -> None:
    arm, here = contestant(model__architecture=architecture), batch(3, 16)
    with arm.inference():
        cached, uncached = (workloads.decoding_calls(arm.model, here, kind) for kind in (True, False))
        assert list(cached) == list(uncached) == [2, 6, 10, 14]
        for place, call in cached.items():
            for _ in range(2):  # again at the same place, not one further
                assert torch.equal(call(), uncached[place]())  # type: ignore[arg-type]


def test_an_equal_model_takes_as_long_and_a_wider_one_longer() -> None:
    narrow, equal, wide = contestant(), contestant(), contestant(model__d_model=128, model__d_ff=512)
    here = batch(8, 32)
    calls = {"wide": wide.forward(here), "narrow": narrow.forward(here), "equal": equal.forward(here)}
    times = timing.interleaved(calls, CPU, 600.0)  # all rounds, however busy the machine is
    assert 0.5 < times["equal"].ratio(times["narrow"]) < 2
    assert times["wide"].ratio(times["narrow"]) > 1.2


def test_arithmetic_is_that_of_the_recipe() -> None:
    assert contestant(train__precision="bf16-mixed").forward(batch(1, 4))().dtype == torch.bfloat16  # type: ignore
    assert contestant(train__precision="64-true").forward(batch(1, 4))().dtype == torch.float64  # type: ignore


def test_a_training_step_trains_the_copy_in_the_recipes_regime() -> None:
    run = evaluation(train__regime="sequential", model__dropout=0.1)
    arm = workloads.Contestant(run.recipe, run.model, (V, V), CPU)
    calls: list[int] = []
    step = arm.model.step
    arm.model.step = lambda *args: (calls.append(1), step(*args))[1]  # type: ignore[method-assign]
    before = {name: p.clone() for name, p in run.model.state_dict().items()}
    arm.train_step(batch(2, 5))()
    assert len(calls) == 5
    assert all(torch.equal(p, before[name]) for name, p in run.model.state_dict().items())
    assert any(not torch.equal(p, before[name]) for name, p in arm.model.state_dict().items())


def test_a_transformer_has_every_figure_and_is_left_as_it_was() -> None:
    run = evaluation(model__dropout=0.1)
    before, state = {n: p.clone() for n, p in run.model.state_dict().items()}, torch.get_rng_state()
    measured = QUICK.measure(run)
    metrics = measured.metrics
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, before[n]) for n, p in run.model.state_dict().items())
    assert not run.model.training
    assert all(p.grad is None for p in run.model.parameters())
    by_length = {name.partition("/")[0] for name in metrics if name.endswith("/32")}
    kernels = ("", "_math", "_fused")
    assert by_length == {
        *("forward_ms", "forward_ratio", "train_step_ms", "train_step_ratio"),
        *("source_tokens_per_second", "target_tokens_per_second"),
        *("decode_cached_tokens_per_second", "decode_uncached_tokens_per_second"),
        *(f"scores_ms{kernel}" for kernel in kernels),
        *(f"peak_memory_mb{kernel}" for kernel in kernels),
    }
    overall = {
        *("forward_exponent", "matmul_peak_gflops", "work_doubling_ratio", "timed_repeats"),
        *(f"scores_exponent{kernel}" for kernel in kernels),
        *(f"memory_exponent{kernel}" for kernel in kernels),
    }
    assert set(metrics) == {f"{name}/{length}" for name in by_length for length in (16, 32)} | overall
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["work_doubling_ratio"] > benchmark.LEAST_DOUBLING
    assert metrics["timed_repeats"] >= FEWEST_REPEATS
    rows = {(row["length"], row["what"]): row for row in measured.artifacts["throughput_timings"]}
    step = rows[32, "training step"]
    assert metrics["train_step_ms/32"] == pytest.approx(step["median_ms"])
    assert metrics["target_tokens_per_second/32"] == pytest.approx(4 * 32 / step["median_ms"] * 1e3)
    encoding, decoded = rows[32, "encoding"]["median_ms"], [rows[32, f"cached step after {t}"] for t in (4, 12, 20, 28)]
    whole = encoding + 32 * np.mean([row["median_ms"] for row in decoded])
    assert metrics["decode_cached_tokens_per_second/32"] == pytest.approx(4 * 32 / whole * 1e3)
    notes = {row["what"]: row["value"] for row in measured.artifacts["throughput_notes"]}
    assert notes["batch: sentences x tokens, source and target each"] == "8 x 16, 4 x 32"
    assert "scaled_dot_product" in notes["attention kernels of the forward pass"]


@pytest.mark.parametrize("architecture", ["gru", "convs2s"])
def test_without_self_attention_there_are_no_scores_to_time(architecture: str) -> None:
    metrics = QUICK.measure(evaluation(model__architecture=architecture, data__max_length=16)).metrics
    assert metrics["forward_ms/16"] > 0
    assert not [name for name in metrics if "scores" in name or "memory" in name or "exponent" in name]


def test_times_that_do_not_grow_with_the_work_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "MOST_DOUBLED_TOKENS", 64)
    arm = contestant()
    monkeypatch.setattr(arm, "forward", lambda here: lambda: time.sleep(0.1))  # long against what a busy machine adds
    duel = benchmark.Duel(arm, arm, (V, V), {16: 1}, 0.0)
    with pytest.raises(TimingError, match=r"64 target tokens takes [01]\.\d\d times as long"):
        duel._doubling(16)


def test_a_model_that_cannot_take_the_length_says_so() -> None:
    run = evaluation(model__position="learned", model__position_options={"rows": 45})
    with pytest.raises(ConfigError, match=r"position_options\.rows"):
        Throughput(shortest=16).measure(Evaluation(run.model, run.task, run.recipe.replace({"data.max_length": 64})))


def test_the_machine_must_not_be_shared_meanwhile() -> None:
    with machine_lock(exclusive=False), pytest.raises(RuntimeError, match="lock"):
        QUICK.measure(evaluation())
