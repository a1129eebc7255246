"""Beam search."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_ablate.core.seq2seq import Seq2Seq
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import BOS, EOS, longest_output


class Hypothesis(NamedTuple):
    """One output of a sentence.

    Attributes:
        tokens: ids without BOS and EOS.
        log_probability: nats, summed over the tokens, EOS included where the model chose it.
        score: ``log_probability / n ** length_penalty`` with n tokens, EOS counted.
        capped: True where the limit came before EOS. The log-probability is then that of a beginning.
    """

    tokens: list[int]
    log_probability: float
    score: float
    capped: bool


@torch.inference_mode()
def beam_search(
    model: Seq2Seq,
    source: Tensor,
    width: int = 4,
    n_best: int = 1,
    length_penalty: float = 0.0,
    limit: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The best outputs that a beam of ``width`` prefixes finds, with a cache (Sutskever et al. 2014, section 3.2).

    Of all continuations by one token, those among the best ``width`` that end in EOS are finished; the beam goes on
    with the best ``width`` of the others. At the limit the best ``width`` are outputs as they are. Hypotheses are
    ranked by ``log p / n ** length_penalty``, n being the number of tokens with EOS (Wu et al. 2016, section 7, the
    simpler form): 0 leaves the log-probability, 1 takes its mean per token. A sentence leaves the batch as soon as
    nothing in its beam can still come before its ``n_best`` finished hypotheses, and not before: what is found is what
    a search to the limit would find.

    A width of 1 is greedy decoding whatever the penalty. PAD and BOS are tokens like any other, and wrong ones.

    Args:
        model: in evaluation mode.
        source: (B, S) ids.
        width: prefixes that are kept for each sentence.
        n_best: hypotheses wanted for each sentence.
        length_penalty: exponent of the length.
        limit: (B,) most tokens of each output, EOS counted; :func:`longest_output` by default. It belongs to the
            sentence and not to the batch, so that an output does not depend on its neighbours.

    Returns:
        For each sentence up to ``n_best`` distinct hypotheses (fewer where there are no more of non-zero probability),
        the finished ones first, best score first; a capped one fills a place that no finished one takes.

    Raises:
        ConfigError: for a width, number, penalty or limit out of range.
    """
    if limit is None:
        limit = longest_output(Seq2Seq.token_mask(source).sum(dim=1))
    _check(width, n_best, length_penalty, limit)
    longest = int(limit.max())
    # At most `width` of them end, one for each prefix, so that as many go on: EOS does not starve the beam. But a width
    # of 1 must not go on beside the EOS that ends greedy decoding.
    n_candidates = 2 * width if width > 1 else 1

    found: list[list[Hypothesis]] = [[] for _ in source]
    sentences = list(range(len(source)))  # those still in the batch: n of them, each with b prefixes
    prefixes = source.new_full((len(source), 1), BOS)  # (n b, t + 1)
    log_p = torch.zeros(len(source), 1, device=source.device)  # (n, b), -inf for an empty place in the beam
    state = model.start(model.encode(source), capacity=longest + 1)  # of n b rows
    for t in range(longest):
        logits = model.step(prefixes[:, -1:], state)[:, -1]
        log_p, origin, token = _candidates(log_p, logits, n_candidates)
        ends, at_limit = token == EOS, limit <= t + 1

        scores = log_p / (t + 1) ** length_penalty
        to_beat = log_p.new_tensor([_to_beat(found[i], n_best) for i in sentences])
        # Asked this way round, -inf is nothing to keep while NaN is: a diverged model has outputs too.
        closed = (ends | at_limit[:, None]) & ~(scores <= to_beat[:, None])
        for i, j in closed[:, :width].nonzero().tolist():
            tokens, capped = prefixes[origin[i, j], 1:].tolist(), not ends[i, j]
            if capped:
                tokens.append(int(token[i, j]))
            hypotheses = found[sentences[i]]
            hypotheses.append(Hypothesis(tokens, float(log_p[i, j]), float(scores[i, j]), capped))
            hypotheses.sort(key=lambda h: (h.capped, -h.score))
            del hypotheses[n_best:]

        order = ends.sort(dim=1, stable=True).indices[:, :width]  # those that go on come first
        log_p = log_p.gather(1, order).masked_fill(ends.gather(1, order), -math.inf)  # (n, b)
        origin, token = origin.gather(1, order), token.gather(1, order)
        # Log-probabilities are negative and only fall, and no length divides them by more than the limit does.
        attainable = log_p.amax(dim=1) / limit.to(log_p.dtype) ** length_penalty
        to_beat = log_p.new_tensor([_to_beat(found[i], n_best) for i in sentences])
        going = ~(at_limit | (attainable <= to_beat))
        if not going.any():
            break
        sentences = [i for i, goes_on in zip(sentences, going.tolist(), strict=True) if goes_on]
        limit, log_p, rows = limit[going], log_p[going], origin[going].flatten()
        if not torch.equal(rows, torch.arange(len(prefixes), device=rows.device)):
            state = state.select(rows)
        prefixes = torch.cat([prefixes[rows], token[going].view(-1, 1)], dim=1)
    return found


def _candidates(log_p: Tensor, logits: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, best first.

    Args:
        log_p: (n, b) log-probabilities of the prefixes.
        logits: (n b, V) of the next token.
        k: number of candidates; min(k, b V) are returned.

    Returns:
        (n, k) each: log-probability, row of the prefix among the n b, next token.
    """
    n, b = log_p.shape
    k_row = min(k, logits.shape[-1])
    # Of equal logits topk takes any, argmax the first: with a width of 1 this must be what greedy decoding takes. And
    # they are compared before the softmax, whose rounding could make them equal.
    tokens = logits.argmax(dim=-1, keepdim=True) if k_row == 1 else logits.topk(k_row).indices  # (n b, k_row)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    steps = logits.log_softmax(dim=-1).gather(1, tokens)
    total = (log_p[..., None] + steps.view(n, b, k_row)).flatten(1)  # (n, b k_row)
    best = total.sort(dim=1, descending=True, stable=True).indices[:, :k]
    first = b * torch.arange(n, device=best.device)[:, None]
    return total.gather(1, best), first + best // k_row, tokens.view(n, -1).gather(1, best)


def _to_beat(hypotheses: list[Hypothesis], n_best: int) -> float:
    """The score in the last of the ``n_best`` places, -inf while one is free."""
    return hypotheses[-1].score if len(hypotheses) == n_best else -math.inf


def _check(width: int, n_best: int, length_penalty: float, limit: Tensor) -> None:
    if width < 1:
        raise ConfigError("beam.width", width, "a whole number from 1")
    if not 1 <= n_best <= width:
        raise ConfigError("beam.n_best", n_best, f"a whole number from 1 to the width, {width}")
    if not 0 <= length_penalty < math.inf:
        raise ConfigError("beam.length_penalty", length_penalty, "a number from 0, 0 for none")
    if int(limit.min()) < 1:
        raise ConfigError("beam.limit", int(limit.min()), "whole numbers from 1, EOS counted")
