"""English and another language from the message catalogues (.mo) that programs bring along."""

from __future__ import annotations

import gettext
import importlib.util
import os
import struct
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from transformer_ablate.config import DataConfig
from transformer_ablate.data.corpora.base import Corpus
from transformer_ablate.errors import ConfigError, unknown_name

ENTRY_POINTS = "jupyterlab.languagepack"
MESSAGES = "LC_MESSAGES"
# What gettext puts between a message's context and the message.
CONTEXT_END = "\x04"


def read_packs(config: DataConfig, language: str, sides: int) -> Corpus:
    """Catalogues of the installed language packs of JupyterLab: their version is all that their content depends on."""
    return _read(config, f"packs:{language}", language, sides, _pack_folders)


def read_all(config: DataConfig, language: str, sides: int) -> Corpus:
    """All catalogues in the machine's locale folders and in Python packages, language packs included."""
    return _read(config, f"gettext:{language}", language, sides, _all_folders)


def matches(folder: str, language: str) -> bool:
    """Whether a locale folder holds the language asked for.

    ``zh_CN`` takes ``zh_CN``, ``zh_CN.UTF-8`` and ``zh``; ``de`` takes ``de`` and its territories, e.g. ``de_DE``.
    Other scripts and dialects (``sr@latin``) are taken only where they are asked for.
    """
    found = folder.partition(".")[0].replace("-", "_").lower()
    asked = language.partition(".")[0].replace("-", "_").lower()
    if found == asked:
        return True
    if "@" in found or "@" in asked:
        return False
    return found.partition("_")[0] == asked or asked.partition("_")[0] == found


def _read(
    config: DataConfig, name: str, language: str, sides: int, folders: Callable[[], Iterator[tuple[str, Path]]]
) -> Corpus:
    columns = ("English", language)
    if config.swap:
        columns = columns[::-1]
    corpus = Corpus(name, columns[:sides])
    found = sorted({(folder_language, path) for folder_language, path in folders() if path.is_dir()})
    # Their order decides nothing: examples are put into an order that their text alone gives.
    catalogues = [
        file
        for folder_language, path in found
        if matches(folder_language, language)
        for file in sorted(path.glob("*.mo"))
    ]
    if not language or not catalogues:
        known = sorted({folder_language for folder_language, path in found if any(path.glob("*.mo"))})
        if not known:
            fix = "pip install jupyterlab-language-pack-zh-CN (extra: corpora)"
            raise ConfigError("data.source", name, "a language whose catalogues are installed; there are none", fix)
        raise unknown_name("data.source", name, [f"{name.partition(':')[0]}:{other}" for other in known])
    for file in catalogues:
        messages = _messages(file)
        if messages is None:
            corpus.notes["unreadable catalogues"] += 1
            continue
        for number, pair in enumerate(messages, 1):
            corpus.add(f"{file}: message ", number, (pair[::-1] if config.swap else pair)[:sides])
    return corpus


def _messages(file: Path) -> list[tuple[str, str]] | None:
    """English messages and their translations, in the file's order; None where the file cannot be read.

    Of a message with plural forms the one for n = 1 is taken: its English is the singular.
    """
    try:
        with file.open("rb") as stream:
            catalogue = gettext.GNUTranslations(stream)
            singular = catalogue.plural(1)  # type: ignore[attr-defined]  # set while it parses
    except (OSError, ValueError, LookupError, struct.error):  # what faulty headers and tables give
        return None
    pairs = []
    for key, translation in catalogue._catalog.items():  # type: ignore[attr-defined]  # there is no public way in
        if isinstance(key, tuple):
            key, form = key
            if form != singular:
                continue
        message = key.rpartition(CONTEXT_END)[2]
        # The empty message is the file's header; an empty translation means none.
        if message.strip() and translation.strip():
            pairs.append((message, translation))
    return pairs


def _pack_folders() -> Iterator[tuple[str, Path]]:
    """Language and folder of catalogues of every installed language pack."""
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        spec = importlib.util.find_spec(entry.value.partition(":")[0])
        for root in (spec.submodule_search_locations or ()) if spec else ():
            yield from _locale_folders(Path(root) / "locale")


def _all_folders() -> Iterator[tuple[str, Path]]:
    """Language and folder of catalogues of the whole machine."""
    shares = [*os.environ.get("XDG_DATA_DIRS", "").split(os.pathsep), "/usr/local/share", "/usr/share"]
    shares += [os.path.join(prefix, "share") for prefix in (sys.prefix, sys.base_prefix)]  # noqa: PTH118
    for share in dict.fromkeys(filter(None, shares)):
        for name in ("locale", "locale-langpack"):
            yield from _locale_folders(Path(share) / name)
    for entry in map(Path, filter(None, sys.path)):
        # Folders of packages: those that pip has installed something into.
        if entry.is_dir() and next(entry.glob("*.dist-info"), None):
            for folder, inside, _ in os.walk(entry):
                if MESSAGES in inside:
                    yield Path(folder).name, Path(folder) / MESSAGES
                inside[:] = [name for name in inside if name not in ("__pycache__", MESSAGES)]


def _locale_folders(root: Path) -> Iterator[tuple[str, Path]]:
    if root.is_dir():
        for folder in root.iterdir():
            yield folder.name, folder / MESSAGES
