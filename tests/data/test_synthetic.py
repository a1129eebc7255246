from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transformer_ablate.config import DataConfig, Recipe
from transformer_ablate.data import BOS, EOS, Pairs, TaskData, load_task
from transformer_ablate.data.stable import row_hashes
from transformer_ablate.data.synthetic import SyntheticTask, length_buckets
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import TASKS

SMALL = DataConfig(train_examples=3_000, valid_examples=100, test_examples=200)
SYNTHETIC = tuple(name for name in TASKS.names() if issubclass(TASKS[name], SyntheticTask))
PLUS, SEPARATOR = 14, 20  # of addition, and of skip-copy over 16 symbols


def add(x: list[int]) -> list[int]:
    a, b = "".join("0123456789+="[i - 4] for i in x).rstrip("=").split("+")
    return [int(digit) + 4 for digit in reversed(str(int(a[::-1]) + int(b[::-1])))]


ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": lambda x: x,
    "copy-unique": lambda x: x,
    "skip-copy": lambda x: x[x.index(SEPARATOR) + 1 :],
    "duplicate": lambda x: x + x,
    "noisy-copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "sort": sorted,
    "first-k": lambda x: x[:3],
    "recall": lambda x: [x[-4]],
    "parity": lambda x: [4 + sum(i == 5 for i in x) % 2],
    "addition": add,
}


def content(task: str, source: np.ndarray) -> tuple[int, ...]:
    """The random string behind a source with BOS and EOS; of an addition the summands, the smaller first."""
    x = source[1:-1].tolist()
    if task == "skip-copy":
        return tuple(ANSWERS[task](x))
    if task == "addition":
        split = x.index(PLUS)
        first, second = sorted([x[:split], x[split + 1 : -1]])
        return tuple(first + second)
    return tuple(x)


def lengths(task: str, pairs: Pairs) -> np.ndarray:
    """What buckets and N count: symbols of the string, digits of a summand."""
    if task == "skip-copy":
        return pairs.target.lengths - 2
    return (pairs.source.lengths - 4) // 2 if task == "addition" else pairs.source.lengths - 2


def small(**changes: object) -> DataConfig:
    return dataclasses.replace(SMALL, **changes)  # type: ignore[arg-type]


def all_pairs(data: TaskData) -> list[Pairs]:
    return [data.train, data.valid, *(s.pairs for s in data.test)]


def test_recall_of_one_length_differs_in_the_place_alone() -> None:
    near, far = (load_task(small(task="recall", task_options={"distance": d, "shortest": 8})) for d in (2, 8))
    for data in (near, far):
        assert set(lengths("recall", data.train)) == {8}
    assert np.array_equal(near.train.source.flat, far.train.source.flat)
    assert not np.array_equal(near.train.target.flat, far.train.target.flat)


def test_every_task_has_its_answer_here() -> None:
    assert set(SYNTHETIC) == set(ANSWERS)


@pytest.mark.parametrize("task", ANSWERS)
def test_targets_are_what_the_task_says(task: str) -> None:
    data = load_task(small(task=task))
    for pairs in all_pairs(data):
        for source, target in zip(pairs.source, pairs.target, strict=True):
            assert source[0] == target[0] == BOS
            assert source[-1] == target[-1] == EOS
            x, y = source[1:-1].tolist(), target[1:-1].tolist()
            assert x
            assert all(4 <= i < len(data.source_vocabulary) for i in x + y)
            assert y == ANSWERS[task](x) or (task == "noisy-copy" and len(y) == len(x))
    for test in data.test:
        assert [[ANSWERS[task](x[1:-1].tolist())] for x in test.pairs.source] == [
            [list(accepted) for accepted in references] for references in test.references
        ]


@pytest.mark.parametrize("task", ["copy", "reverse", "sort", "duplicate", "addition", "parity"])
def test_strings_of_one_symbol(task: str) -> None:
    data = load_task(small(task=task, max_length=1))
    assert [s.name for s in data.test] == ["1", "2", "3", "4"]
    for source, target in zip(data.train.source, data.train.target, strict=True):
        assert target[1:-1].tolist() == ANSWERS[task](source[1:-1].tolist())


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
        found = test.pairs.source.lengths - 2
        assert test.ratio == float(name)
        assert len(test) == 200
        assert (found.min(), found.max()) == (low, high)


