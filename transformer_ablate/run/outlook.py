"""What an invocation is about to do, in words: runs, data, minutes. Nothing is written, and MLflow is not imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from transformer_ablate.data import load_task
from transformer_ablate.record.place import store_exists
from transformer_ablate.run.estimate import Place, cell_costs, print_estimate
from transformer_ablate.study.plan import Plan, PlannedRun


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


def estimate(plans: Sequence[Plan], uri: str | None, workers: int, fresh: bool, report_only: bool) -> str:
    """What the missing runs of all plans will take, from what is known of earlier ones; nothing is written.

    A store that is not there yet is not made.
    """
    every = in_order(plans)
    past: dict[Place, list[float]] = {}
    have: Mapping[str, object] = {}
    if store_exists(uri):
        from transformer_ablate.run.stores import open_store, told  # MLflow takes seconds to import

        with told(uri):
            store = open_store(uri)
            have, past = store.measured(run.fingerprint for run in every), store.seconds()
    missing = [run for run in every if fresh or run.fingerprint not in have]
    if report_only or not missing:
        return f"estimate: nothing to train, {len(every)} runs are there"
    return print_estimate(plans, cell_costs(missing, past), workers)


def in_order(plans: Sequence[Plan]) -> list[PlannedRun]:
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
