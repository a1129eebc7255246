"""How figures look: colours, dashes, panels and legends that all of a study's figures share."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from transformer_ablate.record.index import Index

# Okabe and Ito's colours that hold on white, then darker ones of Paul Tol's: told apart by colour-blind readers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222", "#882255", "#999933", "#332288")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
PAIRED_FIELD = "model.cross_position"
GREY = "#c9c9c9"
PANEL_COLUMNS = 4
BACKGROUND_POINTS = 25
STYLE: Any = {
    "font.size": 11, "axes.titlesize": 11, "axes.labelsize": 11, "legend.fontsize": 10, "xtick.labelsize": 10,
    "ytick.labelsize": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "grid.linewidth": 0.8, "axes.axisbelow": True, "figure.facecolor": "white",
    "text.parse_math": False,  # names may hold a dollar sign
    "svg.fonttype": "path", "svg.hashsalt": "transformer-ablate", "legend.frameon": False, "legend.handlelength": 3.2,
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """How a variant is drawn, the same in every figure: colour and marker by ``family``, dashes by cross position."""

    colour: str
    marker: str
    dashes: Any
    family: str


def looks(index: Index) -> dict[str, Look]:
    """The look of every variant that was planned."""
    families: dict[str, int] = {}
    crosses: dict[str, int] = {"none": 0}
    chosen = {}
    for name in index.arms():
        delta = dict(index.variants[name].delta)
        cross = str(delta.pop(PAIRED_FIELD, "none"))
        family = json.dumps(delta, sort_keys=True, default=str)
        i, k = families.setdefault(family, len(families)), crosses.setdefault(cross, len(crosses))
        # The marker moves on faster than the palette repeats, so that no two of the first 100 families look the same.
        marker = MARKERS[(i + i // len(PALETTE)) % len(MARKERS)]
        chosen[name] = Look(PALETTE[i % len(PALETTE)], marker, DASHES[k % len(DASHES)], family)
    return chosen


def single_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08))
    FigureCanvasAgg(figure)
    return figure


def panels_of(panels: list[list[str]], width: float, height: float) -> tuple[Figure, list[Axes]]:
    """One large panel, or a grid of small ones that share their axes, with room for a legend above each.

    The grid is laid out by hand, in inches: a solver takes half a minute for thirty panels.
    """
    names = [arm for panel in panels for arm in panel]
    if len(panels) == 1:
        figure = single_figure(width + name_width(names), height)
        return figure, [figure.add_subplot()]
    columns = min(len(panels), PANEL_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    legend = 0.19 * max(map(len, panels)) + 0.1
    wide, high, gap = max(2.3, name_width(names)), 1.8, 0.3
    left, right, top, bottom = 0.85, 0.25, 0.4 + legend, 0.75
    across = left + columns * wide + (columns - 1) * gap + right
    down = top + rows * high + (rows - 1) * (legend + gap) + bottom
    figure = Figure(figsize=(across, down))
    FigureCanvasAgg(figure)
    place = {"left": left / across, "right": 1 - right / across, "top": 1 - top / down, "bottom": bottom / down}
    space = {"wspace": gap / wide, "hspace": (legend + gap) / high}
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False, gridspec_kw=place | space)
    axes = list(grid.flat)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[len(panels) - columns : len(panels)]:
        ax.tick_params(labelbottom=True)
    return figure, axes[: len(panels)]


def draw_background(ax: Axes, lines: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """All arms' means in grey, coarsely, behind the ones that a small panel is about."""
    paths = []
    for x, y in lines:
        coarse = max(1, len(x) // BACKGROUND_POINTS)
        paths.append(np.column_stack([x, y])[::coarse])
    ax.add_collection(LineCollection(paths, colors=GREY, linewidths=0.8, zorder=1))


def label_axes(figure: Figure, axes: list[Axes], x: str, y: str) -> None:
    """Labels of the one panel, or shared by all."""
    if len(axes) == 1:
        axes[0].set_xlabel(x)
        axes[0].set_ylabel(y)
    else:
        # Half a line from the edges, whatever the figure's height.
        figure.supxlabel(x, fontsize=11, y=0.1 / figure.get_figheight(), va="bottom")
        figure.supylabel(y, fontsize=11, x=0.1 / figure.get_figwidth(), ha="left")


def name_width(arms: list[str]) -> float:
    """Inches that the longest name takes in a legend, its line included."""
    return 0.7 + 0.085 * max(map(len, arms))


def legend_handles(arms: list[str], chosen: dict[str, Look], markers: bool = True, lines: bool = True) -> list[Line2D]:
    # A label with a leading underscore would be hidden; the space in front of it is not seen.
    return [
        Line2D([], [], color=chosen[a].colour, linestyle=chosen[a].dashes if lines else "", linewidth=1.8,
               label=f" {a}" if a.startswith("_") else a, marker=chosen[a].marker if markers else "", markersize=5)
        for a in arms
    ]  # fmt: skip
