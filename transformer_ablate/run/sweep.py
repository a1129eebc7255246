"""One invocation: plan the studies, train what is missing, record it, write the reports."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_ablate.errors import ConfigError
from transformer_ablate.record.environment import describe, repeated_command
from transformer_ablate.run.display import Display, duration
from transformer_ablate.run.launchers import LocalLauncher
from transformer_ablate.run.outlook import in_order
from transformer_ablate.run.rates import best_factors, grid_plan, with_rates
from transformer_ablate.run.recording import Recording
from transformer_ablate.run.reporting import Reports
from transformer_ablate.run.stores import open_store
from transformer_ablate.study.plan import Plan, PlannedRun


@dataclass(frozen=True)
class Options:
    """How an invocation runs; what it runs is in its plans.

    Attributes:
        workers: processes at a time.
        tracking_uri: None for the default store.
        output: folder of the reports.
        fresh: train again what the store has already.
        fail_fast: stop at the first failure.
        report_only: train nothing.
        accelerator: ``cpu`` or ``gpu``.
    """

    workers: int
    tracking_uri: str | None
    output: Path
    fresh: bool = False
    fail_fast: bool = False
    report_only: bool = False
    accelerator: str = "cpu"


@dataclass(frozen=True)
class Tally:
    """Runs trained, reused and failed."""

    trained: int
    reused: int
    failed: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    def __str__(self) -> str:
        return f"{self.trained} trained, {self.reused} reused, {self.failed} failed"


def choose_rates(plans: Sequence[Plan], factors: Sequence[float], options: Options) -> tuple[list[Plan], Tally]:
    """Trains every arm with every rate of a grid at the first seed; the plans with the best rates, and what was done.

    Raises:
        ConfigError, KeyboardInterrupt: see :func:`run_sweep`.
    """
    grids = [grid_plan(plan, factors) for plan in plans]
    tally = run_sweep(grids, options, reports=False)
    store = open_store(options.tracking_uri)
    chosen = [best_factors(grid, factors, store.records(grid.runs)) for grid in grids]
    return [with_rates(plan, factors, best) for plan, best in zip(plans, chosen, strict=True)], tally


def run_sweep(plans: Sequence[Plan], options: Options, reports: bool = True) -> Tally:
    """Runs what is missing of all plans through one pool, then writes every report and the overview.

    Args:
        plans: of the studies.
        options: how.
        reports: False to train and record alone.

    Raises:
        ConfigError: for a store or an output folder that cannot be used, before anything is trained.
        KeyboardInterrupt: after all processes have ended and their runs are marked as interrupted.
    """
    _check_output(options.output)
    store = open_store(options.tracking_uri, [plan.study.name for plan in plans])
    store.close_stale()
    every = in_order(plans)
    have = store.measured(run.fingerprint for run in every)
    missing = [run for run in every if options.fresh or run.fingerprint not in have]
    lacking = {} if options.fresh else _lacking(every, have)
    if options.report_only:
        missing, lacking = [], {}
    environment, command = describe(), repeated_command()
    parents = {plan.study.name: store.start_invocation(plan, command, environment) for plan in plans}
    work = sorted([*lacking.values(), *missing], key=lambda run: run.exclusive)
    display = Display(len(work), options.workers)
    told, cuda = {**environment, "command": command}, options.accelerator == "gpu"
    reported = plans if reports else ()
    reporting = Reports(reported, store, parents, told, options.output, cuda, display.console.print)
    recording = Recording(
        store, parents, environment, options.accelerator, lacking, display, reporting.ended, options.fail_fast
    )
    status = "failed"
    try:
        if work:
            display.console.print(f"{len(missing)} runs to train, {options.workers} at a time")
            if lacking:
                display.console.print(f"{len(lacking)} trained runs to measure further")
            reporting.begin(run.fingerprint for run in work)
            _compute(work, recording, display, options.workers)
        reused = len(have.keys() - {run.fingerprint for run in missing})
        tally = Tally(recording.trained, reused, recording.failed)
        for plan in reported:
            store.log_invocation(parents[plan.study.name], dataclasses.asdict(tally), reporting.page(plan))
        status = "failed" if recording.failed else "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        for parent in parents.values():
            store.end_run(parent, status)
    if reports:
        display.console.print(f"overview: {options.output / plans[0].preset / 'index.html'}")
    return tally


def _compute(work: Sequence[PlannedRun], recording: Recording, display: Display, workers: int) -> None:
    """Trains and measures; whatever happens, no run stays open in the store."""
    began = time.monotonic()
    launcher = LocalLauncher(workers, (run.recipe.data for run in work))
    try:
        with display:
            launcher.run(work, recording.prepare, recording)
    finally:
        recording.close()
    display.console.print(f"trained for {duration(time.monotonic() - began)}")


def _check_output(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError("--output", str(folder), "a folder that can be written to", str(error)) from error


def _lacking(every: Sequence[PlannedRun], have: Mapping[str, frozenset[str]]) -> dict[str, PlannedRun]:
    """Fingerprint to run, with what is still to be measured of it, where it is trained already."""
    found = {}
    for run in every:
        if run.fingerprint in have:
            further = tuple(name for name in run.measures if name not in have[run.fingerprint])
            if further:
                found[run.fingerprint] = dataclasses.replace(run, measures=further)
    return found
