"""The record of all runs: the only file that knows MLflow.

An MLflow experiment is a study, a parent run one invocation, a child run one arm in one cell with one seed. A run's
identity is its ``fingerprint`` tag; parameters are for people, since they are strings and may be cut.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import math
import os
import socket
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import mlflow
from mlflow.entities import Metric, Param, Run, RunStatus, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from transformer_ablate.metrics.catalogue import drawn_artifacts
from transformer_ablate.paths import project_root, source_hash
from transformer_ablate.record.records import RunRecord
from transformer_ablate.study.declarations import USUAL_MEASURES
from transformer_ablate.study.plan import Plan, PlannedRun, Trained

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # "Creating initial database tables" is nobody's news

StoreError = MlflowException
"""What a store raises that does not answer as it should."""

RESULT_FILE = "result.json"
CHECKPOINT = "model.ckpt"
MEASURES_TAG = "measures"
METRICS_A_CALL = 900  # MLflow takes 1000 at most
FINISHED, FAILED, KILLED, RUNNING = (
    RunStatus.to_string(s) for s in (RunStatus.FINISHED, RunStatus.FAILED, RunStatus.KILLED, RunStatus.RUNNING)
)
# Tags that say what made a run; a copy in another study keeps them.
MADE_BY = ("commit", "source_hash", "versions", "hardware")
STATUS_NAMES = {FINISHED: "finished", FAILED: "failed", KILLED: "interrupted"}


def default_uri() -> str:
    """``MLFLOW_TRACKING_URI`` as it is now, or the project's own SQLite file, which ``mlflow ui`` finds by itself."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{project_root() / 'mlflow.db'}"


def store_exists(uri: str | None) -> bool:
    """Whether there may be something to read, without making a database."""
    path = (uri or default_uri()).removeprefix("sqlite:///")
    return "://" in path or Path(path).is_file()


def preload() -> None:
    """Loads what MLflow puts off until a database is opened: two seconds that forked processes then need not spend."""
    with contextlib.suppress(ImportError):  # it is MLflow's and SQLAlchemy's business where they keep it
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
        importlib.import_module("sqlalchemy.orm").configure_mappers()


@dataclass(frozen=True)
class RunResult:
    """What a worker leaves behind.

    Attributes:
        metrics: ``METRIC[/TEST]`` to value, NaN and infinity allowed.
        curve: columns of the training curve.
        test_sets: ``(name, ratio, n)`` in order of length.
        examples: a few decoded predictions as text.
        artifacts: further tables, name to list of dictionaries.
        measures: names of what was measured.
        text_scores: rows of the table of that name, for the report; empty for tasks that are not on text.
        notes: what is known about the data, one line each.
    """

    metrics: Mapping[str, float]
    curve: Mapping[str, Sequence[float]]
    test_sets: Sequence[tuple[str, float, int]]
    examples: Sequence[Mapping[str, Any]]
    artifacts: Mapping[str, Any]
    measures: Sequence[str] = ()
    text_scores: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


