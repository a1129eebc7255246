"""Feed-forward types and norms: golden values, parameters, naive twins."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.feedforward import GatedFeedForward, gated_parameters, matched_width, plain_parameters
from transformer_ablate.measures.size import parameter_count
from transformer_ablate.registry import FEED_FORWARDS, NORMS

SAMPLE = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
GOLDEN = {
    "relu": [1, 0, 2],
    "gelu": [0.8413447461, -0.1586552539, 1.9544997361],
    "gelu_tanh": [0.8411919906, -0.1588080094, 1.9545976941],
    "silu": [0.7310585786, -0.2689414214, 1.7615941560],
    "squared_relu": [1, 0, 4],
    "linear": [1, -1, 2],
    "glu": [0.7310585786, 0.2689414214, 0.8807970780],
    "bilinear": [1, -1, 2],
    "reglu": [1, 0, 2],
    "geglu": [0.8413447461, -0.1586552539, 1.9544997361],
    "swiglu": [0.7310585786, -0.2689414214, 1.7615941560],
}


def test_no_type_is_without_its_golden_values() -> None:
    assert {*GOLDEN, "none"} == set(FEED_FORWARDS.names())


@pytest.mark.parametrize("name", GOLDEN)
def test_activations(name: str) -> None:
    activation = FEED_FORWARDS[name](4, 8).activation
    torch.testing.assert_close(activation(SAMPLE), torch.tensor(GOLDEN[name], dtype=torch.float64), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_sublayer_is_its_formula(name: str) -> None:
    layer = FEED_FORWARDS[name](4, 9).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    up = x @ layer.up.weight.T + layer.up.bias
    if isinstance(layer, GatedFeedForward):
        hidden = layer.activation(x @ layer.gate.weight.T + layer.gate.bias) * up
    else:
        hidden = layer.activation(up)
    torch.testing.assert_close(layer(x), hidden @ layer.down.weight.T + layer.down.bias)


@pytest.mark.parametrize(
    ("d_model", "d_ff", "width"), [(64, 256, 170), (32, 128, 85), (128, 512, 341), (512, 2048, 1365)]
)
def test_gated_widths(d_model: int, d_ff: int, width: int) -> None:
    assert matched_width(d_model, d_ff) == width
    difference = gated_parameters(d_model, width) / plain_parameters(d_model, d_ff) - 1
    assert abs(difference) < 0.005
    for name in ("swiglu", "glu"):
        assert parameter_count(FEED_FORWARDS[name](d_model, d_ff)) == gated_parameters(d_model, width)
    assert parameter_count(FEED_FORWARDS["relu"](d_model, d_ff)) == plain_parameters(d_model, d_ff)


@given(st.integers(1, 300), st.integers(1, 1200))
def test_no_other_width_is_nearer(d_model: int, d_ff: int) -> None:
    target = plain_parameters(d_model, d_ff)
    best = abs(gated_parameters(d_model, matched_width(d_model, d_ff)) - target)
    assert all(abs(gated_parameters(d_model, width) - target) >= best for width in range(1, d_ff + 2))


@pytest.mark.parametrize("name", FEED_FORWARDS.names())
@pytest.mark.parametrize("norm", NORMS.names())
def test_every_type_and_norm_learns(name: str, norm: str) -> None:
    model = build_model(ModelConfig(d_model=16, d_ff=32, n_heads=2, ffn=name, norm=norm), 12, 12, seed=0)
    tokens = torch.randint(4, 12, (3, 6), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(tokens, tokens).float().flatten(0, 1), tokens.flatten())
    loss.backward()
    assert torch.isfinite(loss)
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


def test_rms_norm_values() -> None:
    found = NORMS["rmsnorm"](4)(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    torch.testing.assert_close(found, torch.tensor([0.365148, 0.730297, 1.095445, 1.460593]), atol=1e-5, rtol=0)
