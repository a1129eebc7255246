"""One grid of learning rates for every arm: the best on validation data is what all its seeds are trained with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from transformer_ablate.errors import ConfigError
from transformer_ablate.record.records import RunRecord
from transformer_ablate.study.plan import Plan, PlannedRun

Arm = tuple[str, str]  # variant, cell


def parse_grid(text: str) -> tuple[float, ...]:
    """Factors of each arm's own peak rate, from ``0.5,1,2``.

    Raises:
        ConfigError: for anything but two or more distinct positive numbers, 1 among them.
    """
    allowed = "two or more distinct factors of each arm's own rate, 1 among them, e.g. 0.5,1,2"
    try:
        factors = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError("--lr-grid", text, allowed) from None
    distinct = len(set(factors)) == len(factors) > 1
    if not distinct or 1.0 not in factors or not all(0 < f < math.inf for f in factors):
        raise ConfigError("--lr-grid", text, allowed)
    return factors


def grid_plan(plan: Plan, factors: Sequence[float]) -> Plan:
    """Every arm and cell of a plan that can have a rate of its own, with every factor, at the plan's first seed.

    Left as they are: studies that compare at one rate, arms that are defined by their rate, cells without a validation
    loss.
    """
    first = plan.runs[0].seed if plan.runs else 0
    runs = tuple(
        with_factor(run, factor) for run in plan.runs if run.seed == first and _free(plan, run) for factor in factors
    )
    return dataclasses.replace(plan, runs=runs)


def _free(plan: Plan, run: PlannedRun) -> bool:
    measured = "quality" in run.measures and run.recipe.train.max_steps > 0
    return measured and not plan.study.one_rate and "train.lr" not in run.delta


def with_factor(run: PlannedRun, factor: float) -> PlannedRun:
    """The run with its peak learning rate times a factor; the same run, of the same identity, for 1."""
    if factor == 1:
        return run
    change = {"train.lr": run.recipe.train.lr * factor}
    recipe = run.recipe.replace(change)
    return dataclasses.replace(
        run, delta={**run.delta, **change}, recipe=recipe, fingerprint=recipe.fingerprint(run.data_hash)
    )


def best_factors(plan: Plan, factors: Sequence[float], records: Sequence[RunRecord]) -> dict[Arm, float]:
    """For each arm and cell the factor with the lowest validation loss; 1 where no run has one.

    Args:
        plan: the grid's, see :func:`grid_plan`.
        factors: the grid.
        records: of its runs, in their order.
    """
    losses: dict[Arm, dict[float, float]] = {}
    for i, (run, record) in enumerate(zip(plan.runs, records, strict=True)):
        loss = record.metrics.get("valid_nll", math.nan)
        if math.isfinite(loss) and not record.diverged:
            losses.setdefault((run.variant, run.cell), {})[factors[i % len(factors)]] = loss
    arms = dict.fromkeys((run.variant, run.cell) for run in plan.runs)
    return {arm: _lowest(losses.get(arm, {})) for arm in arms}


def _lowest(losses: Mapping[float, float]) -> float:
    return min(losses, key=lambda f: (losses[f], abs(math.log(f)))) if losses else 1.0


def with_rates(plan: Plan, factors: Sequence[float], chosen: Mapping[Arm, float]) -> Plan:
    """The plan with each arm at its own chosen rate, and a note that says so."""
    if not chosen:
        return plan
    runs = tuple(with_factor(run, chosen.get((run.variant, run.cell), 1.0)) for run in plan.runs)
    cells: dict[str, list[str]] = {}
    for (variant, cell), factor in chosen.items():
        cells.setdefault(cell, []).append(f"{variant} {factor:g}")
    told = "; ".join(f"{cell}: {', '.join(arms)}" for cell, arms in cells.items())
    note = (
        f"Learning rates were chosen by --lr-grid, whatever is said elsewhere on this page of a shared rate: each "
        f"arm's own peak rate times {', '.join(f'{f:g}' for f in factors)}, by the lowest validation loss at the "
        f"first seed. Chosen factors: {told}."
    )
    study = dataclasses.replace(plan.study, notes=(note, *plan.study.notes))
    return dataclasses.replace(plan, study=study, runs=runs)
