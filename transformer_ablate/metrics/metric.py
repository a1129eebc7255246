"""One metric as readers see it: its name, its direction, its format, its definition; and the family that it is of."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

MISSING = "–"
TEST_SET, LAYER, TOKENS = "test set", "layer", "tokens"  # what the buckets of a metric count
SI_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: key in ``RunRecord.metrics``, without the bucket.
        label: heading of a column or axis.
        better: ``higher``, ``lower`` or empty where neither is.
        style: ``fraction`` (3 decimals, within 0 and 1), ``decimal`` (3 decimals), ``count`` (whole, with thousands
            separators), ``si`` (3 digits and a prefix) or ``short`` (3 significant digits).
        definition: one or two sentences with the unit.
        counts: what its buckets are; empty where it has none; None for what the family says.
        measure: name of the measure that makes it; None for the family's, empty for what every run has.
        never_reached: a run without a finite value is one that never got there.
        shared_machine: taken while other runs train beside it.
        group: name of the family; tables are made by group.
    """

    name: str
    label: str
    better: str
    style: str
    definition: str
    counts: str | None = None
    measure: str | None = None
    never_reached: bool = False
    shared_machine: bool = False
    group: str = "further"

    @property
    def arrow(self) -> str:
        """Which way is better, for a heading."""
        return {"higher": "↑", "lower": "↓"}.get(self.better, "")

    @property
    def counted(self) -> bool:
        """Whether its buckets are numbers (of a layer, of tokens) and no test sets."""
        return self.counts in (LAYER, TOKENS)

    @property
    def bounded(self) -> bool:
        """Whether values lie within 0 and 1."""
        return self.style == "fraction"

    def format(self, value: float | None) -> str:
        """``value`` as text; a dash where there is none or it is not finite."""
        if value is None or not math.isfinite(value):
            return MISSING
        if self.style in ("fraction", "decimal"):
            return f"{value:.3f}"
        if self.style == "count":
            return f"{value:,.0f}"
        if self.style == "si":
            for size, unit in SI_UNITS:
                if abs(value) >= size:
                    return f"{value / size:.3g}{unit}"
        return f"{value:.3g}"


@dataclass(frozen=True)
class Family:
    """What readers are told of the numbers of one measure: all that is said of them stands in its declaration.

    Attributes:
        name: of the group whose tables its metrics stand in; several families may share one.
        measure: name of the measure that makes them; empty for what every run has.
        title: of the group's tables; empty where pages have places of their own for the group.
        metrics: in the order of columns.
        counts: what the buckets of its metrics are: ``test set``, ``layer``, ``tokens``; empty where there are none.
        artifact: name of the measure's artifact that reports draw; empty for none.
    """

    name: str
    measure: str
    title: str
    metrics: tuple[Metric, ...]
    counts: str = ""
    artifact: str = ""

    def declared(self) -> tuple[Metric, ...]:
        """Its metrics, with what the family says of all of them."""
        return tuple(
            dataclasses.replace(
                m,
                group=self.name,
                counts=self.counts if m.counts is None else m.counts,
                measure=self.measure if m.measure is None else m.measure,
            )
            for m in self.metrics
        )
