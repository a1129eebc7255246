"""Convolutional baselines: ConvS2S, and a convolutional encoder of which only the last state is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.config import ModelConfig
from transformer_ablate.core.attention import Observer
from transformer_ablate.core.baselines.cells import GRU, Bridge
from transformer_ablate.core.baselines.matching import OPTIONS, Baseline
from transformer_ablate.core.baselines.readers import Reader, averaged
from transformer_ablate.core.baselines.recurrent import RecurrentDecoder, RecurrentMemory, RecurrentState
from transformer_ablate.core.linear import Linear
from transformer_ablate.core.positions import Geometry, PositionalEncoding, build_position
from transformer_ablate.core.positions.bound import embed
from transformer_ablate.core.seq2seq import Memory
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import ARCHITECTURES, POSITIONS

HALVED = math.sqrt(0.5)  # times a sum of two, which keeps its variance (Gehring et al. 2017, section 3.4)
# Hooks of a positional encoding that only attention with heads has a place for.
ATTENTION_HOOKS = ("point_table", "transform_query", "transform_key", "pair_table", "score_term", "value_term")


def additive_position(config: ModelConfig, width: int, layers: int, causal: bool) -> PositionalEncoding:
    """The config's positional encoding, if all it does is to add to the embeddings.

    Raises:
        ConfigError: where it works inside attention, which convolutions do not have.
    """
    kind = POSITIONS[config.position]
    if any(getattr(kind, hook) is not getattr(PositionalEncoding, hook) for hook in ATTENTION_HOOKS):
        allowed = f"an encoding that adds to the embeddings, where model.architecture={config.architecture}"
        raise ConfigError("model.position", config.position, allowed, "such as sinusoidal, learned or none")
    if config.randomised_positions:
        allowed = f"0 where model.architecture={config.architecture}"
        raise ConfigError("model.randomised_positions", config.randomised_positions, allowed)
    geometry = Geometry(d_model=width, n_heads=1, layers=layers, causal=causal)
    return build_position(POSITIONS, config.position, geometry, config.position_options)


class GatedConvolution(nn.Conv1d):
    """``(x W + b) * sigmoid(x V + c)`` over windows of ``kernel`` tokens, padded by the caller (Dauphin et al. 2017).

    Weights start as N(0, 4 (1 - dropout) / (kernel d)), biases zero (Gehring et al. 2017, section 3.5); there is no
    weight normalisation.

    Args:
        d: width.
        kernel: tokens in a window.
        dropout: rate on its input.
    """

    def __init__(self, d: int, kernel: int, dropout: float) -> None:
        super().__init__(d, 2 * d, kernel)
        self.std = math.sqrt(4 * (1 - dropout) / (kernel * d))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        nn.init.normal_(self.weight, std=self.std, generator=generator)
        assert self.bias is not None
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, n + kernel - 1, d) -> (B, n, d)."""
        return F.glu(super().forward(x.transpose(1, 2)).transpose(1, 2), dim=-1)


