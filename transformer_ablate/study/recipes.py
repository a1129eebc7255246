"""The named base recipes. A variant is a delta on one of them, and never a recipe of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformer_ablate.config import Recipe, check_values
from transformer_ablate.errors import unknown_name

# Steps of the smoke preset: enough to exercise every part, far too few to learn.
SMOKE_STEPS = 24
# What a cell may ask for at most, by preset; what the user asks for is not touched.
MOST: dict[str, dict[str, int]] = {
    "smoke": {
        "train.max_steps": SMOKE_STEPS,
        "train.warmup_steps": 5,
        "data.max_length": 64,
        "data.test_examples": 100,
        "data.valid_examples": 100,
    },
}
# Past so many batches of a synthetic task training sees its strings again: millions of them would fill the memory.
MOST_FRESH_BATCHES = 10_000

# The base model of Vaswani et al. 2017 (table 3), in bfloat16: what the full preset trains, on a GPU.
BASE_TRANSFORMER: dict[str, Any] = {
    "model.d_model": 512,
    "model.n_heads": 8,
    "model.d_ff": 2048,
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.dropout": 0.1,
    "train.precision": "bf16-mixed",
    "train.lr": 7e-4,
    "train.warmup_steps": 4_000,
}

_SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "synthetic": {
        "smoke": {"model.d_model": 32, "model.d_ff": 128, "data.max_length": 8, "train.max_steps": SMOKE_STEPS},
        "quick": {"model.d_model": 32, "model.d_ff": 128, "data.max_length": 8, "train.max_steps": 800},
        "standard": {"model.d_model": 48, "model.d_ff": 192, "data.max_length": 12, "train.max_steps": 1500},
        "full": {**BASE_TRANSFORMER, "data.max_length": 40, "train.max_steps": 20_000},
    },
    "g2p": {
        "smoke": {"train.max_steps": SMOKE_STEPS},
        "quick": {"train.max_steps": 300},
        "standard": {"train.max_steps": 600},
        "full": {**BASE_TRANSFORMER, "train.max_steps": 20_000},
    },
    "text": {
        "smoke": {"train.max_steps": SMOKE_STEPS},
        "quick": {"train.max_steps": 300},
        "standard": {"train.max_steps": 600},
        "full": {
            **BASE_TRANSFORMER,
            "train.max_steps": 100_000,
            "data.batch_tokens": 50_000,  # 25 000 of the source and as many of the target
            "data.max_length": 128,
            "data.tokenizer_size": 6_000,  # the language packs allow no more than 7 206
        },
    },
}


def _synthetic(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """64 strings of length 1 to N over 16 symbols a batch, fresh for all of training; BOS and EOS in the source."""
    sizes = _SIZES["synthetic"][preset]
    longest, steps = (chosen.get(name, sizes[name]) for name in ("data.max_length", "train.max_steps"))
    return {
        "model.tying": "all",
        # 64 rows of a source (N + 2) and a target (N + 2, BOS and EOS counted): nearly every batch holds a longest one.
        "data.batch_tokens": 64 * 2 * (longest + 2),
        "data.train_examples": 64 * max(1, min(steps, MOST_FRESH_BATCHES)),
        "data.test_examples": 100 if preset == "smoke" else 2_000,
        "train.lr": 2e-3,
        "train.warmup_steps": _warmup(preset),
        **sizes,
    }


def _g2p(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """English words to phones: about 256 words a batch, the whole dictionary."""
    return {
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
        "train.warmup_steps": _warmup(preset),
        **_SIZES["g2p"][preset],
    }


def _text(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Chinese interface texts into English, from the language packs; another corpus by ``data.source``."""
    return {
        "model.d_model": 64,
        "model.d_ff": 256,
        "model.dropout": 0.1,
        "model.tying": "all",
        "data.task": "translation",
        "data.swap": not chosen.get("data.source"),  # a corpus of the user's own goes from its first side to the second
        "data.max_length": 64,
        "data.tokenizer_size": 2_000,
        "data.train_examples": 0,
        "data.batch_tokens": 5_000,
        "data.length_buckets": 8,
        "data.valid_examples": 100 if preset == "smoke" else 500,
        "data.test_examples": 20 if preset == "smoke" else 200,
        "train.lr": 3e-3,
        "train.warmup_steps": _warmup(preset),
        **_SIZES["text"][preset],
    }


def _warmup(preset: str) -> int:
    return 5 if preset == "smoke" else 100


BASES: dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any]]] = {
    "synthetic": _synthetic,
    "g2p": _g2p,
    "text": _text,
}


def base_recipe(
    name: str, preset: str, overrides: Mapping[str, Any] | None = None, cell: Mapping[str, Any] | None = None
) -> Recipe:
    """A base recipe at a preset's size.

    Args:
        name: ``synthetic``, ``g2p`` or ``text``.
        preset: ``smoke``, ``quick``, ``standard`` or ``full``.
        overrides: dotted fields that the user sets.
        cell: dotted fields that a study's cell sets, for all presets; the preset may hold them down (see ``MOST``).

    Raises:
        ConfigError: for a preset that the base does not have, and from validation.
    """
    if preset not in _SIZES[name]:
        raise unknown_name("--preset", preset, _SIZES[name])
    most = MOST.get(preset, {})
    fields = {field: min(value, most[field]) if field in most else value for field, value in (cell or {}).items()}
    chosen = {**fields, **(overrides or {})}
    check_values(chosen)  # sizes that others follow from
    return Recipe().replace({**BASES[name](preset, chosen), **chosen})
