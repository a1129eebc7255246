"""Translation and continuation: division, lengths, references, vocabularies, and a corpus of a million lines."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import DataConfig
from transformer_ablate.data import Pairs, TaskData, TokenBudgetBatches, load_task
from transformer_ablate.data.cleaning import LENGTH_RATIO, PLACEHOLDER, content_key
from transformer_ablate.data.corpora import read_corpus
from transformer_ablate.data.text import TextData, examples_of
from transformer_ablate.data.translation import divided
from transformer_ablate.errors import ConfigError

SOURCE = "packs:zh_CN"


def load(**fields: Any) -> TextData:
    usual = {"task": "translation", "source": SOURCE, "tokenizer": "char", "max_length": 60, "train_examples": 0}
    data = load_task(DataConfig(**(usual | fields)))
    assert isinstance(data, TextData)
    return data


def texts(data: TaskData, pairs: Pairs) -> list[tuple[str, str]]:
    source, target = data.source_vocabulary, data.target_vocabulary
    return [(source.decode(s), target.decode(t)) for s, t in zip(pairs.source, pairs.target, strict=True)]


@lru_cache(maxsize=1)
def chinese_to_english() -> tuple[TextData, list[tuple[str, str]], list[tuple[str, str]], list[list[tuple[str, str]]]]:
    """The pack from Chinese to English, and as text its pairs of train, valid and each test set."""
    data = load(swap=True)
    return data, texts(data, data.train), texts(data, data.valid), [texts(data, test.pairs) for test in data.test]


def short_pairs(data: TextData) -> set[tuple[str, str]]:
    """Pairs of the catalogues, Chinese first, of at most 60 tokens a side, as ``data``'s vocabularies see them."""
    english, chinese = read_corpus(DataConfig(source=SOURCE), 2).sides
    pairs = [(c, e) for c, e in zip(chinese, english, strict=True) if c != e]
    vocabularies = data.source_vocabulary, data.target_vocabulary
    encoded = [v.encode_texts(side) for v, side in zip(vocabularies, zip(*pairs, strict=True), strict=True)]  # type: ignore[attr-defined]
    return {
        (vocabularies[0].decode(source), vocabularies[1].decode(target))
        for source, target in zip(*encoded, strict=True)
        if max(len(source), len(target)) <= 60
    }


