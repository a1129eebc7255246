"""Tasks on text: translation of any parallel corpus, continuation of any text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

import numpy as np

from transformer_ablate import registry
from transformer_ablate.config import DataConfig
from transformer_ablate.data.cleaning import (
    DUPLICATE,
    LENGTH_RATIO,
    PLACEHOLDER,
    families,
    first_of_each,
    text_hashes,
    usable_pairs,
)
from transformer_ablate.data.corpora import read_corpus
from transformer_ablate.data.text import Examples, TextTask
from transformer_ablate.errors import ConfigError


@registry.TASKS.register("translation")
@dataclass(frozen=True)
class Translation(TextTask):
    """Pairs of texts, from any parallel corpus that ``data.source`` names (see :mod:`transformer_ablate.data.corpora`).

    Left out, and counted: pairs of equal texts, pairs of too different lengths, duplicates.

    Args:
        max_ratio: most bytes of the longer side for each byte of the shorter one, give or take a short phrase.
    """

    max_ratio: float = LENGTH_RATIO

    def __post_init__(self) -> None:
        if not isinstance(self.max_ratio, (int, float)) or not self.max_ratio >= 1:
            raise ConfigError("data.task_options.max_ratio", self.max_ratio, "a number at least 1")

    def examples(self, config: DataConfig) -> Examples:
        corpus = read_corpus(config, sides=2)
        rows, dropped = usable_pairs(corpus.sides[0], corpus.sides[1], self.max_ratio)
        sources, targets = ([side[i] for i in rows] for side in corpus.sides)
        order = np.argsort(text_hashes(sources, targets), kind="stable")
        related = families(sources, targets)[order]
        return Examples([sources[i] for i in order], [targets[i] for i in order], related, dropped, corpus)


@registry.TASKS.register("continuation")
@dataclass(frozen=True)
class Continuation(TextTask):
    """Texts cut in two: the first part is the source, the rest the target (text generation from a prompt).

    Of a parallel corpus the source side is taken, under ``data.swap`` the target side. A text is cut at the space that
    is nearest to the place asked for; where none is near, as in scripts without spaces, between two characters.

    Args:
        share: of a text's characters that are the source, above 0 and below 1.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.share, (int, float)) or not 0 < self.share < 1:
            raise ConfigError("data.task_options.share", self.share, "a number above 0 and below 1")

    def examples(self, config: DataConfig) -> Examples:
        corpus = read_corpus(config, sides=1)
        texts = corpus.sides[0]
        hashes = text_hashes(texts)
        distinct = first_of_each(hashes)
        order = distinct[np.argsort(hashes[distinct], kind="stable")]
        cut = [divided(texts[i], self.share) for i in order]
        kept = [i for i, (source, target) in enumerate(cut) if source and target]
        dropped = Counter({DUPLICATE: len(texts) - len(distinct), "too short to be divided": len(cut) - len(kept)})
        # Neither a text nor the beginning of one is on two sides of the division.
        related = families([texts[i] for i in order[kept]], [cut[i][0] for i in kept])
        return Examples([cut[i][0] for i in kept], [cut[i][1] for i in kept], related, +dropped, corpus)


def divided(text: str, share: float) -> tuple[str, str]:
    """The two parts of a text, without the space between them; both are empty where it cannot be divided."""
    asked = share * len(text)
    nearest = min((space.start() for space in re.finditer(" ", text)), key=lambda at: abs(at - asked), default=-1)
    # A quarter of the text away is near enough.
    if nearest >= 0 and abs(nearest - asked) <= len(text) / 4:
        return text[:nearest], text[nearest + 1 :]
    whole = [placeholder.span() for placeholder in PLACEHOLDER.finditer(text)]
    places = [
        at
        for at in range(1, len(text))
        if not unicodedata.combining(text[at])  # an accent stays with its letter
        and not (_cased(text[at - 1]) and _cased(text[at]))
        and not any(start < at < end for start, end in whole)
    ]
    at = min(places, key=lambda at: abs(at - asked), default=0)
    return (text[:at].rstrip(), text[at:].lstrip()) if at else ("", "")


def _cased(character: str) -> bool:
    """Whether it is a letter of a script with capitals: all of these put spaces between words, which stay whole."""
    return character.lower() != character.upper()
