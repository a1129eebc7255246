"""Optimizers against the papers' algorithms written out in numbers, and what decays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig, TrainConfig
from transformer_ablate.core import build_model
from transformer_ablate.registry import ARCHITECTURES, OPTIMIZERS, SCHEDULES
from transformer_ablate.training.optimizers import parameter_groups

BETA1, BETA2, DECAY = 0.8, 0.95, 0.3


class Projection(nn.Linear):
    """A linear map of another class, without bias and with a parameter of its own."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.gain = nn.Parameter(torch.ones(1, d_out))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.gain


class Tiny(nn.Module):
    """Three rows of an embedding through maps to one output matrix, which may be the embedding."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embedding, self.map, self.norm = nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3)
        self.mlp = nn.Sequential(Projection(3, 6), nn.Tanh(), nn.Linear(6, 4))
        self.bias = nn.Parameter(torch.zeros(4, 4))  # a matrix, but no linear map
        self.output = nn.Linear(4, 5, bias=False)
        if tied:
            self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.mlp(self.norm(self.map(self.embedding(tokens)))) @ (torch.eye(4).double() + self.bias))


DECAYED = {"map.weight", "mlp.0.weight", "mlp.2.weight"}


@pytest.mark.parametrize("tied", [True, False])
def test_weights_of_linear_maps_decay_and_nothing_else(tied: bool) -> None:
    model = Tiny(tied)
    decayed, kept = parameter_groups(model, DECAY)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (DECAY, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    inside, outside = ([names[id(p)] for p in group["params"]] for group in (decayed, kept))  # type: ignore[attr-defined]
    assert sorted(inside + outside) == sorted(names.values())  # each once
    assert set(inside) == DECAYED | (set() if tied else {"output.weight"})


def test_a_model_without_linear_maps_can_be_trained() -> None:
    for name in OPTIMIZERS.names():
        model = nn.Embedding(3, 2)
        optimizer = OPTIMIZERS[name](model, TrainConfig(optimizer=name))
        before = model.weight.detach().clone()
        model(torch.tensor([1])).sum().backward()
        optimizer.step()
        moved = (model.weight != before).any(1)
        assert moved.tolist() == [False, True, False]


@pytest.mark.parametrize("tying", ["decoder", "all"])
@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_a_tied_matrix_is_listed_once_and_never_decays(name: str, tying: str) -> None:
    small = ModelConfig(d_model=8, n_heads=1, d_ff=8, encoder_layers=1, decoder_layers=1, tying=tying)
    model = build_model(small, 7, 7, 0)
    optimizer = OPTIMIZERS[name](model, TrainConfig(optimizer=name, weight_decay=DECAY))
    listed = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {id(p) for p in model.parameters()}
    tables = [p for p in model.parameters() if p.shape == (7, 8)]
    assert len(tables) == (1 if tying == "all" else 2)
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {decays[id(p)] for p in tables} == {0}


# The algorithms, for one number: (value, gradient, update number, rate, decay, state) -> value ---------------------

Step = Callable[[float, float, int, float, float, dict[str, float]], float]


def moments(g: float, state: dict[str, float]) -> tuple[float, float]:
    m = state["m"] = BETA1 * state.get("m", 0.0) + (1 - BETA1) * g
    v = state["v"] = BETA2 * state.get("v", 0.0) + (1 - BETA2) * g * g
    return m, v


def adam(x: float, g: float, t: int, rate: float, decay: float, state: dict[str, float]) -> float:
    m, v = moments(g, state)
    return x - rate * (m / (1 - BETA1**t)) / (math.sqrt(v / (1 - BETA2**t)) + 1e-9)


def adamw(x: float, g: float, t: int, rate: float, decay: float, state: dict[str, float]) -> float:
    return adam(x, g, t, rate, decay, state) - rate * decay * x


def radam(x: float, g: float, t: int, rate: float, decay: float, state: dict[str, float]) -> float:
    m, v = moments(g, state)
    longest = 2 / (1 - BETA2) - 1
    length = longest - 2 * t * BETA2**t / (1 - BETA2**t)
    step = m / (1 - BETA1**t)
    if length > 5:
        share = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        step *= math.sqrt(share) * math.sqrt(1 - BETA2**t) / (math.sqrt(v) + 1e-9)
    return x - rate * step - rate * decay * x


def sgd(x: float, g: float, t: int, rate: float, decay: float, state: dict[str, float]) -> float:
    velocity = state["u"] = BETA1 * state.get("u", 0.0) + g
    return x - rate * velocity


# Updates to compare: RAdam rectifies its steps from the seventh on.
ALGORITHMS: dict[str, tuple[Step, int]] = {
    "adam": (adam, 5),
    "adamw": (adamw, 5),
    "radam": (radam, 12),
    "sgd": (sgd, 5),
}


def test_every_optimizer_has_its_algorithm_here() -> None:
    assert set(ALGORITHMS) == set(OPTIMIZERS.names())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_are_the_papers(name: str) -> None:
    step, updates = ALGORITHMS[name]
    torch.manual_seed(0)
    model = Tiny().double()
    options: dict[str, Any] = {"optimizer": name, "beta1": BETA1, "beta2": BETA2, "weight_decay": DECAY}
    config = TrainConfig(**options, lr=0.05, schedule="linear", warmup_steps=3, max_steps=updates + 3)
    optimizer = OPTIMIZERS[name](model, config)
    numbers = {key: [float(x) for x in p.detach().flatten()] for key, p in model.named_parameters()}
    states: dict[str, list[dict[str, float]]] = {key: [{} for _ in values] for key, values in numbers.items()}
    for t in range(1, updates + 1):
        rate = SCHEDULES["linear"](t, config, 4)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.tensor([1, 2, 4])), torch.tensor([2, 0, t % 5]))
        loss.backward()
        for key, p in model.named_parameters():
            assert p.grad is not None
            decay = DECAY if key in DECAYED else 0.0
            gradients = p.grad.flatten().tolist()
            numbers[key] = [
                step(x, g, t, rate, decay, state)
                for x, g, state in zip(numbers[key], gradients, states[key], strict=True)
            ]
        optimizer.step()
        for key, p in model.named_parameters():
            # Where a gradient is hardly more than epsilon, the last digits are the order of operations.
            assert p.detach().flatten().tolist() == pytest.approx(numbers[key], rel=1e-9, abs=1e-9), (key, t)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_rate_is_the_schedules_alone(name: str) -> None:
    optimizer = OPTIMIZERS[name](Tiny(), TrainConfig(optimizer=name, lr=0.3))
    assert {group["lr"] for group in optimizer.param_groups} == {1.0}


@pytest.mark.parametrize("architecture", ARCHITECTURES.names())
def test_the_matrices_of_every_architecture_decay(architecture: str) -> None:
    # Otherwise arms would differ in more than they name: an RNN's matrices are linear maps as much as a Transformer's.
    model = build_model(ModelConfig(architecture=architecture, tying="all"), 20, 20, seed=0)
    decayed, others = (group["params"] for group in parameter_groups(model, 0.1))
    names = {id(p): name for name, p in model.named_parameters()}
    assert {id(p) for p in (*decayed, *others)} == set(names)  # type: ignore[misc]
    kept = [names[id(p)] for p in others if p.dim() > 1]  # type: ignore[attr-defined]
    assert kept == ["target_embedding.weight"] or all("bias" in n for n in kept if n != "target_embedding.weight")
    assert all("bias" not in names[id(p)] for p in decayed)  # type: ignore[attr-defined]
