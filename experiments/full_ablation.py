"""From the 2017 recipe to a modern one, step by step, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from experiments._cells import SMALL_COPY, WORDS
from transformer_ablate.cli import main
from transformer_ablate.config import Recipe
from transformer_ablate.study.declarations import Cell, Contrast, Factorial, FromBase, Pareto, Steps, Study, Variant

PER, EM = "g2p/per/test", "copy/em/1.5"


def noam_factor(base: Recipe) -> float:
    """The factor with which the Noam schedule has the base recipe's peak rate."""
    return base.train.lr * float(base.model.d_model * max(1, base.train.warmup_steps)) ** 0.5


NOAM = {"train.schedule": "noam", "train.lr": FromBase("the base's peak rate", noam_factor)}
# Each factor at -1 (2017) and +1 (modern): a word for names, and what it sets on the base recipe.
FACTORS: Mapping[str, tuple[tuple[str, Mapping[str, Any]], tuple[str, Mapping[str, Any]]]] = {
    "position": (
        ("sinusoidal", {"model.position": "sinusoidal"}),
        ("rotary", {"model.position": "rope", "model.cross_position": "rotary"}),
    ),
    "norm": (
        ("post-ln", {"model.norm_placement": "post"}),
        ("pre-rms", {"model.norm_placement": "pre", "model.norm": "rmsnorm"}),
    ),
    "ffn": (("relu", {"model.ffn": "relu"}), ("swiglu", {"model.ffn": "swiglu"})),
    "schedule": (("noam", NOAM), ("cosine", {"train.schedule": "cosine"})),
    "smoothing": (("smoothed", {"train.label_smoothing": 0.1}), ("hard-targets", {"train.label_smoothing": 0.0})),
}
Levels = tuple[int, ...]
OLD: Levels = (-1,) * len(FACTORS)
MODERN: Levels = (1,) * len(FACTORS)


def flipped(levels: Levels, place: int) -> Levels:
    """The other level at one place."""
    return tuple(-level if i == place else level for i, level in enumerate(levels))


def words(levels: Levels, chosen: int) -> list[str]:
    """Words of the factors that are at level ``chosen``."""
    return [pair[chosen > 0][0] for pair, level in zip(FACTORS.values(), levels, strict=True) if level == chosen]


def arm_name(levels: Levels) -> str:
    """The base from which fewer factors differ, and those that do."""
    if levels in (OLD, MODERN):
        return "2017" if levels == OLD else "modern"
    if sum(levels) < 0:
        return "2017-with-" + "-".join(words(levels, 1))
    return "modern-with-" + "-".join(words(levels, -1))


def arm(levels: Levels, level: str = "core", cells: tuple[str, ...] | None = None) -> Variant:
    """An arm from its factors' levels."""
    delta: dict[str, Any] = {}
    told = []
    for pair, chosen in zip(FACTORS.values(), levels, strict=True):
        word, fields = pair[chosen > 0]
        delta |= fields
        told.append(word)
    return Variant(arm_name(levels), delta, cells, level, why=", ".join(told))


FROM_OLD: Sequence[Levels] = [flipped(OLD, i) for i in range(len(FACTORS))]
FROM_MODERN: Sequence[Levels] = [flipped(MODERN, i) for i in range(len(FACTORS))]
CORE: Sequence[Levels] = (OLD, *FROM_OLD, MODERN, *FROM_MODERN)
# 2^(5-1): the fifth factor's level is the product of the others', so that the defining word is all five: resolution V.
FRACTION: Sequence[Levels] = [(*four, prod(four)) for four in product((-1, 1), repeat=len(FACTORS) - 1)]

STUDY = Study(
    name="full_ablation",
    question="What does each step from the Transformer of 2017 to a modern one buy, and what does it cost?",
    cells=(
        Cell(
            "g2p",
            "g2p",
            {"data.split": "stem"},
            "per",
            "pronounce English words of unseen families",
            figure=False,
            small={**WORDS, "model.d_model": 32, "model.d_ff": 128},
        ),
        Cell(
            "copy",
            "synthetic",
            {"data.task": "copy"},
            "em",
            "repeat a string",
            level="claims",
            small=SMALL_COPY,
        ),
    ),
    variants=(
        *(arm(levels) for levels in CORE),
        *(arm(levels, "claims", ("g2p",)) for levels in FRACTION if levels not in CORE),
    ),
    contrasts=(
        Contrast("modern", "2017", PER),
        *(Contrast(arm_name(levels), "2017", PER) for levels in FROM_OLD),
        *(Contrast(arm_name(levels), "modern", PER) for levels in FROM_MODERN),
        Contrast("modern", "2017", EM),
        Contrast(arm_name(FROM_OLD[0]), "2017", EM),
        Contrast(arm_name(FROM_MODERN[0]), "modern", EM),
    ),
    notes=(
        "2017: sinusoidal positions, post-LN, ReLU, Noam, label smoothing .1. Modern: RoPE with rotary cross-"
        "attention, pre-LN RMSNorm, SwiGLU of equal parameters, cosine, hard targets. Tying is that of the base recipe "
        "in both, and so are peak rate, warmup, optimizer and budget: Noam's factor is the one that gives the same "
        "peak.",
        "In a few hundred steps models are still learning when the rate decays: how a schedule ends (cosine near 0, "
        "Noam far above it) may count for more here than in a long training.",
        "Quality on words, length on copying and cost stand apart: no mixed score is made of them.",
        "The half fraction 2^(5−1) (smoothing = position × norm × ffn × schedule, resolution V) has 16 arms, of which "
        "six are run anyway; the other ten run on words alone, from the preset standard on. In "
        "it a main effect is confounded with one interaction of four factors, an interaction of two with one "
        "of three.",
        "To be affordable with eight seeds, d is 32, words have up to 8 letters, a batch 1,024 padded tokens and "
        "training 300 steps, in every preset but full; copying has 32 strings a batch, 400 steps, and begins with the "
        "preset standard.",
    ),
    pareto=Pareto(costs=("g2p/train_seconds", "g2p/flops", "g2p/parameters"), worth=(PER, EM)),
    # On validation words, so that what the test words say of the recommended recipe is not flattered by the choice.
    steps=Steps(
        "g2p/valid_token_accuracy",
        {"2017": tuple(map(arm_name, FROM_OLD)), "modern": tuple(map(arm_name, FROM_MODERN))},
        trained_by="python -m experiments.architectures --variants transformer",
    ),
    factorial=Factorial(tuple(FACTORS), {arm_name(levels): levels for levels in FRACTION}, (PER,)),
)

if __name__ == "__main__":
    main([STUDY], program="experiments.full_ablation")
