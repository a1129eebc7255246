"""Feed-forward baselines: what can be had without recurrence, convolution or attention.

Stacks have ``config.encoder_layers`` and ``config.decoder_layers`` hidden layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.config import ModelConfig
from transformer_ablate.core.baselines.matching import OPTIONS, Baseline
from transformer_ablate.core.linear import Linear
from transformer_ablate.core.positions.base import wide
from transformer_ablate.core.seq2seq import Memory
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import ARCHITECTURES


class Perceptron(nn.Sequential):
    """``layers`` hidden ReLU layers of width d with dropout, then a linear map: (..., d_in) -> (..., d)."""

    def __init__(self, d_in: int, d: int, layers: int, dropout: float) -> None:
        widths = [d_in] + [d] * layers
        hidden = [(Linear(w, d), nn.ReLU(), nn.Dropout(dropout)) for w in widths[:-1]]
        super().__init__(*(part for layer in hidden for part in layer), Linear(widths[-1], d))


@dataclass
class PrefixState:
    """What the steps before have left: nothing but a sum.

    Attributes:
        code: (B, 1, d) encoded source.
        total: (B, d) sum over the target tokens so far.
        length: number of target tokens so far.
    """

    code: Tensor
    total: Tensor
    length: int = 0

    def select(self, rows: Tensor) -> PrefixState:
        """The state of some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        return replace(self, code=self.code[rows], total=self.total[rows])

    def accumulate(self, x: Tensor) -> Tensor:
        """Adds (B, n, d) to the sum and returns the sum after each of them, (B, n, d)."""
        sums = self.total[:, None] + x.to(self.total.dtype).cumsum(dim=1)
        self.total, self.length = sums[:, -1], self.length + x.shape[1]
        return sums


def one_vector(code: Tensor) -> Memory:
    """The memory that consists of the single vector (B, d)."""
    states = code[:, None]
    mask = torch.ones(states.shape[:2], dtype=torch.bool, device=code.device)
    return Memory(states, mask, torch.zeros(1, dtype=torch.long, device=code.device))


def start_prefix(memory: Memory) -> PrefixState:
    """The state before the first target token."""
    code = memory.states
    return PrefixState(code, torch.zeros_like(code[:, 0], dtype=wide(code.dtype)))


@ARCHITECTURES.register("fnn_mean")
class MeanFNN(Baseline):
    """Feed-forward network on averaged embeddings of the source and of the target prefix (Iyyer et al. 2015).

    The source is a bag of words: two sources that are permutations of one another get one and the same answer, so that
    on a task where order matters accuracy is bounded by the share of the most frequent answer of each bag. The decoder
    sees the source's code, the mean of the prefix and its last token.

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying`` and ``logit_scale`` are used.
        source_size, target_size: vocabulary sizes.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        d = self.width
        self.encoder = Perceptron(d, d, config.encoder_layers, config.dropout)
        self.decoder = Perceptron(3 * d, d, config.decoder_layers, config.dropout)

    def encode(self, source: Tensor) -> Memory:
        mask = self.token_mask(source)[..., None]
        total = (self.dropout(self.source_embedding(source)) * mask).sum(dim=1)
        return one_vector(self.encoder(total / mask.sum(dim=1).clamp(min=1)))

    def start(self, memory: Memory, capacity: int) -> PrefixState:
        return start_prefix(memory)

    def advance(self, x: Tensor, state: PrefixState) -> Tensor:
        x = self.dropout(x)
        counts = torch.arange(state.length + 1, state.length + 1 + x.shape[1], device=x.device)
        mean = (state.accumulate(x) / counts[:, None]).to(x.dtype)
        return self.decoder(torch.cat((state.code.to(x.dtype).expand_as(x), mean, x), dim=-1))


class Slots(nn.Module):
    """Each slot's own share of a linear map of concatenated embeddings: ``x_j W_j + b_j`` at slot j.

    The sum over the filled slots is the map of the concatenation with zeros beyond its end; the b_j are the weights of
    one more channel a slot, which is 1 where the slot is filled. At first W_j is U(-1/sqrt(longest d), same), as of one
    linear map of the whole concatenation, and b_j zero.

    Args:
        longest: number of slots.
        d: width of an embedding and of the map's output.
    """

    linear_maps = ("weight",)

    def __init__(self, longest: int, d: int) -> None:
        super().__init__()
        self.longest = longest
        self.weight = nn.Parameter(torch.empty(longest, d, d))
        self.bias = nn.Parameter(torch.empty(longest, d))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        bound = (self.longest * self.weight.shape[1]) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)

    def check_length(self, longest: int) -> None:
        """Refuses, by ConfigError, a sequence of ``longest`` tokens where there are fewer slots than that."""
        if longest > self.longest:
            raise ConfigError(
                "model.architecture_options.longest",
                self.longest,
                f"at least {longest} for a sequence of {longest} tokens",
                "raise it or shorten the data",
            )

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Embeddings (B, n, d) in the slots from ``first`` on -> (B, n, d).

        Raises:
            ConfigError: where there are fewer slots than that.
        """
        end = first + x.shape[1]
        self.check_length(end)
        shares = torch.bmm(x.transpose(0, 1), self.weight[first:end]).transpose(0, 1)
        return shares + self.bias[first:end]


@ARCHITECTURES.register("fnn_concat")
class ConcatFNN(Baseline):
    """Feed-forward network on concatenated embeddings of the source and of the target prefix (Bengio et al. 2003).

    Both have ``longest`` slots, filled from the left, zeros beyond the end. Nothing that is learnt in one slot holds
    in another, and parameters grow with ``longest``. A longer source or prefix is an error; outputs are waited for
    twice the source's tokens and ten, so ``longest`` should be that much for the longest test source.

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying`` and ``logit_scale`` are used; the slots
            are the first hidden layer of each stack.
        source_size, target_size: vocabulary sizes.
        longest: most tokens of a source and of a target, BOS and EOS counted.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, *, longest: int = 64) -> None:
        options.whole(f"{OPTIONS}.longest", longest, at_least=1)
        super().__init__(config, source_size, target_size, longest=longest)
        d = self.width
        self.source_slots, self.target_slots = Slots(longest, d), Slots(longest, d)
        self.activation = nn.Sequential(nn.ReLU(), nn.Dropout(config.dropout))
        self.encoder = Perceptron(d, d, config.encoder_layers - 1, config.dropout)
        self.decoder = Perceptron(d, d, config.decoder_layers - 1, config.dropout)

    def encode(self, source: Tensor) -> Memory:
        shares = self.source_slots(self.dropout(self.source_embedding(source)))
        total = (shares * self.token_mask(source)[..., None]).sum(dim=1)
        return one_vector(self.encoder(self.activation(total)))

    def start(self, memory: Memory, capacity: int) -> PrefixState:
        return start_prefix(memory)

    def advance(self, x: Tensor, state: PrefixState) -> Tensor:
        shares = self.target_slots(self.dropout(x), state.length)
        # The source's code is a linear map already: to add it is to concatenate it with the prefix.
        return self.decoder(self.activation((state.accumulate(shares) + state.code).to(x.dtype)))
