"""The positional encodings that several studies compare, each as its smallest delta from a base recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformer_ablate.study.declarations import FromBase

POSITION, OPTIONS = "model.position", "model.position_options"


def from_n(text: str, make: Callable[[int], Any]) -> FromBase:
    """A value that follows from N, the longest training string."""
    return FromBase(text, lambda base: make(base.data.max_length))


def longest(n: int) -> int:
    """The longest output that is waited for: of a sum of numbers of 4 N digits, 2 (2 · 4 N + 4) + 10."""
    return 16 * n + 18


def t5_buckets(n: int) -> dict[str, int]:
    """As many buckets, up to T5's 32, as have each a distance that occurs in training."""
    return {"buckets": min(32, max(4, 4 * ((2 * n - 1) // 4))), "max_distance": max(3, n)}


T5 = from_n("up to 32 buckets to N", t5_buckets)
ROWS = from_n("rows past 4 N", lambda n: {"rows": max(256, longest(n))})
REACH = from_n("16 N + 18", longest)
# Delta and description of each encoding.
DELTAS: dict[str, tuple[dict[str, Any], str]] = {
    "none": ({POSITION: "none"}, "no position in self-attention"),
    "sinusoidal": ({POSITION: "sinusoidal"}, "fixed sines added to the embeddings (Vaswani et al. 2017)"),
    "learned": (
        {POSITION: "learned", OPTIONS: ROWS},
        "one trained vector a position; rows past the training length exist and stay untrained",
    ),
    "shaw": (
        {POSITION: "shaw", OPTIONS: {"clip": 4}},
        "a learned vector for each offset up to 4, on the keys (Shaw et al. 2018)",
    ),
    "t5": ({POSITION: "t5", OPTIONS: T5}, "a learned bias for each bucket of distance (Raffel et al. 2020)"),
    "rope": ({POSITION: "rope"}, "queries and keys rotated by position (Su et al. 2021)"),
    "alibi": ({POSITION: "alibi"}, "a fixed penalty on distance (Press et al. 2022)"),
}