class Store:
    """Reads and writes the record.

    Args:
        uri: an MLflow tracking URI; None for :func:`default_uri`.
    """

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri or default_uri()
        # A parent's run must never become the run of a worker that inherits its environment.
        os.environ.pop("MLFLOW_RUN_ID", None)
        mlflow.set_tracking_uri(self.uri)
        self.client = MlflowClient(self.uri)

    def open_experiment(self, name: str) -> str:
        """The experiment's id; makes the database and the experiment where missing.

        Called before any worker starts: several processes that migrate a fresh database at once would break it.
        """
        if self.uri.startswith("sqlite:///"):
            path = Path(self.uri.removeprefix("sqlite:///"))
            path.parent.mkdir(parents=True, exist_ok=True)
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA journal_mode=WAL")  # readers and writers do not wait for each other
        experiment = self.client.get_experiment_by_name(name)
        if experiment is not None:
            if experiment.lifecycle_stage != "active":
                self.client.restore_experiment(experiment.experiment_id)
            return str(experiment.experiment_id)
        # A local store keeps its artifacts beside the database, by an absolute path; a server decides for itself.
        location = None
        if self.uri.startswith("sqlite:///"):
            beside = Path(self.uri.removeprefix("sqlite:///")).resolve().parent
            location = (beside / "mlruns" / name).as_uri()
        try:
            return str(self.client.create_experiment(name, artifact_location=location))
        except MlflowException:
            experiment = self.client.get_experiment_by_name(name)  # another sweep was faster
            if experiment is None:
                raise
            return str(experiment.experiment_id)

    def start_invocation(self, plan: Plan, command: str, environment: Mapping[str, str]) -> str:
        """Opens the parent run of one invocation."""
        tags = {"preset": plan.preset, "command": command, "kind": "invocation", **environment}
        run = self._create(plan.study.name, f"{plan.preset} {time.strftime('%Y-%m-%d %H:%M:%S')}", tags)
        return str(run.info.run_id)

    def start_run(self, planned: PlannedRun, parent: str, environment: Mapping[str, str]) -> str:
        """Opens the child run of a planned run, with its recipe as parameters."""
        run = self._create(planned.study, planned.name, {**_tags(planned, parent), **environment})
        params = [Param(name, str(value)) for name, value in planned.recipe.flat().items()]
        self.client.log_batch(run.info.run_id, params=params)
        self.client.log_dict(run.info.run_id, planned.recipe.to_dict(), "recipe.json")
        return str(run.info.run_id)

    def log_curve(self, run_id: str, curve: Mapping[str, Sequence[float]]) -> None:
        """Adds points of the training curve; ``step`` is the column that orders them."""
        now = int(time.time() * 1000)
        self._log_metrics(
            run_id,
            [
                Metric(f"train/{name}", float(value), now, int(step))
                for name, values in curve.items()
                if name != "step"
                for step, value in zip(curve["step"], values, strict=True)
            ],
        )

    def finish_run(self, run_id: str, result: RunResult, files: Mapping[str, Path]) -> None:
        """Stores a result and its files and closes the run.

        Values that are no numbers are kept in the result's file only: the store would turn infinity into 1.8e308.
        """
        self._keep(run_id, result, _kept(result), files)
        self.client.set_terminated(run_id, FINISHED)

    def extend_run(self, run_id: str, result: RunResult) -> None:
        """Adds further measures to a finished run; what it has already stays, of its curve and examples too."""
        before = self._result(self.client.get_run(run_id))
        here = _kept(result)
        merged = {**here, **before, "metrics": {**here["metrics"], **before["metrics"]}}
        for name in ("text_scores", "notes"):
            merged[name] = before.get(name) or here.get(name) or []
        measures = dict.fromkeys([*before.get("measures", USUAL_MEASURES), *result.measures])
        merged["measures"] = list(measures)
        artifacts = {name: table for name, table in result.artifacts.items() if table}
        self._keep(run_id, replace(result, measures=tuple(measures), artifacts=artifacts), merged, {})

    def _keep(self, run_id: str, result: RunResult, kept: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        now = int(time.time() * 1000)
        last = int(result.curve["step"][-1]) if result.curve.get("step") else 0
        self._log_metrics(run_id, [Metric(k, float(v), now, last) for k, v in result.metrics.items()])
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / RESULT_FILE).write_text(json.dumps(_encode(kept), ensure_ascii=False))
            for name, table in result.artifacts.items():
                lines = (json.dumps(_encode(row), ensure_ascii=False) + "\n" for row in table)
                (Path(folder) / f"{name}.jsonl").write_text("".join(lines))
            for name, path in files.items():
                path.rename(Path(folder) / name)
            self.client.log_artifacts(run_id, folder)
        self.client.set_tag(run_id, MEASURES_TAG, ",".join(result.measures))

    def end_run(self, run_id: str, status: str, error: str = "") -> None:
        """Closes a run that has no result: ``failed`` or ``interrupted``."""
        if error:
            self.client.set_tag(run_id, "error", error[-4_000:])
        status = {name: code for code, name in STATUS_NAMES.items()}[status]
        self.client.set_terminated(run_id, status)

    def log_invocation(self, run_id: str, counts: Mapping[str, int], report: Path) -> None:
        """Adds to the parent run the number of runs trained, reused and failed, and the report."""
        self._log_metrics(run_id, [Metric(k, float(v), int(time.time() * 1000), 0) for k, v in counts.items()])
        self.client.log_artifact(run_id, str(report))

    def close_stale(self) -> int:
        """Marks runs of this machine whose process is gone as interrupted; returns how many there were."""
        stale = 0
        for run in self._search("attributes.status = 'RUNNING'"):
            tags = run.data.tags
            if tags.get("host") == socket.gethostname() and not _alive(int(tags.get("pid", 0))):
                self.end_run(run.info.run_id, "interrupted", "its process was gone")
                stale += 1
        return stale

    def latest(self, fingerprints: Iterable[str]) -> dict[str, Run]:
        """Fingerprint to its latest run in any study that finished or failed, else to its latest interrupted one.

        A finished run whose files are gone does not count: it could not be reported. Nor do copies: their source does.
        """
        wanted = set(fingerprints)
        found: dict[str, Run] = {}
        interrupted: dict[str, Run] = {}
        for run in self._search("attributes.status != 'RUNNING' and tags.kind = 'run'"):
            fingerprint = run.data.tags.get("fingerprint", "")
            if fingerprint not in wanted:
                continue
            if run.info.status == KILLED:
                interrupted.setdefault(fingerprint, run)
            elif run.info.status == FAILED or self._has_result(run):
                found.setdefault(fingerprint, run)
        return {**interrupted, **found}

    def finished(self, fingerprints: Iterable[str]) -> set[str]:
        """Those of the fingerprints whose latest run has a result."""
        return {name for name, run in self.latest(fingerprints).items() if run.info.status == FINISHED}

    def measured(self, fingerprints: Iterable[str]) -> dict[str, frozenset[str]]:
        """Those of the fingerprints whose latest run has a result, and the names of what was measured of it."""
        return {
            name: frozenset(run.data.tags.get(MEASURES_TAG, ",".join(USUAL_MEASURES)).split(","))
            for name, run in self.latest(fingerprints).items()
            if run.info.status == FINISHED
        }

    def seconds(self) -> dict[tuple[str, str, str, str], list[float]]:
        """Seconds from start to end of finished runs of this machine, by study, preset, cell and arm."""
        found: dict[tuple[str, str, str, str], list[float]] = {}
        for run in self._search("attributes.status = 'FINISHED' and tags.kind = 'run'"):
            tags = run.data.tags
            if tags.get("host") == socket.gethostname() and run.info.end_time:
                study, preset, cell, arm = (tags.get(name, "") for name in ("study", "preset", "cell", "variant"))
                place = study, preset, cell, arm
                found.setdefault(place, []).append((run.info.end_time - run.info.start_time) / 1000)
        return found

    def trained(self, fingerprint: str) -> tuple[str, Trained]:
        """The id of a finished run, its checkpoint on this machine and its curve.

        Raises:
            KeyError: where there is no such run.
            StoreError: where its checkpoint cannot be fetched.
        """
        run = self.latest([fingerprint])[fingerprint]
        location = f"{run.info.artifact_uri}/{CHECKPOINT}"
        checkpoint = local_path(location) or Path(mlflow.artifacts.download_artifacts(location, tracking_uri=self.uri))
        return str(run.info.run_id), Trained(checkpoint, self._result(run)["curve"])

    @staticmethod
    def _has_result(run: Run) -> bool:
        path = local_path(f"{run.info.artifact_uri}/{RESULT_FILE}")
        return path is None or path.is_file()

    def share(self, planned_runs: Sequence[PlannedRun], parent: str) -> None:
        """Enters into a study what it took from others: children that copy the figures and name their source."""
        latest = self.latest(planned.fingerprint for planned in planned_runs)
        copies = self._search("tags.kind = 'copy'")
        entered = {(copy.data.tags["study"], copy.data.tags["shared_from"]): copy for copy in copies}
        for planned in {planned.fingerprint: planned for planned in planned_runs}.values():
            run = latest.get(planned.fingerprint)
            if run is None or run.info.status != FINISHED or run.data.tags.get("study") == planned.study:
                continue
            copy = entered.get((planned.study, run.info.run_id))
            if copy is None:
                self._copy(run, planned, parent)
            elif copy.data.tags.get(MEASURES_TAG) != run.data.tags.get(MEASURES_TAG):
                self._fill(copy.info.run_id, run)  # more has been measured of it since

    def _copy(self, run: Run, planned: PlannedRun, parent: str) -> None:
        made = {name: value for name, value in run.data.tags.items() if name in MADE_BY}
        tags = {**_tags(planned, parent), **made, "kind": "copy", "shared_from": run.info.run_id}
        copy = self._create(planned.study, planned.name, tags)
        self.client.log_batch(copy.info.run_id, params=[Param(k, v) for k, v in run.data.params.items()])
        self._fill(copy.info.run_id, run)
        self.client.set_terminated(copy.info.run_id, FINISHED)

    def _fill(self, copy_id: str, run: Run) -> None:
        """Gives a copy the figures of its source."""
        now = int(time.time() * 1000)
        self._log_metrics(copy_id, [Metric(k, v, now, 0) for k, v in run.data.metrics.items()])
        self.client.log_dict(copy_id, self._result(run), RESULT_FILE)
        self.client.set_tag(copy_id, MEASURES_TAG, run.data.tags.get(MEASURES_TAG, ",".join(USUAL_MEASURES)))

    def records(self, runs: Iterable[PlannedRun]) -> list[RunRecord]:
        """What the store holds of planned runs: for each the latest that ended, whatever its outcome."""
        runs = list(runs)
        latest = self.latest(planned.fingerprint for planned in runs)
        return [self._record(planned, latest.get(planned.fingerprint)) for planned in runs]

    def _record(self, planned: PlannedRun, run: Run | None) -> RunRecord:
        place: dict[str, Any] = {
            "variant": planned.variant,
            "cell": planned.cell,
            "seed": planned.seed,
            "fingerprint": planned.fingerprint,
            "base": planned.base,
            "delta": planned.delta,
        }
        if run is None:
            return RunRecord(**place, status="missing")
        made_by = {name: run.data.tags.get(name, "") for name in MADE_BY}
        known: dict[str, Any] = {"run_id": run.info.run_id, "made_by": made_by}
        if run.info.status != FINISHED:
            error = run.data.tags.get("error", "").strip().rpartition("\n")[2]
            return RunRecord(**place, **known, status=STATUS_NAMES[run.info.status], error=error)
        result = self._result(run)
        return RunRecord(
            **place,
            **known,
            status="finished",
            metrics={name: float(value) for name, value in result["metrics"].items()},
            curve={name: [float(v) for v in values] for name, values in result["curve"].items()},
            test_sets=[(str(name), float(ratio), int(n)) for name, ratio, n in result["test_sets"]],
            examples=result["examples"],
            text_scores=result.get("text_scores", ()),  # results of older versions have neither
            data_notes=result.get("notes", ()),
            tables=self._tables(run),
        )

    def _tables(self, run: Run) -> dict[str, list[dict[str, Any]]]:
        """The artifacts of a run that reports draw, as far as they are there."""
        found = {}
        measured = run.data.tags.get(MEASURES_TAG, "").split(",")
        for name in (table for measure, table in drawn_artifacts().items() if measure in measured):
            location = f"{run.info.artifact_uri}/{name}.jsonl"
            path = local_path(location) or Path(mlflow.artifacts.download_artifacts(location, tracking_uri=self.uri))
            if path.is_file():
                found[name] = [json.loads(line) for line in path.read_text().splitlines()]
        return found

    def _result(self, run: Run) -> dict[str, Any]:
        location = f"{run.info.artifact_uri}/{RESULT_FILE}"
        path = local_path(location) or Path(mlflow.artifacts.download_artifacts(location, tracking_uri=self.uri))
        loaded: dict[str, Any] = json.loads(path.read_text())
        return loaded

    def _create(self, study: str, name: str, tags: Mapping[str, str]) -> Run:
        own = {MLFLOW_RUN_NAME: name, "host": socket.gethostname(), "pid": str(os.getpid()), "study": study}
        return self.client.create_run(self.open_experiment(study), tags={**own, "source_hash": source_hash(), **tags})

    def _log_metrics(self, run_id: str, metrics: Sequence[Metric]) -> None:
        finite = [m for m in metrics if math.isfinite(m.value)]
        for start in range(0, len(finite), METRICS_A_CALL):
            self.client.log_batch(run_id, metrics=finite[start : start + METRICS_A_CALL])
        other = [RunTag(f"not_finite.{m.key}", str(m.value)) for m in metrics if not math.isfinite(m.value)]
        for start in range(0, len(other), 100):
            self.client.log_batch(run_id, tags=other[start : start + 100])

    def _search(self, filter_string: str) -> list[Run]:
        """All runs of all experiments that match, the latest start first."""
        experiments = [e.experiment_id for e in self.client.search_experiments()]
        found: list[Run] = []
        token = None
        while experiments:
            page = self.client.search_runs(
                experiments, filter_string, ViewType.ACTIVE_ONLY, 1_000, ["attributes.start_time DESC"], token
            )
            found.extend(page)
            token = page.token
            if not token:
                break
        return found


def _kept(result: RunResult) -> dict[str, Any]:
    """What a result's file holds."""
    return {
        "metrics": result.metrics,
        "curve": result.curve,
        "test_sets": result.test_sets,
        "examples": result.examples,
        "measures": list(result.measures),
        "text_scores": list(result.text_scores),
        "notes": list(result.notes),
    }


def local_path(location: str) -> Path | None:
    """The path that a ``file:`` address means, in which blanks and the like are written as %20; None for others."""
    parts = urlparse(location)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _tags(planned: PlannedRun, parent: str) -> dict[str, str]:
    return {
        MLFLOW_PARENT_RUN_ID: parent,
        "kind": "run",
        "preset": planned.preset,
        "task": planned.recipe.data.task,
        "cell": planned.cell,
        "variant": planned.variant,
        "seed": str(planned.seed),
        "fingerprint": planned.fingerprint,
        "data_hash": planned.data_hash,
    }


def _encode(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become the strings that ``float`` reads."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    return value


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
