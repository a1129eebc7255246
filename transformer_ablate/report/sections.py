"""The sections of a study's page, in order. Each is a function of what is told; a further one is one more entry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_ablate.metrics.catalogue import metric_of, titled_groups
from transformer_ablate.record.index import Index
from transformer_ablate.report import claim_words, narrative, study_tables, text_tables, views
from transformer_ablate.report.blocks import Block, Bullets, Command, Details, Link, Picture, Section, Table, Text
from transformer_ablate.report.figures import Drawing
from transformer_ablate.study.declarations import Cell
from transformer_ablate.verdicts.claims import Judged
from transformer_ablate.verdicts.recommended import Recommended

RECOMMENDED = "recommended.yaml"
VERDICTS_EXPLAINED = (
    "Supported and refuted: at least 8 seeds, and the interval lies beyond the margin, on the claimed or on the other "
    "side (Holm-corrected where a claim makes several comparisons). Indicated and counter-indicated: at least 3 seeds, "
    "every one of them on that side, and a mean at least three margins away; the interval may still reach across, so "
    "this is a hint and no result. Inconclusive: neither. Not run: its arms or cells are not in this preset, or it "
    "needs a GPU. What theory fixes is decided by computation, and a count without chance (bytes) as it is, at any "
    "number of seeds."
)
INTERVALS_EXPLAINED = (
    "Values are means over seeds ± half of the two-sided 95 % Student t-interval of the mean (n − 1 degrees of "
    "freedom); for a share close to 0 or 1 this interval can reach past them, and it collapses where all seeds agree: "
    "such an interval carries no verdict. Counts of seeds have exact Clopper–Pearson intervals. Contrasts are paired "
    "by seed: effect = mean of a − b over the seeds that both arms have, with its t-interval, the p of the paired "
    "t-test and the exact sign-flip p, which cannot be less than 2 / 2ⁿ: .25 with three seeds, .008 with eight. Holm's "
    "correction covers the declared primary contrasts whose arms were planned in this preset. n = 1 gives a value and "
    "no interval. Values that are not finite are left out and counted. Diverged runs stay in; failed ones have no "
    "value. The last checkpoint of a fixed budget is measured; nothing is selected on longer lengths."
)
COLLAPSED_EXPLAINED = (
    "° every seed gave the same value: the interval has no width and carries no statistical verdict. table.csv has "
    "every seed's value; on the page a pointer held over a number shows them."
)


@dataclass(frozen=True)
class Told:
    """What a page is made from.

    Attributes:
        index: of the study's record.
        results: the content of ``results.json``.
        judged: the study's claims with their verdicts.
        drawings: the study's figures.
        advice: the recommended recipe; None for none.
    """

    index: Index
    results: Mapping[str, Any]
    judged: Sequence[Judged] = ()
    drawings: Sequence[Drawing] = ()
    advice: Recommended | None = None


def sections(told: Told) -> list[Section]:
    """The page of a study, from its title on; sections without anything to say are left out."""
    return [section for build in SECTIONS for section in build(told)]


def head(told: Told) -> Iterable[Section]:
    """Title, question, counts of runs and what must be known before a number is believed."""
    record, tally = told.index.record, narrative.tally(told.index)
    seeds = f"{tally['seeds']} seed{'' if tally['seeds'] == 1 else 's'}"
    counts = [f"{tally[name]} {name}" for name in ("failed", "interrupted", "diverged", "missing")]
    counts += [f"{tally['too_short']} too short to judge"] if tally["too_short"] else []
    runs = f"{tally['finished']} of {tally['planned']} runs finished, {', '.join(counts)}"
    blocks: list[Block] = [Text(record.study.question), Text(f"Preset {record.preset}; {seeds}; {runs}.", soft=True)]
    yield Section(title_of(record.study.name), [*blocks, *narrative.warnings(told.index)], level=1)


def what_came_out(told: Told) -> Iterable[Section]:
    """Sentences computed from the runs, cell by cell, and the study's notes."""
    yield Section("What came out")
    cells = [cell for cell in told.index.cells if told.index.arms(cell.name)]
    for cell, (title, lines) in zip(cells, narrative.sentences(told.index, told.results["contrasts"]), strict=True):
        yield Section(title, [Bullets([*lines, *text_tables.sentences(told.index, cell)])], level=3)
    computed = "These sentences are computed from the runs. They describe what was measured here; they are no verdicts."
    yield Section("", [Text(computed, soft=True), *map(Text, told.index.record.study.notes)])


def claimed(told: Told) -> Iterable[Section]:
    """The claims with their verdicts."""
    if table := study_tables.claims_table(told.judged):
        said = f"{claim_words.tally(told.judged)}. A verdict is a function of the stored values and the claim's "
        said += "rule, declared beforehand unless a note of the study says that it was changed."
        yield Section("Claims", [Text(said), Text(VERDICTS_EXPLAINED, soft=True), table])


def cost_and_worth(told: Told) -> Iterable[Section]:
    """What arms cost against what they are worth, and the recipe that the single changes speak for."""
    blocks: list[Block] = [_picture(drawing) for drawing in told.drawings if drawing.kind == "pareto"]
    if blocks and (front := study_tables.front_sentence(told.index)):
        blocks.append(Text(front))
    if told.advice is not None and told.index.record.study.steps is not None:
        blocks += [Text(told.advice.sentence), Link(RECOMMENDED, "The file that is this recipe")]
        if trains := told.index.record.study.steps.trained_by:
            blocks += [Text("This trains it:"), Command(f"{trains} --config {RECOMMENDED}")]
    if blocks:
        yield Section("Cost and worth", blocks)


