"""Every task goes the whole way: batches, a few steps of training, greedy decoding and measures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from lightning.pytorch import Trainer

from transformer_ablate.config import Recipe
from transformer_ablate.data import Seq2SeqDataModule
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures.extrapolation import Extrapolation
from transformer_ablate.measures.quality import Quality
from transformer_ablate.registry import TASKS
from transformer_ablate.training.module import Seq2SeqModule

TINY = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 5,
    "data.vocab_size": 20,  # four times the length, for copy-unique
    "data.train_examples": 300,
    "data.valid_examples": 20,
    "data.test_examples": 20,
    "data.batch_tokens": 400,
    "train.max_steps": 3,
    "train.warmup_steps": 1,
}


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_trains_decodes_and_is_measured(task: str, tmp_path: Path) -> None:
    # Texts by the letter: how many tokens of BPE there can be depends on the text.
    recipe = Recipe().replace({**TINY, "data.task": task, "data.tokenizer": "char"})
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    module = Seq2SeqModule(recipe, len(data.task.source_vocabulary), len(data.task.target_vocabulary))
    trainer = Trainer(
        max_steps=recipe.train.max_steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, datamodule=data)
    assert trainer.global_step == 3
    run = Evaluation(module.model, data.task, recipe)
    quality, extrapolation = Quality().measure(run), Extrapolation().measure(run)
    metrics = {**quality.metrics, **extrapolation.metrics}
    usual = {"nll", "ppl", "token_accuracy", "free_accuracy", "em", "length_error", "cap_share"}
    if data.task.exact:
        usual |= {"edit_distance", "em_oracle"}
    else:
        usual |= {"per", "wer"} if data.task.scorer is None else {"edit_distance"}
    for test in data.task.test:
        assert {name.split("/")[0] for name in metrics if name.endswith(f"/{test.name}")} == usual
        # Nothing is learnt in three steps: the loss is near that of a uniform guess, and no task is easier by mistake.
        assert 0.3 < metrics[f"nll/{test.name}"] / math.log(len(data.task.target_vocabulary)) < 3
        assert len(run.free(test)) == len(test)
    assert len(quality.artifacts["predictions"]) == sum(map(len, data.task.test))
    assert all(map(math.isfinite, metrics.values()))
