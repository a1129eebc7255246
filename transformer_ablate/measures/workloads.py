"""The calls that are timed: a forward pass, a training step, attention's scores and values, steps of decoding."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq
from transformer_ablate.core.attention import SelfAttention, split_heads
from transformer_ablate.core.positions.bound import BoundPosition
from transformer_ablate.core.transformer import Encoder
from transformer_ablate.data.examples import Batch, decoder_inputs
from transformer_ablate.registry import OPTIMIZERS
from transformer_ablate.tokens import BOS, EOS, N_SPECIALS
from transformer_ablate.training.module import Seq2SeqModule

Call = Callable[[], object]

# A whole target's decoding is reckoned from the steps in the middle of so many equal parts of it.
PARTS = 4
KERNELS = {
    "math": [SDPBackend.MATH],
    "fused": [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION],
}


def random_batch(rows: int, length: int, sizes: tuple[int, int], generator: torch.Generator) -> Batch:
    """Sources of ``length`` tokens and targets of as many to predict, BOS and EOS included; there is no padding."""
    source = torch.randint(N_SPECIALS, sizes[0], (rows, length), generator=generator)
    target = torch.randint(N_SPECIALS, sizes[1], (rows, length + 1), generator=generator)
    for tokens in (source, target):
        tokens[:, 0], tokens[:, -1] = BOS, EOS
    return Batch(source, target, torch.arange(rows))


class Contestant:
    """A model with what it takes to train it, in its recipe's precision; works on a copy of ``model``."""

    def __init__(self, recipe: Recipe, model: Seq2Seq, sizes: tuple[int, int], device: torch.device) -> None:
        devices = 1 if device.index is None else [device.index]
        # Lightning's names of precisions mean here what they mean to its Trainer.
        precision: str = recipe.train.precision
        from lightning.fabric import Fabric  # two seconds that a plan, which looks measures up, need not spend

        self.fabric = Fabric(accelerator=device.type, devices=devices, precision=precision)  # type: ignore[arg-type]
        self.module = Seq2SeqModule(recipe, *sizes)
        self.module.model = self.model = copy.deepcopy(model)
        self.fabric.setup_module(self.model)  # casts it and moves it
        self.optimizer = OPTIMIZERS[recipe.train.optimizer](self.model, recipe.train)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """As a trained model is used."""
        self.model.eval()
        with torch.inference_mode(), self.fabric.autocast():
            yield

    def forward(self, batch: Batch) -> Call:
        """One pass over source and target, in this contestant's precision and without gradients."""
        prefix = decoder_inputs(batch.target)
        self.model.eval()

        def call() -> object:
            with torch.inference_mode(), self.fabric.autocast():
                return self.model(batch.source, prefix)

        return call

    def train_step(self, batch: Batch) -> Call:
        """Loss, gradients, clipping and update, in the recipe's regime."""
        self.model.train()

        def step() -> None:
            self.optimizer.zero_grad()
            with self.fabric.autocast():
                loss = self.module.training_step(batch, 0)["loss"]
            loss.backward()
            self.module.configure_gradient_clipping(self.optimizer)
            self.optimizer.step()

        return step


def scores_call(model: Seq2Seq, rows: int, length: int, generator: torch.Generator) -> Call | None:
    """What an encoder layer's self-attention does between its projections; None where there is no such layer.

    That is scores, the encoding's term of them, softmax and values, in all heads. Queries and keys are random, as if
    they had passed door (b), and there is no mask. Tables that a forward pass makes once for all layers are made
    beforehand. To be called within :meth:`Contestant.inference`.
    """
    encoder = next((part for part in model.modules() if isinstance(part, Encoder)), None)
    if encoder is None:
        return None
    first = encoder.layers[0]
    attention = copy.deepcopy(first.self_attention)
    assert isinstance(attention, SelfAttention)
    attention.out = nn.Identity()
    dtype = next(model.parameters()).dtype
    if torch.is_autocast_enabled(model.device.type):
        dtype = torch.get_autocast_dtype(model.device.type)
    parts = (torch.randn(rows, length, attention.width, generator=generator) for _ in range(3))
    q, k, v = (split_heads(part.to(model.device, dtype), attention.n_heads) for part in parts)
    positions = torch.arange(length, device=model.device)
    position = BoundPosition(encoder.position, pair=encoder.position.pair_table(positions, positions, dtype))
    causal = bool(first.is_causal)
    return lambda: attention._attend(q, k, v, position, None, causal)


def with_kernel(call: Call, kernel: str) -> Call:
    """``call`` with attention by one of :data:`KERNELS` only."""

    def chosen() -> object:
        with sdpa_kernel(KERNELS[kernel]):
            return call()

    return chosen


def decoding_calls(model: Seq2Seq, batch: Batch, cached: bool) -> dict[int, Call]:
    """The step that follows so many target tokens, for the middles of equal parts of the target.

    With a cache it reads one token; without, the whole prefix anew. To be called within :meth:`Contestant.inference`.
    """
    prefix, memory = decoder_inputs(batch.target), model.encode(batch.source)

    def step(place: int) -> Call:
        if not cached:
            return lambda: model.decode(prefix[:, : place + 1], memory)[:, -1].argmax(dim=-1)
        state = model.start(memory, capacity=place + 1)
        if place:
            model.step(prefix[:, :place], state)
        return lambda: model.step(prefix[:, place : place + 1], _same_place(state))[:, -1].argmax(dim=-1)

    length = prefix.shape[1]
    return {place: step(place) for place in sorted({(2 * i + 1) * length // (2 * PARTS) for i in range(PARTS)})}


def _same_place(state: object) -> object:
    """A copy that may take a step while ``state`` stays; tensors that are written in place are written over again."""
    twin = copy.copy(state)
    for name, value in vars(twin).items():
        if isinstance(value, list):
            setattr(twin, name, list(value))
    return twin
