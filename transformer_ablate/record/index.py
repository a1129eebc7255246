"""Look-ups over a study's runs that tables, figures and sentences share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ablate.metrics.catalogue import metric_of, order_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.stats.summary import Summary, summarise
from transformer_ablate.study.declarations import Cell, Variant


@dataclass(frozen=True)
class Bucket:
    """One test set of a cell.

    Attributes:
        name: second part of a metric key; empty for a metric without buckets.
        ratio: longest length over the longest training length; NaN where unknown.
        examples: test examples; 0 where unknown.
        lengths: source lengths as text, e.g. ``9–10``; empty where unknown.
    """

    name: str
    ratio: float = math.nan
    examples: int = 0
    lengths: str = ""

    @property
    def heading(self) -> str:
        """Label with the lengths, for the head of a column: ``1.25× (9–10)``, ``9–10``."""
        if not self.lengths or not self.label or self.lengths.endswith(self.name.replace("-", "–")):
            return self.lengths or self.label
        return f"{self.label} ({self.lengths})"

    @property
    def label(self) -> str:
        """Short heading: ``1.25×``, or the bucket's own name where it is not a ratio."""
        is_ratio = math.isfinite(self.ratio) and self.name == f"{self.ratio:g}"
        return f"{self.name}×" if is_ratio else self.name

    def key(self, metric: str) -> str:
        """``METRIC/BUCKET``."""
        return Key("", metric, self.name).within


class Index:
    """A ``StudyRecord`` by cell and variant. Orders are the study's declaration order and ascending seeds.

    Raises:
        ValueError: for a run whose cell or variant the study does not declare.
    """

    def __init__(self, record: StudyRecord) -> None:
        self.record = record
        self.cells: tuple[Cell, ...] = record.study.cells
        self.variants: dict[str, Variant] = {v.name: v for v in record.study.variants}
        self._runs: dict[tuple[str, str], list[RunRecord]] = {}
        names = {c.name for c in self.cells}
        for run in sorted(record.runs, key=lambda r: r.seed):
            if run.cell not in names or run.variant not in self.variants:
                raise ValueError(f"{record.study.name}: run {run.variant!r} in {run.cell!r} is not part of the study")
            self._runs.setdefault((run.cell, run.variant), []).append(run)
        # Every table asks for these; with hundreds of runs they are worth finding once.
        self._sets = {c.name: self._find_test_sets(c) for c in self.cells}
        self._keys = {c.name: self._find_keys(c.name) for c in self.cells}

    def cell(self, name: str) -> Cell | None:
        """The cell of that name."""
        return next((c for c in self.cells if c.name == name), None)

    def arms(self, cell: str | None = None) -> list[str]:
        """Variants with a planned run in ``cell``, or in any cell."""
        planned = {v for c, v in self._runs if cell in (None, c)}
        return [v for v in self.variants if v in planned]

    def runs(self, cell: str, variant: str) -> list[RunRecord]:
        """All planned runs of an arm in a cell."""
        return self._runs.get((cell, variant), [])

    def finished(self, cell: str, variant: str) -> list[RunRecord]:
        """The runs whose metrics count."""
        return [r for r in self.runs(cell, variant) if r.finished]

    def values(self, cell: str, variant: str, key: str) -> dict[int, float]:
        """Seed to value of ``METRIC[/BUCKET]`` for the finished runs that have it; NaN and infinity may occur."""
        return {r.seed: float(r.metrics[key]) for r in self.finished(cell, variant) if key in r.metrics}

    def summary(self, cell: str, variant: str, key: str) -> Summary:
        """Mean and interval over seeds."""
        return summarise(self.values(cell, variant, key).values())

    def size(self, cell: str, variant: str, key: str) -> float | None:
        """A property of the model, not of the seed (``parameters``, ``flops``): that of the first run that has it."""
        return next((v for v in self.values(cell, variant, key).values() if math.isfinite(v)), None)

    def keys(self, cell: str) -> list[str]:
        """Every metric key that a finished run of the cell has: in the catalogue's order, then by bucket."""
        return self._keys[cell]

    def metric_names(self, cell: str) -> list[str]:
        """Metrics without their buckets, in the catalogue's order."""
        return list(dict.fromkeys(Key.of(k).metric for k in self.keys(cell)))

    def buckets(self, cell: str, metric: str) -> list[Bucket]:
        """Test sets for which ``metric`` was measured, in order of length."""
        known = {b.name: b for b in self._sets[cell]}
        names = [key.bucket for key in map(Key.of, self.keys(cell)) if key.metric == metric]
        if metric_of(metric).counted:  # layers or tokens, which may be called like a test set
            return [Bucket(name) for name in sorted(names, key=lambda name: float(name or 0))]
        return [known.get(name, Bucket(name)) for name in names]

    def in_distribution(self, cell: str, metric: str) -> Bucket | None:
        """The test set that reaches to the longest training length; the first where ratios are unknown.

        Of layers or tokens, the last.
        """
        buckets = self.buckets(cell, metric)
        if buckets and metric_of(metric).counted:
            return buckets[-1]
        inside = [b for b in buckets if b.ratio <= 1 + 1e-9]
        return inside[-1] if inside else buckets[0] if buckets else None

    def settings(self, cell: Cell) -> Mapping[str, Any]:
        """Dotted fields of the cell's base recipe, with the cell's delta and the user's overrides."""
        return self.record.recipes.get(cell.name, {})

    def _of(self, cell: str) -> list[RunRecord]:
        return [r for (c, _), runs in self._runs.items() if c == cell for r in runs if r.finished]

    def _find_keys(self, cell: str) -> list[str]:
        bucket_order = {b.name: i for i, b in enumerate(self._sets[cell])}

        def place(text: str) -> tuple[int, str, int, str]:
            key = Key.of(text)
            bucket = bucket_order.get(key.bucket, len(bucket_order))
            return order_of(key.metric), key.metric, bucket, key.bucket

        return sorted({k for r in self._of(cell) for k in r.metrics}, key=place)

    def _find_test_sets(self, cell: Cell) -> list[Bucket]:
        found: dict[str, tuple[str, float, int]] = {}
        for run in self._of(cell.name):
            for name, ratio, examples in run.test_sets:
                found.setdefault(name, (name, float(ratio), int(examples)))
        ordered = sorted(found.values(), key=lambda t: t[1])
        longest = self.settings(cell).get("data.max_length")
        buckets, previous = [], 0
        for name, ratio, examples in ordered:
            lengths = ""
            # A single test set is not a band of lengths: its ratio says nothing about where it begins.
            if isinstance(longest, int) and math.isfinite(ratio) and len(ordered) > 1:
                first, last = previous + 1, round(ratio * longest)
                lengths = f"{first}–{last}" if first < last else f"{last}"
                previous = last
            buckets.append(Bucket(name, ratio, examples, lengths))
        return buckets
