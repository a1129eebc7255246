"""A model and its reference, timed in turn at several lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from transformer_ablate.data.examples import Batch
from transformer_ablate.measures import timing
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.timing import Timing, TimingError
from transformer_ablate.measures.workloads import (
    KERNELS,
    Call,
    Contestant,
    decoding_calls,
    random_batch,
    scores_call,
    with_kernel,
)

# Longest target that is decoded without a cache as well.
LONGEST_UNCACHED = 512
# Twice the batch must take this many times as long, for some batch of at most so many target tokens.
LEAST_DOUBLING, MOST_DOUBLED_TOKENS = 1.3, 2**20


@dataclass
class Ledger:
    """What has been found so far."""

    metrics: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, float | str]] = field(default_factory=list)
    notes: list[dict[str, str]] = field(default_factory=list)

    def add(self, length: int, timings: dict[str, Timing]) -> None:
        for what, t in timings.items():
            taken = {"median_ms": 1e3 * t.median, "iqr_ms": 1e3 * t.iqr, "repeats": len(t.seconds)}
            self.rows.append({"length": length, "what": what, **taken, "warm_ups": t.warm_ups})

    def note(self, what: str, value: object) -> None:
        self.notes.append({"what": what, "value": str(value)})


@dataclass
class Duel:
    """One model and its reference at all lengths; ``rows`` are the sentences in a batch of each length."""

    arm: Contestant
    reference: Contestant
    sizes: tuple[int, int]
    rows: dict[int, int]
    seconds: float
    found: Ledger = field(default_factory=Ledger)
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    @property
    def device(self) -> torch.device:
        return self.arm.model.device

    def result(self) -> Measured:
        """Takes all times."""
        for length in self.rows:
            batch = self._batch(length)
            self._forward(batch, length)
            self._scores(length)
            self._decoding(batch, length)
            self._training(batch, length)
        self._doubling(length)
        self._exponent("forward_exponent", "forward_ms")
        for kernel in ("", *(f"_{name}" for name in KERNELS)):
            self._exponent(f"scores_exponent{kernel}", f"scores_ms{kernel}")
            self._exponent(f"memory_exponent{kernel}", f"peak_memory_mb{kernel}")
        self._surroundings(batch)
        return Measured(
            self.found.metrics, {"throughput_timings": self.found.rows, "throughput_notes": self.found.notes}
        )

    def _batch(self, length: int, times: int = 1) -> Batch:
        made = random_batch(times * self.rows[length], length, self.sizes, self.generator)
        return Batch(*(tokens.to(self.device) for tokens in made))

    def _times(self, calls: dict[str, Call]) -> dict[str, Timing]:
        return timing.interleaved(calls, self.device, self.seconds)

    def _forward(self, batch: Batch, length: int) -> None:
        calls = {"forward": self.arm.forward(batch), "forward of the reference": self.reference.forward(batch)}
        times = self._times(calls)
        self.found.add(length, times)
        self.found.metrics[f"forward_ms/{length}"] = 1e3 * times["forward"].median
        self.found.metrics[f"forward_ratio/{length}"] = times["forward"].ratio(times["forward of the reference"])

    def _training(self, batch: Batch, length: int) -> None:
        calls = {name: one.train_step(batch) for name, one in (("arm", self.arm), ("reference", self.reference))}
        times = self._times(calls)
        step = times["arm"]
        self.found.add(length, {"training step": step, "training step of the reference": times["reference"]})
        self.found.metrics |= {
            f"train_step_ms/{length}": 1e3 * step.median,
            f"train_step_ratio/{length}": step.ratio(times["reference"]),
            f"source_tokens_per_second/{length}": batch.source_tokens / step.median,
            f"target_tokens_per_second/{length}": batch.target_tokens / step.median,
        }

    def _scores(self, length: int) -> None:
        with self.arm.inference():
            call = scores_call(self.arm.model, self.rows[length], length, self.generator)
            if call is None:
                return
            calls, needs = {"": call}, {"": timing.footprint(call, self.device)}
            for kernel in KERNELS:
                chosen = with_kernel(call, kernel)
                try:
                    needs[f"_{kernel}"] = timing.footprint(chosen, self.device)
                except RuntimeError as error:  # torch has no such kernel for these tensors on this device
                    self.found.note(f"{kernel} kernel, L = {length}", f"not to be had: {str(error).splitlines()[0]}")
                    continue
                calls[f"_{kernel}"] = chosen
            times = self._times(calls)
        for name, t in times.items():
            what = f"scores and values{name.replace('_', ', ')}"
            self.found.add(length, {what: t})
            self.found.note(f"{what}, L = {length}", ", ".join(needs[name].kernels) or "plain products")
            self.found.metrics[f"scores_ms{name}/{length}"] = 1e3 * t.median
            self.found.metrics[f"peak_memory_mb{name}/{length}"] = needs[name].peak_bytes / 1e6

    def _decoding(self, batch: Batch, length: int) -> None:
        model = self.arm.model
        kinds = {"cached": True, "uncached": False} if length <= LONGEST_UNCACHED else {"cached": True}
        with self.arm.inference():
            steps = {kind: decoding_calls(model, batch, cached) for kind, cached in kinds.items()}
            calls: dict[str, Call] = {"encoding": lambda: model.start(model.encode(batch.source), capacity=length)}
            for kind, by_place in steps.items():
                calls |= {f"{kind} step after {place}": call for place, call in by_place.items()}
            times = self._times(calls)
        self.found.add(length, times)
        for kind, by_place in steps.items():
            step = sum(times[f"{kind} step after {place}"].median for place in by_place) / len(by_place)
            seconds = times["encoding"].median + length * step
            self.found.metrics[f"decode_{kind}_tokens_per_second/{length}"] = batch.target_tokens / seconds

    def _doubling(self, length: int) -> None:
        """Holds that twice the work takes longer, once there is enough of it to fill the device."""
        times, ratio = 1, 0.0
        while ratio <= LEAST_DOUBLING:
            single, double = self._batch(length, times), self._batch(length, 2 * times)
            taken = self._times({"double": self.arm.forward(double), "single": self.arm.forward(single)})
            ratio, times = taken["double"].ratio(taken["single"]), 2 * times
            if ratio <= LEAST_DOUBLING and double.target_tokens >= MOST_DOUBLED_TOKENS:
                raise TimingError(
                    f"a batch of {double.target_tokens} target tokens takes {ratio:.2f} times as long as half of it,"
                    f" expected more than {LEAST_DOUBLING}: the times do not measure the work"
                )
        self.found.metrics["work_doubling_ratio"] = ratio
        tokens = single.target_tokens
        self.found.note("work doubling", f"{ratio:.2f} times as long, from {tokens} to {2 * tokens} target tokens")

    def _exponent(self, name: str, of: str) -> None:
        """Adds the local exponent of a metric, for one sentence, over the last octave."""
        lengths = list(self.rows)[-2:]
        values = [self.found.metrics.get(f"{of}/{length}", math.nan) / self.rows[length] for length in lengths]
        if len(values) == 2 and not any(map(math.isnan, values)):
            self.found.metrics[name] = timing.slope((lengths[0], lengths[1]), (values[0], values[1]))

    def _surroundings(self, batch: Batch) -> None:
        """What the times depend on besides the model."""
        device, found, forward = self.device, self.found, self.arm.forward(batch)
        with self.arm.inference():
            weight = next(p for p in self.arm.model.parameters() if p.ndim == 2)
            dtype = (weight[:1] @ weight[:1].T).dtype  # that of products, under the recipe's precision
        peak = timing.matmul_peak(device, dtype, self.seconds)
        kernels = timing.footprint(forward, device).kernels
        found.metrics["matmul_peak_gflops"] = peak / 1e9
        found.metrics["timed_repeats"] = min(float(row["repeats"]) for row in found.rows)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        found.note("device", f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}")
        batches = ", ".join(f"{rows} x {length}" for length, rows in self.rows.items())
        found.note("batch: sentences x tokens, source and target each", batches)
        found.note("attention kernels of the forward pass", ", ".join(kernels) or "none of torch's")
        found.note("matrix product", f"{peak / 1e9:.1f} GFLOP/s at best, {str(dtype).removeprefix('torch.')}")
