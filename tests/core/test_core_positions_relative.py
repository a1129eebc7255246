"""Encodings behind door (c): golden values and theorems."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.core.positions import ALiBi, Geometry, Shaw, T5Bias
from transformer_ablate.core.positions.bias import alibi_slopes, t5_bucket
from transformer_ablate.errors import ConfigError

ENCODER = Geometry(d_model=32, n_heads=4, layers=2, causal=False)
DECODER = Geometry(d_model=32, n_heads=4, layers=2, causal=True)
BEHIND = {
    0: 0, 1: 1, 7: 7, 8: 8, 11: 8, 12: 9, 15: 9, 16: 10, 22: 10, 23: 11, 31: 11, 32: 12, 45: 12, 46: 13, 63: 13, 64: 14,
    90: 14, 91: 15, 127: 15, 1000: 15,
}  # fmt: skip
AHEAD = {1: 17, 7: 23, 8: 24, 12: 25, 16: 26, 23: 27, 32: 28, 46: 29, 64: 30, 91: 31, 1000: 31}
CAUSAL = {
    16: 16, 18: 16, 19: 17, 20: 17, 21: 18, 23: 18, 24: 19, 26: 19, 27: 20, 30: 20, 31: 21, 34: 21, 35: 22, 39: 22,
    40: 23, 45: 23, 46: 24, 51: 24, 52: 25, 58: 25, 59: 26, 66: 26, 67: 27, 76: 27, 77: 28, 86: 28, 87: 29, 98: 29,
    99: 30, 112: 30, 113: 31, 5000: 31,
}  # fmt: skip


def buckets_of(relative: list[int], causal: bool, buckets: int = 32, max_distance: int = 128) -> list[int]:
    return [int(b) for b in t5_bucket(torch.tensor(relative), buckets, max_distance, causal)]


def test_t5_buckets_of_an_encoder() -> None:
    assert buckets_of([-d for d in BEHIND], causal=False) == list(BEHIND.values())
    assert buckets_of(list(AHEAD), causal=False) == list(AHEAD.values())


def test_t5_buckets_of_a_causal_decoder() -> None:
    assert buckets_of([-d for d in range(16)], causal=True) == list(range(16))
    assert buckets_of([-d for d in CAUSAL], causal=True) == list(CAUSAL.values())
    assert buckets_of([1, 5, 1000], causal=True) == [0, 0, 0]


@given(st.sampled_from([8, 16, 32, 64]), st.integers(40, 2000), st.booleans())
def test_t5_buckets_follow_the_formula(buckets: int, max_distance: int, causal: bool) -> None:
    side = buckets if causal else buckets // 2
    exact = side // 2
    for distance in (*range(0, 60), max_distance - 1, max_distance, 10 * max_distance):
        (found,) = buckets_of([-distance], causal, buckets, max_distance)
        if distance < exact:
            assert found == distance
        else:
            place = math.log(distance / exact) / math.log(max_distance / exact) * (side - exact)
            if abs(place - round(place)) > 1e-9:  # where the formula is a whole number, floating point may miss it
                assert found == min(side - 1, exact + math.floor(place))


def test_t5_is_one_table_for_all_layers_and_backward_only_in_a_decoder() -> None:
    positions = torch.arange(6)
    for geometry in (ENCODER, DECODER):
        encoding = T5Bias(geometry)
        encoding.initialise(torch.Generator().manual_seed(0))
        table = encoding.pair_table(positions, positions, torch.float32)
        q = torch.zeros(1, 4, 6, 8)
        assert encoding.score_term(q, q, table, 0) is encoding.score_term(q, q, table, 1)
        ahead = table[0, :, 0, 1:]
        same = (ahead == table[0, :, 0, :1]).all()
        assert bool(same) == geometry.causal


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [0.00390625]),
        (2, [0.0625, 0.00390625]),
        (4, [0.25, 0.0625, 0.015625, 0.00390625]),
        (6, [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]),
        (8, [2.0**-i for i in range(1, 9)]),
        (12, [*(2.0**-i for i in range(1, 9)), 0.7071067812, 0.3535533906, 0.1767766953, 0.0883883476]),
    ],
)
def test_alibi_slopes_are_those_of_the_authors_code(heads: int, slopes: list[float]) -> None:
    assert alibi_slopes(heads) == pytest.approx(slopes, abs=1e-9)


def test_alibi_is_symmetric_and_zero_at_home() -> None:
    geometry = Geometry(d_model=64, n_heads=8, layers=1, causal=False)
    positions = torch.arange(7)
    bias = ALiBi(geometry).pair_table(positions, positions, torch.float32)[0]
    assert bias[0, 5, 2] == bias[0, 2, 5] == -1.5
    assert torch.equal(bias.diagonal(dim1=1, dim2=2), torch.zeros(8, 7))


def test_shaw_offsets_are_key_minus_query_clipped() -> None:
    positions = torch.arange(5)
    found = Shaw(ENCODER, clip=2).pair_table(positions, positions, torch.float32)
    expected = [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
    assert found.tolist() == expected


def test_shaw_equals_the_naive_sum_over_channels() -> None:
    encoding = Shaw(ENCODER, clip=3).double()
    generator = torch.Generator().manual_seed(0)
    encoding.initialise(generator)
    q = torch.randn(2, 4, 6, 8, dtype=torch.float64, generator=generator)
    positions = torch.arange(6)
    found = encoding.score_term(q, q, encoding.pair_table(positions, positions, q.dtype), 1)
    for i in range(6):
        for j in range(6):
            row = encoding.keys[1, :, max(-3, min(3, j - i)) + 3]  # (H, d_head)
            expected = (q[:, :, i] * row).sum(-1) / math.sqrt(8)
            torch.testing.assert_close(found[:, :, i, j], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("encoding_class", [T5Bias, ALiBi, Shaw])
@given(shift=st.integers(1, 5000))
def test_a_common_shift_changes_no_score(encoding_class: type, shift: int) -> None:
    encoding = encoding_class(ENCODER).double()
    encoding.initialise(torch.Generator().manual_seed(1))
    q = torch.randn(1, 4, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    positions = torch.arange(9)
    here, there = (
        encoding.score_term(q, q, encoding.pair_table(p, p, q.dtype), 0) for p in (positions, positions + shift)
    )
    assert torch.equal(here, there)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: T5Bias(ENCODER, buckets=30), "buckets"),
        (lambda: T5Bias(ENCODER, max_distance=16), "max_distance"),
        (lambda: Shaw(ENCODER, clip=0), "clip"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: object, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make()  # type: ignore[operator]
