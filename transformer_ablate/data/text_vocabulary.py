"""How text is divided into tokens and put together again: byte pairs, characters or words, by ``tokenizers``.

Whatever a text holds is text: there is no string that becomes a special token. Placeholders of programs (``%s``,
``{name}``; see :data:`transformer_ablate.data.cleaning.PLACEHOLDER`) are one token each where they were learnt.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from transformer_ablate.data.cleaning import MAY_HOLD_PLACEHOLDER, PLACEHOLDER
from transformer_ablate.data.examples import PackedSequences
from transformer_ablate.data.vocabulary import Vocabulary
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import UNK

# How a token that is not in the vocabulary reads, and bytes that are no text.
UNREADABLE = "\ufffd"


def library() -> ModuleType:
    """The package ``tokenizers``, kept to one thread: its threads would not survive the fork of a loader process."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import tokenizers

    return tokenizers


@dataclass(frozen=True)
class TextVocabulary(Vocabulary, abc.ABC):
    """A vocabulary that divides text itself; ``symbols`` are the tokens in the order of their ids.

    Args:
        placeholders: texts that are one token each, wherever they stand.
    """

    unreadable = UNREADABLE

    placeholders: tuple[str, ...] = ()

    @classmethod
    @abc.abstractmethod
    def learn(cls, texts: Sequence[str], size: int) -> TextVocabulary:
        """A vocabulary of at most ``size`` tokens, special tokens not counted, from ``texts``; the same every time.

        Raises:
            ConfigError: for a size that these texts do not allow.
        """

    @abc.abstractmethod
    def _library_tokenizer(self) -> Any:
        """A ``tokenizers.Tokenizer`` that gives this vocabulary's ids."""

    @staticmethod
    @abc.abstractmethod
    def _symbol(text: str) -> str:
        """How a token of this text is written among the symbols."""

    @abc.abstractmethod
    def join(self, symbols: list[str]) -> str:
        """The text of a sequence of symbols."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The fields alone: what is cached beside them is made again where it is needed.
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    @cached_property
    def _tokenizer(self) -> Any:
        return self._library_tokenizer()

    @cached_property
    def _placeholder_ids(self) -> dict[str, int]:
        return {text: self.ids[self._symbol(text)] for text in self.placeholders}

    def encode_text(self, text: str) -> list[int]:
        """Ids of one text, without BOS and EOS."""
        return self.encode_texts([text])[0]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without BOS and EOS; much faster than one after another."""
        return [row.tolist() for row in self.pack_texts(texts)]

    def pack_texts(self, texts: Sequence[str]) -> PackedSequences:
        """Ids of each text, without BOS and EOS.

        Each word is divided once, however often it stands in these texts: most are frequent.
        """
        divided = [self._words(text) for text in texts]
        words = list(dict.fromkeys(itertools.chain.from_iterable(divided)))
        ordinary = [word for word in words if word not in self._placeholder_ids]
        encoded = iter(self._tokenizer.encode_batch_fast(ordinary, add_special_tokens=False))
        ids = [[self._placeholder_ids[word]] if word in self._placeholder_ids else next(encoded).ids for word in words]
        number = {word: i for i, word in enumerate(words)}
        which = np.fromiter(map(number.__getitem__, itertools.chain.from_iterable(divided)), dtype=np.int64)
        tokens = PackedSequences.from_lists(ids).select(which)  # word after word
        words_before = np.cumsum([0, *map(len, divided)])
        return PackedSequences(tokens.flat, tokens.offsets[words_before])

    def _words(self, text: str) -> list[str]:
        """A text's pieces, divided in front of spaces as well: no token of any vocabulary reaches across one.

        Byte pairs look at what follows where white space follows on white space: such text stays whole.
        """
        if MAY_HOLD_PLACEHOLDER.search(text):
            divided = list(pieces(text, self._placeholder_ids))
            if len(divided) != 1 or divided[0] in self._placeholder_ids:
                return divided
        return text.replace(" ", "\n ").split("\n") if text == " ".join(text.split()) else [text]


def pieces(text: str, placeholders: Iterable[str]) -> Iterator[str]:
    """Divides a text into known placeholders and what stands between them; what is empty is left out."""
    begin = 0
    for match in PLACEHOLDER.finditer(text) if MAY_HOLD_PLACEHOLDER.search(text) else ():
        if match.group() in placeholders:
            if begin < match.start():
                yield text[begin : match.start()]
            yield match.group()
            begin = match.end()
    if begin < len(text):
        yield text[begin:]


def frequent_placeholders(texts: Iterable[str], most: int) -> tuple[str, ...]:
    """The placeholders in ``texts``, the most frequent first; at most so many."""
    counts = Counter(match for text in texts for match in PLACEHOLDER.findall(text))
    return tuple(sorted(counts, key=lambda text: (-counts[text], text))[:most])


