from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.data import BOS, EOS, PAD, UNK, Vocabulary


def test_special_ids_come_first() -> None:
    vocabulary = Vocabulary(["a", "b"])
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert len(vocabulary) == 6
    assert vocabulary.encode(["b", "a", "?"]) == [5, 4, UNK]


def test_decode_drops_specials_and_stops_at_end() -> None:
    vocabulary = Vocabulary(["AH", "K"], joiner=" ")
    assert vocabulary.decode([BOS, 5, PAD, UNK, 4, EOS, 5]) == "K AH"
    with pytest.raises(IndexError):
        vocabulary.decode([6])


@given(st.lists(st.integers(0, 30).map(str)))
def test_round_trip(symbols: list[str]) -> None:
    vocabulary = Vocabulary([str(i) for i in range(31)], joiner=" ")
    assert vocabulary.decode([BOS, *vocabulary.encode(symbols), EOS]) == " ".join(symbols)


def test_is_immutable_and_distinct() -> None:
    vocabulary = Vocabulary(["a"])
    with pytest.raises(AttributeError):
        vocabulary.joiner = " "  # type: ignore[misc]
    with pytest.raises(ValueError, match="distinct"):
        Vocabulary(["a", "a"])
    assert vocabulary == Vocabulary(("a",))
    assert hash(vocabulary) == hash(Vocabulary(["a"]))
