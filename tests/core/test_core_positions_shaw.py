"""Shaw's relative position representations, of keys and of values."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.core.positions import Geometry, Shaw
from transformer_ablate.errors import ConfigError

ENCODER = Geometry(d_model=32, n_heads=4, layers=2, causal=False)


def shaw(clip: int, values: bool = False) -> Shaw:
    encoding = Shaw(ENCODER, clip=clip, values=values).double()
    encoding.initialise(torch.Generator().manual_seed(0))
    return encoding


def random_weights(*shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(-1)


def test_offsets_are_key_minus_query_clipped() -> None:
    positions = torch.arange(5)
    found = Shaw(ENCODER, clip=2).pair_table(positions, positions, torch.float32)
    expected = [[2, 3, 4, 4, 4], [1, 2, 3, 4, 4], [0, 1, 2, 3, 4], [0, 0, 1, 2, 3], [0, 0, 0, 1, 2]]
    assert found.tolist() == [expected]


def test_the_score_term_equals_the_naive_sum_over_channels() -> None:
    encoding = shaw(clip=3)
    q = torch.randn(2, 4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(6)
    found = encoding.score_term(q, q, encoding.pair_table(positions, positions, q.dtype), 1)
    for i in range(6):
        for j in range(6):
            row = encoding.keys[1, :, max(-3, min(3, j - i)) + 3]  # (H, d_head)
            expected = (q[:, :, i] * row).sum(-1) / math.sqrt(8)
            torch.testing.assert_close(found[:, :, i, j], expected, atol=1e-12, rtol=0)


def naive_value_term(encoding: Shaw, weights: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
    assert encoding.values is not None
    out = torch.zeros(*weights.shape[:3], 8, dtype=torch.float64)
    for i, query in enumerate(query_positions.tolist()):
        for j, key in enumerate(key_positions.tolist()):
            row = encoding.values[1, :, max(-encoding.clip, min(encoding.clip, key - query)) + encoding.clip]
            out[:, :, i] += weights[:, :, i, j, None] * row
    return out


@settings(deadline=None, max_examples=10)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))
def test_the_value_term_equals_the_naive_sum_over_keys(clip: int, queries: int, keys: int) -> None:
    encoding = shaw(clip, values=True)
    weights = random_weights(2, 4, queries, keys)
    query_positions, key_positions = torch.arange(queries) + 2, torch.arange(keys)
    found = encoding.value_term(weights, encoding.pair_table(query_positions, key_positions, weights.dtype), 1)
    expected = naive_value_term(encoding, weights, query_positions, key_positions)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_value_term_of_equal_weights_is_the_mean_of_the_rows_that_are_met() -> None:
    encoding = shaw(clip=1, values=True)
    assert encoding.values is not None
    positions = torch.arange(4)
    weights = torch.full((1, 4, 4, 4), 0.25, dtype=torch.float64)
    found = encoding.value_term(weights, encoding.pair_table(positions, positions, weights.dtype), 0)
    assert found is not None
    before, at, after = encoding.values[0].unbind(1)  # (H, d_head) each
    torch.testing.assert_close(found[0, :, 0], 0.25 * at + 0.75 * after)
    torch.testing.assert_close(found[0, :, 3], 0.75 * before + 0.25 * at)


def test_values_leave_the_keys_as_they_are() -> None:
    with_values, without = shaw(clip=3, values=True), shaw(clip=3)
    assert torch.equal(with_values.keys, without.keys)
    assert [name for name, _ in without.named_parameters()] == ["keys"]
    assert not without.adds_values
    assert with_values.adds_values
    positions = torch.arange(2)
    weights = random_weights(1, 4, 2, 2)
    assert without.value_term(weights, without.pair_table(positions, positions, weights.dtype), 0) is None


def test_bfloat16_weights_of_one_row_are_summed_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dtype of the sums tells: a CPU adds in float32 in any case, a GPU in the dtype that it is given."""
    encoding = Shaw(ENCODER, clip=1, values=True)
    assert encoding.values is not None
    torch.nn.init.ones_(encoding.values)
    weights = torch.full((1, 4, 1, 4096), 1 / 4096, dtype=torch.bfloat16)
    positions = torch.arange(4096)
    table = encoding.pair_table(positions[-1:], positions, weights.dtype)
    dtypes, scatter_add = [], torch.Tensor.scatter_add

    def record(self: Tensor, *args: Any) -> Tensor:
        dtypes.append(self.dtype)
        return scatter_add(self, *args)

    monkeypatch.setattr(torch.Tensor, "scatter_add", record)
    found = encoding.value_term(weights, table, 0)
    assert dtypes == [torch.float32]
    assert found is not None
    assert found.dtype == torch.bfloat16
    assert (found - 1).abs().max() < 0.01  # added one by one in bfloat16 it would stop growing at 1/16


def test_no_table_of_all_pairs_and_channels_is_made() -> None:
    """The largest tensor that autograd keeps has no more elements than weights or sums by row have."""
    encoding = shaw(clip=2, values=True)
    positions = torch.arange(40)
    weights = random_weights(1, 4, 40, 40).requires_grad_()
    table = encoding.pair_table(positions, positions, weights.dtype)
    sizes = []

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoding.value_term(weights, table, 0)
        encoding.score_term(torch.randn(1, 4, 40, 8, dtype=torch.float64), weights, table, 0)
    assert max(sizes) <= weights.numel()


@pytest.mark.parametrize(
    ("options", "field"), [({"clip": 0}, "clip"), ({"clip": 1.5}, "clip"), ({"values": "no"}, "values")]
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=f"position_options.{field}"):
        Shaw(ENCODER, **options)  # type: ignore[arg-type]