def refused(**fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(**fields)
    assert "\n" not in str(caught.value)
    return caught.value


def write(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return str(path)


# Division --------------------------------------------------------------------------------------------------------


def test_training_text_is_what_the_catalogues_hold() -> None:
    data, train, valid, tests = chinese_to_english()
    short = short_pairs(data)
    assert len(train) == len(set(train)) > 2_000
    assert set(train) < short
    assert set(valid) | {pair for test in tests for pair in test} < short
    assert (data.exact, data.columns) == (False, ("zh_CN", "English"))
    # Held out are about a tenth; a source with several translations is asked for once.
    sources = {source for source, _ in short}
    held_out = sources - {source for source, _ in train}
    assert 0.08 < len(held_out) / len(sources) < 0.12
    assert {source for source, _ in valid + tests[0]} == held_out


@pytest.mark.parametrize("side", [0, 1])
def test_no_near_duplicate_of_training_text_is_tested(side: int) -> None:
    _, train, valid, tests = chinese_to_english()
    trained, validated = ({content_key(pair[side]) for pair in part} for part in (train, valid))
    for test in tests:
        tested = {content_key(pair[side]) for pair in test}
        assert not tested & trained
        assert not tested & validated
    assert not validated & trained


def test_a_question_is_asked_once_and_every_translation_is_accepted() -> None:
    data, train, valid, tests = chinese_to_english()
    translations: dict[str, set[str]] = {}
    for source, target in short_pairs(data):
        translations.setdefault(source, set()).add(target)
    decode = data.target_vocabulary.decode
    for (source, _), references in zip(tests[0], data.test[0].references, strict=True):
        assert {decode(reference) for reference in references} == translations[source]
    assert max(map(len, data.test[0].references)) > 1
    for part in (valid, tests[0]):
        assert len({source for source, _ in part}) == len(part)
    assert len({source for source, _ in train}) < len(train)  # in training each translation is an example
    assert [texts(data, data.test[0].pairs)[i][1] for i in range(50)] == [
        decode(references[0]) for references in data.test[0].references[:50]
    ]


def test_vocabularies_know_training_text_alone() -> None:
    data, *_ = chinese_to_english()
    examples = examples_of(DataConfig(task="translation", source=SOURCE, swap=True))
    trained = {c for i in examples.parts["train"] for c in examples.sources[i] + examples.targets[i]}
    everything = {c for side in (examples.sources, examples.targets) for text in side for c in text}
    assert everything - trained
    assert (
        set(data.source_vocabulary.symbols) - set(PLACEHOLDER.findall(" ".join(data.source_vocabulary.symbols)))
        == trained
    )
    assert data.joint_vocabulary
    assert not load(swap=True, joint_vocabulary=False).joint_vocabulary


def test_direction_changes_neither_division_nor_order() -> None:
    one, other = (examples_of(DataConfig(task="translation", source=SOURCE, swap=swap)) for swap in (False, True))
    assert (one.sources, one.targets) == (other.targets, other.sources)
    assert np.array_equal(one.families, other.families)


def test_a_smaller_set_is_the_beginning_of_a_larger_one() -> None:
    full, train, valid, tests = chinese_to_english()
    part = load(swap=True, train_examples=1_000, valid_examples=20, test_examples=40)
    assert texts(part, part.train) == train[:1_000]
    assert texts(part, part.valid) == valid[:20]
    for small, large, pairs in zip(part.test, full.test, tests, strict=True):
        assert texts(part, small.pairs) == pairs[:40]
        assert small.references == large.references[:40]


def test_the_corpus_is_read_and_cleaned_once_for_all_lengths_and_tokens() -> None:
    first = examples_of(DataConfig(task="translation", source=SOURCE, max_length=60))
    assert examples_of(DataConfig(task="translation", source=SOURCE, max_length=30, tokenizer="word")) is first
    # Tasks are compared by their options: the usual one, said aloud, is the same.
    options = {"max_ratio": LENGTH_RATIO}
    assert examples_of(DataConfig(task="translation", source=SOURCE, task_options=options)).sources == first.sources
    assert load() is load(batch_tokens=999)


def test_data_never_change() -> None:
    """Of version 4.5.post3 of the language pack; another one may hold other messages."""
    examples = examples_of(DataConfig(task="translation", source=SOURCE, swap=True))
    assert {part: len(rows) for part, rows in examples.parts.items()} == {"train": 2778, "valid": 152, "test": 149}
    assert examples.dropped == {"the same text on both sides": 156, "duplicates": 229}
    content = "\n".join([*examples.sources, *examples.targets, *map(str, examples.families.tolist())])
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == "2fae1f1dfcc557a4"


# Lengths ---------------------------------------------------------------------------------------------------------


def test_lengths_and_test_sets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, size=n)) for n in rng.integers(3, 41, size=10_000)]
    source = write(tmp_path / "a.tsv", [(word, word[::-1]) for word in words if word != word[::-1]])
    data = load(source=source, max_length=16, test_examples=40)
    assert data.longest_source == data.longest_target == 18  # BOS and EOS
    assert data.valid.source.lengths.max() == 18
    assert [(test.name, test.ratio) for test in data.test] == [
        *(("1", 1.0), ("1.25", 1.25), ("1.5", 1.5), ("2", 2.0), ("3", 3.0))
    ]
    for test, (low, high) in zip(data.test, [(3, 16), (17, 20), (21, 24), (25, 32), (33, 40)], strict=True):
        assert set((test.pairs.source.lengths - 2).tolist()) == set(range(low, high + 1))
        assert len(test) == 40


