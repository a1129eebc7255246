"""Where runs are computed: processes of this machine."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Protocol

from transformer_ablate import plugins
from transformer_ablate.config import DataConfig
from transformer_ablate.study.plan import PlannedRun

GRACE_SECONDS = 5.0
TRIES = 2  # a process that dies without a word (killed, out of memory) is tried once more


# JSON list of data configs that the process which workers are forked from loads beforehand (see ``preload``).
PRELOAD_VARIABLE = "TRANSFORMER_ABLATE_PRELOAD"


@dataclass(frozen=True)
class Job:
    """A planned run, where to record it and on what to compute it.

    Attributes:
        planned: what to run.
        run_id, tracking_uri: the open child run in the store.
        accelerator: ``cpu`` or ``gpu``.
        checkpoint: of a run that is trained already and lacks only measures; None to train.
        curve: columns of the training curve that goes with the checkpoint.
    """

    planned: PlannedRun
    run_id: str
    tracking_uri: str
    accelerator: str
    checkpoint: Path | None = None
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Observer(Protocol):
    """Is told what happens, in the launching process."""

    def started(self, planned: PlannedRun) -> None:
        """A run has begun."""

    def progress(self, planned: PlannedRun, step: int, loss: float) -> None:
        """A run has reached an update."""

    def ended(self, planned: PlannedRun, error: str) -> bool:
        """A run has ended, ``error`` empty if well; returns whether to go on with others."""
        ...


@dataclass
class _Running:
    job: Job
    tries: int
    process: multiprocessing.process.BaseProcess
    connection: Connection
    message: tuple[object, ...] | None = field(default=None)


class LocalLauncher:
    """Runs jobs in up to ``workers`` processes at a time, each in a fresh one.

    Processes are forked from one that has the libraries and the data loaded, so that a start costs hundredths of a
    second and a crash costs one run.

    Args:
        workers: processes at a time.
        data: data configs to load beforehand.
    """

    def __init__(self, workers: int, data: Iterable[DataConfig]) -> None:
        self.workers = workers
        configs = [dataclasses.asdict(config) for config in dict.fromkeys(data)]
        os.environ[PRELOAD_VARIABLE] = json.dumps(configs)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread a process: more runs at a time beat more threads
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", "transformer_ablate.run.preload"])

    def run(self, planned: Sequence[PlannedRun], prepare: Callable[[PlannedRun], Job], observer: Observer) -> None:
        """Runs all, in order, and returns when the last has ended.

        Args:
            planned: what to run.
            prepare: opens a run in the store just before it starts; called again where a run is tried again.
            observer: see :class:`Observer`.

        A KeyboardInterrupt ends all processes within 10 seconds and is raised again.
        """
        waiting = list(reversed(planned))
        running: list[_Running] = []
        going = True
        try:
            while running or (waiting and going):
                while waiting and going and self._may_start(waiting[-1], running):
                    job = prepare(waiting.pop())
                    observer.started(job.planned)
                    running.append(self._start(job, tries=1))
                wait([r.connection for r in running] + [r.process.sentinel for r in running], timeout=1.0)
                for one in list(running):
                    self._listen(one, observer)
                    if one.process.is_alive():
                        continue
                    self._listen(one, observer)
                    running.remove(one)
                    one.connection.close()
                    if one.message is None and one.tries < TRIES:
                        running.append(self._start(prepare(one.job.planned), one.tries + 1))
                        continue
                    going = observer.ended(one.job.planned, _error(one)) and going
        except BaseException:
            _stop(running)
            raise

    def _may_start(self, planned: PlannedRun, running: Sequence[_Running]) -> bool:
        """Whether there is room; a run that needs the machine to itself waits for all others, and they for it."""
        if planned.exclusive or any(one.job.planned.exclusive for one in running):
            return not running
        return len(running) < self.workers

    def _start(self, job: Job, tries: int) -> _Running:
        here, there = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, there, os.environ.get(plugins.VARIABLE, "")))
        process.start()
        there.close()  # so that the pipe ends when the worker does
        return _Running(job, tries, process, here)

    @staticmethod
    def _listen(one: _Running, observer: Observer) -> None:
        try:
            while one.connection.poll():
                message = one.connection.recv()
                if message[0] == "progress":
                    observer.progress(one.job.planned, message[1], message[2])
                else:
                    one.message = message
        except (EOFError, OSError):
            # The other end is closed: wait for the process itself, without turning in circles meanwhile.
            one.process.join(timeout=1.0)


def _work(job: Job, connection: Connection, plugin_files: str) -> None:
    from transformer_ablate.run import worker  # Lightning's import is the worker's to pay, not the launcher's

    # The process that this one was forked from may be older than the plugins.
    os.environ[plugins.VARIABLE] = plugin_files
    plugins.load_inherited()
    worker.main(job, connection)


def _error(one: _Running) -> str:
    if one.message is None:
        return f"the process ended without a word (exit code {one.process.exitcode}, {one.tries} tries)"
    return "" if one.message[0] == "done" else str(one.message[1])


def _stop(running: Sequence[_Running]) -> None:
    for one in running:
        one.process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for one in running:
        one.process.join(max(0.0, deadline - time.monotonic()))
        if one.process.is_alive():
            one.process.kill()
            one.process.join()
