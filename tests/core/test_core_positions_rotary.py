"""Rotary positions and xPos: golden values and theorems, those of every scaling of the frequencies, too."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.core.positions.base import Geometry, build_position
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.core.positions.xpos import XPos
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS

CPU = torch.device("cpu")
ONE = torch.tensor([1])
SHAPES: dict[str, dict[str, Any]] = {
    "rope-none": {},
    "rope-half": {"layout": "half"},
    "rope-pi": {"scaling": "pi", "factor": 4},
    "rope-ntk": {"scaling": "ntk", "factor": 4},
    "rope-dynamic_ntk": {"scaling": "dynamic_ntk", "trained_length": 10, "factor": 2},
    "rope-yarn": {"scaling": "yarn", "factor": 4, "trained_length": 10, "alpha": 0.5, "beta": 4},
    "rope-yarn_reference": {"scaling": "yarn_reference", "factor": 4, "trained_length": 10},
    "xpos-": {"scale_base": 16},
    "xpos-half": {"layout": "half", "scale_base": 16, "base": 100},
}
every_shape = pytest.mark.parametrize("shape", SHAPES)


def geometry(d_model: int, n_heads: int = 1, causal: bool = True) -> Geometry:
    return Geometry(d_model, n_heads, layers=2, causal=causal)


def encoding(shape: str, width: int, causal: bool = True) -> Rotary:
    built = build_position(POSITIONS, shape.split("-")[0], geometry(width, causal=causal), SHAPES[shape])
    assert isinstance(built, Rotary)
    return built


def rotated(x: list[float], position: int, dtype: torch.dtype = torch.float64, **options: Any) -> Tensor:
    rope = Rotary(geometry(len(x)), **options)
    table = rope.point_table(torch.tensor([position]), ONE, dtype)
    return rope.transform_query(torch.tensor(x, dtype=dtype).view(1, 1, 1, -1), table, layer=0).flatten()


def scores(rope: Rotary, q: Tensor, k: Tensor, queries: Tensor, keys: Tensor, lengths: Tensor) -> Tensor:
    """(B, H, L, d_head) and (B, H, S, d_head) -> (B, H, L, S)."""
    at_queries, at_keys = (rope.point_table(positions, lengths, q.dtype) for positions in (queries, keys))
    return rope.transform_query(q, at_queries, 0) @ rope.transform_key(k, at_keys, 0).mT


# Rotation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "layout", "expected"),
    [
        (1, "interleaved", [-1.14263966, 1.9220756, 2.95985067, 4.0297995]),
        (1, "half", [-1.98411065, 1.95990067, 2.4623779, 4.01979967]),
        (5, "interleaved", [2.20151073, -0.3915999, 2.7963341, 4.14493855]),
        (5, "half", [3.16043501, 1.79758384, -0.10793772, 4.09495938]),
        (0, "interleaved", [1, 2, 3, 4]),
        (0, "half", [1, 2, 3, 4]),
    ],
)
def test_rotary_values(position: int, layout: str, expected: list[float]) -> None:
    assert rotated([1, 2, 3, 4], position, layout=layout).tolist() == pytest.approx(expected, abs=1e-8)


def test_rotary_frequencies_of_width_64() -> None:
    theta = Rotary(geometry(64)).angles(torch.tensor([1]), ONE)[0]
    assert len(theta) == 32
    assert theta[[0, 1, 2, -1]].tolist() == pytest.approx([1, 0.7498942093, 0.5623413252, 1.333521432e-4], rel=1e-9)


@pytest.mark.parametrize("n", [0, 7, 100])
def test_rotary_score_at_distance_three(n: int) -> None:
    score = rotated([0.1, -0.2, 0.3, 0.4], n + 3) @ rotated([0.5, 0.6, -0.7, 0.8], n)
    assert score.item() == pytest.approx(0.2174268399, abs=1e-9)


@given(
    st.sampled_from(list(SHAPES)),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 3000),
    st.integers(2, 8),
    st.integers(0, 9),
)
def test_scores_do_not_change_under_a_common_shift(
    shape: str, i: int, j: int, shift: int, pairs: int, seed: int
) -> None:
    rope = encoding(shape, 2 * pairs)
    i, j = max(i, j), min(i, j)  # xPos is for keys behind the query
    q, k = torch.randn(2, 1, 1, 1, 2 * pairs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    here, there = (
        scores(rope, q, k, torch.tensor([i + at]), torch.tensor([j + at]), torch.tensor([37])).item()
        for at in (0, shift)
    )
    assert there == pytest.approx(here, abs=1e-9)


@every_shape
def test_positions_by_sentence_do_what_each_sentence_alone_does(shape: str) -> None:
    rope = encoding(shape, 8)
    x = torch.randn(3, 2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 3, 4, 9, 30], [7, 8, 9, 10, 11]])
    lengths = torch.tensor([5, 40, 12])
    table = rope.point_table(positions, lengths, x.dtype)
    together = torch.stack((rope.transform_query(x, table, 0), rope.transform_key(x, table, 0)))
    for row in range(3):
        for at in (positions[row], positions[row, None]):
            alone = rope.point_table(at, lengths[row, None], x.dtype)
            q, k = (hook(x[row, None], alone, 0) for hook in (rope.transform_query, rope.transform_key))
            torch.testing.assert_close(torch.cat((q, k)), together[:, row], atol=1e-12, rtol=0)


@pytest.mark.parametrize("table", [POSITIONS, CROSS_POSITIONS], ids=lambda t: t.field)
def test_rotary_refuses_an_odd_head_width(table: Any) -> None:
    name = {"model.position": "rope", "model.cross_position": "rotary"}[table.field]
    with pytest.raises(ConfigError, match="even") as caught:
        build_position(table, name, geometry(20, n_heads=4), {})
    assert (caught.value.field, caught.value.value) == ("model.n_heads", 4)
    with pytest.raises(ConfigError, match="even") as caught:
        build_position(table, name, Geometry(16, 2, 2, causal=False, d_head=7), {})
    assert (caught.value.field, caught.value.value) == ("model.d_head", 7)


def test_head_width_need_not_divide_the_model() -> None:
    rope = Rotary(Geometry(10, 3, 2, causal=False, d_head=6))
    x = torch.randn(2, 3, 4, 6)
    table = rope.point_table(torch.arange(4), ONE, x.dtype)
    assert rope.transform_query(x, table, 0).shape == x.shape
    torch.testing.assert_close(rope.transform_query(x, table, 0).norm(dim=-1), x.norm(dim=-1))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.startswith("rope")])
def test_rotary_angles_are_exact_whatever_the_precision(shape: str) -> None:
    # PITFALLS F4: angles in bf16 are wrong by up to 1.99 at these lengths.
    rope, length = encoding(shape, 32).to(torch.bfloat16), torch.tensor([2048])
    turn = rope.point_table(torch.arange(2048), length, torch.bfloat16).squeeze()
    cos, sin = turn.real, turn.imag
    assert cos.dtype == sin.dtype == torch.float32
    theta = rope.scaling.frequencies(32, rope.base, length).flatten()
    angles = torch.arange(2048, dtype=torch.float64)[:, None] * theta
    assert (cos / rope.scaling.magnitude - angles.cos()).abs().max() < 1e-6
    assert (sin / rope.scaling.magnitude - angles.sin()).abs().max() < 1e-6


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotary_turns_bf16_vectors_in_float32(layout: str) -> None:
    x = [0.5, -1.25, 2.0, 0.375]  # exact in bf16
    for position in (3, 257, 2047):
        turned = rotated(x, position, dtype=torch.bfloat16, layout=layout)
        assert turned.dtype == torch.bfloat16
        assert torch.equal(turned, rotated(x, position, layout=layout).to(torch.bfloat16))


@every_shape
def test_rotary_leaves_embeddings_and_scores_alone(shape: str) -> None:
    rope = encoding(shape, 4)
    x = torch.randn(1, 3, 4)
    assert rope.embed(x, torch.arange(3)) is x
    assert rope.score_term(x[None], x[None], rope.pair_table(torch.arange(3), torch.arange(3), x.dtype), 0) is None
    # A model trained with one scaling can be loaded with another.
    assert not rope.state_dict()


# xPos ------------------------------------------------------------------------------------------------------------


def test_xpos_zetas() -> None:
    expected = [0.28571429, 0.46428571, 0.64285714, 0.82142857]
    assert XPos(geometry(8)).zetas(CPU).tolist() == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_xpos_score_of_each_pair_fades_with_distance(layout: str) -> None:
    xpos, rope = XPos(geometry(8), layout=layout), Rotary(geometry(8), layout=layout)
    for pair, zeta in enumerate([0.28571429, 0.46428571, 0.64285714, 0.82142857]):
        x = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
        x[..., [2 * pair, 2 * pair + 1] if layout == "interleaved" else [pair, pair + 4]] = torch.tensor(
            [0.6, -0.8]
        ).double()
        for i, j in ((512, 0), (700, 188), (300, 44), (4096, 4096)):
            faded, plain = (scores(each, x, x, torch.tensor([i]), torch.tensor([j]), ONE) for each in (xpos, rope))
            assert faded.item() == pytest.approx(plain.item() * zeta ** ((i - j) / 512), abs=1e-7)


def test_xpos_vectors() -> None:
    # q zeta^(n / 512) and k zeta^(-n / 512), with zeta of d = 4: .4 / 1.4 and .9 / 1.4.
    xpos, x = XPos(geometry(4)), torch.tensor([[[[1.0, 2, 3, 4]]]], dtype=torch.float64)
    table = xpos.point_table(torch.tensor([5]), ONE, x.dtype)
    turned = torch.tensor([2.20151073, -0.3915999, 2.7963341, 4.14493855], dtype=torch.float64)
    factor = torch.tensor([0.4 / 1.4, 0.4 / 1.4, 0.9 / 1.4, 0.9 / 1.4], dtype=torch.float64) ** (5 / 512)
    torch.testing.assert_close(xpos.transform_query(x, table, 0).flatten(), turned * factor, atol=1e-8, rtol=0)
    torch.testing.assert_close(xpos.transform_key(x, table, 0).flatten(), turned / factor, atol=1e-8, rtol=0)


def test_xpos_is_plain_rotation_where_keys_may_lie_ahead() -> None:
    xpos, rope = XPos(geometry(8, causal=False), base=50.0), Rotary(geometry(8), base=50.0)
    x = torch.randn(1, 2, 9, 8, generator=torch.Generator().manual_seed(0))
    at = torch.arange(9)
    assert torch.equal(scores(xpos, x, x, at, at, ONE), scores(rope, x, x, at, at, ONE))
    xpos.check_length(10**9)


def test_xpos_is_exact_in_float32_at_far_positions() -> None:
    xpos = XPos(geometry(16))
    q, k = torch.randn(2, 1, 1, 4096, 16, generator=torch.Generator().manual_seed(0))
    last, all_keys = torch.tensor([4095]), torch.arange(4096)
    narrow = scores(xpos, q[:, :, -1:], k, last, all_keys, ONE)
    wide = scores(xpos, q[:, :, -1:].double(), k.double(), last, all_keys, ONE)
    torch.testing.assert_close(narrow.double(), wide, atol=2e-5, rtol=0)
    assert narrow.isfinite().all()
    # Positions may be any 4096 ones: it is the distance that fades, not the position.
    early = scores(xpos, q[:, :, -1:], k[:, :, -100:], torch.tensor([99]), torch.arange(100), ONE)
    torch.testing.assert_close(narrow[..., -100:], early, atol=2e-5, rtol=0)


def test_xpos_refuses_positions_where_keys_would_overflow() -> None:
    xpos = XPos(geometry(16), scale_base=32)
    xpos.check_length(2000)
    table = xpos.point_table(torch.tensor([1999]), ONE, torch.float32)
    for turn in table:
        assert turn.abs().isfinite().all()
        assert (turn.abs() > 0).all()
    with pytest.raises(ConfigError, match="at least 64") as caught:
        xpos.check_length(4096)
    assert caught.value.field == "model.position_options.scale_base"


@pytest.mark.parametrize("option", ["gamma", "scale_base"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_bad_xpos_options_name_the_field(option: str, value: float) -> None:
    with pytest.raises(ConfigError) as caught:
        build_position(POSITIONS, "xpos", geometry(8), {option: value})
    assert caught.value.field == f"model.position_options.{option}"
