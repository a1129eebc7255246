"""Tables of the page, as data: HTML and Markdown print the same ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from transformer_ablate.metrics.catalogue import MISSING, metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Bucket, Index
from transformer_ablate.report.blocks import Entry, Table, table
from transformer_ablate.report.tables import mean_and_half_width
from transformer_ablate.stats.summary import clopper_pearson, summarise
from transformer_ablate.study.declarations import Cell
from transformer_ablate.verdicts.gating import GATE, gates

EXAMPLES_EACH = 2


def entry(index: Index, cell: str, variant: str, key: str) -> Entry:
    """Mean ± half-width over seeds; every value in the tip; ``°`` where the interval has collapsed."""
    metric, values, summary = metric_of(key), index.values(cell, variant, key), index.summary(cell, variant, key)
    runs = len(index.finished(cell, variant))
    text = mean_and_half_width(metric, summary, runs)
    if summary.mean is None and runs and metric.never_reached:
        text = "never"
    listed = [f"seed {s}: {metric.format(v) if math.isfinite(v) else 'not finite'}" for s, v in values.items()]
    return Entry(text, "; ".join([*listed, f"n = {summary.n}"]) if values else "no value")


def primary_table(index: Index, cell: Cell) -> Table:
    """Rows: variants; columns: parameters, FLOPs, the primary metric in each test set, finished seeds."""
    metric, buckets = metric_of(cell.metric), index.buckets(cell.name, cell.metric)
    columns = [Entry(b.heading or metric.label, _about(b)) for b in buckets]
    rows = []
    for arm in index.arms(cell.name):
        sizes = [metric_of(k).format(index.size(cell.name, arm, k)) for k in ("parameters", "flops")]
        n = Entry(str(len(index.finished(cell.name, arm))), f"of {len(index.runs(cell.name, arm))} planned seeds")
        values = [entry(index, cell.name, arm, b.key(cell.metric)) for b in buckets]
        rows.append([Entry(arm, index.variants[arm].why), *map(Entry, sizes), *values, n])
    caption = f"{metric.label} {metric.arrow}, mean ± half of the 95 % interval over seeds"
    return Table(caption, [*map(Entry, ("Variant", "Parameters", "FLOPs")), *columns, Entry("n")], rows)


def _about(bucket: Bucket) -> str:
    parts = [f"lengths {bucket.lengths}"] if bucket.lengths else []
    parts += [f"up to {bucket.ratio:.3g} × the longest training length"] if math.isfinite(bucket.ratio) else []
    return "; ".join([*parts, f"{bucket.examples:,} examples"] if bucket.examples else parts)


def in_distribution_table(index: Index, cell: Cell) -> Table | None:
    """Every quality measure in distribution, and those that have no test set."""
    keys = []
    for name in index.metric_names(cell.name):
        bucket = index.in_distribution(cell.name, name)
        if metric_of(name).group == "quality" and bucket is not None:
            keys.append(bucket.key(name))
    bucket = index.in_distribution(cell.name, cell.metric)
    named = bucket and bucket.label and not cell.axis  # else it is no test set, but a layer or a number of tokens
    where = f", test set {bucket.label}" if bucket and named else ""
    return _by_key(index, cell, keys, f"All quality measures in distribution{where}")


def by_length_tables(index: Index, cell: Cell) -> list[Table]:
    """One table for each secondary quality measure that has several test sets."""
    tables = []
    for name in index.metric_names(cell.name):
        metric, buckets = metric_of(name), index.buckets(cell.name, name)
        if metric.group == "quality" and name != cell.metric and len(buckets) > 1:
            arms = index.arms(cell.name)
            rows = [[Entry(a), *(entry(index, cell.name, a, b.key(name)) for b in buckets)] for a in arms]
            header = [Entry("Variant"), *(Entry(b.label, _about(b)) for b in buckets)]
            tables.append(Table(f"{metric.label} {metric.arrow}".strip(), header, rows))
    return tables


def grouped_table(index: Index, cell: Cell, groups: Sequence[str], caption: str) -> Table | None:
    """All metrics of some catalogue groups; None where no run has any."""
    keys = [k for k in index.keys(cell.name) if metric_of(k).group in groups]
    return _by_key(index, cell, keys, caption)


def group_tables(index: Index, cell: Cell, group: str, caption: str) -> list[Table]:
    """The metrics of one catalogue group: one table of those without buckets, one for each that has several."""
    keys = [k for k in index.keys(cell.name) if metric_of(k).group == group]
    names = list(dict.fromkeys(Key.of(k).metric for k in keys))
    single = [k for k in keys if len(index.buckets(cell.name, Key.of(k).metric)) == 1]
    tables = [whole] if (whole := _by_key(index, cell, single, caption)) else []
    for name in names:
        metric, buckets = metric_of(name), index.buckets(cell.name, name)
        if len(buckets) > 1:
            header = [Entry("Variant"), *(Entry(b.name) for b in buckets)]
            arms = _with_values(index, cell, [b.key(name) for b in buckets])
            rows = [[Entry(a), *(entry(index, cell.name, a, b.key(name)) for b in buckets)] for a in arms]
            by = metric.counts or cell.axis or "test set"
            tables.append(Table(f"{metric.label} {metric.arrow} by {by}", header, rows))
    return tables


def _with_values(index: Index, cell: Cell, keys: Sequence[str]) -> list[str]:
    """The arms of which any of these is known: some measures are made of the arms alone that a claim is about."""
    return [arm for arm in index.arms(cell.name) if any(index.values(cell.name, arm, key) for key in keys)]


def _by_key(index: Index, cell: Cell, keys: Sequence[str], caption: str) -> Table | None:
    if not keys:
        return None
    header = [Entry("Variant")]
    for key in keys:
        metric, bucket = metric_of(key), Key.of(key).bucket
        text = f"{metric.label} {metric.arrow}".strip()
        text += f" [{bucket}]" if bucket and metric.group == "further" else ""
        text += " (shared machine)" if metric.shared_machine else ""
        header.append(Entry(text, metric.definition))
    arms = _with_values(index, cell, keys)
    return Table(caption, header, [[Entry(arm), *(entry(index, cell.name, arm, k) for k in keys)] for arm in arms])


def gate_table(index: Index, cell: Cell) -> Table | None:
    """The gates with their Clopper–Pearson intervals."""
    rows = []
    for gate in gates(index, cell):
        low, high = clopper_pearson(gate.k, gate.n)
        bounds = f"[{low:.3f}, {high:.3f}]" if gate.n else MISSING
        rows.append([gate.variant, f"{gate.k}/{gate.n}", bounds, gate.state])
    caption = f"In-distribution gate: seeds with exact match ≥ {GATE:g} at or below the longest training length"
    return table(caption, ["Variant", "Seeds", "95 % interval", "State"], rows) if rows else None


def gated_table(index: Index, cell: Cell) -> Table | None:
    """The primary metric over those seeds alone that pass the gate; None for cells without one."""
    start = index.in_distribution(cell.name, cell.metric)
    if cell.metric != "em" or start is None:
        return None
    metric, buckets = metric_of("em"), index.buckets(cell.name, "em")
    rows = []
    for arm in index.arms(cell.name):
        passing = {s for s, v in index.values(cell.name, arm, start.key("em")).items() if v >= GATE}
        row = [arm]
        for bucket in buckets:
            values = [v for s, v in index.values(cell.name, arm, bucket.key("em")).items() if s in passing]
            row.append(mean_and_half_width(metric, summarise(values), len(passing)) if values else MISSING)
        rows.append([*row, str(len(passing))])
    caption = f"Exact match over the seeds that pass the gate (in-distribution exact match ≥ {GATE:g})"
    return table(caption, ["Variant", *(b.label for b in buckets), "n"], rows)


def contrast_metric(index: Index, key: str) -> str:
    """``CELL/METRIC[/BUCKET]`` for readers: ``Copying: exact match at 1.25×``."""
    place = Key.parse(key)
    declared = index.cell(place.cell)
    buckets = index.buckets(place.cell, place.metric) if declared else ()
    known = next((b.label for b in buckets if b.name == place.bucket), place.bucket)
    where = f" at {known}" if place.bucket else ""
    return f"{declared.title if declared else place.cell}: {metric_of(place.metric).label}{where}"


def contrasts_table(index: Index, contrasts: Sequence[dict[str, Any]]) -> Table | None:
    """The contrasts of ``tables.contrasts`` whose arms were planned here, in order of declaration."""
    rows = []
    for row in contrasts:
        if row["planned"]:
            metric = metric_of(Key.parse(row["metric"]).metric)
            effect = MISSING if row["effect"] is None else signed(metric.format(row["effect"]))
            interval = MISSING
            if row["ci_low"] is not None:
                interval = f"[{signed(metric.format(row['ci_low']))}, {signed(metric.format(row['ci_high']))}]"
            p_values = [p_text(row[k]) for k in ("p", "p_holm", "p_sign_flip")]
            family = "primary" if row["primary"] else "secondary"
            note = row.get("note", "")
            label = contrast_metric(index, row["metric"])
            rows.append([f"{row['a']} − {row['b']}", label, effect, interval, *p_values, str(row["n"]), family, note])
    header = ["Contrast", "Measure", "Effect", "95 % interval", "p", "Holm p", "sign-flip p", "n", "Family", "Note"]
    return table("Declared contrasts a − b, paired by seed", header, rows) if rows else None


def signed(text: str) -> str:
    """A formatted number with its sign, minus as a minus."""
    return f"−{text[1:]}" if text.startswith("-") else f"+{text}"


def p_text(p: float | None) -> str:
    """A p value to print."""
    return MISSING if p is None else "< .0001" if p < 1e-4 else f"{p:.4f}".lstrip("0") if p < 1 else "1"


def examples_table(index: Index, cell: Cell) -> Table | None:
    """A few examples of each arm, drawn at random from all its seeds; the same ones for the same record."""
    rows = []
    for arm in index.arms(cell.name):
        pool = [(run.seed, example) for run in index.finished(cell.name, arm) for example in run.examples]
        chance = random.Random(f"{index.record.study.name}/{cell.name}/{arm}")
        for seed, example in chance.sample(pool, min(EXAMPLES_EACH, len(pool))):
            texts = [str(example.get(k, "")) for k in ("bucket", "source", "reference", "output")]
            rows.append([arm, str(seed), *texts, "=" if example.get("correct", texts[2] == texts[3]) else "≠"])
    header = ["Variant", "Seed", "Test set", "Source", "Reference", "Output", ""]
    return table("Examples drawn at random, good and bad alike", header, rows, "text") if rows else None


def recipe_tables(index: Index) -> tuple[Table | None, Table | None]:
    """The base recipes in full, and what distinguishes each cell and each arm from its base."""
    recipes = index.record.recipes
    fields = list(dict.fromkeys(f for recipe in recipes.values() for f in recipe))
    rows = [[f, *(str(recipe.get(f, MISSING)) for recipe in recipes.values())] for f in fields]
    bases = table("Base recipes, as resolved for this preset", ["Field", *recipes], rows, "text") if rows else None
    deltas = [["cell", c.name, _delta(c.fields(index.record.preset)), f"base {c.base}"] for c in index.cells]
    deltas += [["arm", v, _delta(index.variants[v].delta), index.variants[v].why] for v in index.arms()]
    header = ["", "Name", "Differs from the base in", ""]
    return bases, table("What differs", header, deltas, "text") if deltas else None


def _delta(delta: Any) -> str:
    return ", ".join(f"{field} = {value}" for field, value in delta.items()) or "nothing"
