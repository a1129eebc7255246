"""The jackknife, for statistics that are no mean over seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from transformer_ablate.stats.summary import CONFIDENCE, SAME

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A statistic of all seeds with its 95 % interval.

    Attributes:
        n: seeds used.
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


def jackknife_interval(estimate: float, left_out: Floats, bounds: tuple[float, float], excluded: int = 0) -> Interval:
    """t-interval from the statistic without each seed in turn (n,), n − 1 degrees of freedom (Tukey 1958; Miller 1974).

    Args:
        bounds: values that the statistic cannot leave, to which the interval is cut; they are also its magnitude,
            against which rounding is judged.
    """
    n = len(left_out)
    se = math.sqrt((n - 1) / n * float(((left_out - left_out.mean()) ** 2).sum()))
    half = float(scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * se
    if half <= SAME * max(abs(b) for b in bounds):
        return Interval(n, estimate, estimate, estimate, excluded)
    return Interval(n, estimate, max(estimate - half, bounds[0]), min(estimate + half, bounds[1]), excluded)
