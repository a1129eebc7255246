"""Probes and functional share on planted signals, and on models whose answer is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data import BOS, EOS
from transformer_ablate.data.task import load_task
from transformer_ablate.measures.capture import states_caught
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.measures.probes import (
    Probes,
    functional_share,
    look,
    mlp_r2,
    parts,
    positions,
    random_content,
    ridge_r2,
    slope,
    standardised,
)

N, LENGTH, WIDTH = 384, 12, 24


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def evaluation(**options: Any) -> Evaluation:
    small = {
        "model.d_model": 16,
        "model.d_ff": 16,
        "model.n_heads": 2,
        "data.max_length": 6,
        "data.vocab_size": 8,
        "data.train_examples": 200,
        "data.valid_examples": 10,
        "data.test_examples": 10,
        "train.warmup_steps": 1,
        "train.max_steps": 2,
    }
    recipe = Recipe().replace({**small, **{name.replace("__", "."): value for name, value in options.items()}})
    task = load_task(recipe.data)
    sizes = len(task.source_vocabulary), len(task.target_vocabulary)
    return Evaluation(build_model(recipe.model, *sizes, seed=3), task, recipe)


# Probes ------------------------------------------------------------------------------------------------------------


def planted(share: float) -> Tensor:
    """States (N, LENGTH, WIDTH) of which a linear map can tell a ``share`` of the variance of the position.

    One direction holds position and noise, var(position) / (var(position) + var(noise)) = share; what is orthogonal to
    it is content.
    """
    direction, *others = torch.linalg.qr(normal(1, WIDTH, WIDTH))[0]
    along = positions(N, LENGTH) + normal(2, N, LENGTH) * math.sqrt(1 / share - 1)
    return along[..., None] * direction + 3 * normal(3, N, LENGTH, WIDTH - 1) @ torch.stack(others) + 7


SHARES = (0.1, 0.5, 0.9)


def test_a_planted_signal_is_recovered() -> None:
    x, y = [standardised(planted(share)) for share in SHARES], positions(N, LENGTH)
    assert [ridge_r2(one, y) for one in x] == pytest.approx(SHARES, abs=0.05)
    assert mlp_r2(torch.stack(x), y.expand(len(x), -1, -1)) == pytest.approx(SHARES, abs=0.05)


def test_shuffled_labels_cannot_be_read() -> None:
    x, y = standardised(planted(0.5)), positions(N, LENGTH, shuffled=True)
    assert sorted(y.flatten().tolist()) == sorted(positions(N, LENGTH).flatten().tolist())
    assert abs(ridge_r2(x, y)) < 0.02
    assert abs(mlp_r2(x[None], y[None])[0]) < 0.02


def test_a_network_reads_what_no_linear_map_does() -> None:
    angle = 2 * math.pi * torch.arange(LENGTH) / LENGTH
    circle = torch.stack([angle.sin(), angle.cos()], dim=-1).expand(N, -1, -1)
    x, y = standardised(circle), positions(N, LENGTH)
    on_circle = np.stack([angle.sin(), angle.cos(), np.ones(LENGTH)], axis=1)
    left = np.linalg.lstsq(on_circle, y[0].numpy(), rcond=None)[1][0] / LENGTH  # y has variance 1
    assert ridge_r2(x, y) == pytest.approx(1 - left, abs=1e-3)
    assert mlp_r2(x[None], y[None])[0] > 0.95


def test_a_probe_has_no_influence_on_the_one_beside_it() -> None:
    x, y = standardised(planted(0.5)), positions(N, LENGTH)
    nowhere = torch.full_like(x, math.nan)
    together = mlp_r2(torch.stack([nowhere, x]), y.expand(2, -1, -1))
    assert together[1] == pytest.approx(mlp_r2(x[None], y[None])[0], abs=1e-3)
    assert math.isnan(together[0])  # and it spoils no other
    assert math.isnan(ridge_r2(nowhere, y))


def test_probes_are_tested_on_other_sequences_than_they_have_seen() -> None:
    train, valid, test = (set(range(N)[part]) for part in parts(N))
    assert not train & valid | train & test | valid & test
    assert len(train | valid | test) == N
    # Every sequence has a mark of its own by which its shuffled labels could be learnt by heart.
    marks = torch.nn.functional.one_hot(torch.arange(60 * 4).view(60, 4)).double()
    y = positions(60, 4, shuffled=True)
    assert ridge_r2(standardised(marks), y) < 0.05


def test_random_content() -> None:
    strings = random_content(300, 5, 12)
    assert strings.shape == (300, 7)
    assert (strings[:, 0] == BOS).all()
    assert (strings[:, -1] == EOS).all()
    assert set(strings[:, 1:-1].flatten().tolist()) == set(range(4, 12))
    assert torch.equal(strings, random_content(300, 5, 12))


# Functional share --------------------------------------------------------------------------------------------------

ALL = torch.ones(LENGTH, LENGTH, dtype=torch.bool)


def toeplitz(seed: int, length: int = LENGTH) -> Tensor:
    """f(i - j), (length, length), f random."""
    index = torch.arange(length)
    return normal(seed, 2 * length - 1)[index[:, None] - index + length - 1]


@pytest.mark.parametrize("allowed", [ALL, ALL.tril()], ids=["all", "causal"])
def test_scores_of_the_offset_alone_have_a_share_of_1(allowed: Tensor) -> None:
    scores = torch.stack([toeplitz(1), 5 * toeplitz(2)]).expand(4, -1, -1, -1)
    of_query = 9 * normal(3, 4, 2, LENGTH, 1)  # what softmax does not see
    torch.testing.assert_close(functional_share(scores + of_query, allowed), torch.ones(2, dtype=torch.float64))


def test_scores_of_content_alone_have_a_share_of_0() -> None:
    of_key = normal(4, N, 2, 1, LENGTH).expand(-1, -1, LENGTH, -1)
    of_pair = normal(5, N, 2, LENGTH, LENGTH)
    assert functional_share(of_key, ALL).max() < 0.02
    assert functional_share(of_pair, ALL).max() < 0.02


def test_scores_that_do_not_vary_have_no_share() -> None:
    assert functional_share(torch.ones(2, 1, 4, 4), torch.ones(4, 4, dtype=torch.bool)).isnan().all()


def test_half_of_the_variance_is_half_of_the_share() -> None:
    offset, content = toeplitz(1), normal(5, N, 1, LENGTH, LENGTH)
    parted = [s - s.mean(dim=-1, keepdim=True) for s in (offset, content)]
    mixed = sum(s / s.square().mean().sqrt() for s in parted)
    assert float(functional_share(mixed, ALL)) == pytest.approx(0.5, abs=0.02)


@settings(max_examples=25)
@given(st.integers(1, 3), st.integers(2, 5), st.booleans(), st.integers(0, 2**20))
def test_the_share_is_that_of_a_least_squares_fit(rows: int, length: int, causal: bool, seed: int) -> None:
    scores = normal(seed, rows, 1, length, length)
    allowed = torch.ones(length, length, dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    of_query, design, y = [], [], []
    for b in range(rows):
        for i in range(length):
            for j in range(length):
                if allowed[i, j]:
                    of_query.append(np.eye(rows * length)[b * length + i])
                    design.append(np.eye(2 * length - 1)[i - j + length - 1])
                    y.append(float(scores[b, 0, i, j]))

    def left(columns: list[list[np.ndarray]]) -> float:
        a = np.concatenate([np.array(c) for c in columns], axis=1)
        return float(np.square(np.array(y) - a @ np.linalg.lstsq(a, np.array(y), rcond=None)[0]).sum())

    expected = 1 - left([of_query, design]) / left([of_query])
    assert float(functional_share(scores, allowed)) == pytest.approx(expected, abs=1e-8)


# Models ------------------------------------------------------------------------------------------------------------


def test_states_are_the_stream_before_and_after_each_layer() -> None:
    run = evaluation(model__encoder_layers=3)
    model: Any = run.model
    source = random_content(5, 6, 12)
    with torch.no_grad():
        before = model.encode(source).states
        with states_caught(model) as states:
            during = model.encode(source).states
        assert torch.equal(before, during)
        embedded = model.encoder.position.embed(model.source_embedding(source), torch.arange(8))
        assert torch.equal(states[0], embedded)
        assert torch.equal(model.encoder.final_norm(states[-1]), before)
        assert torch.equal(before, model.encode(source).states)
    assert len(states) == 4  # and nothing is caught any more
    inside, shares = look(model, source)
    assert len(shares) == 3
    for state, part in zip(states, inside, strict=True):
        assert torch.equal(state[:, 1:-1], part)


@pytest.fixture(scope="module")
def alibi() -> Evaluation:
    """A model whose scores are the bias alone, in both heads of both layers."""
    run = evaluation(model__position="alibi", model__extra_key_value=True)
    model: Any = run.model
    for layer in model.encoder.layers:
        torch.nn.init.zeros_(layer.self_attention.qkv.weight)
        torch.nn.init.zeros_(layer.self_attention.extra.key)
    return run


def test_a_model_that_attends_by_offset_alone(alibi: Evaluation) -> None:
    measured = Probes().measure(alibi)
    metrics = measured.metrics
    assert metrics["functional_share/1"] == pytest.approx(1)
    assert metrics["functional_share/2"] == pytest.approx(1)
    assert metrics["functional_share_slope"] == pytest.approx(0, abs=1e-9)
    control = [metrics[f"functional_share_untrained/{n}"] for n in (1, 2)]
    assert all(0 < share < 1 for share in control)
    assert metrics["functional_share_slope_net"] == pytest.approx(control[0] - control[1])
    assert abs(metrics["probe_r2/0"]) < 0.02  # its embeddings know of no position
    names = ("probe_r2", "probe_r2_mlp")
    ends = ("", "_untrained", "_shuffled")
    wanted = {f"{name}{end}/{depth}" for name in names for end in ends for depth in range(3)}
    wanted |= {f"functional_share{end}/{depth}" for end in ends[:2] for depth in (1, 2)}
    wanted |= {f"{name}_slope{end}" for name in (*names, "functional_share") for end in ("", "_net")}
    assert set(metrics) == wanted
    for name in names:
        assert all(abs(metrics[f"{name}_shuffled/{depth}"]) < 0.03 for depth in range(3))
        rise, control_rise = ((metrics[f"{name}{end}/2"] - metrics[f"{name}{end}/0"]) / 2 for end in ("", "_untrained"))
        assert metrics[f"{name}_slope"] == pytest.approx(rise)
        assert metrics[f"{name}_slope_net"] == pytest.approx(rise - control_rise)
    heads = measured.artifacts["functional_share_heads"]
    assert [(row["layer"], row["head"]) for row in heads] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert [row["share"] for row in heads] == pytest.approx([1] * 4)


def test_position_is_in_the_embeddings_where_it_is_added_to_them() -> None:
    state = torch.random.get_rng_state()
    metrics = Probes().measure(run := evaluation(model__encoder_layers=1)).metrics
    assert metrics["probe_r2/0"] > 0.95
    assert metrics["probe_r2_untrained/0"] > 0.95
    assert "functional_share_slope" not in metrics  # of a single layer
    assert Probes().measure(run).metrics == metrics
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_model_that_diverged_has_no_figures_and_raises_nothing() -> None:
    run = evaluation(model__encoder_layers=1)
    model: Any = run.model
    torch.nn.init.constant_(model.source_embedding.weight, math.nan)
    metrics = Probes().measure(run).metrics
    assert all(math.isnan(metrics[name]) for name in ("probe_r2/0", "probe_r2_mlp/1", "functional_share/1"))
    assert math.isfinite(metrics["probe_r2_untrained/1"])


def test_models_without_encoder_layers_have_no_figures(scripted: Any) -> None:
    run = evaluation()
    assert Probes().measure(Evaluation(scripted(lambda source: source, 12), run.task, run.recipe)).metrics == {}
    for architecture in ("gru", "fnn_mean", "convs2s"):
        assert Probes().measure(evaluation(model__architecture=architecture)).metrics == {}


def test_slope() -> None:
    assert slope([0, 1, 2], [1.0, 0.5, 0.0]) == pytest.approx(-0.5)
    assert slope([1, 2, 3, 4], [0.0, 1.0, 0.0, 3.0]) == pytest.approx(0.8)
