"""Calibration against published figures, closed forms and one sentence at a time."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq
from transformer_ablate.data import BOS, EOS, PackedSequences, Pairs, TaskData, TestSet, Vocabulary, load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.measures import Evaluation
from transformer_ablate.measures import calibration as calibration_module
from transformer_ablate.measures import reliability as reliability_module
from transformer_ablate.measures.calibration import Calibration, free_confidence, sampled_logits, score_tokens
from transformer_ablate.measures.reliability import brier, expected_calibration_error, fit_temperature, reliability

CONFIDENCE, CORRECT = [0.95, 0.92, 0.85, 0.75, 0.65, 0.55], [1, 1, 1, 0, 1, 0]

# Expected calibration error --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bins", "expected"), [(15, 0.3216667), (5, 0.205), (1, 0.1116667)])
def test_ece_of_six_predictions(bins: int, expected: float) -> None:
    assert expected_calibration_error(CONFIDENCE, CORRECT, bins) == pytest.approx(expected, abs=1e-7)


def test_ece_of_equal_mass_of_six_predictions() -> None:
    # Three bins of two: .60 against .5, .80 against .5, .935 against 1.
    assert expected_calibration_error(CONFIDENCE, CORRECT, 3, by="mass") == pytest.approx((0.1 + 0.3 + 0.065) / 3)
    # Two of three: .65 against a third, .90667 against 1.
    two = expected_calibration_error(CONFIDENCE, CORRECT, 2, by="mass")
    assert two == pytest.approx((0.65 - 1 / 3 + 1 - 2.72 / 3) / 2)


@pytest.mark.parametrize("bins", [4, 10, 15])
def test_an_edge_belongs_to_the_bin_below_it(bins: int) -> None:
    edges = np.linspace(0, 1, bins + 1)
    rows = reliability(edges[1:], np.ones(bins), bins)
    assert [(row["bin"], row["n"], row["confidence"]) for row in rows] == [(b, 1, edges[b + 1]) for b in range(bins)]
    assert [row["low"] for row in rows] == edges[:-1].tolist()
    assert [row["high"] for row in rows] == edges[1:].tolist()


def test_what_is_at_the_ends_or_past_them_by_rounding_has_a_bin() -> None:
    rows = reliability([0.0, 1.0, 1.0000001], [0, 1, 1], 10)
    assert [(row["bin"], row["n"]) for row in rows] == [(0, 1), (9, 2)]


PREDICTIONS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40)


@given(PREDICTIONS, st.integers(1, 20))
def test_ece_is_that_of_a_loop_over_bins(predictions: list[tuple[float, bool]], bins: int) -> None:
    edges = np.linspace(0, 1, bins + 1)
    total = 0.0
    for b in range(bins):
        low = edges[b] if b else -1.0
        inside = [(p, hit) for p, hit in predictions if low < p <= edges[b + 1]]
        total += abs(sum(p for p, _ in inside) - sum(hit for _, hit in inside))
    confidence, correct = zip(*predictions, strict=True)
    assert expected_calibration_error(confidence, correct, bins) == pytest.approx(total / len(predictions), abs=1e-12)


@given(st.sets(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 20), st.integers(0, 99))
def test_bins_of_equal_mass_differ_by_at_most_one(confidence: set[float], bins: int, seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(sorted(confidence))
    rows = reliability(shuffled, shuffled > 0.5, bins, by="mass")
    sizes = [row["n"] for row in rows]
    assert len(rows) == min(bins, len(confidence))
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == len(confidence)
    ends = np.cumsum(sizes)
    parts = np.split(np.sort(shuffled), ends[:-1].astype(int))
    assert [row["confidence"] for row in rows] == pytest.approx([part.mean() for part in parts])
    assert [row["high"] for row in rows] == [part[-1] for part in parts]


@pytest.mark.parametrize("by", ["width", "mass"])
def test_the_order_of_equal_confidences_does_not_count(by: str) -> None:
    generator = np.random.default_rng(0)
    confidence = np.round(generator.random(300), 1)
    correct = generator.random(300) < confidence
    first = expected_calibration_error(confidence, correct, by=by)
    for _ in range(5):
        order = generator.permutation(300)
        assert expected_calibration_error(confidence[order], correct[order], by=by) == pytest.approx(first, abs=1e-12)
    assert len(reliability(confidence, correct, by=by)) <= 11


@pytest.mark.parametrize("by", ["width", "mass"])
@pytest.mark.parametrize(("n", "expected"), [(2_000, 0.025), (100_000, 0.0035)])
def test_a_perfectly_calibrated_predictor_shows_an_error_that_falls_with_n(n: int, expected: float, by: str) -> None:
    generator = np.random.default_rng(n)
    errors = []
    for _ in range(10):
        confidence = generator.random(n)
        errors.append(expected_calibration_error(confidence, generator.random(n) < confidence, by=by))
    assert np.mean(errors) == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize("by", ["width", "mass"])
def test_there_is_no_error_of_nothing_or_of_what_is_no_number(by: str) -> None:
    assert math.isnan(expected_calibration_error([], [], by=by))
    assert math.isnan(expected_calibration_error([0.5, math.nan], [1, 0], by=by))
    assert reliability([math.nan], [1], by=by) == []


def test_bad_bins_are_named() -> None:
    with pytest.raises(ConfigError, match="by: got 'mas', allowed: width, mass; did you mean 'mass'"):
        expected_calibration_error(CONFIDENCE, CORRECT, by="mas")
    with pytest.raises(ConfigError, match="bins: got 0, allowed: at least 1"):
        expected_calibration_error(CONFIDENCE, CORRECT, bins=0)


# Brier score and temperature -------------------------------------------------------------------------------------


def test_brier_scores() -> None:
    p = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0, 1, 0], [1, 0, 0], [1 / 3, 1 / 3, 1 / 3]])
    expected = [0.09 + 0.04 + 0.01, 0.49 + 0.64 + 0.01, 2, 0, 2 / 3]
    assert brier(p, torch.tensor([0, 1, 2, 0, 2])).tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("gap", "right"), [(4.0, 3), (1.0, 9), (8.0, 6)])
def test_the_temperature_of_two_classes_has_a_closed_form(gap: float, right: int) -> None:
    # All ten logits are (gap, 0): the best confidence is the accuracy a, so that gap / T = ln(a / (1 - a)).
    logits = torch.tensor([[gap, 0.0]]).expand(10, 2)
    targets = torch.tensor([0] * right + [1] * (10 - right))
    odds = right / (10 - right)
    if odds > 1:
        assert fit_temperature(logits, targets) == pytest.approx(gap / math.log(odds), rel=1e-3)
    else:  # worse than chance: no temperature is high enough
        assert fit_temperature(logits, targets) == pytest.approx(reliability_module.TEMPERATURES[1], rel=1e-3)


@pytest.mark.parametrize("known", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_recovered(known: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    honest = 2 * torch.randn(20_000, 12, generator=generator)
    targets = torch.multinomial(honest.softmax(-1), 1, generator=generator)[:, 0]
    found = fit_temperature(known * honest, targets)
    assert found == pytest.approx(known, rel=0.03)
    # At the optimum the mean logit of the model is that of the data: the derivative by 1 / T is 0.
    z = (known * honest).double()
    mean = ((z / found).softmax(-1) * z).sum(-1).mean()
    assert float(mean - z.gather(-1, targets[:, None]).mean()) == pytest.approx(0, abs=2e-3 * known)
    monkeypatch.setattr(reliability_module, "CHUNK_LOGITS", 12_345)
    assert fit_temperature(known * honest, targets) == pytest.approx(found, rel=1e-3)


def test_ruled_out_classes_do_not_disturb_the_temperature_but_what_is_no_number_does() -> None:
    logits = torch.tensor([[3.0, 0.0, -torch.inf]]).expand(4, 3)
    assert fit_temperature(logits, torch.tensor([0, 0, 0, 1])) == pytest.approx(3 / math.log(3), rel=1e-3)
    assert math.isnan(fit_temperature(logits, torch.tensor([0, 0, 2, 1])))
    assert math.isnan(fit_temperature(torch.full((4, 3), torch.nan), torch.tensor([0, 0, 2, 1])))


# Models with known answers ---------------------------------------------------------------------------------------

COPY = Recipe().replace(
    {"data.test_examples": 60, "data.valid_examples": 40, "data.train_examples": 100, "data.vocab_size": 36}
)


def sure(scripted: Any, answer: Any, size: int, p: float) -> Seq2Seq:
    """A scripted model that gives what it says the probability ``p`` and all else the same."""
    gap = math.log(p * (size - 1) / (1 - p))

    class Sure(scripted):
        def step(self, tokens: Any, state: Any) -> Any:
            return super().step(tokens, state) * (gap / 20)

    return Sure(answer, size)


def test_label_smoothing_miscalibrates_a_perfect_model_by_alpha_less_its_share(scripted: Any) -> None:
    task, alpha, size = load_task(COPY.data), 0.1, 40
    assert len(task.target_vocabulary) == size
    model = sure(scripted, lambda source: source, size, 1 - alpha + alpha / size)
    metrics = Calibration().measure(Evaluation(model, task, COPY)).metrics
    for name in ("ece", "ece_mass", "ece_eos", "ece_rest", "ece_free"):
        assert metrics[name] == pytest.approx(0.0975, abs=1e-6)
    assert metrics["confidence_gap"] == metrics["confidence_gap_free"] == pytest.approx(-0.0975, abs=1e-6)
    assert metrics["brier"] == pytest.approx(0.0975**2 + 39 * (0.1 / 40) ** 2, abs=1e-6)
    # One scalar takes all of it back: nothing is ever wrong, so that certainty is right.
    for name in ("ece_scaled", "ece_mass_scaled", "brier_scaled", "nll_scaled"):
        assert metrics[name] == pytest.approx(0, abs=1e-5)
    assert metrics["temperature"] < 0.5
    tokens = sum(int((pairs.target.lengths - 1).sum()) for pairs in (task.valid, task.test[0].pairs))
    assert metrics["calibration_tokens"] == tokens


def test_outputs_are_right_where_noisy_labels_agree_with_them_and_not_where_clean_answers_do(scripted: Any) -> None:
    recipe = COPY.replace({"data.task": "noisy-copy", "data.test_examples": 250})
    task = load_task(recipe.data)
    test = task.test[0]
    run = Evaluation(sure(scripted, lambda source: source, 40, 0.9), task, recipe)
    confidence, right = free_confidence(run, test)
    assert confidence == pytest.approx(0.9, abs=1e-6)
    same = [
        int(a == b) for source, target in zip(test.pairs.source, test.pairs.target, strict=True)
        for a, b in zip(source[1:], target[1:], strict=True)
    ]  # fmt: skip
    assert sorted(right.tolist()) == sorted(same)
    assert 0.88 < np.mean(same) < 0.95  # .9 of the symbols, and every end
    metrics = Calibration().measure(run).metrics
    assert metrics["ece_eos"] == pytest.approx(0.1, abs=1e-6)  # the end is never noisy
    assert metrics["ece_rest"] < 0.02
    assert metrics["confidence_gap_free"] == pytest.approx(0.9 - np.mean(same), abs=1e-6)


A, B, C, D, E, F = range(4, 10)
WORDS: list[tuple[list[int], list[tuple[int, ...]], list[int], list[int]]] = [
    # source, accepted targets, what the model says, which of its tokens are right (its end last)
    ([A], [(A, B, C)], [A, B, C], [1, 1, 1, 1]),
    ([B], [(A, B), (C, D, E)], [C, D, E], [1, 1, 1, 1]),  # right by its second reference
    ([C], [(A, B, C)], [A, C], [1, 0, 0]),  # what follows a missing token is out of place
    ([D], [(A, B), (E, D, C, B, A)], [E, D, C, B, B, A], [1, 1, 1, 1, 0, 0, 0]),  # what lies behind the end is wrong
    ([E], [(A,)], [], [0]),
    ([F], [(A, B)], [A, B, C, -1], [1, 1] + [0] * 14),  # capped at 2 * 3 + 10 tokens, never an end
]


def test_tokens_of_outputs_are_judged_by_position_in_the_closest_reference(scripted: Any) -> None:
    vocabulary = Vocabulary(list("ABCDEF"), joiner="")
    sources = PackedSequences.from_lists([source for source, *_ in WORDS]).framed()
    targets = PackedSequences.from_lists([accepted[0] for _, accepted, *_ in WORDS]).framed()
    pairs = Pairs(sources, targets)
    test = TestSet("1", 1.0, pairs, [accepted for _, accepted, *_ in WORDS])
    task = TaskData("words", pairs, pairs, (test,), vocabulary, vocabulary, exact=False)
    said = {tuple(source): output for source, _, output, _ in WORDS}
    model = sure(scripted, lambda source: said[tuple(source)], 10, 0.7)
    for one in range(len(WORDS)):  # alone, since batches are ordered by length
        alone = TestSet("1", 1.0, pairs.select([one]), test.references[one : one + 1])
        confidence, right = free_confidence(Evaluation(model, task, Recipe()), alone)
        assert right.astype(int).tolist() == WORDS[one][3]
        assert confidence == pytest.approx(0.7, abs=1e-6)
    _, right = free_confidence(Evaluation(model, task, Recipe()), test)
    assert (int(right.sum()), len(right)) == (sum(sum(w[3]) for w in WORDS), sum(len(w[3]) for w in WORDS))
    # Under the gold prefix the first reference alone counts, as in Quality.
    run = Evaluation(model, task, Recipe())
    (scores,) = score_tokens(model, pairs, (1.0,))
    assert scores.right.sum() == run.forced(test).right.sum()


def test_a_model_of_nans_has_no_figures(half_trained: Evaluation) -> None:
    broken = copy.deepcopy(half_trained.model)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(math.nan)
    metrics = Calibration().measure(Evaluation(broken, small(half_trained.task), half_trained.recipe)).metrics
    assert metrics.pop("calibration_tokens") > 0
    assert [name for name, value in metrics.items() if math.isfinite(value)] == []


# A model that has half learnt its task ---------------------------------------------------------------------------


def small(task: TaskData) -> TaskData:
    test = task.test[0]
    first = TestSet(test.name, test.ratio, test.pairs.select(np.arange(60)), test.references[:60])
    return dataclasses.replace(task, valid=task.valid.select(np.arange(40)), test=(first,))


@torch.inference_mode()
def naive(model: Seq2Seq, pairs: Pairs) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (N, V) in float64 and gold ids (N,), one sentence at a time."""
    logits, golds = [], []
    for source, target in zip(pairs.source, pairs.target, strict=True):
        ids = torch.tensor(target).long()
        logits.append(model(torch.tensor(source)[None].long(), ids[None, :-1])[0].double())
        golds.append(ids[1:])
    return torch.cat(logits), torch.cat(golds)


