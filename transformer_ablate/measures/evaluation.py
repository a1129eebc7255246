"""The passes over test data that the measures share, each made once a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq, greedy_decode
from transformer_ablate.data.batching import evaluation_batches
from transformer_ablate.data.examples import Pairs, TestSet, decoder_inputs
from transformer_ablate.data.task import TaskData
from transformer_ablate.tokens import EOS, PAD
from transformer_ablate.training.curve import Curve
from transformer_ablate.training.losses import cross_entropy

# Tokens of one evaluation batch; larger than in training, since no gradients are kept.
EVALUATION_TOKENS = 16_384
# Logits of one evaluation batch, at most: with a large vocabulary they, and not the states, fill the memory.
EVALUATION_LOGITS = 2**25
# Test sequences that are decoded freely where exact match can be had without decoding.
DECODED_OF_EXACT_TASKS = 256


@dataclass(frozen=True)
class TeacherForced:
    """Outcome of one forward pass over n examples under the gold prefix.

    Attributes:
        nll: (n,) sum of hard-target negative log-likelihoods, nats.
        tokens: (n,) scored tokens, EOS counted.
        right: (n, T) whether the argmax is right; False behind the end.
        right_without_eos: (n, T) the same where EOS may not be chosen before its place.
        scored: (n, T) whether there is a token to score.
    """

    nll: NDArray[np.float64]
    tokens: NDArray[np.int64]
    right: NDArray[np.bool_]
    right_without_eos: NDArray[np.bool_]
    scored: NDArray[np.bool_]

    @property
    def exact(self) -> NDArray[np.bool_]:
        """(n,) every argmax right: exactly when greedy decoding gives the reference."""
        return np.all(self.right | ~self.scored, axis=1)

    @property
    def exact_with_oracle_length(self) -> NDArray[np.bool_]:
        """(n,) the same with EOS withheld until the reference's length, and given there."""
        return np.all(self.right_without_eos | ~self.scored, axis=1)


@dataclass(frozen=True)
class FreeRunning:
    """Outcome of greedy decoding of the first n examples: ``outputs`` without EOS; ``capped`` (n,) hit the limit."""

    outputs: list[list[int]]
    capped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.outputs)


@dataclass
class Evaluation:
    """A trained model on its task: what measures are given.

    Attributes:
        model: the model; put into evaluation mode.
        task: its data.
        recipe: what it was made from.
        curve: its training curve; empty for a bare checkpoint.
    """

    model: Seq2Seq
    task: TaskData
    recipe: Recipe
    curve: Curve = field(default_factory=Curve)
    _forced: dict[str, TeacherForced] = field(default_factory=dict, repr=False)
    _free: dict[str, FreeRunning] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.model.eval()

    @property
    def batch_tokens(self) -> int:
        """Padded source and target tokens in one evaluation batch, at most, but for a longer example."""
        return min(EVALUATION_TOKENS, EVALUATION_LOGITS // len(self.task.target_vocabulary))

    @property
    def exact(self) -> bool:
        """Whether exact match can be read off a pass under the gold prefix.

        The target must be a function of the source, and no position may see the tokens that it is asked for.
        """
        return self.task.exact and self.recipe.model.causal_mask

    @cached_property
    def valid(self) -> TeacherForced:
        """The in-distribution validation set, teacher-forced."""
        return teacher_forced(self.model, self.task.valid, self.batch_tokens)

    def forced(self, test: TestSet) -> TeacherForced:
        """A test set, teacher-forced."""
        if test.name not in self._forced:
            self._forced[test.name] = teacher_forced(self.model, test.pairs, self.batch_tokens)
        return self._forced[test.name]

    def free(self, test: TestSet) -> FreeRunning:
        """A test set, decoded greedily: all of it, or its first 256 where the target is a function of the source."""
        if test.name not in self._free:
            n = min(len(test.pairs), DECODED_OF_EXACT_TASKS) if self.exact else len(test.pairs)
            self._free[test.name] = free_running(self.model, test.pairs.select(np.arange(n)), self.batch_tokens)
        return self._free[test.name]


@torch.inference_mode()
def teacher_forced(model: Seq2Seq, pairs: Pairs, batch_tokens: int = EVALUATION_TOKENS) -> TeacherForced:
    """Scores every target token of ``pairs`` under its gold prefix; ``model`` in evaluation mode."""
    n, width = len(pairs), int(pairs.target.lengths.max()) - 1
    nll, tokens = np.zeros(n), np.zeros(n, dtype=np.int64)
    right, right_without_eos, scored = (np.zeros((n, width), dtype=bool) for _ in range(3))
    for batch in evaluation_batches(pairs, batch_tokens):
        rows = batch.indices.numpy()
        source, target = batch.source.to(model.device), batch.target.to(model.device)
        gold = target[:, 1:]
        logits = model(source, decoder_inputs(target)).float()
        here = gold != PAD
        nll[rows] = cross_entropy(logits, gold, reduction="none").double().sum(1).cpu().numpy()
        tokens[rows] = here.sum(1).cpu().numpy()
        t = gold.shape[1]
        scored[rows, :t] = here.cpu().numpy()
        right[rows, :t] = ((logits.argmax(-1) == gold) & here).cpu().numpy()
        logits[..., EOS] = -torch.inf
        hit = (logits.argmax(-1) == gold) | (gold == EOS)
        right_without_eos[rows, :t] = (hit & here).cpu().numpy()
    return TeacherForced(nll, tokens, right, right_without_eos, scored)


def free_running(model: Seq2Seq, pairs: Pairs, batch_tokens: int = EVALUATION_TOKENS) -> FreeRunning:
    """Decodes the sources of ``pairs`` greedily; ``model`` in evaluation mode."""
    outputs: list[Any] = [None] * len(pairs)
    capped = np.zeros(len(pairs), dtype=bool)
    for batch in evaluation_batches(pairs, batch_tokens):
        decoded = greedy_decode(model, batch.source.to(model.device))
        for row, output, hit in zip(batch.indices.tolist(), decoded.sequences(), decoded.capped.tolist(), strict=True):
            outputs[row], capped[row] = output, hit
    return FreeRunning(outputs, capped)
