"""Teacher-forced scores against free decoding and written-out loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq, build_model
from transformer_ablate.data import BOS, EOS, Pairs, load_task
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures import evaluation as evaluation_module
from transformer_ablate.measures.evaluation import free_running, teacher_forced
from transformer_ablate.measures.extrapolation import Extrapolation
from transformer_ablate.measures.quality import Quality


def first(pairs: Pairs, n: int) -> Pairs:
    return pairs.select(np.arange(n))


def references(pairs: Pairs) -> list[list[int]]:
    return [target[1:-1].tolist() for target in pairs.target]


def test_teacher_forced_exact_match_is_that_of_greedy_decoding(half_trained: Evaluation) -> None:
    pairs = first(half_trained.task.test[0].pairs, 500)
    forced, free = teacher_forced(half_trained.model, pairs), free_running(half_trained.model, pairs)
    equal = [output == reference for output, reference in zip(free.outputs, references(pairs), strict=True)]
    assert 0.05 < np.mean(equal) < 0.95
    assert forced.exact.tolist() == equal


def naive_oracle(model: Seq2Seq, source: list[int], length: int) -> list[int]:
    """Greedy decoding of ``length`` tokens with EOS forbidden, without cache."""
    prefix = [BOS]
    for _ in range(length):
        logits = model(torch.tensor([source]), torch.tensor([prefix]))[0, -1]
        logits[EOS] = -math.inf
        prefix.append(int(logits.argmax()))
    return prefix[1:]


@torch.inference_mode()
def test_oracle_length_exact_match_is_that_of_decoding_with_eos_withheld(half_trained: Evaluation) -> None:
    shares = []
    for test in half_trained.task.test[:2]:  # the second is past the training length, where stopping is what fails
        pairs = first(test.pairs, 100)
        oracle = teacher_forced(half_trained.model, pairs).exact_with_oracle_length
        equal = [
            naive_oracle(half_trained.model, source.tolist(), len(reference)) == reference
            for source, reference in zip(pairs.source, references(pairs), strict=True)
        ]
        assert oracle.tolist() == equal
        shares.append(np.mean(equal))
        exact = teacher_forced(half_trained.model, pairs).exact
        assert not (exact & ~oracle).any()
    assert 0.05 < shares[0] < 0.95
    assert (oracle & ~exact).any() or shares[1] == 0


@torch.inference_mode()
def test_scores_are_those_of_one_sentence_at_a_time(half_trained: Evaluation) -> None:
    pairs = first(half_trained.task.test[1].pairs, 40)
    forced = teacher_forced(half_trained.model, pairs)
    for i in range(40):
        source, target = torch.tensor(pairs.source[i])[None].long(), torch.tensor(pairs.target[i])[None].long()
        logits = half_trained.model(source, target[:, :-1])[0]
        gold = target[0, 1:]
        n = len(gold)
        nll = -logits.log_softmax(-1)[torch.arange(n), gold].sum().item()
        assert forced.nll[i] == pytest.approx(nll, rel=1e-4, abs=1e-5)
        assert forced.tokens[i] == n
        assert forced.scored[i].tolist() == [True] * n + [False] * (forced.scored.shape[1] - n)
        assert forced.right[i, :n].tolist() == (logits.argmax(-1) == gold).tolist()
        assert not forced.right[i, n:].any()


def test_batches_are_smaller_where_logits_are_many(half_trained: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert half_trained.batch_tokens == evaluation_module.EVALUATION_TOKENS
    size = len(half_trained.task.target_vocabulary)
    monkeypatch.setattr(evaluation_module, "EVALUATION_LOGITS", 100 * size + 1)
    assert half_trained.batch_tokens == 100


def test_batching_changes_no_score(half_trained: Evaluation) -> None:
    pairs = first(half_trained.task.test[1].pairs, 100)
    whole, free = teacher_forced(half_trained.model, pairs), free_running(half_trained.model, pairs)
    parts = teacher_forced(half_trained.model, pairs, 60)
    np.testing.assert_allclose(parts.nll, whole.nll, rtol=1e-4, atol=1e-5)
    assert np.array_equal(parts.right, whole.right)
    assert free_running(half_trained.model, pairs, 60).outputs == free.outputs


def test_passes_are_made_once(half_trained: Evaluation) -> None:
    run = Evaluation(half_trained.model, half_trained.task, half_trained.recipe)
    test = run.task.test[0]
    assert run.forced(test) is run.forced(test)
    assert run.free(test) is run.free(test)
    assert run.valid is run.valid
    assert len(run.free(test)) == 256  # of 600: the target is a function of the source
    assert len(run.valid.nll) == 100


def test_models_are_put_into_evaluation_mode(half_trained: Evaluation) -> None:
    half_trained.model.train()
    assert not Evaluation(half_trained.model, half_trained.task, half_trained.recipe).model.training


# Models with known answers ---------------------------------------------------------------------------------------


def copying(recipe: Recipe) -> tuple[Any, int]:
    task = load_task(recipe.data)
    return task, len(task.target_vocabulary)


COPY = Recipe().replace({"data.test_examples": 50, "data.valid_examples": 30, "data.train_examples": 100})


def test_a_perfect_model_is_perfect_at_every_length(scripted: Any) -> None:
    # PITFALLS H6 and C9: no cap, no shift may stand in its way.
    task, size = copying(COPY)
    run = Evaluation(scripted(lambda source: source, size), task, COPY)
    quality, reach = Quality().measure(run).metrics, Extrapolation().measure(run).metrics
    for test in task.test:
        assert quality[f"em/{test.name}"] == quality[f"token_accuracy/{test.name}"] == 1
        assert reach[f"em_oracle/{test.name}"] == 1
        assert quality[f"edit_distance/{test.name}"] == 0
        assert reach[f"cap_share/{test.name}"] == reach[f"length_error/{test.name}"] == 0
        forced = run.forced(test)
        assert forced.tokens.tolist() == [len(r) + 1 for r in references(test.pairs)]  # EOS is scored too
    assert reach["rho_90"] == reach["rho_50"] == 4


def test_a_model_that_stops_one_token_early(scripted: Any) -> None:
    task, size = copying(COPY)
    run = Evaluation(scripted(lambda source: source[:-1], size), task, COPY)
    quality, reach = Quality().measure(run).metrics, Extrapolation().measure(run).metrics
    for test in task.test:
        lengths = [len(r) for r in references(test.pairs)]
        assert quality[f"em/{test.name}"] == 0
        assert quality[f"edit_distance/{test.name}"] == pytest.approx(len(lengths) / sum(lengths))
        assert reach[f"length_error/{test.name}"] == 1
        assert reach[f"cap_share/{test.name}"] == 0
    assert reach["rho_90"] == reach["rho_50"] == 0


def test_a_model_that_never_stops_is_capped_and_right_under_the_oracle_of_length_only_by_content(scripted: Any) -> None:
    task, size = copying(COPY)
    run = Evaluation(scripted(lambda source: [*source, 4, -1], size), task, COPY)
    quality, reach = Quality().measure(run).metrics, Extrapolation().measure(run).metrics
    for test in task.test:
        lengths = [len(r) for r in references(test.pairs)]
        assert quality[f"em/{test.name}"] == 0
        assert reach[f"em_oracle/{test.name}"] == 1  # its content is right; what it cannot do is stop
        assert reach[f"cap_share/{test.name}"] == 1
        # The limit is twice the source and ten, BOS and EOS counted.
        assert reach[f"length_error/{test.name}"] == pytest.approx(np.mean([2 * (n + 2) + 10 - n for n in lengths]))


def test_accuracy_by_position(scripted: Any) -> None:
    task, size = copying(COPY)
    run = Evaluation(scripted(lambda source: [4, *source[1:]], size), task, COPY)
    rows = Extrapolation().measure(run).artifacts["accuracy_by_position"]
    test = task.test[1]
    here = [row for row in rows if row["bucket"] == test.name]
    golds = references(test.pairs)
    assert [row["position"] for row in here] == list(range(max(map(len, golds)) + 1))
    assert [row["n"] for row in here] == [sum(len(g) >= p for g in golds) for p in range(len(here))]
    assert here[0]["accuracy"] == pytest.approx(np.mean([g[0] == 4 for g in golds]))
    assert [row["accuracy"] for row in here[1:]] == [1.0] * (len(here) - 1)


@pytest.mark.parametrize(
    "delta",
    [
        {"model.position": "rope", "model.position_options": {"scaling": "dynamic_ntk", "trained_length": 2}},
        {"model.causal_mask": False},
    ],
)
def test_scores_do_not_depend_on_batch_mates_where_a_sentences_length_matters(delta: dict[str, Any]) -> None:
    # All but the last real token of each sentence are read, and not all but the batch's last column.
    recipe = COPY.replace(delta)
    task = load_task(recipe.data)
    model = build_model(recipe.model, len(task.source_vocabulary), len(task.target_vocabulary), seed=0).eval()
    pairs = first(task.test[0].pairs, 12)
    together = teacher_forced(model, pairs).nll
    alone = [teacher_forced(model, pairs.select(np.array([i]))).nll[0] for i in range(len(pairs))]
    assert together.tolist() == pytest.approx(alone, abs=1e-4)
