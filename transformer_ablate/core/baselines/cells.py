"""Stacks of recurrent layers with explicit states, initial values of their own, and float32 under any autocast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_ablate.core.linear import Linear, derive_seed

# The states of a stack, (layers * directions, B, d) each: one for an RNN and a GRU, two (h and c) for an LSTM.
Hidden = tuple[Tensor, ...]


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent layer.

    Attributes:
        module: torch's class.
        gates: how many d x d blocks its matrices consist of.
        states: how many tensors are handed from step to step.
        forget: index of the block that is a forget gate, if any.
    """

    module: type[nn.RNNBase]
    gates: int
    states: int
    forget: int | None = None


# h' = tanh(W x + b + U h + c) (Elman 1990).
ELMAN = Cell(nn.RNN, gates=1, states=1)
# r, z = sigmoid(...), n = tanh(W x + b + r (U h + c)), h' = (1 - z) n + z h: torch's form of Cho et al. 2014, eq. 5-8,
# whose own r multiplies h before U.
GRU = Cell(nn.GRU, gates=3, states=1)
# i, f, g, o; c' = f c + i g, h' = o tanh(c') (Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000).
LSTM = Cell(nn.LSTM, gates=4, states=2, forget=1)


class Recurrence(nn.Module):
    """Layers of one cell over a sequence.

    Recurrent matrices start orthogonal, a block at a time (Bahdanau et al. 2015, appendix B.1; Saxe et al. 2014), input
    matrices Xavier-uniform a block, biases zero but a forget gate's, which is 1 (Jozefowicz et al. 2015).
    The whole recurrence is computed in its parameters' own precision, since rounding errors would add up over steps
    and not every device has kernels for less.

    Args:
        cell: what a layer is.
        d_in, d: widths of inputs and of states.
        layers: number of layers.
        dropout: rate between layers.
        bidirectional: a second stack reads from the end; outputs and states of both are concatenated.
    """

    def __init__(self, cell: Cell, d_in: int, d: int, layers: int, dropout: float, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell, self.d, self.layers = cell, d, layers
        self.directions = 2 if bidirectional else 1
        between = dropout if layers > 1 else 0.0  # torch warns of dropout between the layers of a single one
        make: Any = cell.module
        self.rnn: nn.RNNBase = make(d_in, d, layers, batch_first=True, dropout=between, bidirectional=bidirectional)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws each matrix from a generator of its own, so that arms that differ in one share the others."""
        seed = generator.initial_seed()
        for name, parameter in self.rnn.named_parameters():
            generator = torch.Generator().manual_seed(derive_seed(seed, name))
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
                if name.startswith("bias_ih") and self.cell.forget is not None:
                    nn.init.ones_(parameter.chunk(self.cell.gates)[self.cell.forget])
                continue
            draw = nn.init.orthogonal_ if name.startswith("weight_hh") else nn.init.xavier_uniform_
            for block in parameter.chunk(self.cell.gates):
                draw(block, generator=generator)

    def zeros(self, rows: int, like: Tensor) -> Hidden:
        """The states before the first step, (layers * directions, B, d) each."""
        shape = self.layers * self.directions, rows, self.d
        return tuple(like.new_zeros(shape) for _ in range(self.cell.states))

    def forward(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Inputs (B, n, d_in) from the states ``hidden`` on -> outputs of the top layer (B, n, d), states."""
        with torch.autocast(x.device.type, enabled=False):
            outputs, last = self.rnn(x.to(self._dtype), self._packed(hidden))
        return outputs, self._unpacked(last)

    def read(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Hidden]:
        """A padded batch (B, S, d_in) with its mask (B, S), from zero states on.

        Returns:
            the top layer's outputs (B, S, directions * d), zeros at padding, and each layer's state after the last
            real token of each direction, (layers, B, directions * d) each. A sentence without any token is read as one
            of a single token: there must be something to read.
        """
        lengths = mask.sum(dim=1).clamp(min=1).cpu()  # torch wants them there
        with torch.autocast(x.device.type, enabled=False):
            packed = pack_padded_sequence(x.to(self._dtype), lengths, batch_first=True, enforce_sorted=False)
            outputs, last = self.rnn(packed)
            states, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        joined = (h.unflatten(0, (self.layers, self.directions)).transpose(1, 2) for h in self._unpacked(last))
        return states, tuple(h.flatten(-2) for h in joined)

    @property
    def _dtype(self) -> torch.dtype:
        return self.rnn.weight_hh_l0.dtype  # type: ignore[return-value]

    def _packed(self, hidden: Hidden) -> Any:
        states = tuple(h.to(self._dtype).contiguous() for h in hidden)
        return states if len(states) > 1 else states[0]

    def _unpacked(self, states: Any) -> Hidden:
        return tuple(states) if self.cell.states > 1 else (states,)


class Bridge(nn.Module):
    """The states that a decoder starts from, made of those that an encoder ended with.

    Decoder layers take the states of the encoder layers at the same distance from the top; where there are fewer
    encoder layers, the lowest serves several. They are taken as they are (Sutskever et al. 2014, section 2), or as
    ``tanh(W s + b)`` with matrices for each state of each layer (Bahdanau et al. 2015, appendix A.2.2; they take the
    last backward state alone, here s has both directions).

    Args:
        d, d_source: widths of the decoder's and of the encoder's states.
        encoder_layers, decoder_layers: numbers of layers.
        states: how many states a layer has.
        direct: states are taken as they are; needs d = d_source.
    """

    def __init__(
        self, d: int, d_source: int, encoder_layers: int, decoder_layers: int, states: int, direct: bool
    ) -> None:
        super().__init__()
        self.rows = [max(0, layer + encoder_layers - decoder_layers) for layer in range(decoder_layers)]
        self.parts = nn.ModuleList(
            nn.Identity() if direct else nn.Sequential(Linear(d_source, d), nn.Tanh())
            for _ in range(states * decoder_layers)
        )

    def forward(self, last: Hidden) -> Hidden:
        """(encoder_layers, B, d_source) each -> (decoder_layers, B, d) each."""
        taken = [state[row] for state in last for row in self.rows]
        made = [part(x) for part, x in zip(self.parts, taken, strict=True)]
        layers = len(self.rows)
        return tuple(torch.stack(made[i : i + layers]) for i in range(0, len(made), layers))
