"""Components against independent implementations in installed packages: x-transformers and transformers.

PyTorch's own attention and Transformer layers are in test_core_attention, transformers' rotary scalings in
test_core_positions_scaling, its T5 buckets in test_core_positions_relative.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from transformers import BartConfig, T5Config
from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer
from transformers.models.t5.modeling_t5 import T5Attention, T5LayerNorm
from x_transformers import x_transformers

from transformer_ablate.config import ModelConfig
from transformer_ablate.core.attention import SelfAttention
from transformer_ablate.core.linear import initialise
from transformer_ablate.core.normalization import RMSNorm
from transformer_ablate.core.positions import Geometry, NoPosition, build_position
from transformer_ablate.core.positions.bias import bucket_starts
from transformer_ablate.core.positions.bound import BoundPosition
from transformer_ablate.core.positions.numbering import Numbering
from transformer_ablate.core.seq2seq import Memory
from transformer_ablate.core.transformer import Decoder, DecoderState, EncoderLayer
from transformer_ablate.registry import FEED_FORWARDS, POSITIONS

LENGTH = 30


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("heads", [1, 2, 4, 6, 8, 12])
def test_alibi_is_x_transformers(heads: int) -> None:
    ours = build_position(POSITIONS, "alibi", Geometry(8 * heads, heads, 1, causal=False), {})
    theirs = x_transformers.AlibiPositionalBias(heads)
    at = torch.arange(LENGTH)
    torch.testing.assert_close(ours.pair_table(at, at, torch.float32).squeeze(), theirs(LENGTH, LENGTH).squeeze())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20)])
def test_t5_bias_is_x_transformers(causal: bool, buckets: int, max_distance: int) -> None:
    options = {"buckets": buckets, "max_distance": max_distance}
    ours = build_position(POSITIONS, "t5", Geometry(32, 4, 1, causal), options)
    theirs = x_transformers.RelativePositionBias(1.0, causal, buckets, max_distance, 4)
    with torch.no_grad():
        ours.scalars.copy_(theirs.relative_attention_bias.weight)  # type: ignore[union-attr,operator]
    at = torch.arange(150)
    bias = ours.pair_table(at, at, torch.float32)
    # Their logarithm in float32 may fall just short of a whole number at the first distance of a bucket.
    distance = (at - at[:, None]).abs()
    starts = torch.tensor(bucket_starts(buckets if causal else buckets // 2, max_distance))
    seen = ~torch.isin(distance, starts) & ((at <= at[:, None]) | (not causal))
    assert seen.sum() > 8000
    torch.testing.assert_close(bias[:, seen], theirs(150, 150)[:, seen])


@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"base": 100.0}, {"base": 100}),
        ({"scaling": "pi", "factor": 3.0}, {"interpolation_factor": 3.0}),
        ({"scaling": "ntk", "factor": 4.0}, {"base_rescale_factor": 4.0}),
    ],
)
def test_rotary_is_x_transformers(options: dict[str, Any], theirs: dict[str, float]) -> None:
    ours = build_position(POSITIONS, "rope", Geometry(64, 4, 1, causal=False), options)
    other = x_transformers.RotaryEmbedding(16, **theirs)
    q = noise(2, 4, LENGTH, 16)
    at = torch.arange(LENGTH)
    expected = x_transformers.apply_rotary_pos_emb(q, other(at)[0])
    found = ours.transform_query(q, ours.point_table(at, torch.tensor([LENGTH]), q.dtype), 0)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_xpos_scores_are_x_transformers() -> None:
    # They centre the exponent on the middle of the sequence; a common shift leaves q . k as it is.
    ours = build_position(POSITIONS, "xpos", Geometry(64, 4, 1, causal=True), {})
    theirs = x_transformers.RotaryEmbedding(16, use_xpos=True)
    q, k = noise(2, 4, LENGTH, 16), noise(2, 4, LENGTH, 16, seed=1)
    at = torch.arange(LENGTH)
    turn, scale = theirs(at)
    rotate = x_transformers.apply_rotary_pos_emb
    expected = rotate(q, turn, scale) @ rotate(k, turn, scale**-1).mT
    table = ours.point_table(at, torch.tensor([LENGTH]), q.dtype)
    found = ours.transform_query(q, table, 0) @ ours.transform_key(k, table, 0).mT
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("gelu", {}),
        ("silu", {"swish": True}),
        ("squared_relu", {"relu_squared": True}),
        ("swiglu", {"glu": True, "swish": True}),
        ("geglu", {"glu": True}),
    ],
)
def test_feed_forwards_are_x_transformers(name: str, theirs: dict[str, bool]) -> None:
    ours = FEED_FORWARDS[name](8, 24, matched=False)
    other = x_transformers.FeedForward(8, mult=3, **theirs)
    first, last = (other.ff[i] for i in (0, 2))
    with torch.no_grad():
        if "glu" in theirs:
            (ours.up.weight.data, ours.gate.weight.data) = first.proj.weight.chunk(2)
            (ours.up.bias.data, ours.gate.bias.data) = first.proj.bias.chunk(2)
        else:
            ours.up.load_state_dict(first[0].state_dict())
        ours.down.load_state_dict(last.state_dict())
    x = noise(2, 5, 8)
    torch.testing.assert_close(ours(x), other(x))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_t5_bias_is_transformers_t5(causal: bool) -> None:
    config = T5Config(d_model=16, d_kv=8, num_heads=4, dropout_rate=0.0, is_decoder=causal)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    # T5 neither scales its scores nor has biases; its heads need not divide the width.
    ours = SelfAttention(ModelConfig(d_model=16, n_heads=4, d_head=8, attention_scale=1.0, qkv_bias="none"), 0)
    position = build_position(POSITIONS, "t5", Geometry(16, 4, 1, causal, d_head=8), {})
    initialise(ours, seed=0)
    with torch.no_grad():
        for matrix, part in zip((theirs.q, theirs.k, theirs.v), ours.qkv.weight.chunk(3), strict=True):
            matrix.weight.copy_(part)
        theirs.o.weight.copy_(ours.out.weight)  # type: ignore[arg-type]
        position.scalars.copy_(theirs.relative_attention_bias.weight)  # type: ignore[union-attr,operator]
    x, at = noise(2, 12, 16), torch.arange(12)
    mask = torch.zeros(1, 1, 12, 12)
    if causal:
        mask = mask.masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), -torch.inf)
    with torch.no_grad():
        expected = theirs(x, mask=mask)[0]
        found = ours(x, BoundPosition(position, pair=position.pair_table(at, at, x.dtype)), is_causal=causal)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_rms_norm_is_transformers_t5() -> None:
    ours, theirs = RMSNorm(8), T5LayerNorm(8, eps=1e-5)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(torch.linspace(0.5, 2, 8))
    torch.testing.assert_close(ours(noise(2, 5, 8)), theirs(noise(2, 5, 8)))


def copy_attention(qkv: Tensor, bias: Tensor, theirs: torch.nn.Module, names: tuple[str, ...]) -> None:
    for name, weight, offset in zip(names, qkv.split(16), bias.split(16), strict=True):
        getattr(theirs, name).weight.copy_(weight)
        getattr(theirs, name).bias.copy_(offset)


def test_post_norm_layers_are_transformers_bart() -> None:
    bart = BartConfig(
        d_model=16,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        activation_function="relu",
    )
    bart._attn_implementation = "eager"
    config = ModelConfig(d_model=16, n_heads=4, d_ff=24, decoder_layers=1, norm_placement="post", position="none")
    encoder, decoder = EncoderLayer(config, 0), Decoder(config, Numbering())
    layer = decoder.layers[0]
    for module in (encoder, decoder):
        initialise(module, seed=0)
    their_encoder, their_decoder = BartEncoderLayer(bart).eval(), BartDecoderLayer(bart).eval()
    with torch.no_grad():
        for ours, theirs in ((encoder, their_encoder), (layer, their_decoder)):
            copy_attention(
                ours.self_attention.qkv.weight,  # type: ignore[union-attr,arg-type]
                ours.self_attention.qkv.bias,  # type: ignore[union-attr,arg-type]
                theirs.self_attn,
                ("q_proj", "k_proj", "v_proj"),
            )
            theirs.self_attn.out_proj.load_state_dict(ours.self_attention.out.state_dict())  # type: ignore[union-attr]
            theirs.fc1.load_state_dict(ours.feed_forward.up.state_dict())  # type: ignore[union-attr]
            theirs.fc2.load_state_dict(ours.feed_forward.down.state_dict())  # type: ignore[union-attr]
        cross = layer.cross_attention
        names = ("q_proj", "k_proj", "v_proj")
        copy_attention(
            torch.cat((cross.q.weight, cross.kv.weight)),  # type: ignore[union-attr]
            torch.cat((cross.q.bias, cross.kv.bias)),  # type: ignore[union-attr]
            their_decoder.encoder_attn,
            names,
        )
        their_decoder.encoder_attn.out_proj.load_state_dict(cross.out.state_dict())  # type: ignore[union-attr]
        x, y = noise(2, 7, 16), noise(2, 5, 16, seed=1)
        nope = NoPosition(Geometry(16, 4, 1, False))
        real = torch.ones(2, 7, dtype=torch.bool)
        states = encoder(x, BoundPosition(nope), None, real)
        first = their_encoder(x, attention_mask=None)
        first = first[0] if isinstance(first, tuple) else first
        torch.testing.assert_close(states, first, atol=1e-5, rtol=1e-4)
        memory = Memory(states, real, torch.arange(7))
        found = decoder(y, DecoderState(memory, decoder.read_source(memory), []), cached=False)
        triangle = torch.zeros(1, 1, 5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
        second = their_decoder(y, attention_mask=triangle, encoder_hidden_states=states)
        second = second[0] if isinstance(second, tuple) else second
        torch.testing.assert_close(found, second, atol=1e-5, rtol=1e-4)
