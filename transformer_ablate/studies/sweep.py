"""One invocation: plan the studies, train what is missing, record it, write the reports."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_ablate.report.records import RunRecord, StudyRecord
from transformer_ablate.report.render import write_overview, write_report
from transformer_ablate.studies.display import Display, duration
from transformer_ablate.studies.environment import describe
from transformer_ablate.studies.launchers import Job, LocalLauncher
from transformer_ablate.studies.plan import Plan, PlannedRun
from transformer_ablate.studies.tracking import FINISHED, Store


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

    def __str__(self) -> str:
        return f"{self.trained} trained, {self.reused} reused, {self.failed} failed"


def describe_plan(plan: Plan) -> str:
    """A few lines: runs, updates, and what is skipped."""
    study = plan.study
    lines = [f"{study.name}: {study.question}", f"preset {plan.preset}: {len(plan.runs)} runs"]
    for name in dict.fromkeys(run.cell for run in plan.runs):
        runs = [run for run in plan.runs if run.cell == name]
        arms, seeds = len({r.variant for r in runs}), len({r.seed for r in runs})
        updates = sum(run.recipe.train.max_steps for run in runs)
        lines.append(f"  {name}: {arms} arms x {seeds} seeds, {updates:,} updates")
    lines += [f"  skipped {name}: {reason}" for name, reason in plan.skipped]
    return "\n".join(lines)


def run_sweep(plans: Sequence[Plan], options: Options) -> Tally:
    """Runs what is missing of all plans through one pool, then writes every report and the overview.

    Raises:
        KeyboardInterrupt: after all processes have ended and their runs are marked as interrupted.
    """
    store = Store(options.tracking_uri)
    for plan in plans:
        store.open_experiment(plan.study.name)
    store.close_stale()
    every = {run.fingerprint: run for plan in reversed(plans) for run in reversed(plan.runs)}
    latest = store.latest(every)
    have = {f for f, runs in latest.items() if runs[0].info.status == FINISHED and not options.fresh}
    # The plans' own order: seed by seed within a study.
    missing = [run for run in _in_order(plans) if run.fingerprint not in have]
    if options.report_only:
        missing = []
    command = shlex.join(["python", "-m", *_module_words()])
    environment = describe()
    parents = {plan.study.name: store.start_invocation(plan, command, environment) for plan in plans}
    status = "failed"
    display = Display(len(missing), options.workers, options.fail_fast)
    try:
        if missing:
            _train(missing, store, parents, environment, options, display)
        for plan in plans:
            _share(plan, store, parents[plan.study.name])
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        if status != "finished":
            for parent in parents.values():
                store.end_run(parent, status)
    reused = len(every) - len(missing) if not options.report_only else len(have)
    tally = Tally(display.ok, reused, display.failed)
    entries = []
    for plan in plans:
        record = study_record(plan, store, {**environment, "command": command})
        html = write_report(record, options.output / plan.preset / plan.study.name)
        entries.append((record, html))
        counts = {"trained": tally.trained, "reused": tally.reused, "failed": tally.failed}
        store.end_invocation(parents[plan.study.name], "failed" if display.failed else "finished", counts, html)
    overview = options.output / plans[0].preset / "index.html"
    write_overview(entries, overview)
    for _, html in entries:
        display.console.print(f"report: {html}")
    display.console.print(f"overview: {overview}")
    return tally


def study_record(plan: Plan, store: Store, environment: dict[str, str]) -> StudyRecord:
    """What the report is made from: exactly the runs of the plan's fingerprints."""
    runs: list[RunRecord] = store.records(plan.runs)
    return StudyRecord(plan.study, plan.preset, runs, plan.skipped, plan.bases, environment)


def _in_order(plans: Sequence[Plan]) -> list[PlannedRun]:
    """Every fingerprint once, at its first place."""
    return list({run.fingerprint: run for plan in reversed(plans) for run in reversed(plan.runs)}.values())[::-1]


def _train(
    missing: Sequence[PlannedRun],
    store: Store,
    parents: dict[str, str],
    environment: dict[str, str],
    options: Options,
    display: Display,
) -> None:
    open_runs: dict[str, str] = {}

    def prepare(planned: PlannedRun) -> Job:
        run_id = store.start_run(planned, parents[planned.study], environment)
        open_runs[planned.name] = run_id
        return Job(planned, run_id, store.uri, options.accelerator, options.devices)

    class Recording:
        """Passes on to the display, and closes in the store what ended without a result."""

        started, progress = staticmethod(display.started), staticmethod(display.progress)

        @staticmethod
        def ended(planned: PlannedRun, error: str) -> bool:
            run_id = open_runs.pop(planned.name)
            if error:
                store.end_run(run_id, "failed", error)
            return display.ended(planned, error)

    display.console.print(f"{len(missing)} runs to train, {options.workers} at a time")
    began = time.monotonic()
    launcher = LocalLauncher(options.workers, (run.recipe.data for run in missing))
    try:
        with display:
            launcher.run(missing, prepare, Recording())
    finally:
        for run_id in open_runs.values():
            store.end_run(run_id, "interrupted")
    display.console.print(f"trained for {duration(time.monotonic() - began)}")


def _share(plan: Plan, store: Store, parent: str) -> None:
    """Copies into the study's experiment what it took from others, so that each experiment is complete."""
    latest = store.latest(run.fingerprint for run in plan.runs)
    for planned in {run.fingerprint: run for run in plan.runs}.values():
        found = latest.get(planned.fingerprint, [])
        here = any(run.data.tags.get("study") == plan.study.name for run in found)
        if found and found[0].info.status == FINISHED and not here:
            store.share(found[0], planned, parent)


def _module_words() -> list[str]:
    """The words behind ``python -m`` that repeat this invocation."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = (spec.name if spec else "experiments").removesuffix(".__main__")
    return [name, *sys.argv[1:]]
