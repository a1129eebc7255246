"""Reports of a sweep, each written as soon as its study is through."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_ablate.record.records import StudyRecord
from transformer_ablate.record.store import Store
from transformer_ablate.report.render import write_overview, write_report
from transformer_ablate.study.plan import Plan
from transformer_ablate.verdicts.checks import run_checks


def study_record(plan: Plan, store: Store, environment: Mapping[str, str], cuda: bool) -> StudyRecord:
    """What the report is made from: exactly the runs of the plan's fingerprints, and the claims' exact checks."""
    runs, checks = store.records(plan.runs), run_checks(plan.study.claims, plan.bases)
    return StudyRecord(plan.study, plan.preset, runs, plan.skipped, plan.bases, environment, checks, cuda)


@dataclass
class Reports:
    """Writes each study's report when the last of its runs has ended, while those of other studies go on.

    Attributes:
        plans: of all studies.
        store: the record.
        parents: study to the id of this invocation's run in the store.
        environment: what the reports say of this invocation.
        output: folder of all reports.
        cuda: whether the runs are made on a CUDA device.
        say: prints a line.
    """

    plans: Sequence[Plan]
    store: Store
    parents: Mapping[str, str]
    environment: Mapping[str, str]
    output: Path
    cuda: bool
    say: Callable[[str], None]
    _written: dict[str, Path] = field(default_factory=dict)
    _waiting: dict[str, set[str]] = field(default_factory=dict)

    def begin(self, fingerprints: Iterable[str]) -> None:
        """These runs are still to come; studies that wait for none are reported now."""
        coming = set(fingerprints)
        for plan in self.plans:
            self._waiting[plan.study.name] = {run.fingerprint for run in plan.runs} & coming
            self._write_if_complete(plan)

    def ended(self, fingerprint: str) -> None:
        """One of them has ended, well or not."""
        for plan in self.plans:
            waiting = self._waiting[plan.study.name]
            if fingerprint in waiting:
                waiting.remove(fingerprint)
                self._write_if_complete(plan)

    def page(self, plan: Plan) -> Path:
        """The report of a study, written now if it is not yet."""
        name, folder = plan.study.name, self.output / plan.preset
        if name not in self._written:
            self.store.share(plan.runs, self.parents[name])
            record = study_record(plan, self.store, self.environment, self.cuda)
            self._written[name] = write_report(record, folder / name)
            write_overview(folder)
            self.say(f"report: {self._written[name]}")
        return self._written[name]

    def _write_if_complete(self, plan: Plan) -> None:
        if not self._waiting[plan.study.name]:
            try:
                self.page(plan)
            except Exception as error:  # what trains goes on; the report is tried again at the end
                print(f"the report of {plan.study.name} waits: {error}", file=sys.stderr, flush=True)
