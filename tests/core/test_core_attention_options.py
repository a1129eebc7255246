"""The toggles of attention, masks and residual stream: each against its formula, and none breaks what must hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.core.attention import SelfAttention, attend, attend_naive, attention_weights
from transformer_ablate.core.linear import initialise
from transformer_ablate.core.positions import Geometry, NoPosition, build_position
from transformer_ablate.core.positions.bound import BoundPosition
from transformer_ablate.measures.size import parameter_count
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS
from transformer_ablate.tokens import BOS, EOS, PAD

V = 20
NOPE = NoPosition(Geometry(16, 4, 1, False))
NOWHERE = BoundPosition(NOPE)
BASE = ModelConfig(d_model=16, n_heads=2, d_ff=32, position="rope", cross_position="rotary")

# Toggles under which a decoder still decodes as it was trained: cached = full, causal, independent of batch mates.
SOUND: dict[str, dict[str, Any]] = {
    "full-width heads": {"d_head": 16},
    "narrow heads": {"d_head": 2},
    "one head": {"n_heads": 1},
    "unscaled": {"attention_scale": 1.0},
    "another scale": {"attention_scale": 0.1},
    "no output projection": {"output_projection": False},
    "no key bias": {"qkv_bias": "no-key"},
    "no bias": {"qkv_bias": "none"},
    "extra key and value": {"extra_key_value": True},
    "extra key and value, Shaw values": {
        "extra_key_value": True,
        "position": "shaw",
        "position_options": {"values": True},
    },
    "extra key and value, bias": {"extra_key_value": True, "position": "t5", "cross_position": "relative_bias"},
    "QK-norm": {"qk_norm": True},
    "QK-norm, dynamic NTK within its length": {
        "qk_norm": True,
        "position_options": {"scaling": "dynamic_ntk", "trained_length": 64},
    },
    "causal encoder": {"causal_encoder": True},
    "no residual": {"residual": False},
    "no feed-forward": {"ffn": "none"},
    "batch norm": {"norm": "batchnorm"},
    "unmasked batch norm": {"norm": "batchnorm_unmasked"},
    "no norm": {"norm": "none"},
    "RMSNorm": {"norm": "rmsnorm"},
    "ff_factor": {"ff_factor": 1.0},
    "unmatched gate": {"ffn": "swiglu", "matched": False},
    "randomised": {"randomised_positions": 128},
    "randomised, shared": {"randomised_positions": 128, "shared_draw": True},
    "randomised, T5 and its bias": {"randomised_positions": 128, "position": "t5", "cross_position": "relative_bias"},
    "randomised, learned": {"randomised_positions": 128, "position": "learned"},
    "randomised, Shaw": {"randomised_positions": 128, "position": "shaw", "position_options": {"values": True}},
}
every_sound_toggle = pytest.mark.parametrize("toggle", SOUND)


def model_of(seed: int = 0, **options: Any) -> Seq2Seq:
    """A model in evaluation mode whose biases, norms and position tables are off their initial values."""
    model = build_model(dataclasses.replace(BASE, **options), V, V, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 or "position." in name:
                p += 0.2 * torch.randn(p.shape, generator=generator)
    return model.eval()


def sentences(lengths: list[int], seed: int = 0) -> Tensor:
    tokens = torch.randint(4, V, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    for row, length in zip(tokens, lengths, strict=True):
        row[0], row[length - 1], row[length:] = BOS, EOS, PAD
    return tokens


@every_sound_toggle
def test_cached_decoding_is_the_full_pass(toggle: str) -> None:
    model = model_of(**SOUND[toggle])
    source, target = sentences([9, 5, 12]), sentences([20, 20, 20], seed=1)
    with torch.inference_mode():
        memory = model.encode(source)
        full = model.decode(target, memory)
        state = model.start(memory, capacity=20)
        steps = [model.step(part, state) for part in target.split((7, 1, 1, 4, 1, 6), dim=1)]
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-4, rtol=0)


@every_sound_toggle
def test_a_later_token_changes_no_earlier_logit(toggle: str) -> None:
    model = model_of(**SOUND[toggle])
    source, target = sentences([9, 5]), sentences([12, 12], seed=1)
    changed = target.clone()
    changed[:, 6] = 4 + (changed[:, 6] - 3) % (V - 4)
    with torch.inference_mode():
        before, after = model(source, target), model(source, changed)
    assert torch.equal(after[:, :6], before[:, :6])
    assert not torch.allclose(after[:, 6], before[:, 6])


@every_sound_toggle
def test_outputs_do_not_depend_on_batch_mates(toggle: str) -> None:
    model = model_of(**SOUND[toggle])
    lengths, target_lengths = [3, 11, 7, 5], [5, 3, 9, 12]
    source, target = sentences(lengths), sentences(target_lengths, seed=1)
    with torch.inference_mode():
        together = model(source, target)
        for i, (length, target_length) in enumerate(zip(lengths, target_lengths, strict=True)):
            alone = model(source[i : i + 1, :length], target[i : i + 1, :target_length])
            torch.testing.assert_close(alone[0], together[i, :target_length], atol=1e-5, rtol=0)


@every_sound_toggle
@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_gradients_are_finite(toggle: str, autocast: bool) -> None:
    model = model_of(**SOUND[toggle], attention_dropout=0.1).train()
    source, target = sentences([9, 5, 3]), sentences([4, 10, 7], seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = model(source, target)
    logits.float().square().mean().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name


# What the unsound toggles do -------------------------------------------------------------------------------------


def test_without_causal_mask_a_later_token_leaks_but_padding_does_not() -> None:
    model = model_of(causal_mask=False)
    source, target = sentences([9]), sentences([12], seed=1)
    changed = target.clone()
    changed[:, 8] = 4 + (changed[:, 8] - 3) % (V - 4)
    padded = torch.cat((target, torch.full((1, 3), PAD)), dim=1)
    with torch.inference_mode():
        before = model(source, target)
        assert (model(source, changed)[:, :8] - before[:, :8]).abs().max() > 1e-3
        torch.testing.assert_close(model(source, padded)[:, :12], before, atol=1e-5, rtol=0)


def test_without_causal_mask_relative_positions_look_both_ways() -> None:
    decoder = model_of(causal_mask=False, position="t5").decoder
    assert not decoder.position.geometry.causal  # type: ignore[union-attr]
    assert model_of(position="t5").decoder.position.geometry.causal  # type: ignore[union-attr]


@pytest.mark.parametrize("side", ["source", "target"])
def test_without_padding_mask_padding_counts(side: str) -> None:
    masks = {"padding_mask": False, "causal_mask": side == "source"}
    model = model_of(**masks)
    tokens = {"source": sentences([9]), "target": sentences([12], seed=1)}
    longer = tokens | {side: torch.cat((tokens[side], torch.full((1, 3), PAD)), dim=1)}
    with torch.inference_mode():
        difference = model(**longer)[:, :12] - model(**tokens)
    assert difference.abs().max() > 1e-3


def test_a_causal_encoder_sees_no_later_token() -> None:
    source = sentences([9, 9])
    changed = source.clone()
    changed[:, 5] = 4 + (changed[:, 5] - 3) % (V - 4)
    for causal in (True, False):
        model = model_of(causal_encoder=causal)
        with torch.inference_mode():
            before, after = model.encode(source).states, model.encode(changed).states
        assert torch.equal(before[:, :5], after[:, :5]) is causal
        assert not torch.allclose(before[:, 5:], after[:, 5:])


# Score terms through the fused kernel ----------------------------------------------------------------------------

TERMS: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in POSITIONS.names()} | {
    "alibi-heads": ("alibi", {"sides": "heads"}),
    "kerple-power": ("kerple", {"kernel": "power"}),
    "fire-short": ("fire", {"threshold": 3.0}),
}


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("encoding", TERMS)
@pytest.mark.parametrize("batched", [False, True], ids=["(L,)", "(B, L)"])
def test_the_fused_kernel_is_the_naive_twin_under_every_score_term(encoding: str, causal: bool, batched: bool) -> None:
    name, options = TERMS[encoding]
    position = build_position(POSITIONS, name, Geometry(32, 4, 2, causal), options)
    initialise(position, seed=0)
    with torch.no_grad():
        for parameter in position.parameters():  # tables that start at zero would give no term
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    q, k, v = torch.randn(3, 3, 4, 9, 8, generator=torch.Generator().manual_seed(0)) * 2
    numbers = torch.arange(9) if not batched else torch.stack([torch.arange(9) * step for step in (1, 2, 5)])
    table = position.point_table(numbers, torch.tensor([9]), q.dtype)
    q, k = position.transform_query(q, table, 1), position.transform_key(k, table, 1)
    term = position.score_term(q, k, position.pair_table(numbers, numbers, q.dtype), 1)
    real = torch.ones(3, 1, 1, 9, dtype=torch.bool)
    real[1, ..., 5:] = False
    real[2] = False  # a fully padded row
    fused, naive = attend(q, k, v, real, term, causal), attend_naive(q, k, v, real, term, causal)
    torch.testing.assert_close(fused, naive, atol=1e-5, rtol=1e-5)
    assert (fused[2] == 0).all()
    assert (fused[:2] != 0).all()


@pytest.mark.parametrize("cross", CROSS_POSITIONS.names())
def test_the_fused_kernel_is_the_naive_twin_across_stacks(cross: str) -> None:
    position = build_position(CROSS_POSITIONS, cross, Geometry(32, 4, 2, causal=False), {})
    initialise(position, seed=0)
    generator = torch.Generator().manual_seed(0)
    q, (k, v) = torch.randn(3, 4, 5, 8, generator=generator), torch.randn(2, 3, 4, 9, 8, generator=generator)
    lengths = torch.tensor([9, 4, 1])
    at = [position.point_table(torch.arange(n), lengths, q.dtype) for n in (5, 9)]
    q, k = position.transform_query(q, at[0], 0), position.transform_key(k, at[1], 0)
    term = position.score_term(q, k, position.pair_table(torch.arange(5), torch.arange(9), q.dtype), 0)
    mask = (torch.arange(9) < lengths[:, None])[:, None, None]
    torch.testing.assert_close(attend(q, k, v, mask, term), attend_naive(q, k, v, mask, term), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale", [None, 1.0, 0.05])
def test_scale_is_the_factor_on_the_scores(scale: float | None) -> None:
    q, k, v = torch.randn(3, 2, 2, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (q @ k.mT * (8**-0.5 if scale is None else scale)).softmax(-1)
    torch.testing.assert_close(attention_weights(q, k, scale=scale), expected)
    torch.testing.assert_close(attend(q, k, v, scale=scale), expected @ v)


# Parts of attention ----------------------------------------------------------------------------------------------


def test_extra_key_and_value_are_torchs_bias_kv() -> None:
    torch.manual_seed(0)
    ours = SelfAttention(ModelConfig(d_model=16, extra_key_value=True), 0)
    theirs = nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True)
    initialise(ours, seed=0)
    assert ours.extra is not None
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv.weight)
        theirs.in_proj_bias.copy_(ours.qkv.bias)
        theirs.out_proj.weight.copy_(ours.out.weight)  # type: ignore[arg-type]
        theirs.out_proj.bias.copy_(ours.out.bias)  # type: ignore[arg-type]
        theirs.bias_k.copy_(ours.extra.key.view(1, 1, 16))  # type: ignore[union-attr]
        theirs.bias_v.copy_(ours.extra.value.view(1, 1, 16))  # type: ignore[union-attr]
    x = torch.randn(3, 7, 16)
    real = torch.arange(7) < torch.tensor([7, 4, 0])[:, None]  # the last row is padding alone
    blocked = torch.ones(7, 7, dtype=torch.bool).triu(1)
    with torch.no_grad():
        causal = theirs(x, x, x, attn_mask=blocked)[0]
        padded = theirs(x, x, x, key_padding_mask=~real)[0]
        torch.testing.assert_close(ours(x, NOWHERE, is_causal=True), causal, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ours(x, NOWHERE, mask=real[:, None, None]), padded, atol=1e-5, rtol=1e-5)


def test_qk_norm_normalises_each_head_before_its_position() -> None:
    attention = SelfAttention(ModelConfig(d_model=16, n_heads=2, qk_norm=True), 0).double()
    initialise(attention, seed=0)
    with torch.no_grad():
        attention.q_norm.weight.copy_(torch.linspace(0.5, 2, 8))
        attention.k_norm.weight.copy_(torch.linspace(1, 3, 8))
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k, v = attention.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)  # (B, H, L, d_head) each

    def normalised(vectors: Tensor, gain: Tensor) -> Tensor:
        return vectors / (vectors.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    q, k = normalised(q, attention.q_norm.weight), normalised(k, attention.k_norm.weight)  # type: ignore[arg-type]
    expected = attention.out(attend_naive(q, k, v).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(attention(x, NOWHERE), expected)


def test_a_bias_of_the_keys_changes_nothing_and_the_others_do() -> None:
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    attention = SelfAttention(ModelConfig(d_model=16), 0)
    initialise(attention, seed=0)
    before = attention(x, NOWHERE)
    for part, seen in ((slice(16, 32), False), (slice(0, 16), True), (slice(32, 48), True)):
        with torch.no_grad():
            attention.qkv.bias.zero_()
            attention.qkv.bias[part] = torch.linspace(-1, 1, 16)
        assert torch.allclose(attention(x, NOWHERE), before, atol=1e-6) is not seen


@pytest.mark.parametrize(("kind", "matrices"), [("all", 3), ("no-key", 2), ("none", 0)])
def test_biases_are_where_they_are_said_to_be(kind: str, matrices: int) -> None:
    attention = SelfAttention(ModelConfig(d_model=16, qkv_bias=kind), 0)
    initialise(attention, seed=0)
    assert parameter_count(attention.qkv) == 3 * 16 * 16 + matrices * 16
    if matrices:
        with torch.no_grad():
            attention.qkv.bias.copy_(torch.arange(1.0, 1 + 16 * matrices))
        out = attention.qkv(torch.zeros(1, 16))[0]
        assert bool((out[16:32] == 0).all()) is (kind == "no-key")
        assert out[0] == 1
        assert out[-1] == 16 * matrices


def test_dropout_on_weights_keeps_their_mean_and_is_off_in_evaluation() -> None:
    options = {"d_model": 8, "n_heads": 1, "output_projection": False}
    dropping, whole = (SelfAttention(ModelConfig(**options, attention_dropout=rate), 0) for rate in (0.4, 0.0))  # type: ignore[arg-type]
    for attention in (dropping, whole):
        initialise(attention, seed=0)
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = whole(x, NOWHERE)
        torch.manual_seed(0)
        draws = torch.stack([dropping(x, NOWHERE) for _ in range(2000)])
        assert draws.std(0).min() > 1e-2
        torch.testing.assert_close(draws.mean(0), expected, atol=0.06, rtol=0)
        assert torch.equal(dropping.eval()(x, NOWHERE), expected)


def test_shaw_values_and_weights_that_are_dropped_agree() -> None:
    # Encodings that add to the values take the written-out path, whose dropout must be the same kind.
    options: dict[str, Any] = {"position": "shaw", "position_options": {"values": True}, "attention_dropout": 0.5}
    model = model_of(**options)
    source, target = sentences([6]), sentences([6], seed=1)
    with torch.no_grad():
        assert torch.equal(model(source, target), model(source, target))
        model.train()
        torch.manual_seed(0)
        first = model(source, target)
        assert not torch.allclose(first, model(source, target))


@pytest.mark.parametrize("d_model", [32, 64, 128])
def test_without_output_projection_the_feed_forward_makes_up_for_its_parameters(d_model: int) -> None:
    config = ModelConfig(d_model=d_model, d_ff=4 * d_model)
    counts = {
        (projected, matched): parameter_count(
            build_model(dataclasses.replace(config, output_projection=projected, matched=matched), V, V)
        )
        for projected in (True, False)
        for matched in (True, False)
    }
    assert counts[True, True] == counts[True, False]
    assert counts[False, True] == pytest.approx(counts[True, True], rel=2e-3)
    lacking = 2 * 3 * (d_model**2 + d_model)  # two layers a stack, three attentions in a pair of them
    assert counts[False, False] == counts[True, True] - lacking


def test_full_width_heads_are_as_wide_as_the_model() -> None:
    config = ModelConfig(d_model=16, n_heads=4, d_head=16)
    attention = SelfAttention(config, 0)
    assert attention.qkv.weight.shape == (3 * 4 * 16, 16)
    assert attention.out.weight.shape == (16, 4 * 16)
    initialise(attention, seed=0)
    # Queries keep the unit variance that standard heads start with.
    x = torch.randn(1, 4000, 16, generator=torch.Generator().manual_seed(1))
    assert attention.qkv(x)[..., :64].var().item() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("scale", [0.0, 1.0, 0.1])
def test_shaws_term_has_the_scale_of_the_scores(scale: float) -> None:
    position = build_position(POSITIONS, "shaw", Geometry(32, 4, 1, causal=False, scale=scale), {"clip": 2})
    initialise(position, seed=0)
    q, k = torch.randn(2, 1, 4, 5, 8, generator=torch.Generator().manual_seed(0))
    at = torch.arange(5)
    found = position.score_term(q, k, position.pair_table(at, at, q.dtype), 0)
    rows = (at - at[:, None]).clamp(-2, 2) + 2
    keys = position.keys[0][:, rows]  # type: ignore[index]  # (H, L, S, d_head)
    expected = torch.einsum("bhld,hlsd->bhls", q, keys) * (scale or 8**-0.5)
    torch.testing.assert_close(found, expected)
    decoder = model_of(position="shaw", attention_scale=scale).decoder
    assert decoder.position.geometry.scale == (scale or 8**-0.5)  # type: ignore[union-attr]
