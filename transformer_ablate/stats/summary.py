"""Statistics over seeds: small samples, stated honestly.

Every function takes per-seed values and returns plain numbers. A number that cannot be computed is ``None``, never NaN:
one seed has a value but no interval, and non-finite values are left out of every mean and counted instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

CONFIDENCE = 0.95
# 2^20 sums fit easily into memory; a study with more seeds than this has a t-test that needs no second opinion.
SIGN_FLIP_MAX_N = 20
# Differences of equal decimals differ in the last bits; relative to the operands this counts as "the same value".
SAME = 1e-12


@dataclass(frozen=True)
class Summary:
    """Mean over seeds with its Student t-interval.

    Attributes:
        n: finite values, the ones averaged.
        mean: None where n is 0.
        sd: sample standard deviation (n - 1); None where n < 2.
        low, high: two-sided 95 % t-interval of the mean; None where n < 2.
        excluded: values that were NaN or infinite.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    excluded: int = 0

    @property
    def half_width(self) -> float | None:
        """Half the interval's width; None where there is no interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def zero_width(self) -> bool:
        """Whether all seeds gave one value: the interval has collapsed and carries no verdict."""
        return self.sd == 0.0


@dataclass(frozen=True)
class PairedDifference:
    """The difference ``a - b`` over the seeds that both have a finite value for.

    Attributes:
        summary: of the per-seed differences.
        p: two-sided paired t-test; None where n < 2 or all differences are equal.
        p_sign_flip: exact two-sided sign-flip test; None where n is 0 or above ``SIGN_FLIP_MAX_N``.
        differences: seed to difference, in order of seed.
    """

    summary: Summary
    p: float | None
    p_sign_flip: float | None
    differences: Mapping[int, float]


def summarise(values: Iterable[float], scale: float | None = None) -> Summary:
    """Mean, standard deviation and t-interval of the finite ones among ``values``.

    Args:
        values: one a seed.
        scale: magnitude against which rounding is judged; by default the largest absolute value.
    """
    given = [float(v) for v in values]
    x = np.array([v for v in given if math.isfinite(v)])
    n, excluded = len(x), len(given) - len(x)
    if n == 0:
        return Summary(0, None, None, None, None, excluded)
    if n == 1:
        return Summary(1, float(x[0]), None, None, None, excluded)
    if float(np.ptp(x)) <= SAME * (float(np.abs(x).max()) if scale is None else scale):
        value = float(np.median(x))
        return Summary(n, value, 0.0, value, value, excluded)
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    # Not scipy.stats.t.interval: it is NaN where sd underflows to 0, and takes twice the time of what every table asks.
    half = float(scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half, excluded)


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> PairedDifference:
    """Compare two arms seed by seed: each maps seed to value; seeds that only one of them has are not used."""
    seeds = [s for s in sorted(a.keys() & b.keys()) if math.isfinite(a[s]) and math.isfinite(b[s])]
    scale = max((max(abs(a[s]), abs(b[s])) for s in seeds), default=0.0)
    return against_zero({s: float(a[s]) - float(b[s]) for s in seeds}, scale)


def against_zero(differences: Mapping[int, float], scale: float) -> PairedDifference:
    """Whether a contrast that every seed has a value of (a difference, an interaction, a slope) is zero on average.

    Args:
        differences: seed to contrast, all finite.
        scale: magnitude of the values that the contrast was computed from, against which rounding is judged.
    """
    ordered = {s: differences[s] for s in sorted(differences)}
    summary = summarise(ordered.values(), scale)
    p = None
    if summary.sd and summary.mean is not None:
        t = summary.mean / (summary.sd / math.sqrt(summary.n))
        p = float(2 * scipy.stats.t.sf(abs(t), summary.n - 1))
    return PairedDifference(summary, p, sign_flip_p(list(ordered.values())), ordered)


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """Exact two-sided p of the mean under all 2^n sign changes: no assumption but symmetry about zero.

    The smallest p that n seeds can give is 2^(1-n): .0625 for 5, .0078 for 8.
    """
    n = len(differences)
    if not 0 < n <= SIGN_FLIP_MAX_N:
        return None
    # scipy.stats.permutation_test gives the same p, but takes 25 times as long at 8 seeds.
    sums = np.zeros(1)
    for d in differences:
        sums = np.concatenate([sums + d, sums - d])
    # The tolerance keeps sums that are equal but for rounding on the side of "as extreme".
    observed = abs(math.fsum(differences)) - SAME * math.fsum(abs(d) for d in differences)
    return float(np.mean(np.abs(sums) >= observed))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction, in the order given.

    A ``None`` (a contrast without p) counts towards the size of the family, as p = 1 would, and stays ``None``.
    """
    corrected: list[float | None] = [None] * len(p_values)
    ordered = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    running = 0.0
    for rank, (p, i) in enumerate(ordered):
        running = max(running, min(1.0, p * (len(p_values) - rank)))
        corrected[i] = running
    return corrected


def clopper_pearson(k: int, n: int) -> tuple[float, float]:
    """Exact 95 % interval of a proportion from k successes in n seeds; 0 to 1 where n is 0."""
    if not 0 <= k <= n:
        raise ValueError(f"clopper_pearson: got k={k}, n={n}, allowed: 0 <= k <= n")
    if n == 0:
        return 0.0, 1.0
    found = scipy.stats.binomtest(k, n).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)
