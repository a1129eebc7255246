"""Tasks whose answer is the string itself, under one difficulty each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from transformer_ablate import registry
from transformer_ablate.data.synthetic.base import SyntheticTask
from transformer_ablate.errors import ConfigError
from transformer_ablate.options import whole
from transformer_ablate.tokens import N_SPECIALS


@registry.TASKS.register("copy")
class Copy(SyntheticTask):
    """x -> x."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return symbols, lengths

    def alignment(self, source_length: int, target_length: int) -> np.ndarray:
        return np.arange(source_length - target_length, source_length)  # what stands in front of the string is dropped


@registry.TASKS.register("copy-unique")
class CopyUnique(Copy):
    """x -> x where no symbol stands twice in x (Zhou et al. 2024, "What algorithms can Transformers learn?").

    The symbol written last alone tells what comes next. No string is longer than ``vocab_size``; test sets that would
    need longer ones are left out.
    """

    def length_limits(self, vocab_size: int) -> tuple[int, float]:
        return 1, vocab_size

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, width: int, vocab_size: int) -> np.ndarray:
        # Floyd's algorithm (Bentley & Floyd 1987): a uniform subset of `width` symbols, with no row of vocab_size.
        chosen = np.empty((len(lengths), width), dtype=np.int32)
        for column in range(width):
            last = vocab_size - width + column
            drawn = generator.integers(0, last + 1, size=len(lengths), dtype=np.int32)
            taken = (chosen[:, :column] == drawn[:, None]).any(axis=1)
            chosen[:, column] = np.where(taken, last, drawn)
        # The first symbols of a uniform order are a uniform string of any shorter length.
        return generator.permuted(chosen, axis=1) + N_SPECIALS


@registry.TASKS.register("skip-copy")
class SkipCopy(Copy):
    """p | x -> x: a random prefix of 0 to ``longest_prefix`` symbols is dropped, so that the offset varies.

    Buckets and N are lengths of x, and the prefix is drawn alike in all sets: past N nothing but x is longer than in
    training. A training source has up to ``longest_prefix`` + 1 + N symbols.

    Args:
        longest_prefix: most symbols in front of the separator; an integer at least 1.
    """

    def __init__(self, longest_prefix: int = 8) -> None:
        self.longest_prefix = whole("data.task_options.longest_prefix", longest_prefix, 1)

    def alphabet(self, vocab_size: int) -> Sequence[str]:
        return [*super().alphabet(vocab_size), "|"]

    def sources(
        self, generator: np.random.Generator, symbols: np.ndarray, lengths: np.ndarray, vocab_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        most, width = self.longest_prefix, symbols.shape[1]
        prefix = generator.integers(0, most + 1, size=len(lengths))
        place = np.arange(most + 1 + width) - prefix[:, None] - 1  # (n, most + 1 + width), in x; -1 for the separator
        source = np.take_along_axis(symbols, np.clip(place, 0, width - 1), axis=1)
        source[place == -1] = N_SPECIALS + vocab_size
        dropped = place[:, :most] < -1
        source[:, :most][dropped] = generator.integers(N_SPECIALS, N_SPECIALS + vocab_size, size=int(dropped.sum()))
        return source, prefix + 1 + lengths


@registry.TASKS.register("duplicate")
class Duplicate(SyntheticTask):
    """x -> x x ("duplicate string" of Delétang et al. 2023).

    In the second half, what is to be copied depends on the length of x as well as on the place in the target.
    """

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        again = np.arange(2 * symbols.shape[1]) % lengths[:, None]
        return np.take_along_axis(symbols, again, axis=1), 2 * lengths

    def alignment(self, source_length: int, target_length: int) -> np.ndarray:
        return np.arange(target_length) % source_length


@registry.TASKS.register("noisy-copy")
class NoisyCopy(Copy):
    """x -> x with each target symbol replaced by a uniform other one at a rate (noise of Angluin & Laird 1988).

    Valid and test targets carry the noise as well, since a model is calibrated where its probabilities are those of the
    labels that it is scored on; greedy outputs are scored against x itself, which is the most probable answer. With r
    for ``noise``, V for ``vocab_size`` and a mean length m, the best that a model can reach is

    * NLL: h m / (m + 1) nats a token, where h = -(1 - r) ln(1 - r) - r ln(r / (V - 1)) and EOS is certain;
    * token accuracy under the gold prefix: ((1 - r) m + 1) / (m + 1), with just that mean confidence;
    * exact match of greedy outputs: 1.

    Args:
        noise: r; above 0 and below 0.5, so that x stays the most probable answer over any alphabet.
    """

    exact: ClassVar[bool] = False

    def __init__(self, noise: float = 0.1) -> None:
        number = isinstance(noise, (int, float)) and not isinstance(noise, bool) and math.isfinite(noise)
        if not number or not 0 < noise < 0.5:
            raise ConfigError("data.task_options.noise", noise, "a number above 0 and below 0.5")
        self.noise = noise

    def labels(self, generator: np.random.Generator, answers: np.ndarray, vocab_size: int) -> np.ndarray:
        replaced = generator.random(answers.shape) < self.noise
        step = generator.integers(1, vocab_size, size=answers.shape)  # round the alphabet, never back to where it began
        return np.where(replaced, (answers - N_SPECIALS + step) % vocab_size + N_SPECIALS, answers)
