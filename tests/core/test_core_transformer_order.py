"""What a Transformer knows of order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.core.encodings import ENCODINGS, V, config_of, model_of, sentences
from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Memory, build_model
from transformer_ablate.core.normalization import NoNorm
from transformer_ablate.core.transformer import Decoder, DecoderState
from transformer_ablate.errors import ConfigError

# Order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_encoder_without_positions_is_permutation_equivariant(placement: str) -> None:
    model = model_of(ModelConfig(d_model=16, n_heads=2, position="none", norm_placement=placement)).double()
    source = sentences([10])
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states, permuted = model.encode(source).states, model.encode(source[:, order]).states
    assert (permuted - states[:, order]).abs().max() < 1e-9


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name not in ("none", "integer-equal")])
def test_encoder_with_positions_is_not(encoding: str) -> None:
    model = model_of(config_of(encoding)).double()
    source, order = sentences([10]), torch.randperm(10, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states, permuted = model.encode(source).states, model.encode(source[:, order]).states
    assert (permuted - states[:, order]).abs().max() > 1e-3


@pytest.mark.parametrize(("layers", "blind"), [(1, True), (2, False), (3, False)])
def test_causal_decoder_without_positions_sees_order_from_two_layers_on(layers: int, blind: bool) -> None:
    config = ModelConfig(d_model=16, n_heads=2, position="none", decoder_layers=layers)
    decoder = model_of(config).double().decoder
    assert isinstance(decoder, Decoder)
    generator = torch.Generator().manual_seed(0)
    x, states = torch.randn(1, 8, 16, dtype=torch.float64, generator=generator), torch.zeros(1, 1, 16).double()
    memory = Memory(states, torch.ones(1, 1, dtype=torch.bool), torch.arange(1))
    ends = []
    for order in ([0, 1, 2, 3, 4, 5, 6, 7], [4, 2, 6, 0, 5, 1, 3, 7]):  # the last one keeps its place
        state = DecoderState(memory, decoder.read_source(memory), [])
        with torch.no_grad():
            ends.append(decoder(x[:, order], state, cached=False)[0, -1])
    difference = (ends[0] - ends[1]).abs().max().item()
    assert difference < 1e-12 if blind else difference > 1e-2


def test_only_stacks_of_pre_norms_end_with_a_norm() -> None:
    for placement, kind in (("pre", nn.LayerNorm), ("sandwich", nn.LayerNorm), ("post", NoNorm), ("deepnorm", NoNorm)):
        model = build_model(ModelConfig(norm_placement=placement), V, V)
        for stack in (model.encoder, model.decoder):
            assert isinstance(stack.final_norm, kind)  # type: ignore[union-attr]


# Lengths that a model cannot place -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "longest", "field"),
    [
        ({"position": "learned", "position_options": {"rows": 30}}, 30, "model.position_options.rows"),
        ({"randomised_positions": 40}, 40, "model.randomised_positions"),
        (
            {"position": "learned", "position_options": {"rows": 50}, "randomised_positions": 64},
            0,
            "model.position_options.rows",
        ),
        (
            {"architecture": "fnn_concat", "architecture_options": {"longest": 20}},
            20,
            "model.architecture_options.longest",
        ),
        (
            {"architecture": "convs2s", "position": "learned", "position_options": {"rows": 9}},
            9,
            "model.position_options.rows",
        ),
    ],
)
def test_lengths_can_be_checked_before_anything_is_trained(options: dict[str, Any], longest: int, field: str) -> None:
    model = build_model(ModelConfig(d_model=16, n_heads=2, d_ff=32, **options), V, V)
    if longest:
        model.check_lengths(longest, longest)
    for source, target in ((longest + 1, 1), (1, longest + 1)):
        with pytest.raises(ConfigError) as caught:
            model.check_lengths(source, target)
        assert caught.value.field == field


def test_most_models_have_no_longest_length() -> None:
    for options in ({}, {"position": "rope"}, {"architecture": "gru"}):
        build_model(ModelConfig(**options), V, V).check_lengths(10**6, 10**6)  # type: ignore[arg-type]
