"""Writes a study's report, and the overview of several. Every file appears whole or not at all."""

from __future__ import annotations

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

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import StudyRecord
from transformer_ablate.report import narrative, study_tables
from transformer_ablate.report.blocks import Section, Text
from transformer_ablate.report.claim_words import tally
from transformer_ablate.report.figures import draw
from transformer_ablate.report.sections import RECOMMENDED, VERDICTS_EXPLAINED, Told, sections, title_of
from transformer_ablate.report.tables import latex, long_table, results
from transformer_ablate.verdicts.claims import Judged, verdicts
from transformer_ablate.verdicts.recommended import as_config, recommended

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
    found = results(index, judged) | {"tally": narrative.tally(index)}
    steps = record.study.steps
    told = Told(index, found, judged, draw(index), recommended(index, steps) if steps is not None else None)
    for drawing in told.drawings:
        _write(directory / "figures" / f"{drawing.name}.svg", drawing.svg)
        _write(directory / "figures" / f"{drawing.name}.png", drawing.png)
    _write(directory / "results.json", json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _write(directory / "table.csv", long_table(index).to_csv(index=False, lineterminator="\n"))
    _write(directory / "table.tex", latex(index))
    if told.advice is not None:
        _write(directory / RECOMMENDED, as_config(told.advice))
    page = sections(told)
    _write(directory / "report.md", markdown(page))
    title = f"{title_of(record.study.name)} ({record.preset})"
    return _write(directory / "report.html", web_page(title, page, back="../index.html"))


def write_overview(folder: Path) -> Path:
    """Write ``index.html``, which lists every study that has a report in ``folder`` (``reports/PRESET``), and
    ``claims.md`` with the verdicts of all of them.

    Returns:
        the page's path; links in it are relative.
    """
    page, found = folder / "index.html", {}
    for file in sorted(folder.glob("*/results.json")):
        found[file.parent] = json.loads(file.read_text("utf-8"))
    judged = [
        (title_of(results["study"]), [Judged.from_row(row) for row in results["claims"]])
        for results in found.values()
        if results["claims"]
    ]
    every = [one for _, claims in judged for one in claims]
    said = f"{tally(every)}. Verdicts are computed from the stored per-seed values and each claim's rule, "
    said += "declared beforehand unless a note of its study says that it was changed. Effects are followed by their "
    said += "95 % interval."
    told = [Section("Claims", [Text(said), Text(VERDICTS_EXPLAINED, soft=True)], level=1)]
    told += [
        Section(title, [table]) for title, claims in judged if (table := study_tables.claims_table(claims)) is not None
    ]
    _write(folder / "claims.md", markdown(told))
    cards = [_card(where, results, page) for where, results in found.items()]
    return _write(page, web_page("Studies", told if judged else [], cards=cards))


def _card(folder: Path, results: dict[str, Any], page: Path) -> dict[str, str]:
    """What the overview says of one study."""
    counted, figures = results["tally"], sorted((folder / "figures").glob("*-metric.png"))
    counts = [f"{counted['finished']} of {counted['planned']} runs finished", f"{counted['failed']} failed"]
    counts += [f"{counted[name]} {name}" for name in ("interrupted", "missing") if counted[name]]
    counts += [f"{counted['diverged']} diverged"]
    counts += [f"{n} too short to judge"] if (n := counted.get("too_short")) else []
    seeds = f"{counted['seeds']} seed{'' if counted['seeds'] == 1 else 's'}"
    told = f"Preset {results['preset']}; {seeds}; {', '.join(counts)}. "
    return {
        "title": title_of(results["study"]),
        "question": results["question"],
        "counts": f"{told}Claims: {tally([Judged.from_row(row) for row in results['claims']])}.",
        "link": _link(folder / "report.html", page),
        "thumbnail": _link(figures[0], page) if figures else "",
    }


def web_page(title: str, page: Sequence[Section], back: str = "", **more: Any) -> str:
    """Sections as one HTML file that needs no other; ``more`` goes to the template."""
    return _template("page.html.j2").render(title=title, sections=page, back=back, **more)


def markdown(page: Sequence[Section]) -> str:
    """Sections as Markdown."""
    text = _template("page.md.j2").render(sections=page)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
