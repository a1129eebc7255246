"""``results.json``, ``table.csv``, ``table.tex`` and the tables of the page."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_ablate.metrics.catalogue import CATALOGUE, metric_of
from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.tables import latex, long_table, results
from transformer_ablate.report.views import entry, group_tables, grouped_table, primary_table
from transformer_ablate.study.declarations import Contrast
from transformer_ablate.verdicts.gating import gates

Make = Callable[..., StudyRecord]


def fail(run: RunRecord, error: str = "OutOfMemoryError: no room") -> RunRecord:
    return dataclasses.replace(run, status="failed", metrics={}, curve={}, test_sets=(), examples=(), error=error)


def with_metrics(run: RunRecord, **metrics: float) -> RunRecord:
    return dataclasses.replace(run, metrics={**run.metrics, **{k.replace("__", "/"): v for k, v in metrics.items()}})


def test_schema_of_results(make_study: Make) -> None:
    found = results(Index(make_study(contrasts=[Contrast("rope", "none", "copy/em/1.5")])))
    assert list(found) == [
        "study", "preset", "question", "environment", "variants", "skipped", "contrasts", "claims",
    ]  # fmt: skip
    rope = found["variants"]["rope"]
    assert list(rope) == ["base", "delta", "parameters", "flops", "cells", "seeds", "failed", "diverged", "metrics"]
    assert rope["base"] == "synthetic"
    assert {cell: found["base"] for cell, found in rope["cells"].items()} == {
        "copy": "synthetic", "g2p-length": "g2p", "g2p": "g2p"
    }  # fmt: skip
    assert rope["delta"] == {"model.position": "rope"}
    assert rope["parameters"] == rope["cells"]["g2p"]["parameters"] == 41234
    assert (rope["seeds"], rope["failed"], rope["diverged"]) == ([0, 1, 2], [], [])
    em = rope["metrics"]["copy/em/1.5"]
    assert {"mean", "ci_low", "ci_high", "n", "values"} <= set(em)
    assert em["mean"] == pytest.approx(sum(em["values"]) / 3)
    assert em["ci_low"] < em["mean"] < em["ci_high"]
    assert {"a", "b", "metric", "effect", "ci_low", "ci_high", "p", "p_holm", "n"} <= set(found["contrasts"][0])
    assert found["claims"] == []


def test_failed_and_diverged_runs_are_listed(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        if (run.variant, run.cell, run.seed) == ("none", "copy", 1):
            return fail(run)
        if (run.variant, run.cell, run.seed) == ("rope", "copy", 2):
            return with_metrics(run, diverged=1.0)
        return run

    variants = results(Index(make_study(change=change)))["variants"]
    failed = [{"cell": "copy", "seed": 1, "error": "OutOfMemoryError: no room", "status": "failed"}]
    assert variants["none"]["failed"] == failed
    assert variants["none"]["metrics"]["copy/em/1"]["seeds"] == [0, 2]
    assert [(d["cell"], d["seed"]) for d in variants["rope"]["diverged"]] == [("copy", 2)]
    assert variants["rope"]["metrics"]["copy/em/1"]["n"] == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_null_with_a_note(make_study: Make, bad: float) -> None:
    record = make_study(change=lambda r: with_metrics(r, em__2=bad, steps_to_tenth=math.nan) if r.seed == 1 else r)
    text = json.dumps(results(Index(record)), allow_nan=False)
    em = json.loads(text)["variants"]["rope"]["metrics"]["copy/em/2"]
    assert em["n"] == 2
    assert em["values"][1] is None
    assert "seed 1" in em["note"]
    never = json.loads(text)["variants"]["rope"]["metrics"]["copy/steps_to_tenth"]
    assert (never["mean"], never["n"]) == (None, 0)
    assert "never reached" in never["note"]


def test_one_seed(make_study: Make) -> None:
    found = results(Index(make_study(seeds=[4], contrasts=[Contrast("rope", "none", "copy/em/2")])))
    em = found["variants"]["rope"]["metrics"]["copy/em/2"]
    assert em["n"] == 1
    assert em["mean"] == em["values"][0]
    assert em["ci_low"] is em["ci_high"] is None
    contrast = found["contrasts"][0]
    assert contrast["effect"] is not None
    assert contrast["p"] is contrast["ci_low"] is contrast["p_holm"] is None


def test_without_any_result(make_study: Make) -> None:
    record = make_study(change=lambda r: dataclasses.replace(fail(r, ""), status="missing"))
    found = results(Index(record))
    assert found["variants"]["rope"]["metrics"] == {}
    assert found["variants"]["rope"]["parameters"] is None
    assert len(found["variants"]["rope"]["failed"]) == 9
    assert long_table(Index(record)).empty
    assert "rope & 0" in latex(Index(record))


def test_contrast_by_hand_and_its_family(make_study: Make) -> None:
    wanted = {"none": [0.1, 0.2, 0.3], "rope": [0.5, 0.7, 0.6], "sinusoidal": [0.1, 0.2, 0.3]}
    record = make_study(
        change=lambda r: with_metrics(r, em__2=wanted[r.variant][r.seed]),
        contrasts=[
            Contrast("rope", "none", "copy/em/2"),
            Contrast("sinusoidal", "none", "copy/em/2"),
            Contrast("rope", "kerple", "copy/em/2"),
            Contrast("rope", "none", "copy/em/3", primary=False),
        ],
    )
    first, same, skipped, secondary = results(Index(record))["contrasts"]
    assert first["effect"] == pytest.approx(0.4)
    assert first["ci_low"] == pytest.approx(0.4 - 4.302653 * 0.1 / math.sqrt(3))
    # The contrast without a p is still one of the two planned primary ones; the skipped arm's is not.
    assert first["p_holm"] == pytest.approx(2 * first["p"])
    assert same["effect"] == 0
    assert same["p"] is None
    assert "no verdict" in same["note"]
    assert skipped["n"] == 0
    assert "kerple" in skipped["note"]
    assert secondary["p_holm"] is None


def test_unequal_n(make_study: Make) -> None:
    record = make_study(change=lambda r: fail(r) if r.variant == "none" and r.seed else r,
                        contrasts=[Contrast("rope", "none", "copy/em/2")])  # fmt: skip
    assert results(Index(record))["contrasts"][0]["n"] == 1
    table = {row[0].text: row[-1].text for row in primary_table(Index(record), record.study.cells[0]).rows}
    assert table == {"none": "1", "sinusoidal": "3", "rope": "3"}


def test_a_run_outside_the_study_is_an_error(make_study: Make) -> None:
    with pytest.raises(ValueError, match="'elsewhere'"):
        results(Index(make_study(change=lambda r: dataclasses.replace(r, cell="elsewhere"))))


def test_long_table(make_study: Make) -> None:
    frame = long_table(Index(make_study()))
    assert not frame.duplicated(["variant", "cell", "metric", "bucket"]).any()
    row = frame[(frame.variant == "rope") & (frame.cell == "copy") & (frame.metric == "em") & (frame.bucket == "1.25")]
    assert row.iloc[0]["ratio"] == 1.25
    assert len(row.iloc[0]["values"].split()) == row.iloc[0]["n"] == 3


def test_lengths_of_test_sets(make_study: Make) -> None:
    index = Index(make_study())
    assert [b.lengths for b in index.buckets("copy", "em")] == ["1–8", "9–10", "11–12", "13–16", "17–24"]
    assert [b.heading for b in index.buckets("g2p-length", "per")] == ["1–7", "8", "9–10", "11–14"]
    assert [b.heading for b in index.buckets("g2p", "per")] == ["test"]
    start = index.in_distribution("copy", "em")
    assert start is not None
    assert start.name == "1"


def test_entries_say_what_they_rest_on(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        reached = 120.0 + run.seed if run.seed < 2 else math.nan
        return with_metrics(run, steps_to_half=math.nan, steps_to_tenth=reached)

    index = Index(make_study(change=change))
    assert entry(index, "copy", "rope", "steps_to_half").text == "never"
    assert entry(index, "copy", "rope", "steps_to_tenth").text.endswith("(n = 2)")
    assert entry(index, "copy", "rope", "em/1").text == "1.000 ± 0.000°"
    assert "seed 2" in entry(index, "copy", "rope", "em/1").tip
    assert entry(index, "copy", "rope", "no_such").text == "–"


def test_arms_that_a_measure_was_not_made_of_have_no_row_of_it(make_study: Make) -> None:
    def change(run: RunRecord) -> RunRecord:
        probes = {"probe_r2__0": 0.9, "probe_r2__1": 0.5, "head_js_cross": 0.1}
        return with_metrics(run, **probes) if run.cell == "copy" and run.variant == "rope" else run

    index = Index(make_study(change=change))
    copy = index.record.study.cells[0]
    groups = [metric_of(name).group for name in ("probe_r2", "head_js_cross")]
    tables = [table for group in groups for table in group_tables(index, copy, group, "of some")]
    assert len(tables) >= 2
    for table in tables:
        assert [row[0].text for row in table.rows] == ["rope"]
    shared = grouped_table(index, copy, ["size", "cost"], "of all")
    assert shared is not None
    assert [row[0].text for row in shared.rows] == index.arms("copy")


def test_gate(make_study: Make) -> None:
    ems = {"none": [0.1, 0.2, math.nan], "sinusoidal": [0.99, 0.2, 0.96], "rope": [1.0, 0.95, 0.99]}
    record = make_study(change=lambda r: with_metrics(r, em__1=ems[r.variant][r.seed]) if r.cell == "copy" else r)
    found = {g.variant: (g.k, g.n, g.state) for g in gates(Index(record), record.study.cells[0])}
    assert found == {
        "none": (0, 3, "did not learn"),
        "sinusoidal": (2, 3, "learned in some seeds"),
        "rope": (3, 3, "learned"),
    }


def test_latex_is_escaped(make_study: Make) -> None:
    text = latex(Index(make_study(names=["a_b & 50% {x} \\y $z$ #1 ~^\n<±"], cells=["g2p"])))
    assert (
        r"a\_b \& 50\% \{x\} \textbackslash y \$z\$ \#1 \textasciitilde \textasciicircum \space \textless{}$\pm$ &"
        in text
    )
    assert "±" not in text.partition("tabular")[2]


def test_latex_rows_have_the_columns_of_the_head(make_study: Make) -> None:
    text = latex(Index(make_study(names=["a_b", "50% & more"])))
    assert text.count("\\toprule") == text.count("\\bottomrule") == 3
    assert r"50\% \& more &" in text
    for tabular in text.split("\\begin{tabular}")[1:]:
        columns = tabular[1:].partition("}")[0]
        rows = [line for line in tabular.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
        assert all(row.replace(r"\&", "").count("&") == len(columns) - 1 for row in rows)


@settings(deadline=None)  # the machine is shared
@given(st.sampled_from(list(CATALOGUE)), st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_is_printed_as_nan(name: str, value: float) -> None:
    text = metric_of(name).format(value)
    assert text
    assert "nan" not in text.lower()
    assert "inf" not in text.lower()


def test_unknown_metrics_are_described_generically() -> None:
    metric: Any = metric_of("odd_thing/2")
    assert (metric.label, metric.group) == ("odd thing", "further")
