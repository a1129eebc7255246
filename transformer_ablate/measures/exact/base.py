"""What an exact check is, the table of all checks, and the small models that they are made on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_ablate.config import ModelConfig, Recipe
from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.tokens import N_SPECIALS


@dataclass(frozen=True)
class Checked:
    """Outcome of an exact check.

    Attributes:
        holds: whether the statement is true as claimed.
        value: the number that was computed.
        bound: what it was held against.
        detail: one line for the reader.
    """

    holds: bool
    value: float
    bound: float
    detail: str


# A check is given the base recipe of each of the study's cells; most look at none.
Check = Callable[[Mapping[str, Recipe]], Checked]

# Name of a statement, mostly that of its claim, to what decides it.
CHECKS: dict[str, Check] = {}

# Two computations in float64 that are one in theory differ by less than this, at the sizes used here.
TOLERANCE = 1e-9
# And two that theory tells apart differ by more than this.
SEEN = 1e-3

VOCABULARY = 20
SMALL: dict[str, Any] = {"d_model": 32, "n_heads": 4, "d_ff": 64, "encoder_layers": 2, "decoder_layers": 2}


def check(name: str) -> Callable[[Check], Check]:
    """Decorator that enters a check under ``name``; it runs without gradients.

    Raises:
        ValueError: where there is a check of that name.
    """

    def enter(function: Check) -> Check:
        if name in CHECKS:
            raise ValueError(f"there is a check {name!r} already")

        @functools.wraps(function)
        def without_gradients(bases: Mapping[str, Recipe]) -> Checked:
            with torch.no_grad():
                return function(bases)

        CHECKS[name] = without_gradients
        return without_gradients

    return enter


def small_model(**fields: Any) -> Seq2Seq:
    """An untrained model of :data:`SMALL` sizes in float64, for evaluation; ``fields`` are those of ModelConfig."""
    return build_model(ModelConfig(**{**SMALL, **fields}), VOCABULARY, VOCABULARY, seed=0).double().eval()


def random_tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    """Random symbols without special tokens, (rows, length)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(N_SPECIALS, VOCABULARY, (rows, length), generator=generator)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape."""
    return float((a - b).abs().max())