class ConvolutionalEncoder(nn.Module):
    """Gated convolutions, each in a residual connection (Gehring et al. 2017, section 3.2).

    A window reaches ``kernel // 2`` tokens back and ``(kernel - 1) // 2`` ahead. Padding is set to zero before each
    convolution: what stands behind a sentence is what stands before it, however long its batch mates are.

    Args:
        config: ``encoder_layers``, ``dropout``, ``position`` and ``position_options`` are used.
        d: width.
        kernel: tokens in a window.
    """

    def __init__(self, config: ModelConfig, d: int, kernel: int) -> None:
        super().__init__()
        self.position = additive_position(config, d, config.encoder_layers, causal=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(GatedConvolution(d, kernel, config.dropout) for _ in range(config.encoder_layers))
        self.around = (kernel // 2, (kernel - 1) // 2)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings (B, S, d), mask (B, S) -> states (B, S, d), embeddings as placed (B, S, d), positions (S,)."""
        self.position.check_length(x.shape[1])
        positions = torch.arange(x.shape[1], device=x.device)
        embedded = self.dropout(embed(self.position, x, positions)) * mask[..., None]
        states = embedded
        for layer in self.layers:
            windows = F.pad(self.dropout(states), (0, 0, *self.around))
            states = (layer(windows) + states) * HALVED * mask[..., None]
        return states, embedded, positions


@dataclass(frozen=True, kw_only=True)
class ConvolutionalMemory(Memory):
    """An encoded source; ``values`` (B, S, d) are its states plus its embeddings."""

    values: Tensor

    def select(self, rows: Tensor) -> ConvolutionalMemory:
        return ConvolutionalMemory(**vars(super().select(rows)), values=self.values[rows])


@dataclass
class ConvolutionalState:
    """What a cached step of ConvS2S needs.

    Attributes:
        source: the encoded source.
        windows: the last kernel - 1 inputs of each layer, (B, kernel - 1, d); zeros before the first token.
        length: number of target tokens so far.
    """

    source: ConvolutionalMemory
    windows: list[Tensor]
    length: int = 0

    def select(self, rows: Tensor) -> ConvolutionalState:
        """The state of some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        return ConvolutionalState(self.source.select(rows), [w[rows] for w in self.windows], self.length)


class ConvolutionalDecoderLayer(nn.Module):
    """A causal gated convolution and attention to the source (Gehring et al. 2017, section 3.3, equations 1 and 2).

    ``d_i = W h_i + b + g_i``, ``a_ij = softmax_j(d_i . z_j / sqrt(d))``, ``c_i = sum_j a_ij (z_j + e_j)``. The paper
    has no sqrt(d): its embeddings start with a standard deviation of 0.1, those here with 1, under which the softmax
    would be saturated from the start. Nor is c multiplied by the square root of the source's length, which in the paper
    makes up for weights that are all equal (section 3.4).

    Attributes:
        observer: is shown the scores of every call.
    """

    observer: Observer | None = None

    def __init__(self, d: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(d, kernel, dropout)
        self.query = Linear(d, d)

    def forward(self, windows: Tensor, embedded: Tensor, source: ConvolutionalMemory) -> Tensor:
        """Inputs (B, kernel - 1 + n, d) and the embeddings g (B, n, d) of the last n -> (B, n, d)."""
        h = self.convolution(windows)
        queries = (self.query(h) + embedded) * embedded.shape[-1] ** -0.5
        scores = queries @ source.states.to(queries.dtype).transpose(1, 2)
        return (h + averaged(source.values, scores, source.mask, self.observer)) * HALVED


@ARCHITECTURES.register("convs2s")
class ConvS2S(Baseline):
    """Gated convolutions in encoder and decoder, attention to the source in each decoder layer (Gehring et al. 2017).

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying``, ``logit_scale``, ``position`` and
            ``position_options`` are used; the encoding must be one that adds to the embeddings.
        source_size, target_size: vocabulary sizes.
        kernel: tokens in a window.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, *, kernel: int = 3) -> None:
        options.whole(f"{OPTIONS}.kernel", kernel, at_least=1)
        super().__init__(config, source_size, target_size, kernel=kernel)
        d, layers = self.width, config.decoder_layers
        self.before = kernel - 1
        self.encoder = ConvolutionalEncoder(config, d, kernel)
        self.position = additive_position(config, d, layers, causal=True)
        self.layers = nn.ModuleList(ConvolutionalDecoderLayer(d, kernel, config.dropout) for _ in range(layers))

    def attentions(self) -> dict[str, list[nn.Module]]:
        """The layers that attend to the source, each with an ``observer``."""
        return {"cross": list(self.layers)}

    def encode(self, source: Tensor) -> ConvolutionalMemory:
        mask = self.token_mask(source)
        states, embedded, positions = self.encoder(self.source_embedding(source), mask)
        return ConvolutionalMemory(states, mask, positions, values=states + embedded)

    def start(self, memory: Memory, capacity: int) -> ConvolutionalState:
        assert isinstance(memory, ConvolutionalMemory)
        states = memory.states
        return ConvolutionalState(memory, [states.new_zeros(len(states), self.before, self.width) for _ in self.layers])

    def advance(self, x: Tensor, state: ConvolutionalState) -> Tensor:
        n = x.shape[1]
        self.position.check_length(state.length + n)
        positions = torch.arange(state.length, state.length + n, device=x.device)
        embedded = x = self.dropout(embed(self.position, x, positions))
        for i, layer in enumerate(self.layers):
            windows = torch.cat((state.windows[i], self.dropout(x)), dim=1)  # (B, kernel - 1 + n, d)
            state.windows[i] = windows[:, n:]
            x = (layer(windows, embedded, state.source) + x) * HALVED
        state.length += n
        return self.dropout(x)


@ARCHITECTURES.register("conv_last")
class ConvLast(Baseline):
    """Convolutional encoder of which a GRU decoder gets the state at the last token (Kalchbrenner & Blunsom 2013).

    That state knows the last ``1 + encoder_layers * (kernel // 2)`` tokens of a source, EOS counted, and its length by
    the positional encoding; what stands before is lost.

    Args:
        config: ``encoder_layers``, ``decoder_layers``, ``dropout``, ``tying``, ``logit_scale``, ``position`` and
            ``position_options`` are used; the encoding must be one that adds to the embeddings.
        source_size, target_size: vocabulary sizes.
        kernel: tokens in a window.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int, *, kernel: int = 3) -> None:
        options.whole(f"{OPTIONS}.kernel", kernel, at_least=1)
        super().__init__(config, source_size, target_size, kernel=kernel)
        d, layers = self.width, config.decoder_layers
        self.encoder = ConvolutionalEncoder(config, d, kernel)
        self.bridge = Bridge(d, d, 1, layers, GRU.states, direct=False)
        self.decoder = RecurrentDecoder(GRU, Reader, d, d, layers, config.dropout)

    def encode(self, source: Tensor) -> RecurrentMemory:
        mask = self.token_mask(source)
        states, _, positions = self.encoder(self.source_embedding(source), mask)
        last = states[torch.arange(len(states), device=states.device), (mask.sum(dim=1) - 1).clamp(min=0)]
        return RecurrentMemory(states, mask, positions, initial=self.bridge((last[None],)), summary=last)

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        return self.decoder.start(memory)

    def advance(self, x: Tensor, state: RecurrentState) -> Tensor:
        return self.decoder(self.dropout(x), state)
