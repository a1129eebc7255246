"""One invocation: plan the studies, train what is missing, record it, write the reports."""

from __future__ import annotations

import dataclasses
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_ablate.data import load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.record.environment import describe, repeated_command
from transformer_ablate.record.reading import default_uri, store_exists
from transformer_ablate.record.store import Store, StoreError
from transformer_ablate.run.display import Display, duration
from transformer_ablate.run.estimate import Place, cell_costs, print_estimate
from transformer_ablate.run.launchers import LocalLauncher
from transformer_ablate.run.rates import best_factors, grid_plan, with_rates
from transformer_ablate.run.recording import Recording
from transformer_ablate.run.reporting import Reports
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


def describe_plan(plan: Plan) -> str:
    """A few lines: runs, updates, what is known of the data, and what is skipped."""
    study = plan.study
    lines = [f"{study.name}: {study.question}", f"preset {plan.preset}: {len(plan.runs)} runs"]
    for name in dict.fromkeys(run.cell for run in plan.runs):
        runs = [run for run in plan.runs if run.cell == name]
        arms, seeds = len({r.variant for r in runs}), len({r.seed for r in runs})
        updates = sum(run.recipe.train.max_steps for run in runs)
        lines.append(f"  {name}: {arms} arms x {seeds} seeds, {updates:,} updates")
        lines += [f"    {note}" for note in load_task(runs[0].recipe.data).notes]
    reasons: dict[str, list[str]] = {}
    for name, reason in plan.skipped:
        reasons.setdefault(reason, []).append(name)
    lines += [f"  skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "\n".join(lines)


def estimate(plans: Sequence[Plan], options: Options) -> str:
    """What the missing runs of all plans will take, from what is known of earlier ones; nothing is written.

    A store that is not there yet is not made.
    """
    every = _in_order(plans)
    past: dict[Place, list[float]] = {}
    have: Mapping[str, object] = {}
    if store_exists(options.tracking_uri):
        store = open_store(options.tracking_uri, [])
        try:
            have, past = store.measured(run.fingerprint for run in every), store.seconds()
        except (StoreError, OSError, sqlite3.Error) as error:
            raise _unusable(store.uri, error) from error
    missing = [run for run in every if options.fresh or run.fingerprint not in have]
    if options.report_only or not missing:
        return f"estimate: nothing to train, {len(every)} runs are there"
    return print_estimate(plans, cell_costs(missing, past), options.workers)


def choose_rates(plans: Sequence[Plan], factors: Sequence[float], options: Options) -> tuple[list[Plan], Tally]:
    """Trains every arm with every rate of a grid at the first seed; the plans with the best rates, and what was done.

    Raises:
        ConfigError, KeyboardInterrupt: see :func:`run_sweep`.
    """
    grids = [grid_plan(plan, factors) for plan in plans]
    tally = run_sweep(grids, options, reports=False)
    store = open_store(options.tracking_uri, [])
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
    every = _in_order(plans)
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


def open_store(uri: str | None, experiments: Sequence[str]) -> Store:
    """The store, with an experiment for each study.

    Raises:
        ConfigError: where it does not answer, or is of a kind that MLflow has given up.
    """
    uri = uri or default_uri()
    if "://" not in uri or uri.startswith("file:"):
        raise _unusable(uri)
    try:
        store = Store(uri)
        for name in experiments:
            store.open_experiment(name)
    except (StoreError, OSError, sqlite3.Error) as error:
        raise _unusable(uri, error) from error
    return store


def _unusable(uri: str, error: Exception | None = None) -> ConfigError:
    allowed = "sqlite:///FILE or the address of an MLflow server that answers"
    return ConfigError("--tracking-uri", uri, allowed, str(error).splitlines()[0] if error else "")


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


def _in_order(plans: Sequence[Plan]) -> list[PlannedRun]:
    """Every fingerprint once, at its first place, seed by seed within a study, with what any study measures of it.

    Runs that need the machine to themselves come last.
    """
    first: dict[str, PlannedRun] = {}
    for plan in plans:
        for run in plan.runs:
            known = first.get(run.fingerprint)
            if known is None:
                first[run.fingerprint] = run
            else:
                every = tuple(dict.fromkeys([*known.measures, *run.measures]))
                first[run.fingerprint] = dataclasses.replace(known, measures=every)
    return sorted(first.values(), key=lambda run: run.exclusive)
