"""What arms cost against what they are worth: pictures without a mixed score, and which arms none other beats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from transformer_ablate.report.drawing import Look, legend_handles, name_width, single_figure
from transformer_ablate.report.index import Index
from transformer_ablate.report.metrics_catalogue import metric_of
from transformer_ablate.studies.study import Pareto

# Arms whose costs differ by no more than this share cost the same.
ALIKE = 0.05


def split(key: str) -> tuple[str, str]:
    """``CELL/METRIC[/BUCKET]`` as cell and key."""
    cell, _, name = key.partition("/")
    return cell, name


def means(index: Index, key: str) -> dict[str, float]:
    """Arm to mean over seeds, for the arms that have one."""
    cell, name = split(key)
    if index.cell(cell) is None:
        return {}
    found = {arm: index.summary(cell, arm, name).mean for arm in index.arms(cell)}
    return {arm: mean for arm, mean in found.items() if mean is not None and math.isfinite(mean)}


def front(costs: Sequence[dict[str, float]], worth: Sequence[dict[str, float]]) -> list[str]:
    """Arms that no other arm beats: none is at least as good in everything and better in something.

    Args:
        costs: arm to value, lower is better.
        worth: arm to value, higher is better.
    """
    shared = [arm for arm in (worth or costs)[0] if all(arm in values for values in (*costs, *worth))]
    points = {arm: [*(-v[arm] for v in costs), *(v[arm] for v in worth)] for arm in shared}
    return [
        arm
        for arm, own in points.items()
        if not any(all(o >= m for o, m in zip(other, own, strict=True)) and other != own for other in points.values())
    ]


def higher_is_better(index: Index, key: str) -> dict[str, float]:
    """Means turned so that higher is better."""
    sign = -1.0 if metric_of(split(key)[1]).better == "lower" else 1.0
    return {arm: sign * mean for arm, mean in means(index, key).items()}


def pareto_front(index: Index, pareto: Pareto) -> list[str]:
    """The arms on the front of all of a study's costs and measures of worth, by their means over seeds."""
    worth = [higher_is_better(index, key) for key in pareto.worth]
    costs = [means(index, key) for key in pareto.costs]
    if not all(worth) or not all(costs):
        return []
    return front(costs, worth)


def pareto_figure(index: Index, pareto: Pareto, chosen: dict[str, Look]) -> tuple[Figure, str] | None:
    """One panel for each cost and measure of worth; arms on a panel's own front are ringed.

    A cost in which no two arms differ by more than :data:`ALIKE` is named in the caption and not drawn.
    """
    alike = [cost for cost in pareto.costs if _spread(index, cost) <= ALIKE]
    costs = [cost for cost in pareto.costs if cost not in alike]
    panels = [(cost, worth) for worth in pareto.worth for cost in costs]
    panels = [(c, w) for c, w in panels if means(index, c).keys() & means(index, w).keys()]
    if not panels:
        return None
    columns = len(costs)
    rows = math.ceil(len(panels) / columns)
    arms = [arm for arm in index.arms() if any(arm in means(index, w) for _, w in panels)]
    figure = single_figure(3.6 * columns + name_width(arms), max(3.1 * rows, 0.2 * len(arms) + 0.6))
    grid = figure.subplots(rows, columns, squeeze=False)
    for ax in list(grid.flat)[len(panels) :]:
        ax.set_visible(False)
    for ax, (cost, worth) in zip(grid.flat, panels, strict=False):
        x, y = means(index, cost), means(index, worth)
        best = front([x], [higher_is_better(index, worth)])
        cost_cell, cost_key = split(cost)
        worth_cell, worth_key = split(worth)
        for arm in x.keys() & y.keys():
            half = index.summary(worth_cell, arm, worth_key).half_width or 0.0
            about = index.summary(cost_cell, arm, cost_key).half_width or 0.0
            ax.errorbar([x[arm]], [y[arm]], xerr=[about], yerr=[half], color=chosen[arm].colour,
                        marker=chosen[arm].marker, markersize=6, elinewidth=0.9, zorder=3)  # fmt: skip
            if arm in best:
                ax.plot([x[arm]], [y[arm]], marker="o", markersize=13, markerfacecolor="none",
                        markeredgecolor="#444444", linestyle="", zorder=2)  # fmt: skip
        metric, bucket = metric_of(worth_key), worth_key.partition("/")[2]
        ax.set_xlabel(f"{metric_of(cost_key).label} ({cost_cell})")
        ax.set_ylabel(f"{worth_cell}: {metric.label}{f' [{bucket}]' if bucket else ''} {metric.arrow}")
    figure.legend(handles=legend_handles(arms, chosen, lines=False), loc="outside right upper")
    caption = (
        "What each arm costs against what it is worth; means over seeds, bars: 95 % t-interval. Ringed: no other arm "
        "is at least as good in both and better in one. Seconds are of a shared machine."
    )
    if alike:
        named = ", ".join(f"{metric_of(split(cost)[1]).label.lower()} ({split(cost)[0]})" for cost in alike)
        caption += f" Not drawn, as all arms are within {ALIKE:.0%}: {named}."
    return figure, caption


def _spread(index: Index, cost: str) -> float:
    """By which share of the least cost the greatest is above it; infinite where that means nothing."""
    values = means(index, cost).values()
    return max(values) / min(values) - 1 if values and min(values) > 0 else math.inf
