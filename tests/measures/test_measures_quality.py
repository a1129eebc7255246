"""Likelihood, perplexity and edit distances of hand-made outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import Recipe
from transformer_ablate.data import PackedSequences, Pairs, TaskData, TestSet, Vocabulary
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures.evaluation import TeacherForced
from transformer_ablate.measures.extrapolation import Extrapolation, reach
from transformer_ablate.measures.quality import Quality, closest, likelihood, perplexity, right_by_place


def forced(nll: list[float], tokens: list[int], right: list[int]) -> TeacherForced:
    width = max(tokens)
    scored = np.arange(width) < np.array(tokens)[:, None]
    hits = np.arange(width) < np.array(right)[:, None]
    return TeacherForced(np.array(nll), np.array(tokens), hits, hits, scored)


def test_means_are_weighted_by_tokens() -> None:
    result = likelihood(forced([22.0, 101.0], [11, 101], [11, 0]))
    assert result["nll"] == pytest.approx(1.098214, abs=1e-6)  # the mean of the two means would be 1.5
    assert result["ppl"] == pytest.approx(math.exp(123 / 112))
    assert result["token_accuracy"] == pytest.approx(11 / 112)


def test_perplexity() -> None:
    assert perplexity(math.log(5)) == pytest.approx(5)
    assert perplexity(0) == 1
    assert perplexity(800) == perplexity(1e9) == math.inf
    assert math.isfinite(perplexity(699))
    assert not perplexity(math.nan) < math.inf  # never a finite figure for a loss that is none


def naive_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Wagner & Fischer's table."""
    table = [[i + j if i * j == 0 else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            change = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, change)
    return table[-1][-1]


SEQUENCE = st.lists(st.integers(4, 7), max_size=7)


@given(SEQUENCE, st.lists(SEQUENCE, min_size=1, max_size=4))
def test_closest_reference_has_the_least_share_of_edits(output: list[int], references: list[list[int]]) -> None:
    edits, length = closest(output, references)
    shares = [naive_distance(output, r) / max(1, len(r)) for r in references]
    best = shares.index(min(shares))
    assert (edits, length) == (naive_distance(output, references[best]), len(references[best]))


def test_closest_of_equals_is_the_first() -> None:
    assert closest([4, 5], [[4, 6], [4, 7]]) == (1, 2)
    assert closest([4, 5, 6], [[4], [4, 5, 6, 7]]) == (1, 4)  # one edit in four, not two in one
    assert closest([], [[]]) == (0, 0)


# Words and phones ------------------------------------------------------------------------------------------------

A, B, C, D, E = range(4, 9)
WORDS: list[tuple[list[int], list[tuple[int, ...]], list[int]]] = [
    # source, accepted targets, what the model says
    ([A], [(A, B, C)], [A, B, C]),  # right
    ([B], [(A, B), (C, D, E)], [C, D, E]),  # right by its second reference
    ([C], [(A, B, C, D)], [A, C, D]),  # one edit in four
    ([D], [(A, B), (E, D, C, B, A)], [E, D, C, B, B, A]),  # one edit in five, the closer one
    ([E], [(A,)], []),  # one edit in one
]


def word_task(exact: bool) -> TaskData:
    vocabulary = Vocabulary(list("ABCDE"), joiner="")
    sources = PackedSequences.from_lists([source for source, _, _ in WORDS]).framed()
    targets = PackedSequences.from_lists([accepted[0] for _, accepted, _ in WORDS]).framed()
    pairs = Pairs(sources, targets)
    test = TestSet("1", 1.0, pairs, [accepted for _, accepted, _ in WORDS])
    return TaskData("words", pairs, pairs, (test,), vocabulary, vocabulary, exact=exact)


def test_phone_and_word_errors(scripted: Any) -> None:
    said = {tuple(source): output for source, _, output in WORDS}
    run = Evaluation(scripted(lambda source: said[tuple(source)], 9), word_task(exact=False), Recipe())
    measured = Quality().measure(run)
    metrics = measured.metrics
    assert metrics["em/1"] == pytest.approx(2 / 5)
    assert metrics["wer/1"] == pytest.approx(3 / 5)
    assert metrics["per/1"] == pytest.approx((0 + 0 + 1 + 1 + 1) / (3 + 3 + 4 + 5 + 1))
    assert "edit_distance/1" not in metrics
    assert measured.artifacts["predictions"][3] == {
        "bucket": "1", "source": "D", "reference": "AB | EDCBA", "output": "EDCBBA", "correct": False
    }  # fmt: skip
    assert sum(row["correct"] for row in measured.artifacts["predictions"]) == 2
    # Lengths 3, 3, 3, 6, 0 against the closest of 3, {2, 3}, 4, {2, 5}, 1.
    others = Extrapolation().measure(run).metrics
    assert others["length_error/1"] == pytest.approx((0 + 0 + 1 + 1 + 1) / 5)
    assert "em_oracle/1" not in others  # it would be judged under the first answer alone
    assert "rho_90" not in others  # a share of exact matches cannot be perfect where several answers are right


def test_likelihood_is_that_of_the_first_reference(scripted: Any) -> None:
    said = {tuple(source): output for source, _, output in WORDS}
    run = Evaluation(scripted(lambda source: said[tuple(source)], 9), word_task(exact=False), Recipe())
    metrics = Quality().measure(run).metrics
    # Position by position, EOS ($) included: ABC$ all; none; A and $ of ABCD$ against ACD$$; none; $ of A$ against $$.
    right = 4 + 0 + 2 + 0 + 1
    tokens = 4 + 3 + 5 + 3 + 2
    assert metrics["token_accuracy/1"] == pytest.approx(right / tokens)
    miss, hit = math.log(8 + math.exp(20)), math.log(8 + math.exp(20)) - 20  # logits are 20 and eight times 0
    assert metrics["nll/1"] == pytest.approx((right * hit + (tokens - right) * miss) / tokens, rel=1e-5)
    assert metrics["ppl/1"] == pytest.approx(math.exp(metrics["nll/1"]))
    assert metrics["valid_nll"] == pytest.approx(metrics["nll/1"])
    assert metrics["valid_token_accuracy"] == pytest.approx(metrics["token_accuracy/1"])


# Reach -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1, 1, 1], 3),
        ([1, 0.95, 0.9, 0.1], 2),  # the threshold itself counts
        ([1, 0.5, 1, 1], 1),  # what comes after a gap does not count
        ([0.89, 1, 1, 1], 0),
        ([], 0),
    ],
)
def test_reach(values: list[float], expected: float) -> None:
    assert reach(list(zip([1, 1.5, 2, 3], values, strict=False)), 0.9) == expected


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_reach_falls_as_the_threshold_rises(values: list[float], low: float, high: float) -> None:
    exact = [(1 + 0.5 * i, value) for i, value in enumerate(values)]
    low, high = sorted((low, high))
    assert reach(exact, high) <= reach(exact, low)
    held = [ratio for i, (ratio, _) in enumerate(exact) if all(v >= low for v in values[: i + 1])]
    assert reach(exact, low) == max(held, default=0)


@pytest.mark.parametrize(
    ("output", "references", "met"),
    [([1, 2, 3], [[1, 2, 3]], (4, 4)), ([1, 2], [[1, 2, 3]], (2, 4)), ([9, 1, 2, 3], [[1, 2, 3]], (0, 4)),
     ([1, 2], [[1, 2, 3], [1, 4]], (2, 3)), ([], [[]], (1, 1))],
)  # fmt: skip
def test_free_accuracy_counts_tokens_at_their_own_place(
    output: list[int], references: list[list[int]], met: tuple[int, int]
) -> None:
    assert right_by_place(output, references) == met


def test_free_accuracy_of_right_outputs_is_the_teacher_forced_one(half_trained: Evaluation) -> None:
    metrics = Quality().measure(half_trained).metrics
    assert 0 < metrics["free_accuracy/1"] < 1
    assert metrics["free_accuracy/1"] >= metrics["em/1"] - 0.1
