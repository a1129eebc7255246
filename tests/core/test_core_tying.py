"""Shared matrices: counts, gradients, first losses and errors."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from transformer_ablate.config import ModelConfig, TrainConfig
from transformer_ablate.core import Seq2Seq, build_model, check_tying
from transformer_ablate.core.embedding import TYING_KINDS
from transformer_ablate.errors import ConfigError
from transformer_ablate.measures.size import parameter_count
from transformer_ablate.registry import OPTIMIZERS

KINDS = tuple(TYING_KINDS)
SHARED = {"none": [], "decoder": ["output"], "encoder-decoder": ["source"], "all": ["source", "output"]}


def base_model(tying: str, placement: str = "post") -> Seq2Seq:
    """The paper's base model, without memory for it."""
    config = ModelConfig(
        d_model=512,
        n_heads=8,
        d_ff=2048,
        encoder_layers=6,
        decoder_layers=6,
        tying=tying,
        norm_placement=placement,
    )
    with torch.device("meta"):
        return build_model(config, 37_000, 37_000)


BODY = 44_138_496


@pytest.mark.parametrize(
    ("tying", "millions"), [("none", 100.97), ("decoder", 82.03), ("encoder-decoder", 82.03), ("all", 63.08)]
)
def test_parameters_of_the_base_model(tying: str, millions: float) -> None:
    matrices = 3 - len(SHARED[tying])
    assert parameter_count(base_model(tying)) == BODY + matrices * 37_000 * 512
    assert parameter_count(base_model(tying)) / 1e6 == pytest.approx(millions, abs=0.006)
    # Pre-norm ends each stack with a gain and a bias more.
    assert parameter_count(base_model(tying, "pre")) == parameter_count(base_model(tying)) + 2 * 2 * 512


def test_tied_matrices_count_once() -> None:
    counts = {k: parameter_count(build_model(ModelConfig(d_model=64, tying=k), 1000, 1000, 0)) for k in KINDS}
    assert counts["none"] - counts["all"] == 128_000
    assert counts["none"] - counts["decoder"] == counts["none"] - counts["encoder-decoder"] == 64_000


@pytest.mark.parametrize("tying", KINDS)
def test_which_matrices_are_one(tying: str) -> None:
    model = build_model(ModelConfig(tying=tying), 12, 12, 0)
    target = model.target_embedding.weight
    assert (model.source_embedding.weight is target) == ("source" in SHARED[tying])
    assert (model.output.weight is target) == ("output" in SHARED[tying])


@pytest.mark.parametrize("name", OPTIMIZERS.names())
@pytest.mark.parametrize("tying", KINDS)
def test_optimizers_list_each_tensor_once_and_all_of_them(tying: str, name: str) -> None:
    model = build_model(ModelConfig(tying=tying, position="learned"), 12, 12, 0)
    listed = [id(p) for group in OPTIMIZERS[name](model, TrainConfig()).param_groups for p in group["params"]]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {id(p) for p in model.parameters()}


@pytest.mark.parametrize("tying", KINDS)
def test_gradient_of_a_shared_matrix_sums_all_its_uses(tying: str) -> None:
    config = {"d_model": 16, "n_heads": 2, "d_ff": 32}
    tied = build_model(ModelConfig(**config, tying=tying), 12, 12, 0).double()  # type: ignore[arg-type]
    free = build_model(ModelConfig(**config, tying="none"), 12, 12, 0).double()  # type: ignore[arg-type]
    free.load_state_dict(tied.state_dict())
    generator = torch.Generator().manual_seed(0)
    source, target = (
        torch.randint(4, 12, (3, 5), generator=generator),
        torch.randint(4, 12, (3, 6), generator=generator),
    )
    for model in (tied, free):
        F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten()).backward()
    expected = free.target_embedding.weight.grad.clone()  # type: ignore[union-attr,operator]
    for use in SHARED[tying]:
        part = {"source": free.source_embedding, "output": free.output}[use].weight.grad
        assert part.abs().max() > 0
        expected += part
    torch.testing.assert_close(tied.target_embedding.weight.grad, expected, atol=1e-10, rtol=1e-9)


def first_loss(V: int, d_model: int, tying: str, logit_scale: str = "none", seeds: int = 5) -> float:
    """Loss before training on random tokens over ln V, mean over seeds; no positions, as in the golden figures."""
    total = 0.0
    for seed in range(seeds):
        config = ModelConfig(
            d_model=d_model, d_ff=4 * d_model, position="none", tying=tying, logit_scale=logit_scale
        )  # fmt: skip
        model = build_model(config, V, V, seed)
        generator = torch.Generator().manual_seed(seed)
        source, target = (torch.randint(1, V, (48, 12), generator=generator) for _ in range(2))
        with torch.inference_mode():
            logits = model(source, target[:, :-1])
        total += F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).item() / math.log(V)
    return total / seeds


SIZES = pytest.mark.parametrize(("V", "d_model", "tied"), [(16, 48, 1.93), (40, 48, 1.46), (1000, 128, 1.37)])


@SIZES
@pytest.mark.parametrize("tying", ["decoder", "all"])
def test_first_loss_of_tied_models(V: int, d_model: int, tied: float, tying: str) -> None:
    # A N(0, 1) embedding tied to the output would give ten times ln V.
    loss = first_loss(V, d_model, tying)
    assert 1 < loss < 2
    assert loss == pytest.approx(tied, abs=0.25)


@SIZES
def test_first_loss_of_untied_models(V: int, d_model: int, tied: float) -> None:
    assert 1.05 < first_loss(V, d_model, "none") < 1.19


@SIZES
@pytest.mark.parametrize("tying", ["none", "decoder", "all"])
def test_first_loss_with_scaled_logits(V: int, d_model: int, tied: float, tying: str) -> None:
    assert first_loss(V, d_model, tying, "rsqrt_d") == pytest.approx(1, abs=0.02)


def test_input_scaling_is_the_same_in_all_arms() -> None:
    # The ablation may change the tie only, not the embeddings' factor.
    tokens = torch.arange(12)[None]
    embedded = [build_model(ModelConfig(tying=k), 12, 12, 0).target_embedding(tokens) for k in KINDS]  # type: ignore[operator]
    assert all(torch.equal(e, embedded[0]) for e in embedded)


@pytest.mark.parametrize("kind", KINDS)
def test_two_vocabularies_cannot_share_a_source_embedding(kind: str) -> None:
    shares_source = "source" in SHARED[kind]
    for sizes, joint in (((10, 12), False), ((12, 12), False)):
        if shares_source:
            with pytest.raises(ConfigError, match=rf"{sizes[0]} and {sizes[1]}") as caught:
                check_tying(kind, *sizes, joint_vocabulary=joint)
            assert caught.value.field == "model.tying"
            assert "\n" not in str(caught.value)
        else:
            check_tying(kind, *sizes, joint_vocabulary=joint)
    check_tying(kind, 12, 12, joint_vocabulary=True)


@pytest.mark.parametrize("kind", ["none", "decoder"])
def test_two_vocabularies_work_where_the_source_is_apart(kind: str) -> None:
    model = build_model(ModelConfig(tying=kind), 10, 12, 0)
    assert model(torch.tensor([[9, 2]]), torch.tensor([[1, 11]])).shape == (1, 2, 12)
