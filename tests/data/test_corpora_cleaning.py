"""Placeholders, near-duplicates, families and pairs that cannot be right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from transformer_ablate.config import DataConfig
from transformer_ablate.data.cleaning import (
    DUPLICATE,
    IDENTICAL,
    PLACEHOLDER,
    RATIO,
    content_key,
    families,
    first_of_each,
    text_hashes,
    usable_pairs,
)
from transformer_ablate.data.corpora import read_corpus

# Text, and what in it is a placeholder.
PLACEHOLDERS = {
    "cannot open %s: %d errors": ["%s", "%d"],
    "%1$s of %2$s, %-5.2f%lu%zu": ["%1$s", "%2$s", "%-5.2f", "%lu", "%zu"],
    "%dx%d pixels": ["%d", "%d"],
    "%(name)s has %(count)d (%(size).1f MB)": ["%(name)s", "%(count)d", "%(size).1f"],
    "Enable %1 on %L2": ["%1", "%L2"],
    "%1%2": ["%1", "%2"],
    "{} of {0} by {name}, {user.name!r:>10}": ["{}", "{0}", "{name}", "{user.name!r:>10}"],
    "{items[0]} {{ name }}": ["{items[0]}", "{{ name }}"],
    "${HOME}/%{file}": ["${HOME}", "%{file}"],
    "打开{文件}%1吗": ["{文件}", "%1"],
    "%*d%.*f": ["%*d", "%.*f"],
    "100% sure": [],
    "20%off, 5%d": [],
    "seed{or, offspring}": [],
    "50 % of {two words}": [],
    "a set {x | x > 0}": [],
}


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_what_is_a_placeholder(text: str) -> None:
    assert PLACEHOLDER.findall(text) == PLACEHOLDERS[text]


def test_the_tokenizers_library_finds_the_same_ones() -> None:
    splitter = Split(Regex(PLACEHOLDER.pattern), "isolated")
    texts = [*PLACEHOLDERS, *(text for side in read_corpus(DataConfig(), 2).sides for text in side if "%" in text)]
    assert len(texts) > 300
    for text in texts:
        spans = [match.span() for match in PLACEHOLDER.finditer(text)]
        assert [span for _, span in splitter.pre_tokenize_str(text) if span in spans] == spans, text
        covered = {span for _, span in splitter.pre_tokenize_str(text)}
        # What stands between two placeholders is one piece: there is no further division.
        assert len(covered) <= 2 * len(spans) + 1, text


@pytest.mark.parametrize(
    "family",
    [
        ["Open 3 files…", "open {n} files", "&Open files", "OPEN  %(n)d FILES!", "Open ﬁles"],
        ["Straße 1", "STRASSE 2", "strasse"],
        ["打开 %1 文件", "打开文件。", "打开(文件)"],
        ["हिन्दी।", "“हिन्दी”"],
    ],
)
def test_near_duplicates_have_one_key(family: list[str]) -> None:
    assert len(set(map(content_key, family))) == 1


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_has_the_key_that_any_text_would_have(text: str) -> None:
    # A letter that is not ASCII makes all of it be taken letter by letter; a text without letters is its own key.
    key = content_key(f"{text} é").removesuffix("é")
    assert content_key(text) == (key or text)


def test_other_texts_have_other_keys() -> None:
    texts = ["Open file", "Open files", "open the file", "की", "का", "é", "e", "%s", "%d", "123", "...", "打开", "打闭"]
    assert len(set(map(content_key, texts))) == len(texts)


def test_pairs_that_are_left_out() -> None:
    pairs = [
        ("a file", "eine Datei"),
        ("OK", "OK"),
        ("a file", "ein Dokument"),
        ("a file", "eine Datei"),
        ("eine Datei", "a file"),  # the other way round is another pair
        ("x" * 10, "y" * 60),  # 60 = 4 * 10 + 20
        ("x" * 10, "y" * 61),
        ("y" * 61, "x" * 10),
        ("x" * 10, "文" * 20),  # 60 bytes
        ("x" * 10, "文" * 21),
    ]
    kept, dropped = usable_pairs(*zip(*pairs, strict=True), 4.0)  # type: ignore[arg-type, misc]
    assert kept.tolist() == [0, 2, 4, 5, 8]
    assert dropped == {IDENTICAL: 1, DUPLICATE: 1, RATIO: 3}
    assert usable_pairs(["x" * 10], ["y" * 61], 4.2)[0].tolist() == [0]


def test_hashes_of_examples_do_not_know_which_side_is_the_source() -> None:
    a, b = ["one", "two", "two"], ["eins", "zwei", "drei"]
    assert np.array_equal(text_hashes(a, b), text_hashes(b, a))
    assert len(set(text_hashes(a, b).tolist())) == 3
    assert first_of_each(np.array([7, 3, 7, 1, 3])).tolist() == [0, 1, 3]


WORDS = st.sampled_from(["A", "a!", "b", "B 1", "c", "d", "e", "f", "%s", "%d", "g"])


@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=12))
def test_families_are_what_common_keys_connect(pairs: list[tuple[str, str]]) -> None:
    """Against merging any two groups that have a key in common until there are none."""
    groups = [({i}, {content_key(s), content_key(t)}) for i, (s, t) in enumerate(pairs)]
    merged = True
    while merged:
        merged = False
        for one in groups:
            for other in groups:
                if one is not other and one[1] & other[1]:
                    groups.remove(other)
                    one[0].update(other[0])
                    one[1].update(other[1])
                    merged = True
                    break
            if merged:
                break
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    hashes = families(sources, targets)
    for members, _ in groups:
        assert len(set(hashes[list(members)].tolist())) == 1
    assert len(set(hashes.tolist())) == len(groups)
    # Neither the sides nor the order matter.
    assert np.array_equal(families(targets, sources), hashes)
    assert np.array_equal(families(sources[::-1], targets[::-1])[::-1], hashes)


def test_common_answers_do_not_make_one_family_of_a_corpus() -> None:
    questions = [chr(0x4E00 + i // 2) + "!" * (i % 2) for i in range(2_000)]
    answers = ["yes" if i % 40 else f"no, {chr(0x3400 + i)}" for i in range(2_000)]
    hashes = families(questions, answers).reshape(-1, 2)
    assert np.array_equal(hashes[:, 0], hashes[:, 1])
    assert len(np.unique(hashes)) == 1_000
    # Up to a hundredth of all examples, here 20 but at least 100, they do.
    assert len(np.unique(families(questions, ["yes"] * 100 + questions[100:]))) == 951


def test_large_families_fall_where_small_ones_do() -> None:
    """The smallest of 50 keys' hashes is below 0.05 nine times in ten; a family's own hash is not."""
    letters = [chr(0x4E00 + i) for i in range(20_000)]
    hashes = families(letters, [letters[i // 50 * 50] for i in range(20_000)])
    distinct = np.unique(hashes)
    assert len(distinct) == 400
    share = (distinct < 0.05 * 2.0**64).mean()
    assert abs(share - 0.05) < 5 * (0.05 * 0.95 / 400) ** 0.5
    assert abs((distinct / 2.0**64).mean() - 0.5) < 5 * 12**-0.5 / 400**0.5
