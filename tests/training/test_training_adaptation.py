"""Fine-tuning with a scaling that is otherwise there at evaluation alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer

from transformer_ablate.config import Recipe
from transformer_ablate.data import Seq2SeqDataModule
from transformer_ablate.errors import ConfigError
from transformer_ablate.training.module import Seq2SeqModule

SCALED = {"scaling": "pi", "factor": 4}
STEPS = 6


def recipe(options: dict[str, Any], **train: Any) -> Recipe:
    """A small RoPE recipe with options of its positions."""
    return Recipe().replace(
        {
            "model.d_model": 16, "model.n_heads": 2, "model.d_ff": 32, "model.encoder_layers": 1,
            "model.decoder_layers": 1, "model.position": "rope", "model.position_options": {"base": 100, **options},
            "data.max_length": 5, "data.train_examples": 300, "data.valid_examples": 20, "data.test_examples": 20,
            "data.batch_tokens": 140, "train.max_steps": STEPS, "train.warmup_steps": 2,
            **{f"train.{name}": value for name, value in train.items()},
        }
    )  # fmt: skip


def trained(recipe: Recipe, folder: Path, steps: int = STEPS) -> dict[str, torch.Tensor]:
    """The weights after so many of the recipe's updates."""
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    module = Seq2SeqModule(recipe, len(data.task.source_vocabulary), len(data.task.target_vocabulary))
    Trainer(
        max_steps=steps, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, default_root_dir=folder,
    ).fit(module, datamodule=data)  # fmt: skip
    return {name: value.clone() for name, value in module.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_it_is_the_unscaled_run_up_to_its_last_steps_and_another_one_then(tmp_path: Path) -> None:
    raw, tuned = recipe({}), recipe({"evaluation": SCALED}, adapt_steps=2)
    assert same(trained(raw, tmp_path, STEPS - 2), trained(tuned, tmp_path, STEPS - 2))
    assert not same(trained(raw, tmp_path, STEPS - 1), trained(tuned, tmp_path, STEPS - 1))


def test_with_all_steps_it_is_training_with_the_scaling(tmp_path: Path) -> None:
    tuned = recipe({"evaluation": SCALED}, adapt_steps=STEPS)
    assert same(trained(tuned, tmp_path), trained(recipe(SCALED), tmp_path))


def test_what_cannot_be_fine_tuned_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train.adapt_steps: got 2, .*model.position_options.evaluation"):
        Seq2SeqModule(recipe(SCALED, adapt_steps=2), 20, 20)
    with pytest.raises(ConfigError, match=r"train.adapt_steps: got 7, .*at most train.max_steps \(6\)"):
        recipe({"evaluation": SCALED}, adapt_steps=7)


def test_recipes_without_it_keep_their_identity() -> None:
    assert recipe({}).fingerprint("d") == recipe({}, adapt_steps=0).fingerprint("d")
    tuned = recipe({"evaluation": SCALED}, adapt_steps=2)
    assert tuned.fingerprint("d") != recipe({"evaluation": SCALED}).fingerprint("d")
