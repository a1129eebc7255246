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
from transformer_ablate.study.claims import VERDICTS
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import Plan, make_plan
from transformer_ablate.study.rules import Bounded, Deterministic, Holds
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
def test_what_is_decided_at_any_n_is_an_exact_claim(name: str) -> None:
    for claim in STUDIES[name].claims:
        if isinstance(claim.rule, Holds | Bounded | Deterministic):
            assert claim.kind == "exact", claim.id


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_test_set_and_check_that_a_study_names_is_there(name: str) -> None:
    assert make_plan(STUDIES[name], "smoke", [0], ["all"], cells=["all"]).runs


def test_claims_have_names_of_their_own() -> None:
    ids = [claim.id for study in STUDIES.values() for claim in study.claims]
    assert len(ids) == len(set(ids))
    assert len(VERDICTS) == len(set(VERDICTS))