def test_metrics_are_those_of_one_sentence_at_a_time(half_trained: Evaluation) -> None:
    task = small(half_trained.task)
    run = Evaluation(half_trained.model, task, half_trained.recipe)
    measured = Calibration().measure(run)
    (z_valid, y_valid), (z_test, y_test) = naive(run.model, task.valid), naive(run.model, task.test[0].pairs)
    t_valid, t_test = fit_temperature(z_valid, y_valid), fit_temperature(z_test, y_test)
    assert abs(t_valid - t_test) > 0.01  # else it could not be told which set is scaled by which
    gold = torch.cat([y_valid, y_test])
    expected = {"temperature": t_valid, "calibration_tokens": len(gold)}
    for suffix, z in {
        "": torch.cat([z_valid, z_test]),
        "_scaled": torch.cat([z_valid / t_test, z_test / t_valid]),
    }.items():
        p = z.softmax(-1)
        confidence, choice = p.max(-1)
        right = choice == gold
        assert 0.3 < right.double().mean() < 0.98
        columns = confidence.numpy(), right.numpy()
        expected[f"ece{suffix}"] = expected_calibration_error(*columns)
        expected[f"ece_mass{suffix}"] = expected_calibration_error(*columns, by="mass")
        one_hot = torch.nn.functional.one_hot(gold, z.shape[-1])
        expected[f"brier{suffix}"] = float((p - one_hot).square().sum(-1).mean())
        if not suffix:
            ends = (gold == EOS).numpy()
            assert 0 < ends.sum() == len(task.valid) + len(task.test[0]) < len(gold)
            expected["confidence_gap"] = float((confidence - right.double()).mean())
            expected["ece_eos"] = expected_calibration_error(columns[0][ends], columns[1][ends])
            expected["ece_rest"] = expected_calibration_error(columns[0][~ends], columns[1][~ends])
    expected["nll_scaled"] = float(torch.nn.functional.cross_entropy(z_test / t_valid, y_test))
    metrics = dict(measured.metrics)
    free = {name: metrics.pop(name) for name in ("ece_free", "confidence_gap_free")}
    assert metrics == pytest.approx(expected, rel=1e-3, abs=1e-4)
    confidence, hits = naive_free(run.model, task.test[0].pairs)
    assert free["ece_free"] == pytest.approx(expected_calibration_error(confidence, hits), abs=1e-4)
    assert free["confidence_gap_free"] == pytest.approx(np.mean(confidence) - np.mean(hits), abs=1e-4)
    curves: dict[str, list[dict[str, float]]] = {}
    for row in measured.artifacts["reliability"]:
        curves.setdefault(row["curve"], []).append(row)
    for name, n in {"teacher-forced": len(gold), "scaled": len(gold), "free-running": len(hits)}.items():
        assert sum(row["n"] for row in curves[name]) == n
    shown = sum(row["n"] * abs(row["accuracy"] - row["confidence"]) for row in curves["scaled"]) / len(gold)
    assert shown == pytest.approx(metrics["ece_scaled"])


