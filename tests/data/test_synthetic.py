from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from transformer_ablate.config import DataConfig
from transformer_ablate.data import BOS, EOS, Pairs, TaskData, load_task
from transformer_ablate.data.synthetic import SyntheticTask, length_buckets
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import TASKS

SMALL = DataConfig(train_examples=3_000, valid_examples=100, test_examples=200)
ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "sort": sorted,
}


def small(**changes: object) -> DataConfig:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


def strings(pairs: Pairs, shortest: int = 0) -> list[tuple[int, ...]]:
    return [tuple(x[1:-1].tolist()) for x in pairs.source if len(x) - 2 >= shortest]


def all_pairs(data: TaskData) -> list[Pairs]:
    return [data.train, data.valid, *(s.pairs for s in data.test)]


@pytest.mark.parametrize("task", ANSWERS)
@pytest.mark.parametrize("n", [1, 5, 8])
def test_targets_are_what_the_task_says(task: str, n: int) -> None:
    data = load_task(small(task=task, max_length=n, vocab_size=13))
    for pairs in all_pairs(data):
        for source, target in zip(pairs.source, pairs.target, strict=True):
            assert source[0] == target[0] == BOS
            assert source[-1] == target[-1] == EOS
            content = source[1:-1].tolist()
            assert content
            assert all(4 <= i < 17 for i in content)
            assert target[1:-1].tolist() == ANSWERS[task](content)
    for test in data.test:
        assert [[tuple(y[1:-1].tolist())] for y in test.pairs.target] == [list(r) for r in test.references]


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (8, [("1", 1, 8), ("1.25", 9, 10), ("1.5", 11, 12), ("2", 13, 16), ("3", 17, 24), ("4", 25, 32)]),
        (12, [("1", 1, 12), ("1.25", 13, 15), ("1.5", 16, 18), ("2", 19, 24), ("3", 25, 36), ("4", 37, 48)]),
        (2, [("1", 1, 2), ("1.5", 3, 3), ("2", 4, 4), ("3", 5, 6), ("4", 7, 8)]),
        (1, [("1", 1, 1), ("2", 2, 2), ("3", 3, 3), ("4", 4, 4)]),
    ],
)
def test_bucket_ranges(n: int, expected: list[tuple[str, int, int]]) -> None:
    assert [(name, low, high) for name, _, low, high in length_buckets(n)] == expected
    data = load_task(small(max_length=n))
    assert [s.name for s in data.test] == [name for name, _, _ in expected]
    for test, (name, low, high) in zip(data.test, expected, strict=True):
        lengths = test.pairs.source.lengths - 2
        assert test.ratio == float(name)
        assert len(test) == 200
        assert (lengths.min(), lengths.max()) == (low, high)


def test_lengths_are_uniform_and_sizes_as_asked() -> None:
    data = load_task(small(train_examples=16_000))
    assert (len(data.train), len(data.valid)) == (16_000, 100)
    counts = np.array(list(data.train.source.length_histogram().values()))
    assert len(counts) == 8
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)  # five standard deviations
    symbols = np.bincount(data.train.source.flat)[4:]
    assert len(symbols) == 16
    assert np.abs(symbols / symbols.mean() - 1).max() < 0.1


@pytest.mark.parametrize("task", ANSWERS)
@pytest.mark.parametrize(("n", "vocab_size"), [(8, 16), (8, 2), (4, 2), (5, 3), (6, 4)])
def test_no_test_string_of_four_or_more_is_trained_on(task: str, n: int, vocab_size: int) -> None:
    data = load_task(small(task=task, max_length=n, vocab_size=vocab_size))
    trained = set(strings(data.train, shortest=4))
    tested = {x for pairs in all_pairs(data)[1:] for x in strings(pairs, shortest=4)}
    assert trained
    assert tested
    assert not trained & tested


def test_strings_of_a_test_set_are_distinct_where_there_are_enough() -> None:
    for test in load_task(small(vocab_size=16)).test:
        long = strings(test.pairs, shortest=4)
        assert len(set(long)) == len(long)


def test_vocabulary_and_lengths() -> None:
    data = load_task(small(vocab_size=5, max_length=6))
    assert data.source_vocabulary.symbols == tuple("01234")
    assert data.source_vocabulary.decode([4, 8]) == "0 4"
    assert data.joint_vocabulary
    assert data.exact
    assert data.name == "copy"
    assert data.longest_source == data.longest_target == 8


def test_one_copy_for_all_runs_that_differ_in_batching_only() -> None:
    assert load_task(small()) is load_task(small(batch_tokens=99, length_buckets=3, loader_workers=2))


def test_content_hash_changes_with_every_field_that_matters() -> None:
    changes: list[dict[str, object]] = [
        {}, {"task": "reverse"}, {"max_length": 9}, {"vocab_size": 17}, {"train_examples": 3_001},
        {"valid_examples": 101}, {"test_examples": 201},
        {"task": "g2p"}, {"task": "g2p", "split": "stem"}, {"task": "g2p", "split": "length"},
    ]  # fmt: skip
    hashes = [load_task(small(**change)).content_hash for change in changes]
    assert len(set(hashes)) == len(changes)
    assert load_task(small(batch_tokens=500)).content_hash == hashes[0]


@pytest.mark.parametrize("task", ["copy", "g2p"])
def test_content_hash_is_the_same_in_another_process(task: str) -> None:
    code = (
        "import random, numpy, torch; random.seed(5); numpy.random.seed(5); torch.manual_seed(5)\n"
        "from transformer_ablate.config import DataConfig; from transformer_ablate.data import load_task\n"
        "import sys; assert 'lightning' not in sys.modules  # takes seconds to import\n"
        f"print(load_task({small(task=task, split='stem')!r}).content_hash)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == load_task(small(task=task, split="stem")).content_hash


def test_a_size_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"train_examples.*no natural size") as caught:
        load_task(small(train_examples=0))
    assert caught.value.field == "data.train_examples"


def test_unknown_task_names_the_field() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reverse'") as caught:
        load_task(small(task="revers"))
    assert caught.value.field == "data.task"


def test_strings_must_not_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_ablate.data.synthetic.HELD_OUT_SHARE", 0.0)
    with pytest.raises(ConfigError) as caught:
        load_task(small(vocab_size=7))
    assert caught.value.field == "data.vocab_size"


@pytest.mark.parametrize("task", ANSWERS)
def test_rate(task: str) -> None:
    """Prints tokens per second; correctness of large draws is what is asserted, not the time."""
    sampler: SyntheticTask = TASKS[task]()
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 21, size=100_000)
    start = time.perf_counter()
    pairs = sampler.sample(generator, lengths, vocab_size=16, held_out=False)
    seconds = time.perf_counter() - start
    print(f"{task}: {lengths.sum() / seconds / 1e6:.1f} M source tokens/s")
    assert (pairs.source.lengths == lengths + 2).all()
    assert (pairs.target.lengths == lengths + 2).all()
    assert pairs.source.flat.sum() == pairs.target.flat.sum()
