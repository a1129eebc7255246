"""What a task is: a named source of training pairs, a validation set and test sets by length."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from transformer_ablate import registry
from transformer_ablate.config import DataConfig
from transformer_ablate.data.examples import Pairs, TestSet
from transformer_ablate.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformer_ablate.data.scores import TextScorer


# Lengths of a source and of its target in symbols, without BOS and EOS -> index in the source of the symbol that each
# target symbol is a copy of, (target length,); None where lengths alone do not tell.
Alignment = Callable[[int, int], np.ndarray | None]


def unaligned(source_length: int, target_length: int) -> np.ndarray | None:
    """The alignment of tasks that know of none."""
    return None


@dataclass(frozen=True)
class TaskData:
    """One task's examples, ready for batching; shared between runs, so it is never written to.

    Args:
        name: the task's registered name.
        train, valid: pairs with BOS and EOS; ``valid`` is in distribution.
        test: test sets in order of length; the first is in distribution.
        source_vocabulary, target_vocabulary: what the ids mean.
        exact: True where the target is a function of the source, so that a perfect model scores 1.
        scorer: how outputs are scored as text; None where they are no text.
        alignment: which source symbol each target symbol comes from, where the task knows.
        notes: what people should know about the data, e.g. what was left out; one line each.
        title: what is learnt of which corpus, for readers; empty where a study's own words say it.
    """

    name: str
    train: Pairs
    valid: Pairs
    test: tuple[TestSet, ...]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    exact: bool
    scorer: TextScorer | None = None
    alignment: Alignment = unaligned
    notes: tuple[str, ...] = ()
    title: str = ""

    @property
    def longest_source(self) -> int:
        """Longest training source in tokens, BOS and EOS included."""
        return int(self.train.source.lengths.max())

    @property
    def longest_target(self) -> int:
        """Longest training target in tokens, BOS and EOS included."""
        return int(self.train.target.lengths.max())

    @property
    def joint_vocabulary(self) -> bool:
        """Whether source and target use one list of symbols, so that their embeddings may be tied."""
        return self.source_vocabulary.symbols == self.target_vocabulary.symbols

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) over the arrays of train, valid and test and over the vocabularies."""
        digest = hashlib.sha256()
        parts: list[Pairs | TestSet] = [self.train, self.valid, *self.test]
        for part in parts:
            part.update(digest)
        for vocabulary in (self.source_vocabulary, self.target_vocabulary):
            digest.update(("vocabulary " + "\x1f".join(vocabulary.symbols) + ";").encode())
        return digest.hexdigest()


class Task(abc.ABC):
    """A task registers itself with ``@registry.TASKS.register(NAME)``; a plugin's task does the same.

    A constructor's arguments are what ``data.task_options`` may hold; one that refuses a value raises ConfigError.
    ``version`` is raised by hand whenever the same config comes to mean other data or another score.
    """

    version: ClassVar[int] = 1

    @abc.abstractmethod
    def load(self, config: DataConfig) -> TaskData:
        """The task's data, a function of ``config`` alone.

        Raises:
            ConfigError: where the task cannot be had in this size or shape.
        """


def make_task(config: DataConfig) -> Task:
    """The task that ``config`` names, with its options.

    Raises:
        ConfigError: for an unknown task, an option that it does not have, or a value that it refuses.
    """
    registry.TASKS.check_options(config.task, config.task_options, given=())
    task: Task = registry.TASKS[config.task](**config.task_options)
    return task


def load_task(config: DataConfig) -> TaskData:
    """The data of ``config.task``; one copy is kept in the process for all runs that differ only in batching.

    Raises:
        ConfigError: for what :func:`make_task` refuses, and for a size or shape that the task cannot have.
    """
    usual = DataConfig()
    content = dataclasses.replace(
        config,
        batch_tokens=usual.batch_tokens,
        length_buckets=usual.length_buckets,
        loader_workers=usual.loader_workers,
        pad_to=usual.pad_to,
    )
    data = _load(registry.TASKS[config.task], content)
    if not config.pad_to:
        return data
    return dataclasses.replace(data, train=dataclasses.replace(data.train, least_width=config.pad_to))


@lru_cache(maxsize=16)
def _load(task: type[Task], config: DataConfig) -> TaskData:
    # The class is part of the key: a plugin that is loaded again has another one of the same name.
    return make_task(config).load(config)