@pytest.mark.parametrize("task", ANSWERS)
def test_every_task_has_every_bucket(task: str) -> None:
    data = load_task(small(task=task, vocab_size=32 if task == "copy-unique" else 16))
    lowest = 4 if task == "recall" else 1
    bounds = [(max(low, lowest), high) for _, _, low, high in length_buckets(8)]
    for pairs, (low, high) in zip(all_pairs(data), [(lowest, 8), (lowest, 8), *bounds], strict=True):
        found = lengths(task, pairs)
        assert (found.min(), found.max()) == (low, high)


@pytest.mark.parametrize("task", ANSWERS)
def test_lengths_are_uniform_and_sizes_as_asked(task: str) -> None:
    data = load_task(small(task=task, train_examples=16_000))
    assert (len(data.train), len(data.valid)) == (16_000, 100)
    counts = np.bincount(lengths(task, data.train))[4 if task == "recall" else 1 :]
    assert len(counts) == (5 if task == "recall" else 8)
    expected = 16_000 / len(counts)
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)  # five standard deviations


def test_symbols_are_uniform() -> None:
    symbols = np.bincount(load_task(small(train_examples=16_000)).train.source.flat)[4:]
    assert len(symbols) == 16
    assert np.abs(symbols / symbols.mean() - 1).max() < 0.1


HELD_OUT = [
    *((task, n, v) for task in ("copy", "reverse", "sort") for n, v in [(8, 16), (8, 2), (4, 2), (5, 3), (6, 4)]),
    ("copy-unique", 5, 5), ("copy-unique", 6, 16), ("skip-copy", 5, 16), ("duplicate", 4, 2), ("duplicate", 8, 16),
    ("noisy-copy", 5, 3), ("first-k", 5, 3), ("first-k", 8, 16), ("recall", 4, 2), ("recall", 8, 16),
    ("parity", 5, 16), ("parity", 8, 16), ("addition", 2, 16), ("addition", 4, 16),
]  # fmt: skip


@pytest.mark.parametrize(("task", "n", "vocab_size"), HELD_OUT)
def test_no_test_string_of_four_or_more_is_trained_on(task: str, n: int, vocab_size: int) -> None:
    data = load_task(small(task=task, max_length=n, vocab_size=vocab_size))

    def strings(pairs: Pairs) -> set[tuple[int, ...]]:
        return {string for x in pairs.source if len(string := content(task, x)) >= 4}

    trained, tested = strings(data.train), set().union(*map(strings, all_pairs(data)[1:]))
    assert trained
    assert tested
    assert not trained & tested
    if task == "addition":  # shares a + b = b + a with no training pair; both orders do occur
        assert any(x[1:-1].tolist()[:n] > x[1:-1].tolist()[n + 1 : -1] for x in data.test[0].pairs.source)


@pytest.mark.parametrize("task", ["copy", "copy-unique", "skip-copy", "addition"])
def test_strings_of_a_test_set_are_distinct_where_there_are_enough(task: str) -> None:
    for test in load_task(small(task=task)).test:
        long = [string for x in test.pairs.source if len(string := content(task, x)) >= 4]
        assert len(set(long)) == len(long)


def test_vocabulary_and_lengths() -> None:
    data = load_task(small(vocab_size=5, max_length=6))
    assert data.source_vocabulary.symbols == tuple("01234")
    assert data.source_vocabulary.decode([4, 8]) == "0 4"
    assert data.joint_vocabulary
    assert data.exact
    assert data.name == "copy"
    assert data.longest_source == data.longest_target == 8


@pytest.mark.parametrize("task", ANSWERS)
def test_source_and_target_share_a_vocabulary_and_only_noise_makes_a_task_inexact(task: str) -> None:
    data = load_task(small(task=task))
    assert data.joint_vocabulary
    assert data.exact == (task != "noisy-copy")


def test_one_copy_for_all_runs_that_differ_in_batching_only() -> None:
    assert load_task(small()) is load_task(small(batch_tokens=99, length_buckets=3, loader_workers=2))
    four, five = (small(task="recall", task_options={"distance": distance}) for distance in (4, 5))
    assert load_task(four) is load_task(dataclasses.replace(four, batch_tokens=99, task_options={"distance": 4}))
    assert load_task(four) is not load_task(five)


