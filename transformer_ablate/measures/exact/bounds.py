"""Bounds that theory sets to what a trained model can reach, which measured values are then held against."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from transformer_ablate.config import DataConfig, Recipe
from transformer_ablate.data import load_task
from transformer_ablate.measures.calibration import expected_calibration_error
from transformer_ablate.measures.exact.base import (
    TOLERANCE,
    Checked,
    check,
    largest_difference,
    random_tokens,
    small_model,
)
from transformer_ablate.tokens import N_SPECIALS
from transformer_ablate.training.losses import cross_entropy

# The cell whose task these bounds are of, where a study has one.
CELL = "copy"
ALPHA = 0.1
USUAL_CLASSES = 16
# Difference that the search for an optimum may leave.
CLOSE = 1e-6
# One test set in a thousand lies so many standard deviations above the expectation, or more.
DEVIATIONS = 3.09


# Label smoothing -------------------------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """The smoothed loss where it is least, and the probabilities there, (V,); the target is class N_SPECIALS."""

    loss: float
    probabilities: Tensor

    @property
    def target(self) -> float:
        """Probability of the target."""
        return float(self.probabilities[N_SPECIALS])


def smoothed_optimum(classes: int, alpha: float = ALPHA) -> Optimum:
    """Minimises the project's smoothed loss of one token over its V logits, in float64; it is convex."""
    target = torch.tensor([[N_SPECIALS]])

    def loss_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        logits = torch.tensor(z, requires_grad=True)
        loss = cross_entropy(logits[None, None], target, label_smoothing=alpha)
        (gradient,) = torch.autograd.grad(loss, logits)
        return loss.item(), gradient.numpy()

    with torch.enable_grad():
        # To the last digit: no tolerance on the loss, which is flat at its minimum.
        options = {"gtol": 1e-12, "ftol": 0.0, "maxiter": 1_000}
        found = minimize(loss_and_gradient, np.zeros(classes), jac=True, method="L-BFGS-B", options=options)
    return Optimum(float(found.fun), torch.from_numpy(found.x).softmax(-1))


def classes_of(bases: Mapping[str, Recipe]) -> int:
    """V of the study's copying cell, special tokens counted, since the loss spreads over them too; else 16."""
    return len(load_task(bases[CELL].data).target_vocabulary) if CELL in bases else USUAL_CLASSES


@check("smoothing-floor")
def smoothing_floor(bases: Mapping[str, Recipe]) -> Checked:
    """The least smoothed loss leaves an NLL of -ln(1 - a + a / V) per token (Szegedy et al. 2016, section 7).

    There the model's probabilities are the smoothed labels. A model that trains without smoothing can reach 0 where
    the target is a function of the source.
    """
    V = classes_of(bases)
    value, bound = -math.log(smoothed_optimum(V).target), -math.log(1 - ALPHA + ALPHA / V)
    detail = (
        f"α {ALPHA:g}, V {V}: hard-target NLL {value:.4f} nats where the smoothed loss is least, perplexity "
        f"{math.exp(value):.4f}; −ln(1 − α + α/V) = {bound:.4f}"
    )
    return Checked(abs(value - bound) < CLOSE, value, bound, detail)


@check("smoothing-clean-ece")
def smoothing_clean_ece(bases: Mapping[str, Recipe]) -> Checked:
    """On a deterministic task smoothing alone costs a calibration error of a (1 - 1 / V) (cf. Müller et al. 2019).

    At the optimum every argmax is right, with a confidence of 1 - a + a / V: the model is underconfident by the rest.
    """
    V = classes_of(bases)
    p = smoothed_optimum(V).probabilities
    right = int(p.argmax()) == N_SPECIALS
    value, bound = expected_calibration_error([float(p.max())], [right]), ALPHA * (1 - 1 / V)
    detail = (
        f"α {ALPHA:g}, V {V}: at the optimum confidence {float(p.max()):.4f}, accuracy {float(right):g}, ECE "
        f"{value:.4f}; α(1 − 1/V) = {bound:.4f}"
    )
    return Checked(abs(value - bound) < CLOSE, value, bound, detail)


# Bags of words ---------------------------------------------------------------------------------------------------


def distinct_permutations(string: Sequence[int]) -> int:
    """How many different strings have the same symbols: n! over the factorials of their numbers."""
    _, counts = np.unique(np.asarray(string), return_counts=True)
    return math.factorial(len(string)) // math.prod(math.factorial(int(n)) for n in counts)


def bag_of_words(strings: Sequence[Sequence[int]]) -> tuple[float, float]:
    """What a model that sees each string's symbols without their order can copy.

    Returns:
        expected share of the strings, and standard deviation of the share over orders of the strings' symbols.
    """
    p = np.array([1 / distinct_permutations(string) for string in strings])
    return float(p.mean()), float(np.sqrt((p * (1 - p)).sum()) / len(p))


def blind_answer(string: Sequence[int]) -> tuple[int, ...]:
    """One answer to each bag, as good as any other: its symbols in order."""
    return tuple(sorted(string))


def bag_model_order_effect() -> float:
    """Largest change of the logits of the project's averaging baseline when the source is permuted."""
    model = small_model(architecture="fnn_mean", matched=False)
    source, target = random_tokens(4, 9), random_tokens(4, 6, seed=2)
    return largest_difference(model(source.flip(1), target), model(source, target))


@check("bag-of-words-bound")
def bag_of_words_bound(bases: Mapping[str, Recipe]) -> Checked:
    """An order-blind model copies a string with probability 1 / (its distinct permutations) at most, on average.

    It has one answer to all orders of a string's symbols, which are equally likely in random strings. The bound is the
    mean over the strings of the first test set, an expectation: on one test set a model may be above it by chance.
    Training strings are none of the test's from four symbols on, so that learning the training set by heart is no help.
    """
    recipe = bases.get(CELL)
    test = load_task(DataConfig() if recipe is None else recipe.data).test[0]
    strings = [source[1:-1].tolist() for source in test.pairs.source]  # without BOS and EOS
    bound, deviation = bag_of_words(strings)
    value = float(np.mean([blind_answer(s) in accepted for s, accepted in zip(strings, test.references, strict=True)]))
    slack, effect = DEVIATIONS * deviation, bag_model_order_effect()
    longest, symbols = max(map(len, strings)), len({symbol for string in strings for symbol in string})
    detail = (
        f"{len(strings)} strings of 1 … {longest} of {symbols} symbols: expected exact match {bound:.4f}, by chance up "
        f"to {slack:.4f} more (1 test set in 1000 exceeds it); answering each bag in sorted order gives {value:.4f}; "
        f"permuting the source changes a logit of fnn_mean by at most {effect:.1e} (float64)"
    )
    return Checked(value <= bound + slack and effect < TOLERANCE, value, bound, detail)
