"""Tasks on random strings: unlimited data, known answers, any length.

A base class draws the strings; a task only says what the target of a string is.
"""

from __future__ import annotations

import abc

import numpy as np

from transformer_ablate import registry
from transformer_ablate.config import DataConfig
from transformer_ablate.data.examples import PackedSequences, Pairs, TestSet
from transformer_ablate.data.stable import row_hashes, stable_generator
from transformer_ablate.data.task import Task, TaskData
from transformer_ablate.data.vocabulary import N_SPECIALS, Vocabulary
from transformer_ablate.errors import ConfigError

RATIOS = (1, 1.25, 1.5, 2, 3, 4)
SHORTEST_HELD_OUT = 4  # shorter strings are too few to keep any of them from training
HELD_OUT_SHARE = 0.25
ROUNDS = 256  # of re-drawing; a string is refused in one round with probability 1 - HELD_OUT_SHARE at most
DISTINCT_ROUNDS = 32  # after which repeated strings are accepted: there may not be enough different ones


def length_buckets(longest: int) -> list[tuple[str, float, int, int]]:
    """Name, ratio, shortest and longest length of each test set; ranges that N leaves empty are dropped.

    Args:
        longest: N, the longest training string in symbols.
    """
    buckets, below = [], 0
    for ratio in RATIOS:
        bound = int(ratio * longest)
        if bound > below:
            buckets.append((f"{ratio:g}", float(ratio), below + 1, bound))
            below = bound
    return buckets


class SyntheticTask(Task):
    """Base of the tasks on random strings over ``vocab_size`` symbols, lengths uniform in [1, N].

    Strings of four symbols and more are divided by a hash of their content: a quarter of them can only occur in valid
    and test sets, the others only in training, so that no such test string is ever trained on, however small the
    space of strings is. All sets are frozen: they depend on the config alone.
    """

    @abc.abstractmethod
    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The target of each string.

        Args:
            symbols: ids from 4 on, padded with 0, shape (n, width); not to be written to.
            lengths: of the strings, shape (n,).

        Returns:
            padded target ids, shape (n, any width), and the targets' lengths, shape (n,); what stands behind a
            target's length is not looked at.
        """

    def load(self, config: DataConfig) -> TaskData:
        """See :meth:`Task.load`; ``max_length`` is N."""
        n = config.train_examples
        if n == 0:
            allowed = "at least 1: a synthetic task has no natural size"
            raise ConfigError("data.train_examples", n, allowed, "give the number of strings, e.g. 100000")
        vocabulary = Vocabulary([str(i) for i in range(config.vocab_size)], joiner=" ")
        test = []
        for name, ratio, shortest, longest in length_buckets(config.max_length):
            pairs = self._draw(config, f"test {name}", config.test_examples, shortest, longest, held_out=True)
            references = [(tuple(target[1:-1].tolist()),) for target in pairs.target]
            test.append(TestSet(name, ratio, pairs, references))
        return TaskData(
            name=config.task,
            train=self._draw(config, "train", n, 1, config.max_length, held_out=False),
            valid=self._draw(config, "valid", config.valid_examples, 1, config.max_length, held_out=True),
            test=tuple(test),
            source_vocabulary=vocabulary,
            target_vocabulary=vocabulary,
            exact=True,
        )

    def _draw(self, config: DataConfig, part: str, n: int, shortest: int, longest: int, held_out: bool) -> Pairs:
        generator = stable_generator(config.task, part, config.max_length, config.vocab_size)
        lengths = generator.integers(shortest, longest + 1, size=n)
        return self.sample(generator, lengths, config.vocab_size, held_out)

    def sample(self, generator: np.random.Generator, lengths: np.ndarray, vocab_size: int, held_out: bool) -> Pairs:
        """Random strings of the given lengths with their targets.

        Args:
            generator: where the randomness comes from.
            lengths: of the strings in symbols, shape (n,).
            vocab_size: number of distinct symbols.
            held_out: whether strings of four and more symbols come from the held-out quarter, without repetition as
                far as there are enough, or from the others.

        Raises:
            ConfigError: where there are too few different strings to hold any out.
        """
        symbols = np.zeros((len(lengths), lengths.max(initial=0)), dtype=np.int32)
        hashes = np.zeros(len(lengths), dtype=np.uint64)
        rows = np.arange(len(lengths))
        for attempt in range(ROUNDS):
            drawn = generator.integers(N_SPECIALS, N_SPECIALS + vocab_size, size=(len(rows), symbols.shape[1]))
            symbols[rows] = np.where(np.arange(symbols.shape[1]) < lengths[rows, None], drawn, 0)
            hashes[rows] = row_hashes(symbols[rows], lengths[rows])
            refused = (hashes < np.uint64(HELD_OUT_SHARE * 2**64)) != held_out
            if held_out and attempt < DISTINCT_ROUNDS:
                refused |= _repeated(hashes)
            rows = np.flatnonzero(refused & (lengths >= SHORTEST_HELD_OUT))
            if not len(rows):
                sources = PackedSequences.from_padded(symbols, lengths)
                targets = PackedSequences.from_padded(*self.targets(symbols, lengths))
                return Pairs(sources.framed(), targets.framed())
        raise ConfigError("data.vocab_size", vocab_size, "enough symbols to keep test strings out of training")


def _repeated(values: np.ndarray) -> np.ndarray:
    """True where a value stood earlier in the array already, shape (n,)."""
    repeated = np.ones(len(values), dtype=bool)
    repeated[np.unique(values, return_index=True)[1]] = False
    return repeated


@registry.TASKS.register("copy")
class Copy(SyntheticTask):
    """x -> x."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return symbols, lengths


@registry.TASKS.register("reverse")
class Reverse(SyntheticTask):
    """x -> x from its last symbol to its first."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from_the_end = lengths[:, None] - 1 - np.arange(symbols.shape[1])
        return np.take_along_axis(symbols, np.maximum(from_the_end, 0), axis=1), lengths


@registry.TASKS.register("sort")
class Sort(SyntheticTask):
    """x -> the symbols of x in ascending order, each as often as it stands in x."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        past_all = np.iinfo(symbols.dtype).max  # padding must not come first
        inside = np.arange(symbols.shape[1]) < lengths[:, None]
        return np.sort(np.where(inside, symbols, past_all), axis=1), lengths
