"""Whole invocations, with real processes: trained, reused, shared, failed, interrupted."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer_ablate import cli
from transformer_ablate.record.store import Store
from transformer_ablate.run.launchers import Job, LocalLauncher
from transformer_ablate.run.sweep import Options, run_sweep
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import PlannedRun, make_plan
from transformer_ablate.training.curve import COLUMNS


@pytest.fixture
def invoke(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs studies through the command line, in this process; returns the status and what was printed."""

    def call(studies: list[Study], *words: str) -> tuple[int, str]:
        where = ["--preset", "smoke", "--tracking-uri", uri, "--output", str(tmp_path / "reports")]
        status = cli.run(studies, [*where, *words], "x")
        return status, capsys.readouterr().out

    return call


def results(tmp_path: Path, study: str = "tiny") -> dict:
    found: dict = json.loads((tmp_path / "reports" / "smoke" / study / "results.json").read_text())
    return found


def test_a_study_is_trained_once_and_then_reused(
    invoke: Callable[..., tuple[int, str]], study: Study, store: Store, tmp_path: Path
) -> None:
    status, out = invoke([study], "--seeds", "2")
    assert status == 0
    assert out.splitlines()[-1] == "4 trained, 0 reused, 0 failed"
    first = results(tmp_path)
    assert set(first["variants"]) == {"sinusoidal", "rope"}
    assert first["variants"]["rope"]["metrics"]["copy/em/1"]["n"] == 2
    assert first["skipped"]
    for name in ("report.html", "report.md", "table.csv", "table.tex"):
        assert (tmp_path / "reports" / "smoke" / "tiny" / name).stat().st_size > 200
    assert (tmp_path / "reports" / "smoke" / "index.html").exists()

    status, out = invoke([study], "--seeds", "2")
    assert status == 0
    assert out.splitlines()[-1] == "0 trained, 4 reused, 0 failed"
    assert results(tmp_path)["variants"] == first["variants"]

    runs = store.client.search_runs([store.open_experiment("tiny")])
    kinds = [run.data.tags["kind"] for run in runs]
    assert (kinds.count("invocation"), kinds.count("run")) == (2, 4)
    assert {run.info.status for run in runs} == {"FINISHED"}
    child = next(run for run in runs if run.data.tags["kind"] == "run")
    artifacts = Path(child.info.artifact_uri.removeprefix("file://"))
    assert {p.name for p in artifacts.iterdir()} >= {"model.ckpt", "predictions.jsonl", "result.json", "recipe.json"}
    for column in set(COLUMNS) - {"step"}:
        steps = [m.step for m in store.client.get_metric_history(child.info.run_id, f"train/{column}")]
        assert steps == [1, 2, 4, 6]

    status, out = invoke([study], "--seeds", "3", "--variants", "rope")
    assert out.splitlines()[-1] == "1 trained, 2 reused, 0 failed"
    status, out = invoke([study], "--seeds", "1", "--fresh", "--variants", "rope")
    assert out.splitlines()[-1] == "1 trained, 0 reused, 0 failed"


def test_each_study_is_reported_when_its_own_runs_are_through(
    invoke: Callable[..., tuple[int, str]], study: Study, store: Store, tmp_path: Path
) -> None:
    longer = tuple(dataclasses.replace(c, delta={**c.delta, "train.max_steps": 7}) for c in study.cells)
    later = dataclasses.replace(study, name="later", cells=longer)
    words = ("--seeds", "1", "--workers", "1")
    lines = invoke([study, later], *words)[1].splitlines()

    def where(text: str) -> int:
        return next(i for i, line in enumerate(lines) if text in line)

    assert where("[2/4]") < where("tiny/report.html") < where("[3/4]") < where("[4/4]") < where("later/report.html")
    assert sum("report.html" in line for line in lines) == 2
    # A study that has everything is reported before the others train.
    lines = invoke([study, later], "--seeds", "2", "--workers", "1", "--variants", "rope")[1].splitlines()
    assert where("tiny/report.html") < where("[2/2]") < where("later/report.html")
    everything = dataclasses.replace(study, name="everything")
    lines = invoke([later, everything], *words, "--seeds", "1", "--variants", "sinusoidal,rope")[1].splitlines()
    assert lines[-1].startswith("0 trained")
    assert results(tmp_path, "everything")["tally"]["finished"] == 2


