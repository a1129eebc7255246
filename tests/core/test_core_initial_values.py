"""Initial values: equal where variants are equal, drawn from generators of their own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model, derive_seed
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS

BASE: dict[str, Any] = {"d_model": 16, "n_heads": 2, "d_ff": 32, "tying": "none", "position": "learned"}
V = 12


def values(seed: int = 0, **delta: Any) -> dict[str, Tensor]:
    """Parameters by name, each tensor under one name only."""
    return dict(build_model(ModelConfig(**{**BASE, **delta}), V, V, seed).named_parameters())


DELTAS: list[dict[str, Any]] = [
    *({"position": name} for name in POSITIONS.names()),
    *({"cross_position": name} for name in CROSS_POSITIONS.names()),
    *({"tying": name} for name in ("decoder", "encoder-decoder", "all")),
    {"norm_placement": "post"},
    {"logit_scale": "rsqrt_d"},
    {"dropout": 0.5},
    {"encoder_layers": 4},
    {"decoder_layers": 1},
    {"n_heads": 4},
    {"position": "none", "tying": "all", "norm_placement": "post", "encoder_layers": 3},
]


@pytest.mark.parametrize("delta", DELTAS, ids=str)
def test_variants_of_a_seed_agree_in_all_parts_that_they_share(delta: dict[str, Any]) -> None:
    base, variant = values(), values(**delta)
    shared = [name for name in base if name in variant]
    assert len(shared) > 35
    assert "target_embedding.weight" in shared  # the matrix that remains in every kind of tying
    for name in shared:
        assert torch.equal(base[name], variant[name]), name


def test_a_changed_part_leaves_the_others_alone() -> None:
    base, wider = values(), values(d_ff=48)
    differ = {name for name in base if base[name].shape != wider[name].shape}
    assert differ
    assert all("feed_forward" in name for name in differ)
    assert all(torch.equal(base[name], wider[name]) for name in base if name not in differ)


def test_seeds_and_modules_draw_values_of_their_own() -> None:
    matrices = [(seed, name, p) for seed in (0, 1) for name, p in values(seed).items() if p.dim() == 2]
    assert len(matrices) > 30
    for (seed, name, a), (other_seed, other, b) in itertools.combinations(matrices, 2):
        if a.shape == b.shape:
            assert not torch.isclose(a, b).all(), (seed, name, other_seed, other)
            assert abs(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1]) < 0.3, (name, other)


def test_streams_of_a_seed_differ() -> None:
    names = ("init/encoder", "init/decoder", "dropout", "data")
    seeds = [derive_seed(seed, name) for seed in range(50) for name in names]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "dropout") == derive_seed(0, "dropout")


def test_global_generator_is_neither_used_nor_moved() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = values()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert all(torch.equal(p, first[name]) for name, p in values().items())
    before = torch.get_rng_state()
    build_model(ModelConfig(**BASE), V, V, seed=None)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("position", POSITIONS.names())
@pytest.mark.parametrize("tying", ["none", "decoder", "encoder-decoder", "all"])
def test_every_parameter_is_drawn(position: str, tying: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*args: Any, **kwargs: Any) -> Tensor:
        return torch.full(args[0] if isinstance(args[0], tuple) else args, torch.nan, **kwargs)

    # What a constructor leaves unset shows as NaN, what it draws from the global generator shows as a difference.
    monkeypatch.setattr(torch, "empty", poisoned)
    models: list[Seq2Seq] = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        models.append(build_model(ModelConfig(**{**BASE, "position": position, "tying": tying}), V, V, seed=0))
    for (name, a), b in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert a.isfinite().all(), name
        assert torch.equal(a, b), name


def test_variances() -> None:
    d, ff, size = 256, 512, 2000
    model = build_model(ModelConfig(d_model=d, n_heads=4, d_ff=ff, position="learned", tying="none"), size, size, 0)
    p = dict(model.named_parameters())
    layer = "decoder.layers.1"
    blocks = [
        *p[f"{layer}.self_attention.qkv.weight"].chunk(3),
        p[f"{layer}.cross_attention.q.weight"],
        *p[f"{layer}.cross_attention.kv.weight"].chunk(2),
    ]
    for block in blocks:
        assert block.shape == (d, d)
        assert block.var().item() == pytest.approx(1 / d, rel=0.03)  # Xavier: 2 / (fan_in + fan_out)
        assert block.abs().max().item() == pytest.approx((3 / d) ** 0.5, rel=0.01)  # uniform
    for name, fan_in in (
        (f"{layer}.self_attention.out", d),
        (f"{layer}.feed_forward.up", d),
        (f"{layer}.feed_forward.down", ff),
    ):
        assert p[f"{name}.weight"].var().item() == pytest.approx(1 / (3 * fan_in), rel=0.03)
        assert p[f"{name}.weight"].abs().max().item() == pytest.approx(fan_in**-0.5, rel=0.01)
    for name in ("source_embedding", "target_embedding", "output", "encoder.position", "decoder.position"):
        weight = p[f"{name}.weight"]
        assert weight.var().item() == pytest.approx(1 / d, rel=0.03)
        assert weight.abs().max() > 3.5 * d**-0.5  # normal, not uniform


def test_biases_and_norms_start_neutral() -> None:
    model = build_model(ModelConfig(**BASE), V, V, seed=3)
    linear = [m for m in model.modules() if isinstance(m, nn.Linear)]
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm)]
    assert len(linear) == 2 * 4 + 2 * 7
    assert len(norms) == 2 * 2 + 2 * 3 + 2
    assert all((m.bias == 0).all() for m in [*linear, *norms])
    assert all((m.weight == 1).all() for m in norms)


def test_without_a_seed_nothing_is_drawn_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = build_model(ModelConfig(d_model=4096, n_heads=8, d_ff=16384, position="learned"), 10**6, 10**6)
    assert all(p.device.type == "meta" for p in model.parameters())


@pytest.mark.parametrize("changed", [{"reader": "start"}, {"reader": "context"}, {"bidirectional": True}])
def test_recurrent_arms_share_the_initial_values_of_equal_parts(changed: dict[str, Any]) -> None:
    def parameters(options: dict[str, Any]) -> dict[str, Tensor]:
        config = ModelConfig(d_model=16, architecture="gru", architecture_options=options, matched=False)
        return dict(build_model(config, V, V, seed=0).named_parameters())

    base, other = parameters({"reader": "additive"}), parameters(changed)
    equal = {n for n in base.keys() & other.keys() if base[n].shape == other[n].shape and base[n].std() > 0}
    assert len(equal) > 4
    assert all(torch.equal(base[name], other[name]) for name in equal)
