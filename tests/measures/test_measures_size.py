"""Floating-point operations and parameters."""

from __future__ import annotations

import pytest
import torch

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures.size import Size, forward_flops, parameter_count


def formula(S: int, T: int, d: int, d_ff: int, V: int, encoder_layers: int, decoder_layers: int) -> int:
    """Two a multiply-add: projections 8 L d^2, scores and values 4 L^2 d, feed-forward 4 L d d_ff, a layer."""
    encoder = 8 * S * d**2 + 4 * S**2 * d + 4 * S * d * d_ff
    crossing = 4 * T * d**2 + 4 * S * d**2 + 4 * T * S * d
    decoder = 8 * T * d**2 + 4 * T**2 * d + crossing + 4 * T * d * d_ff
    return encoder_layers * encoder + decoder_layers * decoder + 2 * T * d * V


@pytest.mark.parametrize(("S", "T"), [(1, 1), (10, 10), (7, 33), (128, 64)])
@pytest.mark.parametrize(("d_model", "d_ff", "layers"), [(32, 128, (1, 1)), (48, 100, (3, 2))])
def test_flops_are_the_formulas(S: int, T: int, d_model: int, d_ff: int, layers: tuple[int, int]) -> None:
    config = ModelConfig(d_model=d_model, d_ff=d_ff, encoder_layers=layers[0], decoder_layers=layers[1])
    model = build_model(config, 11, 13, 0)
    assert forward_flops(model, S, T) == formula(S, T, d_model, d_ff, 13, *layers)


def test_quadratic_share_of_a_layer() -> None:
    # L / (L + 6 d): .40 at d = 128, L = 512. Two depths are subtracted, so that the output does not count.
    flops = []
    for layers in (1, 2):
        model = build_model(ModelConfig(d_model=128, d_ff=512, encoder_layers=layers, decoder_layers=1), 8, 8, 0)
        flops.append(forward_flops(model, 512, 1))
    layer = flops[1] - flops[0]
    assert layer == 24 * 512 * 128**2 + 4 * 512**2 * 128
    assert 4 * 512**2 * 128 / layer == pytest.approx(0.40, abs=0.001)


@pytest.mark.parametrize("delta", [{"tying": "all"}, {"tying": "none"}, {"norm_placement": "post"}])
def test_sharing_and_norms_change_no_flops(delta: dict[str, str]) -> None:
    models = [build_model(ModelConfig(**d), 12, 12, 0) for d in ({}, delta)]  # type: ignore[arg-type]
    assert forward_flops(models[0], 9, 8) == forward_flops(models[1], 9, 8)


def test_counting_leaves_the_model_alone() -> None:
    model = build_model(ModelConfig(), 12, 12, 0).eval()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    state = torch.get_rng_state()
    forward_flops(model, 5, 5)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_size_is_that_of_the_longest_training_example(half_trained: Evaluation) -> None:
    metrics = Size().measure(half_trained).metrics
    d, ff = 32, 64
    # Strings of four symbols: 6 source tokens with BOS and EOS, and 5 decoder inputs.
    assert metrics["flops"] == formula(6, 5, d, ff, 12, 1, 1)
    norms = 2 * d * (2 + 3 + 2)
    attention = 3 * 4 * (d * d + d)
    feed_forward = 2 * (2 * d * ff + ff + d)
    assert metrics["parameters"] == 2 * 12 * d + attention + feed_forward + norms
    assert parameter_count(half_trained.model) == metrics["parameters"]
