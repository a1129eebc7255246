"""BLEU, chrF and TER of text, their intervals, and what they are compared with."""

from __future__ import annotations

import math
from collections import Counter
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF, TER

from transformer_ablate.data import EOS, PackedSequences, scores
from transformer_ablate.data.scores import (
    TextScorer,
    bits_per_character,
    interval,
    most_frequent,
    unknown_share,
    word_division,
)
from transformer_ablate.data.text_vocabulary import BytePairs, Characters

SPACED, CHINESE = TextScorer("13a"), TextScorer("zh")
ENGLISH = ["open the file", "close the file", "open the window", "close all the windows now"]
HANZI = ["无法打开文件夹中的文件", "请先关闭所有的窗口再继续"]


# BLEU -----------------------------------------------------------------------------------------------------------


def test_bleu_is_of_the_corpus_not_a_mean() -> None:
    outputs = ["a b c d e", "a b x d e f g"]
    references = [["a b c d e"], ["a b c d e f g"]]
    assert SPACED.score(outputs, references).values["bleu"] == pytest.approx(69.1891, abs=1e-4)
    alone = [SPACED.score([o], [r]).values["bleu"] for o, r in zip(outputs, references, strict=True)]
    assert np.mean(alone) == pytest.approx(74.4462, abs=1e-4)


def naive_bleu(outputs: list[list[str]], references: list[list[str]]) -> float:
    """Papineni et al. 2002 for one reference, orders that no output is long enough for left out."""
    log, orders = 0.0, 0
    for n in range(1, 5):
        grams = [[Counter(zip(*(side[i:] for i in range(n)), strict=False)) for side in pair]
                 for pair in zip(outputs, references, strict=True)]  # fmt: skip
        total = sum(sum(said.values()) for said, _ in grams)
        if total:
            log += math.log(sum(sum((said & right).values()) for said, right in grams) / total)
            orders += 1
    said, right = sum(map(len, outputs)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - right / said)) * math.exp(log / orders)


def test_bleu_by_hand() -> None:
    references = [["the", "cat", "sat", "on", "the", "mat"], ["a", "dog", "ran", "away", "from", "it", "today"]]
    outputs = [["the", "cat", "sat", "on", "the", "the", "mat"], ["a", "dog", "ran", "away"]]
    joined = [[" ".join(words) for words in side] for side in (outputs, references)]
    expected = naive_bleu(outputs, references)
    assert SPACED.score(joined[0], [[r] for r in joined[1]]).values["bleu"] == pytest.approx(expected)
    assert 0 < expected < 90


def test_short_texts_can_be_right() -> None:
    """Where no text has four words there are no 4-grams; without effective order BLEU would be 0."""
    right = ["Open file", "Save", "Close all files"]
    scored = SPACED.score(right, [[r] for r in right])
    assert scored.values == {"bleu": pytest.approx(100), "chrf": pytest.approx(100), "ter": 0}
    assert BLEU().corpus_score(right, [right]).score == 0
    assert "|eff:yes|" in scored.signatures["bleu"]
    assert "|smooth:exp|" in scored.signatures["bleu"]
    # Smoothing: no 2-gram is right, and so on; method 3 of Chen & Cherry 2014 halves each time.
    half = SPACED.score(["Open door", "Save", "Close no doors"], [[r] for r in right])
    expected = 100 * math.exp((math.log(3 / 6) + math.log(1 / (2 * 3)) + math.log(1 / (4 * 1))) / 3)
    assert half.values["bleu"] == pytest.approx(expected)


@given(st.lists(st.text("abc ", min_size=8, max_size=20), min_size=1, max_size=6))
def test_effective_order_changes_no_bleu_that_has_4_grams(outputs: list[str]) -> None:
    outputs = ["a b c d e", *outputs]
    references = ["a b c d d", *outputs[:-1]]
    plain = BLEU().corpus_score(outputs, [references]).score
    assert SPACED.score(outputs, [[r] for r in references], ter=False).values["bleu"] == pytest.approx(plain)


# How words are found --------------------------------------------------------------------------------------------


