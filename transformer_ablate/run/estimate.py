"""What a plan will cost: seconds on this machine from what earlier runs took, or operations and hours of a device."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data import TokenBudgetBatches, load_task
from transformer_ablate.measures.size import forward_flops
from transformer_ablate.study.plan import Plan, PlannedRun
from transformer_ablate.training.step import losses, one_thread

# Minutes that a preset is meant to take on two cores, for all studies together.
BUDGET_MINUTES = {"smoke": 5, "quick": 40, "standard": 150}
# A forward and a backward pass: the backward one costs twice as much.
PASSES = 3
TIMED_STEPS = 4
# Evaluation and the record of a run, on top of its training, where no earlier run tells.
SECONDS_BESIDE_TRAINING = 4.0

# What times a model, where no earlier run tells.
SECONDS_OF_TIMING = 25.0

Place = tuple[str, str, str, str]  # study, preset, cell, arm


@dataclass(frozen=True)
class CellCost:
    """What the missing runs of one cell will take.

    Attributes:
        cell: its name.
        study: its study.
        runs: how many are to be trained.
        seconds: of one process, for all of them.
        known: how many of them rest on earlier runs of the same arm or cell; the others on a few timed steps.
        exclusive: they run one after the other, with nothing beside them.
    """

    study: str
    cell: str
    runs: int
    seconds: float
    known: int
    exclusive: bool = False


def cell_costs(runs: Sequence[PlannedRun], past: Mapping[Place, Sequence[float]]) -> list[CellCost]:
    """Costs by cell.

    Args:
        runs: what is to be trained.
        past: seconds that earlier runs took, from start to end, by study, preset, cell and arm.
    """
    by_cell: dict[tuple[str, str, str], list[float]] = {}
    for (study, preset, cell, _), several in past.items():
        by_cell.setdefault((study, preset, cell), []).extend(several)
    timed: dict[Recipe, float] = {}
    costs: dict[tuple[str, str], CellCost] = {}
    for run in runs:
        place = run.study, run.preset, run.cell
        before = past.get((*place, run.variant)) or by_cell.get(place)
        if before:
            seconds = statistics.median(before)
        elif run.exclusive:
            seconds = SECONDS_OF_TIMING
        else:
            shape = run.recipe.replace({"train.seed": 0})
            similar = next((r for r in timed if r.data == shape.data and _depth(r) == _depth(shape)), shape)
            if similar not in timed:
                timed[similar] = _seconds_a_step(similar)
            seconds = timed[similar] * run.recipe.train.max_steps + SECONDS_BESIDE_TRAINING
        key = run.study, run.cell
        old = costs.get(key, CellCost(run.study, run.cell, 0, 0.0, 0, run.exclusive))
        costs[key] = dataclasses.replace(
            old, runs=old.runs + 1, seconds=old.seconds + seconds, known=old.known + bool(before)
        )
    return list(costs.values())


def _depth(recipe: Recipe) -> tuple[int, int, int]:
    return recipe.model.encoder_layers, recipe.model.decoder_layers, recipe.model.d_model


@one_thread()
def _seconds_a_step(recipe: Recipe) -> float:
    """Median seconds of an update, on one core, over a few after a first one."""
    if not recipe.train.max_steps:
        return 0.0
    task = load_task(recipe.data)
    model = build_model(recipe.model, len(task.source_vocabulary), len(task.target_vocabulary), seed=0)
    parameters = list(model.parameters())
    batches = TokenBudgetBatches(task.train, recipe.data.batch_tokens, recipe.data.length_buckets, 0, TIMED_STEPS + 1)
    seconds = []
    for i, rows in enumerate(batches):
        began = time.perf_counter()
        model.zero_grad()
        losses(model, recipe.train, task.train.batch(rows), i, i)["loss"].backward()
        # The first optimizer that is made imports torch's compiler, 1.6 s, more than all that is timed here. A plain
        # step stands for it: either touches each parameter once, a few percent of a forward and a backward pass.
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=1e-3)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:] or seconds)


def print_estimate(plans: Sequence[Plan], costs: Sequence[CellCost], workers: int) -> str:
    """Lines for the terminal; the last warns where all studies' budget is passed."""
    minutes = sum(cost.seconds / (1 if cost.exclusive else workers) for cost in costs) / 60
    several = len(plans) > 1
    lines = [
        f"  {f'{cost.study} ' if several else ''}{cost.cell}: {cost.runs} runs x {cost.seconds / cost.runs:.0f} s"
        + (
            " (as measured before)"
            if cost.known == cost.runs
            else " (one at a time, a guess)"
            if cost.exclusive
            else " (from a few timed steps)"
            if not cost.known
            else ""
        )
        for cost in costs
    ]
    preset = plans[0].preset
    lines.append(f"estimate: {minutes:.0f} min with {workers} processes")
    budget = BUDGET_MINUTES.get(preset)
    if budget is not None and minutes > budget:
        lines.append(
            f"warning: preset {preset} is meant to take {budget} min on two cores; choose studies, --cells or"
            " --variants, or let it run: it can be interrupted and goes on where it stopped"
        )
    return "\n".join(lines)


@dataclass(frozen=True)
class Operations:
    """What a cell's runs compute.

    Attributes:
        cell: its name.
        runs, steps: their number, and updates of all of them.
        tokens: padded source and target tokens that they are trained on, at most.
        flops: of all forward and backward passes, matrix products alone.
    """

    cell: str
    runs: int
    steps: int
    tokens: float
    flops: float


def operations(plan: Plan) -> list[Operations]:
    """Updates, tokens and floating-point operations of a plan, from the recipes alone, without any device.

    One example of the mean training lengths is counted on the meta device, for each cell's first arm, and taken as
    often as the token budget has room for it.
    """
    found = []
    for name in dict.fromkeys(run.cell for run in plan.runs):
        runs = [run for run in plan.runs if run.cell == name]
        recipe = runs[0].recipe
        task = load_task(recipe.data)
        source = max(1, round(float(task.train.source.lengths.mean())))
        target = max(2, round(float(task.train.target.lengths.mean())))
        with torch.device("meta"):
            model = build_model(recipe.model, len(task.source_vocabulary), len(task.target_vocabulary)).eval()
        examples = recipe.data.batch_tokens / (source + target)
        steps = sum(run.recipe.train.max_steps for run in runs)
        flops = PASSES * forward_flops(model, source, target - 1) * examples * steps
        found.append(Operations(name, len(runs), steps, float(recipe.data.batch_tokens) * steps, flops))
    return found


def print_operations(cells: Sequence[Operations], device_tflops: float) -> str:
    """Lines for the terminal: what each cell computes, and hours of a device that sustains ``device_tflops``."""
    lines = []
    for cell in cells:
        hours = cell.flops / (device_tflops * 1e12) / 3600
        lines.append(
            f"  {cell.cell}: {cell.runs} runs, {cell.steps:,} updates, {cell.tokens:.3g} tokens, "
            f"{cell.flops:.3g} FLOPs, {hours:.3g} h"
        )
    total = sum(cell.flops for cell in cells) / (device_tflops * 1e12) / 3600
    lines.append(f"in all {total:.3g} h of a device that sustains {device_tflops:g} TFLOP/s")
    return "\n".join(lines)