def test_content_hash_changes_with_every_field_that_matters() -> None:
    changes: list[dict[str, object]] = [
        *({"task": task} for task in (*SYNTHETIC, "g2p", "p2g")),
        {"max_length": 9}, {"vocab_size": 17}, {"train_examples": 3_001}, {"valid_examples": 101},
        {"test_examples": 201}, {"task": "g2p", "split": "stem"}, {"task": "g2p", "split": "length"},
        {"task": "p2g", "split": "stem"}, {"task": "p2g", "split": "length"},
        {"task": "first-k", "task_options": {"k": 4}}, {"task": "recall", "task_options": {"distance": 5}},
        {"task": "skip-copy", "task_options": {"longest_prefix": 7}},
        {"task": "noisy-copy", "task_options": {"noise": 0.2}},
    ]  # fmt: skip
    hashes = [load_task(small(**change)).content_hash for change in changes]
    assert len(set(hashes)) == len(changes)
    assert load_task(small(task="copy", batch_tokens=500)).content_hash == load_task(small(task="copy")).content_hash


# Of the first three as they were when only these existed: a change would orphan every finished run.
HASHES = {
    ("copy", 8, 16): "28e24aef6636273b0948e7be5677c3a6c94dab128e4086f162e8574557f24edd",
    ("copy", 12, 16): "5139ef78cb7e6030721d929f17e2b39942cd03b834544792baeca35a59aed1ac",
    ("copy", 5, 3): "eb8e095721ef745c7dd48ac18cd102930cdc207013ec339fba5d16ea5925793b",
    ("copy", 4, 2): "5c388a59cde99177099c15b233443e9a44ea723d63a86ba55316df925c7a4782",
    ("reverse", 8, 16): "a4f54ba0ae9314548474da88ff701d98eeb859d2527614424e86015ac107666c",
    ("reverse", 12, 16): "580b9cf40a8e4b3d5dc53a919dbb16b4e416445945d77654334c0360ea0ac1e6",
    ("reverse", 5, 3): "9b77fb9b621b0677217b15ec9bf921067663b6dabf5a92d48e7679771c1858a8",
    ("reverse", 4, 2): "f066c74ded752d57b4d374e8519e290f93f0348174e1739117f809adf100416e",
    ("sort", 8, 16): "d6443c1e86a4cb39631418506051819343b7b7b5929a98298df520ca4ca2fcc8",
    ("sort", 12, 16): "9a6bd3b939bf7918183d99ab67ac744b238fed03be7d34c960c29f717a7a6b2c",
    ("sort", 5, 3): "8cdd84da0ed971e7e02eaf2fcc440744b7a25b14a5a510193f1b71e8b2bfb555",
    ("sort", 4, 2): "bab848eaa383bb6f89acf4b0c9eae7e72e34f8bcfdb10eec942e457dc5837bea",
    ("copy-unique", 8, 16): "88d99f8e9b3984020acf5b7230d917fde02ebbdc6aa7092a24916675aca786cc",
    ("skip-copy", 8, 16): "1b9005f50aebd3c2790119dc490414a8acd303d41e1c29967a2b898579589ec6",
    ("duplicate", 8, 16): "69d64c72d0af018024fe040698edc77425099e7bc26e765c58dc242e417bf8ad",
    ("noisy-copy", 8, 16): "0d7ec1dd755bf87dd95737bae03f9c44c0723fe2cd2c74c292c261ac731bdee7",
    ("first-k", 8, 16): "d3518c3920c610b4a68d5a11b0791a31d1382fa9af10f9bac28615f4829ec0c5",
    ("recall", 8, 16): "b8994abcac7749eaa777b2b959fa7afce44468e917a040a6c71dbbb77daaf92f",
    ("parity", 8, 16): "cf61c92b34e80aadef12734fc191cf83c84d0cc196aa992b0679675b3a81cb15",
    ("addition", 8, 16): "f17c316bb018a246afd5981671f79412cee48ea663862ab5a1e49a8b6f61b195",
}


