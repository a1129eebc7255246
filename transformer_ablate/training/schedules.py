"""Learning rate as a function of the update number. Updates are counted from 1: the first one uses ``rate(1)``."""

from __future__ import annotations

import math
from collections.abc import Callable

from transformer_ablate.config import TrainConfig
from transformer_ablate.registry import SCHEDULES

Schedule = Callable[[int, TrainConfig, int], float]


def warmup(update: int, config: TrainConfig) -> float:
    """Share of the peak rate: linear from 1/w to 1 over w updates; 1 throughout without warmup."""
    return min(1.0, update / config.warmup_steps) if config.warmup_steps else 1.0


@SCHEDULES.register("linear")
def linear(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to ``lr``, then a straight line to ``final_lr_ratio * lr`` at the last update."""
    knee = max(1, config.warmup_steps)  # the first update at the peak rate
    progress = min(1.0, max(0, update - knee) / max(1, config.max_steps - knee))
    return config.lr * warmup(update, config) * (1 - (1 - config.final_lr_ratio) * progress)


@SCHEDULES.register("cosine")
def cosine(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to ``lr``, then half a cosine to ``final_lr_ratio * lr`` at the last update (Loshchilov & Hutter 2017)."""
    knee = max(1, config.warmup_steps)
    progress = min(1.0, max(0, update - knee) / max(1, config.max_steps - knee))
    share = config.final_lr_ratio + (1 - config.final_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2
    return config.lr * warmup(update, config) * share


@SCHEDULES.register("wsd")
def warmup_stable_decay(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to ``lr``, which stays, then a line to ``final_lr_ratio * lr`` over the last fifth (Hu et al. 2024)."""
    decay = config.max_steps // 5
    progress = max(0, update - (config.max_steps - decay)) / max(1, decay)
    return config.lr * warmup(update, config) * (1 - (1 - config.final_lr_ratio) * min(1.0, progress))


@SCHEDULES.register("constant")
def constant(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to ``lr``, which then stays."""
    return config.lr * warmup(update, config)


@SCHEDULES.register("inverse_sqrt")
def inverse_sqrt(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak ``lr``, then ``lr * sqrt(w / update)``; without warmup ``lr / sqrt(update)`` (w = 1)."""
    knee = max(1, config.warmup_steps)
    return config.lr * warmup(update, config) * (knee / max(update, knee)) ** 0.5


@SCHEDULES.register("noam")
def noam(update: int, config: TrainConfig, d_model: int) -> float:
    """``lr * d_model^-1/2 * min(update^-1/2, update * w^-3/2)`` (Vaswani et al. 2017, eq. 3); ``lr`` is a factor here.

    Without warmup (w = 0) the second term falls away and the rate starts at its peak.
    """
    rise = update * config.warmup_steps**-1.5 if config.warmup_steps else float("inf")
    return config.lr * d_model**-0.5 * min(update**-0.5, rise)
