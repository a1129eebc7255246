"""Scores of text as people read it: corpus-level BLEU, chrF and TER by ``sacrebleu``, with their signatures.

Text is never scored in the tokens of a model. Scores are percentages, as is usual: 0 to 100, TER without an end.
"""

from __future__ import annotations

import itertools
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from transformer_ablate.data.examples import PackedSequences
from transformer_ablate.data.stable import stable_generator
from transformer_ablate.data.text_vocabulary import UNREADABLE
from transformer_ablate.tokens import N_SPECIALS, UNK

# Scripts without spaces between words, by the first word of their characters' names.
UNSPACED_SCRIPTS = frozenset({"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"})
JAPANESE_SCRIPTS = frozenset({"HIRAGANA", "KATAKANA"})
# Texts that are looked at to find out how they are written.
TEXTS_LOOKED_AT = 1_000
# The work of TER, about the third power of a reference's words for each: a few seconds even for a model's first babble.
TER_WORK = 10_000_000
RESAMPLES = 1_000
# In place of what cannot be read: a noncharacter, so that it equals nothing that a reference holds.
_UNMATCHED = str.maketrans({UNREADABLE: "\ufdd0"})


def word_division(texts: Iterable[str]) -> str:
    """How the words of these texts are found for BLEU, in the names of ``sacrebleu``.

    ``13a`` where there are spaces between words; ``zh``, each character a word, for Chinese; for Japanese ``ja-mecab``
    where MeCab is installed; ``char`` otherwise. The script decides, if a fifth of the letters are of such a script.
    """
    letters = Counter(
        unicodedata.name(character, "").partition(" ")[0]
        for text in itertools.islice(texts, TEXTS_LOOKED_AT)
        for character in text
        if character.isalpha()
    )
    unspaced = {script: n for script, n in letters.items() if script in UNSPACED_SCRIPTS}
    if sum(unspaced.values()) < 0.2 * max(1, sum(letters.values())):
        return "13a"
    if sum(unspaced.get(script, 0) for script in JAPANESE_SCRIPTS) > 0.05 * sum(unspaced.values()):
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    return "zh" if max(unspaced, key=unspaced.__getitem__) == "CJK" else "char"


@lru_cache
def _metrics(division: str) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF, TER

    # Effective order: a corpus of texts shorter than four words has no 4-grams, and would have BLEU 0 even if it were
    # right. Any other corpus has the same BLEU with and without. "force" only silences advice.
    return {"bleu": BLEU(tokenize=division, effective_order=True, force=True), "chrf": CHRF(), "ter": TER()}


@dataclass(frozen=True)
class Scored:
    """One system's outputs for n examples, scored; higher is better but for ``ter``.

    Attributes:
        values: ``bleu``, ``chrf`` and, where it was asked for, ``ter``.
        signatures: how each was taken, in the form of ``sacrebleu``.
        segments: counts that the scores are made of, (n, counts); of ``ter`` those of its own examples alone.
        division: how words were found.
    """

    values: dict[str, float]
    signatures: dict[str, str]
    segments: dict[str, np.ndarray]
    division: str