def test_chinese_is_not_scored_in_spaced_words() -> None:
    references = [[text] for text in HANZI]
    assert BLEU(tokenize="13a").corpus_score(HANZI, [HANZI]).score == 0  # the trap: identical text
    scored = CHINESE.score(HANZI, references)
    assert scored.values == {"bleu": pytest.approx(100), "chrf": pytest.approx(100), "ter": 0}
    assert "|tok:zh|" in scored.signatures["bleu"]
    nearly = [text.replace("文件夹", "文档") for text in HANZI]
    assert CHINESE.score(nearly, references).values["bleu"] > 60
    assert SPACED.score(nearly, references).values["bleu"] < 55
    assert TextScorer("char").score(HANZI, references).values["bleu"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("text", "division"),
    [
        ("Cannot open the file", "13a"),
        ("Не удалось открыть файл", "13a"),
        ("파일을 열 수 없습니다", "13a"),
        ("تعذر فتح الملف", "13a"),
        ("无法打开文件 README.md", "zh"),
        ("無法開啟檔案", "zh"),
        ("ファイルを開けません", "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"),
        ("ไม่สามารถเปิดไฟล์", "char"),
        ("မဖွင့်နိုင်ပါ", "char"),
        ("%s: 12", "13a"),
        ("", "13a"),
    ],
)
def test_the_script_decides_how_words_are_found(text: str, division: str) -> None:
    assert word_division([text]) == division
    assert TextScorer.for_text(iter([text])).division == division


def test_a_few_foreign_letters_do_not_decide() -> None:
    assert word_division(["Open the folder 文件", "Close all of the windows"]) == "13a"
    assert word_division(["无法打开 config.yaml", "请先关闭所有的窗口"]) == "zh"
    assert word_division(["「の」という文字だけは日本語", "日本語文書一覧表示設定"]) != "zh"
    assert (
        word_division(["日本語文書一覧表示設定変更完了画面表示言語選択漢字变更完了画面の"]) == "zh"
    )  # one kana in thirty


def test_ter_has_the_words_of_bleu() -> None:
    references = [["打开文件"], ["关闭 A 窗口"]]
    # Two of four characters differ; nothing else does: 2 edits over 4 + 5 words.
    scored = CHINESE.score(["打开窗口", "关闭 A 窗口"], references)
    assert scored.values["ter"] == pytest.approx(100 * 2 / 9)
    assert scored.signatures["ter"].endswith("|words:zh|first:2")
    assert SPACED.score(["b a d e"], [["a b d e"]]).values["ter"] == pytest.approx(25)  # one shift


# chrF, several references, faults -------------------------------------------------------------------------------


def test_scores_agree_with_the_library() -> None:
    outputs = ["the cat sat on a mat", "dogs ran away today", "no idea"]
    references = [["the cat sat on the mat"], ["a dog ran away today"], ["nobody knows why"]]
    scored = SPACED.score(outputs, references)
    streams = [[r[0] for r in references]]
    for name, metric in (("bleu", BLEU(effective_order=True)), ("chrf", CHRF()), ("ter", TER())):
        assert scored.values[name] == pytest.approx(metric.corpus_score(outputs, streams).score)
        assert scored.signatures[name].startswith(str(metric.get_signature()))
        assert "version:" in scored.signatures[name]


def test_any_reference_may_be_met() -> None:
    outputs = ["close the window", "open a file now please"]
    references = [["shut the window", "close the window"], ["open a file now please"]]
    scored = SPACED.score(outputs, references)
    assert scored.values == {"bleu": pytest.approx(100), "chrf": pytest.approx(100), "ter": 0}
    assert scored.signatures["bleu"].startswith("nrefs:var|")
    assert SPACED.equal("close the window", references[0])
    assert not SPACED.equal("close the windows", references[0])


@pytest.mark.parametrize(
    ("outputs", "references"),
    [
        ([], []),
        (["a b c d"], [["a b c d"], ["b"]]),
        (["a b c d"], ["a b c d"]),  # flat references: characters would be taken for texts, and score 0
        (["a b c d"], [[]]),
    ],
)
def test_wrong_nesting_is_refused(outputs: list[str], references: Any) -> None:
    with pytest.raises(ValueError, match=r"outputs for the references|each example needs"):
        SPACED.score(outputs, references)


def test_unknown_tokens_match_nothing() -> None:
    vocabulary = Characters.learn(["abcdefgh"], size=8)
    text = vocabulary.decode(vocabulary.encode_text("axcdxxgh"))
    assert text == "a\ufffdcd\ufffd\ufffdgh"
    spelled = TextScorer("char").score([text], [[text]])
    assert spelled.values["bleu"] < 60
    assert spelled.values["chrf"] < 60
    assert spelled.values["ter"] == pytest.approx(100 * 3 / 8)
    assert not SPACED.equal(text, [text])
    assert SPACED.equal("acdgh", ["acdgh"])


