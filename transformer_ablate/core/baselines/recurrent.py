"""Recurrent baselines: encoder-decoders without attention, with it, and an RNN with one output an input."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.config import ModelConfig
from transformer_ablate.core.baselines.cells import ELMAN, GRU, LSTM, Bridge, Cell, Hidden, Recurrence
from transformer_ablate.core.baselines.matching import OPTIONS, Baseline
from transformer_ablate.core.baselines.readers import READERS, Reader, Source
from transformer_ablate.core.seq2seq import Memory
from transformer_ablate.registry import ARCHITECTURES


@dataclass(frozen=True, kw_only=True)
class RecurrentMemory(Memory):
    """An encoded source and what a recurrent decoder starts from.

    Attributes:
        initial: the decoder's states, (layers, B, d) each.
        summary: (B, d_source) the encoder's last state.
    """

    initial: Hidden
    summary: Tensor

    def select(self, rows: Tensor) -> RecurrentMemory:
        initial = tuple(h[:, rows] for h in self.initial)
        return RecurrentMemory(**vars(super().select(rows)), initial=initial, summary=self.summary[rows])


@dataclass
class RecurrentState:
    """What a cached step needs of the steps before it: the source and the last states, (layers, B, d) each."""

    source: Source
    hidden: Hidden

    def select(self, rows: Tensor) -> RecurrentState:
        """The state of some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        return RecurrentState(self.source.select(rows), tuple(h[:, rows] for h in self.hidden))


