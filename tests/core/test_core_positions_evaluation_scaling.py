"""Rotary positions that are trained with one scaling and evaluated with another."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model, greedy_decode
from transformer_ablate.core.positions.base import Geometry, build_position
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS

SCALINGS: dict[str, dict[str, Any]] = {
    "pi": {"scaling": "pi", "factor": 4},
    "ntk": {"scaling": "ntk", "factor": 4},
    "dynamic_ntk": {"scaling": "dynamic_ntk", "trained_length": 3},
    "yarn": {"scaling": "yarn", "factor": 4, "trained_length": 3, "alpha": 0.1, "beta": 1},
    "yarn_reference": {"scaling": "yarn_reference", "factor": 4, "trained_length": 3, "alpha": 0.1, "beta": 1},
}
every_scaling = pytest.mark.parametrize("scaling", SCALINGS)
SOURCE = torch.arange(4, 12).view(1, 8)
TARGET = SOURCE[:, :6]


def model_of(options: dict[str, Any]) -> Seq2Seq:
    """One and the same initial model, whatever its options: none of them is a parameter."""
    own = {"base": 100, **options}
    config = ModelConfig(
        d_model=32,
        n_heads=2,
        d_ff=32,
        position="rope",
        position_options=own,
        cross_position="rotary",
        cross_position_options=own,
    )
    return build_model(config, 20, 20, seed=0).double()


@every_scaling
def test_a_scaling_at_evaluation_is_not_there_in_training(scaling: str) -> None:
    late, raw, early = model_of({"evaluation": SCALINGS[scaling]}), model_of({}), model_of(SCALINGS[scaling])
    for mode, expected, other in ((True, raw, early), (False, early, raw), (True, raw, early)):
        for model in (late, raw, early):
            model.train(mode)
        logits = late(SOURCE, TARGET)
        assert torch.equal(logits, expected(SOURCE, TARGET))
        assert not torch.allclose(logits, other(SOURCE, TARGET))


@every_scaling
def test_gradients_are_those_of_the_unscaled_model(scaling: str) -> None:
    late, raw = model_of({"evaluation": SCALINGS[scaling]}), model_of({})
    for model in (late, raw):
        model(SOURCE, TARGET).square().mean().backward()
    for (name, ours), theirs in zip(late.named_parameters(), raw.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad), name


def test_a_trained_scaling_can_be_taken_off_at_evaluation() -> None:
    late, raw = model_of({**SCALINGS["pi"], "evaluation": {}}), model_of({})
    assert torch.equal(late.eval()(SOURCE, TARGET), raw.eval()(SOURCE, TARGET))


@every_scaling
def test_cached_steps_use_the_scaling_of_evaluation(scaling: str) -> None:
    late, early = (model_of(options).eval() for options in ({"evaluation": SCALINGS[scaling]}, SCALINGS[scaling]))
    ours, theirs = (greedy_decode(model, SOURCE).sequences() for model in (late, early))
    assert ours == theirs
    # Keys turn anew at each step where the scaling moves, and only then.
    assert late.decoder.position.keys_move is (scaling == "dynamic_ntk")  # type: ignore[union-attr]
    assert late.train().decoder.position.keys_move is False  # type: ignore[union-attr]


@pytest.mark.parametrize("table", [POSITIONS, CROSS_POSITIONS], ids=lambda table: table.field)
@pytest.mark.parametrize(
    ("evaluation", "field"),
    [
        ("pi", "evaluation"),
        ({"scale": 4}, "evaluation"),
        ({"base": 100}, "evaluation"),
        ({"scaling": "linear"}, "evaluation.scaling"),
        ({"scaling": "pi"}, "evaluation.factor"),
        ({"factor": 4}, "evaluation.factor"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 8, "beta": 0.5}, "evaluation.beta"),
    ],
    ids=str,
)
def test_bad_evaluation_options_name_the_field(table: Any, evaluation: Any, field: str) -> None:
    name = "rope" if table is POSITIONS else "rotary"
    geometry = Geometry(16, 1, layers=2, causal=True)
    with pytest.raises(ConfigError) as caught:
        build_position(table, name, geometry, {"evaluation": evaluation})
    assert caught.value.field == f"{table.field}_options.{field}"


def test_narrow_heads_are_refused_at_evaluation_too() -> None:
    with pytest.raises(ConfigError, match="at least 4") as caught:
        Rotary(Geometry(2, 1, layers=2, causal=True), evaluation=SCALINGS["ntk"])
    assert caught.value.field == "model.d_head"
