"""Positional encodings against the golden values of their papers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import ModelConfig, TrainConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.positions import (
    Geometry,
    Integer,
    Learned,
    PositionalEncoding,
    Sinusoidal,
    build_position,
    sinusoidal_table,
)
from transformer_ablate.core.positions.base import frequencies
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import POSITIONS
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
    by_sentence = torch.tensor([[4, 5, 8], [0, 1, 7]])
    torch.testing.assert_close(position.embed(x, by_sentence), x + position.weight[by_sentence])


def test_learned_has_512_rows_by_default() -> None:
    assert Learned(geometry(6)).weight.shape == (512, 6)


def test_clamped_positions_share_the_last_row() -> None:
    position = Learned(geometry(6), rows=4, beyond="clamp")
    torch.nn.init.normal_(position.weight)
    x = torch.randn(1, 3, 6)
    position.check_length(10**9)
    added = position.embed(x, torch.tensor([3, 4, 900]))
    torch.testing.assert_close(added, x + position.weight[[3, 3, 3]])
    added.sum().backward()
    assert position.weight.grad is not None
    assert position.weight.grad[:, 0].tolist() == [0, 0, 0, 3]


@pytest.mark.parametrize("beyond", ["clamp", "error"])
def test_kinds_of_learned_that_end_with_training_must_be_told_its_length(beyond: str) -> None:
    with pytest.raises(ConfigError, match="longest training sequence") as caught:
        Learned(geometry(6), beyond=beyond)
    assert caught.value.field == "model.position_options.rows"


def test_learned_with_nothing_beyond_refuses_longer_sequences() -> None:
    position = Learned(geometry(6), rows=9, beyond="error")
    position.check_length(9)
    with pytest.raises(ConfigError, match=r"got 9, allowed: at least 10\b"):
        position.check_length(10)


# Integer ---------------------------------------------------------------------------------------------------------


def integer(**options: object) -> Integer:
    encoding = build_position(POSITIONS, "integer", geometry(6), options)
    assert isinstance(encoding, Integer)
    encoding.initialise(torch.Generator().manual_seed(0))
    return encoding.double()


@pytest.mark.parametrize("positions", [torch.tensor([0, 1, 7]), torch.tensor([[0, 1, 7], [2, 3, 30]])])
def test_integer_adds_a_multiple_of_one_vector(positions: Tensor) -> None:
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    plain, halved, log = integer(), integer(divisor=2), integer(scale="log", divisor=2)
    for encoding, sizes in (
        (plain, positions.double()),
        (halved, positions / 2),
        (log, torch.tensor([[math.log(1 + p / 2) for p in row] for row in torch.atleast_2d(positions).tolist()])),
    ):
        expected = x + sizes[..., None] * encoding.direction
        torch.testing.assert_close(encoding.embed(x, positions), expected, atol=1e-6, rtol=0)
    assert plain.direction.shape == (6,)


def test_integer_of_equal_channels_is_one_number() -> None:
    encoding = integer(channels="equal")
    assert encoding.direction.shape == (1,)
    added = encoding.embed(torch.zeros(1, 4, 6).double(), torch.arange(4))
    torch.testing.assert_close(added[0], torch.arange(4.0).double()[:, None] * encoding.direction.expand(6))


def test_integer_counts_in_float32_under_bf16() -> None:
    # bf16 cannot hold 257; the product is rounded once, at the end.
    encoding = Integer(geometry(1)).to(torch.bfloat16)
    torch.nn.init.constant_(encoding.direction, 0.5)
    added = encoding.embed(torch.zeros(1, 2, 1, dtype=torch.bfloat16), torch.tensor([254, 257]))
    assert added.flatten().tolist() == [127.0, 128.0]
    x = torch.full((1, 1, 1), -128.0, dtype=torch.bfloat16)
    assert encoding.embed(x, torch.tensor([257])).item() == 0.5


def effect_of_integers(norm: str, placement: str, channels: str) -> float:
    """Largest difference that integer positions make to the logits of a model."""
    shape: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "norm": norm, "norm_placement": placement}
    options = {"channels": channels}
    with_integer = build_model(ModelConfig(**shape, position="integer", position_options=options), 12, 12, 0).double()
    plain = build_model(ModelConfig(**shape, position="none"), 12, 12, 0).double()
    source = torch.randint(4, 12, (2, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for stack in (with_integer.encoder, with_integer.decoder):
            direction = stack.position.direction  # type: ignore[union-attr]
            direction.copy_(torch.linspace(0.7, 1.3, len(direction)))  # type: ignore[operator, arg-type]
        return float((with_integer(source, source[:, :40]) - plain(source, source[:, :40])).abs().max())


def test_an_equal_number_in_all_channels_is_no_position_under_pre_layernorm() -> None:
    assert effect_of_integers("layernorm", "pre", "equal") < 1e-9


@pytest.mark.parametrize(
    ("norm", "placement", "channels"),
    [("layernorm", "pre", "each"), ("layernorm", "post", "equal"), ("rmsnorm", "pre", "equal")],
)
def test_other_vectors_and_other_norms_leave_a_position(norm: str, placement: str, channels: str) -> None:
    assert effect_of_integers(norm, placement, channels) > 1e-2


# Options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("sinusoidal", {"base": 1}, "model.position_options.base"),
        ("sinusoidal", {"base": math.nan}, "model.position_options.base"),
        ("rope", {"base": 0.5}, "model.position_options.base"),
        ("rope", {"layout": "quarter"}, "model.position_options.layout"),
        ("integer", {"channels": "all"}, "model.position_options.channels"),
        ("integer", {"scale": "sqrt"}, "model.position_options.scale"),
        ("integer", {"divisor": 0}, "model.position_options.divisor"),
        ("integer", {"divisor": math.nan}, "model.position_options.divisor"),
        ("learned", {"beyond": "wrap"}, "model.position_options.beyond"),
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


class Wide(PositionalEncoding):
    """What a user may write: tables in float64 at each of the three doors."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + positions[..., None].double()

    def transform_query(self, q: Tensor, table: object, layer: int) -> Tensor:
        return q * torch.full((), 0.5, dtype=torch.float64).expand(1)

    transform_key = transform_query

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
        return (query_positions[..., :, None] - key_positions[..., None, :]).double()

    def score_term(self, q: Tensor, k: Tensor, table: Tensor, layer: int) -> Tensor:
        return table


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_tables_in_float64_do_not_widen_the_model(half: bool, values: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(
        "WideValues", (Wide,), {"adds_values": True, "value_term": lambda self, w, t, layer: w.double()[..., :1]}
    )
    monkeypatch.setitem(POSITIONS._table, "wide", kind if values else Wide)
    model = build_model(ModelConfig(d_model=16, n_heads=2, d_ff=32, position="wide"), 20, 20, seed=0)
    source, target = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 4))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = model(source, target)
        logits.float().sum().backward()
        state = model.start(model.encode(source), capacity=4)
        steps = torch.cat([model.step(target[:, i : i + 1], state) for i in range(4)], dim=1)
    assert logits.dtype == (torch.bfloat16 if half else torch.float32)
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
    torch.testing.assert_close(steps, logits, atol=0.1 if half else 1e-5, rtol=0.1 if half else 1e-5)
