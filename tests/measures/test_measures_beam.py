"""Beam search as a measure: what it finds beside greedy decoding."""

from __future__ import annotations

import numpy as np
import pytest

from transformer_ablate.measures import MEASURES, Evaluation
from transformer_ablate.measures.beam import searched
from transformer_ablate.metrics import CATALOGUE


def test_a_beam_of_one_is_greedy_and_a_wider_one_is_likelier_on_the_whole(half_trained: Evaluation) -> None:
    test = half_trained.task.test[0]
    narrow, wide = (searched(half_trained, 40, width) for width in (1, 4))
    assert [h.tokens for h in narrow] == half_trained.free(test).outputs[:40]
    gains = np.array([b.log_probability - a.log_probability for a, b in zip(narrow, wide, strict=True)])
    assert gains.mean() > 0  # a model that is half trained is often unsure
    assert (gains > 1e-6).any()


def test_its_metrics_are_declared_and_agree_with_its_outputs(half_trained: Evaluation) -> None:
    metrics = MEASURES["beam"].measure(half_trained).metrics
    assert metrics.keys() <= CATALOGUE.keys()
    test = half_trained.task.test[0]
    n = min(256, len(test.pairs))
    right = [tuple(h.tokens) in test.references[i] for i, h in enumerate(searched(half_trained, n, 4))]
    assert metrics["beam_em"] == pytest.approx(np.mean(right))
    assert 0 < metrics["beam_em"] < 1
    assert metrics["beam_distance"] < 1
