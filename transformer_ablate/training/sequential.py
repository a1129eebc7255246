"""How the logits of a training batch come about: in one pass over the gold prefixes, or token by token."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from transformer_ablate.config import TrainConfig
from transformer_ablate.core import Seq2Seq, derive_seed
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import PAD


class Regime(Protocol):
    """Makes logits from a batch."""

    def __call__(self, model: Seq2Seq, source: Tensor, inputs: Tensor, own: Tensor | None) -> Tensor:
        """Logits of the token after each input.

        Args:
            model: in training mode or not.
            source: (B, S) ids.
            inputs: (B, T) gold prefix, beginning with BOS.
            own: (B, T) boolean, True where the model's own prediction is fed instead; None for nowhere.

        Returns:
            (B, T, V).
        """
        ...


def parallel(model: Seq2Seq, source: Tensor, inputs: Tensor, own: Tensor | None) -> Tensor:
    """All tokens in one pass, since the gold prefix of each is known beforehand (Vaswani et al. 2017, section 3.2.3).

    Raises:
        ValueError: where the model's own predictions are to be fed: there are none before the pass.
    """
    if own is not None:
        raise ValueError("a parallel pass cannot be fed what it has yet to predict")
    logits: Tensor = model(source, inputs)
    return logits


def sequential(model: Seq2Seq, source: Tensor, inputs: Tensor, own: Tensor | None) -> Tensor:
    """One token after the other by the cached step, as in decoding, gradients included (Williams & Zipser 1989).

    Under gold prefixes it computes what :func:`parallel` does, but for what a step cannot know of later tokens: a
    decoder without causal mask, statistics of BatchNorm in training mode, and frequencies that follow the length
    (dynamic NTK). A model's own prediction is its most probable token; no gradient goes through the choice.
    """
    T = inputs.shape[1]
    state = model.start(model.encode(source), capacity=T)
    logits: list[Tensor] = []
    for t in range(T):
        token = inputs[:, t : t + 1]
        if own is not None and t > 0:
            chosen = logits[-1].detach().argmax(dim=-1)
            token = torch.where(own[:, t : t + 1] & (token != PAD), chosen, token)
        logits.append(model.step(token, state))
    return torch.cat(logits, dim=1)


REGIMES: dict[str, Regime] = {"parallel": parallel, "sequential": sequential}
# Those in which a model can be fed what it has predicted.
FEEDING = ("sequential",)


def check_sampling(train: TrainConfig) -> None:
    """Refuses scheduled sampling, by ConfigError, in a regime that knows no prediction before all are made."""
    if train.sampling and train.regime not in FEEDING:
        allowed = f"0 where train.regime={train.regime}, which knows no prediction before all are made"
        raise ConfigError("train.sampling", train.sampling, allowed, f"set train.regime to {FEEDING[0]}")


def sampled_places(inputs: Tensor, share: float, seed: int, step: int, batch_index: int) -> Tensor:
    """Where the model's own prediction is fed: each place with probability ``share`` (Bengio et al. 2015, section 2.4).

    Args:
        inputs: (B, T) gold prefix.
        share: the paper's 1 - epsilon.
        seed: of the run.
        step, batch_index: of the update and the batch, so that each has coins of its own and a run that is resumed
            has the ones that it would have had.

    Returns:
        (B, T) boolean, on the device of ``inputs``.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, f"scheduled sampling/{step}/{batch_index}"))
    return (torch.rand(inputs.shape, generator=generator) < share).to(inputs.device)
