"""Intervals for statistics that are no mean over seeds: the bootstrap, for interquartile means, and the jackknife.

A plain percentile interval is too narrow with few seeds: it lacks the factor √(n/(n−1)) and uses the normal quantile
where the t quantile is due. Both are put back by reading the percentiles further out: the expanded percentile interval
(Hesterberg 2015, "What Teachers Should Know About the Bootstrap", The American Statistician 69(4)).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from transformer_ablate.report.statistics import CONFIDENCE, SAME

RESAMPLES = 10_000
# No bootstrap interval leaves the range of its sample, which misses the median with probability 2^(1-n): 6 % for 5.
MIN_DEGREES = 5

Floats = NDArray[np.float64]
# task -> seed -> value, or the values of several arms that are pooled
ByTask = Mapping[str, Mapping[int, float | Sequence[float]]]


@dataclass(frozen=True)
class Interval:
    """A statistic of all seeds with its 95 % interval.

    Attributes:
        n: seeds used, summed over the tasks.
        estimate: None where n is 0.
        low, high: None with too few seeds.
        excluded: seeds left out because a value was NaN or infinite.
    """

    n: int
    estimate: float | None
    low: float | None = None
    high: float | None = None
    excluded: int = 0

    @property
    def zero_width(self) -> bool:
        """Whether the interval has collapsed: it carries no verdict."""
        return self.low is not None and self.low == self.high

    def excludes(self, value: float) -> bool:
        """Whether the interval lies wholly on one side of ``value``; never where it has no width or is missing."""
        if self.low is None or self.high is None or self.zero_width:
            return False
        return value < self.low or value > self.high


@functools.cache
def expanded_tail(n: int, groups: int = 1) -> float:
    """Share of resamples beyond each end of the 95 % interval, for n seeds in all, in groups resampled apart."""
    degrees = n - groups
    t = stats.t.ppf(0.5 + CONFIDENCE / 2, degrees)
    return float(stats.norm.cdf(-math.sqrt(n / degrees) * t))


def percentile_interval(
    estimate: float, draws: Floats, n: int, groups: int, scale: float, excluded: int = 0
) -> Interval:
    """Expanded percentile interval of a statistic from its resampled values (resamples,).

    Args:
        scale: magnitude of the data; a width of rounding errors of that magnitude counts as none.
    """
    tail = expanded_tail(n, groups)
    low, high = (float(v) for v in np.quantile(draws, [tail, 1 - tail]))
    if high - low <= SAME * scale:
        low = high = estimate
    return Interval(n, estimate, low, high, excluded)


def jackknife_interval(estimate: float, left_out: Floats, bounds: tuple[float, float], excluded: int = 0) -> Interval:
    """t-interval from the statistic without each seed in turn (n,), n − 1 degrees of freedom (Tukey 1958; Miller 1974).

    Args:
        bounds: values that the statistic cannot leave, to which the interval is cut; they are also its magnitude,
            against which rounding is judged.
    """
    n = len(left_out)
    se = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * se
    if half <= SAME * max(abs(b) for b in bounds):
        return Interval(n, estimate, estimate, estimate, excluded)
    return Interval(n, estimate, max(estimate - half, bounds[0]), min(estimate + half, bounds[1]), excluded)


def interquartile_mean(values: Sequence[float] | Floats) -> float | None:
    """Mean of the middle half: a quarter, rounded down, is cut at each end (Agarwal et al. 2021, section 4.3).

    None where there are no finite values; those that are not finite are left out.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    return float(_middle_mean(x)) if x.size else None


def _middle_mean(x: Floats) -> Floats:
    """Interquartile mean of the last axis."""
    n = x.shape[-1]
    middle: Floats = np.sort(x, axis=-1)[..., n // 4 : n - n // 4].mean(axis=-1)
    return middle


def iqm_interval(by_task: ByTask, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Interquartile mean over all tasks and seeds, its interval by resampling the seeds of each task apart.

    (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", sections 4.1 and 4.3.)

    Args:
        by_task: task to seed to value; a sequence of values, one for each arm, is resampled as one.
        resamples: bootstrap resamples.
        seed: of the resampling.

    Returns:
        No interval where seeds less tasks are fewer than ``MIN_DEGREES``.
    """
    return _iqm([by_task], resamples, seed)


def iqm_difference(a: ByTask, b: ByTask, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Interquartile mean of a minus that of b, paired: a seed of a task enters a resample of both or of neither.

    Tasks and seeds that only one side has are not used. Arguments as in :func:`iqm_interval`.
    """
    return _iqm([a, b], resamples, seed)


def _iqm(sides: Sequence[ByTask], resamples: int, seed: int) -> Interval:
    """Interquartile mean of the first side, less that of the second one where there are two."""
    rng = np.random.default_rng(seed)
    blocks: list[list[Floats]] = [[] for _ in sides]  # side -> task -> (seeds, arms)
    excluded = 0
    for task in sorted(set.intersection(*(set(side) for side in sides))):
        shared = sorted(set.intersection(*(set(side[task]) for side in sides)))
        rows = {s: [np.atleast_1d(np.asarray(side[task][s], dtype=np.float64)) for side in sides] for s in shared}
        finite = [s for s in shared if all(np.isfinite(row).all() for row in rows[s])]
        excluded += len(shared) - len(finite)
        for i in range(len(sides) if finite else 0):
            blocks[i].append(np.stack([rows[s][i] for s in finite]))
    sizes = [len(block) for block in blocks[0]]
    n, groups = sum(sizes), len(sizes)
    if n == 0:
        return Interval(0, None, excluded=excluded)
    estimates = [float(_middle_mean(np.concatenate([x.ravel() for x in side]))) for side in blocks]
    estimate = estimates[0] - sum(estimates[1:])
    if n - groups < MIN_DEGREES:
        return Interval(n, estimate, excluded=excluded)
    picks = [rng.integers(size, size=(resamples, size)) for size in sizes]
    draws = np.zeros(resamples)
    for sign, side in zip((1, -1), blocks, strict=False):
        drawn = [x[pick].reshape(resamples, -1) for x, pick in zip(side, picks, strict=True)]
        draws += sign * _middle_mean(np.concatenate(drawn, axis=1))
    scale = max(float(np.abs(x).max()) for side in blocks for x in side)
    return percentile_interval(estimate, draws, n, groups, scale, excluded)