@pytest.mark.parametrize(("task", "n", "vocab_size"), HASHES)
def test_data_never_change(task: str, n: int, vocab_size: int) -> None:
    found = load_task(small(task=task, max_length=n, vocab_size=vocab_size)).content_hash
    assert found == HASHES[task, n, vocab_size]


def test_content_hash_is_the_same_in_another_process() -> None:
    configs = [small(task=task, split="stem") for task in ("copy", "noisy-copy", "g2p", "p2g")]
    code = (
        "import random, numpy, torch; random.seed(5); numpy.random.seed(5); torch.manual_seed(5)\n"
        "from transformer_ablate.config import DataConfig; from transformer_ablate.data import load_task\n"
        "import sys; assert 'lightning' not in sys.modules  # takes seconds to import\n"
        f"print(*(load_task(config).content_hash for config in {configs!r}))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.split() == [load_task(config).content_hash for config in configs]


def test_a_size_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"train_examples.*no natural size") as caught:
        load_task(small(train_examples=0))
    assert caught.value.field == "data.train_examples"


def test_unknown_task_names_the_field() -> None:
    with pytest.raises(ConfigError, match="did you mean 'reverse'") as caught:
        load_task(small(task="revers"))
    assert caught.value.field == "data.task"


def test_strings_must_not_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_ablate.data.synthetic.base.HELD_OUT_SHARE", 0.0)
    with pytest.raises(ConfigError) as caught:
        load_task(small(vocab_size=7))
    assert caught.value.field == "data.vocab_size"


# Options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("recall", {"distanse": 8}, "data.task_options of 'recall': got 'distanse', .* did you mean 'distance'"),
        ("copy", {"k": 3}, r"data.task_options of 'copy': got 'k', allowed: \(it has none\)"),
        ("g2p", {"k": 3}, r"data.task_options of 'g2p': got 'k', allowed: \(it has none\)"),
        ("recall", {"distance": 0}, "data.task_options.distance: got 0, allowed: an integer at least 1"),
        ("first-k", {"k": 2.0}, "data.task_options.k: got 2.0"),
        ("first-k", {"k": True}, "data.task_options.k: got True"),
        ("skip-copy", {"longest_prefix": "a"}, "data.task_options.longest_prefix: got 'a'"),
        *(("noisy-copy", {"noise": r}, "data.task_options.noise") for r in (0, 0.5, -1, float("nan"), "0.1", True)),
    ],
)
def test_options_are_checked(task: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_task(small(task=task, task_options=options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"task": "recall", "task_options": {"distance": 9}}, "allowed: at least 9 with .* of 'recall'"),
        ({"task": "copy-unique", "vocab_size": 7}, "allowed: 1 to 7 with .* of 'copy-unique'"),
    ],
)
def test_a_length_that_the_task_cannot_have(change: dict[str, Any], allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        load_task(small(**change))
    assert caught.value.field == "data.max_length"


def test_options_count_in_the_fingerprint_and_none_is_as_before_there_were_any() -> None:
    plain = Recipe()
    assert plain.replace({"data.task_options": {}}).fingerprint("d") == plain.fingerprint("d")
    assert plain.replace({"data.task_options": {"k": 2}}).fingerprint("d") != plain.fingerprint("d")


# Speed -----------------------------------------------------------------------------------------------------------


def quickest(work: Callable[[], object]) -> float:
    """Seconds of processor time of the quickest of three calls: a busy machine does not count."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.parametrize("task", ANSWERS)
def test_a_large_draw_costs_a_few_passes_over_its_array(task: str) -> None:
    n, longest = 15_000, 20

    def one_pass() -> None:
        matrix = np.random.default_rng(0).integers(4, 20, size=(n, longest))
        row_hashes(matrix, np.full(n, longest))

    sampler = TASKS[task]()
    pairs, answers = sampler.sample(np.random.default_rng(0), n, (4, longest), vocab_size=32)
    assert len(pairs) == len(answers) == n
    ratio = quickest(lambda: sampler.sample(np.random.default_rng(0), n, (4, longest), 32)) / quickest(one_pass)
    print(f"{task}: {ratio:.1f} times as long as to draw and hash an array of this size")
    # A Python loop over the strings takes some forty times as long.
    assert ratio < 20