def test_in_distribution_neither_source_nor_target_is_longer_than_in_training(tmp_path: Path) -> None:
    """Half of the pairs have a longer target, the others a longer source."""
    words = [f"{i:05d}".translate(str.maketrans("0123456789", "abcdefghij")) for i in range(8_000)]
    pairs = [(word, word + "z" * (1 + i // 2 % 15)) for i, word in enumerate(words)]
    pairs = [pair[:: 1 - 2 * (i % 2)] for i, pair in enumerate(pairs)]
    data = load(source=write(tmp_path / "a.tsv", pairs), max_length=10)
    for part in (data.train, data.valid, data.test[0].pairs):
        for side in (part.source, part.target):
            assert (side.lengths.min(), side.lengths.max()) == (7, 12)
    # Past N, sources decide; their targets may be as short as they like.
    assert [test.name for test in data.test] == ["1", "1.5", "2"]
    assert all(set(test.pairs.target.lengths.tolist()) == {7} for test in data.test[1:])


def test_batches_of_a_budget_hold_all_examples() -> None:
    data, train, *_ = chinese_to_english()
    batches = TokenBudgetBatches(data.train, batch_tokens=2_000, length_buckets=8, seed=0, steps=1).epoch(0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(train)))


# Continuation ----------------------------------------------------------------------------------------------------


def test_continuation_of_english_messages() -> None:
    data = load(task="continuation", tokenizer="bpe", tokenizer_size=1_000)
    messages = set(read_corpus(DataConfig(source=SOURCE), 1).sides[0])
    train = texts(data, data.train)
    assert len(train) > 2_000
    for source, target in train:
        assert f"{source} {target}" in messages or source + target in messages
    for test in data.test:
        assert not {content_key(source) for source, _ in texts(data, test.pairs)} & {
            content_key(source) for source, _ in train
        }
    chinese = load(task="continuation", swap=True)
    assert chinese.columns == ("zh_CN",)
    assert ("重启", "内核") in texts(chinese, chinese.train)


@pytest.mark.parametrize(
    ("text", "share", "parts"),
    [
        ("one two three", 0.5, ("one two", "three")),
        ("one two three", 0.2, ("one", "two three")),
        ("重启内核吧", 0.5, ("重启", "内核吧")),
        ("重启 内核吧", 0.5, ("重启", "内核吧")),
        ("Greenwich", 0.5, ("", "")),
        ("on Greenwich-Time", 0.6, ("on Greenwich", "-Time")),
        ("I Donaudampfschifffahrt", 0.5, ("I", "Donaudampfschifffahrt")),
        ("需要%(name)s调试", 0.6, ("需要%(name)s", "调试")),
        ("ね\u3099ね\u3099", 0.3, ("ね\u3099", "ね\u3099")),
        ("x", 0.5, ("", "")),
    ],
)
def test_where_a_text_is_divided(text: str, share: float, parts: tuple[str, str]) -> None:
    assert divided(text, share) == parts


@given(
    st.lists(st.sampled_from(["word", "文", "字", "%(n)d", "é", "{x}", "-", "Zoë"]), min_size=1).map("".join),
    st.floats(0.05, 0.95),
)
def test_the_parts_of_a_text_are_the_text(text: str, share: float) -> None:
    source, target = divided(text, share)
    if source or target:
        assert source
        assert target
        assert source + target == text
        spans = [match.span() for match in PLACEHOLDER.finditer(text)]
        assert not any(start < len(source) < end for start, end in spans)


def test_share_of_the_source() -> None:
    quarter, half = (load(task="continuation", task_options={"share": share}) for share in (0.25, 0.5))
    ratio = [data.train.source.lengths.mean() / data.train.target.lengths.mean() for data in (quarter, half)]
    assert ratio[0] < 0.6 * ratio[1]


# Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_length": 1}, "data.max_length"),
        ({"task_options": {"share": 0.5}}, "data.task_options of 'translation'"),
        ({"task_options": {"max_ratio": 0.5}}, "data.task_options.max_ratio"),
        ({"task": "continuation", "task_options": {"share": 1}}, "data.task_options.share"),
        ({"task": "continuation", "source": "none.txt"}, "data.source"),
        ({"source": "none.tsv"}, "data.source"),
    ],
)
def test_what_cannot_be_loaded(fields: dict[str, Any], field: str) -> None:
    assert refused(**fields).field == field


def test_a_corpus_too_small_to_be_divided(tmp_path: Path) -> None:
    error = refused(source=write(tmp_path / "a.tsv", [("one", "eins"), ("two", "zwei")]))
    assert error.field == "data.source"
    assert "of 2 usable examples in this one none falls into valid" in str(error)


def test_too_many_faulty_lines_stop_the_run_and_few_are_counted(tmp_path: Path) -> None:
    pairs = [(f"{'abcdefgh'[i % 8]}{'ijklmnop'[i // 8 % 8]}{'qrstuvwx'[i // 64]}", f"{i}x") for i in range(512)]
    source = write(tmp_path / "a.tsv", [*pairs[:300], ("", "nothing"), *pairs[300:]])
    data = load(source=source)
    sizes = [len(part) for part in (data.train, data.valid, data.test[0])]
    assert data.notes == (
        f"{source}: 513 records read, 512 examples kept",
        "left out, faulty records: 1",
        "column 0 to column 1, at most 60 tokens a side: "
        f"{sizes[0]} training pairs, {sizes[1]} validation and {sizes[2]} test sources",
    )
    error = refused(source=write(tmp_path / "b.tsv", [*pairs[:300], *[("", "nothing")] * 9, *pairs[300:]]))
    assert error.value == f"{tmp_path}/b.tsv:301: column 0 is empty"


# A million lines -------------------------------------------------------------------------------------------------

LOAD = """
import json, resource, sys, time
from transformer_ablate.config import DataConfig
from transformer_ablate.data import load_task
start = time.perf_counter()
data = load_task(DataConfig(task="translation", source=sys.argv[1], max_length=64, train_examples=0))
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([len(data.train), seconds, peak, data.notes]))
"""


@pytest.mark.slow
def test_a_million_lines_load_in_bounded_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    lexicon = np.array(["".join(rng.choice(letters, size=n)) for n in rng.integers(2, 11, size=20_000)])
    with (tmp_path / "big.tsv").open("w") as file:
        for _ in range(100):
            lengths = rng.integers(4, 17, size=10_000)
            words = lexicon[np.minimum(rng.zipf(1.2, size=lengths.sum()) - 1, len(lexicon) - 1)]
            for sentence in np.split(words, np.cumsum(lengths)[:-1]):
                file.write(f"{' '.join(sentence)}\t{' '.join(sentence[::-1])}.\n")
    command = [sys.executable, "-c", LOAD, str(tmp_path / "big.tsv")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    n, seconds, gigabytes, notes = json.loads(result.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\n1 000 000 lines: {n} training pairs in {seconds:.1f} s, peak memory {gigabytes:.2f} GB; {notes}")
    assert n > 800_000
    assert gigabytes < 1.5
