"""What the page says of tasks on text: scores beside two systems that have learnt nothing, outputs, the corpus.

Values are means over seeds. The intervals in brackets are of one seed each, over resampled test examples: they say what
another test set could give, not what another seed could.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_ablate.metrics.catalogue import MISSING, metric_of
from transformer_ablate.record.index import Index
from transformer_ablate.report.blocks import Entry, Table
from transformer_ablate.report.tables import mean_and_half_width
from transformer_ablate.report.views import signed
from transformer_ablate.stats.summary import summarise
from transformer_ablate.study.declarations import Cell

# What rows of the model itself are called; every other system is a baseline.
MODEL = "model"
SCORES = ("bleu", "chrf", "ter")
EXAMPLES_SHOWN = 10

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TextScores:
    """Scores of a cell on text.

    Attributes:
        first: table of the test set in distribution.
        others: one table for each longer test set.
        signatures: ``(score, signature)``, in full, of all that stands in the tables.
    """

    first: Table
    others: Sequence[Table]
    signatures: Sequence[tuple[str, str]]


def is_text(index: Index, cell: Cell) -> bool:
    """Whether a finished run of the cell was scored as text."""
    return any(run.text_scores for arm in index.arms(cell.name) for run in index.finished(cell.name, arm))


def _rows(index: Index, cell: Cell, arm: str, bucket: str, system: str) -> dict[int, Row]:
    """Seed to its row of one test set and system."""
    runs = index.finished(cell.name, arm)
    return {r.seed: row for r in runs for row in r.text_scores if (row["bucket"], row["system"]) == (bucket, system)}


def _distinct(index: Index, cell: Cell, field: str) -> list[str]:
    """Values of a field of the cell's rows, in the order in which they are met with."""
    runs = [run for arm in index.arms(cell.name) for run in index.finished(cell.name, arm)]
    return list(dict.fromkeys(row[field] for run in runs for row in run.text_scores))


def _baselines(index: Index, cell: Cell) -> list[str]:
    return [system for system in _distinct(index, cell, "system") if system != MODEL]


def scores(index: Index, cell: Cell) -> TextScores | None:
    """Rows: arms, then the baselines; columns: scores, and what an arm gains over each baseline; None without text."""
    if not is_text(index, cell):
        return None
    first, *others = [_table(index, cell, bucket) for bucket in _distinct(index, cell, "bucket")]
    return TextScores(first, others, _signatures(index, cell))


def _table(index: Index, cell: Cell, bucket: str) -> Table:
    metrics, baselines = [metric_of(name) for name in SCORES], _baselines(index, cell)
    header = [Entry("System"), *(Entry(f"{m.label} {m.arrow}", m.definition) for m in metrics)]
    header += [Entry("chrF's interval"), *(Entry(f"Gain in chrF over: {system}") for system in baselines), Entry("n")]
    rows = []
    for arm in index.arms(cell.name):
        own = _rows(index, cell, arm, bucket, MODEL)
        gains = [_gain(_rows(index, cell, arm, bucket, system)) for system in baselines]
        rows.append([Entry(arm, index.variants[arm].why), *_scored(own), *gains, Entry(str(len(own)))])
    for system in baselines:
        found = {arm: _rows(index, cell, arm, bucket, system) for arm in index.arms(cell.name)}
        by_arm = {arm: _scored(own) for arm, own in found.items() if own}
        # Arms on the same data share their baselines; where data differ, each arm has its own.
        shared = len({tuple(entry.text for entry in entries) for entries in by_arm.values()}) == 1
        for arm, entries in list(by_arm.items())[: 1 if shared else None]:
            name = system if shared else f"{system} ({arm})"
            rows.append([Entry(name), *entries, *[Entry("")] * (len(baselines) + 1)])
    label = next((b.label for b in index.buckets(cell.name, "chrf") if b.name == bucket), "") or bucket
    caption = f"Outputs as text, test set {label}: mean ± half of the 95 % interval over seeds; in brackets each seed's"
    return Table(f"{caption} own 95 % interval over resampled examples", header, rows)


def _scored(rows: Mapping[int, Row]) -> list[Entry]:
    values = [{seed: row[name] for seed, row in rows.items() if name in row} for name in SCORES]
    entries = [_mean(name, of_seed, len(rows)) for name, of_seed in zip(SCORES, values, strict=True)]
    form = metric_of("chrf").format
    brackets = [f"[{form(row['chrf_low'])}, {form(row['chrf_high'])}]" for row in rows.values()]
    # A system that does not depend on the seed has one interval.
    return [*entries, Entry(" ".join(dict.fromkeys(brackets)) or MISSING)]


def _mean(name: str, values: Mapping[int, float], runs: int) -> Entry:
    metric = metric_of(name)
    if len(set(values.values())) == 1:  # one seed, or a system that does not depend on it
        return Entry(metric.format(next(iter(values.values()))))
    listed = "; ".join(f"seed {seed}: {metric.format(value)}" for seed, value in values.items())
    return Entry(mean_and_half_width(metric, summarise(values.values()), runs), listed)


