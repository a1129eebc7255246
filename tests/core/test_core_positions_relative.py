"""T5's bias and ALiBi: golden values and theorems."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.positions import ALiBi, Geometry, T5Bias, build_position
from transformer_ablate.core.positions.bias import alibi_slopes, bucket_starts, t5_bucket
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS

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


@pytest.mark.parametrize("causal", [False, True])
def test_t5_buckets_are_those_of_transformers(causal: bool) -> None:
    modeling_t5 = importlib.import_module("transformers.models.t5.modeling_t5")
    reference = modeling_t5.T5Attention._relative_position_bucket
    relative = torch.arange(-3000, 3001)
    # The reference takes a logarithm in float32; where that misses a whole number, its threshold is one off.
    for buckets, max_distance in ((32, 128), (32, 64), (16, 50), (8, 20), (64, 500)):
        expected = reference(relative, bidirectional=not causal, num_buckets=buckets, max_distance=max_distance)
        found = t5_bucket(relative, buckets, max_distance, causal)
        off = (found != expected).nonzero().flatten()
        if (buckets, max_distance) == (32, 128):
            assert not len(off)
        starts = bucket_starts(buckets if causal else buckets // 2, max_distance)
        assert all(abs(int(relative[i])) in starts and abs(int(found[i] - expected[i])) == 1 for i in off)


def test_t5_in_cross_attention_looks_both_ways_from_target_to_source() -> None:
    encoding = build_position(CROSS_POSITIONS, "relative_bias", ENCODER, {"buckets": 32, "max_distance": 128})
    assert isinstance(encoding, T5Bias)
    encoding.initialise(torch.Generator().manual_seed(0))
    table = encoding.pair_table(torch.tensor([3, 20]), torch.arange(9), torch.float32)  # (H, 2, 9)
    assert torch.equal(table[:, 0, 5], encoding.scalars[18])  # two ahead
    assert torch.equal(table[:, 0, 1], encoding.scalars[2])  # two behind
    assert torch.equal(table[:, 1, 4], encoding.scalars[10])  # sixteen behind


def test_t5_is_one_table_for_all_layers_and_backward_only_in_a_decoder() -> None:
    positions = torch.arange(6)
    for geometry in (ENCODER, DECODER):
        encoding = T5Bias(geometry)
        encoding.initialise(torch.Generator().manual_seed(0))
        table = encoding.pair_table(positions, positions, torch.float32)
        q = torch.zeros(1, 4, 6, 8)
        assert encoding.score_term(q, q, table, 0) is encoding.score_term(q, q, table, 1)
        ahead = table[:, 0, 1:]
        same = (ahead == table[:, 0, :1]).all()
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


@pytest.mark.parametrize("heads", [3, 5, 6, 7, 9, 12, 20])
def test_alibi_slopes_are_not_those_of_the_papers_prose(heads: int) -> None:
    prose = [2 ** (-8 * i / heads) for i in range(1, heads + 1)]
    found = alibi_slopes(heads)
    assert len(found) == heads
    assert sorted(found) != pytest.approx(sorted(prose), rel=1e-3)


def test_alibi_is_symmetric_and_zero_at_home() -> None:
    geometry = Geometry(d_model=64, n_heads=8, layers=1, causal=False)
    positions = torch.arange(7)
    bias = ALiBi(geometry).pair_table(positions, positions, torch.float32)
    assert bias[0, 5, 2] == bias[0, 2, 5] == -1.5
    assert torch.equal(bias.diagonal(dim1=1, dim2=2), torch.zeros(8, 7))


def test_alibi_by_heads_has_another_slope_on_each_side() -> None:
    positions = torch.arange(7)
    bias = ALiBi(ENCODER, sides="heads").pair_table(positions, positions, torch.float64)
    slopes = [0.25, 0.0625, 0.015625, 0.00390625]
    for head in range(4):
        for i in range(7):
            for j in range(7):
                slope = slopes[head] if j <= i else slopes[3 - head]
                assert bias[head, i, j] == -slope * abs(i - j)
    farther_ahead = bias[:, 3, 5] > bias[:, 3, 1]
    assert farther_ahead.tolist() == [True, True, False, False]


def test_alibi_by_heads_is_the_authors_alibi_where_no_query_looks_ahead() -> None:
    positions = torch.arange(9)
    symmetric, by_heads = (
        ALiBi(DECODER, sides).pair_table(positions, positions, torch.float64) for sides in ("symmetric", "heads")
    )
    ahead = torch.ones(9, 9, dtype=torch.bool).triu(1)
    assert torch.equal(symmetric.masked_fill(ahead, 0), by_heads.masked_fill(ahead, 0))
    # The authors add slope * j alone: under a causal mask it differs by what is the same for all keys of a query.
    trick = torch.tensor(alibi_slopes(4), dtype=torch.float64)[:, None, None] * positions
    for form in (symmetric, by_heads):
        ours, theirs = (bias.masked_fill(ahead, -math.inf).softmax(-1) for bias in (form, trick.expand(4, 9, 9)))
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


def test_alibi_in_cross_attention_is_the_distance_of_target_and_source() -> None:
    encoding = build_position(CROSS_POSITIONS, "alibi", ENCODER, {})
    table = encoding.pair_table(torch.tensor([6]), torch.arange(9), torch.float32)
    assert table[0, 0].tolist() == [-0.25 * abs(6 - j) for j in range(9)]


@pytest.mark.parametrize(("sides", "blind"), [("symmetric", True), ("heads", False)])
def test_only_symmetric_alibi_makes_an_encoder_blind_to_reflection(sides: str, blind: bool) -> None:
    """The state of each token of a reversed string is that of the same token of the string: an exact theorem."""
    config = ModelConfig(d_model=32, n_heads=4, position="alibi", position_options={"sides": sides})
    model = build_model(config, source_size=20, target_size=20, seed=0).double().eval()
    tokens = torch.randint(4, 20, (3, 11), generator=torch.Generator().manual_seed(0))  # no BOS, EOS or PAD
    with torch.no_grad():
        forward = model.encode(tokens).states
        backward = model.encode(tokens.flip(1)).states.flip(1)
    if blind:
        torch.testing.assert_close(forward, backward, atol=1e-12, rtol=0)
    else:
        assert (forward - backward).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: T5Bias(ENCODER, buckets=30), "buckets"),
        (lambda: T5Bias(ENCODER, max_distance=16), "max_distance"),
        (lambda: T5Bias(ENCODER, buckets=32.0), "buckets"),  # type: ignore[arg-type]
        (lambda: T5Bias(ENCODER, max_distance="far"), "max_distance"),  # type: ignore[arg-type]
        (lambda: ALiBi(ENCODER, sides="left"), "sides"),
        (lambda: ALiBi(Geometry(d_model=32, n_heads=1, layers=1, causal=False), sides="heads"), "sides"),
    ],
)
def test_options_that_make_no_sense_are_refused(make: object, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make()  # type: ignore[operator]
