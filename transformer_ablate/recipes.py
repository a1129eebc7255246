"""The named base recipes. A variant is a delta on one of them, and never a recipe of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformer_ablate.config import Recipe
from transformer_ablate.errors import unknown_name

# Steps of the smoke preset: enough to exercise every part, far too few to learn.
SMOKE_STEPS = 30

_SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "synthetic": {
        "smoke": {"model.d_model": 32, "model.d_ff": 128, "data.max_length": 8, "train.max_steps": SMOKE_STEPS},
        "quick": {"model.d_model": 32, "model.d_ff": 128, "data.max_length": 8, "train.max_steps": 800},
        "standard": {"model.d_model": 48, "model.d_ff": 192, "data.max_length": 12, "train.max_steps": 1500},
    },
    "g2p": {
        "smoke": {"train.max_steps": SMOKE_STEPS},
        "quick": {"train.max_steps": 300},
        "standard": {"train.max_steps": 600},
    },
}


def _synthetic(preset: str) -> dict[str, Any]:
    """64 strings of length 1 to N over 16 symbols a batch, fresh for all of training; BOS and EOS in the source."""
    sizes = _SIZES["synthetic"][preset]
    longest = sizes["data.max_length"]
    return {
        **sizes,
        "model.tying": "all",
        # 64 rows of a source (N + 2) and a target (N + 2, BOS and EOS counted): nearly every batch holds a longest one.
        "data.batch_tokens": 64 * 2 * (longest + 2),
        "data.train_examples": 64 * sizes["train.max_steps"],
        "data.test_examples": 200 if preset == "smoke" else 2_000,
        "train.lr": 2e-3,
        "train.warmup_steps": 5 if preset == "smoke" else 100,
    }


def _g2p(preset: str) -> dict[str, Any]:
    """English words to phones: about 256 words a batch, the whole dictionary."""
    sizes = _SIZES["g2p"][preset]
    return {
        **sizes,
        "model.d_model": 64,
        "model.d_ff": 256,
        "model.dropout": 0.1,
        "model.tying": "decoder",
        "data.task": "g2p",
        "data.split": "stem",
        "data.max_length": 20,
        "data.train_examples": 0,
        "data.batch_tokens": 5_120,
        "data.length_buckets": 8,
        "data.test_examples": 100 if preset == "smoke" else 1_000,
        "train.lr": 3e-3,
        "train.warmup_steps": 5 if preset == "smoke" else 100,
    }


BASES: dict[str, Callable[[str], dict[str, Any]]] = {"synthetic": _synthetic, "g2p": _g2p}


def base_recipe(name: str, preset: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A base recipe at a preset's size.

    Args:
        name: ``synthetic`` or ``g2p``.
        preset: ``smoke``, ``quick`` or ``standard``.
        overrides: dotted fields that the user set on the command line.

    Raises:
        ConfigError: for a preset that the base does not have, and from validation.
    """
    if preset not in _SIZES[name]:
        raise unknown_name("--preset", preset, _SIZES[name])
    return Recipe().replace({**BASES[name](preset), **(overrides or {})})
