"""What one update learns from: the loss of a batch, without Lightning, which planning and timing do without."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from transformer_ablate.config import TrainConfig
from transformer_ablate.core import Seq2Seq
from transformer_ablate.data.examples import Batch, decoder_inputs
from transformer_ablate.training.losses import cross_entropy
from transformer_ablate.training.sequential import REGIMES, sampled_places


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Small products on one thread: beside other processes several would wait for each other most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def losses(model: Seq2Seq, train: TrainConfig, batch: Batch, update: int = 0, index: int = 0) -> dict[str, Tensor]:
    """A batch's loss and, as ``nll``, its hard-target loss in nats a token, comparable across label smoothing.

    Args:
        model: in training mode where dropout is meant.
        train: how it is learnt.
        batch: source (B, S) and target (B, T) ids.
        update: updates that were made before.
        index: of the batch among those of the run.
    """
    targets, inputs = batch.target[:, 1:], decoder_inputs(batch.target)
    own = None
    if train.sampling:
        share = train.sampling * min(1.0, (update + 1) / max(1, train.max_steps))
        own = sampled_places(inputs, share, train.seed, update, index)
    logits = REGIMES[train.regime](model, batch.source, inputs, own)
    alpha = train.label_smoothing
    loss = cross_entropy(logits, targets, alpha, train.smoothing)
    nll = loss.detach() if alpha == 0 else cross_entropy(logits.detach(), targets)
    return {"loss": loss, "nll": nll}
