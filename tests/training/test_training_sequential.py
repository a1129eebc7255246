"""Training token by token: the same loss and gradients as in one pass, and scheduled sampling."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.data.examples import Batch, decoder_inputs
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import BOS, EOS, N_SPECIALS, PAD
from transformer_ablate.training.module import Seq2SeqModule
from transformer_ablate.training.sequential import parallel, sampled_places, sequential

V = 12
TINY: dict[str, Any] = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 24,
    "train.max_steps": 4,
    "train.precision": "64-true",
}
SEQUENTIAL = {"train.regime": "sequential"}


def ragged_batch() -> Batch:
    """Sentences of 7, 4 and 2 source tokens and 6, 3 and 5 target tokens, BOS and EOS included."""
    generator = torch.Generator().manual_seed(1)
    source, target = (torch.randint(N_SPECIALS, V, (3, n), generator=generator) for n in (7, 6))
    for tokens, lengths in ((source, (7, 4, 2)), (target, (6, 3, 5))):
        for row, length in enumerate(lengths):
            tokens[row, 0], tokens[row, length - 1], tokens[row, length:] = BOS, EOS, PAD
    return Batch(source, target, torch.arange(3))


def module(delta: dict[str, Any]) -> Seq2SeqModule:
    return Seq2SeqModule(Recipe().replace({**TINY, **delta}), V, V).double().train()


def loss_and_gradients(delta: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    learner = module(delta)
    loss = learner.training_step(ragged_batch(), 0)["loss"]
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in learner.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "delta",
    [
        {},
        {"model.position": "rope", "model.cross_position": "rotary"},
        {"model.position": "t5", "model.norm_placement": "post"},
        {"model.position": "shaw", "model.position_options": {"values": True}},
        {"model.position": "cope", "model.extra_key_value": True},
        {"model.architecture": "gru"},
        {"model.architecture": "lstm", "model.architecture_options": {"reader": "multiplicative"}},
        {"model.architecture": "gru", "model.architecture_options": {"reader": "context", "bidirectional": True}},
        {"model.architecture": "rnn_synchronous"},
        {"model.architecture": "convs2s"},
        {"model.architecture": "conv_last"},
        {"model.architecture": "fnn_mean"},
    ],
    ids=str,
)
def test_both_regimes_give_one_loss_and_one_gradient(delta: dict[str, Any]) -> None:
    loss, gradients = loss_and_gradients(delta)
    other_loss, others = loss_and_gradients({**delta, **SEQUENTIAL})
    torch.testing.assert_close(other_loss, loss, rtol=1e-9, atol=1e-9)
    assert others.keys() == gradients.keys()
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())
    for name, gradient in gradients.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-7, atol=1e-9, msg=name)


def test_both_regimes_agree_in_single_precision() -> None:
    single = {"train.precision": "32-true"}
    batch, recipe = ragged_batch(), Recipe().replace({**TINY, **single})
    model = build_model(recipe.model, V, V, 0)
    logits = [make(model, batch.source, decoder_inputs(batch.target), None) for make in (parallel, sequential)]
    real = decoder_inputs(batch.target) != PAD
    torch.testing.assert_close(logits[1][real], logits[0][real], rtol=1e-5, atol=1e-5)


def test_a_decoder_that_sees_later_tokens_cannot_be_trained_so() -> None:
    # The exception that is named: a step knows no later token.
    unmasked = {"model.causal_mask": False}
    assert not torch.allclose(loss_and_gradients(unmasked)[0], loss_and_gradients({**unmasked, **SEQUENTIAL})[0])


def test_the_cache_of_decoding_is_still_written_in_place() -> None:
    batch, model = ragged_batch(), build_model(Recipe().replace(TINY).model, V, V, 0).eval()
    with torch.inference_mode():
        state = model.start(model.encode(batch.source), capacity=5)
        places = [kv.k.data_ptr() for kv in state.target]
        for t in range(5):
            model.step(batch.target[:, t : t + 1], state)
        assert [kv.k.data_ptr() for kv in state.target] == places


def greedy_inputs(model: Seq2Seq, batch: Batch) -> Tensor:
    """What is read where every place has the model's own prediction: found by passes over ever longer prefixes."""
    inputs = decoder_inputs(batch.target).clone()
    for t in range(1, inputs.shape[1]):
        chosen = model(batch.source, inputs[:, :t])[:, -1].argmax(-1)
        inputs[:, t] = torch.where(inputs[:, t] == PAD, PAD, chosen)
    return inputs


