"""Text to tokens and back, learnt once however many processes ask."""

from __future__ import annotations

import gettext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.phrases import CHINESE, ENGLISH, built
from transformer_ablate.data import BOS, EOS, PAD, UNK
from transformer_ablate.data.text_vocabulary import KINDS, pieces
from transformer_ablate.data.tokenizer import build_vocabularies

# What other tools take for special tokens, marks of sub-words, and names that this vocabulary might use itself.
TREACHEROUS = "<pad> <s> </s> <unk> [PAD] [UNK] [CLS] <|endoftext|> <bos> <eos> ▁the ĠĠ Ċ @@ </w> ## \x00 \x1f \ufeff"


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


# Round trips ----------------------------------------------------------------------------------------------------

ANY_TEXT = st.text() | st.lists(
    st.sampled_from(
        [*TREACHEROUS.split(" "), "%s", "{name}", "%(count)d", " ", "  ", "\n", "\r\n", "文件", "é", "👩‍👩‍👧"]
    )
).map("".join)


@given(ANY_TEXT)
def test_byte_pairs_give_any_text_back_exactly(text: str) -> None:
    vocabulary = built("bpe")[0]
    ids = vocabulary.encode_text(text)
    assert vocabulary.decode([BOS, *ids, EOS, PAD, PAD]) == text
    assert all(UNK < i < len(vocabulary) for i in ids)


@given(st.text(sorted(set("".join(ENGLISH + CHINESE)))), st.sampled_from(["char", "word"]))
def test_covered_text_comes_back_exactly(text: str, kind: str) -> None:
    vocabulary = built(kind)[0]
    ids = vocabulary.encode_text(text)
    if UNK not in ids:
        assert vocabulary.decode(ids) == text
    if kind == "char":
        assert UNK not in ids
        assert len(ids) == sum(
            1 if p in vocabulary.placeholders else len(p) for p in pieces(text, vocabulary.placeholders)
        )


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(ANY_TEXT, max_size=6))
def test_many_texts_are_encoded_as_one_by_one(kind: str, texts: list[str]) -> None:
    vocabulary = built(kind)[0]
    assert vocabulary.encode_texts(texts) == [vocabulary.encode_text(text) for text in texts]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(ANY_TEXT | st.text("ab'1. %s文\xa0\u2028\x1c"), max_size=6))
def test_dividing_at_spaces_first_changes_no_token(kind: str, texts: list[str]) -> None:
    """Words are encoded once each, wherever they stand; the library is given whole pieces of text here."""
    vocabulary = built(kind)[0]
    library, placeholders = vocabulary._tokenizer, vocabulary._placeholder_ids
    for text, ids in zip(texts, vocabulary.encode_texts(texts), strict=True):
        whole: list[int] = []
        for piece in pieces(text, placeholders):
            known = piece in placeholders
            whole += [placeholders[piece]] if known else library.encode(piece, add_special_tokens=False).ids
        assert ids == whole


@pytest.mark.parametrize("kind", KINDS)
def test_training_text_comes_back_from_either_side(kind: str) -> None:
    for joint in (True, False):
        for vocabulary, texts in zip(built(kind, joint, 290), (ENGLISH, CHINESE), strict=True):
            for text, ids in zip(texts, vocabulary.encode_texts(texts), strict=True):
                assert UNK not in ids
                assert vocabulary.decode(ids) == text


def test_real_text_comes_back() -> None:
    """Message catalogues of this machine, in many languages and scripts."""
    catalogues = sorted(Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo"))
    texts = [
        text
        for file in catalogues[:: len(catalogues) // 20 or 1]
        for text in list(gettext.GNUTranslations(file.open("rb"))._catalog.values())[:100]  # type: ignore[attr-defined]
        if isinstance(text, str) and text
    ]
    if not texts:
        pytest.skip("no message catalogues on this machine")
    vocabulary = built("bpe")[0]
    assert [vocabulary.decode(ids) for ids in vocabulary.encode_texts(texts)] == texts


def test_bytes_that_are_no_text_read_as_unreadable() -> None:
    vocabulary = built("bpe")[0]
    ids = vocabulary.encode_text("é")
    assert len(ids) == 2  # the text holds none, so it is two bytes
    assert vocabulary.decode(ids[:1]) == "\ufffd"
    assert vocabulary.decode([*ids, EOS, *ids]) == "é"
    # A model may say UNK though no text gives it.
    assert vocabulary.decode([UNK, *ids, UNK]) == "\ufffdé\ufffd"


def test_unknown_tokens_show() -> None:
    for kind, shown in (("char", "O\ufffd\ufffdn"), ("word", "\ufffd")):
        vocabulary = built(kind)[0]
        ids = vocabulary.encode_text("Oßàn")
        assert ids.count(UNK) == shown.count("\ufffd")
        assert vocabulary.decode(ids) == shown
    with pytest.raises(IndexError):
        built("char")[0].decode([len(built("char")[0])])


# Special tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_becomes_a_special_token(kind: str) -> None:
    """Also where the names of special tokens are what the vocabulary was learnt from."""
    texts = [TREACHEROUS] * 4
    vocabulary = build_vocabularies(kind, texts, texts, size=290, joint=True)[0]
    for text in (TREACHEROUS, *TREACHEROUS.split(" ")):
        ids = vocabulary.encode_text(text)
        assert not set(ids) & {PAD, BOS, EOS}
        assert UNK not in ids or kind == "word"
        if UNK not in ids:
            assert vocabulary.decode(ids) == text
    assert vocabulary.encode_text("") == []
    assert not {"", "[UNK]", "<unk>"} & (set(vocabulary.symbols) - set(TREACHEROUS.split(" ")))