def test_a_report_that_cannot_be_written_stops_no_training(
    invoke: Callable[..., tuple[int, str]], study: Study, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformer_ablate.run import reporting

    longer = tuple(dataclasses.replace(c, delta={**c.delta, "train.max_steps": 7}) for c in study.cells)
    later = dataclasses.replace(study, name="later", cells=longer)
    write, tries = reporting.write_report, []

    def broken_once(*args: Any) -> Path:
        tries.append(args)
        if len(tries) == 1:
            raise ValueError("a drawing failed")
        return write(*args)

    monkeypatch.setattr(reporting, "write_report", broken_once)
    status, out = invoke([study, later], "--seeds", "1", "--workers", "1")
    assert status == 0
    assert out.splitlines()[-1] == "4 trained, 0 reused, 0 failed"
    assert out.count("report.html") == 2


def test_equal_seeds_give_equal_results(
    invoke: Callable[..., tuple[int, str]], study: Study, store: Store, tmp_path: Path
) -> None:
    invoke([study], "--seeds", "2", "--variants", "rope")
    first = results(tmp_path)["variants"]["rope"]["metrics"]
    invoke([study], "--seeds", "2", "--variants", "rope", "--fresh", "--workers", "2")
    again = results(tmp_path)["variants"]["rope"]["metrics"]
    exact = [name for name in first if "second" not in name]
    assert {name: first[name]["values"] for name in exact} == {name: again[name]["values"] for name in exact}
    assert all(re.fullmatch(r"[/\w.\- ]+", name) for name in first)  # MLflow refuses other names
    one, two = first["copy/initial_nll"]["values"]
    assert one != two  # seeds differ


def test_studies_share_runs_and_each_experiment_is_complete(
    invoke: Callable[..., tuple[int, str]], make_tiny_study: Callable[..., Study], store: Store, tmp_path: Path
) -> None:
    status, out = invoke([make_tiny_study("first"), make_tiny_study("second", ("copy", "sort"))])
    assert status == 0
    assert out.splitlines()[-1] == "4 trained, 0 reused, 0 failed"
    runs = store.client.search_runs([store.open_experiment("second")], "tags.kind != 'invocation'")
    shared = [run for run in runs if "shared_from" in run.data.tags]
    assert len(runs) == 4
    assert len(shared) == 2
    source = store.client.get_run(shared[0].data.tags["shared_from"])
    assert source.data.tags["study"] == "first"
    assert shared[0].data.metrics["em/1"] == source.data.metrics["em/1"]
    assert results(tmp_path, "second")["variants"]["rope"]["metrics"]["copy/em/1"]["n"] == 1


def test_report_only_trains_nothing_and_says_what_is_missing(
    invoke: Callable[..., tuple[int, str]], study: Study, tmp_path: Path
) -> None:
    invoke([study], "--variants", "rope")
    status, out = invoke([study], "--report-only")
    assert out.splitlines()[-1] == "0 trained, 1 reused, 0 failed"
    assert status == 0
    failed = results(tmp_path)["variants"]["sinusoidal"]["failed"]
    assert [(entry["seed"], entry["status"]) for entry in failed] == [(0, "missing")]


def test_runs_of_one_name_in_two_studies_are_kept_apart(
    invoke: Callable[..., tuple[int, str]], make_tiny_study: Callable[..., Study], tmp_path: Path
) -> None:
    one, two = make_tiny_study("one"), make_tiny_study("two")
    longer = tuple(dataclasses.replace(c, delta={**c.delta, "train.max_steps": 7}) for c in two.cells)
    status, out = invoke([one, dataclasses.replace(two, cells=longer)], "--variants", "rope", "--workers", "2")
    assert status == 0
    assert out.splitlines()[-1] == "2 trained, 0 reused, 0 failed"
    assert "two" in (tmp_path / "reports" / "smoke" / "index.html").read_text().lower()


@pytest.mark.slow  # half a minute for processes that start others
def test_loader_processes_change_nothing(invoke: Callable[..., tuple[int, str]], study: Study, tmp_path: Path) -> None:
    invoke([study], "--variants", "rope")
    first = results(tmp_path)["variants"]["rope"]["metrics"]["copy/final_nll"]["values"]
    _, out = invoke([study], "--variants", "rope", "--fresh", "--data.loader_workers", "2")
    assert out.splitlines()[-1] == "1 trained, 0 reused, 0 failed"
    assert results(tmp_path)["variants"]["rope"]["metrics"]["copy/final_nll"]["values"] == first


def test_a_store_or_folder_that_cannot_be_used_is_told_before_training(
    study: Study, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    for words in (
        ["--tracking-uri", f"file:{tmp_path}/mlruns", "--output", str(tmp_path)],
        ["--tracking-uri", "somewhere", "--output", str(tmp_path)],
        ["--tracking-uri", f"sqlite:///{occupied}/x.db", "--output", str(tmp_path)],
        ["--tracking-uri", uri, "--output", str(occupied)],
    ):
        assert cli.run([study], ["--preset", "smoke", *words], "x") == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert err.startswith(("error: --tracking-uri: got", "error: --output: got"))


def test_four_workers_on_a_fresh_database(
    study: Study, fresh_uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--preset", "smoke", "--tracking-uri", fresh_uri, "--output", str(tmp_path / "reports")]
    assert cli.run([study], [*words, "--seeds", "4", "--variants", "rope", "--workers", "4"], "x") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "4 trained, 0 reused, 0 failed"
    assert len([e for e in Store(fresh_uri).client.search_experiments() if e.name == "tiny"]) == 1


@pytest.mark.parametrize("fail_fast", [False, True])
def test_failures_are_counted_and_may_end_the_sweep(
    study: Study, store: Store, tmp_path: Path, fail_fast: bool
) -> None:
    plan = make_plan(study, "smoke")
    first, second = plan.runs
    # Data that are no longer what the plan saw fail where the run loads them.
    plan = dataclasses.replace(plan, runs=(dataclasses.replace(first, data_hash="another"), second))
    tally = run_sweep([plan], Options(1, store.uri, tmp_path, fail_fast=fail_fast))
    assert (tally.trained, tally.reused, tally.failed) == (0 if fail_fast else 1, 0, 1)
    one, other = store.records(plan.runs)
    assert (one.status, other.status) == ("failed", "missing" if fail_fast else "finished")
    assert "plan again" in one.error
    (invocation,) = store.client.search_runs([store.open_experiment("tiny")], "tags.kind = 'invocation'")
    assert (invocation.info.status, invocation.data.metrics["failed"]) == ("FAILED", 1)


OWN_STUDY = """
import sys
sys.path.insert(0, {tests!r})
from conftest import tiny_study
from transformer_ablate.cli import main

STUDY = tiny_study("own")
if __name__ == "__main__":
    main([STUDY])
"""


def test_the_printed_command_repeats_a_study_of_ones_own(uri: str, tmp_path: Path) -> None:
    (tmp_path / "my study.py").write_text(OWN_STUDY.format(tests=str(Path(__file__).parent)))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python_path = str(Path(__file__).parents[2])

    def shell(command: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True,
            env={**os.environ, "PATH": path, "PYTHONPATH": python_path},
        )  # fmt: skip
        return done.stdout.splitlines()

    options = ("--preset", "smoke", "--variants", "rope", "--tracking-uri", uri, "--output", "reports")
    assert shell(shlex.join(["python", "my study.py", *options]))[-1] == "1 trained, 0 reused, 0 failed"
    command = results(tmp_path, "own")["environment"]["command"]
    assert shell(command)[-1] == "0 trained, 1 reused, 0 failed"
    report = (tmp_path / "reports" / "smoke" / "own" / "report.md").read_text()
    assert f"To repeat it:\n\n    {command}\n" in report


def test_a_module_is_repeated_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from transformer_ablate.record.environment import repeated_command\nprint(repeated_command())\n"
    )
    words = ["-m", "own", "--seed-list", "0,1", "--model.position_options", "{base: 100}"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    told = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert told.stdout == "python -m own --seed-list 0,1 --model.position_options '{base: 100}'\n"


class Watcher:
    """An observer that remembers, and may kill the process that it hears of."""

    def __init__(self, kills: int = 0, go_on: bool = True) -> None:
        self.kills, self.go_on = kills, go_on
        self.begun: list[str] = []
        self.outcomes: dict[str, str] = {}

    def started(self, planned: PlannedRun) -> None:
        self.begun.append(planned.name)

    def progress(self, planned: PlannedRun, step: int, loss: float) -> None:
        if self.kills:
            self.kills -= 1
            (child,) = multiprocessing.active_children()
            os.kill(child.pid or 0, signal.SIGKILL)

    def ended(self, planned: PlannedRun, error: str) -> bool:
        self.outcomes[planned.name] = error
        return self.go_on or not error


@pytest.fixture
def launch(study: Study, store: Store) -> Callable[..., dict[str, str]]:
    """Runs the tiny study's two arms one after the other; the arms in ``broken`` get a run that does not exist."""

    def call(watcher: Watcher, broken: tuple[str, ...] = (), steps: int = 6) -> dict[str, str]:
        plan = make_plan(study, "smoke", overrides={"train.max_steps": steps})
        parent = store.start_invocation(plan, "command", {})

        def prepare(planned: PlannedRun) -> Job:
            run_id = "nowhere" if planned.variant in broken else store.start_run(planned, parent, {})
            return Job(planned, run_id, store.uri, "cpu")

        LocalLauncher(1, [run.recipe.data for run in plan.runs]).run(plan.runs, prepare, watcher)
        return {name.split("/")[1]: error for name, error in watcher.outcomes.items()}

    return call


def test_a_run_that_raises_ends_alone_and_tells_why(launch: Callable[..., dict[str, str]]) -> None:
    outcomes = launch(Watcher(), broken=("sinusoidal",))
    assert "nowhere" in outcomes["sinusoidal"]
    assert "Traceback" in outcomes["sinusoidal"]
    assert outcomes["rope"] == ""


def test_fail_fast_starts_nothing_more(launch: Callable[..., dict[str, str]]) -> None:
    assert set(launch(Watcher(go_on=False), broken=("sinusoidal",))) == {"sinusoidal"}


def test_a_killed_process_is_tried_once_more(launch: Callable[..., dict[str, str]]) -> None:
    watcher = Watcher(kills=1)
    outcomes = launch(watcher, steps=60)
    assert outcomes == {"sinusoidal": "", "rope": ""}
    assert len(watcher.begun) == 2


def test_a_process_that_is_killed_twice_has_failed(launch: Callable[..., dict[str, str]]) -> None:
    outcomes = launch(Watcher(kills=2), steps=60)
    assert "exit code -9, 2 tries" in outcomes["sinusoidal"]
    assert outcomes["rope"] == ""
