"""What the tasks on text share: a cleaned corpus, its division, its tokens."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora import Corpus
from transformer_ablate.data.examples import PackedSequences, Pairs, TestSet
from transformer_ablate.data.scores import TextScorer
from transformer_ablate.data.synthetic import length_buckets
from transformer_ablate.data.task import Task, TaskData, make_task
from transformer_ablate.data.tokenizer import TextVocabulary, build_vocabularies
from transformer_ablate.errors import ConfigError

TEST_SHARE = VALID_SHARE = 0.05
# Texts that are encoded at a time: lists of integers take many times the memory of the arrays that they become.
TEXTS_AT_ONCE = 50_000
# Test sets past the training length are left out where they have fewer examples.
SMALLEST_TEST_SET = 30
# What content depends on; the rest of a config says how much of it is used and in what units.
CONTENT = ("task", "task_options", "source", "config", "source_column", "target_column", "swap")


@dataclass(frozen=True)
class Examples:
    """A cleaned corpus as text, in an order that its content alone decides, and its division.

    Args:
        sources, targets: distinct pairs, n of them.
        families: hash of each one's family, shape (n,), uint64; no family is divided.
        dropped: how many examples were not kept, by reason.
        corpus: what was read, with its faulty records.
    """

    sources: Sequence[str]
    targets: Sequence[str]
    families: np.ndarray
    dropped: Counter[str]
    corpus: Corpus

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def parts(self) -> dict[str, np.ndarray]:
        """Ascending indices of ``train``, ``valid`` and ``test``: about 90, 5 and 5 % of the families."""
        share = self.families / 2.0**64
        test, valid = share < TEST_SHARE, (share >= TEST_SHARE) & (share < TEST_SHARE + VALID_SHARE)
        return {
            name: np.flatnonzero(rows) for name, rows in (("train", ~test & ~valid), ("valid", valid), ("test", test))
        }

    @property
    def notes(self) -> list[str]:
        """What was read and what was left out, for people: one line each."""
        corpus, left_out = self.corpus, Counter(self.dropped)
        left_out |= corpus.notes
        left_out |= {"faulty records": corpus.n_faults, "blank records": corpus.blank}
        listed = [f"left out, {what}: {n}" for what, n in left_out.items() if n]
        return [f"{corpus.name}: {corpus.records} records read, {len(self)} examples kept", *listed]


@dataclass(frozen=True)
class TextData(TaskData):
    """A task's examples with what is known about their corpus.

    Args:
        columns: what source and target are called where they come from, e.g. ``("English", "zh_CN")``.
    """

    columns: tuple[str, ...] = ()


class TextTask(Task):
    """Base of the tasks on text. Subclasses are frozen dataclasses: equal ones share a cleaned corpus.

    About 90/5/5 by a hash that never changes, families of near-duplicates together (see
    :func:`transformer_ablate.data.cleaning.families`). Vocabularies are made from training text. ``max_length`` is N:
    training, validation and the first test set hold the pairs whose source and target have at most N tokens; further
    test sets hold longer sources, with targets of any length. A source with several targets is one training pair for
    each; tests ask for it once and accept all of them. Where a set is limited in size, the examples of the smallest
    hash are kept, so that a smaller set is part of a larger one.
    """

    @abc.abstractmethod
    def examples(self, config: DataConfig) -> Examples:
        """Reads and cleans the corpus that ``config`` names.

        Raises:
            ConfigError: where there is none, or it cannot be read.
        """

    def load(self, config: DataConfig) -> TextData:
        """See :meth:`Task.load`; sizes of valid and test count sources, of train pairs."""
        examples = _examples(self, _content(config))
        examples.corpus.check_faults()
        for part, rows in examples.parts.items():
            if not len(rows):
                here = f"of {len(examples)} usable examples in this one none falls into {part}"
                raise ConfigError("data.source", examples.corpus.name, f"a corpus that can be divided; {here}")
        sources, targets = ([side[i] for i in examples.parts["train"]] for side in (examples.sources, examples.targets))
        vocabularies = build_vocabularies(
            config.tokenizer, sources, targets, config.tokenizer_size, config.joint_vocabulary
        )
        train, valid, test = (
            _encoded(examples, part, vocabularies, config.max_length, most)
            for part, most in (("train", config.train_examples), ("valid", config.valid_examples), ("test", 0))
        )
        asked = [rows[0] for rows in valid.by_source(valid.short)][: config.valid_examples]
        test_sets = _test_sets(test, config)
        if not (len(train.short) and asked and test_sets and test_sets[0].ratio == 1):
            typical = int(np.median(np.maximum(test.pairs.source.lengths, test.pairs.target.lengths)))
            allowed = f"enough tokens for training, validation and test examples: half of them have up to {typical}"
            raise ConfigError("data.max_length", config.max_length, allowed)
        kept = train.short[: config.train_examples or None]
        limit = f"at most {config.max_length} tokens a side"
        sizes = f"{len(kept)} training pairs, {len(asked)} validation and {len(test_sets[0])} test sources"
        return TextData(
            name=config.task,
            train=_framed(train.pairs, kept),
            valid=_framed(valid.pairs, asked),
            test=test_sets,
            source_vocabulary=vocabularies[0],
            target_vocabulary=vocabularies[1],
            exact=False,
            scorer=TextScorer.for_text(targets),
            notes=(*examples.notes, f"{' to '.join(examples.corpus.columns)}, {limit}: {sizes}"),
            title=f"{config.task} of {examples.corpus.name}: {' to '.join(examples.corpus.columns)}",
            columns=examples.corpus.columns,
        )


def examples_of(config: DataConfig) -> Examples:
    """The cleaned corpus of ``config``; the last one is kept for runs that differ in lengths, sizes or tokens.

    Raises:
        ConfigError: as :meth:`TextTask.examples`, and where ``config.task`` is no task on text.
    """
    task = make_task(config)
    if not isinstance(task, TextTask):
        raise ConfigError("data.task", config.task, "a task on text: translation, continuation")
    return _examples(task, _content(config))


def _content(config: DataConfig) -> DataConfig:
    return DataConfig(**{name: getattr(config, name) for name in CONTENT})


@lru_cache(maxsize=1)
def _examples(task: TextTask, config: DataConfig) -> Examples:
    return task.examples(config)


@dataclass(frozen=True)
class _Encoded:
    """Examples of one part as tokens: their source texts, and their pairs without BOS and EOS.

    ``short`` are the indices of those with at most N tokens on either side, of all that were encoded.
    """

    sources: Sequence[str]
    pairs: Pairs
    short: np.ndarray

    def by_source(self, rows: np.ndarray) -> list[list[int]]:
        """``rows`` grouped by their source text, in order."""
        groups: dict[str, list[int]] = {}
        for row in rows.tolist():
            groups.setdefault(self.sources[row], []).append(row)
        return list(groups.values())


def _encoded(
    examples: Examples, part: str, vocabularies: Sequence[TextVocabulary], longest: int, most: int
) -> _Encoded:
    """Encodes a part, or as much of it as gives short examples of ``most`` sources; 0 for all."""
    rows, sides, short = examples.parts[part], (examples.sources, examples.targets), []
    found: set[str] = set()
    flat: tuple[list[np.ndarray], ...] = ([], [])
    lengths: tuple[list[np.ndarray], ...] = ([], [])
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        here = rows[start : start + TEXTS_AT_ONCE]
        fits = np.ones(len(here), dtype=bool)
        for side in range(2):
            packed = vocabularies[side].pack_texts([sides[side][i] for i in here])
            flat[side].append(packed.flat)
            lengths[side].append(packed.lengths)
            fits &= packed.lengths <= longest
        short.append(start + np.flatnonzero(fits))
        if most:
            found.update(examples.sources[i] for i in here[fits])
            if len(found) >= most:
                break
    source, target = (
        PackedSequences.from_lengths(*map(np.concatenate, both)) for both in zip(flat, lengths, strict=True)
    )
    return _Encoded([examples.sources[i] for i in rows[: len(source)]], Pairs(source, target), np.concatenate(short))


def _framed(pairs: Pairs, rows: np.ndarray | Sequence[int]) -> Pairs:
    return Pairs(pairs.source.select(rows).framed(), pairs.target.select(rows).framed())


def _test_sets(encoded: _Encoded, config: DataConfig) -> tuple[TestSet, ...]:
    sets, lengths = [], encoded.pairs.source.lengths
    for name, ratio, low, high in length_buckets(config.max_length):
        rows = encoded.short if ratio == 1 else np.flatnonzero((lengths >= low) & (lengths <= high))
        groups = encoded.by_source(rows)[: config.test_examples]
        if len(groups) >= (1 if ratio == 1 else SMALLEST_TEST_SET):
            references = [[tuple(encoded.pairs.target[i].tolist()) for i in group] for group in groups]
            sets.append(TestSet(name, ratio, _framed(encoded.pairs, [group[0] for group in groups]), references))
    return tuple(sets)
