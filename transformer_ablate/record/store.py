"""The record of all runs, and how it is written: with ``reading`` the only file that knows MLflow.

An MLflow experiment is a study, a parent run one invocation, a child run one arm in one cell with one seed. A run's
identity is its ``fingerprint`` tag; parameters are for people, since they are strings and may be cut.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import socket
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME

from transformer_ablate.record.reading import (
    FINISHED,
    MADE_BY,
    MEASURES_TAG,
    RESULT_FILE,
    STATUS_NAMES,
    Reader,
    measures_of,
)
from transformer_ablate.record.records import Result, to_json
from transformer_ablate.record.source import source_hash
from transformer_ablate.study.plan import Plan, PlannedRun

for _name in ("mlflow", "alembic"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # "Creating initial database tables" is nobody's news

StoreError = MlflowException
"""What a store raises that does not answer as it should."""

METRICS_A_CALL, TAGS_A_CALL = 900, 100  # MLflow takes 1000 and 100 at most


def preload() -> None:
    """Loads what MLflow puts off until a database is opened: two seconds that forked processes then need not spend."""
    with contextlib.suppress(ImportError):  # it is MLflow's and SQLAlchemy's business where they keep it
        importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
        importlib.import_module("sqlalchemy.orm").configure_mappers()


class Store(Reader):
    """Writes the record, and reads it."""

    def __init__(self, uri: str | None = None) -> None:
        # A parent's run must never become the run of a worker that inherits its environment.
        os.environ.pop("MLFLOW_RUN_ID", None)
        super().__init__(uri)

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
        self._log(
            run_id,
            [
                Metric(f"train/{name}", float(value), now, int(step))
                for name, values in curve.items()
                if name != "step"
                for step, value in zip(curve["step"], values, strict=True)
            ],
        )

    def finish_run(self, run_id: str, result: Result, files: Mapping[str, Path]) -> None:
        """Stores a result and its files and closes the run.

        Values that are no numbers are kept in the result's file only: the store would turn infinity into 1.8e308.
        """
        self._keep(run_id, result, result.metrics, files)
        self.client.set_terminated(run_id, FINISHED)

    def extend_run(self, run_id: str, further: Result) -> None:
        """Adds further measures to a finished run; what it has already stays."""
        before = self._result(self.client.get_run(run_id))
        added = {name: value for name, value in further.metrics.items() if name not in before.metrics}
        self._keep(run_id, before.extended(further), added, {})

    def _keep(self, run_id: str, result: Result, metrics: Mapping[str, float], files: Mapping[str, Path]) -> None:
        self._log_metrics(run_id, metrics, int(result.curve["step"][-1]) if result.curve.get("step") else 0)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / RESULT_FILE).write_text(result.to_json())
            for name, rows in result.tables.items():
                (Path(folder) / f"{name}.jsonl").write_text("".join(to_json(row) + "\n" for row in rows))
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
        self._log_metrics(run_id, counts)
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
        self._log_metrics(copy_id, run.data.metrics)
        self.client.log_text(copy_id, self._result(run).to_json(), RESULT_FILE)
        self.client.set_tag(copy_id, MEASURES_TAG, ",".join(measures_of(run)))

    def _create(self, study: str, name: str, tags: Mapping[str, str]) -> Run:
        own = {MLFLOW_RUN_NAME: name, "host": socket.gethostname(), "pid": str(os.getpid()), "study": study}
        return self.client.create_run(self.open_experiment(study), tags={**own, "source_hash": source_hash(), **tags})

    def _log_metrics(self, run_id: str, metrics: Mapping[str, float], step: int = 0) -> None:
        now = int(time.time() * 1000)
        self._log(run_id, [Metric(name, float(value), now, step) for name, value in metrics.items()])

    def _log(self, run_id: str, metrics: Sequence[Metric]) -> None:
        finite = [m for m in metrics if math.isfinite(m.value)]
        for start in range(0, len(finite), METRICS_A_CALL):
            self.client.log_batch(run_id, metrics=finite[start : start + METRICS_A_CALL])
        other = [RunTag(f"not_finite.{m.key}", str(m.value)) for m in metrics if not math.isfinite(m.value)]
        for start in range(0, len(other), TAGS_A_CALL):
            self.client.log_batch(run_id, tags=other[start : start + TAGS_A_CALL])


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


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid > 0