class RecurrentDecoder(nn.Module):
    """A stack of recurrent layers between the two sides of a reader.

    Args:
        cell: what a layer is.
        reader: what it is told of the source.
        d, d_source: widths of its states and of the source's.
        layers: number of layers.
        dropout: rate between layers and on the states for the output.
    """

    def __init__(self, cell: Cell, reader: type[Reader], d: int, d_source: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.reader = reader(d, d_source)
        self.cells = Recurrence(cell, self.reader.d_input, d, layers, dropout)
        self.dropout = nn.Dropout(dropout)

    def start(self, memory: Memory) -> RecurrentState:
        """The state before the first target token."""
        assert isinstance(memory, RecurrentMemory)
        source = Source(self.reader.keys(memory.states), memory.states, memory.mask, memory.summary)
        return RecurrentState(source, memory.initial)

    def forward(self, x: Tensor, state: RecurrentState) -> Tensor:
        """Embeddings (B, n, d) -> states for the output (B, n, d); updates ``state``."""
        inputs, outputs = [], []
        for part in x.split(1, dim=1) if self.reader.follows_state else (x,):
            inputs.append(self.reader.before(part, state.hidden[0][-1], state.source))
            output, state.hidden = self.cells(inputs[-1], state.hidden)
            outputs.append(output)
        return self.dropout(self.reader.after(torch.cat(inputs, dim=1), torch.cat(outputs, dim=1), state.source))


class Recurrent(Baseline):
    """Recurrent encoder and decoder; a subclass names the cell.

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying`` and ``logit_scale`` are used.
        source_size, target_size: vocabulary sizes.
        reader: what the decoder is told of the source: ``start`` (its start state alone), ``context`` (the encoder's
            last state at each step), ``additive`` or ``multiplicative`` attention.
        bidirectional: a second encoder stack reads the source from its end; each has the decoder's width.
    """

    cell: ClassVar[Cell]

    def __init__(
        self,
        config: ModelConfig,
        source_size: int,
        target_size: int,
        *,
        reader: str = "additive",
        bidirectional: bool = False,
    ) -> None:
        options.name(f"{OPTIONS}.reader", reader, READERS)
        options.switch(f"{OPTIONS}.bidirectional", bidirectional)
        super().__init__(config, source_size, target_size, reader=reader, bidirectional=bidirectional)
        d, layers = self.width, (config.encoder_layers, config.decoder_layers)
        d_source = 2 * d if bidirectional else d
        self.encoder = Recurrence(self.cell, d, d, config.encoder_layers, config.dropout, bidirectional)
        self.bridge = Bridge(d, d_source, *layers, self.cell.states, direct=not bidirectional)
        self.decoder = RecurrentDecoder(self.cell, READERS[reader], d, d_source, config.decoder_layers, config.dropout)

    def attentions(self) -> dict[str, list[nn.Module]]:
        """The reader, with its ``observer``, if it attends to the source."""
        reader = self.decoder.reader
        return {"cross": [reader] if reader.attends else []}

    def encode(self, source: Tensor) -> RecurrentMemory:
        mask = self.token_mask(source)
        states, last = self.encoder.read(self.dropout(self.source_embedding(source)), mask)
        positions = torch.arange(source.shape[1], device=source.device)
        return RecurrentMemory(
            self.dropout(states), mask, positions, initial=self.bridge(last), summary=self.dropout(last[0][-1])
        )

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        return self.decoder.start(memory)

    def advance(self, x: Tensor, state: RecurrentState) -> Tensor:
        return self.decoder(self.dropout(x), state)


@ARCHITECTURES.register("gru")
class GRUSeq2Seq(Recurrent):
    """GRU encoder-decoder: source as start state, context or by attention (Cho et al. 2014; Bahdanau et al. 2015)."""

    cell = GRU


@ARCHITECTURES.register("lstm")
class LSTMSeq2Seq(Recurrent):
    """LSTM encoder-decoder: source as start state, context or by attention (Sutskever et al. 2014)."""

    cell = LSTM


@dataclass
class SynchronousState:
    """What a cached step of a synchronous RNN needs.

    Attributes:
        states: (B, S, d) the source's, with the "no more input" vector at padding.
        hidden: the output stack's states, (layers, B, d) each.
        length: number of target tokens so far.
    """

    states: Tensor
    hidden: Hidden
    length: int = 0

    def select(self, rows: Tensor) -> SynchronousState:
        """The state of some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        return replace(self, states=self.states[rows], hidden=tuple(h[:, rows] for h in self.hidden))


@ARCHITECTURES.register("rnn_synchronous")
class SynchronousRNN(Baseline):
    """Plain RNN that puts out one token for each token it reads (Elman 1990; Goodfellow et al. 2016, section 10.2).

    The output at place t of a target knows the source up to place t, BOS standing at place 0 of both, and the target
    before t. It can neither wait nor look ahead. Where the target outlasts the source, a learnt vector in place of the
    source's state says "no more input". A stack of ``encoder_layers`` reads the source from left to right, a second one
    of ``decoder_layers`` reads its state at t together with the token before t.

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying`` and ``logit_scale`` are used.
        source_size, target_size: vocabulary sizes.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        d = self.width
        self.encoder = Recurrence(ELMAN, d, d, config.encoder_layers, config.dropout)
        self.decoder = Recurrence(ELMAN, 2 * d, d, config.decoder_layers, config.dropout)
        self.exhausted = nn.Parameter(torch.empty(d))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the "no more input" vector from ``generator``: N(0, 1/d)."""
        nn.init.normal_(self.exhausted, std=self.width**-0.5, generator=generator)

    def encode(self, source: Tensor) -> Memory:
        x = self.dropout(self.source_embedding(source))
        # Padding on the right comes after everything that counts, and its states are never looked at.
        states, _ = self.encoder(x, self.encoder.zeros(len(x), like=x))
        return Memory(self.dropout(states), self.token_mask(source), torch.arange(source.shape[1], device=x.device))

    def start(self, memory: Memory, capacity: int) -> SynchronousState:
        states = torch.where(memory.mask[..., None], memory.states, self.exhausted.to(memory.states.dtype))
        return SynchronousState(states, self.decoder.zeros(len(states), like=states))

    def advance(self, x: Tensor, state: SynchronousState) -> Tensor:
        first, source_length = state.length + 1, state.states.shape[1]
        state.length += x.shape[1]
        places = torch.arange(first, first + x.shape[1], device=x.device)
        here = state.states[:, places.clamp(max=source_length - 1)]
        here = torch.where((places < source_length)[:, None], here, self.exhausted.to(here.dtype))
        outputs, state.hidden = self.decoder(torch.cat((here, self.dropout(x)), dim=-1), state.hidden)
        return self.dropout(outputs)
