"""A grid of learning rates: every arm gets all of it, and is compared at its own best."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_ablate import cli
from transformer_ablate.errors import ConfigError
from transformer_ablate.record.records import RunRecord
from transformer_ablate.run.rates import best_factors, grid_plan, parse_grid, with_rates
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import Plan, make_plan

FACTORS = (0.5, 1.0, 2.0)


def plan_of(study: Study) -> Plan:
    return make_plan(study, "smoke", seeds=(3, 4))


def records(grid: Plan, losses: Callable[[str, float], float]) -> list[RunRecord]:
    """A finished run for each of the grid's, whose validation loss is ``losses(variant, rate)``."""
    return [
        RunRecord(variant=r.variant, cell=r.cell, seed=r.seed, fingerprint=r.fingerprint, status="finished",
                  metrics={"valid_nll": losses(r.variant, r.recipe.train.lr)})
        for r in grid.runs
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "x", "1", "0.5,2", "1,1", "1,-2", "1,0", "1,inf", "1,nan"])
def test_mistaken_grids_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--lr-grid"):
        parse_grid(text)


def test_every_arm_has_the_whole_grid_at_the_first_seed(study: Study) -> None:
    plan = plan_of(study)
    grid = grid_plan(plan, parse_grid("0.5,1,2"))
    assert {run.seed for run in grid.runs} == {3}
    for arm in ("sinusoidal", "rope"):
        runs = [run for run in grid.runs if run.variant == arm]
        base = next(run for run in plan.runs if run.variant == arm)
        assert [run.recipe.train.lr / base.recipe.train.lr for run in runs] == list(FACTORS)
        assert len({run.fingerprint for run in runs}) == 3
        assert runs[1] == base  # a factor of 1 is the run that would be trained anyway
        assert runs[0].recipe.replace({"train.lr": base.recipe.train.lr}) == base.recipe


def test_the_lowest_validation_loss_decides_for_each_arm(study: Study) -> None:
    plan = plan_of(study)
    grid = grid_plan(plan, FACTORS)
    rate = plan.runs[0].recipe.train.lr
    best = {"sinusoidal": 2.0, "rope": 0.5}
    found = best_factors(grid, FACTORS, records(grid, lambda arm, lr: abs(lr / rate - best[arm])))
    assert {arm: factor for (arm, _), factor in found.items()} == best
    chosen = with_rates(plan, FACTORS, found)
    assert {(r.variant, r.recipe.train.lr / rate) for r in chosen.runs} == set(best.items())
    assert {r.seed for r in chosen.runs} == {3, 4}
    assert "sinusoidal 2" in chosen.study.notes[0]
    assert chosen.study.notes[1:] == plan.study.notes


def test_what_one_rate_defines_has_no_other(study: Study) -> None:
    assert grid_plan(plan_of(dataclasses.replace(study, one_rate=True)), FACTORS).runs == ()
    variants = tuple(
        dataclasses.replace(v, delta={**v.delta, "train.lr": 0.01}) if v.name == "rope" else v for v in study.variants
    )
    plan = plan_of(dataclasses.replace(study, variants=variants))
    assert {run.variant for run in grid_plan(plan, FACTORS).runs} == {"sinusoidal"}
    unmeasured = dataclasses.replace(plan, runs=tuple(dataclasses.replace(r, measures=("size",)) for r in plan.runs))
    assert grid_plan(unmeasured, FACTORS).runs == ()
    assert with_rates(plan, FACTORS, {}) is plan


def test_diverged_and_lost_runs_do_not_count(study: Study) -> None:
    plan = plan_of(study)
    grid = grid_plan(plan, FACTORS)
    rate = plan.runs[0].recipe.train.lr
    made = records(grid, lambda arm, lr: math.nan if arm == "rope" else lr / rate)
    made = [dataclasses.replace(r, metrics={**r.metrics, "diverged": float(i % 3 == 0)}) for i, r in enumerate(made)]
    found = best_factors(grid, FACTORS, made)
    assert {arm: factor for (arm, _), factor in found.items()} == {"sinusoidal": 1.0, "rope": 1.0}


def test_through_the_command_line(study: Study, uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: str) -> str:
        where = ["--preset", "smoke", "--tracking-uri", uri, "--output", str(tmp_path)]
        assert cli.run([study], [*where, "--seeds", "2", "--variants", "rope", "--lr-grid", "1,4", *words], "x") == 0
        return capsys.readouterr().out

    assert "2 runs at the first seed, 2 rates an arm" in call("--dry-run")
    # Two rates at the first seed, then the better of them at the second one too.
    assert call().splitlines()[-1].startswith("3 trained")
    assert call().splitlines()[-1].startswith("0 trained")
    found = json.loads((tmp_path / "smoke" / "tiny" / "results.json").read_text())
    assert found["tally"]["finished"] == 2
    assert "--lr-grid" in (tmp_path / "smoke" / "tiny" / "report.md").read_text()
