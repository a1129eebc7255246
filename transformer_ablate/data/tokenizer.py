"""Vocabularies for text, learnt from the text itself once and kept on disk, however many processes ask for them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from transformer_ablate.data.cleaning import PLACEHOLDER
from transformer_ablate.data.text_vocabulary import KINDS, TextVocabulary, library
from transformer_ablate.errors import unknown_name
from transformer_ablate.paths import cache_directory

__all__ = ["KINDS", "TextVocabulary", "build_vocabularies"]

# Characters of either side that a vocabulary is learnt from; more of them change it little and take minutes.
CHARACTERS_LEARNT_FROM = 10_000_000
# Raised when the same text comes to give another vocabulary: what was kept before no longer counts.
CACHE_VERSION = 2


def build_vocabularies(
    kind: str, sources: Sequence[str], targets: Sequence[str], size: int, joint: bool
) -> tuple[TextVocabulary, TextVocabulary]:
    """Vocabularies for source and target text; learnt once and kept on disk, also where processes ask at one time.

    Args:
        kind: ``bpe``, ``char`` or ``word``.
        sources, targets: training text; the first 10 million characters of each are learnt from.
        size: most tokens of each vocabulary, special tokens not counted; bpe has as many as that.
        joint: one vocabulary for both, from both texts.

    Raises:
        ConfigError: for an unknown kind, for bpe with fewer than 256 tokens or more than the texts allow.
    """
    if kind not in KINDS:
        raise unknown_name("data.tokenizer", kind, KINDS)
    if joint:
        both = _learnt(kind, [*_beginning(sources), *_beginning(targets)], size)
        return both, both
    return _learnt(kind, _beginning(sources), size), _learnt(kind, _beginning(targets), size)


def _beginning(texts: Sequence[str]) -> Sequence[str]:
    left = CHARACTERS_LEARNT_FROM
    for i, text in enumerate(texts):
        left -= len(text)
        if left < 0:
            return texts[: i + 1]
    return texts


def _learnt(kind: str, texts: Sequence[str], size: int) -> TextVocabulary:
    """From the cache, or learnt and put there; a cache that cannot be written to is done without."""
    file = cache_directory() / "tokenizers" / f"{_content_hash(kind, texts, size)}.json"
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, NotImplementedError):  # a read-only disk, a file system without locks
            file.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(file.with_suffix(".lock")))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none yet, or not ours
            return _read(KINDS[kind], file)
        vocabulary = KINDS[kind].learn(texts, size)
        with contextlib.suppress(OSError):
            _write(vocabulary, file)
        return vocabulary


def _content_hash(kind: str, texts: Sequence[str], size: int) -> str:
    """32 hex digits of all that a vocabulary depends on."""
    digest = hashlib.sha256(
        json.dumps([CACHE_VERSION, kind, size, PLACEHOLDER.pattern, library().__version__]).encode()
    )
    for text in texts:
        encoded = text.encode()
        digest.update(b"%d:" % len(encoded) + encoded)
    return digest.hexdigest()[:32]


def _read(kind: type[TextVocabulary], file: Path) -> TextVocabulary:
    fields = json.loads(file.read_text(encoding="utf-8"))
    if "merges" in fields:
        fields["merges"] = tuple(map(tuple, fields["merges"]))
    return kind(**{**fields, "placeholders": tuple(fields["placeholders"])})


def _write(vocabulary: TextVocabulary, file: Path) -> None:
    """All at once: who reads sees no file or the whole one."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, suffix=".tmp", delete=False) as part:
        json.dump(dataclasses.asdict(vocabulary), part)
    Path(part.name).replace(file)
