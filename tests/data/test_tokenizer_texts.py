"""Texts to tokens and back."""

from __future__ import annotations

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

from tests.data.phrases import CHINESE, ENGLISH, SIZE, built
from transformer_ablate.config import TOKENIZERS
from transformer_ablate.data import UNK, Vocabulary, tokenizer
from transformer_ablate.data.cleaning import PLACEHOLDER
from transformer_ablate.data.text_vocabulary import KINDS, BytePairs, Characters, Words, pieces
from transformer_ablate.data.tokenizer import build_vocabularies
from transformer_ablate.errors import ConfigError
from transformer_ablate.paths import cache_directory


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
