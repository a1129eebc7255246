"""The catalogue that ``python -m transformer_ablate components`` prints."""

from __future__ import annotations

import dataclasses
import re

import pytest

from transformer_ablate.cli import components as catalogue
from transformer_ablate.cli.components import Component, components, describe, options_of
from transformer_ablate.cli.door import enter
from transformer_ablate.config import SMOOTHINGS, ModelConfig
from transformer_ablate.core import build_model
from transformer_ablate.core.positions.scaling import SCALINGS
from transformer_ablate.measures.size import forward_flops, parameter_count
from transformer_ablate.registry import POSITIONS

# Ideas without a paper: arms that take something away.
WITHOUT_SOURCE = {
    ("model.position", "none"),
    ("model.position", "integer"),
    ("model.cross_position", "none"),
    ("model.ffn", "linear"),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    """A base that is quick to build, in place of the paper's."""
    base = ModelConfig(d_model=16, n_heads=2, d_ff=32, encoder_layers=1, decoder_layers=1, tying="all")
    monkeypatch.setattr(catalogue, "BASE", base)
    monkeypatch.setattr(catalogue, "BASE_VOCABULARY", 30)
    monkeypatch.setattr(catalogue, "COUNTED_LENGTH", 9)
    return base


@pytest.fixture
def entries(small: ModelConfig) -> list[Component]:
    return list(components())


def test_every_registered_component_is_listed_with_a_line_and_a_source(entries: list[Component]) -> None:
    tables = {table.field: table for table in (*catalogue.MODEL_PARTS, *catalogue.TRAINING_PARTS)}
    registered = {(f, name) for f, table in tables.items() for name in table.names()}
    scalings = {(catalogue.SCALING_FIELD, name) for name in SCALINGS}
    smoothing = {("train.smoothing", name) for name in SMOOTHINGS}
    toggles = {(e.field, e.name) for e in entries if e.field == catalogue.TOGGLE_FIELD}
    assert {(e.field, e.name) for e in entries} == registered | scalings | smoothing | toggles
    assert {name for _, name in toggles} >= {"qk_norm true", "residual false", "qkv_bias no-key", "tying none"}
    for entry in entries:
        assert 8 < len(entry.what) < 140, entry
        assert not {"``", ":func:", ":class:"} & set(re.findall(r"``|:\w+:", entry.what)), entry
        has_source = (entry.field, entry.name) not in WITHOUT_SOURCE | toggles
        assert bool(entry.source) is has_source, entry
        assert not entry.refused, entry


def test_costs_are_those_of_the_model_with_the_component(entries: list[Component], small: ModelConfig) -> None:
    for entry in entries:
        if entry.field.startswith("train.") or entry.field == catalogue.SCALING_FIELD:
            assert entry.parameters is None
            continue
        if entry.field == "model.architecture":
            continue  # a width of its own: below
        if entry.field == catalogue.TOGGLE_FIELD:
            field, _, value = entry.name.partition(" ")
            named = {field: {"true": True, "false": False}.get(value, value)}
        else:
            named = {entry.field.partition(".")[2]: entry.name}
        model = build_model(dataclasses.replace(small, **named), 30, 30, seed=0).eval()  # type: ignore[arg-type]
        assert entry.parameters == parameter_count(model), entry
        assert entry.flops == forward_flops(model, 9, 9), entry


def test_architectures_are_matched_in_parameters(small: ModelConfig) -> None:
    # At the size of a study; at the fixture's a feed-forward on concatenated embeddings has no width that fits.
    config = ModelConfig(d_model=64, tying="decoder")
    reference = parameter_count(build_model(config, 40, 50))
    for name in catalogue.registry.ARCHITECTURES.names():
        found = parameter_count(build_model(dataclasses.replace(config, architecture=name), 40, 50))
        assert found == pytest.approx(reference, rel=0.05), name


def test_options_come_from_the_signature() -> None:
    assert options_of(POSITIONS["shaw"], ("geometry",)) == {"clip": 16, "values": False}
    assert options_of(POSITIONS["none"], ("geometry",)) == {}


def test_a_description_is_the_first_sentence_without_its_citation() -> None:
    def component() -> None:
        """Does ``q_i . a - b`` to
        all of :func:`it` (Somebody et al. 2017, eq. 3), by .5. And more (Another 2020).

        Not this (Third 2021).
        """

    assert describe(component) == ("Does q_i . a - b to all of it, by .5", "Somebody et al. 2017, eq. 3")


def test_a_component_that_the_base_cannot_have_says_why(small: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BASE", dataclasses.replace(small, d_model=15, n_heads=5))
    refused = {entry.name: entry.refused for entry in components() if entry.field == "model.position"}
    assert "even" in refused["rope"]
    assert not refused["sinusoidal"]


def test_the_printed_catalogue_names_everything(small: ModelConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert enter(["components"], "transformer_ablate") == 0
    printed = capsys.readouterr().out
    for table in (*catalogue.MODEL_PARTS, *catalogue.TRAINING_PARTS):
        assert f"--{table.field}" in printed
        assert all(name in printed for name in table.names())
    assert "Vaswani et al. 2017" in printed
    assert "e[p_ij] on the scores" in " ".join(printed.split())  # brackets are no markup