@torch.inference_mode()
def naive_free(model: Seq2Seq, pairs: Pairs) -> tuple[list[float], list[bool]]:
    """Confidence and truth of each greedily chosen token, without cache; the target is the only right answer."""
    confidence: list[float] = []
    hits: list[bool] = []
    for source, target in zip(pairs.source, pairs.target, strict=True):
        expected, prefix = target[1:].tolist(), [BOS]
        for t in range(2 * len(source) + 10):
            p, choice = model(torch.tensor(source)[None].long(), torch.tensor([prefix]))[0, -1].softmax(-1).max(-1)
            confidence.append(float(p))
            hits.append(t < len(expected) and int(choice) == expected[t])
            prefix.append(int(choice))
            if prefix[-1] == EOS:
                break
    return confidence, hits


def test_batching_changes_no_score(half_trained: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    task = small(half_trained.task)
    run = Evaluation(half_trained.model, task, half_trained.recipe)
    whole = Calibration().measure(run).metrics
    size = len(task.target_vocabulary)
    monkeypatch.setattr("transformer_ablate.measures.evaluation.EVALUATION_LOGITS", 60 * size)
    assert run.batch_tokens == 60
    assert Calibration().measure(run).metrics == pytest.approx(whole, rel=1e-3, abs=1e-4)


def test_of_many_logits_a_random_part_is_kept_the_same_for_every_model_and_batch(
    half_trained: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, size = half_trained.task.test[0].pairs, len(half_trained.task.target_vocabulary)
    every, every_gold = sampled_logits(half_trained.model, pairs, size, 4_096)
    assert len(every) == len(every_gold) == int((pairs.target.lengths - 1).sum())
    monkeypatch.setattr(calibration_module, "FIT_LOGITS", 400 * size + 1)
    logits, gold = sampled_logits(half_trained.model, pairs, size, 4_096)
    again, again_gold = sampled_logits(half_trained.model, pairs, size, 100)
    assert logits.shape == (400, size)
    torch.testing.assert_close(logits, again, rtol=1e-4, atol=1e-4)
    assert torch.equal(gold, again_gold)
    # From everywhere: sentences come by ascending length, and ends make up the same share.
    shares = [float((golds == EOS).double().mean()) for golds in (gold, every_gold)]
    assert shares[0] == pytest.approx(shares[1], abs=0.06)
    places = torch.cdist(logits.double(), every.double()).argmin(-1).double() / len(every)
    assert float(places.mean()) == pytest.approx(0.5, abs=0.06)
    assert fit_temperature(logits, gold) == pytest.approx(fit_temperature(every, every_gold), rel=0.2)


def test_ece_is_that_of_an_independent_implementation() -> None:
    from torchmetrics.classification import BinaryCalibrationError

    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.01, 0.99, 500)
    correct = rng.random(500) < confidence**2
    theirs = BinaryCalibrationError(n_bins=15, norm="l1")(torch.tensor(confidence), torch.tensor(correct).int())
    assert expected_calibration_error(confidence, correct) == pytest.approx(float(theirs), abs=1e-6)
