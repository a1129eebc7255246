"""What the tasks on random strings share: a base class draws the strings, a task says what a string's target is."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from transformer_ablate.config import DataConfig
from transformer_ablate.data.examples import PackedSequences, Pairs, TestSet
from transformer_ablate.data.stable import row_hashes, stable_generator
from transformer_ablate.data.task import Task, TaskData
from transformer_ablate.data.vocabulary import Vocabulary
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import N_SPECIALS

RATIOS = (1, 1.25, 1.5, 2, 3, 4)
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


class Sample(NamedTuple):
    """Examples, and what a perfect model says to their sources, without BOS and EOS.

    The pairs' targets are the answers, unless the task adds noise to its labels.
    """

    pairs: Pairs
    answers: PackedSequences


class SyntheticTask(Task):
    """Base of the tasks on random strings over ``vocab_size`` symbols, lengths uniform in [1, N].

    Strings of four symbols and more are divided by a hash of their content: a quarter of them can only occur in valid
    and test sets, the others only in training, so that no such test string is ever trained on, however small the
    space of strings is. All sets are frozen: they depend on the config alone.

    Where a subclass says nothing else, its source is the string, and its target a function of it: the best that a model
    can reach is an NLL of 0 and an accuracy of 1.
    """

    exact: ClassVar[bool] = True
    # Shorter strings are too few to keep any of them from training.
    shortest_held_out: ClassVar[int] = 4

    @abc.abstractmethod
    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The answer to each string.

        Args:
            symbols: ids from 4 on, padded with 0, shape (n, width); not to be written to.
            lengths: of the strings, shape (n,).

        Returns:
            padded target ids, shape (n, any width), and the targets' lengths, shape (n,); what stands behind a
            target's length is not looked at.
        """

    def alphabet(self, vocab_size: int) -> Sequence[str]:
        """The vocabulary of source and target; the strings are drawn from its first ``vocab_size`` symbols."""
        return [str(i) for i in range(vocab_size)]

    def length_limits(self, vocab_size: int) -> tuple[int, float]:
        """Lengths of the shortest and the longest string that the task can ask for."""
        return 1, math.inf

    def draw(self, generator: np.random.Generator, lengths: np.ndarray, width: int, vocab_size: int) -> np.ndarray:
        """Random strings, shape (n, width); what stands behind ``lengths``, shape (n,), is not looked at."""
        return generator.integers(N_SPECIALS, N_SPECIALS + vocab_size, size=(len(lengths), width))

    def identities(self, symbols: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """A hash of each string, shape (n,), uint64; strings of one hash are kept on one side of the division."""
        return row_hashes(symbols, lengths)

    def sources(
        self, generator: np.random.Generator, symbols: np.ndarray, lengths: np.ndarray, vocab_size: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What the model is given for each string: ids and lengths as :meth:`targets` returns them."""
        return symbols, lengths

    def labels(self, generator: np.random.Generator, answers: np.ndarray, vocab_size: int) -> np.ndarray:
        """What is trained and scored as the target in place of ``answers``, shape (n, width)."""
        return answers

    def alignment(self, source_length: int, target_length: int) -> np.ndarray | None:
        """Where in its source each target symbol stands, shape (target_length,); None if lengths do not tell."""
        return None

    def load(self, config: DataConfig) -> TaskData:
        """See :meth:`Task.load`; ``max_length`` is N, the length of the strings, which a source may exceed."""
        if config.train_examples == 0:
            allowed = "at least 1: a synthetic task has no natural size"
            raise ConfigError("data.train_examples", 0, allowed, "give the number of strings, e.g. 100000")
        shortest, longest = self.length_limits(config.vocab_size)
        if not shortest <= config.max_length <= longest:
            allowed = f"at least {shortest}" if longest == math.inf else f"{shortest} to {longest}"
            why = f"with these data.vocab_size and data.task_options of {config.task!r}"
            raise ConfigError("data.max_length", config.max_length, f"{allowed} {why}")
        vocabulary = Vocabulary(self.alphabet(config.vocab_size), joiner=" ")
        test = []
        for name, ratio, low, high in length_buckets(config.max_length):
            if high <= longest:
                bucket = max(low, shortest), high
                pairs, answers = self._part(config, f"test {name}", config.test_examples, bucket, held_out=True)
                test.append(TestSet(name, ratio, pairs, [(tuple(answer.tolist()),) for answer in answers]))
        seen = shortest, config.max_length
        return TaskData(
            name=config.task,
            train=self._part(config, "train", config.train_examples, seen, held_out=False).pairs,
            valid=self._part(config, "valid", config.valid_examples, seen, held_out=True).pairs,
            test=tuple(test),
            source_vocabulary=vocabulary,
            target_vocabulary=vocabulary,
            exact=self.exact,
            alignment=self.alignment,
        )

    def _part(self, config: DataConfig, part: str, n: int, length: tuple[int, int], held_out: bool) -> Sample:
        # Seeded by the size of the alphabet: where vocab_size means nothing, it changes nothing.
        seed = config.task, part, config.max_length, len(self.alphabet(config.vocab_size))
        return self.sample(stable_generator(*seed), n, length, config.vocab_size, held_out)

    def sample(
        self,
        generator: np.random.Generator,
        n: int,
        length: tuple[int, int],
        vocab_size: int = 16,
        held_out: bool = False,
    ) -> Sample:
        """``n`` random strings with their targets.

        Args:
            generator: where the randomness comes from.
            n: number of strings.
            length: fewest and most symbols of a string; lengths are uniform between them, both included.
            vocab_size: number of distinct symbols.
            held_out: whether strings of four and more symbols come from the held-out quarter, without repetition as
                far as there are enough, or from the others.

        Raises:
            ConfigError: where there are too few different strings to hold any out.
        """
        lengths = generator.integers(length[0], length[1] + 1, size=n)
        symbols = self._strings(generator, lengths, vocab_size, held_out)
        answers, answer_lengths = self.targets(symbols, lengths)
        sources = PackedSequences.from_padded(*self.sources(generator, symbols, lengths, vocab_size))
        targets = PackedSequences.from_padded(self.labels(generator, answers, vocab_size), answer_lengths)
        return Sample(
            Pairs(sources.framed(), targets.framed()),
            PackedSequences.from_padded(answers, answer_lengths),
        )

    def _strings(
        self, generator: np.random.Generator, lengths: np.ndarray, vocab_size: int, held_out: bool
    ) -> np.ndarray:
        symbols = np.zeros((len(lengths), lengths.max(initial=0)), dtype=np.int32)
        hashes = np.zeros(len(lengths), dtype=np.uint64)
        rows = np.arange(len(lengths))
        for attempt in range(ROUNDS):
            drawn = self.draw(generator, lengths[rows], symbols.shape[1], vocab_size)
            symbols[rows] = np.where(np.arange(symbols.shape[1]) < lengths[rows, None], drawn, 0)
            hashes[rows] = self.identities(symbols[rows], lengths[rows])
            refused = (hashes < np.uint64(HELD_OUT_SHARE * 2**64)) != held_out
            if held_out and attempt < DISTINCT_ROUNDS:
                refused |= _repeated(hashes)
            rows = np.flatnonzero(refused & (lengths >= self.shortest_held_out))
            if not len(rows):
                return symbols
        raise ConfigError("data.vocab_size", vocab_size, "enough symbols to keep test strings out of training")


def _repeated(values: np.ndarray) -> np.ndarray:
    """True where a value stood earlier in the array already, shape (n,)."""
    repeated = np.ones(len(values), dtype=bool)
    repeated[np.unique(values, return_index=True)[1]] = False
    return repeated
