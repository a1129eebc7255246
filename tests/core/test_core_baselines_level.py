"""Baselines reach the level that is known of them, in real trainings; where they do not, the fault is ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from transformer_ablate.core import derive_seed
from transformer_ablate.data.datamodule import Seq2SeqDataModule
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.measures.quality import Quality
from transformer_ablate.study.recipes import base_recipe
from transformer_ablate.training.module import Seq2SeqModule

ATTENTIVE = {
    "model.architecture": "gru",
    "model.architecture_options": {"reader": "additive", "bidirectional": True},
}


def trained(base: str, delta: dict[str, Any], folder: Path) -> dict[str, float]:
    """Metrics on the in-distribution test set after a quick training; names without the set's."""
    recipe = base_recipe(base, "quick").replace(delta)
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    task = dataclasses.replace(data.task, test=data.task.test[:1])
    module = Seq2SeqModule(recipe, len(task.source_vocabulary), len(task.target_vocabulary))
    torch.manual_seed(derive_seed(recipe.train.seed, "dropout"))
    trainer = Trainer(
        max_steps=recipe.train.max_steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    trainer.fit(module, datamodule=data)
    metrics = Quality().measure(Evaluation(module.model, task, recipe)).metrics
    return {name.partition("/")[0]: value for name, value in metrics.items()}


@pytest.mark.slow
@pytest.mark.parametrize("delta", [ATTENTIVE, {"model.architecture": "convs2s"}], ids=["gru", "convs2s"])
def test_attention_learns_to_copy(delta: dict[str, Any], tmp_path: Path) -> None:
    assert trained("synthetic", delta, tmp_path)["em"] >= 0.95


@pytest.mark.slow
def test_without_order_or_look_ahead_copying_is_out_of_reach_or_trivial(tmp_path: Path) -> None:
    short = {"train.max_steps": 200}
    bag = trained("synthetic", {"model.architecture": "fnn_mean", **short}, tmp_path)
    synchronous = trained("synthetic", {"model.architecture": "rnn_synchronous", **short}, tmp_path)
    assert bag["em"] < 0.3
    assert synchronous["em"] >= 0.95  # each symbol is read just when it is to be put out


@pytest.mark.slow
def test_attention_spells_as_well_as_the_transformer(tmp_path: Path) -> None:
    transformer, attentive = (trained("g2p", delta, tmp_path) for delta in ({}, ATTENTIVE))
    assert attentive["per"] <= transformer["per"] + 0.03
