"""Exact checks that compute a bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import Recipe
from transformer_ablate.measures import exact
from transformer_ablate.measures.exact import CHECKS
from transformer_ablate.measures.exact.bounds import bag_of_words, distinct_permutations


def copying(**fields: int) -> dict[str, Recipe]:
    """A study whose copying cell has these sizes."""
    small = {"train_examples": 10, "valid_examples": 10, **fields}
    return {"copy": Recipe().replace({f"data.{name}": value for name, value in small.items()})}


@pytest.mark.parametrize("name", ["smoothing-floor", "smoothing-clean-ece"])
def test_another_kind_of_smoothing_has_another_floor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = exact.bounds.cross_entropy

    def others(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        return real(logits, targets, label_smoothing, smoothing="others")

    monkeypatch.setattr(exact.bounds, "cross_entropy", others)
    assert not CHECKS[name]({}).holds


# Bags of words ---------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_distinct_permutations_are_those_that_can_be_listed(string: list[int]) -> None:
    assert distinct_permutations(string) == len(set(itertools.permutations(string)))


def test_the_bound_is_the_share_that_one_answer_a_bag_gets_of_all_strings() -> None:
    # Over all strings of a length each bag counts with all its orders, and one of them is its answer.
    strings = list(itertools.product(range(3), repeat=4))
    bags = {tuple(sorted(string)) for string in strings}
    bound, deviation = bag_of_words(strings)
    assert bound == pytest.approx(len(bags) / len(strings), abs=1e-12)
    p = np.array([1 / distinct_permutations(string) for string in strings])
    assert deviation == pytest.approx(math.sqrt(np.mean(p * (1 - p)) / len(strings)), abs=1e-12)


def test_simulated_order_blind_models_scatter_about_the_bound_by_the_given_deviation() -> None:
    generator = np.random.default_rng(0)
    strings = [generator.integers(0, 5, size=generator.integers(1, 6)).tolist() for _ in range(200)]
    bound, deviation = bag_of_words(strings)
    shares = [
        np.mean([generator.permutation(s).tolist() == sorted(s) for s in strings])  # equally likely orders, one answer
        for _ in range(400)
    ]
    assert np.mean(shares) == pytest.approx(bound, abs=4 * deviation / 20)
    assert np.std(shares) == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize(("longest", "symbols"), [(8, 16), (12, 16), (4, 8)])
def test_bag_of_words_bound_of_a_copying_cell(longest: int, symbols: int) -> None:
    outcome = CHECKS["bag-of-words-bound"](copying(max_length=longest, vocab_size=symbols))
    assert outcome.holds
    # In expectation over random strings: bags of n symbols over strings of n symbols, lengths being uniform.
    expected = np.mean([math.comb(symbols + n - 1, n) / symbols**n for n in range(1, longest + 1)])
    assert outcome.bound == pytest.approx(expected, abs=0.03)
    assert f"2000 strings of 1 … {longest} of {symbols} symbols" in outcome.detail


def test_an_answer_that_knows_the_order_is_above_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact.bounds, "blind_answer", tuple)
    outcome = CHECKS["bag-of-words-bound"](copying(max_length=6))
    assert (outcome.holds, outcome.value) == (False, 1.0)
