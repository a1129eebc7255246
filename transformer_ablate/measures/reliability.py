"""How far confidence is from accuracy, and the one scalar that mends most of it: plain functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from torch import Tensor

from transformer_ablate.errors import ConfigError, unknown_name

BINS = 15
# Where the temperature is looked for. A model that is never wrong on the set it is fitted to has no best temperature:
# any that makes it certain will do, and what is found there has no meaning of its own.
TEMPERATURES = (0.05, 20.0)
# Logits that are looked at together while fitting.
CHUNK_LOGITS = 2**22


def _equal_width(confidence: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    return np.linspace(0, 1, bins + 1)[1:]


def _equal_mass(confidence: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    n = len(confidence)
    return np.sort(confidence)[-(-np.arange(1, bins + 1) * n // bins) - 1]


# How bins are cut: confidences (n,) and the number of bins to their upper edges (bins,), which belong to them.
UPPER_EDGES: dict[str, Callable[[NDArray[np.float64], int], NDArray[np.float64]]] = {
    "width": _equal_width,
    "mass": _equal_mass,
}


def reliability(
    confidence: NDArray[Any] | Sequence[float],
    correct: NDArray[Any] | Sequence[bool],
    bins: int = BINS,
    by: str = "width",
) -> list[dict[str, float]]:
    """Mean confidence and accuracy in bins (low, high] of confidence (DeGroot & Fienberg 1983).

    Equal confidences are never divided, so that the order of the predictions does not count; bins of equal mass may
    then be fewer and larger.

    Args:
        confidence: (n,) probability of each prediction.
        correct: (n,) whether it was right.
        bins: number of bins.
        by: ``width`` for bins of equal width over [0, 1], ``mass`` for bins of equally many predictions.

    Returns:
        ``bin`` (from 0), ``low``, ``high``, ``n``, ``confidence``, ``accuracy`` of each bin that is not empty; no bins
        where there is no prediction, or a confidence that is no number.

    Raises:
        ConfigError: for an unknown ``by``, or fewer bins than one.
    """
    if by not in UPPER_EDGES:
        raise unknown_name("by", by, UPPER_EDGES)
    if bins < 1:
        raise ConfigError("bins", bins, "at least 1")
    p, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if not len(p) or not np.isfinite(p).all():
        return []
    high = UPPER_EDGES[by](p, bins)
    low = np.insert(high[:-1], 0, 0.0)
    # A softmax in float32 may exceed 1 by a rounding error.
    place = np.minimum(np.searchsorted(high, p, side="left"), bins - 1)  # (n,)
    n = np.bincount(place, minlength=bins)
    p_sum, right_sum = (np.bincount(place, weights=values, minlength=bins) for values in (p, right))
    return [
        {
            "bin": int(b),
            "low": float(low[b]),
            "high": float(high[b]),
            "n": int(n[b]),
            "confidence": float(p_sum[b] / n[b]),
            "accuracy": float(right_sum[b] / n[b]),
        }
        for b in np.flatnonzero(n)
    ]


def expected_calibration_error(
    confidence: NDArray[Any] | Sequence[float],
    correct: NDArray[Any] | Sequence[bool],
    bins: int = BINS,
    by: str = "width",
) -> float:
    """Mean over predictions of their bin's |accuracy - confidence|, in [0, 1] (Guo et al. 2017, equation 3).

    With bins of equal mass it is the error of Nguyen & O'Connor 2015 in absolute values. It is never 0 for a finite
    sample: perfectly calibrated predictions show about .025 at n = 2 000 and .0035 at 100 000, in 15 bins.

    Args, errors:
        as of :func:`reliability`; NaN where that has no bins.
    """
    rows = reliability(confidence, correct, bins, by)
    if not rows:
        return math.nan
    return sum(row["n"] * abs(row["accuracy"] - row["confidence"]) for row in rows) / sum(row["n"] for row in rows)


def brier(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Squared distance of (N, V) probabilities to the one-hot targets (N,), each in [0, 2] (Brier 1950): (N,)."""
    target = probabilities.gather(-1, targets[:, None])[:, 0]  # (N,)
    # Over the others and then the target, each a sum of squares: no difference of nearly equal numbers.
    others = probabilities.scatter(-1, targets[:, None], 0.0).square().sum(-1)
    return others + (1 - target).square()


def fit_temperature(logits: Tensor, targets: Tensor) -> float:
    """The T for which softmax(logits / T) has the least NLL (Guo et al. 2017, section 4.2).

    The NLL is convex in 1 / T, so that there is one such T; it is looked for within :data:`TEMPERATURES`.

    Args:
        logits: (N, V).
        targets: (N,) ids.

    Returns:
        T > 0: above 1 for an overconfident model, below 1 for an underconfident one; NaN where the NLL is not finite.
    """
    rows = max(1, CHUNK_LOGITS // logits.shape[-1])
    chunks = list(zip(logits.split(rows), targets.split(rows), strict=True))

    def nll(log_temperature: float) -> float:
        total = 0.0
        for z, y in chunks:
            scaled = z / math.exp(log_temperature)
            each = scaled.logsumexp(-1) - scaled.gather(-1, y[:, None])[:, 0]
            total += float(each.cpu().double().sum())
        return total / len(targets)

    if not math.isfinite(nll(0.0)):
        return math.nan
    low, high = map(math.log, TEMPERATURES)
    return math.exp(
        scipy.optimize.minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-4}).x
    )
