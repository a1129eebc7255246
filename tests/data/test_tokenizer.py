"""Text to tokens and back, learnt once however many processes ask."""

from __future__ import annotations

import gettext
import itertools
import json
import multiprocessing
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from transformer_ablate.config import TOKENIZERS
from transformer_ablate.data import BOS, EOS, PAD, UNK, Vocabulary, tokenizer
from transformer_ablate.data.cleaning import PLACEHOLDER
from transformer_ablate.data.text_vocabulary import KINDS, BytePairs, Characters, TextVocabulary, Words, pieces
from transformer_ablate.data.tokenizer import build_vocabularies
from transformer_ablate.errors import ConfigError
from transformer_ablate.paths import cache_directory

ENGLISH = [
    "Cannot open the file %s: %s",
    "Cannot close the file %s",
    "Open the folder {name}",
    "Open  two   folders,then close them…",
    "The file “{name}” is not a folder",
    "Close the folder and open the file",
    "%d files, %(count)d folders",
    "the file, the folder and the file",
] * 3
CHINESE = [
    "无法打开文件 %s：%s",
    "无法关闭文件 %s",
    "打开文件夹 {name}",
    "打开两个文件夹，然后关闭",
    "文件“{name}”不是文件夹",
    "关闭文件夹并打开文件",
    "%d 个文件，%(count)d 个文件夹",
    "文件、文件夹和文件",
] * 3
SIZE = 300
# What other tools take for special tokens, marks of sub-words, and names that this vocabulary might use itself.
TREACHEROUS = "<pad> <s> </s> <unk> [PAD] [UNK] [CLS] <|endoftext|> <bos> <eos> ▁the ĠĠ Ċ @@ </w> ## \x00 \x1f \ufeff"


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def built(kind: str, joint: bool = True, size: int = SIZE) -> tuple[TextVocabulary, TextVocabulary]:
    return build_vocabularies(kind, ENGLISH, CHINESE, size=size, joint=joint)


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


def test_specials_have_their_usual_ids() -> None:
    for kind in KINDS:
        vocabulary = built(kind)[0]
        assert isinstance(vocabulary, Vocabulary)
        assert len(vocabulary) == len(vocabulary.symbols) + 4
        assert vocabulary.ids[vocabulary.symbols[0]] == 4
        assert max(i for row in vocabulary.encode_texts(ENGLISH) for i in row) < len(vocabulary)


# Placeholders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_placeholders_are_single_tokens(kind: str) -> None:
    source, target = built(kind)
    assert source is target
    assert set(source.placeholders) == {"%s", "{name}", "%d", "%(count)d"}
    for placeholder in source.placeholders:
        (alone,) = source.encode_text(placeholder)
        assert alone in source.encode_text(f"(x{placeholder}y)")
        assert source.encode_texts([f"{placeholder} {placeholder}"])[0].count(alone) == 2
    rare = "{other}"
    assert PLACEHOLDER.fullmatch(rare)
    assert len(source.encode_text(rare)) > 1 or source.encode_text(rare) == [UNK]


@given(st.text("%s{na}e1 d"), st.sets(st.sampled_from(["%s", "{name}", "%d", "{}", "%1"])))
def test_pieces_are_the_whole_text(text: str, known: set[str]) -> None:
    assert "".join(pieces(text, known)) == text
    assert "" not in list(pieces(text, known))


def test_pieces_between_placeholders() -> None:
    assert list(pieces("%s: {a} in {b}%s", {"%s", "{b}"})) == ["%s", ": {a} in ", "{b}", "%s"]


def test_placeholders_leave_room_for_text() -> None:
    texts = [f"{{x{i}}} {{x{i}}}" for i in range(100)]
    vocabulary = BytePairs.learn(["{x1} open the file, open the file", *texts], size=262)
    assert vocabulary.placeholders[0] == "{x1}"
    assert len(vocabulary.placeholders) == 3
    assert len(vocabulary.symbols) == 262


# What is learnt -------------------------------------------------------------------------------------------------


