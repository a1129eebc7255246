"""Figures of a study. Only matplotlib's object interface: no global state, and the same bytes for the same record."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from transformer_ablate.metrics.catalogue import Metric, metric_of
from transformer_ablate.record.index import Bucket, Index
from transformer_ablate.record.records import RunRecord
from transformer_ablate.report.artifact_figures import attention_figure, reliability_figure
from transformer_ablate.report.drawing import (
    STYLE,
    Look,
    draw_background,
    label_axes,
    legend_handles,
    looks,
    name_width,
    panels_of,
    single_figure,
)
from transformer_ablate.report.pareto import pareto_figure
from transformer_ablate.study.declarations import Cell

ONE_PANEL = 16  # lines that one panel still shows legibly, their legend beside it
ONE_CURVE_PANEL = 4
LOGARITHMIC_FROM = 8  # times the least count: lengths in powers of two, never layers of a small model
FAR_APART = 5  # from so many times the smallest value on, one axis of equal steps would show the far arm alone
CURVE_POINTS = 300  # of one trace; more are not visible at this size and make the file large


@dataclass(frozen=True)
class Drawing:
    """One figure in both formats.

    Attributes:
        name: file name without its ending.
        kind: ``metric``, ``reliability``, ``maps``, ``curves`` or ``pareto``.
        cell: the cell it belongs to; empty for one of the whole study.
        caption: what is drawn, for the reader and for screen readers.
        svg, png: the files' bytes.
    """

    name: str
    kind: str
    cell: str
    caption: str
    svg: bytes
    png: bytes


def file_stem(cell: str, kind: str) -> str:
    """File name of a cell's figure: safe on every file system; different cells never share one."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", cell).strip("-.") or "cell"
    tail = "" if safe == cell else "-" + hashlib.sha256(cell.encode()).hexdigest()[:6]
    return f"{safe}{tail}-{kind}"


def draw(index: Index) -> list[Drawing]:
    """All figures, cell by cell, in the order of ``KINDS``. Cells without data have none."""
    drawings = []
    chosen = looks(index)
    with matplotlib.rc_context(STYLE):
        for cell in index.cells:
            for kind, make in KINDS.items():
                made = make(index, cell, chosen)
                if made is not None:
                    figure, caption = made
                    if figure.get_layout_engine() is not None:  # laid out once, for both formats
                        figure.draw_without_rendering()
                        figure.set_layout_engine("none")
                    svg, png = _save(figure, "svg"), _save(figure, "png")
                    drawings.append(Drawing(file_stem(cell.name, kind), kind, cell.name, caption, svg, png))
        if index.record.study.pareto is not None:
            made = pareto_figure(index, index.record.study.pareto, chosen)
            if made is not None:
                svg, png = _save(made[0], "svg"), _save(made[0], "png")
                drawings.append(Drawing("pareto", "pareto", "", made[1], svg, png))
    return drawings


def _save(figure: Figure, suffix: str) -> bytes:
    buffer = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    figure.savefig(buffer, format=suffix, dpi=130, metadata=metadata)
    return buffer.getvalue()


def _metric_figure(index: Index, cell: Cell, chosen: dict[str, Look]) -> tuple[Figure, str] | None:
    metric, buckets = metric_of(cell.metric), index.buckets(cell.name, cell.metric)
    arms = [a for a in index.arms(cell.name) if any(_finite(index, cell, a, b) for b in buckets)]
    if not arms:
        return None
    if cell.axis:
        caption = (
            f"{cell.title}: {metric.label.lower()} by {cell.axis}. Lines: mean over seeds; bars: 95 % t-interval; "
            "faint points: single seeds."
        )
        return _count_figure(index, cell, metric, buckets, arms, chosen), caption
    on_axis = cell.figure and len(buckets) > 1 and len({b.ratio for b in buckets}) == len(buckets)
    if on_axis and all(math.isfinite(b.ratio) for b in buckets):
        caption = (
            f"{cell.title}: {metric.label.lower()} by length. Lines: mean over seeds; bars: 95 % t-interval; "
            "faint points: single seeds; dashed upright: longest training length. "
            "Arms are shifted sideways a little to be told apart."
        )
        return _length_figure(index, cell, metric, buckets, arms, chosen), caption
    caption = (
        f"{cell.title}: {metric.label.lower()}. Large marks: mean; bars: 95 % t-interval; faint points: single seeds."
    )
    if any(_far_apart(index, cell, arms, bucket) for bucket in buckets):
        caption += f" The axis is logarithmic where values differ by {FAR_APART} times or more."
    return _dot_figure(index, cell, metric, buckets, arms, chosen), caption


