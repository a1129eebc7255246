"""What is particular to one task on random strings: distributions, noise, options."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import DataConfig
from transformer_ablate.data import TaskData, load_task
from transformer_ablate.data.synthetic import Addition, CopyUnique, Duplicate, FirstK, Recall, SkipCopy

SIZES = DataConfig(train_examples=8_000, valid_examples=100, test_examples=400)


def load(task: str, options: dict[str, Any] | None = None, **changes: Any) -> TaskData:
    return load_task(dataclasses.replace(SIZES, task=task, task_options=options or {}, **changes))


def even(counts: np.ndarray) -> bool:
    """Whether no count is more than five standard deviations from their mean."""
    return bool(np.abs(counts - counts.mean()).max() < 5 * math.sqrt(counts.mean()))


# copy-unique -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [3, 4, 9])
def test_every_string_without_repetition_is_equally_likely(vocab_size: int) -> None:
    pairs, _ = CopyUnique().sample(np.random.default_rng(1), 60_000, (3, 3), vocab_size)
    strings = Counter(map(tuple, pairs.source.flat.reshape(-1, 5)[:, 1:-1].tolist()))
    assert set(strings) == set(itertools.permutations(range(4, 4 + vocab_size), 3))
    assert even(np.array(list(strings.values())))


def test_no_symbol_stands_twice_up_to_strings_of_the_whole_alphabet() -> None:
    data = load("copy-unique", vocab_size=20)
    assert [s.name for s in data.test] == ["1", "1.25", "1.5", "2"]  # 3 and 4 would need more than 20 symbols
    longest = load("copy-unique", vocab_size=8)
    assert [s.name for s in longest.test] == ["1"]
    for pairs in (data.train, data.test[-1].pairs, longest.train, longest.test[0].pairs):
        assert all(len(set(x.tolist())) == len(x) for x in pairs.source)
    assert longest.longest_source == 10


# skip-copy -------------------------------------------------------------------------------------------------------


def test_the_prefix_is_drawn_alike_in_all_sets() -> None:
    data = load("skip-copy", {"longest_prefix": 5}, test_examples=2_000)
    assert data.source_vocabulary.symbols[-1] == "|"
    for pairs in (data.train, *(s.pairs for s in data.test)):
        assert (pairs.source.flat == 20).sum() == len(pairs)
        prefixes = [x[1 : x.tolist().index(20)] for x in pairs.source]
        assert even(np.bincount([len(p) for p in prefixes], minlength=6))
        assert max(map(len, prefixes)) == 5
        assert even(np.bincount(np.concatenate(prefixes) - 4, minlength=16))
        assert 20 not in pairs.target.flat


def test_source_lengths_of_skip_copy() -> None:
    pairs, _ = SkipCopy(longest_prefix=1).sample(np.random.default_rng(0), 100, (3, 3))
    assert set(pairs.source.lengths.tolist()) == {2 + 1 + 3, 2 + 2 + 3}


# noisy-copy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "vocab_size"), [(0.1, 16), (0.3, 5), (0.4, 2)])
def test_labels_are_replaced_at_the_rate_by_uniform_others(noise: float, vocab_size: int) -> None:
    data = load("noisy-copy", {"noise": noise}, vocab_size=vocab_size)
    for pairs in (data.train, data.test[0].pairs, data.test[-1].pairs):
        step = (pairs.target.flat - pairs.source.flat) % vocab_size
        symbols = pairs.source.flat >= 4
        assert not step[~symbols].any()
        n, replaced = int(symbols.sum()), int((step > 0).sum())
        assert abs(replaced - noise * n) < 5 * math.sqrt(noise * (1 - noise) * n)
        assert even(np.bincount(step[step > 0], minlength=vocab_size)[1:])


@pytest.mark.parametrize(("noise", "vocab_size", "entropy"), [(0.1, 16, 0.5958880), (0.3, 5, 1.0267528)])
def test_the_best_possible_model_scores_what_the_docstring_says(noise: float, vocab_size: int, entropy: float) -> None:
    data = load("noisy-copy", {"noise": noise}, vocab_size=vocab_size, train_examples=40_000)
    source, target = data.train.source, data.train.target
    symbols = source.flat >= 4
    right = (source.flat == target.flat)[symbols]
    tokens = len(right) + len(source)  # EOS is a token as well
    nll = -np.where(right, math.log(1 - noise), math.log(noise / (vocab_size - 1))).sum() / tokens
    mean = len(right) / len(source)
    assert mean == pytest.approx(4.5, rel=0.01)
    assert nll == pytest.approx(entropy * mean / (mean + 1), rel=0.01)
    assert (right.sum() + len(source)) / tokens == pytest.approx(((1 - noise) * mean + 1) / (mean + 1), rel=0.005)


def test_greedy_outputs_are_scored_against_the_string_without_noise() -> None:
    data = load("noisy-copy", {"noise": 0.4})
    for test in data.test:
        assert [[tuple(x[1:-1].tolist())] for x in test.pairs.source] == [list(r) for r in test.references]
        assert any(not np.array_equal(x, y) for x, y in zip(test.pairs.source, test.pairs.target, strict=True))


def test_the_rate_of_noise_leaves_the_strings_alone() -> None:
    weak, strong = (load("noisy-copy", {"noise": noise}) for noise in (0.05, 0.4))
    assert np.array_equal(weak.train.source.flat, strong.train.source.flat)
    changed_by_weak = weak.train.target.flat != weak.train.source.flat
    assert (strong.train.target.flat != strong.train.source.flat)[changed_by_weak].all()


# addition --------------------------------------------------------------------------------------------------------


def numbers(data: TaskData, index: int = 0) -> list[tuple[str, str, str]]:
    """Summands and sum of each example of a test set, as a reader writes them."""
    pairs = data.test[index].pairs
    shown = []
    for source, target in zip(pairs.source, pairs.target, strict=True):
        text = data.source_vocabulary.decode(source).replace(" ", "")
        a, b = text.removesuffix("=").split("+")
        shown.append((a[::-1], b[::-1], data.target_vocabulary.decode(target).replace(" ", "")[::-1]))
    return shown


def test_sums_are_right_and_no_number_has_leading_zeros() -> None:
    data = load("addition", max_length=3)
    for index in range(len(data.test)):
        for a, b, total in numbers(data, index):
            assert len(a) == len(b)
            assert (str(int(a)), str(int(b)), str(int(a) + int(b))) == (a, b, total)
        assert {len(total) - len(a) for a, _, total in numbers(data, index)} == {0, 1}


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.integers(10 ** (n - 1), 10**n - 1)] * 2)))
def test_addition_carries(summands: tuple[int, int]) -> None:
    a, b = (np.array([int(digit) for digit in reversed(str(x))]) for x in summands)
    padded = np.zeros((1, len(a) + 2), dtype=np.int32)
    padded[0, : len(a)] = 10 * a + b
    digits, length = Addition().targets(padded, np.array([len(a)]))
    assert (digits[0, : length[0]] - 4).tolist() == [int(digit) for digit in reversed(str(sum(summands)))]


def test_digits_are_uniform() -> None:
    data = load("addition", train_examples=16_000, max_length=1)
    digits = np.bincount(data.train.source.flat)[4:14]
    assert even(digits)
    long = load("addition", train_examples=16_000)
    last = np.array([x[-3] for x in long.train.source if len(x) > 6])  # the most significant of b
    assert even(np.bincount(last)[5:14])
    assert last.min() == 5
    first = np.array([x[1] for x in long.train.source if len(x) > 6])
    assert even(np.bincount(first)[4:14])


# The others ------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=7), min_size=1, max_size=5), st.integers(1, 7))
def test_options_set_what_is_read(strings: list[list[int]], value: int) -> None:
    lengths = np.array([len(s) for s in strings])
    symbols = np.array([s + [0] * (lengths.max() - len(s)) for s in strings], dtype=np.int32)

    def answers(task: Any) -> list[list[int]]:
        targets, sizes = task.targets(symbols, lengths)
        return [row[:size].tolist() for row, size in zip(targets, sizes, strict=True)]

    assert answers(Duplicate()) == [s + s for s in strings]
    assert answers(FirstK(k=value)) == [s[:value] for s in strings]
    if value <= lengths.min():
        assert answers(Recall(distance=value)) == [[s[-value]] for s in strings]


def test_recall_lengths_begin_at_the_distance() -> None:
    data = load("recall", {"distance": 7})
    assert [(s.pairs.source.lengths.min() - 2, s.pairs.source.lengths.max() - 2) for s in data.test[:2]] == [
        (7, 8),
        (9, 10),
    ]
    assert even(np.bincount(data.train.source.lengths)[9:])
    assert even(np.bincount([y[1] for y in data.train.target])[4:])


@pytest.mark.parametrize("task", ["parity", "addition"])
def test_the_number_of_symbols_means_nothing_where_the_task_has_its_own(task: str) -> None:
    assert load(task, vocab_size=2).content_hash == load(task, vocab_size=30).content_hash


def test_both_parities_are_equally_likely() -> None:
    data = load("parity", train_examples=16_000)
    assert data.target_vocabulary.symbols == ("0", "1")
    long = data.train.source.lengths > 6
    assert even(np.bincount([y[1] for y, keep in zip(data.train.target, long, strict=True) if keep])[4:])