def _gain(rows: Mapping[int, Row]) -> Entry:
    """Mean gain over a baseline, and each seed's interval."""
    if not rows:
        return Entry(MISSING)
    mean = summarise([row["model_gain"] for row in rows.values()]).mean
    return Entry(f"{_signed(mean)} {' '.join(_interval(row) for row in rows.values())}")


def _signed(value: float | None) -> str:
    return MISSING if value is None else signed(metric_of("chrf").format(value))


def _interval(row: Row) -> str:
    return f"[{_signed(row['gain_low'])}, {_signed(row['gain_high'])}]"


def _signatures(index: Index, cell: Cell) -> list[tuple[str, str]]:
    found = {
        (metric_of(name).label, str(row[f"{name}_signature"])): None  # each once, in this order
        for name in SCORES
        for arm in index.arms(cell.name)
        for run in index.finished(cell.name, arm)
        for row in run.text_scores
        if f"{name}_signature" in row
    }
    return list(found)


def sentences(index: Index, cell: Cell) -> list[str]:
    """Whether the arms beat each baseline on chrF, in distribution: the interval of the gain must lie above zero."""
    lines = []
    for bucket in _distinct(index, cell, "bucket")[:1]:
        for system in _baselines(index, cell):
            rows = {arm: _rows(index, cell, arm, bucket, system) for arm in index.arms(cell.name)}
            lines += _against(system, {arm: found for arm, found in rows.items() if found})
    return lines


def _against(system: str, rows: Mapping[str, Mapping[int, Row]]) -> list[str]:
    won = {arm: sum(row["gain_low"] > 0 for row in found.values()) for arm, found in rows.items()}
    always = [arm for arm, found in rows.items() if won[arm] == len(found)]
    lines = []
    if len(always) == 1:
        gains = "; ".join(f"{_signed(r['model_gain'])} {_interval(r)}" for r in rows[always[0]].values())
        seeds = "its one seed" if won[always[0]] == 1 else f"all {won[always[0]]} seeds"
        lines.append(f'{always[0]} beats the baseline "{system}" on chrF in {seeds}: gain {gains}.')
    elif always:
        _, arm, seed = min((row["model_gain"], arm, seed) for arm in always for seed, row in rows[arm].items())
        row = rows[arm][seed]
        count = f"All {len(rows)} arms" if len(always) == len(rows) else f"{len(always)} of {len(rows)} arms"
        smallest = f"smallest gain {_signed(row['model_gain'])} {_interval(row)} ({arm}, seed {seed})"
        lines.append(f'{count} beat the baseline "{system}" on chrF in every seed: {smallest}.')
    if lost := [f"{arm} ({won[arm]} of {len(found)})" for arm, found in rows.items() if arm not in always]:
        seeds = ", ".join(lost)
        lines.append(f'Not shown in every seed to beat the baseline "{system}" on chrF (seeds that do): {seeds}.')
    return lines


def examples(index: Index, cell: Cell) -> list[tuple[str, Table]]:
    """For each arm its name and ten examples in distribution, drawn at random from all its seeds; none without text."""
    tables, wanted = [], _distinct(index, cell, "bucket")[:1]
    for arm in index.arms(cell.name):
        runs = index.finished(cell.name, arm)
        pool = [(r.seed, example) for r in runs for example in r.examples if example["bucket"] in wanted]
        random.Random(f"{index.record.study.name}/{cell.name}/{arm}").shuffle(pool)
        # Each source once, even if several seeds were asked for it.
        once = {example["source"]: (seed, example) for seed, example in reversed(pool)}
        rows = []
        for seed, example in list(once.values())[:EXAMPLES_SHOWN]:
            texts = [str(example[k]) for k in ("source", "reference", "output")]
            mark = "=" if example.get("correct", texts[1] == texts[2]) else "≠"
            rows.append([Entry(text) for text in (str(seed), *texts, mark)])
        if rows:
            header = [Entry(h) for h in ("Seed", "Source", "Reference", "Output", "")]
            caption = f"{arm}: {len(rows)} examples drawn at random, good and bad alike"
            tables.append((arm, Table(caption, header, rows, "text")))
    return tables


def data_notes(index: Index) -> list[tuple[str, Sequence[str]]]:
    """What is known about the data: the cells that share them, with the arms where these differ, and the notes."""
    places: dict[tuple[str, ...], list[str]] = {}
    for cell in index.cells:
        by_arm = {}
        for arm in index.arms(cell.name):
            notes = next((tuple(run.data_notes) for run in index.finished(cell.name, arm)), ())
            if notes:
                by_arm[arm] = notes
        shared = len(set(by_arm.values())) == 1
        for arm, notes in list(by_arm.items())[: 1 if shared else None]:
            places.setdefault(notes, []).append(cell.title if shared else f"{cell.title}, {arm}")
    return [("; ".join(where), notes) for notes, where in places.items()]
