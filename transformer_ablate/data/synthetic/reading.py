"""Tasks whose answer is something about the string: part of it, its parity, a sum."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from transformer_ablate import registry
from transformer_ablate.data.stable import row_hashes
from transformer_ablate.data.synthetic.base import SyntheticTask
from transformer_ablate.options import whole
from transformer_ablate.tokens import N_SPECIALS

PLUS, EQUALS = N_SPECIALS + 10, N_SPECIALS + 11


@registry.TASKS.register("first-k")
class FirstK(SyntheticTask):
    """x -> the first ``k`` symbols of x, or all where there are fewer.

    Args:
        k: an integer at least 1.
    """

    def __init__(self, k: int = 3) -> None:
        self.k = whole("data.task_options.k", k, 1)

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return symbols, np.minimum(lengths, self.k)


@registry.TASKS.register("recall")
class Recall(SyntheticTask):
    """x -> the one symbol that stands ``distance`` from the end of x; the last one stands at distance 1.

    The answer depends on that token alone: a recurrent encoder must carry it over ``distance`` - 1 others, whatever the
    length. Lengths are uniform in [``distance``, N]. A model that guesses is right with probability 1 / ``vocab_size``.

    Args:
        distance: an integer from 1 to N.
        shortest: lengths are uniform in [max(``distance``, ``shortest``), N].
    """

    def __init__(self, distance: int = 4, shortest: int = 1) -> None:
        self.distance, self.shortest = (
            whole("data.task_options.distance", distance, 1),
            whole("data.task_options.shortest", shortest, 1),
        )

    def length_limits(self, vocab_size: int) -> tuple[int, float]:
        return max(self.distance, self.shortest), math.inf

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.take_along_axis(symbols, lengths[:, None] - self.distance, axis=1), np.ones_like(lengths)


@registry.TASKS.register("parity")
class Parity(SyntheticTask):
    """Bits -> one bit, whether the number of ones is odd ("parity check" of Delétang et al. 2023).

    ``vocab_size`` is not used. A model that guesses is right half of the time, at an NLL of ln(2) / 2 nats a token (EOS
    is certain).
    """

    def alphabet(self, vocab_size: int) -> Sequence[str]:
        return "01"

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, width: int, vocab_size: int) -> np.ndarray:
        return generator.integers(N_SPECIALS, N_SPECIALS + 2, size=(len(lengths), width))

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        odd = (symbols == N_SPECIALS + 1).sum(axis=1, keepdims=True) % 2
        return odd + N_SPECIALS, np.ones_like(lengths)


@registry.TASKS.register("addition")
class Addition(SyntheticTask):
    """a + b = -> the decimal sum, each number with its least significant digit first (Lee et al. 2024).

    ``vocab_size`` is not used. N and buckets count the digits of a, of which b has as many; no number ends in a zero
    but 0 itself. A source of n digits a number has 2 n + 2 symbols. Internally a string's symbols are pairs of digits,
    10 a + b. Sums of two digits and more are held out in both orders of the summands.
    """

    shortest_held_out: ClassVar[int] = 2

    def alphabet(self, vocab_size: int) -> Sequence[str]:
        return string.digits + "+="

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, width: int, vocab_size: int) -> np.ndarray:
        digits = generator.integers(0, 10, size=(2, len(lengths), width))
        long = np.flatnonzero(lengths > 1)
        digits[:, long, lengths[long] - 1] = generator.integers(1, 10, size=(2, len(long)))
        return 10 * digits[0] + digits[1]

    def identities(self, symbols: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        a, b = np.divmod(symbols, 10)
        return row_hashes(a, lengths) + row_hashes(b, lengths)

    def sources(
        self, generator: np.random.Generator, symbols: np.ndarray, lengths: np.ndarray, vocab_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        a, b = np.divmod(symbols, 10)
        place = np.arange(2 * symbols.shape[1] + 2)
        plus = lengths[:, None]
        both = np.concatenate([a, b], axis=1) + N_SPECIALS
        # Of b's digits the first stands behind a's padded row.
        digit = np.where(place < plus, place, np.minimum(place - plus - 1 + symbols.shape[1], both.shape[1] - 1))
        source = np.take_along_axis(both, digit, axis=1)
        source[place == plus] = PLUS
        source[place == 2 * plus + 1] = EQUALS
        return source, 2 * lengths + 2

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros((len(lengths), symbols.shape[1] + 1), dtype=symbols.dtype)
        sums[:, :-1] = symbols // 10 + symbols % 10
        for column in range(symbols.shape[1]):
            sums[:, column + 1] += sums[:, column] // 10
        carried = np.take_along_axis(sums, lengths[:, None], axis=1)[:, 0] > 0
        return sums % 10 + N_SPECIALS, lengths + carried
