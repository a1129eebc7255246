"""CoPE: golden values, its naive twin, and what must not be counted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.core.positions import CoPE, Geometry
from transformer_ablate.errors import ConfigError

ENCODER = Geometry(d_model=32, n_heads=4, layers=2, causal=False)
DECODER = Geometry(d_model=32, n_heads=4, layers=2, causal=True)


def cope(geometry: Geometry, p_max: int = 64) -> CoPE:
    encoding = CoPE(geometry, p_max).double()
    torch.nn.init.normal_(encoding.tables, generator=torch.Generator().manual_seed(0))
    return encoding


def queries_and_keys(length: int, rows: int = 2, seed: int = 1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, rows, 4, length, 8, dtype=torch.float64, generator=generator)
    return q, k


def term(encoding: CoPE, q: Tensor, k: Tensor, positions: Tensor, layer: int = 1) -> Tensor:
    return encoding.score_term(q, k, encoding.pair_table(positions, positions, q.dtype), layer)


def naive_term(encoding: CoPE, q: Tensor, k: Tensor, layer: int = 1) -> Tensor:
    """Pair by pair, from the definition; 0 counts for keys that a causal query does not see."""
    length, causal = q.shape[2], encoding.geometry.causal
    found = torch.zeros(*q.shape[:2], length, length, dtype=torch.float64)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(length):
                for j in range(length):
                    between = range(j, i + 1) if j <= i else range(i, j + 1) if not causal else ()
                    scores = [float(q[b, h, i] @ k[b, h, t]) for t in between]
                    p = min(sum(1 / (1 + math.exp(-score)) for score in scores), encoding.p_max)
                    table = encoding.tables[layer, 1 if j > i and not causal else 0]
                    low, high = math.floor(p), math.ceil(p)
                    e = table[low] + (p - low) * (table[high] - table[low])
                    found[b, h, i, j] = q[b, h, i] @ e
    return found


@settings(deadline=None, max_examples=8)
@given(st.booleans(), st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**6))
def test_it_equals_its_naive_twin(causal: bool, p_max: int, length: int, seed: int) -> None:
    encoding = cope(DECODER if causal else ENCODER, p_max)
    q, k = queries_and_keys(length, rows=1, seed=seed)
    found = term(encoding, q, k, torch.arange(length))
    torch.testing.assert_close(found, naive_term(encoding, q, k), atol=1e-10, rtol=0)


def test_half_open_gates_count_by_halves() -> None:
    """Keys of zero open every gate by 1/2: p = (i - j + 1) / 2, capped at 2; with e = 0, 1, 4 and q = 1."""
    encoding = CoPE(Geometry(d_model=1, n_heads=1, layers=1, causal=True), p_max=2).double()
    encoding.load_state_dict({"tables": torch.tensor([0.0, 1.0, 4.0]).view(1, 1, 3, 1)})
    q, k = torch.ones(1, 1, 6, 1, dtype=torch.float64), torch.zeros(1, 1, 6, 1, dtype=torch.float64)
    last = term(encoding, q, k, torch.arange(6), layer=0)[0, 0, 5]
    assert last.tolist() == pytest.approx([4, 4, 4, 2.5, 1, 0.5], abs=1e-12)


@pytest.mark.parametrize(("scaled", "model_scale", "score"), [(False, 0.0, 4), (True, 0.0, 2), (True, 0.25, 1)])
def test_the_gate_is_of_the_score_as_it_is_or_scaled(scaled: bool, model_scale: float, score: float) -> None:
    geometry = Geometry(d_model=4, n_heads=1, layers=1, causal=True, scale=model_scale)
    encoding = CoPE(geometry, p_max=1, scaled_gate=scaled).double()
    encoding.load_state_dict({"tables": torch.tensor([[0.0] * 4, [1.0] * 4]).view(1, 1, 2, 4)})
    q = torch.ones(1, 1, 1, 4, dtype=torch.float64)  # q . k = 4 and q . e[1] = 4
    found = term(encoding, q, q, torch.arange(1), layer=0)
    assert found.item() == pytest.approx(4 / (1 + math.exp(-score)), abs=1e-12)


def test_open_gates_make_it_a_relative_embedding_on_both_sides() -> None:
    encoding = cope(ENCODER, p_max=3)
    q = torch.ones(1, 4, 6, 8, dtype=torch.float64)
    found = term(encoding, q, 100 * q, torch.arange(6))
    sums = encoding.tables[1].sum(-1)  # (2, 4): q . e of each side and count
    for i in range(6):
        for j in range(6):
            expected = sums[int(j > i), min(3, abs(i - j) + 1)]
            torch.testing.assert_close(found[:, :, i, j], expected.expand(1, 4), atol=1e-9, rtol=0)


@pytest.mark.parametrize("geometry", [ENCODER, DECODER])
def test_padding_on_the_right_is_counted_for_no_real_token(geometry: Geometry) -> None:
    encoding = cope(geometry)
    q, k = queries_and_keys(9)
    alone = term(encoding, q[:, :, :5], k[:, :, :5], torch.arange(5))
    torch.testing.assert_close(term(encoding, q, k, torch.arange(9))[:, :, :5, :5], alone, atol=1e-12, rtol=0)
    # Randomised positions put all padding at the last position, where a real token may stand too.
    at_the_end = torch.tensor([1, 4, 5, 8, 11, 11, 11, 11, 11])
    torch.testing.assert_close(term(encoding, q, k, at_the_end)[:, :, :5, :5], alone, atol=1e-12, rtol=0)


def test_a_causal_count_does_not_depend_on_keys_after_the_query() -> None:
    encoding = cope(DECODER)
    q, k = queries_and_keys(7)
    positions = torch.arange(7)
    changed = k.clone()
    changed[:, :, 4:] *= -3
    seen = torch.ones(7, 7, dtype=torch.bool).tril()
    before, after = (term(encoding, q, keys, positions).masked_fill(~seen, 0) for keys in (k, changed))
    assert torch.equal(before[:, :, :4], after[:, :, :4])
    assert not torch.equal(before[:, :, 4:], after[:, :, 4:])


def test_a_cached_step_at_the_last_shared_position_equals_the_full_pass() -> None:
    """A target longer than the drawn positions stays at the last of them."""
    encoding = cope(DECODER)
    q, k = queries_and_keys(7)
    positions = torch.tensor([2, 3, 7, 9, 15, 15, 15])
    full = term(encoding, q, k, positions)
    for t in range(7):
        table = encoding.pair_table(positions[t : t + 1], positions[: t + 1], q.dtype)
        step = encoding.score_term(q[:, :, t : t + 1], k[:, :, : t + 1], table, 1)
        torch.testing.assert_close(step[:, :, 0], full[:, :, t, : t + 1], atol=1e-12, rtol=0)


def test_left_and_right_are_told_apart() -> None:
    encoding = cope(ENCODER)
    q = torch.ones(1, 4, 7, 8, dtype=torch.float64)
    found = term(encoding, q, q, torch.arange(7))
    assert (found - found.mT).abs().max() > 0.1


def test_a_layer_has_one_table_for_its_heads_and_starts_at_zero() -> None:
    for geometry, sides in ((DECODER, 1), (ENCODER, 2)):
        encoding = CoPE(geometry, p_max=10)
        encoding.initialise(torch.Generator())
        assert {name: tuple(p.shape) for name, p in encoding.named_parameters()} == {"tables": (2, sides, 11, 8)}
        assert not encoding.tables.any()


def test_long_rows_are_counted_in_float32_whatever_the_dtype_of_the_queries() -> None:
    """512 gates of 1/2 sum up to 256 in every dtype, but the counts on the way have halves that bfloat16 lacks."""
    encoding = CoPE(DECODER, p_max=600)
    torch.nn.init.zeros_(encoding.tables)
    with torch.no_grad():
        encoding.tables[:, :, :, 0] = torch.arange(601.0)
    q = torch.ones(1, 4, 1, 8, dtype=torch.bfloat16)
    k = torch.zeros(1, 4, 1000, 8, dtype=torch.bfloat16)
    table = encoding.pair_table(torch.tensor([999]), torch.arange(1000), torch.bfloat16)
    expected = (torch.arange(1000, 0, -1) / 2).expand(1, 4, 1, 1000)
    torch.testing.assert_close(encoding.score_term(q, k, table, 0), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(encoding.score_term(q.float(), k.float(), table, 0), expected)


@pytest.mark.parametrize("p_max", [0, 2.5, True])
def test_a_cap_that_makes_no_sense_is_refused(p_max: int) -> None:
    with pytest.raises(ConfigError, match=r"position_options\.p_max"):
        CoPE(ENCODER, p_max)


@pytest.mark.parametrize("geometry", [ENCODER, DECODER])
def test_a_model_that_diverged_comes_out_as_no_number(geometry: Geometry) -> None:
    q, k = queries_and_keys(4)
    found = term(cope(geometry), q.fill_(math.nan), k, torch.arange(4))
    assert found.isnan().all()
