"""Attention of the older architectures is caught as that of the Transformer is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data.examples import decoder_inputs
from transformer_ablate.data.task import load_task
from transformer_ablate.measures.attention import Attention
from transformer_ablate.measures.capture import attention_caught
from transformer_ablate.measures.evaluation import Evaluation

READERS = [
    ("gru", {"reader": "additive"}, 1),
    ("gru", {"reader": "additive", "bidirectional": True}, 1),
    ("lstm", {"reader": "multiplicative"}, 1),
    ("convs2s", {}, 2),  # one a layer
]


def evaluation(architecture: str, options: dict[str, Any]) -> Evaluation:
    recipe = Recipe().replace(
        {
            "model.architecture": architecture, "model.architecture_options": options, "model.d_model": 16,
            "model.d_ff": 16, "model.n_heads": 4, "data.max_length": 6, "data.vocab_size": 8,
            "data.train_examples": 200, "data.valid_examples": 10, "data.test_examples": 40,
        }
    )  # fmt: skip
    task = load_task(recipe.data)
    sizes = len(task.source_vocabulary), len(task.target_vocabulary)
    return Evaluation(build_model(recipe.model, *sizes, seed=3), task, recipe)


@pytest.mark.parametrize(("architecture", "options", "layers"), READERS)
def test_weights_are_caught_for_every_target_token_and_change_nothing(
    architecture: str, options: dict[str, Any], layers: int
) -> None:
    run = evaluation(architecture, options)
    batch = run.task.test[0].pairs.batch(np.arange(8))
    inputs = decoder_inputs(batch.target)
    with torch.no_grad():
        before = run.model(batch.source, inputs)
        with attention_caught(run.model) as caught:
            during = run.model(batch.source, inputs)
        after = run.model(batch.source, inputs)
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert set(caught) == {"cross"}
    assert len(caught["cross"]) == layers
    real = run.model.token_mask(batch.source)
    for layer in caught["cross"]:
        assert layer.weights.shape == (8, 1, inputs.shape[1], batch.source.shape[1])
        assert torch.equal(layer.allowed, real[:, None, None].expand_as(layer.weights))
        torch.testing.assert_close(layer.weights.sum(-1), torch.ones_like(layer.weights[..., 0]))
        assert len(torch.unique(layer.weights[0, 0, 0][real[0]])) > 1  # they are no mean


@pytest.mark.parametrize(("architecture", "options", "layers"), READERS)
def test_figures_are_of_cross_attention_alone(architecture: str, options: dict[str, Any], layers: int) -> None:
    metrics = Attention().measure(evaluation(architecture, options)).metrics
    assert 0 < metrics["aligned_mass"] < 1
    assert not any("head_js" in name for name in metrics)  # one head has no other to differ from


@pytest.mark.parametrize("options", [{"reader": "start"}, {"reader": "context"}])
def test_readers_that_do_not_attend_have_no_figures(options: dict[str, Any]) -> None:
    assert Attention().measure(evaluation("gru", options)).metrics == {}
