"""Baselines have the Transformer's number of parameters."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.baselines import matching
from transformer_ablate.core.baselines.matching import Baseline, nearest
from transformer_ablate.core.baselines.readers import READERS
from transformer_ablate.measures.size import parameter_count
from transformer_ablate.study.recipes import base_recipe

SIZES = {
    "synthetic-quick": (base_recipe("synthetic", "quick").model, 20, 20),
    "synthetic-standard": (base_recipe("synthetic", "standard").model, 20, 20),
    "g2p": (base_recipe("g2p", "quick").model, 31, 43),
    "d128": (ModelConfig(d_model=128, d_ff=512, encoder_layers=3, decoder_layers=3), 31, 43),
    "gated": (ModelConfig(d_model=64, ffn="swiglu", tying="none", position="learned"), 500, 300),
}
ARCHITECTURES: list[tuple[str, dict[str, Any]]] = [
    ("fnn_mean", {}),
    ("fnn_concat", {"longest": 10}),
    ("fnn_concat", {"longest": 80}),
    ("rnn_synchronous", {}),
    ("convs2s", {"kernel": 3}),
    ("convs2s", {"kernel": 5}),
    ("conv_last", {"kernel": 3}),
    *((cell, {"reader": r, "bidirectional": b}) for cell in ("gru", "lstm") for r in READERS for b in (False, True)),
]


@pytest.mark.parametrize("size", SIZES)
def test_parameters_are_within_five_percent(size: str) -> None:
    config, source_size, target_size = SIZES[size]
    with torch.device("meta"):
        wanted = parameter_count(build_model(config, source_size, target_size))
        for name, options in ARCHITECTURES:
            matched = replace(config, architecture=name, architecture_options=options)
            model = build_model(matched, source_size, target_size)
            assert abs(parameter_count(model) - wanted) <= 0.05 * wanted, (name, options)


def test_no_width_is_nearer() -> None:
    config, source_size, target_size = SIZES["synthetic-quick"]
    with torch.device("meta"):
        wanted = parameter_count(build_model(config, source_size, target_size))
        for name, options in ARCHITECTURES:
            matched = replace(config, architecture=name, architecture_options=options)
            model = build_model(matched, source_size, target_size)
            assert isinstance(model, Baseline)
            off = abs(parameter_count(model) - wanted)
            for width in (model.width - 1, model.width + 1):
                other = build_model(replace(matched, matched=False, d_model=width), source_size, target_size)
                assert abs(parameter_count(other) - wanted) >= off, (name, options)


def test_unmatched_is_of_the_width_asked_for() -> None:
    for name, options in ARCHITECTURES:
        config = ModelConfig(architecture=name, architecture_options=options, d_model=20, matched=False)
        assert build_model(config, 20, 20).target_embedding.weight.shape == (20, 20)  # type: ignore[union-attr]


@given(st.integers(1, 300), st.integers(1, 3_000), st.integers(0, 100), st.integers(1, 10**7), st.integers(1, 500))
def test_the_nearest_width_is_found_by_few_constructions(a: int, b: int, c: int, wanted: int, guess: int) -> None:
    calls = []

    def count(width: int) -> int:
        calls.append(width)
        assert width >= 1
        return a * width * width + b * width + c

    width, value = nearest(count, wanted, guess)
    searched = len(calls)
    assert value == count(width)
    assert all(abs(count(other) - wanted) >= abs(value - wanted) for other in (width - 1, width + 1) if other >= 1)
    assert searched <= 25


def test_a_width_is_looked_for_once_and_found_by_few_constructions(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    original = matching.count_parameters

    def counted(build: Any) -> int:
        built.append(build)
        return original(build)

    monkeypatch.setattr(matching, "count_parameters", counted)
    config = ModelConfig(architecture="gru", d_model=72, d_ff=300, dropout=0.123)
    build_model(config, 31, 43)
    assert 3 < len(built) <= 8
    seen = len(built)
    build_model(config, 31, 43)
    assert len(built) == seen


def test_a_width_that_cannot_match_is_warned_of_once() -> None:
    config = ModelConfig(architecture="fnn_concat", architecture_options={"longest": 5_000}, d_model=16, d_ff=32)
    with pytest.warns(UserWarning, match=r"fnn_concat: the width nearest .* parameters is \d+, with \d+ \([+-]\d+"):
        build_model(config, 20, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_model(config, 20, 20)
