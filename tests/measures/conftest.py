"""Models whose answers are known beforehand, and one that has half learnt its task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from transformer_ablate.config import Recipe
from transformer_ablate.core import Memory, Seq2Seq
from transformer_ablate.data import BOS, EOS, PAD, Seq2SeqDataModule
from transformer_ablate.measures import Evaluation
from transformer_ablate.training.module import Seq2SeqModule

Answer = Callable[[list[int]], list[int]]


@dataclass
class ScriptState:
    answers: list[list[int]]
    t: int = 0

    def select(self, rows: Tensor) -> ScriptState:
        kept = range(len(self.answers)) if rows.dtype != torch.bool else torch.nonzero(rows).flatten().tolist()
        return ScriptState([self.answers[i] for i in kept], self.t)


class Scripted(Seq2Seq):
    """Says ``answer(source)``, token by token and then EOS, whatever the prefix; sources come without BOS and EOS.

    An answer that ends with -1 is one without end: its last token is said for ever.
    """

    def __init__(self, answer: Answer, size: int) -> None:
        super().__init__()
        self.answer, self.size = answer, size
        self.weight = nn.Parameter(torch.zeros(1))

    def encode(self, source: Tensor) -> Memory:
        return Memory(source, self.token_mask(source), torch.arange(source.shape[1]))

    def start(self, memory: Memory, capacity: int) -> ScriptState:
        sources = [[t for t in row if t not in (PAD, BOS, EOS)] for row in memory.states.tolist()]
        return ScriptState([self.answer(source) for source in sources])

    def step(self, tokens: Tensor, state: ScriptState) -> Tensor:
        logits = torch.zeros(len(state.answers), tokens.shape[1], self.size)
        for row, answer in enumerate(state.answers):
            for i in range(tokens.shape[1]):
                t = state.t + i
                endless = answer[-1:] == [-1]
                said = answer[t] if t < len(answer) - endless else (answer[-2] if endless else EOS)
                logits[row, i, said] = 20.0
        state.t += tokens.shape[1]
        return logits

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        return self.step(target, self.start(memory, target.shape[1]))


@pytest.fixture(scope="session")
def scripted() -> type[Scripted]:
    return Scripted


SMALL = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 4,
    "data.vocab_size": 8,
    "data.train_examples": 4_000,
    "data.valid_examples": 100,
    "data.test_examples": 600,
    "data.batch_tokens": 768,
    "train.lr": 5e-3,
    "train.warmup_steps": 20,
    "train.max_steps": 90,
}


@pytest.fixture(scope="session")
def half_trained() -> Evaluation:
    """A model that copies about half of its test strings rightly."""
    recipe = Recipe().replace(SMALL)
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    size = len(data.task.target_vocabulary)
    module = Seq2SeqModule(recipe, size, size)
    configured = module.configure_optimizers()
    optimizer, scheduler = configured["optimizer"], configured["lr_scheduler"]["scheduler"]
    for i, batch in enumerate(data.train_dataloader()):
        optimizer.zero_grad()
        module.training_step(batch, i)["loss"].backward()
        optimizer.step()
        scheduler.step()
    return Evaluation(module.model, data.task, recipe)
