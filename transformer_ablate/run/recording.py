"""What is done as runs begin and end: they are opened and closed in the store, counted and shown."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from transformer_ablate.record.store import Store
from transformer_ablate.run.display import Display
from transformer_ablate.run.launchers import Job
from transformer_ablate.study.plan import PlannedRun


@dataclass
class Recording:
    """Observer of a launcher that keeps the store and the counts, and tells the display.

    Attributes:
        store: the record.
        parents: study to the id of this invocation's run in it.
        environment: what made the runs, as text.
        accelerator: ``cpu`` or ``gpu``.
        lacking: fingerprints of what is trained already and only measured further.
        display: shows it.
        tell: is told the fingerprint of each run that has ended, well or not.
        fail_fast: whether the first failure ends the sweep.
        trained, measured, failed: how many runs have ended so.
    """

    store: Store
    parents: Mapping[str, str]
    environment: Mapping[str, str]
    accelerator: str
    lacking: Container[str]
    display: Display
    tell: Callable[[str], None]
    fail_fast: bool = False
    trained: int = 0
    measured: int = 0
    failed: int = 0
    _open: dict[str, str] = field(default_factory=dict)  # by fingerprint: names are unique within one study only

    def prepare(self, planned: PlannedRun) -> Job:
        """Opens a run in the store; one that is prepared a second time has lost its process."""
        where = self.store.uri, self.accelerator
        if planned.fingerprint in self.lacking:
            run_id, checkpoint, result = self.store.trained(planned.fingerprint)
            return Job(planned, run_id, *where, checkpoint, result.curve)
        if planned.fingerprint in self._open:
            self.store.end_run(
                self._open[planned.fingerprint], "interrupted", "its process died; it is tried once more"
            )
        run_id = self.store.start_run(planned, self.parents[planned.study], self.environment)
        self._open[planned.fingerprint] = run_id
        return Job(planned, run_id, *where)

    def started(self, planned: PlannedRun) -> None:
        """See :class:`Observer`."""
        self.display.started(planned)

    def progress(self, planned: PlannedRun, step: int, loss: float) -> None:
        """See :class:`Observer`."""
        self.display.progress(planned, step, loss)

    def ended(self, planned: PlannedRun, error: str) -> bool:
        """See :class:`Observer`."""
        run_id = self._open.pop(planned.fingerprint, None)  # none for a run that was only measured
        if error:
            self.failed += 1
            if run_id is not None:
                self.store.end_run(run_id, "failed", error)
        elif run_id is None:
            self.measured += 1
        else:
            self.trained += 1
        self.display.ended(planned, error, self.trained + self.measured + self.failed)
        self.tell(planned.fingerprint)
        return not (error and self.fail_fast)

    def close(self) -> None:
        """Marks what is still open as interrupted."""
        for run_id in self._open.values():
            self.store.end_run(run_id, "interrupted")
