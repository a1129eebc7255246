"""Whether a model is right as often as it claims to be, as trained and after temperature scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from transformer_ablate.core import Seq2Seq
from transformer_ablate.data.batching import evaluation_batches
from transformer_ablate.data.examples import PackedSequences, Pairs, TestSet, decoder_inputs
from transformer_ablate.data.stable import stable_generator
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.evaluation import EVALUATION_TOKENS, Evaluation
from transformer_ablate.measures.reliability import brier, expected_calibration_error, fit_temperature, reliability
from transformer_ablate.tokens import EOS, PAD

# Logits that a temperature is fitted to, at most (128 MiB): of a large vocabulary a random part of the tokens.
FIT_LOGITS = 2**25


class TokenScores(NamedTuple):
    """Of n tokens: probability of the argmax, whether it is right, Brier score, NLL in nats, whether the gold is EOS.

    Each (n,).
    """

    confidence: NDArray[np.float64]
    right: NDArray[np.bool_]
    brier: NDArray[np.float64]
    nll: NDArray[np.float64]
    eos: NDArray[np.bool_]

    @classmethod
    def join(cls, parts: Sequence[TokenScores]) -> TokenScores:
        """All tokens of the parts, in their order."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def token_logits(model: Seq2Seq, pairs: Pairs, batch_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (N, V) under the gold prefix and gold ids (N,) of the real tokens, EOS included, batch by batch.

    The order of the tokens does not depend on ``batch_tokens``.
    """
    for batch in evaluation_batches(pairs, batch_tokens):
        target = batch.target.to(model.device)
        gold = target[:, 1:]
        logits = model(batch.source.to(model.device), decoder_inputs(target)).float()
        yield logits[gold != PAD], gold[gold != PAD]


@torch.inference_mode()
def sampled_logits(model: Seq2Seq, pairs: Pairs, size: int, batch_tokens: int) -> tuple[Tensor, Tensor]:
    """What a temperature is fitted to: logits (N, V) and gold ids (N,) of all tokens or, if too many, a random part.

    Args:
        size: V. At most FIT_LOGITS / V tokens are kept, the same ones of the same data whatever the model.
    """
    total = int((pairs.target.lengths - 1).sum())
    kept = min(total, max(1, FIT_LOGITS // size))
    chosen = np.zeros(total, dtype=bool)
    chosen[stable_generator("temperature", total, kept).choice(total, kept, replace=False)] = True
    parts, start = [], 0
    for logits, gold in token_logits(model, pairs, batch_tokens):
        here = torch.from_numpy(chosen[start : start + len(gold)]).to(gold.device)
        parts.append((logits[here], gold[here]))
        start += len(gold)
    return torch.cat([logits for logits, _ in parts]), torch.cat([gold for _, gold in parts])


@torch.inference_mode()
def score_tokens(
    model: Seq2Seq, pairs: Pairs, temperatures: Sequence[float], batch_tokens: int = EVALUATION_TOKENS
) -> list[TokenScores]:
    """Scores of every target token under the gold prefix, at each of the temperatures."""
    parts: list[list[TokenScores]] = [[] for _ in temperatures]
    for logits, gold in token_logits(model, pairs, batch_tokens):
        right, eos = (flags.cpu().numpy() for flags in (logits.argmax(-1) == gold, gold == EOS))
        for temperature, scores in zip(temperatures, parts, strict=True):
            log_p = (logits / temperature).log_softmax(-1)  # (N, V)
            p = log_p.exp()
            nll = -log_p.gather(-1, gold[:, None])[:, 0]
            confidence, squares, nats = (each.cpu().double().numpy() for each in (p.amax(-1), brier(p, gold), nll))
            scores.append(TokenScores(confidence, right, squares, nats, eos))
    return [TokenScores.join(scores) for scores in parts]


@torch.inference_mode()
def free_confidence(run: Evaluation, test: TestSet) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Probability that each token of the greedy outputs had when it was chosen, and whether it is right: (n,) each.

    EOS counts where it was chosen. A token is right where the reference, with its EOS, has the same at the same
    position; what lies behind the reference's end is wrong. The reference is the example's target or, of several
    accepted ones, the closest (share of edits, as in :class:`Quality`). One symbol left out thus costs all that follow.

    The outputs are fed step by step, as when they were made: for some models a pass over the whole would differ.
    """
    free = run.free(test)
    said = Pairs(test.pairs.source.select(np.arange(len(free))), PackedSequences.from_lists(free.outputs).framed())
    confidence: list[float] = []
    right: list[bool] = []
    for batch in evaluation_batches(said, run.batch_tokens):
        target = batch.target.to(run.model.device)
        state = run.model.start(run.model.encode(batch.source.to(run.model.device)), capacity=target.shape[1])
        steps = []
        for t in range(target.shape[1] - 1):
            p = run.model.step(target[:, t : t + 1], state)[:, -1].float().softmax(-1)  # (B, V)
            steps.append(p.gather(-1, target[:, t + 1 : t + 2]))
        chosen = torch.cat(steps, dim=1).cpu().numpy()  # (B, T - 1)
        for row, i in enumerate(batch.indices.tolist()):
            output = free.outputs[i]
            emitted = output if free.capped[i] else [*output, EOS]
            expected = [*_reference(test, i, output), EOS]
            confidence += chosen[row, : len(emitted)].tolist()
            right += [t < len(expected) and token == expected[t] for t, token in enumerate(emitted)]
    return np.array(confidence), np.array(right, dtype=bool)


