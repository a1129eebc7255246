"""What a report says of tasks on text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.render import write_report
from transformer_ablate.report.text_tables import data_notes, examples, scores, sentences

Make = Callable[..., StudyRecord]
COPY, FREQUENT = "copy the source", "most frequent target"
SIGNATURES = {f"{name}_signature": f"nrefs:1|what:{name}" for name in ("bleu", "chrf", "ter")}
NOTES = ("packs:de: 3000 records read, 2900 examples kept", "left out, duplicates: <100>")
GAINS = {"none": -1.0, "sinusoidal": 5.0, "rope": 10.0}  # over copying, of seed 0; less .5 for each further seed


def row(bucket: str, system: str, chrf: float, **more: Any) -> dict[str, Any]:
    return {"bucket": bucket, "system": system, "bleu": chrf / 2, "chrf": chrf, "chrf_low": chrf - 1,
            "chrf_high": chrf + 1, **SIGNATURES, **more}  # fmt: skip


def as_text(run: RunRecord) -> RunRecord:
    """The run as if its task were on text: copying has chrF 20, the most frequent target 15."""
    rows = []
    for bucket, _, _ in run.test_sets:
        chrf = 20 + GAINS[run.variant] - run.seed / 2
        rows.append(row(bucket, "model", chrf, ter=70.0 + run.seed))
        for system, value in ((COPY, 20.0), (FREQUENT, 15.0)):
            gain = chrf - value
            less = {k: v for k, v in row(bucket, system, value).items() if k != "ter_signature"}
            rows.append({**less, "model_gain": gain, "gain_low": gain - 2, "gain_high": gain + 2})
    shown = [
        {"bucket": b, "source": f"s{i} {b}", "reference": f"r{i}", "output": f"{run.variant} {i}", "correct": False}
        for b, _, _ in run.test_sets
        for i in range(20 * run.seed % 30, 20 * run.seed % 30 + 10)
    ]
    metrics = {**run.metrics, **{f"chrf/{b}": 20.0 for b, _, _ in run.test_sets}}
    return dataclasses.replace(run, metrics=metrics, examples=shown, text_scores=rows, data_notes=NOTES)


def text_study(make_study: Make, **fields: Any) -> StudyRecord:
    """Of the cells ``g2p-length`` is on text."""
    return make_study(change=lambda run: as_text(run) if run.cell == "g2p-length" else run, **fields)


def cell_of(record: StudyRecord, name: str = "g2p-length") -> Any:
    return next(cell for cell in record.study.cells if cell.name == name)


def test_scores_stand_beside_the_baselines(make_study: Make) -> None:
    record = text_study(make_study)
    found = scores(Index(record), cell_of(record))
    assert found is not None
    assert len(found.others) == 3
    assert [h.text for h in found.first.header] == [
        "System", "BLEU ↑", "chrF ↑", "TER ↓", "chrF's interval",
        f"Gain in chrF over: {COPY}", f"Gain in chrF over: {FREQUENT}", "n",
    ]  # fmt: skip
    table = {r[0].text: [e.text for e in r[1:]] for r in found.first.rows}
    assert list(table) == ["none", "sinusoidal", "rope", COPY, FREQUENT]
    # 30, 29.5 and 29: the mean, and 4.303 times the standard error; each seed's intervals.
    assert table["rope"] == [
        "14.8 ± 0.621", "29.5 ± 1.24", "71 ± 2.48", "[29, 31] [28.5, 30.5] [28, 30]",
        "+9.5 [+8, +12] [+7.5, +11.5] [+7, +11]", "+14.5 [+13, +17] [+12.5, +16.5] [+12, +16]", "3",
    ]  # fmt: skip
    # A baseline depends on the data alone: one value, one interval; it has no TER.
    assert table[COPY] == ["10", "20", "–", "[19, 21]", "", "", ""]
    assert [signature for _, signature in found.signatures] == list(SIGNATURES.values())


def test_baselines_of_arms_on_other_data_are_told_apart(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        run = as_text(run)
        rows = [{**r, "chrf": 25.0} if (run.variant, r["system"]) == ("rope", COPY) else r for r in run.text_scores]
        notes = ("other data",) if run.variant == "rope" else NOTES
        return dataclasses.replace(run, text_scores=rows, data_notes=notes)

    record = make_study(change=change, cells=["g2p"], names=["none", "rope"])
    found = scores(Index(record), record.study.cells[0])
    assert found is not None
    assert [r[0].text for r in found.first.rows] == ["none", "rope", f"{COPY} (none)", f"{COPY} (rope)", FREQUENT]
    title = record.study.cells[0].title
    assert data_notes(Index(record)) == [(f"{title}, none", NOTES), (f"{title}, rope", ("other data",))]


@pytest.mark.parametrize(
    ("names", "seeds", "told"),
    [
        (["rope"], [0], [f'rope beats the baseline "{COPY}" on chrF in its one seed: gain +10 [+8, +12].']),
        (["rope"], [0, 1], [f'rope beats the baseline "{COPY}" on chrF in all 2 seeds: gain +10 [+8, +12]; '
                            "+9.5 [+7.5, +11.5]."]),
        (["sinusoidal", "rope"], [0, 1], [f'All 2 arms beat the baseline "{COPY}" on chrF in every seed: '
                                          "smallest gain +4.5 [+2.5, +6.5] (sinusoidal, seed 1)."]),
        (["none"], [0, 1], [f'Not shown in every seed to beat the baseline "{COPY}" on chrF (seeds that do): '
                            "none (0 of 2)."]),
        # Seeds 6 and up of the sinusoidal arm gain 2 and less: their interval reaches 0.
        (["sinusoidal", "rope"], [5, 6], [
            f'rope beats the baseline "{COPY}" on chrF in all 2 seeds: gain +7.5 [+5.5, +9.5]; +7 [+5, +9].',
            f'Not shown in every seed to beat the baseline "{COPY}" on chrF (seeds that do): sinusoidal (1 of 2).']),
    ],
)  # fmt: skip
def test_who_beats_a_baseline(make_study: Make, names: list[str], seeds: list[int], told: list[str]) -> None:
    record = text_study(make_study, names=names, seeds=seeds)
    lines = sentences(Index(record), cell_of(record))
    assert [line for line in lines if COPY in line] == told
    assert any(FREQUENT in line for line in lines)
    assert sentences(Index(record), cell_of(record, "copy")) == []


def test_ten_examples_of_each_arm(make_study: Make) -> None:
    record = text_study(make_study)
    found = dict(examples(Index(record), cell_of(record)))
    assert list(found) == ["none", "sinusoidal", "rope"]
    for arm, table in found.items():
        texts = [[e.text for e in r] for r in table.rows]
        assert len(texts) == 10
        assert len({source for _, source, *_ in texts}) == 10
        assert {output.partition(" ")[0] for *_, output, _ in texts} == {arm}
        assert all(source.endswith(" 7") for _, source, *_ in texts)  # the test set in distribution
        assert len({seed for seed, *_ in texts}) > 1
    assert found == dict(examples(Index(record), cell_of(record)))  # the same ones for the same record
    assert examples(Index(record), cell_of(record, "copy")) == []


def test_the_page_has_it_all_and_other_cells_stay_as_they_were(make_study: Make, tmp_path: Path) -> None:
    record = text_study(make_study, cells=["copy", "g2p-length"], seeds=[0, 1])
    page = write_report(record, tmp_path).read_text("utf-8")
    for text in (page, (tmp_path / "report.md").read_text("utf-8").replace("\\|", "|")):
        assert text.count("nrefs:1|what:chrf") == 1
        assert text.count("left out, duplicates: &lt;100&gt;") == 1  # cells on the same data share their notes
        assert "All 3 arms beat the baseline" in text
        assert "Outputs as text, test set 7" in text
    parts = page.split("<h2>")
    other = next(part for part in parts if part.startswith("Copying"))
    assert "Outputs as text" not in other
    assert "<summary>Examples</summary>" in other
    on_text = next(part for part in parts if part.startswith("Spelling to sound<"))
    assert on_text.count("<summary>Examples: ") == 3
    assert "<summary>Examples</summary>" not in on_text
    plain = write_report(make_study(cells=["g2p"], names=["rope"]), tmp_path).read_text("utf-8")
    assert "<h2>Data</h2>" not in plain
    assert "Outputs as text" not in plain
    # Of one arm the examples lie open.
    single = write_report(text_study(make_study, cells=["g2p-length"], names=["rope"]), tmp_path).read_text("utf-8")
    assert "<summary>Examples: " not in single
    assert "rope: 10 examples drawn at random" in single
