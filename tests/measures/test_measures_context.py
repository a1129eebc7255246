"""The same tokens behind more and more of the source."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data import BOS, EOS, load_task
from transformer_ablate.data.examples import PackedSequences, Pairs
from transformer_ablate.data.scores import TextScorer
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures.context import Context, behind_context

RECIPE = Recipe().replace({"data.max_length": 4, "data.test_examples": 12, "data.train_examples": 50})


def evaluation(**model: str) -> Evaluation:
    """An untrained model on copies of up to 4 symbols, treated as text."""
    recipe = RECIPE.replace({f"model.{name}": value for name, value in model.items()})
    task = dataclasses.replace(load_task(recipe.data), scorer=TextScorer.for_text(["a b"]))
    size = len(task.source_vocabulary)
    return Evaluation(build_model(recipe.model, size, size, seed=0), task, recipe)


def test_the_source_loses_its_beginning_and_the_target_its_end() -> None:
    whole = Pairs(*(PackedSequences.from_lists(side).framed() for side in ([[5, 6, 7], [8]], [[9, 10, 11], [12]])))
    cut = behind_context(whole, context=2, scored=2)
    assert [source.tolist() for source in cut.source] == [[BOS, 6, 7, EOS], [BOS, 8, EOS]]
    assert [target.tolist() for target in cut.target] == [[BOS, 9, 10], [BOS, 12, EOS]]


@torch.inference_mode()
def test_likelihoods_are_those_of_a_loop_over_the_longest_test_set() -> None:
    run = evaluation()
    metrics = Context().measure(run).metrics
    assert [name for name in metrics if name.startswith("context_nll")] == [
        f"context_nll/{name}" for name in ("1", "1.25", "1.5", "2", "3", "4")
    ]
    pairs = run.task.test[-1].pairs
    for name, context in (("1", 4), ("1.25", 5), ("1.5", 6), ("2", 8), ("3", 12), ("4", 16)):
        losses = []
        for source, target in zip(pairs.source, pairs.target, strict=True):
            kept = [BOS, *source[1:-1].tolist()[-context:], EOS]
            logits = run.model(torch.tensor([kept]), torch.tensor([target[:4].tolist()]))[0]
            losses += (-logits.log_softmax(-1)[torch.arange(4), torch.tensor(target[1:5].tolist())]).tolist()
        assert metrics[f"context_nll/{name}"] == pytest.approx(np.mean(losses), abs=1e-5)
        assert metrics[f"context_ppl/{name}"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-4)


def test_only_text_with_longer_test_sets_has_contexts() -> None:
    run = evaluation()
    strings = dataclasses.replace(run, task=dataclasses.replace(run.task, scorer=None))
    short = dataclasses.replace(run, task=dataclasses.replace(run.task, test=run.task.test[:1]))
    assert not Context().measure(strings).metrics
    assert not Context().measure(short).metrics
