"""Baselines of the Transformer's size: what they share, and the width that gives them its number of parameters."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core.embedding import TYING_KINDS, OutputProjection, TokenEmbedding
from transformer_ablate.core.seq2seq import Memory, Seq2Seq
from transformer_ablate.registry import ARCHITECTURES

REFERENCE = "transformer"
TOLERANCE = 0.05
# The field of the recipe that architectures get their options from.
OPTIONS = "model.architecture_options"


class Baseline(Seq2Seq):
    """Embeddings and output projection of one width ``d``; a subclass adds what lies between.

    ``d`` is ``config.d_model``, or with ``config.matched`` the width whose number of parameters is the nearest to that
    of the Transformer of the same config. A full pass is one step of all tokens from an empty state, so that there is
    no second decoder that could differ from the cached one.

    Args:
        config: ``tying``, ``logit_scale`` and ``dropout`` are used here.
        source_size, target_size: vocabulary sizes.
        options: the subclass's own keyword arguments, with which it is built again while its width is looked for.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, **options: Any) -> None:
        super().__init__()
        self.width = (
            matched_width(type(self), config, source_size, target_size, options) if config.matched else config.d_model
        )
        tying = TYING_KINDS[config.tying]
        self.target_embedding = TokenEmbedding(target_size, self.width)
        self.source_embedding = (
            self.target_embedding if tying.source_is_target else TokenEmbedding(source_size, self.width)
        )
        tied = self.target_embedding if tying.output_is_target else None
        self.output = OutputProjection(target_size, self.width, config.logit_scale, tied)
        self.dropout = nn.Dropout(config.dropout)

    def advance(self, x: Tensor, state: Any) -> Tensor:
        """Embeddings (B, n, d) of further target tokens -> states (B, n, d) for the output; updates ``state``."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        return self.output(self.advance(self.target_embedding(tokens), state))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        return self.step(target, self.start(memory, target.shape[1]))


def count_parameters(build: Callable[[], nn.Module]) -> int:
    """Trained values of what ``build`` makes, tied ones once; nothing is allocated for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in build().parameters())


def matched_width(
    architecture: Callable[..., Seq2Seq],
    config: ModelConfig,
    source_size: int,
    target_size: int,
    options: dict[str, Any],
) -> int:
    """The width with which ``architecture`` has about the parameters of the Transformer of the same config.

    Warns, once for each case, where even the nearest width is more than 5 % off.
    """
    return _matched_width(architecture, _plain(config), json.dumps(options), source_size, target_size)


def _plain(config: ModelConfig) -> str:
    """A config as text: keys of a cache must be hashable, which its dictionaries are not."""
    return json.dumps(dataclasses.asdict(config))


@cache
def _reference_parameters(config: str, source_size: int, target_size: int) -> int:
    return count_parameters(
        lambda: ARCHITECTURES[REFERENCE](ModelConfig(**json.loads(config)), source_size, target_size)
    )


@cache
def _matched_width(
    architecture: Callable[..., Seq2Seq], config: str, options: str, source_size: int, target_size: int
) -> int:
    asked = ModelConfig(**json.loads(config))
    reference = dataclasses.replace(asked, architecture=REFERENCE, architecture_options={})
    wanted = _reference_parameters(_plain(reference), source_size, target_size)

    def count(width: int) -> int:
        candidate = dataclasses.replace(asked, d_model=width, matched=False)
        return count_parameters(lambda: architecture(candidate, source_size, target_size, **json.loads(options)))

    width, found = nearest(count, wanted, guess=2 * asked.d_model)
    if abs(found - wanted) > TOLERANCE * wanted:
        warnings.warn(
            f"{asked.architecture}: the width nearest to the Transformer's {wanted} parameters is {width}, "
            f"with {found} ({(found - wanted) / wanted:+.1%})",
            stacklevel=2,
        )
    return width


def nearest(count: Callable[[int], int], wanted: int, guess: int) -> tuple[int, int]:
    """The argument >= 1 for which the increasing function ``count`` comes nearest to ``wanted``, and its value.

    The root of ``count`` is taken as almost linear, as that of a quadratic function is; ``guess`` is where to begin.
    """
    low, high = (0, 0), (guess, count(guess))
    while high[1] < wanted:
        low, high = high, (2 * high[0], count(2 * high[0]))
    while high[0] - low[0] > 1:
        share = (math.sqrt(wanted) - math.sqrt(low[1])) / (math.sqrt(high[1]) - math.sqrt(low[1]))
        middle = min(max(round(low[0] + share * (high[0] - low[0])), low[0] + 1), high[0] - 1)
        value = count(middle)
        if value < wanted:
            low = middle, value
        else:
            high = middle, value
    return high if low[0] == 0 else min((low, high), key=lambda pair: abs(pair[1] - wanted))
