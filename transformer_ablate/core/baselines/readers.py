"""What a recurrent decoder is told of the source, and when.

A reader stands on both sides of the recurrence: ``before`` makes the input of a step, ``after`` its output. d is the
decoder's width, d_source that of the source's states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate.core.attention import Observer, masked_softmax
from transformer_ablate.core.linear import Linear
from transformer_ablate.core.positions.base import wide


@dataclass
class Source:
    """An encoded source as one reader wants it.

    Attributes:
        keys: (B, S, any) what states are compared with.
        states: (B, S, d_source).
        mask: (B, S) boolean, True for real tokens.
        summary: (B, d_source) last state of the top layer, of each direction.
    """

    keys: Tensor
    states: Tensor
    mask: Tensor
    summary: Tensor

    def select(self, rows: Tensor) -> Source:
        """Some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        return Source(self.keys[rows], self.states[rows], self.mask[rows], self.summary[rows])


def averaged(states: Tensor, scores: Tensor, mask: Tensor, observer: Observer | None = None) -> Tensor:
    """States (B, S, d) of the tokens in ``mask`` (B, S), averaged by the softmax of scores (B, n, S) -> (B, n, d).

    The softmax is taken in float32 or wider; a source without any token gives zeros. An observer is shown the scores
    as those of a single head.
    """
    scores, allowed = scores.to(wide(scores.dtype)), mask[:, None].expand_as(scores)
    if observer is not None:
        observer(scores[:, None], allowed[:, None])
    weights = masked_softmax(scores, allowed)
    return weights.to(states.dtype) @ states


class Comparison(nn.Linear):
    """A map without bias by which states are compared, Xavier-uniform at first (Glorot & Bengio 2010, eq. 16)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, bias=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        nn.init.xavier_uniform_(self.weight, generator=generator)


class Reader(nn.Module):
    """The decoder knows the source by its start state alone (Sutskever et al. 2014, section 2).

    Args:
        d, d_source: widths.

    Attributes:
        observer: is shown the scores of every call, where the reader attends.
    """

    # Whether it weighs the source's states by a softmax.
    attends: ClassVar[bool] = False
    # Whether the input of a step depends on the state before it, so that steps must be run one by one.
    follows_state: ClassVar[bool] = False
    observer: Observer | None = None

    def __init__(self, d: int, d_source: int) -> None:
        super().__init__()
        self.d_input = d

    def keys(self, states: Tensor) -> Tensor:
        """What attention compares with, computed once a source: (B, S, d_source) -> (B, S, any)."""
        return states

    def before(self, x: Tensor, top: Tensor, source: Source) -> Tensor:
        """Embeddings (B, n, d) and the top layer's last state (B, d) -> inputs of the recurrence (B, n, d_input)."""
        return x

    def after(self, inputs: Tensor, outputs: Tensor, source: Source) -> Tensor:
        """The recurrence's inputs (B, n, d_input) and outputs (B, n, d) -> states for the output layer (B, n, d)."""
        return outputs


class ContextReader(Reader):
    """The last state is an input of every step and of the output layer (Cho et al. 2014, section 2.2 and appendix A).

    ``o_i = tanh(W [s_i; y_{i-1}; c] + b)`` goes to the output projection; the paper has maxout in place of tanh.
    """

    def __init__(self, d: int, d_source: int) -> None:
        super().__init__(d, d_source)
        self.d_input = d + d_source
        self.readout = Linear(d + self.d_input, d)

    def before(self, x: Tensor, top: Tensor, source: Source) -> Tensor:
        context = source.summary[:, None].expand(-1, x.shape[1], -1)
        return torch.cat((x, context.to(x.dtype)), dim=-1)

    def after(self, inputs: Tensor, outputs: Tensor, source: Source) -> Tensor:
        return torch.tanh(self.readout(torch.cat((outputs, inputs), dim=-1)))


class AdditiveReader(ContextReader):
    """The source's states are averaged, weighted by the decoder's state before (Bahdanau et al. 2015, appendix A.1.2).

    ``e_ij = v^T tanh(W s_{i-1} + U h_j)``, where s is the top layer's; the output layer as in :class:`ContextReader`.
    """

    follows_state = attends = True

    def __init__(self, d: int, d_source: int) -> None:
        super().__init__(d, d_source)
        self.query = Comparison(d, d)  # W
        self.key = Comparison(d_source, d)  # U
        self.score = Comparison(d, 1)  # v

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def before(self, x: Tensor, top: Tensor, source: Source) -> Tensor:
        energies = self.score(torch.tanh(self.query(top)[:, None] + source.keys))  # (B, S, 1)
        context = averaged(source.states, energies.transpose(1, 2), source.mask, self.observer)
        return torch.cat((x, context.to(x.dtype)), dim=-1)


class MultiplicativeReader(Reader):
    """Attention by the current state, after the recurrence: the "general" score (Luong et al. 2015, section 3.1).

    ``e_ij = s_i^T W h_j`` and ``o_i = tanh(W_c [c_i; s_i] + b)``. There is no input feeding (section 3.3): contexts do
    not come back into the recurrence, which can so run over a whole target at once.
    """

    attends = True

    def __init__(self, d: int, d_source: int) -> None:
        super().__init__(d, d_source)
        self.key = Comparison(d_source, d)  # W
        self.readout = Linear(d_source + d, d)

    def keys(self, states: Tensor) -> Tensor:
        return self.key(states)

    def after(self, inputs: Tensor, outputs: Tensor, source: Source) -> Tensor:
        scores = outputs.to(source.keys.dtype) @ source.keys.transpose(1, 2)
        context = averaged(source.states, scores, source.mask, self.observer)
        return torch.tanh(self.readout(torch.cat((context.to(outputs.dtype), outputs), dim=-1)))


READERS: dict[str, type[Reader]] = {
    "start": Reader,
    "context": ContextReader,
    "additive": AdditiveReader,
    "multiplicative": MultiplicativeReader,
}
