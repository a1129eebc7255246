"""Tests and contrasts that claims are decided by: equivalence, shares, interactions, slopes, and the seeds they need.

Plain functions of per-seed values. Seeds without a finite value in every arm that a contrast needs are left out, and
values that do not vary from seed to seed give no p: an interval without width decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import scipy

from transformer_ablate.errors import ConfigError
from transformer_ablate.stats.summary import CONFIDENCE, summarise

LEVEL = 1 - CONFIDENCE
# From here on the noncentral t and the normal distribution differ by two or three pairs in ten thousand.
LARGE_N = 10_000


def tost(differences: Iterable[float], margin: float) -> float | None:
    """The larger p of two one-sided paired t-tests of "the mean difference is within ± margin" (Schuirmann 1987).

    It is below .05 just where the two-sided 90 % t-interval of the mean lies within ± margin.

    Args:
        differences: a − b, one a seed; those that are not finite are left out.
        margin: largest difference that counts as none, in the metric's unit; declared before the runs.

    Returns:
        None with fewer than 2 differences, or where all are equal.

    Raises:
        ConfigError: the margin is not a positive finite number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ConfigError("margin", margin, "a positive number, in the metric's unit")
    finite = [float(d) for d in differences if math.isfinite(d)]
    summary = summarise(finite, max([margin, *map(abs, finite)]))
    if summary.mean is None or not summary.sd:
        return None
    # |mean| picks the bound that is nearer, whose p is the larger one.
    t = (margin - abs(summary.mean)) / (summary.sd / math.sqrt(summary.n))
    return float(scipy.stats.t.sf(t, summary.n - 1))


def fisher(k_a: int, n_a: int, k_b: int, n_b: int) -> tuple[float, float]:
    """Exact test of k_a successes in n_a seeds against k_b in n_b, given both margins (Fisher 1935).

    Conservative: with 8 seeds a side a true 5 % test would reject more often than this one does.

    Returns:
        the one-sided p of "the rate of a is the higher" and of "the lower".

    Raises:
        ConfigError: a side has no seeds, or a count is not between 0 and its number of seeds.
    """
    for side, k, n in (("a", k_a, n_a), ("b", k_b, n_b)):
        if n < 1 or not 0 <= k <= n:
            raise ConfigError(f"k_{side}", k, f"0 to n_{side} = {n}, of at least 1")
    table = [[k_a, n_a - k_a], [k_b, n_b - k_b]]
    higher, lower = (scipy.stats.fisher_exact(table, alternative=side).pvalue for side in ("greater", "less"))
    return float(higher), float(lower)


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


def n_needed(sd: float, effect: float, power: float = 0.8) -> int | None:
    """Fewest pairs with which the paired t-test (5 %, two-sided) finds this effect with this power.

    Args:
        sd: standard deviation of the paired differences.
        effect: mean difference to be found, same unit; the sign does not matter.

    Returns:
        None where no number decides: no effect, or differences that do not vary or are not finite.
    """
    if not 0.5 <= power < 1:
        raise ConfigError("power", power, "at least .5 and below 1")
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
