"""Learning rate as a function of the update number. Updates are counted from 1: the first one uses ``rate(1)``.

Every schedule is the peak rate times a share of it: the peak is reached at update max(1, warmup_steps), and 0 warmup
steps start there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from transformer_ablate.config import TrainConfig
from transformer_ablate.registry import SCHEDULES

Schedule = Callable[[int, TrainConfig, int], float]


def chosen_peak(config: TrainConfig, d_model: int) -> float:
    """``lr``, whatever the width and the warmup."""
    return config.lr


def coupled_peak(config: TrainConfig, d_model: int) -> float:
    """``lr * (d_model * w)^-1/2``, w = max(1, warmup_steps): a longer warmup has a lower peak (Vaswani et al. 2017)."""
    return config.lr * (d_model * knee(config)) ** -0.5


PEAK_RATES: dict[str, Callable[[TrainConfig, int], float]] = {"lr": chosen_peak, "noam": coupled_peak}


def peak_rate(config: TrainConfig, d_model: int) -> float:
    """The highest rate of a schedule, at update max(1, warmup_steps), as ``config.peak`` defines it."""
    return PEAK_RATES[config.peak](config, d_model)


def knee(config: TrainConfig) -> int:
    """The first update at the peak rate."""
    return max(1, config.warmup_steps)


def warmup(update: int, config: TrainConfig) -> float:
    """Share of the peak rate: linear from 1/w to 1 over w updates; 1 throughout without warmup."""
    return min(1.0, update / knee(config))


def progress(update: int, first: int, config: TrainConfig) -> float:
    """How much of the way from update ``first`` (0) to the last update (1) is done."""
    return min(1.0, max(0, update - first) / max(1, config.max_steps - first))


def inverse_sqrt_share(update: int, config: TrainConfig) -> float:
    """Share of the peak rate: warmup, then sqrt(w / update) with w = max(1, warmup_steps)."""
    return warmup(update, config) * (knee(config) / max(update, knee(config))) ** 0.5


@SCHEDULES.register("linear")
def linear(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak, then a line to ``final_lr_ratio`` of it at the last update (Devlin et al. 2019, app. A.2)."""
    share = 1 - (1 - config.final_lr_ratio) * progress(update, knee(config), config)
    return peak_rate(config, d_model) * warmup(update, config) * share


@SCHEDULES.register("cosine")
def cosine(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak, half a cosine to ``final_lr_ratio`` of it at the end (Loshchilov & Hutter 2017, eq. 5)."""
    fall = (1 + math.cos(math.pi * progress(update, knee(config), config))) / 2
    share = config.final_lr_ratio + (1 - config.final_lr_ratio) * fall
    return peak_rate(config, d_model) * warmup(update, config) * share


@SCHEDULES.register("wsd")
def warmup_stable_decay(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak, which stays, then a line to ``final_lr_ratio`` of it (Hu et al. 2024, section 4).

    The line takes the last fifth of training, or what a longer warmup has left of it.
    """
    last_stable = max(knee(config), config.max_steps - config.max_steps // 5)
    share = 1 - (1 - config.final_lr_ratio) * progress(update, last_stable, config)
    return peak_rate(config, d_model) * warmup(update, config) * share


@SCHEDULES.register("constant")
def constant(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak, which then stays (Goyal et al. 2017, section 2.2)."""
    return peak_rate(config, d_model) * warmup(update, config)


@SCHEDULES.register("inverse_sqrt")
def inverse_sqrt(update: int, config: TrainConfig, d_model: int) -> float:
    """Warmup to the peak, then ``peak * sqrt(w / update)``, w = max(1, warmup) (Raffel et al. 2020, sec. 3.1.2).

    The source holds the rate over the first w updates, where it rises here.
    """
    return peak_rate(config, d_model) * inverse_sqrt_share(update, config)


@SCHEDULES.register("noam")
def noam(update: int, config: TrainConfig, d_model: int) -> float:
    """``lr * d_model^-1/2 * min(update^-1/2, update * w^-3/2)``, ``lr`` a factor (Vaswani et al. 2017, eq. 3).

    This is the inverse square root under the coupled peak, whatever ``config.peak``; without warmup w is 1.
    """
    return coupled_peak(config, d_model) * inverse_sqrt_share(update, config)
