"""Cross-entropy and its smoothing against golden values and a naive sum."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.data.vocabulary import PAD
from transformer_ablate.training.losses import cross_entropy


def loss_of(logits: list[list[float]], targets: list[int], alpha: float = 0.0) -> float:
    return cross_entropy(torch.tensor([logits], dtype=torch.float64), torch.tensor([targets]), alpha).item()


# Class 0 is padding here, so golden values that aim at class 0 have classes 0 and 1 exchanged.
GOLDEN = [1, 2, 0, -1, 0.5]


@pytest.mark.parametrize(
    ("logits", "targets", "alpha", "expected"),
    [
        ([GOLDEN], [1], 0.0, 0.5744379396),
        ([GOLDEN], [1], 0.1, 0.7244379396),  # alpha/V on every class; alpha/(V-1) would give .7619379396
        ([[0, 2, 0, 0], [0, 2, 0, 0]], [1, 3], 0.0, 1.340753),
        ([[0, 2, 0, 0], [0, 2, 0, 0]], [1, 3], 0.1, 1.390753),
        ([[-20, 4, 0, 0, 0]], [1], 0.1, 0.773490),  # the padding class takes its share of alpha, as in torch
        ([[-20, 4, 0, 0, 0]], [1], 0.0, 0.053491),
    ],
)
def test_golden_values(logits: list[list[float]], targets: list[int], alpha: float, expected: float) -> None:
    assert loss_of(logits, targets, alpha) == pytest.approx(expected, abs=1e-6)
    padded = [*logits, [7.0, -3.0, *[0.0] * (len(logits[0]) - 2)]]
    assert loss_of(padded, [*targets, PAD], alpha) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("V", "smoothed", "plain"),
    [
        (5, 0.389673, 0.08338),
        (40, 0.67675, 0.10259),
        (72, 0.74237, 0.10382),
        (1000, 1.01485, 0.10525),
        (8000, 1.223650, None),
        (37000, 1.37691, 0.10536),
    ],
)
def test_floor_of_the_smoothed_loss(V: int, smoothed: float, plain: float | None) -> None:
    # The best logits are the logarithms of the smoothed target; no others give less.
    optimum = torch.full((1, 1, V), math.log(0.1 / V), dtype=torch.float64)
    optimum[..., 1] = math.log(0.9 + 0.1 / V)
    target = torch.tensor([[1]])
    assert cross_entropy(optimum, target, 0.1).item() == pytest.approx(smoothed, abs=1e-5)
    if plain is not None:
        assert cross_entropy(optimum, target).item() == pytest.approx(plain, abs=1e-5)
    off = optimum.clone()
    off[..., 1] += 0.1
    assert cross_entropy(off, target, 0.1) > cross_entropy(optimum, target, 0.1)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
def test_uniform_logits_lose_ln_v_whatever_the_smoothing(alpha: float) -> None:
    assert loss_of([[0.0] * 5] * 3, [1, 2, 4], alpha) == pytest.approx(1.609438, abs=1e-6)


def naive(logits: Tensor, targets: Tensor, alpha: float) -> list[list[float]]:
    V = logits.shape[-1]
    rows = []
    for sentence, gold in zip(logits.tolist(), targets.tolist(), strict=True):
        row = []
        for scores, y in zip(sentence, gold, strict=True):
            total = math.log(sum(map(math.exp, scores)))
            share = [(1 - alpha) * (c == y) + alpha / V for c in range(V)]
            row.append(0.0 if y == PAD else -sum(q * (s - total) for q, s in zip(share, scores, strict=True)))
        rows.append(row)
    return rows


@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 7), st.floats(0, 0.9), st.integers(0, 10**6))
def test_means_are_over_real_tokens(B: int, T: int, V: int, alpha: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, V, (B, T), generator=generator)
    targets[0, 0] = 1  # at least one real token
    expected = naive(logits, targets, alpha)
    each = cross_entropy(logits, targets, alpha, reduction="none")
    assert each.shape == (B, T)
    torch.testing.assert_close(each, torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=1e-9)
    real = int((targets != PAD).sum())
    mean = cross_entropy(logits, targets, alpha).item()
    assert mean == pytest.approx(sum(map(sum, expected)) / real, abs=1e-9)


def test_half_precision_logits_are_scored_in_float32() -> None:
    logits = (8 * torch.randn(2, 50, 30, generator=torch.Generator().manual_seed(0))).to(torch.bfloat16)
    targets = torch.randint(1, 30, (2, 50), generator=torch.Generator().manual_seed(0))
    loss = cross_entropy(logits, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(cross_entropy(logits.double(), targets).item(), rel=1e-6)


def test_extreme_logits_give_finite_losses() -> None:
    for alpha in (0.0, 0.4):
        logits = torch.tensor([[[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]]], requires_grad=True)
        loss = cross_entropy(logits, torch.tensor([[1, 1]]), alpha)
        loss.backward()
        assert loss.isfinite()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()
