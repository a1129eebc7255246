"""Times that can be compared: warmed up, synchronised, interleaved and bounded; and what a call needs besides time."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.autograd import profiler

# Rounds of calls: those before the first that counts, and those that count.
WARM_UPS, REPEATS = 20, 30
# As many at least where there is no time for all.
FEWEST_WARM_UPS, FEWEST_REPEATS = 2, 5
# Share of the time that may go into warming up.
WARM_UP_SHARE = 0.3
# The operators behind torch's attention begin with this, and go on with the kernel's name.
OPERATOR = "aten::_scaled_dot_product"
# Side of the square matrices whose product tells what the machine can do at best.
MATRIX_SIDES = {"cpu": 1_024, "cuda": 8_192}


class TimingError(RuntimeError):
    """Times that cannot be right."""


@dataclass(frozen=True)
class Timing:
    """How long one call took.

    Attributes:
        seconds: (n,) of each round; the calls of one :func:`interleaved` have their rounds in common.
        warm_ups: rounds before them.
    """

    seconds: NDArray[np.float64]
    warm_ups: int

    @property
    def median(self) -> float:
        """Seconds."""
        return float(np.median(self.seconds))

    @property
    def iqr(self) -> float:
        """Interquartile range, seconds."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float(high - low)

    def ratio(self, reference: Timing) -> float:
        """Median over the rounds of this time over the reference's: what slows a round down is in both."""
        return float(np.median(self.seconds / reference.seconds))


def synchronise(device: torch.device) -> None:
    """Waits until the device has done all that it was told to."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of one call, from an idle device to an idle device."""
    synchronise(device)
    begin = time.perf_counter()
    call()
    synchronise(device)
    return time.perf_counter() - begin


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    device: torch.device,
    seconds: float,
) -> dict[str, Timing]:
    """Times calls in turn, so that what changes on the machine meanwhile hits all of them alike.

    A round has each call once, every other round in the opposite order. There are 20 rounds to warm up and 30 that
    count, or fewer (2 and 5 at least) where ``seconds`` are over before.

    Args:
        calls: what to time, by name.
        device: where they compute.
        seconds: time for everything; exceeded only by what the fewest rounds take.
    """
    begin = time.perf_counter()
    rounds: list[dict[str, float]] = []
    forth = list(calls)
    warm_ups = 0

    def one_round(i: int) -> dict[str, float]:
        return {name: timed(calls[name], device) for name in (forth if i % 2 == 0 else reversed(forth))}

    def spent(share: float) -> bool:
        return time.perf_counter() - begin >= share * seconds

    with _no_collection():
        while warm_ups < FEWEST_WARM_UPS or (warm_ups < WARM_UPS and not spent(WARM_UP_SHARE)):
            one_round(warm_ups)
            warm_ups += 1
        while len(rounds) < FEWEST_REPEATS or (len(rounds) < REPEATS and not spent(1.0)):
            rounds.append(one_round(len(rounds)))
    return {name: Timing(np.array([r[name] for r in rounds]), warm_ups) for name in calls}


def slope(lengths: tuple[float, float], values: tuple[float, float]) -> float:
    """Local exponent b of ``value ~ length^b`` between two lengths; NaN for values that are not positive."""
    if min(values) <= 0 or not all(map(math.isfinite, values)):
        return math.nan
    return math.log(values[1] / values[0]) / math.log(lengths[1] / lengths[0])


@dataclass(frozen=True)
class Footprint:
    """What one call needs besides time.

    Attributes:
        peak_bytes: most bytes that torch's allocator had handed out at one time during the call, beyond those before
            it; what a library allocates by itself is not in it. NaN where torch does not say.
        kernels: the operators behind torch's attention that ran, sorted, e.g. ``scaled_dot_product_attention_math``.
    """

    peak_bytes: float
    kernels: tuple[str, ...]


def footprint(call: Callable[[], object], device: torch.device) -> Footprint:
    """Runs ``call`` once more, under torch's profiler."""
    on_gpu = device.type == "cuda"
    synchronise(device)
    before = 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with _silent_profiler(), profiler.profile(profile_memory=True) as profile:
        call()
        synchronise(device)
    peak = math.nan
    if on_gpu:
        peak = float(torch.cuda.max_memory_allocated(device) - before)
    elif device.type == "cpu":
        peak = float(_peak_of(profile))
    names = {event.name for event in profile.function_events if event.name.startswith(OPERATOR)}
    return Footprint(peak, tuple(sorted(name.removeprefix("aten::_") for name in names)))


def _peak_of(profile: profiler.profile) -> int:
    # Each allocation and, as a negative number, each release is an event of its own.
    results: Any = profile.kineto_results
    changes = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
    sizes = [size for _, size in sorted(changes, key=lambda change: change[0])]
    return int(np.cumsum(sizes).max(initial=0))


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float) -> float:
    """Operations a second (two a multiply-add) of the fastest of some large square matrix products."""
    side = MATRIX_SIDES.get(device.type, 2_048)
    a, b = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(2))
    times = interleaved({"product": lambda: a @ b}, device, seconds)["product"]
    return 2 * side**3 / float(times.seconds.min())


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection at a time of its own choosing."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _silent_profiler() -> Iterator[None]:
    """Keeps two lines off the terminal that torch's profiler writes there whatever its log level (kineto, #1325)."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a descriptor is wanted, not a path
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
