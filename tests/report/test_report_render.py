"""The files of a report, as a reader or a program meets them."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report import render
from transformer_ablate.report.drawing import looks
from transformer_ablate.report.figures import KINDS, draw, file_stem
from transformer_ablate.report.narrative import reach, sentences, tally, warnings
from transformer_ablate.report.render import escape_markdown, write_overview, write_report
from transformer_ablate.report.tables import contrasts
from transformer_ablate.study.declarations import Contrast

Make = Callable[..., StudyRecord]
VOID = {"meta", "img", "br", "link", "hr"}


class Page(HTMLParser):
    """Collects the text and checks that every element is closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.sources: list[str] = []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def lose(run: RunRecord, status: str = "failed", error: str = "Boom: <b>") -> RunRecord:
    return dataclasses.replace(run, status=status, metrics={}, curve={}, test_sets=(), examples=(), error=error)


def test_every_file_is_written_and_the_page_stands_alone(make_study: Make, tmp_path: Path) -> None:
    record = make_study(contrasts=[Contrast("rope", "none", "copy/em/1.5")])
    page_path = write_report(record, tmp_path / "quick" / "pe")
    assert page_path == tmp_path / "quick" / "pe" / "report.html"
    names = {p.relative_to(page_path.parent).as_posix() for p in page_path.parent.rglob("*") if p.is_file()}
    stems = [f"{c}-{kind}" for c in ("copy", "g2p-length", "g2p") for kind in ("metric", "curves")]
    wanted = {"report.html", "report.md", "results.json", "table.csv", "table.tex"}
    assert names == wanted | {f"figures/{s}.{end}" for s in stems for end in ("svg", "png")}
    page = Page(page_path.read_text("utf-8"))
    assert page.sources.pop(0) == "../index.html"  # the way back, and nothing else outside
    assert len(page.sources) == 6
    assert all(s.startswith("data:image/svg+xml;base64,") for s in page.sources)
    parts = ["What came out", "Contrasts", "Skipped", "kerple", "Base recipes", "Definitions", "Clopper", "NLL"]
    parts += ["shared machine", "python -m experiments.pe_extrapolation", "odd thing", "27 of 27 runs finished"]
    for part in parts:
        assert part in page.text, part
    assert not re.search(r"\b(nan|inf)\b", page.text.lower())
    json.loads((page_path.parent / "results.json").read_text("utf-8"), parse_constant=pytest.fail)
    for path in page_path.parent.glob("figures/*.svg"):
        ElementTree.parse(path)


def test_the_same_record_gives_the_same_bytes(make_study: Make, tmp_path: Path) -> None:
    record = make_study(cells=["g2p"], names=["none", "rope"])
    for name in ("a", "b"):
        write_report(record, tmp_path / name)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).rglob("*.*") if p.is_file()} for n in ("a", "b"))
    assert first == second


def test_special_characters_stay_text(make_study: Make, tmp_path: Path) -> None:
    names = ["<script>alert(1)</script>", "a|b_*c*", "_under $x^2$", "100% & {more}"]
    path = write_report(make_study(names=names, cells=["copy"], seeds=[0, 1]), tmp_path)
    page = Page(path.read_text("utf-8"))
    assert all(name in page.text for name in names)
    assert "<script>" not in path.read_text("utf-8")
    markdown = (tmp_path / "report.md").read_text("utf-8")
    assert "<script>" not in markdown
    assert r"a\|b\_\*c\*" in markdown


