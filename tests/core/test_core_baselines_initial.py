"""The older architectures beyond their formulas: initial values, padding, last states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.core.recurrent_models import D, V, model_of
from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.baselines.cells import GRU, LSTM, Recurrence
from transformer_ablate.core.baselines.convolutional import GatedConvolution
from transformer_ablate.measures.size import forward_flops


@pytest.mark.parametrize("cell", [GRU, LSTM], ids=["gru", "lstm"])
def test_recurrent_matrices_start_orthogonal_and_the_forget_gate_open(cell: Any) -> None:
    recurrence = Recurrence(cell, 5, 8, 2, dropout=0.0, bidirectional=True)
    with torch.no_grad():
        recurrence.initialise(torch.Generator().manual_seed(0))
    for name, value in recurrence.rnn.named_parameters():
        blocks = value.detach().chunk(cell.gates)
        if name.startswith("weight_hh"):
            assert all(torch.allclose(b @ b.T, torch.eye(8), atol=1e-5) for b in blocks)
        elif name.startswith("weight_ih"):
            bound = (6 / (value.shape[1] + 8)) ** 0.5
            assert all(0.7 * bound < b.abs().max() <= bound for b in blocks)
        else:
            opened = [i == cell.forget and name.startswith("bias_ih") for i in range(cell.gates)]
            assert [b.tolist() for b in blocks] == [[float(o)] * 8 for o in opened]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gated_convolutions_keep_the_variance_at_first(dropout: float) -> None:
    layer = GatedConvolution(64, 3, dropout)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.initialise(generator)
        x = torch.randn(8, 52, 64, generator=generator) * (torch.rand(8, 52, 64, generator=generator) >= dropout)
        h = layer(x / (1 - dropout))
    assert layer.weight.std().item() == pytest.approx((4 * (1 - dropout) / (3 * 64)) ** 0.5, rel=0.02)
    # Variance 4 before the gate; the gate's square is 1/4 for small arguments, and more for large ones.
    assert 0.9 < h.var().item() < 1.5


@pytest.mark.parametrize("cell", [GRU, LSTM], ids=["gru", "lstm"])
def test_padding_is_no_part_of_the_last_state(cell: Any) -> None:
    recurrence = Recurrence(cell, 4, 5, 2, dropout=0.0, bidirectional=True)
    x = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([[2], [6], [4]])
    with torch.no_grad():
        recurrence.initialise(torch.Generator().manual_seed(0))
        states, last = recurrence.read(x, mask)
        noisy, noisy_last = recurrence.read(torch.where(mask[..., None], x, 9.0), mask)
    assert torch.equal(states, noisy)
    assert all(torch.equal(a, b) for a, b in zip(last, noisy_last, strict=True))
    for row, length in enumerate((2, 6, 4)):
        # Of the top layer: the forward half ends with the last token, the backward half with the first.
        expected = torch.cat((states[row, length - 1, :5], states[row, 0, 5:]))
        torch.testing.assert_close(last[0][-1, row], expected)
        assert not states[row, length:].any()


def test_configs_without_matching_build_what_they_say() -> None:
    config = ModelConfig(architecture="gru", d_model=10, matched=False, encoder_layers=3, decoder_layers=1)
    parameters = dict(build_model(replace(config, tying="all"), V, V).named_parameters())
    assert parameters["encoder.rnn.weight_ih_l2"].shape == (30, 10)
    assert "decoder.cells.rnn.weight_ih_l1" not in parameters


@pytest.mark.parametrize(("cell", "gates"), [("gru", 3), ("lstm", 4)])
def test_operations_of_recurrent_models_are_counted(cell: str, gates: int) -> None:
    S, T, layers = 7, 5, 2
    of_layers = (S + T) * layers * gates * 2 * D * D  # multiply-adds of the input's and the state's matrices
    extra = {
        "start": 0,
        "multiplicative": S * D * D + 2 * T * S * D + T * 2 * D * D,
        "additive": T * gates * D * D + S * D * D + T * (D * D + 2 * S * D) + T * 3 * D * D,
    }
    for reader, more in extra.items():
        found = forward_flops(model_of(cell, reader=reader), S, T)
        assert found == 2 * (of_layers + more + T * D * V)
