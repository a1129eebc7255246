"""Free-running decoding."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transformer_ablate.core.seq2seq import Seq2Seq
from transformer_ablate.tokens import BOS, EOS, PAD, longest_output

# A batch is made smaller when this share of it is done: copying the caches at every finished sentence would cost more.
COMPACT_BELOW = 0.75


class Decoded(NamedTuple):
    """Decoded sentences.

    Attributes:
        tokens: (B, T) ids without BOS, with EOS where it came, padded with PAD.
        lengths: (B,) number of tokens before EOS; a model may choose PAD, which then counts like any wrong token.
        capped: (B,) boolean, True where the limit came before EOS.
    """

    tokens: Tensor
    lengths: Tensor
    capped: Tensor

    def sequences(self) -> list[list[int]]:
        """Ids of each sentence without EOS."""
        rows = zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)
        return [tokens[:length] for tokens, length in rows]


@torch.inference_mode()
def greedy_decode(model: Seq2Seq, source: Tensor, limit: Tensor | None = None) -> Decoded:
    """The most probable token at each step until EOS, with a cache; finished sentences leave the batch.

    Args:
        model: in evaluation mode.
        source: (B, S) ids.
        limit: (B,) most tokens of each output, EOS counted; :func:`longest_output` by default. It belongs to the
            sentence and not to the batch, so that an output does not depend on its neighbours.
    """
    if limit is None:
        limit = longest_output(Seq2Seq.token_mask(source).sum(dim=1))
    longest = int(limit.max())
    tokens = source.new_full((source.shape[0], longest), PAD)
    lengths = torch.zeros_like(limit)
    finished = torch.zeros(source.shape[0], dtype=torch.bool, device=source.device)
    rows = torch.arange(source.shape[0], device=source.device)  # sentences that are still in the batch
    state = model.start(model.encode(source), capacity=longest + 1)
    last = source.new_full((source.shape[0], 1), BOS)
    done = finished.clone()
    for t in range(longest):
        choice = model.step(last, state)[:, -1].argmax(dim=-1).masked_fill(done, PAD)
        tokens[rows, t] = choice
        lengths[rows] += ~done & (choice != EOS)
        finished[rows] |= choice == EOS
        done = done | (choice == EOS) | (limit[rows] <= t + 1)
        if done.all():
            break
        last = choice[:, None]
        if (~done).float().mean() <= COMPACT_BELOW:
            keep = ~done
            rows, last, state, done = rows[keep], last[keep], state.select(keep), done[keep]
    return Decoded(tokens, lengths, ~finished)