def test_empty_outputs_score_nothing() -> None:
    scored = SPACED.score(["", ""], [["a b c d"], ["e f g h"]])
    assert scored.values == {"bleu": 0, "chrf": 0, "ter": 100}


def test_ter_is_taken_on_what_is_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "TER_WORK", 3**3 + 2**3)
    outputs = ["a b c", "x", "a"]
    scored = SPACED.score(outputs, [["a b c"], ["a b"], ["b"]])
    assert scored.signatures["ter"].endswith("|first:2")
    assert scored.values["ter"] == pytest.approx(100 * 2 / 5)
    assert len(scored.segments["ter"]) == 2
    monkeypatch.setattr(scores, "TER_WORK", 1)
    assert SPACED.score(outputs, [["a b c"], ["a b"], ["b"]]).signatures["ter"].endswith("|first:1")
    assert "ter" not in SPACED.score(outputs, [["a b c"], ["a b"], ["b"]], ter=False).values


# Intervals ------------------------------------------------------------------------------------------------------


def noisy(share: float, seed: int, n: int = 100) -> tuple[list[str], list[list[str]]]:
    generator = np.random.default_rng(seed)
    words = np.array(["file", "folder", "open", "close", "window", "cannot", "the", "all", "name", "new"])
    references = words[generator.integers(10, size=(n, 6))]
    wrong = words[generator.integers(10, size=(n, 6))]
    outputs = np.where(generator.random((n, 6)) < share, wrong, references)
    return [" ".join(row) for row in outputs], [[" ".join(row)] for row in references]


def test_an_interval_is_as_wide_as_the_scores_of_other_test_sets() -> None:
    spread = [SPACED.score(*noisy(0.5, seed), ter=False).values["chrf"] for seed in range(40)]
    scored = SPACED.score(*noisy(0.5, 99), ter=False)
    low, high = interval("chrf", scored)
    assert low < scored.values["chrf"] < high
    assert high - low == pytest.approx(2 * 1.96 * np.std(spread, ddof=1), rel=0.35)


def test_an_interval_of_a_difference_is_paired() -> None:
    outputs, references = noisy(0.5, 1)
    one = SPACED.score(outputs, references, ter=False)
    assert interval("chrf", one, one) == (0, 0)
    better = outputs[:90] + [accepted[0] for accepted in references[90:]]
    other = SPACED.score(better, references, ter=False)
    low, high = interval("chrf", other, one)
    gain = other.values["chrf"] - one.values["chrf"]
    assert 0 < low < gain < high
    assert interval("chrf", one, other) == pytest.approx((-high, -low), abs=1e-9)
    own = interval("chrf", other)
    assert high - low < own[1] - own[0]
    assert interval("bleu", other, one)[0] > 0
    assert interval("chrf", other, one) == (low, high)


# Baselines and shares -------------------------------------------------------------------------------------------


def test_unknown_share_is_of_tokens_of_text() -> None:
    framed = PackedSequences.from_lists([[3, 4, 5], [6], []]).framed()
    assert unknown_share(framed) == pytest.approx(1 / 4)
    assert unknown_share(framed, PackedSequences.from_lists([[3, 3]]).framed()) == pytest.approx(3 / 6)
    assert unknown_share(PackedSequences.from_lists([[]]).framed()) == 0


def test_most_frequent_sequence() -> None:
    sequences = PackedSequences.from_lists([[4, 5], [6], [5, 4], [6, 6], [5, 4]]).framed()
    assert most_frequent(sequences).tolist() == [1, 5, 4, 2]
    assert most_frequent(PackedSequences.from_lists([[7], [4]])).tolist() == [7]


def test_bits_per_character() -> None:
    assert bits_per_character(4 * math.log(2), ["8 chars!"]) == pytest.approx(0.5)  # two tokens of two bits
    assert bits_per_character(1.0, [""]) == pytest.approx(1 / math.log(2))


def test_text_that_is_scored_has_no_marks_of_sub_words() -> None:
    vocabulary = BytePairs.learn(ENGLISH * 3, size=275)
    texts = [vocabulary.decode([*ids, EOS]) for ids in vocabulary.encode_texts(ENGLISH)]
    assert SPACED.score(texts, [[t] for t in ENGLISH]).values["bleu"] == pytest.approx(100)
    assert not set("".join(texts)) & set("Ġ▁@")
