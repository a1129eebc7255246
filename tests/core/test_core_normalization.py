"""Batch normalisation with padding, and where norms stand around sublayers."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.attention import MultiHeadAttention
from transformer_ablate.core.feedforward import FeedForward, warn_of_mismatch
from transformer_ablate.core.normalization import (
    BatchNorm,
    DeepNorm,
    LayerNorm,
    PreNorm,
    SandwichNorm,
    UnmaskedBatchNorm,
)
from transformer_ablate.registry import FEED_FORWARDS, NORM_PLACEMENTS, NORMS


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2 + 1


def real_tokens(lengths: list[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


# Batch normalisation ---------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5).filter(lambda lengths: sum(lengths) > 1))
def test_batch_norm_is_torchs_over_the_real_tokens(lengths: list[int]) -> None:
    ours, theirs = BatchNorm(3), nn.BatchNorm1d(3)
    real = real_tokens(lengths)
    for step in range(3):
        x = noise(*real.shape, 3, seed=step)
        expected = theirs(x[real])
        torch.testing.assert_close(ours(x, real)[real], expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    x = noise(*real.shape, 3, seed=9)
    torch.testing.assert_close(ours.eval()(x, real)[real], theirs.eval()(x[real]), atol=1e-4, rtol=1e-4)


def test_padding_moves_the_statistics_of_the_unmasked_arm_only() -> None:
    real = real_tokens([2, 6])
    x = noise(2, 6, 3)
    other = torch.where(real[..., None], x, x + 5)  # the same real tokens, other padding
    for norm, moved in ((BatchNorm, False), (UnmaskedBatchNorm, True)):
        difference = (norm(3)(x, real) - norm(3)(other, real))[real].abs().max().item()
        assert difference > 0.1 if moved else difference == 0


def test_batch_norm_in_evaluation_does_not_depend_on_the_batch() -> None:
    norm = BatchNorm(3)
    norm(noise(4, 5, 3), None)
    x = noise(4, 5, 3, seed=1)
    assert (norm(x, None)[:1] - norm(x[:1], None)).abs().max() > 1e-2
    norm.eval()
    torch.testing.assert_close(norm(x, None)[:1], norm(x[:1], None))


def test_one_real_token_has_no_variance_and_no_nan() -> None:
    norm = BatchNorm(3)
    out = norm(noise(1, 4, 3), real_tokens([1]).new_tensor([[True, False, False, False]]))
    assert out.isfinite().all()
    assert norm.running_var.isfinite().all()


def test_running_statistics_are_saved_and_are_no_parameters() -> None:
    model = build_model(ModelConfig(d_model=16, n_heads=2, d_ff=32, norm="batchnorm"), 12, 12, seed=0)
    assert any("running_mean" in name for name in model.state_dict())
    assert not any("running" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("name", NORMS.names())
def test_norms_keep_the_shape_and_take_the_mask(name: str) -> None:
    x = noise(2, 4, 6)
    out = NORMS[name](6)(x, real_tokens([4, 2]))
    assert out.shape == x.shape
    assert out.dtype == x.dtype


def test_layer_norm_of_a_token_depends_on_that_token_alone() -> None:
    # CLAIMS layernorm-independent: mean 0, variance 1, whatever the batch and the length.
    norm = LayerNorm(32).double()
    x = noise(3, 7, 32).double()
    out = norm(x)
    assert torch.equal(norm(x[1:2, 3:4]), out[1:2, 3:4])
    torch.testing.assert_close(out.mean(-1), torch.zeros(3, 7).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(out.var(-1, correction=0), torch.ones(3, 7).double(), atol=1e-4, rtol=0)


# Placements ------------------------------------------------------------------------------------------------------


def double(x: Tensor) -> Tensor:
    return 2 * torch.sin(x)


@pytest.mark.parametrize("name", NORM_PLACEMENTS.names())
@pytest.mark.parametrize("keep", [1.0, 0.0, 1.7])
def test_placements_are_their_formulas(name: str, keep: float) -> None:
    x = noise(2, 3, 8)
    around = NORM_PLACEMENTS[name](lambda: LayerNorm(8), 0.0, keep)
    for i, norm in enumerate(m for m in around.modules() if isinstance(m, LayerNorm)):
        nn.init.constant_(norm.weight, 1.5 + i)
        nn.init.constant_(norm.bias, 0.3 - i)
    formula = {
        "pre": lambda: keep * x + double(around.norm(x)),
        "post": lambda: around.norm(keep * x + double(x)),
        "sandwich": lambda: keep * x + around.norm_after(double(around.norm(x))),
        "deepnorm": lambda: around.norm(keep * x + double(x)),
    }
    torch.testing.assert_close(around(x, double), formula[name]())


def test_sandwich_has_two_norms_a_sublayer() -> None:
    counts = {}
    for placement in ("pre", "sandwich"):
        model = build_model(ModelConfig(norm_placement=placement), 12, 12)
        counts[placement] = sum(isinstance(m, LayerNorm) for m in model.modules())
    assert counts == {"pre": 2 * 2 + 2 * 3 + 2, "sandwich": 2 * (2 * 2 + 2 * 3) + 2}
    assert SandwichNorm.needs_final_norm
    assert PreNorm.needs_final_norm


@pytest.mark.parametrize(
    ("n_encoder", "n_decoder"),
    [(6, 6), (2, 2), (12, 3), (100, 100)],
)
def test_deepnorm_factors_are_those_of_the_paper(n_encoder: int, n_decoder: int) -> None:
    N, M = n_encoder, n_decoder
    assert DeepNorm.stream_gain(N, M, decoder=False) == pytest.approx(0.81 * (N**4 * M) ** (1 / 16))
    assert DeepNorm.initial_gain(N, M, decoder=False) == pytest.approx(0.87 * (N**4 * M) ** (-1 / 16))
    assert DeepNorm.stream_gain(M, N, decoder=True) == pytest.approx((3 * M) ** 0.25)
    assert DeepNorm.initial_gain(M, N, decoder=True) == pytest.approx((12 * M) ** -0.25)


def test_deepnorm_scales_values_outputs_and_feed_forward_and_leaves_queries_and_keys() -> None:
    shape: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "encoder_layers": 3, "decoder_layers": 2}
    plain, deep = (
        build_model(ModelConfig(**shape, norm_placement=placement), 12, 12, seed=0)
        for placement in ("post", "deepnorm")
    )
    stacks = (("encoder", 3, 2, False), ("decoder", 2, 3, True))
    seen = 0
    for stack, own, other, decoder in stacks:
        beta = DeepNorm.initial_gain(own, other, decoder)
        assert 0.1 < beta < 0.9
        pairs = zip(getattr(plain, stack).modules(), getattr(deep, stack).modules(), strict=True)
        for one, scaled in pairs:
            if isinstance(one, MultiHeadAttention):
                values, scaled_values = one._projection_of_values(), scaled._projection_of_values()
                blocks = zip(values.weight.split(16), scaled_values.weight.split(16), strict=True)
                *others, (v, scaled_v) = blocks
                torch.testing.assert_close(scaled_v, beta * v)
                assert all(torch.equal(a, b) for a, b in others)
                torch.testing.assert_close(scaled.out.weight, beta * one.out.weight)  # type: ignore[union-attr]
                seen += 1
            if isinstance(one, FeedForward):
                torch.testing.assert_close(scaled.up.weight, beta * one.up.weight)
                torch.testing.assert_close(scaled.down.weight, beta * one.down.weight)
                seen += 1
        alpha = DeepNorm.stream_gain(own, other, decoder)
        assert {m.keep for m in getattr(deep, stack).modules() if isinstance(m, DeepNorm)} == {alpha}
    assert seen == 3 * 2 + 2 * 3


def test_deep_stacks_start_with_bounded_states_under_deepnorm_as_under_post() -> None:
    for placement in ("post", "deepnorm", "pre", "sandwich"):
        config = ModelConfig(d_model=32, n_heads=2, d_ff=64, encoder_layers=24, norm_placement=placement)
        states = build_model(config, 12, 12, seed=0).encode(torch.randint(4, 12, (2, 9))).states
        assert states.std().item() == pytest.approx(1, abs=0.1)


def test_without_residual_connections_nothing_of_the_stream_goes_past_a_sublayer() -> None:
    x = noise(1, 2, 8)
    for name in NORM_PLACEMENTS.names():
        around = NORM_PLACEMENTS[name](lambda: LayerNorm(8), 0.0, 0.0)
        constant = around(x, torch.zeros_like)
        assert torch.equal(constant, around(noise(1, 2, 8, seed=1), torch.zeros_like))
    model = build_model(ModelConfig(residual=False), 12, 12)
    assert {m.keep for m in model.modules() if hasattr(m, "keep")} == {0.0}


# Feed-forward ----------------------------------------------------------------------------------------------------


def test_no_feed_forward_leaves_attention_alone() -> None:
    config = ModelConfig(d_model=16, n_heads=2, d_ff=32)
    with_it, without = (
        build_model(ModelConfig(d_model=16, n_heads=2, d_ff=32, ffn=f), 12, 12) for f in ("relu", "none")
    )
    missing = sum(p.numel() for p in with_it.parameters()) - sum(p.numel() for p in without.parameters())
    layers = config.encoder_layers + config.decoder_layers
    sublayer = 2 * 16 * 32 + 32 + 16
    norm = 2 * 16
    assert missing == layers * (sublayer + norm)
    assert math.prod(without(torch.full((2, 3), 5), torch.full((2, 4), 5)).shape) == 2 * 4 * 12


def test_an_unmatched_gate_is_half_as_large_again() -> None:
    sizes = {
        matched: sum(p.numel() for p in FEED_FORWARDS["swiglu"](64, 256, matched).parameters() if p.dim() == 2)
        for matched in (True, False)
    }
    assert sizes[False] == 1.5 * 2 * 64 * 256
    assert sizes[True] == pytest.approx(2 * 64 * 256, rel=5e-3)


def test_a_mismatch_above_half_a_percent_is_warned_of_with_its_figure() -> None:
    warn_of_mismatch.cache_clear()
    with pytest.warns(UserWarning, match=r"width 1 has .* parameters, [+-]\d+\.\d+% against"):
        FEED_FORWARDS["swiglu"](5, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for d_model in (32, 64, 128, 512):
            FEED_FORWARDS["swiglu"](d_model, 4 * d_model)
        FEED_FORWARDS["swiglu"](5, 1, matched=False)


def test_a_users_feed_forward_may_have_other_parts() -> None:
    class WithDropout(FeedForward):
        activation = staticmethod(torch.tanh)

        def __init__(self, d_model: int, d_ff: int, matched: bool = True) -> None:
            super().__init__(d_model, d_ff, matched)
            self.drop = nn.Dropout(0.1)

    layer = WithDropout(4, 8)
    layer.scale_initial_values(0.5)
    assert layer.up.initial_gain == layer.down.initial_gain == 0.5
