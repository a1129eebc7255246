"""What verdicts are made from, read off a study's record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Index

if TYPE_CHECKING:
    from transformer_ablate.measures.exact import Checked

# An arm has not learnt where it reaches less than this part of what the cell's first arm does, in distribution.
LEARNT = 0.5


class RecordedEvidence:
    """A study's stored values as :class:`transformer_ablate.study.claims.Evidence`."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def values(self, arm: str, key: str) -> Mapping[int, float]:
        """Seed to value; see :class:`Evidence`."""
        place = Key.parse(key)
        return self.index.values(place.cell, arm, place.within)

    def buckets(self, cell: str, metric: str) -> Sequence[tuple[str, float]]:
        """Test sets in order of length; see :class:`Evidence`."""
        return [(b.name, b.ratio) for b in self.index.buckets(cell, metric)] if self.index.cell(cell) else []

    def check(self, name: str) -> Checked | None:
        """The outcome of an exact check."""
        return self.index.record.checks.get(name)

    def outcomes(self, arm: str, cell: str) -> Mapping[int, bool]:
        """Seed to whether the run failed to train: no result, diverged, or unlearned by the protocol's rule.

        Unlearned: in distribution it reaches less than half of the base arm's mean (the cell's first arm), as exact
        match or as 1 - error rate; for measures without a ceiling (losses, BLEU) divergence alone counts. Runs that
        were interrupted, never started or are too short to judge say nothing.
        """
        declared = self.index.cell(cell)
        if declared is None:
            return {}
        found = {}
        threshold = self._least(cell, declared.metric)
        for run in self.index.runs(cell, arm):
            if run.finished and not run.too_short:
                reached = self._success(cell, declared.metric, run.metrics)
                found[run.seed] = run.diverged or (threshold is not None and not reached >= threshold)
            elif run.status == "failed":
                found[run.seed] = True
        return found

    def _least(self, cell: str, metric: str) -> float | None:
        if metric_of(metric).style != "fraction" and metric not in ("per", "edit_distance"):
            return None
        runs = [run for arm in self.index.arms(cell)[:1] for run in self.index.finished(cell, arm)]
        finite = [r for run in runs if math.isfinite(r := self._success(cell, metric, run.metrics))]
        return LEARNT * sum(finite) / len(finite) if finite else None

    def _success(self, cell: str, metric: str, metrics: Mapping[str, float]) -> float:
        bucket = self.index.in_distribution(cell, metric)
        value = metrics.get(bucket.key(metric), math.nan) if bucket else math.nan
        return 1 - value if metric_of(metric).better == "lower" else value