def effects(told: Told) -> Iterable[Section]:
    """Main effects and interactions of a two-level design."""
    if tables := study_tables.effects_tables(told.index):
        yield Section("Effects and interactions", tables)


def cells(told: Told) -> Iterable[Section]:
    """One section for each task that was run."""
    for cell in told.index.cells:
        if told.index.arms(cell.name):
            yield Section(cell.title, [block for block in _cell(told, cell) if block is not None])


def _cell(told: Told, cell: Cell) -> Iterable[Block | None]:
    index = told.index
    pictures = {d.kind: _picture(d) for d in told.drawings if d.cell == cell.name}
    yield pictures.get("metric") or Text("No finished run: nothing to draw.")
    yield views.primary_table(index, cell)
    yield Text(COLLAPSED_EXPLAINED, soft=True)
    yield views.gate_table(index, cell)
    if text := text_tables.scores(index, cell):
        yield text.first
        yield Bullets([f"{score}: {signature}" for score, signature in text.signatures])
        yield _folded("Outputs as text by length", text.others)
    yield views.gated_table(index, cell)
    yield views.in_distribution_table(index, cell)
    yield views.grouped_table(index, cell, ("convergence", "cost"), "Convergence and cost")
    for group, caption in titled_groups().items():
        yield from views.group_tables(index, cell, group, caption)
    yield pictures.get("reliability")
    yield pictures.get("maps")
    yield _folded("Other measures by length", views.by_length_tables(index, cell))
    further = views.grouped_table(index, cell, ("further",), "As the runs recorded them")
    yield _folded("Further metrics", [further] if further else [])
    yield pictures.get("curves")
    examples = text_tables.examples(index, cell)
    for arm, drawn in examples:
        yield _folded(f"Examples: {arm}", [drawn]) if len(examples) > 1 else drawn  # of one arm they lie open
    if not examples and (table := views.examples_table(index, cell)):
        yield _folded("Examples", [table])


def _folded(summary: str, blocks: Sequence[Table]) -> Details | None:
    return Details(summary, blocks) if blocks else None


def contrasts(told: Told) -> Iterable[Section]:
    """The declared contrasts, and those whose arms were not run."""
    rows = told.results["contrasts"]
    table = views.contrasts_table(told.index, rows)
    blocks: list[Block] = [table] if table else []
    missing = [f"{row['a']} − {row['b']} on {row['metric']}: {row['note']}" for row in rows if not row["planned"]]
    if missing:
        blocks.append(Details(f"{len(missing)} declared contrasts of arms that were not run here", [Bullets(missing)]))
    if blocks:
        yield Section("Contrasts", blocks)


def data(told: Told) -> Iterable[Section]:
    """What is known about the data."""
    notes = text_tables.data_notes(told.index)
    if notes:
        yield Section("Data")
    for where, lines in notes:
        yield Section(where, [Bullets(lines)], level=3)


def skipped(told: Told) -> Iterable[Section]:
    """What this preset or selection left out, and why."""
    items = [f"{name}: {reason}" for name, reason in told.index.record.skipped]
    yield Section("Skipped", [Bullets(items) if items else Text("Nothing was skipped.")])


def recipe(told: Told) -> Iterable[Section]:
    """What arms differ in, and the base recipes in full."""
    bases, deltas = views.recipe_tables(told.index)
    same = "Every arm is a base recipe with what it names changed and nothing else: one data order, one evaluation "
    same += "set, one set of initial values of the shared parts for each seed, one learning rate."
    found = [Text(same), deltas, _folded("Base recipes", [bases] if bases else [])]
    yield Section("Recipe", [block for block in found if block is not None])


def definitions(told: Told) -> Iterable[Section]:
    """Each metric that stands on the page, and what intervals are."""
    names = dict.fromkeys(name for cell in told.index.cells for name in told.index.metric_names(cell.name))
    known = [metric for metric in map(metric_of, names) if metric.group != "further"]
    terms = [(f"{metric.label} {metric.arrow}".strip(), metric.definition) for metric in known]
    yield Section("Definitions", [Bullets(terms), Text(INTERVALS_EXPLAINED, soft=True)])


def environment(told: Told) -> Iterable[Section]:
    """What the runs were made by and on, and the command that repeats them."""
    known = dict(told.index.record.environment)
    command = known.pop("command", "")
    repeat: list[Block] = [Text("To repeat it:"), Command(command)] if command else []
    yield Section("Environment", [Bullets(list(known.items())), *repeat])


SECTIONS: tuple[Callable[[Told], Iterable[Section]], ...] = (
    head, what_came_out, claimed, cost_and_worth, effects, cells, contrasts, data, skipped, recipe, definitions,
    environment,
)  # fmt: skip

SPELLINGS = {"pe": "PE", "ffn": "FFN", "rope": "RoPE"}


def title_of(study: str) -> str:
    """A study's name for readers."""
    words = " ".join(SPELLINGS.get(word, word) for word in study.split("_"))
    return words[:1].upper() + words[1:]


def _picture(drawing: Drawing) -> Picture:
    data = base64.b64encode(drawing.svg).decode("ascii")
    return Picture(drawing.caption, f"data:image/svg+xml;base64,{data}", f"figures/{drawing.name}.png")
