"""One invocation: plan the studies, train what is missing, record it, write the reports."""

from __future__ import annotations

import dataclasses
import shlex
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_ablate.data import load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.record.environment import describe
from transformer_ablate.record.records import StudyRecord
from transformer_ablate.record.store import Store, StoreError, default_uri, store_exists
from transformer_ablate.report.render import write_overview, write_report
from transformer_ablate.run.display import Display, duration
from transformer_ablate.run.estimate import Place, cell_costs, print_estimate
from transformer_ablate.run.launchers import LocalLauncher
from transformer_ablate.run.rates import best_factors, grid_plan, with_rates
from transformer_ablate.study.plan import Job, Plan, PlannedRun
from transformer_ablate.verdicts.checks import run_checks


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
        accelerator, devices: as Lightning names them.
    """

    workers: int
    tracking_uri: str | None
    output: Path
    fresh: bool = False
    fail_fast: bool = False
    report_only: bool = False
    accelerator: str = "auto"
    devices: int = 1


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
    have: set[str] = set()
    if store_exists(options.tracking_uri):
        store = open_store(options.tracking_uri, [])
        try:
            have, past = store.finished(run.fingerprint for run in every), store.seconds()
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
    command = shlex.join(["python", "-m", *_module_words()])
    environment = describe()
    parents = {plan.study.name: store.start_invocation(plan, command, environment) for plan in plans}
    display = Display(len(missing) + len(lacking), options.workers, options.fail_fast)
    status = "failed"
    written: dict[str, Path] = {}

    def report(plan: Plan) -> None:
        name = plan.study.name
        store.share(plan.runs, parents[name])
        record = study_record(plan, store, {**environment, "command": command}, options.accelerator == "gpu")
        written[name] = write_report(record, options.output / plan.preset / name)
        write_overview(options.output / plan.preset)
        display.console.print(f"report: {written[name]}")

    finishing = Finishing(plans if reports else (), report)
    try:
        if missing or lacking:
            _train(missing, lacking, store, parents, environment, options, display, finishing)
        reused = len(have.keys() - {run.fingerprint for run in missing})
        tally = Tally(display.ok - display.measured, reused, display.failed)
        for plan in plans if reports else ():
            if plan.study.name not in written:
                report(plan)
            store.log_invocation(parents[plan.study.name], dataclasses.asdict(tally), written[plan.study.name])
        status = "failed" if display.failed else "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        for parent in parents.values():
            store.end_run(parent, status)
    if reports:
        display.console.print(f"overview: {options.output / plans[0].preset / 'index.html'}")
    return tally


class Finishing:
    """Writes each study's report as soon as the last of its runs has ended, while those of other studies go on.

    Args:
        plans: of all studies.
        report: writes the report of one; where that fails it is left for the end.
    """

    def __init__(self, plans: Sequence[Plan], report: Callable[[Plan], None]) -> None:
        self._plans, self._report = plans, report
        self._waiting: dict[str, set[str]] = {}

    def begin(self, fingerprints: Iterable[str]) -> None:
        """These runs are still to come; studies that wait for none are reported now."""
        coming = set(fingerprints)
        for plan in self._plans:
            self._waiting[plan.study.name] = {run.fingerprint for run in plan.runs} & coming
            self._report_if_complete(plan)

    def ended(self, fingerprint: str) -> None:
        """One of them has ended, well or not."""
        for plan in self._plans:
            waiting = self._waiting[plan.study.name]
            if fingerprint in waiting:
                waiting.remove(fingerprint)
                self._report_if_complete(plan)

    def _report_if_complete(self, plan: Plan) -> None:
        if not self._waiting[plan.study.name]:
            try:
                self._report(plan)
            except Exception as error:  # what trains goes on; the report is tried again at the end
                print(f"the report of {plan.study.name} waits: {error}", file=sys.stderr, flush=True)


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


def study_record(plan: Plan, store: Store, environment: dict[str, str], cuda: bool) -> StudyRecord:
    """What the report is made from: exactly the runs of the plan's fingerprints, and the claims' exact checks."""
    return StudyRecord(
        plan.study,
        plan.preset,
        store.records(plan.runs),
        plan.skipped,
        plan.bases,
        environment,
        run_checks(plan.study.claims, plan.bases),
        cuda,
    )


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


def _train(
    missing: Sequence[PlannedRun],
    lacking: Mapping[str, PlannedRun],
    store: Store,
    parents: dict[str, str],
    environment: dict[str, str],
    options: Options,
    display: Display,
    finishing: Finishing,
) -> None:
    open_runs: dict[str, str] = {}  # by fingerprint: names are unique within one study only

    def prepare(planned: PlannedRun) -> Job:
        if planned.fingerprint in lacking:
            run_id, trained = store.trained(planned.fingerprint)
            return Job(planned, run_id, store.uri, options.accelerator, options.devices, trained)
        if planned.fingerprint in open_runs:
            store.end_run(open_runs[planned.fingerprint], "interrupted", "its process died; it is tried once more")
        run_id = store.start_run(planned, parents[planned.study], environment)
        open_runs[planned.fingerprint] = run_id
        return Job(planned, run_id, store.uri, options.accelerator, options.devices)

    class Recording:
        """Passes on to the display, and closes in the store what ended without a result."""

        started, progress = staticmethod(display.started), staticmethod(display.progress)

        @staticmethod
        def ended(planned: PlannedRun, error: str) -> bool:
            run_id = open_runs.pop(planned.fingerprint, None)  # none for a run that was only measured
            if error and run_id is not None:
                store.end_run(run_id, "failed", error)
            display.measured += planned.fingerprint in lacking and not error
            go_on = display.ended(planned, error)
            finishing.ended(planned.fingerprint)
            return go_on

    display.console.print(f"{len(missing)} runs to train, {options.workers} at a time")
    if lacking:
        display.console.print(f"{len(lacking)} trained runs to measure further")
    every = sorted([*lacking.values(), *missing], key=lambda run: run.exclusive)
    finishing.begin(run.fingerprint for run in every)
    began = time.monotonic()
    launcher = LocalLauncher(options.workers, (run.recipe.data for run in every))
    try:
        with display:
            launcher.run(every, prepare, Recording())
    finally:
        for run_id in open_runs.values():
            store.end_run(run_id, "interrupted")
    display.console.print(f"trained for {duration(time.monotonic() - began)}")


def _module_words() -> list[str]:
    """The words behind ``python -m`` that repeat this invocation."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = (spec.name if spec else "experiments").removesuffix(".__main__")
    return [name, *sys.argv[1:]]