def test_markdown_tables_are_rectangular(make_study: Make, tmp_path: Path) -> None:
    write_report(make_study(names=["a|b", "c\nd"], cells=["copy"]), tmp_path)
    block: list[int] = []
    for line in [*(tmp_path / "report.md").read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            block.append(line.replace(r"\|", "").count("|"))
        elif block:
            assert len(block) >= 3
            assert len(set(block)) == 1
            block = []


def test_a_study_without_results_still_has_a_report(make_study: Make, tmp_path: Path) -> None:
    record = make_study(change=lambda r: lose(r, "missing", "") if r.seed else lose(r))
    path = write_report(record, tmp_path)
    page = Page(path.read_text("utf-8"))
    assert "27 of 27 runs without a result" in page.text
    assert "Boom: <b>" in page.text
    assert "nothing to draw" in page.text
    assert page.sources == ["../index.html"]
    assert tally(Index(record))["missing"] == 18


def test_one_seed_report(make_study: Make, tmp_path: Path) -> None:
    text = Page(write_report(make_study(seeds=[0], cells=["copy"]), tmp_path).read_text("utf-8")).text
    assert "One seed" in text
    assert "0.000°" not in text


def test_warnings_name_runs(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        if run.cell != "copy":
            return run
        if run.variant == "none":
            return dataclasses.replace(run, metrics={**run.metrics, "em/1": 0.2, "diverged": float(run.seed == 0)})
        if run.variant == "rope" and run.seed == 1:
            return lose(run)
        if run.variant == "sinusoidal":
            return dataclasses.replace(run, made_by={"source_hash": "beef"}, metrics={**run.metrics, "nll/2": math.inf})
        return run

    found = {w.title: " ".join([w.text, *w.items]) for w in warnings(Index(make_study(change=change)))}
    assert "rope · copy · seed 1: failed – Boom" in found["1 of 27 runs without a result"]
    assert "none · copy · seed 0" in found["Diverged runs: 1"]
    assert "sinusoidal · copy · seed 2: nll/2" in found["Values that are not finite"]
    assert "rope 2" in found["Unequal numbers of finished seeds"]
    assert "source beef: 3 runs, seeds 0, 1, 2, of sinusoidal" in found["Runs from different sources"]
    assert "source cafe: 23 runs, seeds 0, 1, 2, of none, sinusoidal, rope" in found["Runs from different sources"]
    assert "none · copy: did not learn (0/3 seeds)" in found["Arms that did not pass the in-distribution gate"]
    assert warnings(Index(make_study())) == []


def test_sources_that_share_no_seed_name_no_arms(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        return dataclasses.replace(run, made_by={"source_hash": "beef" if run.seed == 2 else "cafe"})

    (found,) = warnings(Index(make_study(change=change)))
    assert found.items[:2] == ["source cafe: 18 runs, seeds 0, 1", "source beef: 9 runs, seeds 2"]


def test_sentences_follow_the_data(make_study: Make) -> None:
    curves = {
        "none": [1, 0.95, 0.5, 0, 0],
        "sinusoidal": [0.4, 0.4, 0.4, 0.4, 0.4],
        "rope": [0.99, 0.98, 0.97, 0.95, 0.5],
    }

    def change(run: RunRecord) -> RunRecord:
        ems = dict(zip(("em/1", "em/1.25", "em/1.5", "em/2", "em/3"), curves[run.variant], strict=True))
        return dataclasses.replace(run, metrics={**run.metrics, **ems})

    record = make_study(change=change, cells=["copy"], contrasts=[Contrast("rope", "none", "copy/em/2")])
    index = Index(record)
    cell = record.study.cells[0]
    assert {v: reach(index, cell, v) for v in curves} == {"none": "1.25×", "sinusoidal": "3×", "rope": "2×"}
    ((_, lines),) = sentences(index, contrasts(index))
    text = " ".join(lines)
    assert "highest mean exact match is that of none: 1.000" in text
    assert "kept up to 2× by rope" in text
    assert "kept up to 1.25× by none" in text
    assert "as it was not learnt well enough within N: sinusoidal" in text
    assert "rope minus none: +0.950" in text


@pytest.mark.parametrize(
    ("factor", "scale"),
    [(1.0, "linear"), (10.0, "log"), (0.0, "linear")],  # 0 has no place on a logarithmic axis
)
def test_one_arm_far_off_does_not_squeeze_the_others_into_a_point(make_study: Make, factor: float, scale: str) -> None:
    def change(run: RunRecord) -> RunRecord:
        far = {"per/test": factor * run.metrics["per/test"]} if run.variant == "none" else {}
        return dataclasses.replace(run, metrics={**run.metrics, **far})

    index = Index(make_study(cells=["g2p"], change=change))
    drawn = KINDS["metric"](index, index.cells[0], looks(index))
    assert drawn is not None
    figure, caption = drawn
    assert figure.axes[0].get_xscale() == scale
    assert ("logarithmic" in caption) == (scale == "log")


def test_error_rates_name_the_lowest(make_study: Make) -> None:
    values = {"none": 0.4, "sinusoidal": 0.1, "rope": 0.3}
    record = make_study(
        cells=["g2p"],
        change=lambda r: dataclasses.replace(r, metrics={**r.metrics, "per/test": values[r.variant] + 0.01 * r.seed}),
    )
    ((_, lines),) = sentences(Index(record), [])
    assert "lowest mean phone error rate is that of sinusoidal" in lines[0]


def test_pairs_share_colours_and_differ_in_dashes(make_study: Make) -> None:
    chosen = looks(Index(make_study(names=["none", "rope"], crosses=["none", "rotary"])))
    assert chosen["rope"].colour == chosen["rope+cross-rotary"].colour != chosen["none"].colour
    assert chosen["rope"].dashes == chosen["none"].dashes != chosen["rope+cross-rotary"].dashes


def test_thirty_variants_have_distinct_looks_and_figures(make_study: Make) -> None:
    record = make_study(names=[f"encoding {i}" for i in range(30)], cells=["copy"], seeds=[0, 1])
    index = Index(record)
    assert len({(x.colour, x.marker) for x in looks(index).values()}) == 30
    drawings = draw(index)
    assert len(drawings) == 2
    assert all(d.png.startswith(b"\x89PNG") and len(d.svg) < 3_000_000 for d in drawings)


def test_figures_stand_values_that_are_not_finite_and_zero_variance(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        curve = {"step": [10, 20, 30], "nll": [2.0, math.nan if run.seed else 1.0, math.inf if run.seed else 0.0]}
        flat = {k: math.nan if run.variant == "none" else 0.5 for k in run.metrics if k.startswith(("em", "per"))}
        return dataclasses.replace(run, curve=curve, metrics={**run.metrics, **flat})

    assert len(draw(Index(make_study(change=change)))) == 6


def test_file_names_are_safe_and_distinct() -> None:
    stems = [file_stem(c, "metric") for c in ("copy", "a/b", "a b", "../x", "")]
    assert len(set(stems)) == 5
    assert all("/" not in s and not s.startswith(".") for s in stems)


def test_a_crash_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = render._write(tmp_path / "x.txt", "old")

    def crash(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        render._write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_overview_links_reports(make_study: Make, tmp_path: Path) -> None:
    record = make_study(cells=["g2p"], names=["none"], seeds=[0, 1], change=lambda r: lose(r) if r.seed else r)
    write_report(record, tmp_path / "quick" / "pe study")
    index = write_overview(tmp_path / "quick")
    page = Page(index.read_text("utf-8"))
    assert set(page.sources) == {"pe%20study/report.html", "pe%20study/figures/g2p-metric.png"}
    assert "1 of 2 runs finished, 1 failed" in page.text
    assert "PE extrapolation" in page.text
    assert "No study" in Page(write_overview(tmp_path / "none").read_text("utf-8")).text


def test_markdown_escapes() -> None:
    assert escape_markdown("# a*b\n<i>") == r"\# a\*b &lt;i&gt;"
    assert escape_markdown("a|b`c`") == r"a\|b\`c\`"


def test_the_clearest_contrasts_come_first_and_failed_arms_are_left_out(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        return dataclasses.replace(run, metrics={**run.metrics, "em/1": 0.2}) if run.variant == "none" else run

    index = Index(make_study(change=change))
    pair = {"a": "rope", "b": "sinusoidal", "metric": "copy/em/2", "n": 3}
    small = {**pair, "effect": 0.01, "ci_low": 0.005, "ci_high": 0.015, "p_holm": 0.001}
    large = {**pair, "effect": 0.5, "ci_low": -0.2, "ci_high": 1.2, "p_holm": 0.4}
    ((_, lines), *_) = sentences(index, [large, small])
    told = [line for line in lines if "after Holm" in line]
    assert ["p .0010 after Holm" in told[0], "p .4000 after Holm" in told[1]] == [True, True]
    failed = [{**row, "a": "none"} for row in (large, small)]  # an arm that has not learnt the task
    assert not [line for line in sentences(index, failed)[0][1] if "after Holm" in line]


def shortened(run: RunRecord, updates: int, last: float = 2.9) -> RunRecord:
    """The run as one of so many updates, whose stored metric says that it diverged; ``last`` is its last loss."""
    nll = [2.9] * (updates - 1) + [last]
    curve = {"step": list(range(1, updates + 1)), "nll": nll}
    return dataclasses.replace(run, curve=curve, metrics={**run.metrics, "diverged": 1.0})


def test_runs_too_short_to_judge_are_not_called_diverged(make_study: Make) -> None:
    lengths = {0: (24, 2.9), 1: (99, 2.9), 2: (100, 2.9), 3: (24, math.nan), 4: (24, math.inf)}
    record = make_study(
        names=("rope",), cells=("copy",), seeds=lengths,
        change=lambda run: shortened(run, lengths[run.seed][0], last=lengths[run.seed][1]),
    )  # fmt: skip
    assert [run.diverged for run in record.runs] == [False, False, True, True, True]
    found = {caution.title: caution for caution in warnings(Index(record))}
    assert found["Runs too short to judge: 2"].items == ["copy: 24 updates (runs: 1)", "copy: 99 updates (runs: 1)"]
    assert "the machinery works, and nothing else" in found["Runs too short to judge: 2"].text
    assert len(found["Diverged runs: 3"].items) == 3
    assert (tally(Index(record))["diverged"], tally(Index(record))["too_short"]) == (3, 2)


def test_a_run_whose_training_is_not_measured_is_not_too_short(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        run = shortened(run, 12)
        return dataclasses.replace(run, metrics={k: v for k, v in run.metrics.items() if k != "diverged"})

    assert tally(Index(make_study(change=change)))["too_short"] == 0
