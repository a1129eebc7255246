"""Writes a study's report, and the overview of several. Every file appears whole or not at all."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.record.index import Index
from transformer_ablate.record.records import StudyRecord
from transformer_ablate.report import claim_words, narrative, study_tables, text_tables, views
from transformer_ablate.report.figures import Drawing, draw
from transformer_ablate.report.tables import latex, long_table, results
from transformer_ablate.verdicts.claims import Judged, verdicts
from transformer_ablate.verdicts.recommended import as_config, recommended

SPELLINGS = {"pe": "PE", "ffn": "FFN", "rope": "RoPE"}
# Groups of metrics that some cells alone measure, and what their tables are called.
SPECIAL_GROUPS = {
    "calibration": "Calibration",
    "attention": "Attention",
    "probes": "Position in the encoder's layers",
    "gradients": "Gradients by layer",
    "throughput": "Time and memory",
}
RECOMMENDED = "recommended.yaml"
TEMPLATES = Path(__file__).parent / "templates"


def write_report(record: StudyRecord, directory: Path) -> Path:
    """Write ``report.html, report.md, results.json, table.csv, table.tex, figures/*.svg|png`` into ``directory``.

    Returns:
        the path of ``report.html``, which is written last and holds its figures in itself.

    Raises:
        ValueError: for a run that the record's study does not declare.
        OSError: where ``directory`` cannot be written.
    """
    index = Index(record)
    judged = verdicts(index)
    found = results(record, judged)
    drawings = draw(index)
    found["tally"] = narrative.tally(index)
    for drawing in drawings:
        _write(directory / "figures" / f"{drawing.name}.svg", drawing.svg)
        _write(directory / "figures" / f"{drawing.name}.png", drawing.png)
    _write(directory / "results.json", json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _write(directory / "table.csv", long_table(record).to_csv(index=False, lineterminator="\n"))
    _write(directory / "table.tex", latex(record))
    steps = record.study.steps
    advice = recommended(index, steps) if steps is not None else None
    if advice is not None:
        _write(directory / RECOMMENDED, as_config(advice))
    page = {**_page(index, found, judged, drawings), "recommended": advice.sentence if advice else ""}
    _write(directory / "report.md", re.sub(r"\n{3,}", "\n\n", _template("report.md.j2").render(page)))
    return _write(directory / "report.html", _template("report.html.j2").render(page))


def write_overview(folder: Path) -> Path:
    """Write ``index.html``, which lists every study that has a report in ``folder`` (``reports/PRESET``), and
    ``claims.md`` with the verdicts of all of them.

    Returns:
        the page's path; links in it are relative.
    """
    page, studies = folder / "index.html", []
    judged: list[tuple[str, list[Judged]]] = []
    for file in sorted(folder.glob("*/results.json")):
        found = json.loads(file.read_text("utf-8"))
        claims = [Judged.from_row(row) for row in found["claims"]]
        if claims:
            judged.append((title_of(found["study"]), claims))
        figures = sorted((file.parent / "figures").glob("*-metric.png"))
        studies.append(
            {
                "title": title_of(found["study"]),
                "question": found["question"],
                "preset": found["preset"],
                "tally": found["tally"],
                "claims": claim_words.tally(claims),
                "link": _link(file.parent / "report.html", page),
                "thumbnail": _link(figures[0], page) if figures else "",
            }
        )
    texts = [(title, [{**one.row(), **claim_words.texts(one)} for one in claims]) for title, claims in judged]
    told = {"tally": claim_words.tally([one for _, claims in judged for one in claims]), "studies": texts}
    text = re.sub(r"\n{3,}", "\n\n", _template("claims.md.j2").render(told))
    _write(folder / "claims.md", text.rstrip() + "\n")
    tables = [(title, study_tables.claims_table(claims)) for title, claims in judged]
    return _write(page, _template("overview.html.j2").render(studies=studies, claims=tables, tally=told["tally"]))


