"""English grapheme-to-phoneme and back: spelled words to phones, from the CMU Pronouncing Dictionary."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from transformer_ablate import registry
from transformer_ablate.config import DataConfig
from transformer_ablate.data.examples import Pairs, TestSet
from transformer_ablate.data.lexicon import LETTERS, Questions, families, lexicon, questions
from transformer_ablate.data.task import Task, TaskData
from transformer_ablate.errors import ConfigError

TEST_SHARE = VALID_SHARE = 0.05


def length_ranges(longest: int) -> list[tuple[str, int, int]]:
    """Name, fewest and most tokens of each test set under ``split=length``; empty ranges are dropped.

    Args:
        longest: N, tokens of the longest training source; the ranges are up to N, N+1, N+2 to N+3, N+4 to 2N.
    """
    ranges = [(longest + 1, longest + 1), (longest + 2, longest + 3), (longest + 4, 2 * longest)]
    named = [(f"{low}" if low == high else f"{low}-{high}", low, high) for low, high in ranges if low <= high]
    return [(f"{longest}", 1, longest), *named]


@registry.TASKS.register("g2p")
class GraphemeToPhoneme(Task):
    """Letters to stressless phones; a word with several pronunciations is one training pair for each.

    Splits, about 90/5/5 by a hash that never changes: ``random`` divides words, ``stem`` divides families of inflected
    forms (see :func:`stem`), both among the words of at most ``max_length`` letters; ``length`` trains on words of at
    most ``max_length`` letters and tests on held-out words of that length and on longer ones by range. Where a set is
    limited in size, the words of the smallest hash are kept, so that a smaller set is part of a larger one. Tests ask
    for a word once and accept every pronunciation.
    """

    backwards: ClassVar[bool] = False

    def load(self, config: DataConfig) -> TaskData:
        """See :meth:`Task.load`; sizes of valid and test count sources, of train pairs."""
        asked = questions(self.backwards)
        keys = families(stems=config.split == "stem", sounds=self.backwards)[asked.words]
        order, lengths = asked.order, asked.sources.lengths
        share = keys[order] / 2.0**64  # in hash order from here on
        short = lengths[order] <= config.max_length
        train = order[short & (share >= TEST_SHARE + VALID_SHARE)]
        valid = order[short & (share >= TEST_SHARE) & (share < TEST_SHARE + VALID_SHARE)]
        held_out = order[short & (share < TEST_SHARE)]
        if not (len(train) and len(valid) and len(held_out)):
            raise ConfigError("data.max_length", config.max_length, "enough tokens for train, valid and test words")
        test = [_test_set(asked, config, "test", 1.0, held_out)]
        if config.split == "length":
            test = []
            # Longer sources are tested wherever their hash falls, unless a shorter one of their family was seen.
            unseen = order[~np.isin(keys[order], keys[np.concatenate([train, valid])])]
            for name, low, high in length_ranges(config.max_length):
                among = held_out if low == 1 else unseen[(lengths[unseen] >= low) & (lengths[unseen] <= high)]
                if len(among):
                    test.append(_test_set(asked, config, name, high / config.max_length, among))
        letters_and_phones = LETTERS, lexicon().phones
        source, target = reversed(letters_and_phones) if self.backwards else letters_and_phones
        return TaskData(
            name=config.task,
            train=_every_answer(asked, train, config.train_examples),
            valid=_first_answer(asked, valid[: config.valid_examples]),
            test=tuple(test),
            source_vocabulary=source,
            target_vocabulary=target,
            exact=False,
            title=f"{config.task}, English words of up to {config.max_length} letters, {config.split} split",
        )


@registry.TASKS.register("p2g")
class PhonemeToGrapheme(GraphemeToPhoneme):
    """Stressless phones to letters: g2p backwards, the spelling half of speech recognition.

    A phone string with several spellings (homophones: R EH D is read and red) is one training pair for each, and tests
    ask for it once and accept every spelling. Splits, ``max_length`` and ranges are those of g2p with phone strings in
    place of words. So that neither a source nor an answer of training is ever tested, all words that have a
    pronunciation in common stay on one side, under ``stem`` with all the forms of each of them, and ``length`` leaves
    out the longer pronunciations of words that were trained on.
    """

    backwards: ClassVar[bool] = True


def _pairs(asked: Questions, sources: np.ndarray, answers: np.ndarray) -> Pairs:
    return Pairs(asked.sources.select(sources).framed(), asked.answers.select(answers).framed())


def _first_answer(asked: Questions, sources: np.ndarray) -> Pairs:
    return _pairs(asked, sources, asked.first[sources])


def _every_answer(asked: Questions, sources: np.ndarray, most: int) -> Pairs:
    """One pair for each source and answer, in the order of the sources; the first ``most``, or all for 0."""
    counts = asked.first[sources + 1] - asked.first[sources]
    starts = np.cumsum(counts) - counts
    answers = np.arange(counts.sum()) + np.repeat(asked.first[sources] - starts, counts)
    keep = slice(most or None)
    return _pairs(asked, np.repeat(sources, counts)[keep], answers[keep])


def _test_set(asked: Questions, config: DataConfig, name: str, ratio: float, sources: np.ndarray) -> TestSet:
    sources = sources[: config.test_examples]
    references = [
        [tuple(asked.answers[i].tolist()) for i in range(asked.first[source], asked.first[source + 1])]
        for source in sources
    ]
    return TestSet(name, ratio, _first_answer(asked, sources), references)
