"""Attention over few keys: the same as written out, with the same gradients, for every kind of mask and term."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.core.attention import attend, attend_naive
from transformer_ablate.core.short_attention import MOST_KEYS, attend_short, is_short

MASKS = ("none", "keys", "pairs", "term", "broadcast-term")


def inputs(shape: tuple[int, int, int, int, int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values in float64, strided as attention makes them."""
    batch, heads, length, keys, d = shape
    chance = torch.Generator().manual_seed(seed)

    def made(n: int) -> Tensor:
        return torch.randn(batch, n, heads, d, generator=chance, dtype=torch.float64).transpose(1, 2)

    return made(length).requires_grad_(), made(keys).requires_grad_(), made(keys).requires_grad_()


def mask_and_term(kind: str, shape: tuple[int, int, int, int, int], seed: int) -> tuple[Tensor | None, Tensor | None]:
    """A mask with a query that may attend to nothing, or a term that has a gradient."""
    batch, heads, length, keys, _ = shape
    chance = torch.Generator().manual_seed(seed + 1)
    if kind == "keys":
        mask = torch.rand(batch, 1, 1, keys, generator=chance) < 0.7
        mask[0] = False
        return mask, None
    if kind == "pairs":
        mask = torch.rand(batch, 1, length, keys, generator=chance) < 0.7
        mask[0, 0, 0] = False
        return mask, None
    if kind == "term":
        term = torch.randn(batch, heads, length, keys, generator=chance, dtype=torch.float64)
        return torch.rand(batch, 1, 1, keys, generator=chance) < 0.8, term.requires_grad_()
    if kind == "broadcast-term":
        return None, torch.randn(heads, length, keys, generator=chance, dtype=torch.float64).requires_grad_()
    return None, None


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(2, 6), st.integers(1, MOST_KEYS), st.just(4)),
    kind=st.sampled_from(MASKS),
    scale=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 99),
)
def test_outputs_and_gradients_are_those_written_out(
    shape: tuple[int, int, int, int, int], kind: str, scale: float | None, seed: int
) -> None:
    q, k, v = inputs(shape, seed)
    mask, term = mask_and_term(kind, shape, seed)
    assert is_short(q, k)
    weight = torch.randn(q.shape, generator=torch.Generator().manual_seed(seed + 2), dtype=torch.float64)
    leaves = [x for x in (q, k, v, term) if x is not None]
    fast, slow = attend(q, k, v, mask, term, scale=scale), attend_naive(q, k, v, mask, term, scale=scale)
    torch.testing.assert_close(fast, slow, rtol=1e-9, atol=1e-9)
    ours, theirs = (torch.autograd.grad((out * weight).sum(), leaves) for out in (fast, slow))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("with_mask", [False, True])
def test_causal_attention_is_exactly_blind_to_later_tokens(with_mask: bool) -> None:
    q, k, v = (x.detach().float() for x in inputs((2, 2, 9, 9, 4), 0))
    mask = torch.ones(2, 1, 1, 9, dtype=torch.bool) if with_mask else None
    before = attend(q, k, v, mask, is_causal=True)
    k[:, :, 5:], v[:, :, 5:] = 1e4, -1e4
    after = attend(q, k, v, mask, is_causal=True)
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert not torch.equal(before[:, :, 5:], after[:, :, 5:])


def test_a_query_that_may_attend_to_nothing_gets_zeros_and_passes_no_gradient() -> None:
    q, k, v = inputs((1, 1, 2, 3, 4), 0)
    out = attend_short(q, k, v, torch.tensor([[False] * 3, [True] * 3]), None)
    assert torch.equal(out[0, 0, 0], torch.zeros(4, dtype=torch.float64))
    gradient = torch.autograd.grad(out.sum(), q)[0]
    assert torch.equal(gradient[0, 0, 0], torch.zeros(4, dtype=torch.float64))
    assert torch.isfinite(gradient).all()


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (x.detach().float() * 300 for x in inputs((1, 1, 4, 5, 4), 0))
    torch.testing.assert_close(attend_short(q, k, v, None, None), attend_naive(q, k, v), rtol=1e-4, atol=1e-3)


def test_many_keys_single_queries_and_half_precision_go_to_the_fused_kernel() -> None:
    q, k, _ = inputs((1, 1, 2, MOST_KEYS, 4), 0)
    assert is_short(q, k)
    assert not is_short(q, torch.cat((k, k), dim=2))
    assert not is_short(q[:, :, :1], k)
    assert not is_short(q.half(), k.half())
