"""Optimizers by name, with weight decay on matrices of linear maps only."""

from __future__ import annotations

import torch
from torch import nn

from transformer_ablate.config import TrainConfig
from transformer_ablate.registry import OPTIMIZERS


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Each parameter once, in two groups: weights of linear maps, which decay, and everything else, which does not.

    Embeddings and position tables do not decay: rows that training never reaches must keep their initial values. Nor
    does a matrix that an embedding shares with a linear map.
    """
    maps: set[int] = set()
    elsewhere: set[int] = set()
    for module in model.modules():
        names = linear_maps(module)
        for name, parameter in module.named_parameters(recurse=False):
            (maps if name in names else elsewhere).add(id(parameter))
    decayed = [p for p in model.parameters() if id(p) in maps - elsewhere]
    others = [p for p in model.parameters() if id(p) not in maps - elsewhere]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def linear_maps(module: nn.Module) -> list[str]:
    """Names of a module's own parameters that are matrices of linear maps, also over time; a module may name others.

    A module of another kind lists them in an attribute ``linear_maps``.
    """
    if isinstance(module, (nn.Linear, nn.Conv1d)):
        return ["weight"]
    if isinstance(module, nn.RNNBase):
        return [name for name, _ in module.named_parameters(recurse=False) if name.startswith("weight")]
    return list(getattr(module, "linear_maps", ()))


@OPTIMIZERS.register("adam")
def adam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam without weight decay, epsilon 1e-9; the rate as in :func:`adamw` (Kingma & Ba 2015, algorithm 1)."""
    return torch.optim.Adam(model.parameters(), lr=1.0, betas=(config.beta1, config.beta2), eps=1e-9, fused=True)


@OPTIMIZERS.register("radam")
def radam(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """RAdam with decoupled decay, epsilon 1e-9; the rate as in :func:`adamw` (Liu et al. 2020, algorithm 2).

    Steps are rectified once the approximated length of the moving average is above 5 (torch), where the paper has 4.
    """
    groups = parameter_groups(model, config.weight_decay)
    betas = (config.beta1, config.beta2)
    return torch.optim.RAdam(groups, lr=1.0, betas=betas, eps=1e-9, decoupled_weight_decay=True)


@OPTIMIZERS.register("sgd")
def sgd(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Gradient descent with momentum ``beta1``, no decay; the rate as in :func:`adamw` (Sutskever et al. 2013, eq. 1).

    The velocity v = beta1 v + g is multiplied by each update's rate (torch), which the paper puts in front of g: where
    the rate changes the two differ.
    """
    return torch.optim.SGD(model.parameters(), lr=1.0, momentum=config.beta1)


@OPTIMIZERS.register("adamw")
def adamw(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2).

    Epsilon is 1e-9, as in the Transformer paper. The rate is 1: the schedule multiplies it, and with it the decay, by
    the rate of each update.
    """
    groups = parameter_groups(model, config.weight_decay)
    return torch.optim.AdamW(groups, lr=1.0, betas=(config.beta1, config.beta2), eps=1e-9, fused=True)
