"""Pictures of what runs keep beside their metrics: reliability curves, attention maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from transformer_ablate.record.index import Index
from transformer_ablate.report.drawing import Look, legend_handles, name_width, single_figure
from transformer_ablate.study.declarations import Cell

RELIABILITY, MAPS = "reliability", "attention_maps"  # artifacts, as the measures call them
FEWEST_TOKENS = 30  # in a bin that is drawn: an accuracy of fewer is mostly chance
MOST_MAPS, MAP_COLUMNS = 12, 4

Row = Mapping[str, Any]
_AXES = ("confidence", "accuracy")


def pooled(rows: Sequence[Row]) -> list[tuple[float, float, int]]:
    """Confidence, accuracy and tokens of each bin over all seeds, token-weighted; bins with few tokens are left out."""
    bins: dict[int, list[Row]] = {}
    for row in rows:
        bins.setdefault(int(row["bin"]), []).append(row)
    points = []
    for number in sorted(bins):
        n = sum(int(row["n"]) for row in bins[number])
        if n >= FEWEST_TOKENS:
            confidence, accuracy = (sum(row[key] * row["n"] for row in bins[number]) / n for key in _AXES)
            points.append((confidence, accuracy, n))
    return points


def reliability_figure(index: Index, cell: Cell, chosen: dict[str, Look]) -> tuple[Figure, str] | None:
    """Accuracy against confidence, a panel for each way to look at a model; None where no run was calibrated."""
    rows = {
        arm: [row for run in index.finished(cell.name, arm) for row in run.tables.get(RELIABILITY, ())]
        for arm in index.arms(cell.name)
    }
    arms = [arm for arm, found in rows.items() if found]
    if not arms:
        return None
    curves = list(dict.fromkeys(str(row["curve"]) for arm in arms for row in rows[arm]))
    figure = single_figure(3.3 * len(curves) + name_width(arms), 3.6)
    panels = figure.subplots(1, len(curves), sharex=True, sharey=True, squeeze=False)[0]
    for ax, curve in zip(panels, curves, strict=True):
        ax.plot([0, 1], [0, 1], color="#777777", linestyle="--", linewidth=1.1, zorder=1)
        for arm in arms:
            points = pooled([row for row in rows[arm] if row["curve"] == curve])
            look = chosen[arm]
            ax.plot([p for p, _, _ in points], [a for _, a, _ in points], color=look.colour, linestyle=look.dashes,
                    marker=look.marker, markersize=5, linewidth=1.6)  # fmt: skip
        ax.set_title(curve, loc="left")
        ax.set_xlim(0, 1.02)
        ax.set_ylim(0, 1.02)
        ax.set_xlabel("confidence")
    panels[0].set_ylabel("accuracy")
    figure.legend(handles=legend_handles(arms, chosen), loc="outside right upper")
    caption = (
        f"{cell.title}: accuracy of tokens against the model's confidence in them, in 15 bins, all seeds together; "
        f"bins with fewer than {FEWEST_TOKENS} tokens are not drawn. Below the dashed line a model is overconfident. "
        "Scaled: after one temperature fitted on other data; free-running: tokens of greedy outputs."
    )
    return figure, caption


def attention_figure(index: Index, cell: Cell, chosen: dict[str, Look]) -> tuple[Figure, str] | None:
    """Cross-attention of one example, a panel an arm: the last layer, mean over heads; None without such maps."""
    found: dict[str, Row] = {}
    for arm in index.arms(cell.name):
        for run in index.finished(cell.name, arm)[:1]:
            cross = [row for row in run.tables.get(MAPS, ()) if row["kind"] == "cross"]
            first = [row for row in cross if row["example"] == cross[0]["example"]]
            if first:
                found[arm] = max(first, key=lambda row: row["layer"])
    arms = list(found)[:MOST_MAPS]
    if not arms:
        return None
    columns = min(len(arms), MAP_COLUMNS)
    lines = math.ceil(len(arms) / columns)
    figure = single_figure(2.9 * columns, 2.9 * lines)
    grid = list(figure.subplots(lines, columns, squeeze=False).flat)
    for ax in grid[len(arms) :]:
        ax.set_visible(False)
    for ax, arm in zip(grid, arms, strict=False):
        row = found[arm]
        heads = row["weights"]
        mean = [[sum(h[i][j] for h in heads) / len(heads) for j in range(len(row["keys"]))]
                for i in range(len(row["queries"]))]  # fmt: skip
        ax.imshow(mean, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        ax.set_xticks(range(len(row["keys"])), [_short(t) for t in row["keys"]], fontsize=7, rotation=90)
        ax.set_yticks(range(len(row["queries"])), [_short(t) for t in row["queries"]], fontsize=7)
        ax.grid(visible=False)
        ax.set_title(arm, loc="left", fontsize=9)
    left = len(found) - len(arms)
    more = f" {left} further arms are not drawn." if left else ""
    caption = (
        f"{cell.title}: weights of cross-attention in the last layer, mean over heads, for one example of each arm's "
        f"first seed: target tokens that are read downwards, source tokens across; white 0, dark 1.{more}"
    )
    return figure, caption


def _short(token: str) -> str:
    return token if len(token) <= 6 else f"{token[:5]}…"
