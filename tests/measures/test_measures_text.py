"""Text tasks: scores of outputs as text, beside baselines, and what counts as right."""

from __future__ import annotations

import math
from typing import Any

import pytest

from transformer_ablate.config import Recipe
from transformer_ablate.data import PackedSequences, Pairs, TaskData, TestSet
from transformer_ablate.data.scores import TextScorer
from transformer_ablate.data.text_vocabulary import BytePairs, Words
from transformer_ablate.measures import MEASURES, Evaluation
from transformer_ablate.measures.quality import Quality
from transformer_ablate.measures.text import TextQuality

SPACED = TextScorer("13a")
SOURCES = ["打开文件", "关闭文件", "打开窗口", "关闭所有窗口"]
TARGETS = ["open the file", "close the file", "open the window", "close all the windows now"]


def text_task(said: list[str], scorer: TextScorer | None, word: bool = False) -> tuple[TaskData, dict[Any, list[int]]]:
    source: Any = BytePairs.learn(SOURCES * 3, size=262)
    target: Any = Words.learn(TARGETS[:3] * 2, size=50) if word else BytePairs.learn(TARGETS * 3, size=275)
    asked = source.encode_texts(SOURCES)
    answers = target.encode_texts(TARGETS)
    pairs = Pairs(PackedSequences.from_lists(asked).framed(), PackedSequences.from_lists(answers).framed())
    train = pairs.select([2, 0, 1, 3, 0])
    test = TestSet("1", 1.0, pairs, [[tuple(answer)] for answer in answers])
    task = TaskData("text", train, pairs, (test,), source, target, exact=False, scorer=scorer)
    outputs = target.encode_texts(said)
    return task, {tuple(row): output for row, output in zip(asked, outputs, strict=True)}


def test_a_text_task_is_scored_as_text(scripted: Any) -> None:
    said = [TARGETS[0], TARGETS[1], "open the windows", "close the window"]
    task, answers = text_task(said, SPACED)
    run = Evaluation(scripted(lambda s: answers[tuple(s)], len(task.target_vocabulary)), task, Recipe())
    measured = TextQuality().measure(run)
    references = [[target] for target in TARGETS]
    expected = SPACED.score(said, references)
    metrics = measured.metrics
    for name, value in expected.values.items():
        assert metrics[f"{name}/1"] == pytest.approx(value)
    assert metrics["chrf_copy/1"] == pytest.approx(0)
    frequent = SPACED.score([TARGETS[0]] * 4, references).values["chrf"]
    assert metrics["chrf_frequent/1"] == pytest.approx(frequent)
    assert metrics["chrf_copy/1"] < metrics["chrf_frequent/1"] < metrics["chrf/1"]
    assert metrics["unknown/1"] == 0
    nll = Quality().measure(run).metrics["nll/1"]
    tokens = int((task.valid.target.lengths - 1).sum())
    assert metrics["bits_per_char/1"] == pytest.approx(nll * tokens / math.log(2) / sum(map(len, TARGETS)))
    rows = {row["system"]: row for row in measured.artifacts["text_scores"]}
    assert list(rows) == ["model", "copy the source", "most frequent target"]
    assert rows["model"]["chrf_low"] <= metrics["chrf/1"] <= rows["model"]["chrf_high"]
    gain = rows["most frequent target"]
    assert gain["model_gain"] == pytest.approx(metrics["chrf/1"] - frequent)
    assert gain["gain_low"] <= gain["model_gain"] <= gain["gain_high"]
    assert rows["model"]["bleu_signature"] == expected.signatures["bleu"]


def test_text_is_compared_as_text_whatever_its_tokens(scripted: Any) -> None:
    task, answers = text_task(TARGETS, SPACED)
    target = task.target_vocabulary
    first = task.test[0].pairs.source[0][1:-1].tolist()
    other = [target.ids[s] for s in "openĠtheĠfile"]  # byte by byte: another division of the same text
    assert other != answers[tuple(first)]
    answers[tuple(first)] = other
    run = Evaluation(scripted(lambda s: answers[tuple(s)], len(target)), task, Recipe())
    measured = Quality().measure(run)
    assert measured.metrics["em/1"] == 1
    assert measured.metrics["edit_distance/1"] > 0  # in tokens
    assert not {"wer/1", "per/1"} & set(measured.metrics)
    assert all(row["correct"] for row in measured.artifacts["predictions"])
    assert measured.artifacts["predictions"][0]["output"] == "open the file"
    # Without a scorer the tokens count.
    plain, _ = text_task(TARGETS, None)
    run = Evaluation(scripted(lambda s: answers[tuple(s)], len(target)), plain, Recipe())
    assert Quality().measure(run).metrics["em/1"] == 0.75
    assert TextQuality().measure(run).metrics == {}


def test_unknown_words_are_never_right(scripted: Any) -> None:
    task, answers = text_task(TARGETS, SPACED, word=True)
    run = Evaluation(scripted(lambda s: answers[tuple(s)], len(task.target_vocabulary)), task, Recipe())
    assert Quality().measure(run).metrics["em/1"] == 0.75
    metrics = TextQuality().measure(run).metrics
    assert metrics["bleu/1"] < 95
    assert 0 < metrics["unknown/1"] < 0.2


def test_it_is_among_the_measures() -> None:
    assert isinstance(MEASURES["text"], TextQuality)
