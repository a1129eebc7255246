"""All families of metrics, in the order in which readers see them, and what is said of each metric.

A metric that no family declares is still reported, under "further metrics", with its bare name.
"""

from __future__ import annotations

from transformer_ablate.metrics.attention import ATTENTION
from transformer_ablate.metrics.calibration import CALIBRATION
from transformer_ablate.metrics.key import Key
from transformer_ablate.metrics.layers import GRADIENTS, PROBES
from transformer_ablate.metrics.metric import MISSING, Family, Metric
from transformer_ablate.metrics.quality import BEAM, CONTEXT, QUALITY, TEXT
from transformer_ablate.metrics.throughput import THROUGHPUT
from transformer_ablate.metrics.training import CONVERGENCE, COST, SIZE, STATUS

FAMILIES: list[Family] = []
CATALOGUE: dict[str, Metric] = {}


def register(family: Family) -> None:
    """Adds a family behind the others; one that is there already stays as it is.

    Raises:
        ValueError: for a metric that another family declares, or a new group without a title, which no page would show.
    """
    if family in FAMILIES:
        return
    taken = [metric.name for metric in family.metrics if metric.name in CATALOGUE]
    if taken:
        raise ValueError(f"metrics of {family.name!r} that are declared already: {', '.join(taken)}")
    if not family.title and family.name not in {known.name for known in FAMILIES}:
        raise ValueError(f"family {family.name!r} needs a title for its tables")
    _enter(family)


def _enter(family: Family) -> None:
    FAMILIES.append(family)
    CATALOGUE.update((metric.name, metric) for metric in family.declared())


for _family in (
    QUALITY, TEXT, CONVERGENCE, COST, SIZE, STATUS, CALIBRATION, ATTENTION, PROBES, GRADIENTS, THROUGHPUT, CONTEXT,
    BEAM,
):  # fmt: skip
    _enter(_family)


def titled_groups() -> dict[str, str]:
    """The groups that some cells alone measure, and what their tables are called."""
    return {family.name: family.title for family in FAMILIES if family.title}


def drawn_artifacts() -> dict[str, str]:
    """Measure to the artifact of it that reports draw."""
    return {family.measure: family.artifact for family in FAMILIES if family.artifact}


def measures() -> tuple[str, ...]:
    """Names of all measures that make something which is declared."""
    return tuple(dict.fromkeys(metric.measure for metric in CATALOGUE.values() if metric.measure))


def metric_of(key: str) -> Metric:
    """The metric of ``METRIC[/BUCKET]``; unknown names get a plain entry of group ``further``."""
    name = Key.of(key).metric
    return CATALOGUE.get(name) or Metric(name, name.replace("_", " "), "", "short", "Not described.")


def order_of(name: str) -> int:
    """Position in the catalogue, for sorting; unknown metrics come last."""
    names = list(CATALOGUE)
    return names.index(name) if name in CATALOGUE else len(names)


__all__ = ["CATALOGUE", "FAMILIES", "MISSING", "Family", "Metric", "metric_of", "order_of", "register"]