@dataclass(frozen=True)
class BytePairs(TextVocabulary):
    """Byte-level byte-pair encoding: any text can be encoded, and decoded exactly (Sennrich et al. 2016, section 3.2).

    Bytes in place of characters are of Radford et al. (2019), as is the division into words before pairs are merged.

    Args:
        merges: pairs of symbols that become one, in the order in which they were learnt.
    """

    merges: tuple[tuple[str, str], ...] = ()

    @classmethod
    def learn(cls, texts: Sequence[str], size: int) -> BytePairs:
        """See :meth:`TextVocabulary.learn`. Tokens are the 256 bytes, placeholders, and pairs that occur twice."""
        lib = library()
        alphabet = sorted(lib.pre_tokenizers.ByteLevel.alphabet())
        if size < len(alphabet):
            raise ConfigError("data.tokenizer_size", size, "at least 256 for bpe, which has a token for each byte")
        placeholders = frequent_placeholders(texts, most=(size - len(alphabet)) // 2)
        tokenizer = lib.Tokenizer(lib.models.BPE())
        tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
        wanted = size - len(placeholders)
        trainer = lib.trainers.BpeTrainer(
            vocab_size=wanted, min_frequency=2, initial_alphabet=alphabet, special_tokens=[], show_progress=False
        )
        known = frozenset(placeholders)
        divided = (piece for text in texts for piece in pieces(text, known))
        tokenizer.train_from_iterator((piece for piece in divided if piece not in known), trainer)
        model = json.loads(tokenizer.to_str())["model"]
        learnt = sorted(model["vocab"], key=model["vocab"].__getitem__)
        if len(learnt) < wanted:
            possible = (
                f"at most {len(learnt) + len(placeholders)}, after which no pair of tokens occurs twice in the text"
            )
            raise ConfigError("data.tokenizer_size", size, possible)
        symbols = dict.fromkeys([*learnt, *map(cls._symbol, placeholders)])  # distinct, in order
        return cls(tuple(symbols), placeholders=placeholders, merges=tuple(map(tuple, model["merges"])))

    def _library_tokenizer(self) -> Any:
        lib = library()
        tokenizer = lib.Tokenizer(lib.models.BPE(vocab=self.ids, merges=list(self.merges)))
        tokenizer.pre_tokenizer = lib.pre_tokenizers.ByteLevel(add_prefix_space=False)
        return tokenizer

    @staticmethod
    def _symbol(text: str) -> str:
        bytewise = library().pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return "".join(part for part, _ in bytewise.pre_tokenize_str(text))

    @cached_property
    def _decoder(self) -> Any:
        return library().decoders.ByteLevel()

    def join(self, symbols: list[str]) -> str:
        return str(self._decoder.decode(symbols))


@dataclass(frozen=True)
class _Listed(TextVocabulary):
    """Base of vocabularies that are a list of the most frequent pieces of text; all other pieces are UNK."""

    pattern: ClassVar[str]  # Oniguruma's syntax; everything matches, so that decoding puts together the whole text
    least: ClassVar[int]  # occurrences that make a piece a token

    @classmethod
    def learn(cls, texts: Sequence[str], size: int) -> _Listed:
        """See :meth:`TextVocabulary.learn`."""
        lib = library()
        placeholders = frequent_placeholders(texts, most=size // 2)
        tokenizer = lib.Tokenizer(lib.models.WordLevel(unk_token=""))
        tokenizer.pre_tokenizer = cls._splitter()
        trainer = lib.trainers.WordLevelTrainer(
            vocab_size=size - len(placeholders), min_frequency=cls.least, special_tokens=[], show_progress=False
        )
        # Placeholders as well: what they are written with may stand elsewhere too.
        known = frozenset(placeholders)
        tokenizer.train_from_iterator((piece for text in texts for piece in pieces(text, known)), trainer)
        vocabulary = tokenizer.get_vocab()
        learnt = sorted(vocabulary, key=vocabulary.__getitem__)
        return cls(tuple(dict.fromkeys([*learnt, *placeholders])), placeholders=placeholders)

    @classmethod
    def _splitter(cls) -> Any:
        lib = library()
        return lib.pre_tokenizers.Split(lib.Regex(cls.pattern), behavior="isolated")

    def _library_tokenizer(self) -> Any:
        lib = library()
        # No piece of text is empty: this name of UNK cannot be met with.
        tokenizer = lib.Tokenizer(lib.models.WordLevel(vocab={**self.ids, "": UNK}, unk_token=""))
        tokenizer.pre_tokenizer = self._splitter()
        return tokenizer

    @staticmethod
    def _symbol(text: str) -> str:
        return text

    def join(self, symbols: list[str]) -> str:
        return "".join(symbols)


@dataclass(frozen=True)
class Characters(_Listed):
    """One token for each Unicode character (code point); exact for text without unknown ones."""

    pattern: ClassVar[str] = r"[\s\S]"
    least: ClassVar[int] = 1


@dataclass(frozen=True)
class Words(_Listed):
    """One token for each word and each mark, together with the space in front of it, so that decoding is exact.

    Scripts without spaces between words are divided into characters. A word must occur twice: so some training words
    are unknown, and UNK is learnt as well.
    """

    pattern: ClassVar[str] = (
        r" ?[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*"
        r"| ?(?:(?![\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])[\p{L}\p{M}\p{N}_])+"
        r"| ?[^\s\p{L}\p{M}\p{N}_]|\s"
    )
    least: ClassVar[int] = 2


KINDS: Mapping[str, type[TextVocabulary]] = {"bpe": BytePairs, "char": Characters, "word": Words}
