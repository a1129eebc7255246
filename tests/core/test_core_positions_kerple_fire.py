"""KERPLE and FIRE: golden values, naive twins, and what happens at the ends of their ranges."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_ablate.core.linear import initialise
from transformer_ablate.core.positions import FIRE, Geometry, Kerple
from transformer_ablate.core.positions.fire import DistanceNetwork
from transformer_ablate.errors import ConfigError
from transformer_ablate.training.optimizers import parameter_groups

ENCODER = Geometry(d_model=32, n_heads=4, layers=2, causal=False)
DECODER = Geometry(d_model=32, n_heads=4, layers=2, causal=True)
ONE_HEAD = Geometry(d_model=8, n_heads=1, layers=1, causal=True)


def kerple(kernel: str, r1: list[float], r2: list[float]) -> Kerple:
    encoding = Kerple(ENCODER, kernel).double()
    encoding.set_scales(torch.tensor(r1, dtype=torch.float64), torch.tensor(r2, dtype=torch.float64))
    return encoding


def test_golden_values_of_the_logarithmic_kernel() -> None:
    encoding = kerple("log", [1, 1, 2, 1], [0.1] * 4)
    table = encoding.pair_table(torch.tensor([100]), torch.tensor([100, 99, 90, 0, 110]), torch.float64)
    golden = [0, -0.09531018, -0.69314718, -2.39789527, -0.69314718]
    assert table[0, 0].tolist() == pytest.approx(golden, abs=1e-8)
    assert table[2, 0].tolist() == pytest.approx([2 * value for value in golden], abs=1e-8)


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(
        [("log", 5.0, lambda d, a, b: -a * math.log(1 + b * d)), ("power", 1.98, lambda d, a, b: -a * d**b)]
    ),
    st.integers(0, 10**6),
)
def test_both_kernels_equal_their_formulas(kernel: tuple, seed: int) -> None:
    name, highest, formula = kernel
    generator = torch.Generator().manual_seed(seed)
    r1 = (torch.rand(4, dtype=torch.float64, generator=generator) * 5 + 0.01).tolist()
    r2 = (torch.rand(4, dtype=torch.float64, generator=generator) * (highest - 0.01) + 0.01).tolist()
    queries, keys = torch.randint(0, 3000, (2, 5), generator=generator)
    table = kerple(name, r1, r2).pair_table(queries, keys, torch.float64)
    for head in range(4):
        for i, query in enumerate(queries.tolist()):
            for j, key in enumerate(keys.tolist()):
                expected = formula(abs(query - key), r1[head], r2[head])
                assert table[head, i, j].item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("kernel", "ends"), [("log", (2, 1)), ("power", (1, 2))])
def test_first_scales_are_uniform_as_the_authors(kernel: str, ends: tuple[int, int]) -> None:
    encoding = Kerple(Geometry(d_model=4000, n_heads=4000, layers=2, causal=True), kernel)
    encoding.initialise(torch.Generator().manual_seed(0))
    for scale, end in zip(encoding.scales(torch.float64), ends, strict=True):
        assert 0.0099 <= scale.min() < 0.02 * end
        assert 0.98 * end < scale.max() <= end - 0.0099
        assert scale.mean().item() == pytest.approx(end / 2, abs=0.03 * end)
    assert sum(p.numel() for p in encoding.parameters()) == 2 * 4000  # two a head, shared by the layers


@pytest.mark.parametrize("raw", [-300.0, -20.0, 0.0, 20.0])
def test_the_power_kernel_is_finite_at_every_exponent_and_distance(raw: float) -> None:
    encoding = Kerple(ENCODER, "power")
    torch.nn.init.zeros_(encoding.raw_r1)
    torch.nn.init.constant_(encoding.raw_r2, raw)
    positions = torch.arange(200)
    table = encoding.pair_table(positions, positions, torch.float32)
    assert torch.equal(table.diagonal(dim1=1, dim2=2), torch.zeros(4, 200))
    table.sum().backward()
    for parameter in encoding.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    _, r2 = encoding.scales(torch.float32)
    assert (r2 <= 2).all()
    assert table.isfinite().all()
    assert (table[:, 0, 2:] <= table[:, 0, 1:-1]).all()


def fire(geometry: Geometry, **options: object) -> FIRE:
    encoding = FIRE(geometry, **options).double()  # type: ignore[arg-type]
    initialise(encoding, seed=0)
    return encoding


def networks(encoding: FIRE) -> list[DistanceNetwork]:
    return [network for network in encoding.networks if isinstance(network, DistanceNetwork)]


def as_identity(encoding: FIRE) -> FIRE:
    """f(x) = x for keys before the query, -x for keys after it."""
    for network in networks(encoding):
        heads = encoding.geometry.n_heads
        signs = torch.ones(heads * encoding.sides, 1)
        signs[heads:] = -1
        for layer, weight in ((network.hidden, torch.ones(1, 1)), (network.out, signs)):
            layer.load_state_dict({"weight": weight, "bias": torch.zeros(len(weight))})
    return encoding


def test_golden_values_below_and_above_the_threshold() -> None:
    encoding = as_identity(fire(ONE_HEAD, width=1, c=0.1, threshold=256))
    golden = {(10, 0): 0.21126667, (10, 9): 0.02904991, (300, 0): 1.0, (300, 299): 0.02775496, (300, 150): 0.80739635}
    with_min = {(i, j): math.log(0.1 * (i - j) + 1) / math.log(0.1 * min(256, i) + 1) for i, j in golden}
    for (i, j), value in golden.items():
        (table,) = encoding.pair_table(torch.tensor([i]), torch.tensor([j]), torch.float64)
        assert table.item() == pytest.approx(value, abs=1e-8)
        assert abs(value - with_min[i, j]) > 1e-4, "the five inputs tell max from min"


def test_an_encoder_normalises_by_the_farther_position_and_tells_sides_apart() -> None:
    encoding = as_identity(fire(ENCODER, width=1, c=0.1, threshold=20))
    table = encoding.pair_table(torch.tensor([3, 30]), torch.tensor([30, 3, 10]), torch.float64)[1]

    def psi(x: float) -> float:
        return math.log(0.1 * x + 1)

    expected = [[-psi(27) / psi(30), 0, -psi(7) / psi(20)], [0, psi(27) / psi(30), psi(20) / psi(30)]]
    for head in table:
        torch.testing.assert_close(head, torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("geometry", [ENCODER, DECODER])
def test_fire_equals_its_naive_twin(geometry: Geometry) -> None:
    encoding = fire(geometry, width=5, c=0.3, threshold=6)
    queries, keys = torch.tensor([0, 2, 11, 40]), torch.tensor([0, 1, 5, 11, 35])
    tables = encoding.pair_table(queries, keys, torch.float64)
    for table, network in zip(tables, networks(encoding), strict=True):
        hidden, out = ([layer.weight.tolist(), layer.bias.tolist()] for layer in (network.hidden, network.out))
        for a, i in enumerate(queries.tolist()):
            for b, j in enumerate(keys.tolist()):
                reach = i if geometry.causal else max(i, j)
                x = math.log(0.3 * abs(i - j) + 1) / math.log(0.3 * max(6, reach) + 1)
                units = [max(0.0, w * x + c) for (w,), c in zip(*hidden, strict=True)]
                for head in range(4):
                    row = head + (4 if j > i and not geometry.causal else 0)
                    expected = sum(u * w for u, w in zip(units, out[0][row], strict=True)) + out[1][row]
                    assert table[head, a, b].item() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("shared", [False, True])
def test_layers_have_networks_of_their_own_unless_shared(shared: bool) -> None:
    encoding = fire(DECODER, shared=shared)
    table = encoding.pair_table(torch.arange(9), torch.arange(9), torch.float64)
    q = torch.zeros(1, 4, 9, 8, dtype=torch.float64)
    first, second = (encoding.score_term(q, q, table, layer) for layer in range(2))
    assert (first is second) == shared
    assert torch.equal(first, second) == shared
    # c, L, 32 units with weight and bias, 4 heads with 32 weights and a bias
    assert sum(p.numel() for p in encoding.parameters()) == (2 + 64 + 4 * 33) * (1 if shared else 2)


def test_the_first_network_bends_and_weight_decay_reaches_its_matrices_alone() -> None:
    encoding = fire(DECODER)
    network = networks(encoding)[0]
    x = torch.linspace(0, 1, 101, dtype=torch.float64)[:, None]
    with torch.no_grad():
        y = network.out(network.hidden(x).relu())
        alive = (network.hidden(x) > 0).any(0).double().mean()
    assert (y.diff(dim=0).diff(dim=0).abs() > 1e-6).any(0).all(), "straight lines: ReLU's bends all lie at 0"
    assert alive > 0.6
    decayed, others = (group["params"] for group in parameter_groups(encoding, 0.1))
    assert sum(p.numel() for p in decayed) == 2 * (32 + 4 * 32)  # type: ignore[attr-defined]
    assert len(others) == 2 * 4  # type: ignore[arg-type]
    assert network.log_c.exp().item() == pytest.approx(0.1)
    assert network.log_threshold.exp().item() == pytest.approx(512)


def test_a_common_shift_changes_fire_only_beyond_its_threshold() -> None:
    encoding = fire(DECODER, threshold=50)
    here, below, beyond = (
        encoding.pair_table(torch.arange(9) + shift, torch.arange(9) + shift, torch.float64)[0] for shift in (0, 41, 42)
    )
    torch.testing.assert_close(here, below, atol=1e-12, rtol=0)
    changed = (here - beyond).abs().amax(dim=(0, 2)) > 1e-9
    assert changed.tolist() == [False] * 9
    beyond = encoding.pair_table(torch.arange(9) + 44, torch.arange(9) + 44, torch.float64)[0]
    changed = (here - beyond).abs().amax(dim=(0, 2)) > 1e-9
    assert changed.tolist() == [False] * 7 + [True] * 2


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Kerple(ENCODER, kernel="gauss"), "kernel"),
        (lambda: FIRE(ENCODER, width=0), "width"),
        (lambda: FIRE(ENCODER, c=0), "c"),
        (lambda: FIRE(ENCODER, threshold=-1), "threshold"),
        (lambda: FIRE(ENCODER, threshold=math.nan), "threshold"),
        (lambda: FIRE(ENCODER, shared=1), "shared"),  # type: ignore[arg-type]
    ],
)
def test_options_that_make_no_sense_are_refused(make: object, field: str) -> None:
    with pytest.raises(ConfigError, match=f"position_options.{field}:"):
        make()  # type: ignore[operator]
