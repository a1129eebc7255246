"""Tests and contrasts that claims are decided by: equivalence, shares, interactions, slopes, and the seeds they need.

Plain functions of per-seed values. Seeds without a finite value in every arm that a contrast needs are left out, and
values that do not vary from seed to seed give no p: an interval without width decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import scipy

from transformer_ablate.errors import ConfigError
from transformer_ablate.stats.summary import CONFIDENCE, summarise

LEVEL = 1 - CONFIDENCE
# From here on the noncentral t and the normal distribution differ by two or three pairs in ten thousand.
LARGE_N = 10_000


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of "the mean difference lies within ± margin".

    Attributes:
        n: finite differences.
        mean: None where n is 0.
        low, high: two-sided 90 % t-interval of the mean; None where n < 2. It lies within ± margin just where p < .05.
        p: the larger of the two one-sided p; None where n < 2 or all differences are equal.
        margin: as declared.
        excluded: differences that were NaN or infinite.
    """

    n: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    margin: float
    excluded: int = 0

    @property
    def equivalent(self) -> bool:
        """Whether both tests reject at 5 %; never where the interval has no width."""
        return self.p is not None and self.p < LEVEL


@dataclass(frozen=True)
class FisherTest:
    """Fisher's exact test of two success rates.

    Attributes:
        difference: rate of a minus rate of b.
        p: two-sided.
        p_greater, p_less: one-sided, for "the rate of a is the higher" and "the lower".
    """

    difference: float
    p: float
    p_greater: float
    p_less: float


def tost(differences: Iterable[float], margin: float) -> Equivalence:
    """Equivalence by two one-sided paired t-tests (Schuirmann 1987).

    Args:
        differences: a − b, one a seed.
        margin: largest difference that counts as none, in the metric's unit; declared before the runs.

    Raises:
        ConfigError: the margin is not a positive finite number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ConfigError("margin", margin, "a positive number, in the metric's unit")
    given = [float(d) for d in differences]
    scale = max([margin, *(abs(d) for d in given if math.isfinite(d))])
    summary = summarise(given, scale)
    n, mean, sd = summary.n, summary.mean, summary.sd
    if mean is None or sd is None:
        return Equivalence(n, mean, None, None, None, margin, summary.excluded)
    if summary.zero_width:
        return Equivalence(n, mean, mean, mean, None, margin, summary.excluded)
    se = sd / math.sqrt(n)
    low, high = scipy.stats.t.interval(1 - 2 * LEVEL, n - 1, loc=mean, scale=se)
    # |mean| picks the bound that is nearer, whose p is the larger one.
    p = float(scipy.stats.t.sf((margin - abs(mean)) / se, n - 1))
    return Equivalence(n, mean, float(low), float(high), p, margin, summary.excluded)


def fisher(k_a: int, n_a: int, k_b: int, n_b: int) -> FisherTest:
    """Exact test of k_a successes in n_a seeds against k_b in n_b, given both margins (Fisher 1935).

    Conservative: with 8 seeds a side a true 5 % test would reject more often than this one does.

    Raises:
        ConfigError: a side has no seeds, or a count is not between 0 and its number of seeds.
    """
    for side, k, n in (("a", k_a, n_a), ("b", k_b, n_b)):
        if n < 1 or not 0 <= k <= n:
            raise ConfigError(f"k_{side}", k, f"0 to n_{side} = {n}, of at least 1")
    table = [[k_a, n_a - k_a], [k_b, n_b - k_b]]
    p, greater, less = (
        float(scipy.stats.fisher_exact(table, alternative=side).pvalue) for side in ("two-sided", "greater", "less")
    )
    return FisherTest(k_a / n_a - k_b / n_b, p, greater, less)


def paired_power(n: int, effect: float) -> float:
    """Power of the paired t-test at 5 %, two-sided: noncentral t with n − 1 degrees (Cohen 1988, section 2.5).

    Args:
        n: pairs, at least 2.
        effect: mean difference in standard deviations of the differences.
    """
    if n < 2:
        raise ConfigError("n", n, "at least 2 pairs")
    critical = float(scipy.stats.t.ppf(1 - LEVEL / 2, n - 1))
    shift = abs(effect) * math.sqrt(n)
    # The lower tail as the mirrored distribution's upper one: scipy's cdf is NaN for some large shifts, its sf is not.
    return float(scipy.stats.nct.sf(critical, n - 1, shift) + scipy.stats.nct.sf(critical, n - 1, -shift))


def detectable_effect(n: int, power: float = 0.8) -> float:
    """Smallest effect that n pairs find with this power (5 %, two-sided), in standard deviations of the differences."""
    _check_power(power)
    high = 1.0
    while paired_power(n, high) < power:
        high *= 2
    return float(scipy.optimize.brentq(lambda effect: paired_power(n, effect) - power, 0.0, high))


def n_needed(sd: float, effect: float, power: float = 0.8) -> int | None:
    """Fewest pairs with which the paired t-test (5 %, two-sided) finds this effect with this power.

    Args:
        sd: standard deviation of the paired differences.
        effect: mean difference to be found, same unit; the sign does not matter.

    Returns:
        None where no number decides: no effect, or differences that do not vary or are not finite.
    """
    _check_power(power)
    if not (math.isfinite(sd) and math.isfinite(effect)) or sd <= 0 or effect == 0:
        return None
    size = abs(effect) / sd
    n = math.ceil(((scipy.stats.norm.ppf(1 - LEVEL / 2) + scipy.stats.norm.ppf(power)) / size) ** 2)
    if n >= LARGE_N:
        return n
    n = max(2, n)  # normal theory ends two or three pairs below the answer
    while paired_power(n, size) < power:
        n += 1
    return n


def _check_power(power: float) -> None:
    if not 0.5 <= power < 1:
        raise ConfigError("power", power, "at least .5 and below 1")
