"""Symbols to integers and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from transformer_ablate.tokens import EOS, N_SPECIALS, UNK


@dataclass(frozen=True)
class Vocabulary:
    """An ordered set of symbols; symbol i has the id ``i + N_SPECIALS``, below which the special tokens lie.

    Args:
        symbols: distinct symbols, without the special tokens.
        joiner: what :meth:`decode` puts between two symbols, e.g. ``""`` for letters and ``" "`` for phones.

    Raises:
        ValueError: where a symbol stands twice.
    """

    # What UNK reads as; an empty one is left out like other special tokens.
    unreadable: ClassVar[str] = ""

    symbols: Sequence[str]
    joiner: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "symbols", tuple(self.symbols))
        if len(self.ids) != len(self.symbols):
            raise ValueError("a vocabulary's symbols must be distinct")

    @cached_property
    def ids(self) -> dict[str, int]:
        """Symbol to id."""
        return {symbol: i for i, symbol in enumerate(self.symbols, start=N_SPECIALS)}

    def __len__(self) -> int:
        """Number of ids, the special tokens included."""
        return len(self.symbols) + N_SPECIALS

    def encode(self, symbols: Sequence[str]) -> list[int]:
        """Ids of the symbols, without BOS and EOS; UNK for a symbol that is not in the vocabulary."""
        return [self.ids.get(symbol, UNK) for symbol in symbols]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids up to the first EOS; special tokens are left out.

        Raises:
            IndexError: for an id that the vocabulary does not have.
        """
        shown = []
        for i in map(int, ids):
            if i == EOS:
                break
            if i >= N_SPECIALS:
                shown.append(self.symbols[i - N_SPECIALS])
            elif i == UNK and self.unreadable:
                shown.append(self.unreadable)
        return self.join(shown)

    def join(self, symbols: list[str]) -> str:
        """The text of symbols in a row."""
        return self.joiner.join(symbols)
