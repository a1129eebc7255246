"""The record: what goes in comes out, and what people's stores have broken on."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_ablate.paths import project_root
from transformer_ablate.record.place import default_uri
from transformer_ablate.record.reading import local_path
from transformer_ablate.record.records import Result, RunRecord
from transformer_ablate.record.source import source_hash
from transformer_ablate.record.store import Store
from transformer_ablate.study.declarations import USUAL_MEASURES, Study
from transformer_ablate.study.plan import PlannedRun, make_plan

CURVE = {"step": [1.0, 2.0], "nll": [3.0, 2.0], "tokens": [10.0, 20.0], "seconds": [0.1, 0.2], "lr": [1.0, 1.0]}


@pytest.fixture
def planned(study: Study) -> PlannedRun:
    return make_plan(study, "smoke").runs[0]


def result(**metrics: float) -> Result:
    example = {"bucket": "1", "source": "ä <b>", "reference": "x", "output": "y"}
    return Result(metrics, CURVE, [("1", 1.0, 20)], [example], USUAL_MEASURES, tables={"predictions": [example]})


def record(store: Store, planned: PlannedRun, study: Study, outcome: Result) -> str:
    """Enters a finished run; its id."""
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    run_id = store.start_run(planned, parent, {})
    store.finish_run(run_id, outcome, {})
    return run_id


def test_a_result_comes_back_as_it_went_in(store: Store, study: Study, planned: PlannedRun) -> None:
    run_id = record(store, planned, study, result(**{"em/1.25": 0.5, "em/64": 0.25, "em/640": 0.75}))
    (back,) = store.records([planned])
    assert back.made_by["source_hash"] == source_hash()
    assert (back.status, back.run_id, back.seed) == ("finished", run_id, planned.seed)
    assert back.metrics == {"em/1.25": 0.5, "em/64": 0.25, "em/640": 0.75}
    assert back.curve == CURVE
    assert list(back.test_sets) == [("1", 1.0, 20)]
    assert back.examples[0]["source"] == "ä <b>"


def test_scores_of_text_and_notes_come_back(store: Store, study: Study, planned: PlannedRun) -> None:
    rows = [{"bucket": "1", "system": "model", "chrf": 12.5, "chrf_signature": "nrefs:1|case:mixed"}]
    outcome = dataclasses.replace(result(em=1.0), text_scores=rows, data_notes=("10 records read",))
    run_id = record(store, planned, study, outcome)
    (back,) = store.records([planned])
    assert (back.text_scores, list(back.data_notes)) == (rows, ["10 records read"])
    # A result of a version that knew of neither is read as one without.
    path = Path(store.client.get_run(run_id).info.artifact_uri.removeprefix("file://")) / "result.json"
    old = {name: value for name, value in json.loads(path.read_text()).items() if name not in ("text_scores", "notes")}
    path.write_text(json.dumps(old))
    (back,) = store.records([planned])
    assert (list(back.text_scores), list(back.data_notes), back.metrics) == ([], [], {"em": 1.0})


def test_a_results_file_holds_all_but_the_tables_and_nothing_of_the_place() -> None:
    whole = Result(
        {"em/1": 0.5, "ppl": math.inf}, CURVE, [("1", 1.0, 20)], [{"source": "ä"}], ["quality"], [{"bucket": "1"}],
        ["10 records"], {"reliability": [{"bin": 0}]},
    )  # fmt: skip
    back = Result.from_json(whole.to_json())
    assert back == dataclasses.replace(whole, tables={})
    placed = RunRecord(variant="a", cell="c", seed=0, fingerprint="f", status="finished", **vars(whole))
    assert placed.to_json() == whole.to_json()
    assert set(json.loads(whole.to_json())) == {
        "metrics", "curve", "test_sets", "examples", "measures", "text_scores", "notes",
    }  # fmt: skip


def test_what_is_measured_later_takes_nothing_away(store: Store, study: Study, planned: PlannedRun) -> None:
    run_id = record(store, planned, study, dataclasses.replace(result(em=1.0), data_notes=("a note",)))
    further = Result(
        {"em": 0.0, "ece": 0.25}, {"step": [9.0]}, [], [], ["calibration"], [{"bucket": "1"}], ("another",),
        {"reliability": [{"bin": 0}], "predictions": []},
    )  # fmt: skip
    store.extend_run(run_id, further)
    (back,) = store.records([planned])
    assert back.metrics == {"em": 1.0, "ece": 0.25}
    assert (back.curve, len(back.examples), list(back.data_notes)) == (CURVE, 1, ["a note"])
    assert back.text_scores == [{"bucket": "1"}]
    assert back.tables == {"reliability": [{"bin": 0}]}
    assert store.measured([planned.fingerprint]) == {planned.fingerprint: {*USUAL_MEASURES, "calibration"}}
    run = store.client.get_run(run_id)
    assert run.data.metrics == {"em": 1.0, "ece": 0.25}
    folder = local_path(run.info.artifact_uri)
    assert folder is not None
    assert "source" in (folder / "predictions.jsonl").read_text()  # an empty table replaces none


def test_two_stores_are_kept_apart(store: Store, study: Study, planned: PlannedRun, tmp_path: Path) -> None:
    record(store, planned, study, result(em=1.0))
    other = Store(f"sqlite:///{tmp_path / 'other.db'}")
    other.open_experiment("tiny")
    assert [r.status for r in other.records([planned])] == ["missing"]
    assert [r.status for r in store.records([planned])] == ["finished"]


def test_what_is_no_number_never_becomes_one(store: Store, study: Study, planned: PlannedRun) -> None:
    run_id = record(store, planned, study, result(ppl=math.inf, steps_to_half=math.nan, nll=800.0))
    (back,) = store.records([planned])
    assert back.metrics["ppl"] == math.inf
    assert math.isnan(back.metrics["steps_to_half"])
    run = store.client.get_run(run_id)
    assert "ppl" not in run.data.metrics  # MLflow would hold 1.797e308
    assert run.data.tags["not_finite.ppl"] == "inf"


def test_what_ui_and_people_look_for_is_there(store: Store, study: Study, planned: PlannedRun) -> None:
    run_id = record(store, planned, study, result(em=1.0))
    run = store.client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["model.position"] == "sinusoidal"
    assert run.data.tags["fingerprint"] == planned.fingerprint
    assert {run.data.tags[t] for t in ("preset", "task", "variant")} == {"smoke", "copy", "sinusoidal"}
    assert store.client.get_run(run.data.tags["mlflow.parentRunId"]).data.tags["kind"] == "invocation"
    artifacts = Path(run.info.artifact_uri.removeprefix("file://"))
    assert artifacts.is_absolute()
    assert {p.name for p in artifacts.iterdir()} == {"recipe.json", "result.json", "predictions.jsonl"}
    assert json.loads((artifacts / "recipe.json").read_text())["train"]["seed"] == planned.seed
    history = store.client.get_metric_history(run_id, "em")
    assert [m.value for m in history] == [1.0]


def test_curves_have_a_point_for_every_step(store: Store, study: Study, planned: PlannedRun) -> None:
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    run_id = store.start_run(planned, parent, {})
    steps = [float(i) for i in range(1, 1501)]  # more points than MLflow takes in one call
    store.log_curve(run_id, {"step": steps, "nll": steps})
    history = store.client.get_metric_history(run_id, "train/nll")
    assert [(m.step, m.value) for m in history] == [(int(s), s) for s in steps]


def test_a_missing_a_failed_and_a_repaired_run(store: Store, study: Study, planned: PlannedRun) -> None:
    assert [r.status for r in store.records([planned])] == ["missing"]
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    failed = store.start_run(planned, parent, {})
    store.end_run(failed, "failed", "Traceback\nValueError: it broke")
    (back,) = store.records([planned])
    assert (back.status, back.error) == ("failed", "ValueError: it broke")
    record(store, planned, study, result(em=1.0))
    assert [r.status for r in store.records([planned])] == ["finished"]


def test_a_later_failure_is_not_hidden_by_an_older_success(store: Store, study: Study, planned: PlannedRun) -> None:
    record(store, planned, study, result(em=1.0))
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    store.end_run(store.start_run(planned, parent, {}), "failed", "E: no")
    assert [r.status for r in store.records([planned])] == ["failed"]


def test_running_and_interrupted_runs_are_no_results(store: Store, study: Study, planned: PlannedRun) -> None:
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    store.start_run(planned, parent, {})
    assert [r.status for r in store.records([planned])] == ["missing"]
    store.end_run(store.start_run(planned, parent, {}), "interrupted")
    assert [r.status for r in store.records([planned])] == ["interrupted"]
    assert store.measured([planned.fingerprint]) == {}
    record(store, planned, study, result(em=1.0))
    store.end_run(store.start_run(planned, parent, {}), "interrupted")
    assert [r.status for r in store.records([planned])] == ["finished"]  # breaking off a repetition takes nothing away


def test_a_result_whose_files_are_gone_is_missing(store: Store, study: Study, planned: PlannedRun) -> None:
    run = store.client.get_run(record(store, planned, study, result(em=1.0)))
    folder = local_path(run.info.artifact_uri)
    assert folder is not None
    (folder / "result.json").unlink()
    assert store.measured([planned.fingerprint]) == {}
    assert [r.status for r in store.records([planned])] == ["missing"]


def test_a_folder_with_blanks_and_umlauts(tmp_path: Path, study: Study, planned: PlannedRun) -> None:
    store = Store(f"sqlite:///{tmp_path / 'Meine Läufe 100%'}/mlflow.db")
    record(store, planned, study, result(em=1.0))
    assert [r.status for r in store.records([planned])] == ["finished"]


def test_a_study_takes_the_latest_run_of_another(make_tiny_study: Callable[..., Study], store: Store) -> None:
    mine, other = make_tiny_study("mine"), make_tiny_study("other")
    first, second = (make_plan(s, "smoke").runs[0] for s in (mine, other))
    assert first.fingerprint == second.fingerprint
    parents = [store.start_invocation(make_plan(s, "smoke"), "command", {}) for s in (mine, other)]
    store.end_run(store.start_run(first, parents[0], {}), "failed", "E: no")
    source = record(store, second, other, result(em=0.5))
    assert [r.metrics["em"] for r in store.records([first])] == [0.5]
    store.share([first], parents[0])
    store.share([first], parents[0])  # a second time there is nothing to do
    store.share([second], parents[1])  # nor in the study that the run comes from
    copies = store.client.search_runs([store.open_experiment("mine")], "tags.shared_from != ''")
    assert [run.data.tags["shared_from"] for run in copies] == [source]
    assert copies[0].data.tags["source_hash"] == source_hash()
    assert [r.metrics["em"] for r in store.records([first])] == [0.5]


def test_runs_of_dead_processes_are_closed(store: Store, study: Study, planned: PlannedRun) -> None:
    parent = store.start_invocation(make_plan(study, "smoke"), "command", {})
    dead = subprocess.Popen(["true"])
    dead.wait()
    orphan = store.start_run(planned, parent, {"pid": str(dead.pid), "host": socket.gethostname()})
    mine = store.start_run(planned, parent, {"pid": str(os.getpid()), "host": socket.gethostname()})
    elsewhere = store.start_run(planned, parent, {"pid": str(dead.pid), "host": "another machine"})
    assert store.close_stale() == 1
    statuses = [store.client.get_run(run_id).info.status for run_id in (orphan, mine, elsewhere)]
    assert statuses == ["KILLED", "RUNNING", "RUNNING"]


def test_an_inherited_run_id_is_not_ours(
    monkeypatch: pytest.MonkeyPatch, uri: str, study: Study, planned: PlannedRun
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc")
    assert record(Store(uri), planned, study, result(em=1.0)) != "abc"


def test_the_default_store_is_read_from_the_environment_at_the_last_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert default_uri() == f"sqlite:///{project_root() / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////some/dir/a.db")
    assert default_uri() == "sqlite:////some/dir/a.db"


def test_an_old_file_store_in_the_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store, study: Study, planned: PlannedRun
) -> None:
    old = tmp_path / "mlruns" / "0"
    old.mkdir(parents=True)
    (old / "meta.yaml").write_text("artifact_location: x\n")
    monkeypatch.chdir(tmp_path)
    run_id = record(store, planned, study, result(em=1.0))
    assert store.client.get_run(run_id).info.status == "FINISHED"
    assert [p.name for p in old.iterdir()] == ["meta.yaml"]


def test_long_parameters_do_not_decide_identity(study: Study) -> None:
    texts = ("a" * 300 + "1", "a" * 300 + "2")
    recipes = [make_plan(study, "smoke").runs[0].recipe for _ in texts]
    prints = {
        recipe.replace({"model.position_options": {"note": text}}).fingerprint("data")
        for recipe, text in zip(recipes, texts, strict=True)
    }
    assert len(prints) == 2


LATE = """
import sys
from transformer_ablate.record import store as tracking
if sys.argv[2] == "preloaded":
    tracking.preload()
before = set(sys.modules)
tracking.Store(sys.argv[1]).open_experiment("study")
print(len(set(sys.modules) - before))
"""


def test_what_workers_are_forked_from_has_loaded_most_of_what_a_store_needs(tmp_path: Path) -> None:
    def loaded_late(how: str) -> int:
        words = [sys.executable, "-c", LATE, f"sqlite:///{tmp_path / 'mlflow.db'}", how]
        return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[-1])

    # Some 50 modules against some 400, with MLflow 3.17.
    assert loaded_late("preloaded") < loaded_late("not preloaded") / 3