def title_of(study: str) -> str:
    """A study's name for readers."""
    words = " ".join(SPELLINGS.get(word, word) for word in study.split("_"))
    return words[:1].upper() + words[1:]


def _page(index: Index, found: dict[str, Any], judged: Sequence[Judged], drawings: Sequence[Drawing]) -> dict[str, Any]:
    record, cells = index.record, []
    for cell in index.cells:
        if not index.arms(cell.name):
            continue
        pictures = {d.kind: _picture(d) for d in drawings if d.cell == cell.name}
        cells.append(
            {
                "name": cell.name,
                "title": cell.title,
                "metric": metric_of(cell.metric),
                "figure": pictures.get("metric"),
                "pictures": [pictures[kind] for kind in ("reliability", "maps") if kind in pictures],
                "curves": pictures.get("curves"),
                "primary": views.primary_table(index, cell),
                "gate": views.gate_table(index, cell),
                "open": [
                    t
                    for t in (
                        views.gated_table(index, cell),
                        views.in_distribution_table(index, cell),
                        views.grouped_table(index, cell, ("convergence", "cost"), "Convergence and cost"),
                    )
                    if t
                ],
                "further": views.grouped_table(index, cell, ("further",), "As the runs recorded them"),
                "special": [
                    t for group in SPECIAL_GROUPS for t in views.group_tables(index, cell, group, SPECIAL_GROUPS[group])
                ],
                "by_length": views.by_length_tables(index, cell),
                "text": text_tables.scores(index, cell),
                "examples": views.examples_table(index, cell),
                "text_examples": text_tables.examples(index, cell),
            }
        )
    bases, deltas = views.recipe_tables(index)
    names = dict.fromkeys(n for cell in index.cells for n in index.metric_names(cell.name))
    return {
        "title": title_of(record.study.name),
        "study": record.study,
        "preset": record.preset,
        "tally": narrative.tally(index),
        "warnings": narrative.warnings(index),
        "told": _told(index, found["contrasts"]),
        "cells": cells,
        "claims": study_tables.claims_table(judged),
        "claims_tally": claim_words.tally(judged),
        "pareto": next((_picture(d) for d in drawings if d.kind == "pareto"), None),
        "front": study_tables.front_sentence(index),
        "recommended_file": RECOMMENDED,
        "effects": study_tables.effects_tables(index),
        "contrasts": views.contrasts_table(index, found["contrasts"]),
        "not_run": [c for c in found["contrasts"] if not c["planned"]],
        "data": text_tables.data_notes(index),
        "skipped": record.skipped,
        "bases": bases,
        "deltas": deltas,
        "definitions": [m for m in map(metric_of, names) if m.group != "further"],
        "environment": dict(record.environment),
    }


def _told(index: Index, contrasts: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """For each cell its title and what came out."""
    cells = [cell for cell in index.cells if index.arms(cell.name)]
    told = narrative.sentences(index, contrasts)
    return [
        (title, [*lines, *text_tables.sentences(index, cell)]) for cell, (title, lines) in zip(cells, told, strict=True)
    ]


def _picture(drawing: Drawing) -> dict[str, str]:
    data = base64.b64encode(drawing.svg).decode("ascii")
    return {
        "uri": f"data:image/svg+xml;base64,{data}",
        "path": f"figures/{drawing.name}.png",
        "caption": drawing.caption,
    }


def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=lambda n: n is not None and n.endswith(".html.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["md"] = escape_markdown
    return environment.get_template(name)


def escape_markdown(value: object) -> str:
    """Text on one line in which Markdown and HTML see no mark-up, fit for a table's cell too."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|~]|^[#+-](?=\s))", r"\\\1", text)


def _link(target: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix())


def _write(path: Path, content: str | bytes) -> Path:
    """Write by way of a file beside it, so that a crash leaves the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).chmod(0o644)  # mkstemp makes it readable by its owner alone
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
