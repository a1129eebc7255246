"""Every arm of every study can be planned, trained and decoded: nothing in a study file is only words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from experiments import discover
from transformer_ablate.config import Recipe
from transformer_ablate.core import greedy_decode
from transformer_ablate.data import TokenBudgetBatches, load_task
from transformer_ablate.measures import MEASURES
from transformer_ablate.measures.exact import CHECKS
from transformer_ablate.study.claims import VERDICTS
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import Plan, make_plan
from transformer_ablate.study.rules import Bounded, Deterministic, Holds, MoreVariance
from transformer_ablate.training.module import Seq2SeqModule

STEPS, ROWS, LONGEST = 2, 6, 48
STUDIES = discover()
NAMES = {
    "architectures", "attention", "ffn", "full_ablation", "label_smoothing", "masking", "pe_extrapolation",
    "position_dilution", "residual_norm", "rope_scaling", "teacher_forcing", "throughput", "warmup", "weight_tying",
}  # fmt: skip


def everything(study: Study) -> Plan:
    """All arms in all cells, at sizes that a test can load."""
    small = {"data.test_examples": 12, "data.valid_examples": 12}
    return make_plan(study, "smoke", [0], ["all"], small, ["all"])


def shortened(recipe: Recipe) -> Recipe:
    """The same model on strings that a test can train on."""
    longest = min(recipe.data.max_length, LONGEST)
    return recipe.replace({"data.max_length": longest, "data.train_examples": min(recipe.data.train_examples, 400)})


def test_there_are_fourteen_studies() -> None:
    assert set(STUDIES) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_arm_trains_a_few_steps_and_decodes(name: str) -> None:
    plan = everything(STUDIES[name])
    assert {run.variant for run in plan.runs} == {variant.name for variant in STUDIES[name].variants}
    seen = set()
    for run in plan.runs:
        recipe = shortened(run.recipe)
        if recipe.fingerprint("") in seen:
            continue
        seen.add(recipe.fingerprint(""))
        task = load_task(recipe.data)
        module = Seq2SeqModule(recipe, len(task.source_vocabulary), len(task.target_vocabulary))
        configured = module.configure_optimizers()
        optimizer, schedule = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
        batches = TokenBudgetBatches(task.train, recipe.data.batch_tokens, recipe.data.length_buckets, 0, STEPS)
        for i, rows in enumerate(batches):
            optimizer.zero_grad()
            loss = module.training_step(task.train.batch(rows[:ROWS]), i)["loss"]
            assert math.isfinite(float(loss)), run.name
            loss.backward()
            optimizer.step()
            schedule.step()
        module.model.eval()
        source = task.test[0].pairs.batch(np.arange(2)).source
        assert len(greedy_decode(module.model, source, torch.full((2,), 4)).sequences()) == 2, run.name


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_study_names_only_what_there_is(name: str) -> None:
    study = STUDIES[name]
    arms, cells = {v.name for v in study.variants}, {c.name for c in study.cells}
    assert len(arms) == len(study.variants)
    assert len(cells) == len(study.cells)
    for cell in study.cells:
        assert set(cell.measures) <= set(MEASURES), cell.name
    for variant in study.variants:
        assert set(variant.cells or ()) <= cells, variant.name
    runs = {(v.name, c.name) for v in study.variants for c in study.cells_of(v)}
    for contrast in study.contrasts:
        cell = contrast.metric.partition("/")[0]
        assert {(contrast.a, cell), (contrast.b, cell)} <= runs, contrast
    for claim in study.claims:
        for statistic in (*claim.statistics, *(statistic for statistic, _ in claim.learnt)):
            assert set(statistic.needs()) <= runs, claim.id
        if isinstance(claim.rule, MoreVariance):
            cell = claim.rule.key.partition("/")[0]
            assert {(arm, cell) for arm in claim.rule.table.values()} <= runs, claim.id
        if isinstance(claim.rule, Holds | Bounded | Deterministic):  # all are decided at any n
            assert claim.kind == "exact", claim.id
        check = getattr(claim.rule, "check", None)
        assert check is None or check in CHECKS, claim.id
        for attribute in ("arm", "a", "b"):
            assert getattr(claim.rule, attribute, next(iter(arms))) in arms, claim.id
        assert getattr(claim.rule, "cell", next(iter(cells))) in cells, claim.id


def test_claims_have_names_of_their_own() -> None:
    ids = [claim.id for study in STUDIES.values() for claim in study.claims]
    assert len(ids) == len(set(ids))
    assert len(VERDICTS) == len(set(VERDICTS))