def _far_apart(index: Index, cell: Cell, arms: list[str], bucket: Bucket) -> bool:
    """Whether the values of a test set need a logarithmic axis."""
    values = [value for arm in arms for value in _finite(index, cell, arm, bucket)]
    open_scale = not metric_of(cell.metric).bounded and bool(values)
    return open_scale and min(values) > 0 and max(values) >= FAR_APART * min(values)


def _finite(index: Index, cell: Cell, arm: str, bucket: Bucket) -> list[float]:
    return [v for v in index.values(cell.name, arm, bucket.key(cell.metric)).values() if math.isfinite(v)]


def _length_figure(
    index: Index, cell: Cell, metric: Metric, buckets: list[Bucket], arms: list[str], chosen: dict[str, Look]
) -> Figure:
    families = list(dict.fromkeys(chosen[a].family for a in arms))
    panels = [arms] if len(arms) <= ONE_PANEL else [[a for a in arms if chosen[a].family == f] for f in families]
    figure, axes = panels_of(panels, 7.0, 4.9)
    for ax, shown in zip(axes, panels, strict=True):
        if len(panels) > 1:
            ratios = np.array([b.ratio for b in buckets])
            draw_background(ax, [(ratios, np.array(_means(index, cell, a, buckets))) for a in arms])
        for i, arm in enumerate(shown):
            _line_over_lengths(ax, index, cell, buckets, arm, chosen[arm], i - (len(shown) - 1) / 2)
        ax.axvline(1.0, color="#777777", linestyle="--", linewidth=1.1, zorder=1)
        ax.set_xticks([b.ratio for b in buckets], _tick_labels(buckets, brief=len(panels) > 1))
        if metric.bounded:
            ax.set_ylim(-0.03, 1.04)
        else:
            ax.set_ylim(bottom=min(0.0, *(v for a in arms for b in buckets for v in _finite(index, cell, a, b))))
        if len(panels) > 1:
            ax.legend(handles=legend_handles(shown, chosen), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9)
    if len(panels) == 1:
        axes[0].annotate(
            "longest training length", (1.0, 1.0), xycoords=("data", "axes fraction"), xytext=(-6, 2), fontsize=9,
            textcoords="offset points", va="bottom", ha="left", color="#666666",
        )  # fmt: skip
        axes[0].legend(handles=legend_handles(arms, chosen), loc="center left", bbox_to_anchor=(1.01, 0.5))
        axes[0].set_title(cell.title, loc="left", pad=20)
    else:  # the place above small panels belongs to their legends; the caption names the line there
        figure.suptitle(cell.title, x=0.01, ha="left", fontsize=12)
    label_axes(figure, axes, "test length / longest training length", f"{metric.label} {metric.arrow}".strip())
    return figure


def _count_figure(
    index: Index, cell: Cell, metric: Metric, buckets: list[Bucket], arms: list[str], chosen: dict[str, Look]
) -> Figure:
    """Against what the buckets' names count: layers, or tokens on logarithmic axes."""
    figure = single_figure(6.6 + name_width(arms), max(4.6, 0.22 * len(arms) + 0.8))
    ax = figure.add_subplot()
    x = np.array([float(bucket.name) for bucket in buckets])
    order = np.argsort(x)
    for arm in arms:
        look = chosen[arm]
        summaries = [index.summary(cell.name, arm, buckets[i].key(cell.metric)) for i in order]
        mean = [math.nan if s.mean is None else s.mean for s in summaries]
        ax.errorbar(x[order], mean, yerr=[s.half_width or 0.0 for s in summaries], color=look.colour, capsize=2,
                    linestyle=look.dashes, linewidth=1.6, marker=look.marker, markersize=5, elinewidth=1.0)  # fmt: skip
        for i in order:
            seeds = _finite(index, cell, arm, buckets[i])
            ax.plot([x[i]] * len(seeds), seeds, linestyle="", marker=".", markersize=5, color=look.colour, alpha=0.35)
    if x.max() >= LOGARITHMIC_FROM * max(1.0, x.min()):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        for axis_part in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
            axis_part(FuncFormatter(lambda value, _: f"{value:g}"))  # the usual labels are mathematics, which is off
    ax.set_xticks(x[order], [f"{value:g}" for value in x[order]])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_title(cell.title, loc="left")
    ax.legend(handles=legend_handles(arms, chosen), loc="center left", bbox_to_anchor=(1.01, 0.5))
    label_axes(figure, [ax], cell.axis, f"{metric.label} {metric.arrow}".strip())
    return figure


