"""How attention and encoder states are caught while a model runs, without changing what it computes.

An architecture that has something to show says so by methods, each of which it may lack: ``attentions()``, modules with
an ``observer`` by kind, and ``encoder_blocks()`` and ``decoder_blocks()``, modules from residual stream to residual
stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from transformer_ablate.core import Seq2Seq, build_model, derive_seed
from transformer_ablate.core.attention import masked_softmax
from transformer_ablate.measures.evaluation import Evaluation


@dataclass
class Caught:
    """What one attention module computed in a pass; one that runs step by step is called several times.

    Attributes:
        calls: scores and allowed pairs of each call, (B, H, n, S).
    """

    calls: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __call__(self, scores: Tensor, allowed: Tensor) -> None:
        """The observer."""
        self.calls.append((scores, allowed))

    @cached_property
    def scores(self) -> Tensor:
        """(B, H, L, S) before the softmax."""
        return torch.cat([scores for scores, _ in self.calls], dim=-2)

    @cached_property
    def allowed(self) -> Tensor:
        """(B, H, L, S) boolean, True = may attend."""
        return torch.cat([allowed for _, allowed in self.calls], dim=-2)

    @cached_property
    def weights(self) -> Tensor:
        """(B, H, L, S) after the softmax."""
        return masked_softmax(self.scores, self.allowed)


@contextmanager
def attention_caught(model: Seq2Seq) -> Iterator[dict[str, list[Caught]]]:
    """Catches the attention of one pass, by kind (``encoder``, ``decoder``, ``cross``), an entry a layer.

    Kinds that the model does not have are missing; nothing is caught once the block is left.
    """
    find = getattr(model, "attentions", None)
    modules: dict[str, list[Any]] = {} if find is None else {kind: found for kind, found in find().items() if found}
    caught = {kind: [Caught() for _ in found] for kind, found in modules.items()}
    try:
        for kind, found in modules.items():
            for module, observer in zip(found, caught[kind], strict=True):
                module.observer = observer
        yield caught
    finally:
        for found in modules.values():
            for module in found:
                module.observer = None


def encoder_blocks(model: Seq2Seq) -> list[nn.Module]:
    """The encoder's layers; empty where it has no residual stream to look at."""
    find = getattr(model, "encoder_blocks", None)
    return [] if find is None else find()


def decoder_blocks(model: Seq2Seq) -> list[nn.Module]:
    """The decoder's layers; empty where it has none."""
    find = getattr(model, "decoder_blocks", None)
    return [] if find is None else find()


@contextmanager
def states_caught(model: Seq2Seq) -> Iterator[list[Tensor]]:
    """Catches the encoder's stream (B, S, d_model) in one pass: embeddings with their position, then each layer's."""
    states: list[Tensor] = []
    blocks = encoder_blocks(model)
    handles = [block.register_forward_hook(lambda module, args, out: states.append(out)) for block in blocks]
    if blocks:
        handles.append(blocks[0].register_forward_pre_hook(lambda module, args: states.append(args[0])))
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


def untrained(run: Evaluation) -> Seq2Seq:
    """The control: a network of the same recipe with initial values of its own, in evaluation mode."""
    sizes = len(run.task.source_vocabulary), len(run.task.target_vocabulary)
    model = build_model(run.recipe.model, *sizes, seed=derive_seed(run.recipe.train.seed, "untrained control"))
    return model.to(run.model.device).eval()