@dataclass(frozen=True)
class TextScorer:
    """Scores outputs against references.

    Args:
        division: how BLEU and TER find words: ``13a``, ``zh``, ``char`` or ``ja-mecab`` (see :func:`word_division`).
    """

    division: str = "13a"

    @classmethod
    def for_text(cls, texts: Iterable[str]) -> TextScorer:
        """The scorer for text that is written as ``texts`` are, e.g. a task's training targets."""
        return cls(word_division(texts))

    def score(self, outputs: Sequence[str], references: Sequence[Sequence[str]], ter: bool = True) -> Scored:
        """Corpus-level scores of detokenised text.

        BLEU (Papineni et al. 2002) with n-grams up to 4, fewer where no text has four words; orders without a match are
        smoothed exponentially (Chen & Cherry 2014, method 3). chrF2 over 6-grams of characters (Popović 2015). TER
        (Snover et al. 2006) on the first examples, as many as a few seconds allow; their number is in its signature.
        Where there are no spaces between words, TER's words are those of BLEU. U+FFFD in an output stands for an
        unknown token or broken bytes and matches nothing.

        Args:
            outputs: one text for each of n examples.
            references: for each example all accepted texts.
            ter: whether to take TER, which is slow.

        Raises:
            ValueError: where there is no example, not one output for each, an example without reference, or a string in
                place of an example's references.
        """
        if not outputs or len(outputs) != len(references):
            raise ValueError(f"{len(outputs)} outputs for the references of {len(references)} examples")
        if any(isinstance(accepted, str) or not accepted for accepted in references):
            raise ValueError("each example needs a sequence of at least one reference")
        outputs = [output.translate(_UNMATCHED) for output in outputs]
        # sacrebleu has the first references of all examples, then the second ones, with None where there is none.
        streams = list(itertools.zip_longest(*references))
        values, signatures, segments = {}, {}, {}
        for name, metric in _metrics(self.division).items():
            if name == "ter":
                if not ter:
                    continue
                n = self._affordable(references)
                divided = [[self._words(text) for text in stream[:n]] for stream in (outputs, *streams)]
                segments[name], signature = _statistics(metric, divided[0], divided[1:])
                signature += f"|words:{self.division}|first:{n}"
            else:
                segments[name], signature = _statistics(metric, outputs, streams)
            values[name] = _corpus_score(metric, segments[name].sum(0))
            signatures[name] = signature
        return Scored(values, signatures, segments, self.division)

    def equal(self, output: str, references: Sequence[str]) -> bool:
        """Whether an output is one of the accepted texts."""
        return output.translate(_UNMATCHED) in references

    def _words(self, text: str | None) -> str | None:
        """Text with spaces between words, for TER; None stays."""
        if text is None or self.division == "13a":
            return text
        return str(_metrics(self.division)["bleu"].tokenizer(text))

    def _affordable(self, references: Sequence[Sequence[str]]) -> int:
        words = [len((self._words(accepted[0]) or "").split()) for accepted in references]
        return max(1, int(np.searchsorted(np.cumsum(np.array(words, dtype=np.float64) ** 3), TER_WORK, side="right")))


def _statistics(metric: Any, outputs: Sequence[Any], streams: Sequence[Sequence[Any]]) -> tuple[np.ndarray, str]:
    # sacrebleu's own significance tests use this method: scores of resampled corpora are sums of its rows.
    counts = np.array(metric._extract_corpus_statistics(outputs, streams), dtype=np.float64)
    return counts, str(metric.get_signature())


def _corpus_score(metric: Any, counts: np.ndarray) -> float:
    return float(metric._compute_score_from_stats(counts.tolist()).score)


def interval(name: str, scored: Scored, baseline: Scored | None = None) -> tuple[float, float]:
    """Ends of the 95 % interval of a score over resampled examples (Koehn 2004): what another test set could give.

    Args:
        name: ``bleu`` or ``chrf``.
        scored: a system.
        baseline: another one on the same examples; where given, the interval is that of the difference to it.
    """
    n = len(scored.segments[name])
    # How often each example stands in each resampled corpus; the same for all systems, so that they are paired.
    times = stable_generator("bootstrap", n).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    metric = _metrics(scored.division)[name]
    values = [_corpus_score(metric, counts) for counts in times @ scored.segments[name]]
    if baseline is not None:
        values = [
            value - _corpus_score(metric, counts)
            for value, counts in zip(values, times @ baseline.segments[name], strict=True)
        ]
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def unknown_share(*sides: PackedSequences) -> float:
    """Share of UNK among the tokens of text, in [0, 1]; BOS and EOS do not count. 0 where there are no tokens."""
    unknown = sum(int((side.flat == UNK).sum()) for side in sides)
    return unknown / max(1, unknown + sum(int((side.flat >= N_SPECIALS).sum()) for side in sides))


def most_frequent(sequences: PackedSequences) -> np.ndarray:
    """The sequence that stands most often; the first of equals."""
    (content, _), *_ = Counter(sequence.tobytes() for sequence in sequences).most_common(1)
    return np.frombuffer(content, dtype=sequences.flat.dtype)


def bits_per_character(nll: float, texts: Sequence[str]) -> float:
    """Bits for each character, comparable across vocabularies that have a token for all of it.

    Args:
        nll: sum of the texts' negative log-likelihoods, nats.
        texts: what they are the likelihoods of.
    """
    return nll / math.log(2) / max(1, sum(map(len, texts)))