def _line_over_lengths(
    ax: Axes, index: Index, cell: Cell, buckets: list[Bucket], arm: str, look: Look, place: float
) -> None:
    """An arm's mean, interval and seeds, ``place`` steps to the right of the lengths."""
    summaries = [index.summary(cell.name, arm, b.key(cell.metric)) for b in buckets]
    span = max(b.ratio for b in buckets) - min(b.ratio for b in buckets)
    x = [b.ratio + place * 0.006 * span for b in buckets]
    mean = _means(index, cell, arm, buckets)
    half = [s.half_width or 0.0 for s in summaries]
    ax.errorbar(x, mean, yerr=half, color=look.colour, linestyle=look.dashes, linewidth=1.7, marker=look.marker,
                markersize=5, elinewidth=1.0, capsize=2, zorder=3)  # fmt: skip
    for at, bucket in zip(x, buckets, strict=True):
        seeds = _finite(index, cell, arm, bucket)
        ax.plot(
            [at] * len(seeds), seeds, linestyle="", marker=".", markersize=5, color=look.colour, alpha=0.35, zorder=2
        )


def _means(index: Index, cell: Cell, arm: str, buckets: list[Bucket]) -> list[float]:
    means = [index.summary(cell.name, arm, b.key(cell.metric)).mean for b in buckets]
    return [math.nan if mean is None else mean for mean in means]


def _tick_labels(buckets: list[Bucket], brief: bool) -> list[str]:
    """Ratio and lengths of each test set; blank where the label would touch its left neighbour (the tick stays)."""
    span, last = buckets[-1].ratio - buckets[0].ratio, -math.inf
    labels = []
    for b in buckets:
        if b.ratio - last < (0.21 if brief else 0.085) * span:
            labels.append("")
            continue
        labels.append(f"{b.ratio:.3g}×" + ("" if brief or not b.lengths else f"\n{b.lengths}"))
        last = b.ratio
    return labels


def _dot_figure(
    index: Index, cell: Cell, metric: Metric, buckets: list[Bucket], arms: list[str], chosen: dict[str, Look]
) -> Figure:
    figure = single_figure(max(5.5, 2.6 * len(buckets)) + name_width(arms), 1.5 + 0.34 * len(arms))
    grid = figure.subplots(1, len(buckets), sharey=True, squeeze=False)
    for ax, bucket in zip(grid[0], buckets, strict=True):
        for y, arm in enumerate(arms):
            look, seeds = chosen[arm], _finite(index, cell, arm, bucket)
            summary = index.summary(cell.name, arm, bucket.key(cell.metric))
            if summary.mean is not None:
                ax.errorbar([summary.mean], [y], xerr=[summary.half_width or 0.0], color=look.colour,
                            marker=look.marker, markersize=7, elinewidth=1.6, capsize=3, zorder=3)  # fmt: skip
            ax.plot(
                seeds, [y + 0.22] * len(seeds), linestyle="", marker=".", markersize=7, color=look.colour, alpha=0.45
            )
        ax.margins(x=0.08)
        if _far_apart(index, cell, arms, bucket):
            ax.set_xscale("log")
            _log_ticks(ax.xaxis, np.array(ax.get_xlim()))
        if len(buckets) > 1:
            ax.set_title(f"{bucket.label}  {bucket.lengths}".strip())
    grid[0][0].set_yticks(range(len(arms)), arms)
    grid[0][0].set_ylim(len(arms) - 0.4, -0.6)
    figure.suptitle(cell.title, x=0.01, ha="left", fontsize=12)
    figure.supxlabel(f"{metric.label} {metric.arrow}".strip(), fontsize=11)
    return figure