def test_predictions_are_fed_where_they_are_to_be() -> None:
    batch, model = ragged_batch(), build_model(Recipe().replace(TINY).model, V, V, 3)
    inputs = decoder_inputs(batch.target)
    fed = sequential(model, batch.source, inputs, torch.ones_like(inputs, dtype=torch.bool))
    own = greedy_inputs(model, batch)
    assert (own[:, 1:] != inputs[:, 1:]).any()
    assert torch.equal(own[:, 0], inputs[:, 0])  # BOS is nobody's prediction
    real = inputs != PAD
    torch.testing.assert_close(fed[real], model(batch.source, own)[real], rtol=1e-5, atol=1e-5)
    none = sequential(model, batch.source, inputs, torch.zeros_like(inputs, dtype=torch.bool))
    torch.testing.assert_close(none, sequential(model, batch.source, inputs, None))


def test_places_are_drawn_with_their_probability_and_by_a_generator_of_their_own() -> None:
    inputs = torch.full((200, 100), 5)
    state = torch.get_rng_state()
    drawn = sampled_places(inputs, 0.3, seed=1, step=2, batch_index=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert drawn.float().mean().item() == pytest.approx(0.3, abs=4 * (0.21 / 20_000) ** 0.5)
    assert torch.equal(drawn, sampled_places(inputs, 0.3, seed=1, step=2, batch_index=0))
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not torch.equal(drawn, sampled_places(inputs, 0.3, *other))
    assert not sampled_places(inputs, 0.0, 1, 2, 0).any()
    assert sampled_places(inputs, 1.0, 1, 2, 0).all()


def test_the_share_of_predictions_grows_over_training() -> None:
    # Without a trainer the module stands before its first update: of four steps, a quarter of the final share.
    recipe = {**SEQUENTIAL, "train.sampling": 1.0}
    gold, first = module(SEQUENTIAL), module(recipe)
    only = module({**recipe, "train.max_steps": 1})
    batch = ragged_batch()
    losses = [float(one.training_step(batch, 0)["loss"].detach()) for one in (gold, first, only)]
    inputs = decoder_inputs(batch.target)
    own = sampled_places(inputs, 0.25, 0, 0, 0)
    expected = sequential(first.model, batch.source, inputs, own)
    everywhere = sequential(only.model, batch.source, inputs, torch.ones_like(own))
    for logits, loss in ((expected, losses[1]), (everywhere, losses[2])):
        nll = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten(), ignore_index=PAD)
        assert loss == pytest.approx(nll.item())
    assert losses[0] != pytest.approx(losses[2])


def test_sampling_is_refused_where_there_is_nothing_to_sample() -> None:
    with pytest.raises(ConfigError, match=r"train\.sampling: got 0\.5.*sequential"):
        module({"train.sampling": 0.5})
    with pytest.raises(ConfigError, match=r"train\.sampling: got 1\.5.*at most 1"):
        Recipe().replace({"train.sampling": 1.5, **SEQUENTIAL})
    with pytest.raises(ValueError, match="parallel"):
        parallel(build_model(Recipe().model, V, V, 0), *ragged_batch()[:2], torch.ones(3, 6, dtype=torch.bool))


def test_the_default_regime_leaves_fingerprints_as_they_were() -> None:
    plain = Recipe()
    assert plain.replace({"train.regime": "parallel", "train.sampling": 0}).fingerprint("x") == plain.fingerprint("x")
    changed = plain.replace(SEQUENTIAL)
    assert changed.fingerprint("x") != plain.fingerprint("x")
    assert changed.replace({"train.sampling": 0.5}).fingerprint("x") != changed.fingerprint("x")
