"""Attention, norms and layers against written-out formulas and PyTorch's own modules."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core.attention import CrossAttention, KeyValues, SelfAttention, attend, attend_naive
from transformer_ablate.core.linear import initialise
from transformer_ablate.core.normalization import LayerNorm, NoNorm, PostNorm, PreNorm
from transformer_ablate.core.positions import Geometry, NoPosition
from transformer_ablate.core.positions.bound import BoundPosition
from transformer_ablate.core.positions.numbering import Numbering
from transformer_ablate.core.seq2seq import Memory
from transformer_ablate.core.transformer import Decoder, DecoderState, EncoderLayer

NOPE = NoPosition(Geometry(16, 4, 1, False))
NOWHERE = BoundPosition(NOPE)


@st.composite
def attention_inputs(draw: st.DrawFn) -> tuple[dict[str, Tensor | None], bool]:
    """q, k, v, mask and term of any shape that broadcasts, and whether attention is causal."""
    B, H, L = (draw(st.integers(1, n)) for n in (3, 3, 6))
    is_causal = draw(st.booleans())
    S = L if is_causal else draw(st.integers(1, 6))
    d_head = draw(st.sampled_from([1, 2, 5, 8]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    shape = partial(torch.randn, generator=generator)
    tensors: dict[str, Tensor | None] = {
        "q": shape(B, H, L, d_head) * 3,
        "k": shape(B, H, S, d_head),
        "v": shape(B, H, S, d_head),
        "mask": None,
        "term": None,
    }
    mask_shape = draw(st.sampled_from([None, (B, 1, 1, S), (L, S), (B, 1, L, S), (B, H, L, S)]))
    if mask_shape is not None:
        tensors["mask"] = torch.rand(mask_shape, generator=generator) < draw(st.sampled_from([0.2, 0.7]))
    term_shape = draw(st.sampled_from([None, (1, H, L, S), (H, L, S), (1, 1, L, S), (B, H, L, S)]))
    if term_shape is not None:
        tensors["term"] = shape(term_shape) * 2
    return tensors, is_causal


def nobody_to_attend_to(tensors: dict[str, Tensor | None], is_causal: bool) -> Tensor:
    q, k, mask = tensors["q"], tensors["k"], tensors["mask"]
    assert q is not None
    assert k is not None
    allowed = torch.ones(*q.shape[:3], k.shape[2], dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    return ~(allowed.tril() if is_causal else allowed).any(dim=-1)


@given(attention_inputs())
def test_fused_attention_is_the_written_out_formula(inputs: tuple[dict[str, Tensor | None], bool]) -> None:
    tensors, is_causal = inputs
    fused, naive = attend(**tensors, is_causal=is_causal), attend_naive(**tensors, is_causal=is_causal)  # type: ignore[arg-type]
    torch.testing.assert_close(fused, naive, atol=1e-5, rtol=1e-5)
    assert (fused[nobody_to_attend_to(tensors, is_causal)] == 0).all()


@given(attention_inputs())
def test_gradients_are_those_of_the_formula(inputs: tuple[dict[str, Tensor | None], bool]) -> None:
    tensors, is_causal = inputs
    gradients = []
    for function in (attend, attend_naive):
        leaves = {n: t.clone().requires_grad_() for n, t in tensors.items() if t is not None and n != "mask"}
        out = function(**{**tensors, **leaves}, is_causal=is_causal)  # type: ignore[arg-type]
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        gradients.append({n: t.grad for n, t in leaves.items()})
    assert all(g is not None and g.isfinite().all() for g in gradients[0].values())
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=1e-5, rtol=1e-4)


@given(attention_inputs())
def test_fused_attention_in_bf16(inputs: tuple[dict[str, Tensor | None], bool]) -> None:
    tensors, is_causal = inputs
    small = {n: t if t is None or n == "mask" else t.to(torch.bfloat16) for n, t in tensors.items()}
    exact = {n: t if t is None or n == "mask" else t.double() for n, t in small.items()}
    fused = attend(**small, is_causal=is_causal)  # type: ignore[arg-type]
    assert fused.dtype == torch.bfloat16
    assert fused.isfinite().all()
    # q is N(0, 9): scores near 10 are rounded to 2^-5, so the tolerance is that of bf16 scores, not of one rounding.
    torch.testing.assert_close(
        fused.double(),
        attend_naive(**exact, is_causal=is_causal),  # type: ignore[arg-type]
        atol=0.12,
        rtol=0.1,
    )


@pytest.mark.parametrize("with_term", [False, True])
def test_true_means_may_attend(with_term: bool) -> None:
    q, v = torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0, 2], [3, 4]]]])
    term = torch.zeros(1, 1, 2, 2) if with_term else None
    mask = torch.tensor([True, False]).view(1, 1, 1, 2)
    for function in (attend, attend_naive):
        assert torch.equal(function(q, q, v, mask, term), v[:, :, :1].expand(1, 1, 2, 2))


@pytest.mark.parametrize(
    ("d_head", "max_probability", "entropy"),
    [(4, 0.346, 2.264), (16, 0.623, 1.151), (64, 0.812, 0.508), (128, 0.867, 0.344), (512, 0.932, 0.166)],
)
def test_scaling_keeps_the_softmax_from_saturating(d_head: int, max_probability: float, entropy: float) -> None:
    generator = torch.Generator().manual_seed(d_head)
    q = torch.randn(2000, 1, 1, d_head, generator=generator)
    k = torch.randn(2000, 1, 32, d_head, generator=generator)
    values = torch.eye(32).expand(2000, 1, 32, 32)  # so that the output is the weights

    def figures(query: Tensor) -> tuple[float, float]:
        weights = attend(query, k, values)
        return weights.amax(-1).mean().item(), torch.special.entr(weights).sum(-1).mean().item()

    unscaled, scaled = figures(q * math.sqrt(d_head)), figures(q)
    assert unscaled == (pytest.approx(max_probability, abs=0.02), pytest.approx(entropy, abs=0.06))
    assert scaled == (pytest.approx(0.161, abs=0.02), pytest.approx(3.02, abs=0.06))


def test_cache_holds_what_was_written() -> None:
    kv = KeyValues.allocate(2, 3, 5, 4, like=torch.zeros(1, dtype=torch.float64))
    assert kv.k.dtype == torch.float64
    k, v = torch.randn(2, 2, 3, 4, 4, dtype=torch.float64)
    kv.append(0, k[:, :, :3], v[:, :, :3])
    all_k, all_v = kv.append(3, k[:, :, 3:], v[:, :, 3:])
    assert torch.equal(all_k, k)
    assert torch.equal(all_v, v)
    assert torch.equal(kv.select(torch.tensor([1])).k[:, :, :4], k[1:])


# Parity with torch.nn --------------------------------------------------------------------------------------------


def copy_attention(ours: SelfAttention | CrossAttention, theirs: nn.MultiheadAttention) -> None:
    """Draws ``theirs`` at random, biases included, and gives ``ours`` the same values."""
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    weight, bias, d = theirs.in_proj_weight, theirs.in_proj_bias, theirs.embed_dim
    with torch.no_grad():
        if isinstance(ours, SelfAttention):
            ours.qkv.weight.copy_(weight)
            ours.qkv.bias.copy_(bias)
        else:
            ours.q.weight.copy_(weight[:d])
            ours.q.bias.copy_(bias[:d])
            ours.kv.weight.copy_(weight[d:])
            ours.kv.bias.copy_(bias[d:])
        ours.out.weight.copy_(theirs.out_proj.weight)
        ours.out.bias.copy_(theirs.out_proj.bias)


def copy_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())


def copy_feed_forward(ours: nn.Module, theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> None:
    ours.up.load_state_dict(theirs.linear1.state_dict())  # type: ignore[operator,union-attr]
    ours.down.load_state_dict(theirs.linear2.state_dict())  # type: ignore[operator,union-attr]


KEPT = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0]], dtype=torch.bool)


def test_self_attention_is_torchs() -> None:
    torch.manual_seed(0)
    ours, theirs = SelfAttention(ModelConfig(d_model=16), 0), nn.MultiheadAttention(16, 4, batch_first=True)
    copy_attention(ours, theirs)
    x = torch.randn(3, 7, 16)
    padded = ours(x, NOWHERE, mask=KEPT[:, None, None])
    torch.testing.assert_close(padded, theirs(x, x, x, key_padding_mask=~KEPT)[0], atol=1e-5, rtol=1e-5)
    blocked = torch.ones(7, 7, dtype=torch.bool).triu(1)
    causal = ours(x, NOWHERE, is_causal=True)
    torch.testing.assert_close(causal, theirs(x, x, x, attn_mask=blocked)[0], atol=1e-5, rtol=1e-5)


def test_cross_attention_is_torchs() -> None:
    torch.manual_seed(1)
    ours, theirs = CrossAttention(ModelConfig(d_model=16), 0), nn.MultiheadAttention(16, 4, batch_first=True)
    copy_attention(ours, theirs)
    x, memory = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    out = ours(x, ours.keys_values(memory, NOWHERE), NOWHERE, mask=KEPT[:, None, None])
    torch.testing.assert_close(out, theirs(x, memory, memory, key_padding_mask=~KEPT)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_encoder_layer_is_torchs(placement: str) -> None:
    torch.manual_seed(2)
    ours = EncoderLayer(ModelConfig(d_model=16, n_heads=4, d_ff=24, norm_placement=placement), layer=0)
    theirs = nn.TransformerEncoderLayer(16, 4, 24, dropout=0, batch_first=True, norm_first=placement == "pre")
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_norm(ours.around_self.norm, theirs.norm1)
    copy_norm(ours.around_ffn.norm, theirs.norm2)
    x = torch.randn(3, 7, 16)
    expected = theirs(x, src_key_padding_mask=~KEPT)
    out = ours(x, NOWHERE, KEPT[:, None, None], KEPT)
    torch.testing.assert_close(out[KEPT], expected[KEPT], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_decoder_is_torchs(placement: str) -> None:
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=16, n_heads=4, d_ff=24, decoder_layers=1, norm_placement=placement, position="none"
    )  # fmt: skip
    ours = Decoder(config, Numbering())
    layer = nn.TransformerDecoderLayer(16, 4, 24, dropout=0, batch_first=True, norm_first=placement == "pre")
    theirs = nn.TransformerDecoder(layer, 1, norm=nn.LayerNorm(16) if placement == "pre" else None)
    mine, other = ours.layers[0], theirs.layers[0]
    copy_attention(mine.self_attention, other.self_attn)  # type: ignore[arg-type]
    copy_attention(mine.cross_attention, other.multihead_attn)  # type: ignore[arg-type]
    copy_feed_forward(mine.feed_forward, other)  # type: ignore[arg-type]
    for around, norm in (("around_self", "norm1"), ("around_cross", "norm2"), ("around_ffn", "norm3")):
        copy_norm(getattr(mine, around).norm, getattr(other, norm))
    if placement == "pre":
        copy_norm(ours.final_norm, theirs.norm)  # type: ignore[arg-type]
    x, states = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    memory = Memory(states, KEPT, torch.arange(7))
    out = ours(x, DecoderState(memory, ours.read_source(memory), []), cached=False)
    blocked = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = theirs(x, states, tgt_mask=blocked, memory_key_padding_mask=~KEPT)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


# Norms -----------------------------------------------------------------------------------------------------------


def test_layer_norm_values() -> None:
    out = LayerNorm(4)(torch.tensor([1.0, 2, 3, 4]))
    assert out.tolist() == pytest.approx([-1.341635, -0.447212, 0.447212, 1.341635], abs=1e-6)


def test_placement_formulas() -> None:
    x, norm = torch.randn(2, 3, 8), LayerNorm(8)
    copy_norm(norm, nn.LayerNorm(8))
    torch.testing.assert_close(PreNorm(lambda: norm, 0.0)(x, torch.sin), x + torch.sin(norm(x)))
    torch.testing.assert_close(PostNorm(lambda: norm, 0.0)(x, torch.sin), norm(x + torch.sin(x)))


@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
def test_dropout_falls_on_the_sublayer_and_not_on_the_stream(residual: type[PreNorm] | type[PostNorm]) -> None:
    x = torch.randn(1, 50, 8)
    around = residual(lambda: NoNorm(8), 0.5)
    change = around(x, lambda y: torch.full_like(y, 3.0)) - x
    # Kept outputs are doubled, dropped ones are zero; the stream itself goes through whole.
    assert set(change.round(decimals=4).unique().tolist()) == {0.0, 6.0}
    assert torch.allclose(around.eval()(x, lambda y: torch.full_like(y, 3.0)), x + 3)


def test_initial_scores_have_their_full_variance() -> None:
    # One Xavier draw over the packed matrix would give a quarter, torch.nn.Linear's default a ninth.
    attention = SelfAttention(ModelConfig(d_model=256), 0)
    initialise(attention, seed=0)
    q, k, _ = attention.qkv(torch.randn(1, 400, 256, generator=torch.Generator().manual_seed(0))).chunk(3, dim=-1)
    for vectors in (q, k):
        assert vectors.var().item() == pytest.approx(1, abs=0.06)