def _reference(test: TestSet, i: int, output: list[int]) -> Sequence[int]:
    accepted = test.references[i]
    if len(accepted) == 1:
        # Not the reference itself: where targets are noisy it is the clean answer, and a model that knows of the noise
        # is right about the former.
        return test.pairs.target[i][1:-1].tolist()
    return min(accepted, key=lambda reference: Levenshtein.distance(output, reference) / max(1, len(reference)))


class Calibration:
    """Confidence against accuracy, token by token, as trained and after temperature scaling (Guo et al. 2017).

    Confidence is the largest probability of the next token under the gold prefix, of EOS too; it is right where its
    token is that of the first reference. All is in distribution: the tokens are those of the validation set and of the
    first test set together. The data alone decide which they are, so that every arm has the same; an error of .01 takes
    some 20 000 of them, 3 200 examples of g2p or 3 700 of copying up to 8 symbols. So that no token is judged by a
    temperature that was fitted to it, the test set is scaled by the temperature fitted to the validation set and the
    other way round.

    Metrics:

    * ``ece``, ``ece_mass``: expected calibration error in 15 bins of equal width and of equal mass;
    * ``brier``: mean Brier score over all V classes, in [0, 2]; ``confidence_gap``: mean confidence less accuracy;
    * ``ece_eos``, ``ece_rest``: ``ece`` of the tokens where the reference ends, and of the others;
    * ``ece_scaled``, ``ece_mass_scaled``, ``brier_scaled``: the same after temperature scaling;
    * ``nll_scaled``: nats/token of the first test set after it, to be held against its ``nll``;
    * ``temperature``: the one fitted to the validation set (above 1: overconfident);
    * ``ece_free``, ``confidence_gap_free``: of the tokens of greedy outputs on the first test set, see
      :func:`free_confidence`; fewer than the others, whose number is ``calibration_tokens``.

    Artifact ``reliability``: rows of :func:`reliability` by equal width, of each ``curve``: ``teacher-forced``,
    ``scaled``, ``free-running``.
    """

    name = "calibration"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        test, size = run.task.test[0], len(run.task.target_vocabulary)
        halves = run.task.valid, test.pairs
        of_valid, of_test = (
            fit_temperature(*sampled_logits(run.model, pairs, size, run.batch_tokens)) for pairs in halves
        )
        valid, valid_scaled = score_tokens(run.model, run.task.valid, (1.0, of_test), run.batch_tokens)
        tested, tested_scaled = score_tokens(run.model, test.pairs, (1.0, of_valid), run.batch_tokens)
        plain, scaled = TokenScores.join([valid, tested]), TokenScores.join([valid_scaled, tested_scaled])
        free, free_right = free_confidence(run, test)
        metrics = {
            **_errors(plain),
            "confidence_gap": float(plain.confidence.mean() - plain.right.mean()),
            "ece_eos": expected_calibration_error(plain.confidence[plain.eos], plain.right[plain.eos]),
            "ece_rest": expected_calibration_error(plain.confidence[~plain.eos], plain.right[~plain.eos]),
            **{f"{name}_scaled": value for name, value in _errors(scaled).items()},
            "nll_scaled": float(tested_scaled.nll.mean()),
            "temperature": of_valid,
            "ece_free": expected_calibration_error(free, free_right),
            "confidence_gap_free": float(free.mean() - free_right.mean()),
            "calibration_tokens": float(len(plain.right)),
        }
        curves = {
            "teacher-forced": (plain.confidence, plain.right),
            "scaled": (scaled.confidence, scaled.right),
            "free-running": (free, free_right),
        }
        rows = [{"curve": name, **row} for name, curve in curves.items() for row in reliability(*curve)]
        return Measured(metrics, {"reliability": rows})


def _errors(scores: TokenScores) -> dict[str, float]:
    return {
        "ece": expected_calibration_error(scores.confidence, scores.right),
        "ece_mass": expected_calibration_error(scores.confidence, scores.right, by="mass"),
        "brier": float(scores.brier.mean()),
    }
