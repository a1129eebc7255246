"""What the record holds: runs by their fingerprint, and what they left behind."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

import mlflow
from mlflow.entities import Run, RunStatus
from mlflow.tracking import MlflowClient

from transformer_ablate.metrics.catalogue import drawn_artifacts
from transformer_ablate.record.place import default_uri
from transformer_ablate.record.records import Result, RunRecord
from transformer_ablate.study.declarations import USUAL_MEASURES
from transformer_ablate.study.plan import PlannedRun

RESULT_FILE = "result.json"
CHECKPOINT = "model.ckpt"
MEASURES_TAG = "measures"
FINISHED, FAILED, KILLED = (RunStatus.to_string(s) for s in (RunStatus.FINISHED, RunStatus.FAILED, RunStatus.KILLED))
STATUS_NAMES = {FINISHED: "finished", FAILED: "failed", KILLED: "interrupted"}
# Tags that say what made a run; a copy in another study keeps them.
MADE_BY = ("commit", "source_hash", "versions", "hardware")
PLACE = ("variant", "cell", "seed", "fingerprint", "base", "delta")


class Reader:
    """Reads the record.

    Args:
        uri: an MLflow tracking URI; None for :func:`default_uri`.
    """

    def __init__(self, uri: str | None = None) -> None:
        self.uri = uri or default_uri()
        self.client = MlflowClient(self.uri)

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

    def measured(self, fingerprints: Iterable[str]) -> dict[str, frozenset[str]]:
        """Those of the fingerprints whose latest run has a result, and the names of what was measured of it."""
        latest = self.latest(fingerprints).items()
        return {name: frozenset(measures_of(run)) for name, run in latest if run.info.status == FINISHED}

    def seconds(self) -> dict[tuple[str, str, str, str], list[float]]:
        """Seconds from start to end of finished runs of this machine, by study, preset, cell and arm."""
        found: dict[tuple[str, str, str, str], list[float]] = {}
        for run in self._search("attributes.status = 'FINISHED' and tags.kind = 'run'"):
            tags = run.data.tags
            if tags.get("host") == socket.gethostname() and run.info.end_time:
                study, preset, cell, arm = (tags.get(name, "") for name in ("study", "preset", "cell", "variant"))
                seconds = (run.info.end_time - run.info.start_time) / 1000
                found.setdefault((study, preset, cell, arm), []).append(seconds)
        return found

    def trained(self, fingerprint: str) -> tuple[str, Path, Result]:
        """The id of a finished run, its checkpoint on this machine and its result.

        Raises:
            KeyError: where there is no such run.
            StoreError: where its checkpoint cannot be fetched.
        """
        run = self.latest([fingerprint])[fingerprint]
        return str(run.info.run_id), self._file(run, CHECKPOINT), self._result(run)

    def records(self, runs: Iterable[PlannedRun]) -> list[RunRecord]:
        """What the store holds of planned runs: for each the latest that ended, whatever its outcome."""
        runs = list(runs)
        latest = self.latest(planned.fingerprint for planned in runs)
        return [self._record(planned, latest.get(planned.fingerprint)) for planned in runs]

    def _record(self, planned: PlannedRun, run: Run | None) -> RunRecord:
        known: dict[str, Any] = {name: getattr(planned, name) for name in PLACE}
        if run is None:
            return RunRecord(**known, status="missing")
        known |= {"run_id": run.info.run_id, "made_by": {name: run.data.tags.get(name, "") for name in MADE_BY}}
        status = STATUS_NAMES[run.info.status]
        if run.info.status != FINISHED:
            error = run.data.tags.get("error", "").strip().rpartition("\n")[2]
            return RunRecord(**known, status=status, error=error)
        return RunRecord(**known, status=status, **{**vars(self._result(run)), "tables": self._drawn(run)})

    def _drawn(self, run: Run) -> dict[str, list[dict[str, Any]]]:
        """The tables of a run that reports draw, as far as they are there."""
        known = drawn_artifacts()
        paths = {known[name]: self._file(run, f"{known[name]}.jsonl") for name in measures_of(run) if name in known}
        return {
            name: [json.loads(line) for line in path.read_text().splitlines()]
            for name, path in paths.items()
            if path.is_file()
        }

    def _result(self, run: Run) -> Result:
        return Result.from_json(self._file(run, RESULT_FILE).read_text())

    def _file(self, run: Run, name: str) -> Path:
        location = f"{run.info.artifact_uri}/{name}"
        return local_path(location) or Path(mlflow.artifacts.download_artifacts(location, tracking_uri=self.uri))

    @staticmethod
    def _has_result(run: Run) -> bool:
        path = local_path(f"{run.info.artifact_uri}/{RESULT_FILE}")
        return path is None or path.is_file()

    def _search(self, filter_string: str) -> list[Run]:
        """All runs of all experiments that match, the latest start first."""
        mlflow.set_tracking_uri(self.uri)  # what is not a client's asks the store that was named last
        found: list[Run] = mlflow.search_runs(
            search_all_experiments=True,
            filter_string=filter_string,
            order_by=["attributes.start_time DESC"],
            max_results=sys.maxsize,  # it turns pages itself, and without a number gives up at 100,000
            output_format="list",
        )
        return found


def measures_of(run: Run) -> list[str]:
    """Names of what was measured of a finished run."""
    named: str = run.data.tags.get(MEASURES_TAG, "")  # runs of older versions do not say
    return named.split(",") if named else list(USUAL_MEASURES)


def local_path(location: str) -> Path | None:
    """The path that a ``file:`` address means, in which blanks and the like are written as %20; None for others."""
    parts = urlparse(location)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None