def test_byte_pairs_merge_the_most_frequent_first() -> None:
    """The example of Sennrich et al. 2016, section 3.2, less its end-of-word sign: es, est, lo, low come first."""
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    vocabulary = BytePairs.learn(words, size=256 + 4)
    assert vocabulary.merges[:2] == (("e", "s"), ("es", "t"))
    assert set(vocabulary.symbols[256:]) == {"es", "est", "lo", "low"}
    assert [vocabulary.symbols[i - 4] for i in vocabulary.encode_text("lowest")] == ["low", "est"]


def test_words_carry_the_space_in_front_of_them() -> None:
    vocabulary = Words.learn(["to be, or not to be  文件"] * 2, size=50)
    shown = [vocabulary.symbols[i - 4] for i in vocabulary.encode_text("to be, or not to be  文件")]
    assert shown == ["to", " be", ",", " or", " not", " to", " be", " ", " 文", "件"]


def test_words_and_characters_by_frequency() -> None:
    assert Characters.learn(["abracadabra"], size=8).symbols == ("a", "b", "r", "c", "d")
    assert Characters.learn(["abracadabra"], size=3).symbols == ("a", "b", "r")
    words = Words.learn(["a b b c c c", "c"], size=50)
    assert set(words.symbols) == {" b", " c"}  # "a" and the first "c" of a line stand once: unknown, so UNK is learnt


@pytest.mark.parametrize("kind", KINDS)
def test_learning_depends_on_the_text_alone(kind: str) -> None:
    first = KINDS[kind].learn(ENGLISH + CHINESE, SIZE)
    assert KINDS[kind].learn(ENGLISH + CHINESE, SIZE) == first
    assert KINDS[kind].learn((CHINESE + ENGLISH)[::-1], SIZE) == first


@pytest.mark.parametrize("kind", KINDS)
def test_separate_vocabularies_know_their_side_alone(kind: str) -> None:
    source, target = built(kind, joint=False, size=290)
    assert source.symbols != target.symbols
    assert source == KINDS[kind].learn(ENGLISH, 290)
    assert target == KINDS[kind].learn(CHINESE, 290)
    assert len(source.encode_text(CHINESE[3])) > len(target.encode_text(CHINESE[3])) or kind != "bpe"


def test_sizes_are_held() -> None:
    assert len(built("bpe")[0].symbols) == SIZE
    for kind in ("char", "word"):
        assert len(built(kind, size=20)[0].symbols) == 20
        assert len(built(kind, size=4_000)[0].symbols) < 100  # what there is


def test_more_tokens_than_the_text_allows() -> None:
    with pytest.raises(ConfigError, match=r"at most \d+, after which no pair of tokens occurs twice") as caught:
        built("bpe", size=4_000)
    assert caught.value.field == "data.tokenizer_size"
    possible = int(caught.value.allowed.split()[2].rstrip(","))
    assert len(built("bpe", size=possible)[0].symbols) == possible
    with pytest.raises(ConfigError):
        built("bpe", size=possible + 1)
    with pytest.raises(ConfigError, match="at most 257"):  # "ab" alone stands twice
        BytePairs.learn(["abc abd"], 258)


def test_fewer_tokens_than_bytes() -> None:
    with pytest.raises(ConfigError, match="at least 256"):
        built("bpe", size=255)
    vocabulary = built("bpe", size=256)[0]
    assert vocabulary.encode_text("%s é") == [vocabulary.ids[s] for s in ("%", "s", "Ġ", "Ã", "©")]


def test_unknown_kind() -> None:
    assert tuple(KINDS) == TOKENIZERS
    with pytest.raises(ConfigError, match="bpe, char, word") as caught:
        built("bpee")
    assert "did you mean 'bpe'?" in str(caught.value)


def test_long_texts_are_learnt_from_by_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "CHARACTERS_LEARNT_FROM", 20)
    source, target = build_vocabularies("char", ["a" * 12, "b" * 12, "c"], ["x" * 20, "y", "z"], size=90, joint=False)
    assert set(source.symbols) == {"a", "b"}
    assert set(target.symbols) == {"x", "y"}


# Copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_survives_pickling(kind: str) -> None:
    vocabulary = built(kind)[0]
    before = vocabulary.encode_texts(ENGLISH)
    copy = pickle.loads(pickle.dumps(vocabulary))
    assert copy == vocabulary
    assert copy.encode_texts(ENGLISH) == before
    assert len(pickle.dumps(vocabulary)) < 20_000  # the library's object stays behind


# Cache ----------------------------------------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    return sorted((folder / "transformer-ablate" / "tokenizers").glob("*.json"))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def no_learning(*_: Any) -> Any:
    raise AssertionError("learnt again")


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_is_learnt_once(kind: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = built(kind)[0]
    (file,) = files(empty_cache)
    monkeypatch.setattr(KINDS[kind], "learn", no_learning)
    again = built(kind)[0]
    assert again == first
    assert type(again) is type(first)
    assert again.encode_texts(CHINESE) == first.encode_texts(CHINESE)
    assert [f.name for f in file.parent.iterdir() if f.suffix == ".tmp"] == []


def test_other_text_size_or_kind_is_another_vocabulary(empty_cache: Path) -> None:
    for kind, size, joint in itertools.product(("char", "word"), (20, 30), (True, False)):
        built(kind, joint, size)
    assert len(files(empty_cache)) == 2 * 2 * 3
    # Where one text ends and the next begins counts.
    build_vocabularies("char", ["ab", "c"], ["x"], 9, joint=True)
    build_vocabularies("char", ["a", "bc"], ["x"], 9, joint=True)
    assert len(files(empty_cache)) == 2 * 2 * 3 + 2


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"symbols": ["a", "a"], "placeholders": []}', '{"symbols": ["a"]}']
)
def test_a_damaged_file_is_replaced(content: str, empty_cache: Path) -> None:
    first = built("char")[0]
    (file,) = files(empty_cache)
    whole = json.loads(file.read_text())
    file.write_text(content)
    assert built("char")[0] == first
    assert json.loads(file.read_text()) == whole


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert built("char")[0] == Characters.learn(ENGLISH + CHINESE, SIZE)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache_directory() == Path("/var/cache/me/transformer-ablate")
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_directory() == tmp_path / ".cache" / "transformer-ablate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / ".cache" / "transformer-ablate"


def build_slowly(folder: Path, results: Any) -> None:
    """In a process of its own: says each time that it learns, and what came out."""
    learn = BytePairs.learn

    def slow(texts: Any, size: int) -> Any:
        with (folder / "learnt").open("a") as log:
            log.write("once\n")
        time.sleep(0.5)  # the others come to the lock meanwhile
        return learn(texts, size)

    BytePairs.learn = slow  # type: ignore[assignment, method-assign]
    vocabulary = built("bpe")[0]
    results.put((vocabulary.symbols, vocabulary.encode_text(ENGLISH[0])))


def test_parallel_processes_learn_it_once(empty_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=build_slowly, args=(empty_cache, results)) for _ in range(3)]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert (empty_cache / "learnt").read_text() == "once\n"
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert len(files(empty_cache)) == 1


# Loader processes -----------------------------------------------------------------------------------------------


def test_loader_processes_may_fork_after_tokenising(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    vocabulary = BytePairs.learn(ENGLISH, 290)
    # Older versions of the library warn, or hang, where a process forks after threads have been used.
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    rows = vocabulary.encode_texts(ENGLISH * 50)
    loader = DataLoader(rows, batch_size=None, num_workers=2)  # type: ignore[arg-type]
    assert sum(len(row) for row in loader) == sum(map(len, rows))
    again = DataLoader(ENGLISH, batch_size=None, num_workers=2, collate_fn=vocabulary.encode_text)  # type: ignore[arg-type, var-annotated]
    assert [list(row) for row in again] == vocabulary.encode_texts(ENGLISH)
    assert "forked" not in "".join(capfd.readouterr())
