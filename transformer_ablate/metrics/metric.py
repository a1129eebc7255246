"""One metric as readers see it: its name, its direction, its format, its definition."""

from __future__ import annotations

import math
from dataclasses import dataclass

MISSING = "–"
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
        group: ``quality``, ``convergence``, ``cost``, ``size``, ``status``, ``calibration``, ``attention``, ``probes``,
            ``gradients``, ``throughput`` or ``further``; tables are made by group.
        definition: one or two sentences with the unit.
    """

    name: str
    label: str
    better: str
    style: str
    group: str
    definition: str

    @property
    def arrow(self) -> str:
        """Which way is better, for a heading."""
        return {"higher": "↑", "lower": "↓"}.get(self.better, "")

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