def _curves_figure(index: Index, cell: Cell, chosen: dict[str, Look]) -> tuple[Figure, str] | None:
    found = {a: [_trace(run) for run in index.finished(cell.name, a)] for a in index.arms(cell.name)}
    traces = {a: [t for t in some if t is not None] for a, some in found.items()}
    arms = [a for a, some in traces.items() if some]
    if not arms:
        return None
    families = list(dict.fromkeys(chosen[a].family for a in arms))
    together = len(arms) <= ONE_CURVE_PANEL
    panels = [arms] if together else [[a for a in arms if chosen[a].family == f] for f in families]
    figure, axes = panels_of(panels, 6.6, 4.2)
    means = {a: _mean_trace(traces[a]) for a in arms}
    for ax, shown in zip(axes, panels, strict=True):
        if not together:
            draw_background(ax, [means[a] for a in arms])
        for arm in shown:
            look = chosen[arm]
            for steps, nll in traces[arm]:
                ax.plot(steps, nll, color=look.colour, linewidth=0.7, alpha=0.55, linestyle=look.dashes, zorder=2)
            ax.plot(*means[arm], color=look.colour, linewidth=1.7, linestyle=look.dashes, zorder=3)
        ax.set_yscale("log")
        _log_ticks(ax.yaxis, np.concatenate([y for _, y in means.values()]))
        ax.xaxis.set_major_locator(MaxNLocator(4 if not together else 8, integer=True))
        if not together:
            ax.legend(
                handles=legend_handles(shown, chosen, False), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9
            )
    if together:
        axes[0].legend(handles=legend_handles(arms, chosen, False), loc="center left", bbox_to_anchor=(1.01, 0.5))
        axes[0].set_title(cell.title, loc="left")
    else:
        figure.suptitle(cell.title, x=0.01, ha="left", fontsize=12)
    label_axes(figure, axes, "optimizer step", "training NLL (nats/token)")
    caption = f"{cell.title}: training loss against steps. Thin: every seed; thick: mean where all seeds are finite"
    return figure, caption + ("." if together else "; grey: the means of the other arms.")


def _log_ticks(axis: Axis, shown: np.ndarray) -> None:
    """Plain numbers on a logarithmic axis: 1-2-5 steps where few decades are shown, else one a decade."""
    decades = np.log10(np.nanmax(shown) / np.nanmin(shown)) if np.isfinite(shown).any() else 0.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades < 1.8 else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _trace(run: RunRecord) -> tuple[np.ndarray, np.ndarray] | None:
    """Steps and positive finite losses (others become gaps on the log axis), thinned; None without any."""
    steps, nll = run.curve.get("step", ()), run.curve.get("nll", ())
    x, y = np.asarray(steps, dtype=float), np.asarray(nll, dtype=float)
    size = min(len(x), len(y))
    y = np.where(np.isfinite(y[:size]) & (y[:size] > 0), y[:size], np.nan)
    if size == 0 or np.isnan(y).all():
        return None
    kept = np.unique(np.linspace(0, size - 1, min(size, CURVE_POINTS)).round().astype(int))
    return x[:size][kept], y[kept]


def _mean_trace(traces: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds on the first seed's steps, as far as every seed reaches; a gap where one is not finite."""
    end = min(x[-1] for x, _ in traces)
    grid = traces[0][0][traces[0][0] <= end]
    return grid, np.mean([np.interp(grid, x, y) for x, y in traces], axis=0)


# Figures of a cell, in their order: kind to what draws it, or None without data for it.
KINDS: dict[str, Callable[[Index, Cell, dict[str, Look]], tuple[Figure, str] | None]] = {
    "metric": _metric_figure,
    "reliability": reliability_figure,
    "maps": attention_figure,
    "curves": _curves_figure,
}
