"""Rotary positions scaled to longer sentences: golden values, parity with Hugging Face, whole models."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model, greedy_decode
from transformer_ablate.core.positions.base import Geometry, build_position, frequencies
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.core.positions.scaling import SCALINGS, YaRN, build_scaling
from transformer_ablate.core.positions.xpos import XPos
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import POSITIONS
from transformer_ablate.tokens import PAD

CPU = torch.device("cpu")
ONE = torch.tensor([1])
# One of each scaling, with lengths in mind that are some times the trained one.
SCALED: dict[str, dict[str, Any]] = {
    "none": {},
    "pi": {"factor": 4},
    "ntk": {"factor": 4},
    "dynamic_ntk": {"trained_length": 10, "factor": 2},
    "yarn": {"factor": 4, "trained_length": 10, "alpha": 0.5, "beta": 4},
    "yarn_reference": {"factor": 4, "trained_length": 10},
}


def geometry(width: int) -> Geometry:
    return Geometry(width, 1, layers=2, causal=True)


def scaled(name: str, width: int, base: float = 10_000.0, length: int = 1, **options: Any) -> Tensor:
    """Frequencies under a scaling, (width / 2,), for a sentence of ``length`` tokens."""
    return build_scaling(name, options, width).frequencies(width, base, torch.tensor([length])).flatten()


def yarn(name: str, width: int, **options: Any) -> YaRN:
    found = build_scaling(name, options, width)
    assert isinstance(found, YaRN)
    return found


# Scalings --------------------------------------------------------------------------------------------------------


def test_position_interpolation_divides_all_frequencies() -> None:
    theta = scaled("pi", 64, factor=4)
    assert theta[[0, -1]].tolist() == pytest.approx([0.25, 3.33380358e-5], rel=1e-8)
    # The same as dividing the positions.
    table = Rotary(geometry(8), scaling="pi", factor=4).point_table(torch.arange(0, 40, 4), ONE, torch.float64)
    plain = Rotary(geometry(8)).point_table(torch.arange(10), ONE, torch.float64)
    torch.testing.assert_close(table, plain, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("width", "base"),
    [(12, 52780.31643092), (16, 48760.54616817), (32, 43872.99918779), (64, 41829.36592890), (128, 40889.94243249)],
)
def test_ntk_raises_the_base(width: int, base: float) -> None:
    theta = scaled("ntk", width, factor=4)
    torch.testing.assert_close(theta, frequencies(width, base, CPU), rtol=1e-11, atol=0)
    assert theta[0] == 1
    assert theta[-1].item() == pytest.approx(scaled("none", width)[-1].item() / 4, rel=1e-12)


def test_ntk_second_frequency_of_width_64() -> None:
    assert scaled("ntk", 64, factor=4)[1].item() == pytest.approx(0.7170983281, rel=1e-9)


def test_dynamic_ntk_of_hugging_face_raises_the_base_more_than_its_factor() -> None:
    theta = scaled("dynamic_ntk", 64, length=8192, trained_length=2048, factor=4)
    torch.testing.assert_close(theta, frequencies(64, 141213.757, CPU), rtol=1e-8, atol=0)
    thirteen = scaled("ntk", 64, factor=13)
    torch.testing.assert_close(theta, thirteen, rtol=1e-12, atol=0)


@given(st.integers(1, 300), st.sampled_from([4, 16, 64]), st.sampled_from([100.0, 10_000.0]))
def test_dynamic_ntk_of_the_paper_is_ntk_at_the_present_length(length: int, width: int, base: float) -> None:
    theta = scaled("dynamic_ntk", width, base, length, trained_length=40)
    expected = scaled("ntk", width, base, factor=max(1, length / 40))
    torch.testing.assert_close(theta, expected, rtol=1e-12, atol=0)


def test_dynamic_ntk_gives_each_sentence_its_own_base() -> None:
    dynamic = build_scaling("dynamic_ntk", {"trained_length": 10}, 16)
    theta = dynamic.frequencies(16, 100.0, torch.tensor([5, 20, 40]))
    assert theta.shape == (3, 1, 8)
    for row, factor in zip(theta[:, 0], (1, 2, 4), strict=True):
        torch.testing.assert_close(row, scaled("ntk", 16, 100.0, factor=factor), rtol=1e-12, atol=0)


def test_only_dynamic_ntk_moves_the_keys() -> None:
    assert [name for name in SCALINGS if Rotary(geometry(16), scaling=name, **SCALED[name]).keys_move] == [
        "dynamic_ntk"
    ]
    assert not XPos(geometry(16)).keys_move


def test_yarn_of_the_paper() -> None:
    expected = {
        9: (0.756218, 0.061278605),
        10: (0.559015, 0.037635343),
        12: (0.300239, 0.015026498),
        14: (0.154719, 0.0065092009),
        16: (0.072887, 0.0030466516),
        18: (0.026869, 0.0015191761),
        20: (0.000992, 0.00079292),
    }
    options = {"factor": 4, "trained_length": 2048}
    theta, plain = scaled("yarn", 64, **options), scaled("none", 64)
    kept, pairs = yarn("yarn", 64, **options).kept(plain, 10_000.0), list(expected)
    assert kept[pairs].tolist() == pytest.approx([gamma for gamma, _ in expected.values()], abs=1e-6)
    assert theta[pairs].tolist() == pytest.approx([value for _, value in expected.values()], abs=1e-8)
    assert (kept[21:] == 0).all()
    torch.testing.assert_close(theta[21:], plain[21:] / 4, rtol=1e-12, atol=0)
    assert torch.equal(theta[:8], plain[:8])  # more than 32 turns


def test_yarn_of_the_reference_code() -> None:
    expected = {
        9: (0.923077, 0.070663108),
        12: (0.692308, 0.024325213),
        14: (0.538462, 0.011627212),
        16: (0.384615, 0.0053846154),
        20: (0.076923, 0.00097300851),
    }
    options = {"factor": 4, "trained_length": 2048}
    theta, plain = scaled("yarn_reference", 64, **options), scaled("none", 64)
    kept, pairs = yarn("yarn_reference", 64, **options).kept(plain, 10_000.0), list(expected)
    assert kept[pairs].tolist() == pytest.approx([gamma for gamma, _ in expected.values()], abs=1e-6)
    assert theta[pairs].tolist() == pytest.approx([value for _, value in expected.values()], rel=1e-6)
    assert (kept[:9] == 1).all()
    assert (kept[21:] == 0).all()


def test_yarn_at_the_size_of_these_studies() -> None:
    turns = 40 * scaled("none", 16) / (2 * math.pi)
    assert turns.tolist() == pytest.approx([6.37, 2.01, 0.64, 0.20, 0.064, 0.020, 0.0064, 0.0020], rel=0.01)
    paper, reference = (yarn(name, 16, factor=4, trained_length=40) for name in ("yarn", "yarn_reference"))
    plain = scaled("none", 16)
    assert paper.kept(plain, 10_000.0).tolist() == pytest.approx([0.173, 0.033, 0, 0, 0, 0, 0, 0], abs=5e-4)
    assert reference.kept(plain, 10_000.0).tolist() == [1, 0.5, 0, 0, 0, 0, 0, 0]
    # Where no pair turns even once, the ramp of the reference code would keep all.
    tiny = yarn("yarn_reference", 16, factor=4, trained_length=1)
    assert tiny.kept(plain, 10_000.0).tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


@given(
    st.sampled_from(["yarn", "yarn_reference"]),
    st.integers(1, 4000),
    st.floats(1, 64),
    st.floats(0.1, 4),
    st.floats(4.5, 64),
    st.sampled_from([2, 8, 16, 64]),
    st.sampled_from([2.0, 100.0, 10_000.0]),
)
def test_yarn_lies_between_raw_and_interpolated_and_never_slows_a_faster_pair_more(
    name: str, trained_length: int, factor: float, alpha: float, beta: float, width: int, base: float
) -> None:
    theta = scaled(name, width, base, factor=factor, trained_length=trained_length, alpha=alpha, beta=beta)
    divided = scaled("none", width, base) / theta
    assert (divided >= 1 - 1e-12).all()
    assert (divided <= factor * (1 + 1e-12)).all()
    assert (divided.diff() >= -1e-9).all()


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1, 1), (2, 1.0693147), (4, 1.1386294), (8, 1.2079442), (16, 1.2772589), (32, 1.3465736)],
)
@pytest.mark.parametrize("name", ["yarn", "yarn_reference"])
def test_yarn_temperature(name: str, factor: float, expected: float) -> None:
    rope = Rotary(geometry(16), scaling=name, factor=factor, trained_length=40)
    assert rope.scaling.magnitude == pytest.approx(expected, abs=1e-7)
    # Both queries and keys are multiplied, so scores are by the square.
    cold = Rotary(geometry(16), scaling=name, factor=factor, trained_length=40, temperature=False)
    x = torch.randn(1, 1, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = []
    for each in (rope, cold):
        table = each.point_table(torch.arange(5), ONE, x.dtype)
        scores.append(each.transform_query(x, table, 0) @ each.transform_key(x, table, 0).mT)
    sharp, plain = scores
    torch.testing.assert_close(sharp, expected**2 * plain, rtol=1e-6, atol=0)
    if factor == 4:
        assert (sharp / plain).mean().item() == pytest.approx(1.29647699, abs=1e-7)


@pytest.mark.parametrize("scaling", SCALED)
def test_a_factor_of_one_or_a_short_sentence_changes_nothing(scaling: str) -> None:
    options = {**SCALED[scaling], **({"factor": 1.0} if "factor" in SCALED[scaling] else {})}
    short = {"trained_length": 10, "factor": 3.0} if scaling == "dynamic_ntk" else options
    plain = scaled("none", 16)
    for given_options in (options, short):
        torch.testing.assert_close(scaled(scaling, 16, length=10, **given_options), plain, rtol=1e-12, atol=0)
    assert build_scaling(scaling, options, 16).magnitude == 1


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"scaling": "pi"}, {"rope_type": "linear"}),
        ({"scaling": "dynamic_ntk", "trained_length": 64}, {"rope_type": "dynamic"}),
        (
            {"scaling": "yarn_reference", "trained_length": 64},
            {"rope_type": "yarn", "original_max_position_embeddings": 64},
        ),
        (
            {"scaling": "yarn_reference", "trained_length": 64, "alpha": 0.5, "beta": 4},
            {"rope_type": "yarn", "original_max_position_embeddings": 64, "beta_slow": 0.5, "beta_fast": 4},
        ),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_scalings_are_those_of_hugging_face(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    transformers = importlib.import_module("transformers")
    by_name = importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    for width, base, factor, length in ((16, 100.0, 4.0, 200), (64, 10_000.0, 2.0, 64), (64, 10_000.0, 8.0, 70)):
        parameters = {"rope_theta": base, "factor": factor, **theirs}
        config = transformers.LlamaConfig(
            hidden_size=2 * width,
            num_attention_heads=2,
            head_dim=width,
            max_position_embeddings=64,
            rope_parameters=parameters,
        )
        theta, magnitude = by_name[theirs["rope_type"]](config, "cpu", seq_len=length)
        rope = Rotary(geometry(width), base, factor=factor, **ours)
        found = rope.scaling.frequencies(width, base, torch.tensor([length])).flatten()
        torch.testing.assert_close(found.float(), theta, rtol=1e-5, atol=0)
        assert rope.scaling.magnitude == pytest.approx(magnitude, abs=1e-12)


def test_rotated_vectors_are_those_of_hugging_face() -> None:
    transformers = importlib.import_module("transformers")
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    parameters = {
        "rope_theta": 100.0, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip
    config = transformers.LlamaConfig(
        hidden_size=32, num_attention_heads=2, head_dim=16, max_position_embeddings=256, rope_parameters=parameters
    )
    q, k = torch.randn(2, 3, 2, 200, 16, generator=torch.Generator().manual_seed(0))
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(200)[None])
    theirs = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rope = Rotary(geometry(16), 100.0, "half", scaling="yarn_reference", factor=4, trained_length=64)
    table = rope.point_table(torch.arange(200), ONE, q.dtype)
    ours = rope.transform_query(q, table, 0), rope.transform_key(k, table, 0)
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)  # theirs has its angles in float32


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"scaling": "linear"}, "scaling"),
        ({"scaling": "pi"}, "factor"),
        ({"scaling": "yarn", "factor": 4}, "trained_length"),
        ({"scaling": "dynamic_ntk"}, "trained_length"),
        ({"scaling": "pi", "factor": 0.5}, "factor"),
        ({"scaling": "pi", "factor": math.nan}, "factor"),
        ({"scaling": "pi", "factor": "4"}, "factor"),
        ({"scaling": "pi", "factor": 4, "trained_length": 40}, "trained_length"),
        ({"factor": 4}, "factor"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 40.5}, "trained_length"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 0}, "trained_length"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 40, "alpha": 0}, "alpha"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 40, "beta": 1}, "beta"),
        ({"scaling": "yarn", "factor": 4, "trained_length": 40, "temperature": 1}, "temperature"),
    ],
    ids=str,
)
def test_bad_scaling_options_name_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_position(POSITIONS, "rope", geometry(16), options)
    assert caught.value.field == f"model.position_options.{field}"


@pytest.mark.parametrize("scaling", ["ntk", "dynamic_ntk"])
def test_a_single_pair_of_channels_has_no_ntk(scaling: str) -> None:
    with pytest.raises(ConfigError, match="at least 4") as caught:
        Rotary(geometry(2), scaling=scaling, **SCALED[scaling])
    assert caught.value.field == "model.d_head"


# Whole models ----------------------------------------------------------------------------------------------------


def model_of(seed: int = 0, **options: Any) -> Seq2Seq:
    config = ModelConfig(**{"d_model": 16, "n_heads": 2, "d_ff": 32, "position": "rope", **options})
    return build_model(config, 20, 20, seed).double().eval()


def tokens(*lengths: int) -> Tensor:
    """Random sentences, padded."""
    found = torch.randint(4, 20, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0))
    return found.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


DYNAMIC = {"scaling": "dynamic_ntk", "trained_length": 6, "base": 20}


@torch.no_grad()
def test_dynamic_ntk_depends_on_no_batch_mate() -> None:
    model = model_of(
        position_options=DYNAMIC, cross_position="rotary", cross_position_options={**DYNAMIC, "factor": 2.0}
    )
    source, target = tokens(4, 12, 30, 8), tokens(9, 3, 25, 14)
    together = model(source, target)
    decoded = greedy_decode(model, source)
    for row, (length, target_length) in enumerate(((4, 9), (12, 3), (30, 25), (8, 14))):
        alone = model(source[row, None, :length], target[row, None, :target_length])
        torch.testing.assert_close(alone[0], together[row, :target_length], atol=1e-10, rtol=0)
        assert greedy_decode(model, source[row, None, :length]).sequences()[0] == decoded.sequences()[row]
    plain = model_of(position_options={"base": 20}, cross_position="rotary", cross_position_options={"base": 20})
    short = tokens(6, 4)
    torch.testing.assert_close(model(short, short), plain(short, short), atol=1e-12, rtol=0)
    assert (plain(source, target) - together)[2].abs().max() > 1e-3


@torch.no_grad()
def test_a_cached_step_of_dynamic_ntk_turns_the_earlier_keys_anew() -> None:
    # With one layer keys do not depend on earlier steps: a step is then the pass truncated there.
    model = model_of(position_options=DYNAMIC, decoder_layers=1)
    source, target = tokens(5, 9), tokens(24, 24)
    memory = model.encode(source)
    state = model.start(memory, capacity=24)
    for t in range(24):
        step = model.step(target[:, t : t + 1], state)[:, -1]
        torch.testing.assert_close(step, model.decode(target[:, : t + 1], memory)[:, -1], atol=1e-10, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("scaling", [name for name in SCALED if name != "none"])
def test_scaled_cross_attention_tells_where_the_scaling_stands(scaling: str) -> None:
    source, target = tokens(25), tokens(30)
    plain = model_of(cross_position="rotary")
    scaled_cross = model_of(cross_position="rotary", cross_position_options={"scaling": scaling, **SCALED[scaling]})
    scaled_self = model_of(cross_position="rotary", position_options={"scaling": scaling, **SCALED[scaling]})
    scaled_self.load_state_dict(plain.state_dict())
    logits = [model(source, target) for model in (plain, scaled_cross, scaled_self)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (logits[a] - logits[b]).abs().max() > 1e-4
    torch.testing.assert_close(plain.encode(source).states, scaled_cross.encode(source).states)
