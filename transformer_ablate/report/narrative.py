"""Warnings and plain sentences, all computed from the record. They describe; verdicts on claims are not made here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Bucket, Index
from transformer_ablate.record.records import RunRecord
from transformer_ablate.report.blocks import Caution
from transformer_ablate.report.tables import mean_and_half_width
from transformer_ablate.report.views import contrast_metric, p_text, signed
from transformer_ablate.study.declarations import Cell
from transformer_ablate.study.rules import KEPT
from transformer_ablate.verdicts.gating import GATE, PASSING_SHARE, gates

CLEAREST = 3


def tally(index: Index) -> dict[str, int]:
    """Planned runs by outcome. ``diverged`` and ``too_short`` to judge are among ``finished`` too."""
    runs = index.record.runs
    status = Counter(r.status for r in runs)
    names = ("finished", "failed", "interrupted", "missing")
    return {
        "planned": len(runs),
        **{name: status[name] for name in names},
        "diverged": sum(r.diverged for r in runs),
        "too_short": sum(r.too_short for r in runs),
        "seeds": len({r.seed for r in runs}),
    }


def warnings(index: Index) -> list[Caution]:
    """Everything about the runs that a reader must know before believing a number."""
    runs, found = index.record.runs, []
    unfinished = [r for r in runs if not r.finished]
    if unfinished:
        items = [f"{_name(r)}: {r.status}{f' – {r.error}' if r.error else ''}" for r in unfinished]
        text = "They are counted and listed, never replaced; means are over the seeds that finished."
        found.append(Caution(f"{len(unfinished)} of {len(runs)} runs without a result", text, items))
    diverged = [_name(r) for r in runs if r.diverged]
    if diverged:
        text = "Their values stay in the means and intervals, unless they are not finite."
        found.append(Caution(f"Diverged runs: {len(diverged)}", text, diverged))
    short = Counter((r.cell, r.updates) for r in runs if r.too_short)
    if short:
        text = f"Fewer than {LEAST_UPDATES} updates cannot tell whether training fails, nor what an arm can learn: "
        text += "runs as short as those of smoke show that the machinery works, and nothing else."
        items = [f"{cell}: {updates} updates (runs: {count})" for (cell, updates), count in short.items()]
        found.append(Caution(f"Runs too short to judge: {short.total()}", text, items))
    if odd := _not_finite(index):
        text = "They are left out of means and intervals and counted in each table's tips."
        found.append(Caution("Values that are not finite", text, odd))
    if uneven := _unequal(index):
        text = "Means of different arms then rest on different seeds; the contrasts use only seeds that both arms have."
        found.append(Caution("Unequal numbers of finished seeds", text, uneven))
    if several := _sources(index):
        text = "The code that can change a result is not the same for all runs and now; --fresh trains them again."
        found.append(Caution("Runs from different sources", text, several))
    if unlearned := _unlearned(index):
        text = f"Exact match in distribution is below {GATE:g} in more than {1 - PASSING_SHARE:.0%} of the seeds: "
        text += "what these arms do at longer lengths says little about length."
        found.append(Caution("Arms that did not pass the in-distribution gate", text, unlearned))
    if len({r.seed for r in runs}) == 1:
        found.append(Caution("One seed", "No interval and no test can be computed: values are single observations."))
    return found


def _name(run: RunRecord) -> str:
    return f"{run.variant} · {run.cell} · seed {run.seed}"


def _sources(index: Index) -> list[str]:
    """Runs by the code that made them, with the seeds, and the arms where others have runs of another code there.

    Nothing where all are of the code as it is now. Contrasts are paired by seed: what matters is whether the arms of
    one seed share their code.
    """
    runs = [run for run in index.record.runs if run.finished and run.made_by.get("source_hash")]
    present = index.record.environment.get("source_hash")
    by_source: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_source.setdefault(run.made_by["source_hash"], []).append(run)
    if not by_source or set(by_source) == {present} or (present is None and len(by_source) == 1):
        return []
    items = []
    for source, those in sorted(by_source.items(), key=lambda pair: -len(pair[1])):
        seeds = sorted({run.seed for run in those})
        arms = {run.variant for run in those}
        elsewhere = {run.variant for run in runs if run.seed in seeds and run.made_by["source_hash"] != source}
        whose = "" if not elsewhere else ", of " + ", ".join(arm for arm in index.arms() if arm in arms)
        items.append(f"source {source}: {len(those)} runs, seeds {', '.join(map(str, seeds))}{whose}")
    return items + ([f"source {present}: the code as it is now"] if present else [])


def _not_finite(index: Index) -> list[str]:
    items = []
    for cell in index.cells:
        for arm in index.arms(cell.name):
            for run in index.finished(cell.name, arm):
                odd = [k for k, v in run.metrics.items() if not math.isfinite(v)]
                if names := [k for k in odd if not metric_of(k).never_reached]:
                    items.append(f"{_name(run)}: {', '.join(names)}")
    return items


def _unequal(index: Index) -> list[str]:
    items = []
    for cell in index.cells:
        counts = {arm: len(index.finished(cell.name, arm)) for arm in index.arms(cell.name)}
        if len(set(counts.values())) > 1:
            items.append(f"{cell.name}: " + ", ".join(f"{arm} {n}" for arm, n in counts.items()))
    return items


def _unlearned(index: Index) -> list[str]:
    return [
        f"{gate.variant} · {cell.name}: {gate.state} ({gate.k}/{gate.n} seeds)"
        for cell in index.cells
        for gate in gates(index, cell)
        if gate.state not in ("learned", "no result")
    ]


def sentences(index: Index, contrasts: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """For each cell its title and a few sentences; a cell without any finished run says so."""
    told = []
    for cell in index.cells:
        if not index.arms(cell.name):
            continue
        bucket = index.in_distribution(cell.name, cell.metric)
        lines = [] if bucket is None else [*_best(index, cell, bucket), *_lengths(index, cell, bucket)]
        own = [c for c in contrasts if Key.parse(c["metric"]).cell == cell.name]
        told.append((cell.title, [*lines, *_clearest(index, cell, own)] or ["No finished run has a value to report."]))
    return told


def _best(index: Index, cell: Cell, bucket: Bucket) -> list[str]:
    metric, key = metric_of(cell.metric), bucket.key(cell.metric)
    found = [(a, index.summary(cell.name, a, key)) for a in index.arms(cell.name)]
    means = [(a, s, s.mean) for a, s in found if s.mean is not None]
    if not means:
        return []
    sign = -1 if metric.better == "lower" else 1
    means.sort(key=lambda m: -sign * m[2])
    several = len(index.buckets(cell.name, cell.metric)) > 1
    where = "In distribution" if several else "On the test set" if bucket.name else "Overall"
    if cell.axis:
        where = f"At the largest number ({cell.axis}: {bucket.name})"
    extreme = "lowest" if sign < 0 else "highest"
    top_text = metric.format(means[0][2])
    ties = [a for a, _, mean in means if metric.format(mean) == top_text]
    _, top, _ = means[0]
    if len(means) == 1:
        shown = mean_and_half_width(metric, top, top.n)
        return [f"{where}, the mean {metric.label.lower()} of {ties[0]} is {shown} (n = {top.n})."]
    if len(ties) > 1:
        count = f"{len(ties)} of {len(means)} arms"
        first = f"{where}, {count} share the {extreme} mean {metric.label.lower()}, {top_text}: {_list(ties)}."
    else:
        shown = mean_and_half_width(metric, top, top.n)
        first = f"{where}, the {extreme} mean {metric.label.lower()} is that of {ties[0]}: {shown} (n = {top.n})."
        overlap = [
            a for a, s, _ in means[1:]
            if None not in (s.low, s.high, top.low, top.high) and s.low <= top.high and top.low <= s.high  # type: ignore[operator]
        ]  # fmt: skip
        if overlap:
            some = (
                f"all {len(overlap)}" if len(overlap) == len(means) - 1 else f"{len(overlap)} of the {len(means) - 1}"
            )
            they = f"The intervals of {some} other arms overlap with it."
            first += " " + ("The other arm's interval overlaps with it." if len(means) == 2 else they)
    lines = [first]
    if len(means) > max(len(ties), 2):
        worst, _, mean = means[-1]
        lines.append(f"The {'highest' if sign < 0 else 'lowest'} mean there is that of {worst}: {metric.format(mean)}.")
    return lines


def _lengths(index: Index, cell: Cell, bucket: Bucket) -> list[str]:
    buckets = [b for b in index.buckets(cell.name, cell.metric) if math.isfinite(b.ratio)]
    if not any(b.ratio > 1 for b in buckets):
        return []
    if cell.metric != "em":
        return _growth(index, cell, bucket, buckets[-1])
    failed = {g.variant for g in gates(index, cell) if g.state not in ("learned", "no result")}
    start = bucket.key("em")
    failed |= {arm for arm in index.arms(cell.name) if not index.summary(cell.name, arm, start).mean}
    reached: dict[str, list[str]] = {}
    for arm in index.arms(cell.name):
        if arm not in failed and index.values(cell.name, arm, bucket.key("em")):
            reached.setdefault(reach(index, cell, arm), []).append(arm)
    lines = []
    for label in [*(b.label for b in reversed(buckets)), ""]:
        if label in reached:
            where = f"up to {label}" if label and label != bucket.label else "at no length beyond the training lengths"
            lines.append(
                f"At least {KEPT:g} of the in-distribution exact match is kept {where} by {_list(reached[label])}."
            )
    if lines:
        lines[0] += f" (Kept: in every test set up to there, by at least {PASSING_SHARE:.0%} of the seeds.)"
    if failed:
        lines.append(f"Not judged by length, as it was not learnt well enough within N: {_list(sorted(failed))}.")
    return lines


def reach(index: Index, cell: Cell, arm: str) -> str:
    """Label of the longest test set up to which at least 80 % of the seeds keep .9 of their own in-distribution EM.

    Empty where not even the in-distribution set qualifies, as for a seed whose EM is 0 or not finite.
    """
    start = index.in_distribution(cell.name, "em")
    if start is None:
        return ""
    base = index.values(cell.name, arm, start.key("em"))
    alive = {s for s, v in base.items() if math.isfinite(v) and v > 0}
    label = ""
    for bucket in index.buckets(cell.name, "em"):
        values = index.values(cell.name, arm, bucket.key("em"))
        alive = {s for s in alive if values.get(s, -math.inf) >= KEPT * base[s]}
        if not base or len(alive) < PASSING_SHARE * len(base):
            break
        label = bucket.label
    return label


def _growth(index: Index, cell: Cell, start: Bucket, end: Bucket) -> list[str]:
    metric, changes = metric_of(cell.metric), []
    for arm in index.arms(cell.name):
        a = index.summary(cell.name, arm, start.key(cell.metric)).mean
        b = index.summary(cell.name, arm, end.key(cell.metric)).mean
        if a is not None and b is not None:
            changes.append((b, arm, f"{metric.format(b)}, from {metric.format(a)} in distribution"))
    if not changes:
        return []
    changes.sort(reverse=metric.better == "higher")
    best, others = changes[0], changes[1:]
    told = f"At {end.label} ({end.ratio:.3g} × the longest training length), mean {metric.label.lower()} is best for "
    told += f"{best[1]}: {best[2]}"
    return [told + (f"; worst for {others[-1][1]}: {others[-1][2]}." if others else ".")]


def _clearest(index: Index, cell: Cell, contrasts: Iterable[dict[str, Any]]) -> list[str]:
    """The clearest differences in the primary metric: other metrics have other units and cannot be ranked with it."""
    failed = {g.variant for g in gates(index, cell) if g.state not in ("learned", "no result")}
    own = [
        c
        for c in contrasts
        if c["effect"] is not None and Key.parse(c["metric"]).metric == cell.metric and not {c["a"], c["b"]} & failed
    ]
    lines, metric = [], metric_of(cell.metric)
    for c in sorted(own, key=lambda c: (1.0 if c["p_holm"] is None else c["p_holm"], -abs(c["effect"])))[:CLEAREST]:
        interval = "no interval, one pair of seeds"
        if c["ci_low"] is not None:
            interval = f"95 % interval {signed(metric.format(c['ci_low']))} to {signed(metric.format(c['ci_high']))}"
            interval += ", all pairs equal" if c["ci_low"] == c["ci_high"] else ""
            interval += f", p {p_text(c['p_holm'])} after Holm" if c["p_holm"] is not None else ""
        measure = contrast_metric(index, c["metric"]).partition(": ")[2]
        effect = signed(metric.format(c["effect"]))
        lines.append(f"{measure}, {c['a']} minus {c['b']}: {effect} ({interval}, n = {c['n']}).")
    return [f"Clearest declared contrasts: {lines[0]}", *lines[1:]] if lines else []


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
