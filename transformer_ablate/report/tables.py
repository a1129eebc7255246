"""A study's record to ``results.json``, ``table.csv`` and ``table.tex``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from transformer_ablate.metrics.catalogue import MISSING, Metric, metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord
from transformer_ablate.stats.summary import Summary, holm, paired_difference
from transformer_ablate.verdicts.claims import Judged

NO_VERDICT = "all seeds equal: the interval has no width and carries no verdict"
COLLAPSED = "°"
# What pandas leaves as it is and LaTeX's usual fonts lack, or show as something else.
LATEX_SIGNS = str.maketrans({
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}", "×": r"$\times$",
    "±": r"$\pm$", "–": "--", "°": r"$^\circ$", "−": "$-$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
})  # fmt: skip


def results(index: Index, judged: Sequence[Judged] = ()) -> dict[str, Any]:
    """The content of ``results.json``: strictly valid JSON, in which a number that does not exist is null with a note.

    ``metrics`` maps ``CELL/METRIC[/BUCKET]`` to mean, 95 % t-interval, n and the per-seed ``values`` (aligned with
    ``seeds``; null where not finite). ``failed`` lists every planned run without a result, with its status. ``base``,
    ``parameters`` and ``flops`` are those of the arm's first cell; ``cells`` has them for each.

    Args:
        judged: the study's claims with their verdicts.
    """
    record = index.record
    return {
        "study": record.study.name,
        "preset": record.preset,
        "question": record.study.question,
        "environment": {name: str(value) for name, value in record.environment.items()},
        "variants": {name: _variant(index, name) for name in index.arms()},
        "skipped": [{"name": name, "reason": reason} for name, reason in record.skipped],
        "contrasts": contrasts(index),
        "claims": [one.row() for one in judged],
    }


def _variant(index: Index, name: str) -> dict[str, Any]:
    cells = [c for c in index.cells if index.runs(c.name, name)]
    runs = [r for c in cells for r in index.runs(c.name, name)]
    metrics = {}
    for cell in cells:
        for key in index.keys(cell.name):
            values = index.values(cell.name, name, key)
            if values:
                metrics[f"{cell.name}/{key}"] = _entry(key, values, index.summary(cell.name, name, key))
    return {
        "base": cells[0].base,
        "delta": {k: _plain(v) for k, v in index.variants[name].delta.items()},
        "parameters": _whole(index.size(cells[0].name, name, "parameters")),
        "flops": _whole(index.size(cells[0].name, name, "flops")),
        "cells": {
            c.name: {
                "base": c.base,
                "parameters": _whole(index.size(c.name, name, "parameters")),
                "flops": _whole(index.size(c.name, name, "flops")),
            }
            for c in cells
        },
        "seeds": sorted({r.seed for r in runs if r.finished}),
        "failed": [_run(r, r.error or _why(r)) | {"status": r.status} for r in runs if not r.finished],
        "diverged": [_run(r, r.error or "training diverged; its values stay in the means") for r in runs if r.diverged],
        "metrics": metrics,
    }


def _run(run: RunRecord, error: str) -> dict[str, Any]:
    return {"cell": run.cell, "seed": run.seed, "error": error}


def _why(run: RunRecord) -> str:
    return {"missing": "not in the store", "interrupted": "stopped before its end"}.get(run.status, run.status)


def _entry(key: str, values: dict[int, float], summary: Summary) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "mean": summary.mean,
        "ci_low": summary.low,
        "ci_high": summary.high,
        "n": summary.n,
        "values": [_plain(v) for v in values.values()],
        "seeds": list(values),
    }
    note = _note(key, values, summary)
    return entry | ({"note": note} if note else {})


def _note(key: str, values: dict[int, float], summary: Summary) -> str:
    notes = []
    if summary.excluded:
        listed = ", ".join(f"seed {s}: {v}" for s, v in values.items() if not math.isfinite(v))
        meaning = "never reached" if metric_of(key).never_reached else "not finite"
        notes.append(f"{meaning}, left out of the mean ({listed})")
    if summary.n == 1:
        notes.append("one value: no interval")
    if summary.zero_width:
        notes.append(NO_VERDICT)
    return "; ".join(notes)


def contrasts(index: Index) -> list[dict[str, Any]]:
    """The declared contrasts ``a - b``, as declared, paired by seed.

    Holm's family is the declared primary contrasts whose two arms were planned in this preset; a failed contrast still
    counts in its size. Contrasts of arms that were not planned keep their place with n = 0 and a note.
    """
    rows = []
    for contrast in index.record.study.contrasts:
        key = Key.parse(contrast.metric)
        absent = [v for v in (contrast.a, contrast.b) if not index.runs(key.cell, v)]
        difference = paired_difference(*(index.values(key.cell, v, key.within) for v in (contrast.a, contrast.b)))
        summary = difference.summary
        row: dict[str, Any] = {
            "a": contrast.a,
            "b": contrast.b,
            "metric": contrast.metric,
            "effect": summary.mean,
            "ci_low": summary.low,
            "ci_high": summary.high,
            "p": difference.p,
            "p_holm": None,
            "n": summary.n,
            "p_sign_flip": difference.p_sign_flip,
            "primary": contrast.primary,
            "planned": not absent,
        }
        note = ""
        if absent:
            note = f"not run here: {', '.join(dict.fromkeys(absent))}"
        elif summary.n == 0:
            note = "no seed has a finite value in both arms"
        elif summary.n == 1:
            note = "one pair: no interval"
        elif summary.zero_width:
            note = "all differences equal: the interval has no width and carries no verdict"
        rows.append(row | ({"note": note} if note else {}))
    family = [row for row in rows if row["primary"] and row["planned"]]
    for row, p in zip(family, holm([row["p"] for row in family]), strict=True):
        row["p_holm"] = p
    return rows


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _plain(value: Any) -> Any:
    """A JSON value: non-finite numbers as null, whatever JSON does not know as text."""
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return str(value)


def long_table(index: Index) -> pd.DataFrame:
    """One row a variant x metric key: the content of ``table.csv``. Missing numbers are empty."""
    columns = ["variant", "cell", "metric", "bucket", "ratio", "n", "mean", "sd", "ci_low", "ci_high", "excluded",
               "seeds", "values"]  # fmt: skip
    rows = []
    for cell in index.cells:
        for key in index.keys(cell.name):
            place = Key.of(key)
            ratio = next((b.ratio for b in index.buckets(cell.name, place.metric) if b.name == place.bucket), math.nan)
            for variant in index.arms(cell.name):
                values = index.values(cell.name, variant, key)
                if not values:
                    continue
                s = index.summary(cell.name, variant, key)
                seeds, listed = " ".join(map(str, values)), " ".join(f"{v:.9g}" for v in values.values())
                measured = [s.n, s.mean, s.sd, s.low, s.high, s.excluded]
                rows.append([variant, cell.name, place.metric, place.bucket, ratio, *measured, seeds, listed])
    return pd.DataFrame(rows, columns=columns)


def mean_and_half_width(metric: Metric, summary: Summary, runs: int) -> str:
    """``0.912 ± 0.031``; the mean alone where there is no interval; a dash where there is no value.

    ``°`` marks an interval that has collapsed because all seeds agree. Where fewer than the ``runs`` finished seeds
    are in the mean, their number follows.
    """
    if summary.mean is None:
        return MISSING
    text = metric.format(summary.mean)
    if summary.half_width is not None:
        text += f" ± {metric.format(summary.half_width)}{COLLAPSED if summary.zero_width else ''}"
    return text if summary.n == runs else f"{text} (n = {summary.n})"


def latex(index: Index) -> str:
    """The content of ``table.tex``: one booktabs table a cell, rows = variants, columns = test buckets."""
    parts = [
        "% Needs \\usepackage{booktabs}. Mean ± half-width of the 95 % t-interval over seeds; n: finished seeds.\n"
        "% A small circle: all seeds agree, the interval has no width and carries no verdict.\n"
    ]
    for cell in index.cells:
        metric, buckets, rows = metric_of(cell.metric), index.buckets(cell.name, cell.metric), []
        for variant in index.arms(cell.name):
            n = len(index.finished(cell.name, variant))
            summaries = [index.summary(cell.name, variant, b.key(cell.metric)) for b in buckets]
            rows.append([variant, *(mean_and_half_width(metric, s, n) for s in summaries), str(n)])
        if rows:
            header = ["Variant", *(b.label or metric.label for b in buckets), "n"]
            parts.append(_tabular(f"{cell.title}: {metric.label} {metric.arrow}".strip(), header, rows))
    return "\n".join(parts)


def _tabular(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table by pandas, which escapes what has a meaning in LaTeX; the signs that its fonts lack are set here."""
    lines = [[" ".join(text.split()) for text in row] for row in rows]
    style = pd.DataFrame(lines, columns=list(header)).style.hide(axis="index").format(escape="latex")
    style = style.format_index(escape="latex", axis="columns")
    text = style.to_latex(hrules=True, column_format="l" + "r" * (len(header) - 1))
    return f"% {' '.join(caption.split())}\n{text}".translate(LATEX_SIGNS)
