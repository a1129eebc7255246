"""Gradient norms by layer: against autograd by hand, and what theory says of norms and residual connections."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data.examples import decoder_inputs
from transformer_ablate.data.task import load_task
from transformer_ablate.measures import MEASURES
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.training.losses import cross_entropy


def evaluation(seed: int = 0, **options: Any) -> Evaluation:
    """A model at its own initial values."""
    small = {
        "model.d_model": 16, "model.d_ff": 32, "model.n_heads": 2, "data.max_length": 6, "data.vocab_size": 8,
        "data.train_examples": 200, "data.valid_examples": 20, "data.test_examples": 10, "train.seed": seed,
    }  # fmt: skip
    recipe = Recipe().replace({**small, **{name.replace("__", "."): value for name, value in options.items()}})
    task = load_task(recipe.data)
    sizes = len(task.source_vocabulary), len(task.target_vocabulary)
    return Evaluation(build_model(recipe.model, *sizes, seed=seed), task, recipe)


def measured(run: Evaluation) -> dict[str, float]:
    return dict(MEASURES["gradients"].measure(run).metrics)


def test_they_are_those_of_autograd_and_the_model_is_left_as_it_was() -> None:
    run = evaluation(model__dropout=0.3, train__label_smoothing=0.1)
    found = measured(run)
    assert all(p.grad is None for p in run.model.parameters())
    assert not run.model.training
    batch = run.task.valid.batch(range(20))
    logits = run.model(batch.source, decoder_inputs(batch.target))
    cross_entropy(logits, batch.target[:, 1:], 0.1).backward()
    encoder = run.model.get_submodule("encoder.layers.1")
    by_hand = torch.cat([p.grad.flatten() for p in encoder.parameters() if p.grad is not None]).norm()
    assert found["grad_norm_encoder/2"] == pytest.approx(float(by_hand), rel=1e-5)
    kinds = [f"{kind}{when}" for kind in ("encoder", "decoder") for when in ("", "_start")]
    layers = {f"grad_norm_{kind}/{depth}" for kind in kinds for depth in (1, 2)}
    assert set(found) == {f"grad_norm_min_{kind}" for kind in kinds} | layers


def test_an_untrained_model_is_at_its_start_and_a_changed_one_is_not() -> None:
    run = evaluation(seed=3)
    found = measured(run)
    assert found["grad_norm_decoder/1"] == pytest.approx(found["grad_norm_decoder_start/1"], rel=1e-6)
    with torch.no_grad():
        for p in run.model.parameters():
            p.mul_(1.3)
    changed = measured(run)
    assert changed["grad_norm_decoder_start/1"] == pytest.approx(found["grad_norm_decoder_start/1"], rel=1e-6)
    assert changed["grad_norm_decoder/1"] != pytest.approx(found["grad_norm_decoder/1"], rel=1e-2)


def test_without_norm_and_residual_connections_the_first_layer_of_six_gets_hardly_any_gradient() -> None:
    deep = {"model__encoder_layers": 6, "model__decoder_layers": 6, "model__norm": "none"}
    ratios = {}
    for kept in (True, False):
        found = measured(evaluation(model__residual=kept, **deep))
        ratios[kept] = found["grad_norm_encoder_start/1"] / found["grad_norm_decoder_start/6"]
    assert ratios[False] < 0.2 * ratios[True]


def first_over_last(found: dict[str, float], layers: int) -> float:
    return found["grad_norm_encoder/1"] / found[f"grad_norm_decoder/{layers}"]


@pytest.mark.parametrize(("stack", "other"), [("encoder", "decoder"), ("decoder", "encoder")])
def test_one_layer_that_hardly_any_gradient_reaches_is_seen_wherever_it_is(stack: str, other: str) -> None:
    run = evaluation(**{f"model__{stack}_layers": 3})
    before = measured(run)
    # The second of three layers adds next to nothing to the stream: its own gradient is gone, not that of the others.
    run.model.get_submodule(f"{stack}.layers.1").register_forward_hook(
        lambda layer, arguments, output: arguments[0] + 1e-12 * (output - arguments[0])
    )
    found = measured(run)
    assert found[f"grad_norm_min_{stack}"] == found[f"grad_norm_{stack}/2"] < 1e-9 * before[f"grad_norm_min_{stack}"]
    assert found[f"grad_norm_min_{stack}_start"] == before[f"grad_norm_min_{stack}_start"] > 0
    assert found[f"grad_norm_min_{other}"] > 0.1 * before[f"grad_norm_min_{other}"]
    last = 3 if stack == "decoder" else 2
    assert first_over_last(found, last) > 0.3 * first_over_last(before, last)  # two layers do not tell


def test_without_residual_connections_the_gradient_vanishes_in_the_decoder_that_norms_do_not_save() -> None:
    deep = {"model__encoder_layers": 6, "model__decoder_layers": 6}
    kept, without = (measured(evaluation(model__residual=residual, **deep)) for residual in (True, False))
    assert without["grad_norm_min_decoder_start"] < 1e-6 * kept["grad_norm_min_decoder_start"]
    assert first_over_last(without, 6) > 0.01 * first_over_last(kept, 6)


def test_batch_normalisation_normalises_as_in_training_and_forgets_it() -> None:
    run = evaluation(model__norm="batchnorm")
    means = {name: buffer.clone() for name, buffer in run.model.named_buffers()}
    with_norm, without = measured(run), measured(evaluation(model__norm="none"))
    # With the initial running statistics it would be no norm at all.
    assert with_norm["grad_norm_encoder_start/1"] != pytest.approx(without["grad_norm_encoder_start/1"], rel=0.02)
    for name, buffer in run.model.named_buffers():
        assert torch.equal(buffer, means[name])


def test_models_without_layers_of_this_kind_have_none() -> None:
    run = evaluation(model__architecture="gru", model__architecture_options={"reader": "additive"})
    assert measured(run) == {}
