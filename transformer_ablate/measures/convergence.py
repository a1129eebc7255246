"""How training went: from the curve alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import Evaluation

# Single batches are noisy: thresholds and the final loss are read off a running mean over this many updates.
SMOOTHING = 20
RISE_NATS = 1.0


def running_mean(values: Sequence[float], width: int = SMOOTHING) -> NDArray[np.float64]:
    """Mean of each value and up to ``width - 1`` before it."""
    sums = np.cumsum(np.insert(np.asarray(values, dtype=np.float64), 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return (sums[ends] - sums[starts]) / (ends - starts)


def diverged(nll: Sequence[float], vocabulary_size: int) -> bool:
    """The protocol's rule: a loss that is no number, or a final loss > .9 ln V, or a lasting rise.

    A lasting rise is a running mean more than 1 nat above its own running minimum for 100 updates on end. Fewer
    updates than that are too few to judge by: there a loss that is no number alone counts.

    Args:
        nll: training loss at each update, nats/token.
        vocabulary_size: V.
    """
    if not np.isfinite(nll).all():
        return True
    if len(nll) < LEAST_UPDATES:
        return False
    smooth = running_mean(nll)
    if smooth[-1] > 0.9 * math.log(vocabulary_size):
        return True
    above = smooth > np.minimum.accumulate(smooth) + RISE_NATS
    longest = run = 0
    for high in above:
        run = run + 1 if high else 0
        longest = max(longest, run)
    return longest >= LEAST_UPDATES


def first_below(smooth: NDArray[np.float64], bound: float) -> float:
    """Number of the first update whose smoothed loss is at most ``bound``; NaN if there is none."""
    below = np.flatnonzero(smooth <= bound)
    return float(below[0] + 1) if len(below) else math.nan


class Convergence:
    """Figures of the training curve.

    Metrics: ``initial_nll`` (first batch, before any update), ``final_nll`` (running mean at the end),
    ``steps_to_half`` and ``steps_to_tenth`` of the initial loss (NaN where not reached),
    ``steps_to_tenth_uniform`` (to a tenth of ln V, the same for all
    arms of a task; one more than all updates where not reached, so that slow seeds count), ``seconds_to_half``,
    ``tokens_to_half``, ``area`` (mean loss over all updates), ``grad_norm_max``, ``diverged`` (0 or 1),
    ``train_seconds``, ``train_tokens_per_second`` (real target tokens; other processes may share the machine).
    """

    name = "convergence"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        columns = run.curve.columns
        if not columns["nll"]:
            return Measured({})
        nll = columns["nll"]
        smooth = running_mean(nll)
        half = first_below(smooth, nll[0] / 2)
        learnt = first_below(smooth, math.log(len(run.task.target_vocabulary)) / 10)
        at_half = int(half) - 1 if math.isfinite(half) else None
        seconds, tokens = columns["seconds"][-1], columns["tokens"][-1]
        return Measured(
            {
                "initial_nll": nll[0],
                "final_nll": float(smooth[-1]),
                "steps_to_half": half,
                "steps_to_tenth": first_below(smooth, nll[0] / 10),
                "steps_to_tenth_uniform": len(nll) + 1.0 if math.isnan(learnt) else learnt,
                "seconds_to_half": math.nan if at_half is None else columns["seconds"][at_half],
                "tokens_to_half": math.nan if at_half is None else columns["tokens"][at_half],
                "area": float(np.mean(nll)),
                "grad_norm_max": float(np.max(columns["grad_norm"])),
                "diverged": float(diverged(nll, len(run.task.target_vocabulary))),
                "train_seconds": seconds,
                "train_tokens_per_second": tokens / seconds,
            }
        )
