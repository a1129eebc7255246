"""What makes a corpus fit to be learnt from: placeholders, duplicates, near-duplicates, pairs that cannot be right."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from transformer_ablate.data.stable import row_hashes, string_hashes

# What a program puts values into: one token each, wherever text is divided into tokens. The syntax is also that of
# Oniguruma, which the library tokenizers uses; there are no groups that capture.
PLACEHOLDER = re.compile(
    r"%\(\w+\)[#0+-]?\d*(?:\.\d+)?[A-Za-z]"  # Python: %(name)s, %(size).1f
    # C: %s, %5.2f, %1$s, %lu; never behind a digit, where the sign means per cent, nor with a space as flag
    r"|(?<![0-9])%(?:[0-9]+\$)?[#0+'-]*(?:[0-9]+|\*)?(?:\.(?:[0-9]+|\*))?(?:hh|ll|[hlLqjzt])?[diouxXeEfFgGaAcspn]"
    r"|%L?[0-9]{1,2}"  # Qt, JupyterLab: %1, %L1
    r"|[$%]\{[\w.]+\}"  # shells, Ruby: ${name}, %{name}
    r"|\{\{\s?[\w.]+\s?\}\}"  # templates: {{name}}
    r"|\{\w*(?:[.\[]\w+\]?)*(?:![rsa])?(?::[^{}\s]*)?\}"  # Python: {}, {0}, {name}, {user.name}, {size:.1f}
)
MAY_HOLD_PLACEHOLDER = re.compile(r"[%{]")

# A pair whose longer side has more than RATIO times the bytes of the shorter one, and a phrase's length more, is no
# translation. Bytes of UTF-8, because scripts that say more with a character take more bytes for it.
LENGTH_RATIO = 4.0
LENGTH_ALLOWANCE = 20

# A family of more examples than this, and of more than this share of all, is none.
LARGEST_FAMILY, LARGEST_SHARE = 100, 0.01

IDENTICAL, RATIO, DUPLICATE = "the same text on both sides", "lengths too different", "duplicates"


class _LettersAlone(dict[int, int | None]):
    """For ``str.translate``: deletes all but letters and the marks on them; looks each character up once."""

    def __missing__(self, character: int) -> int | None:
        self[character] = character if unicodedata.category(chr(character))[0] in "LM" else None
        return self[character]


_LETTERS_ALONE = _LettersAlone()
_NO_ASCII_LETTERS = bytes(i for i in range(128) if not chr(i).isalpha())


def content_key(text: str) -> str:
    """What is left of a text without case, digits, placeholders, punctuation and spaces; the text if that is nothing.

    Texts of one key are near-duplicates: ``Open 3 files…`` and ``open {n} files``.
    """
    bare = PLACEHOLDER.sub("", text) if MAY_HOLD_PLACEHOLDER.search(text) else text
    if bare.isascii():  # the same, many times as fast
        return bare.encode().lower().translate(None, _NO_ASCII_LETTERS).decode() or text
    return unicodedata.normalize("NFKC", bare).casefold().translate(_LETTERS_ALONE) or text


def text_hashes(*sides: Sequence[str]) -> np.ndarray:
    """One number for each example, shape (n,), uint64, from its text on each side, whichever side is the source."""
    hashes = np.zeros(len(sides[0]), dtype=np.uint64)
    for side in sides:
        hashes += string_hashes(side, "text")
    return hashes


def usable_pairs(sources: Sequence[str], targets: Sequence[str], ratio: float) -> tuple[np.ndarray, Counter[str]]:
    """Which pairs to keep: indices in order, shape (kept,), and how many were dropped for what reason.

    Args:
        sources, targets: tidy texts, not empty.
        ratio: largest ratio of the sides' bytes; see ``LENGTH_RATIO``.
    """
    kept, dropped = [], Counter[str]()
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if source == target:
            dropped[IDENTICAL] += 1
            continue
        shorter, longer = sorted((_bytes(source), _bytes(target)))
        if longer > ratio * shorter + LENGTH_ALLOWANCE:
            dropped[RATIO] += 1
        else:
            kept.append(i)
    rows = np.array(kept, dtype=np.int64)
    first = first_of_each(_pair_hashes([sources[i] for i in kept], [targets[i] for i in kept]))
    dropped[DUPLICATE] = len(rows) - len(first)
    return rows[first], +dropped


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _pair_hashes(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    # Not symmetric: a pair and the same pair the other way round are two.
    return string_hashes(sources, "text") * np.uint64(3) + string_hashes(targets, "text")


def first_of_each(values: np.ndarray) -> np.ndarray:
    """Where each value stands first: ascending indices, shape (distinct values,)."""
    return np.sort(np.unique(values, return_index=True)[1])


def families(*sides: Sequence[str]) -> np.ndarray:
    """A hash of each example's family: examples are related if they have a near-duplicate text on any side.

    Relations of relations count: a family is what they connect. Its hash is uniform and depends on nothing but its own
    texts: neither on their order nor on which side is the source. Where common answers ("Yes.") connect so many
    examples that a family could not be put on one side of a division, only the first side counts for these examples.

    Args:
        sides: for each side the texts of all examples, n each.

    Returns:
        shape (n,), uint64.
    """
    # Importing it takes longer than reading a small corpus; tasks without text do not need it.
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n = len(sides[0])
    hashes = [string_hashes(map(content_key, side), "content key") for side in sides]
    keys, nodes = np.unique(np.concatenate(hashes), return_inverse=True)
    links = np.tile(nodes[:n], len(sides)), nodes  # of each example: its first side with every side
    graph = coo_matrix((np.ones(len(nodes), dtype=bool), links), shape=(len(keys), len(keys)))
    count, component = connected_components(graph, directed=False)
    smallest = np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(smallest, component, keys)
    own, of_example = nodes[:n], component[nodes[:n]]
    hashes_of_examples = smallest[of_example]
    size = np.bincount(of_example, minlength=count)[of_example]
    too_large = size > max(LARGEST_FAMILY, LARGEST_SHARE * n)
    hashes_of_examples[too_large] = keys[own[too_large]]
    # The smallest of many numbers is small: hashed once more, all families have the same chances.
    return row_hashes(hashes_of_examples[:, None], np.ones(n, dtype=np.int64))
