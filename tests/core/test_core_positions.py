"""Positional encodings against the golden values of their papers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import ModelConfig, TrainConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.positions import Geometry, Learned, Rotary, Sinusoidal, build_position, sinusoidal_table
from transformer_ablate.core.positions.base import frequencies
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS
from transformer_ablate.training.optimizers import adamw

CPU = torch.device("cpu")


def geometry(d_model: int, n_heads: int = 1, causal: bool = False) -> Geometry:
    return Geometry(d_model, n_heads, layers=2, causal=causal)


def sinusoids(positions: list[int] | range, d_model: int) -> Tensor:
    return sinusoidal_table(torch.tensor(list(positions)), d_model)


# Sinusoidal ------------------------------------------------------------------------------------------------------


def test_sinusoidal_values() -> None:
    expected = {
        0: [0, 1, 0, 1, 0, 1, 0, 1],
        1: [0.84147098, 0.54030231, 0.09983342, 0.99500417, 0.00999983, 0.99995, 0.001, 0.9999995],
        2: [0.90929743, -0.41614684, 0.19866933, 0.98006658, 0.01999867, 0.99980001, 0.002, 0.999998],
        10: [-0.54402111, -0.83907153, 0.84147098, 0.54030231, 0.09983342, 0.99500417, 0.00999983, 0.99995],
    }
    table = sinusoids(list(expected), 8)
    assert table.dtype == torch.float64
    torch.testing.assert_close(table, torch.tensor(list(expected.values()), dtype=torch.float64), atol=1e-8, rtol=0)


@pytest.mark.parametrize(
    ("position", "first_six"),
    [
        (1, [0.84147098, 0.54030231, 0.82185619, 0.56969501, 0.8019618, 0.59737533]),
        (50, [-0.26237485, 0.96496603, -0.89533875, -0.44538582, 0.56074704, -0.82798717]),
    ],
)
def test_sinusoidal_values_at_width_512(position: int, first_six: list[float]) -> None:
    torch.testing.assert_close(
        sinusoids([position], 512)[0, :6], torch.tensor(first_six, dtype=torch.float64), atol=1e-8, rtol=0
    )


@given(st.integers(0, 5000), st.integers(1, 300))
def test_sinusoidal_norm(position: int, half_width: int) -> None:
    assert sinusoids([position], 2 * half_width).square().sum().item() == pytest.approx(half_width, abs=1e-9)


@pytest.mark.parametrize("k", [1, 5, 100])
@pytest.mark.parametrize("p", [0, 3, 1000])
def test_sinusoidal_shift_is_a_rotation_of_each_pair(k: int, p: int) -> None:
    here, there = sinusoids([p, p + k], 512).unflatten(-1, (256, 2))
    angle = k * torch.pow(torch.tensor(10_000.0, dtype=torch.float64), -torch.arange(256, dtype=torch.float64) / 256)
    rotated = torch.stack(
        (angle.cos() * here[:, 0] + angle.sin() * here[:, 1], angle.cos() * here[:, 1] - angle.sin() * here[:, 0]), -1
    )
    assert (rotated - there).abs().max() < 1e-9


def kernel(d_model: int, k: list[int] | range, p: int = 0) -> Tensor:
    table = sinusoids([p + i for i in [0, *k]], d_model)
    return table[1:] @ table[0]


def test_sinusoidal_kernel_values() -> None:
    expected = {
        0: 256, 1: 249.1021, 2: 231.7336, 4: 196.6882, 8: 184.9651, 16: 161.533, 32: 143.9456, 64: 124.2599,
        128: 103.9083, 256: 80.2472, 512: 70.7363,
    }  # fmt: skip
    assert kernel(512, list(expected)).tolist() == pytest.approx(list(expected.values()), abs=1e-4)


@pytest.mark.parametrize(("d_model", "first_rise"), [(64, 6), (128, 12), (512, 44)])
def test_sinusoidal_kernel_is_not_monotone(d_model: int, first_rise: int) -> None:
    rises = torch.nonzero(kernel(d_model, range(100)).diff() > 0).flatten() + 1
    assert rises[0] == first_rise


@given(st.integers(0, 3000), st.integers(0, 500), st.sampled_from([8, 64, 512]))
def test_sinusoidal_kernel_depends_on_distance_alone(p: int, k: int, d_model: int) -> None:
    assert kernel(d_model, [k], p).item() == pytest.approx(kernel(d_model, [k]).item(), abs=1e-7)


def test_sinusoidal_longest_wavelength() -> None:
    # The exponent stops at (d - 2) / d, so the longest wavelength is under 10 000 * 2 pi.
    assert 1 / frequencies(512, 10_000.0, CPU)[-1].item() == pytest.approx(9646.6, abs=0.05)


def test_sinusoidal_of_odd_width_ends_with_a_sine() -> None:
    table = sinusoids(range(7), 5)
    assert table.shape == (7, 5)
    p = torch.arange(7, dtype=torch.float64)
    for i in range(3):
        torch.testing.assert_close(table[:, 2 * i], (p * 10_000 ** (-2 * i / 5)).sin())
    torch.testing.assert_close(table[:, 3], (p * 10_000 ** (-2 / 5)).cos())


def test_sinusoidal_is_added_in_float32_under_autocast() -> None:
    # In bf16 position 257 cannot even be written; the table must be that of float64, rounded once.
    x = torch.zeros(1, 300, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        added = Sinusoidal(geometry(8)).embed(x, torch.arange(300))
    assert (added[0] - sinusoids(range(300), 8)).abs().max() < 1e-6


@pytest.mark.parametrize("d_model", [64, 512])
def test_tokens_and_sinusoids_are_of_one_size_at_first(d_model: int) -> None:
    # PITFALLS E4: without the factor sqrt(d) the tokens would drown.
    model = build_model(ModelConfig(d_model=d_model), 200, 200, seed=0)
    tokens = model.source_embedding(torch.arange(200)[None])  # type: ignore[operator]
    ratio = tokens.square().mean().sqrt() / sinusoids(range(200), d_model).square().mean().sqrt()
    assert 0.5 < ratio.item() < 3


@pytest.mark.parametrize(
    ("position", "dtype"),
    [(name, torch.float64) for name in POSITIONS.names()]
    + [pytest.param(name, torch.bfloat16) for name in POSITIONS.names()],
)
def test_a_model_wholly_in_another_precision_runs(position: str, dtype: torch.dtype) -> None:
    model = build_model(ModelConfig(d_model=16, n_heads=2, d_ff=32, position=position), 20, 20, seed=0).to(dtype)
    logits = model(torch.tensor([[4, 5, 6]]), torch.tensor([[1, 4]]))
    assert logits.dtype == dtype
    assert logits.isfinite().all()


# Learned ---------------------------------------------------------------------------------------------------------


def test_rows_that_training_does_not_reach_stay_bit_identical() -> None:
    config = ModelConfig(d_model=16, n_heads=2, d_ff=32, position="learned", position_options={"rows": 20})
    model = build_model(config, 12, 12, seed=0)
    optimizer = adamw(model, TrainConfig(weight_decay=0.5))
    tables = {name: p for name, p in model.named_parameters() if p.shape == (20, 16)}
    assert sorted(tables) == ["decoder.position.weight", "encoder.position.weight"]
    before = {name: p.detach().clone() for name, p in tables.items()}
    used = {"encoder.position.weight": 6, "decoder.position.weight": 4}
    for step in range(4):
        tokens = torch.randint(4, 12, (5, 6), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(tokens, tokens[:, :4]).square().mean().backward()
        for name, p in tables.items():
            assert p.grad is not None
            assert (p.grad[used[name] :] == 0).all()
            assert (p.grad[: used[name]] != 0).any(dim=1).all()
        optimizer.step()
    for name, p in tables.items():
        assert torch.equal(p[used[name] :], before[name][used[name] :])
        assert (p[: used[name]] != before[name][: used[name]]).any(dim=1).all()


def test_learned_position_past_the_last_row_is_an_error_that_names_both_numbers() -> None:
    config = ModelConfig(d_model=16, n_heads=2, position="learned", position_options={"rows": 64})
    model = build_model(config, 12, 12, seed=0)
    assert model(torch.full((1, 64), 5), torch.full((1, 64), 5)).shape == (1, 64, 12)
    for source, target in ((65, 3), (3, 65)):
        with pytest.raises(ConfigError, match=r"got 64, allowed: at least 65\b") as caught:
            model(torch.full((1, source), 5), torch.full((1, target), 5))
        assert caught.value.field == "model.position_options.rows"


def test_lengths_can_be_checked_before_a_run() -> None:
    Learned(geometry(6), rows=64).check_length(64)
    with pytest.raises(ConfigError, match=r"got 64, allowed: at least 65\b"):
        Learned(geometry(6), rows=64).check_length(65)
    for name in ("none", "sinusoidal", "rope"):
        build_position(POSITIONS, name, geometry(6), {}).check_length(10**9)


def test_learned_adds_the_row_of_each_position() -> None:
    position = Learned(geometry(6), rows=9)
    torch.nn.init.normal_(position.weight)
    x = torch.randn(2, 3, 6)
    torch.testing.assert_close(position.embed(x, torch.tensor([4, 5, 8])), x + position.weight[[4, 5, 8]])


# Rotary ----------------------------------------------------------------------------------------------------------


def rotated(x: list[float], position: int, layout: str = "interleaved", dtype: torch.dtype = torch.float64) -> Tensor:
    rope = Rotary(geometry(len(x)), layout=layout)
    table = rope.point_table(torch.tensor([position]), dtype)
    return rope.transform_query(torch.tensor(x, dtype=dtype).view(1, 1, 1, -1), table, layer=0).flatten()


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
    assert rotated([1, 2, 3, 4], position, layout).tolist() == pytest.approx(expected, abs=1e-8)


def test_rotary_frequencies_of_width_64() -> None:
    theta = frequencies(64, 10_000.0, CPU)
    assert len(theta) == 32
    assert theta[[0, 1, 2, -1]].tolist() == pytest.approx([1, 0.7498942093, 0.5623413252, 1.333521432e-4], rel=1e-9)


@pytest.mark.parametrize("n", [0, 7, 100])
def test_rotary_score_at_distance_three(n: int) -> None:
    score = rotated([0.1, -0.2, 0.3, 0.4], n + 3) @ rotated([0.5, 0.6, -0.7, 0.8], n)
    assert score.item() == pytest.approx(0.2174268399, abs=1e-9)


@given(
    st.sampled_from(["interleaved", "half"]),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 3000),
    st.integers(1, 8),
    st.integers(0, 9),
)
def test_rotary_scores_do_not_change_under_a_common_shift(
    layout: str, i: int, j: int, shift: int, pairs: int, seed: int
) -> None:
    rope = Rotary(geometry(2 * pairs), layout=layout)
    q, k = torch.randn(2, 1, 1, 1, 2 * pairs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def score(at: int) -> float:
        tables = [rope.point_table(torch.tensor([p + at]), torch.float64) for p in (i, j)]
        return float((rope.transform_query(q, tables[0], 0) * rope.transform_key(k, tables[1], 0)).sum())

    assert score(shift) == pytest.approx(score(0), abs=1e-9)


@pytest.mark.parametrize("table", [POSITIONS, CROSS_POSITIONS], ids=lambda t: t.field)
def test_rotary_refuses_an_odd_head_width(table: object) -> None:
    name = {"model.position": "rope", "model.cross_position": "rotary"}[table.field]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="even") as caught:
        build_position(table, name, geometry(20, n_heads=4), {})  # type: ignore[arg-type]
    assert caught.value.field == "model.n_heads"
    assert caught.value.value == 4


def test_rotary_angles_are_exact_whatever_the_precision() -> None:
    # PITFALLS F4: angles in bf16 are wrong by up to 1.99 at these lengths.
    rope = Rotary(geometry(32)).to(torch.bfloat16)
    turn = rope.point_table(torch.arange(2048), torch.bfloat16)
    cos, sin = turn.real, turn.imag
    assert cos.dtype == sin.dtype == torch.float32
    angles = torch.arange(2048, dtype=torch.float64)[:, None] * 10_000 ** (-torch.arange(0, 32, 2).double() / 32)
    assert (cos - angles.cos()).abs().max() < 1e-6
    assert (sin - angles.sin()).abs().max() < 1e-6


def test_rotary_turns_bf16_vectors_in_float32() -> None:
    x = [0.5, -1.25, 2.0, 0.375]  # exact in bf16
    for position in (3, 257, 2047):
        turned = rotated(x, position, dtype=torch.bfloat16)
        assert turned.dtype == torch.bfloat16
        assert torch.equal(turned, rotated(x, position).to(torch.bfloat16))


def test_rotary_leaves_embeddings_and_scores_alone() -> None:
    rope = Rotary(geometry(4))
    x = torch.randn(1, 3, 4)
    assert rope.embed(x, torch.arange(3)) is x
    assert rope.score_term(x[None], x[None], rope.pair_table(torch.arange(3), torch.arange(3), x.dtype), 0) is None
    assert not list(rope.parameters())


# Options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("sinusoidal", {"base": 1}, "model.position_options.base"),
        ("sinusoidal", {"base": math.nan}, "model.position_options.base"),
        ("rope", {"base": 0.5}, "model.position_options.base"),
        ("rope", {"layout": "quarter"}, "model.position_options.layout"),
        ("learned", {"rows": 0}, "model.position_options.rows"),
        ("learned", {"rows": 3.5}, "model.position_options.rows"),
    ],
)
def test_bad_option_values_name_the_field(name: str, options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_position(POSITIONS, name, geometry(8), options)
    assert caught.value.field == field


def test_unknown_options_are_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'layout'"):
        build_position(POSITIONS, "rope", geometry(8), {"layuot": "half"})
    with pytest.raises(ConfigError, match=r"'none'.*it has none"):
        build_position(POSITIONS, "none", geometry(8), {"base": 100})


def test_options_reach_the_encoding() -> None:
    slow = build_position(POSITIONS, "sinusoidal", geometry(8), {"base": 100.0})
    added = slow.embed(torch.zeros(1, 3, 8, dtype=torch.float64), torch.arange(3))
    torch.testing.assert_close(added[0], sinusoidal_table(torch.arange(3), 8, base=100.0))
    half = build_position(POSITIONS, "rope", geometry(4), {"layout": "half"})
    x = torch.tensor([[[[1.0, 2, 3, 4]]]])
    turned = half.transform_query(x, half.point_table(torch.tensor([1]), x.dtype), 0)
    assert turned.flatten().tolist() == pytest.approx([-1.98411065, 1.95990067, 2.4623779, 4.01979967], abs=1e-6)
