"""What arms cost against what they are worth: pictures without a mixed score."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Index
from transformer_ablate.report.drawing import Look, legend_handles, name_width, single_figure
from transformer_ablate.study.declarations import Pareto
from transformer_ablate.verdicts.pareto import front, higher_is_better, means, split

# Arms whose costs differ by no more than this share cost the same.
ALIKE = 0.05


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
        metric, bucket = metric_of(worth_key), Key.of(worth_key).bucket
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
