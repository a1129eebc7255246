"""What all encodings behind door (c) have in common: caching, batches, precision, gradients, shifts, lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.core.linear import initialise
from transformer_ablate.core.positions import Geometry, PositionalEncoding, build_position
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS, Registry

ENCODER = Geometry(d_model=32, n_heads=4, layers=2, causal=False)
DECODER = Geometry(d_model=32, n_heads=4, layers=2, causal=True)
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("t5", {"max_distance": 40}),
    "alibi": ("alibi", {}),
    "alibi by heads": ("alibi", {"sides": "heads"}),
    "shaw": ("shaw", {"clip": 3}),
    "shaw with values": ("shaw", {"clip": 3, "values": True}),
    "kerple log": ("kerple", {"kernel": "log"}),
    "kerple power": ("kerple", {"kernel": "power"}),
    "fire": ("fire", {"width": 8, "threshold": 5.0}),
    "fire, shared": ("fire", {"width": 8, "threshold": 5.0, "shared": True}),
    "cope": ("cope", {"p_max": 3}),
}
each_arm = pytest.mark.parametrize("arm", ARMS)
either_stack = pytest.mark.parametrize("geometry", [ENCODER, DECODER], ids=["encoder", "decoder"])


def encoding_of(arm: str, geometry: Geometry, table: Registry = POSITIONS) -> PositionalEncoding:
    """With parameters that are nowhere zero: CoPE's start there."""
    name, options = ARMS[arm]
    encoding = build_position(table, name, geometry, options)
    initialise(encoding, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return encoding


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def terms(encoding: PositionalEncoding, q: Tensor, k: Tensor, queries: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Score and value terms of the last layer in full shape; the weights are random but for their positions' sake."""
    table = encoding.pair_table(queries, keys, q.dtype)
    score = encoding.score_term(q, k, table, 1)
    assert score is not None
    weights = (q @ k.mT).sigmoid()
    value = encoding.value_term(weights, table, 1) if encoding.adds_values else None
    return score.expand(weights.shape), torch.zeros_like(q) if value is None else value


@each_arm
def test_a_cached_step_gives_the_row_of_the_full_pass(arm: str) -> None:
    encoding = encoding_of(arm, DECODER).double()
    q, k = random(2, 4, 12, 8), random(2, 4, 12, 8, seed=1)
    positions = torch.arange(12)
    full, _ = terms(encoding, q, k, positions, positions)
    for t in range(12):
        step, _ = terms(encoding, q[:, :, t : t + 1], k[:, :, : t + 1], positions[t : t + 1], positions[: t + 1])
        torch.testing.assert_close(step[:, :, 0], full[:, :, t, : t + 1], atol=1e-12, rtol=0)


@each_arm
@either_stack
def test_positions_of_a_batch_equal_those_of_its_sentences(arm: str, geometry: Geometry) -> None:
    encoding = encoding_of(arm, geometry).double()
    q, k = random(3, 4, 6, 8), random(3, 4, 6, 8, seed=1)
    generator = torch.Generator().manual_seed(2)
    positions = torch.stack([torch.randperm(50, generator=generator)[:6].sort().values for _ in range(3)])
    found = terms(encoding, q, k, positions, positions)
    for b in range(3):
        alone = terms(encoding, q[b : b + 1], k[b : b + 1], positions[b], positions[b])
        for whole, part in zip(found, alone, strict=True):
            torch.testing.assert_close(whole[b : b + 1], part, atol=1e-12, rtol=0)


@each_arm
@either_stack
def test_padding_on_the_right_changes_nothing_between_real_tokens(arm: str, geometry: Geometry) -> None:
    encoding = encoding_of(arm, geometry).double()
    q, k = random(2, 4, 9, 8), random(2, 4, 9, 8, seed=1)
    positions = torch.arange(9)
    padded, _ = terms(encoding, q, k, positions, positions)
    alone, _ = terms(encoding, q[:, :, :5], k[:, :, :5], positions[:5], positions[:5])
    torch.testing.assert_close(padded[:, :, :5, :5], alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("arm", [arm for arm in ARMS if not arm.startswith("fire")])
@either_stack
@settings(deadline=None, max_examples=8)
@given(shift=st.integers(1, 5000))
def test_a_common_shift_changes_no_term(arm: str, geometry: Geometry, shift: int) -> None:
    """FIRE is the exception: it depends on the query's position as well, beyond its threshold."""
    encoding = encoding_of(arm, geometry).double()
    q, k = random(1, 4, 9, 8), random(1, 4, 9, 8, seed=1)
    positions = torch.arange(9)
    here, there = (terms(encoding, q, k, p, p) for p in (positions, positions + shift))
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


@each_arm
@either_stack
@pytest.mark.parametrize(
    "positions", [torch.zeros(1), torch.full((4,), 7), torch.arange(30)], ids=["one", "same", "30"]
)
def test_gradients_are_finite_even_at_distance_zero(arm: str, geometry: Geometry, positions: Tensor) -> None:
    encoding = encoding_of(arm, geometry)
    positions = positions.long()
    q, k = (random(1, 4, len(positions), 8, seed=s).float().requires_grad_() for s in (0, 1))
    for layer in range(2):
        table = encoding.pair_table(positions, positions, q.dtype)
        score = encoding.score_term(q, k, table, layer)
        assert score is not None
        total = score.sigmoid().sum()
        if encoding.adds_values:
            value = encoding.value_term((q @ k.mT).softmax(-1), table, layer)
            assert value is not None
            total = total + value.sigmoid().sum()
        if total.requires_grad:
            total.backward()
    for name, parameter in encoding.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or len(positions) < 30, f"{name} is never trained"


@pytest.mark.parametrize("arm", [arm for arm in ARMS if not arm.startswith("shaw")])
@either_stack
@pytest.mark.parametrize("autocast", [False, True])
def test_terms_are_made_in_float32_whatever_the_model_and_autocast(
    arm: str, geometry: Geometry, autocast: bool
) -> None:
    """Shaw's are products of queries like the scores themselves, in the model's own precision."""
    encoding = encoding_of(arm, geometry).bfloat16()
    q, k = (random(1, 4, 300, 8, seed=s).bfloat16() for s in (0, 1))
    positions = torch.arange(300) + 700
    exact, _ = terms(encoding.double(), q.double(), k.double(), positions, positions)
    encoding = encoding.float() if autocast else encoding.bfloat16()
    q, k = (x.float() if autocast else x for x in (q, k))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, _ = terms(encoding, q, k, positions, positions)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=2e-4, rtol=2e-6)


@each_arm
@either_stack
def test_any_length_has_finite_terms(arm: str, geometry: Geometry) -> None:
    encoding = encoding_of(arm, geometry)
    positions = torch.tensor([0, 1, 2, 60, 4000, 100_000])
    q, k = random(2, 1, 4, 6, 8).float()
    score, value = terms(encoding, q, k, positions, positions)
    assert score.isfinite().all()
    assert value.isfinite().all()


@pytest.mark.parametrize(("name", "twin"), [("relative_bias", "t5"), ("alibi", "alibi")])
def test_cross_attention_has_the_bidirectional_form_between_target_and_source(name: str, twin: str) -> None:
    cross, own = (build_position(table, n, ENCODER, {}) for table, n in ((CROSS_POSITIONS, name), (POSITIONS, twin)))
    assert type(cross) is type(own)
    for encoding in (cross, own):
        encoding.initialise(torch.Generator().manual_seed(0))
    square = own.pair_table(torch.arange(20), torch.arange(20), torch.float32)
    assert torch.equal(cross.pair_table(torch.tensor([12]), torch.arange(20), torch.float32), square[:, 12:13])
    assert (square[:, 12, 13:] != square[:, 12, 12:13]).any(), "keys after the query are told apart"
