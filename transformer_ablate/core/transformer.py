"""The encoder-decoder Transformer that every variant shares (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core.attention import CrossAttention, KeyValues, MultiHeadAttention, SelfAttention
from transformer_ablate.core.embedding import TYING_KINDS, OutputProjection, TokenEmbedding
from transformer_ablate.core.feedforward import FeedForward
from transformer_ablate.core.normalization import Residual
from transformer_ablate.core.positions import Geometry, build_position
from transformer_ablate.core.positions.bound import BoundPosition, embed
from transformer_ablate.core.positions.numbering import Numbering, build_numbering
from transformer_ablate.core.seq2seq import Memory, Seq2Seq
from transformer_ablate.registry import (
    ARCHITECTURES,
    CROSS_POSITIONS,
    FEED_FORWARDS,
    NORM_PLACEMENTS,
    NORMS,
    POSITIONS,
)


@dataclass
class DecoderState:
    """What a cached step needs of the steps before it.

    Attributes:
        memory: the source.
        source: keys and values of the source, one entry a layer.
        target: keys and values of the target so far, one entry a layer.
        length: number of target tokens so far.
    """

    memory: Memory
    source: list[KeyValues]
    target: list[KeyValues]
    length: int = 0

    def select(self, rows: Tensor) -> DecoderState:
        """The state of some of the sentences: ``rows`` are indices (n,), which may repeat, or a boolean mask (B,)."""
        source, target = ([kv.select(rows) for kv in layers] for layers in (self.source, self.target))
        return DecoderState(self.memory.select(rows), source, target, self.length)


def _geometry(config: ModelConfig, layers: int, causal: bool) -> Geometry:
    return Geometry(config.d_model, config.n_heads, layers, causal, config.head_width, config.attention_scale)


def _depths(config: ModelConfig, decoder: bool) -> tuple[int, int, bool]:
    """Layers of a stack and of the other one, and whether it is the decoder: what placements scale by."""
    layers = (config.encoder_layers, config.decoder_layers)
    return (layers[1], layers[0], True) if decoder else (layers[0], layers[1], False)


def _residual(config: ModelConfig, decoder: bool) -> Residual:
    placement = NORM_PLACEMENTS[config.norm_placement]
    keep = placement.stream_gain(*_depths(config, decoder)) if config.residual else 0.0
    residual: Residual = placement(partial(NORMS[config.norm], config.d_model), config.dropout, keep)
    return residual


def _feed_forward(config: ModelConfig, attentions: int) -> FeedForward:
    """The sublayer of a layer that has so many attention sublayers.

    Where these have no output projection and sizes are matched, it is wider by the parameters that they lack.
    """
    d = config.d_model
    lacking = 0 if config.output_projection or not config.matched else attentions * (d * d + d)
    width = config.ff_width + round(lacking / (2 * d + 1))  # a plain one has 2 d + 1 parameters a channel of its width
    feed_forward: FeedForward = FEED_FORWARDS[config.ffn](d, width, config.matched)
    return feed_forward


def _final_norm(config: ModelConfig) -> nn.Module:
    final = NORM_PLACEMENTS[config.norm_placement].needs_final_norm
    norm: nn.Module = NORMS[config.norm if final else "none"](config.d_model)
    return norm


def _scale_initial_values(config: ModelConfig, decoder: bool, *sublayers: MultiHeadAttention | FeedForward) -> None:
    gain = NORM_PLACEMENTS[config.norm_placement].initial_gain(*_depths(config, decoder))
    for sublayer in sublayers:
        sublayer.scale_initial_values(gain)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, layer)
        self.feed_forward = _feed_forward(config, attentions=1)
        self.around_self = _residual(config, decoder=False)
        self.around_ffn = _residual(config, decoder=False) if self.feed_forward.present else None
        _scale_initial_values(config, False, self.self_attention, self.feed_forward)
        self.is_causal = config.causal_encoder

    def forward(self, x: Tensor, position: BoundPosition, mask: Tensor | None, real: Tensor) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model); ``mask`` (B, 1, 1, S) for attention, ``real`` (B, S) for norms."""
        attention = partial(self.self_attention, position=position, mask=mask, is_causal=self.is_causal)
        x = self.around_self(x, attention, real)
        return x if self.around_ffn is None else self.around_ffn(x, self.feed_forward, real)


@dataclass(frozen=True)
class Back:
    """What the target's attention to itself needs in every layer alike.

    Attributes:
        position: its encoding at these places.
        mask: boolean, broadcastable to (B, H, L, S).
        is_causal: full pass that looks back only.
        start: target tokens before these.
        real: (B, n), which tokens are no padding; None for all.
    """

    position: BoundPosition
    mask: Tensor | None
    is_causal: bool
    start: int
    real: Tensor | None


@dataclass(frozen=True)
class Over:
    """What attention to the source needs in every layer alike: its position, and its mask (B, 1, 1, S)."""

    position: BoundPosition
    mask: Tensor | None


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, and feed-forward, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config, layer)
        self.cross_attention = CrossAttention(config, layer)
        self.feed_forward = _feed_forward(config, attentions=2)
        self.around_self = _residual(config, decoder=True)
        self.around_cross = _residual(config, decoder=True)
        self.around_ffn = _residual(config, decoder=True) if self.feed_forward.present else None
        _scale_initial_values(config, True, self.self_attention, self.cross_attention, self.feed_forward)

    def read_source(self, states: Tensor, position: BoundPosition) -> KeyValues:
        """Keys and values of the source's states (B, S, d_model), once a sentence."""
        return self.cross_attention.keys_values(states, position)

    def forward(self, x: Tensor, back: Back, over: Over, source: KeyValues, cache: KeyValues | None) -> Tensor:
        """(B, n, d_model) -> (B, n, d_model); this layer's ``source``, and its ``cache`` in a cached step."""
        look_back = partial(self.self_attention, position=back.position, mask=back.mask, is_causal=back.is_causal,
                            cache=cache, start=back.start)  # fmt: skip
        look_over = partial(self.cross_attention, source=source, position=over.position, mask=over.mask)
        x, real = self.around_self(x, look_back, back.real), back.real
        x = self.around_cross(x, look_over, real)
        return x if self.around_ffn is None else self.around_ffn(x, self.feed_forward, real)


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: ModelConfig, numbering: Numbering) -> None:
        super().__init__()
        geometry = _geometry(config, config.encoder_layers, config.causal_encoder)
        self.position = build_position(POSITIONS, config.position, geometry, config.position_options)
        self.numbering = numbering
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, i) for i in range(config.encoder_layers))
        self.final_norm = _final_norm(config)
        self.padding_mask = config.padding_mask

    def forward(self, x: Tensor, real: Tensor) -> Memory:
        """Embeddings (B, S, d_model), and which are of real tokens (B, S) -> memory."""
        lengths, width = real.sum(dim=1), x.shape[1]
        self.position.check_length(self.numbering.reach(width))
        positions, target_positions = self.numbering.draw(lengths, width)
        points = self.position.point_table(positions, lengths, x.dtype)
        position = BoundPosition(self.position, points, points, self.position.pair_table(positions, positions, x.dtype))
        mask = real[:, None, None, :] if self.padding_mask else None
        x = self.dropout(embed(self.position, x, positions))
        for layer in self.layers:
            x = layer(x, position, mask, real)
        return Memory(self.final_norm(x, real), real, positions, target_positions)


class Decoder(nn.Module):
    """A stack of decoder layers; the full pass and the cached step are one and the same code."""

    def __init__(self, config: ModelConfig, numbering: Numbering) -> None:
        super().__init__()
        geometry = _geometry(config, config.decoder_layers, config.causal_mask)
        self.position = build_position(POSITIONS, config.position, geometry, config.position_options)
        between = _geometry(config, config.decoder_layers, causal=False)
        self.cross_position = build_position(
            CROSS_POSITIONS, config.cross_position, between, config.cross_position_options
        )
        self.numbering = numbering
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.decoder_layers))
        self.final_norm = _final_norm(config)
        self.causal_mask, self.padding_mask = config.causal_mask, config.padding_mask

    def read_source(self, memory: Memory) -> list[KeyValues]:
        """Keys and values of the source for every layer."""
        lengths = memory.mask.sum(dim=1)
        table = self.cross_position.point_table(memory.positions, lengths, memory.states.dtype)
        position = BoundPosition(self.cross_position, key=table)
        return [layer.read_source(memory.states, position) for layer in self.layers]  # type: ignore[operator]

    def forward(self, x: Tensor, state: DecoderState, cached: bool, real: Tensor | None = None) -> Tensor:
        """Embeddings (B, n, d_model) of the tokens behind the first ``state.length`` -> states (B, n, d_model).

        With ``cached`` the new keys and values are kept in ``state``; without, this is the full pass from position 0.
        ``real`` (B, n) tells real tokens from padding; None stands for real ones only.
        """
        start, n = state.length, x.shape[1]
        end = start + n
        back, across, queries = self._positions(state, start, end, x, real)
        mask = self._mask(start, end, cached, real, x.device)
        looking_back = Back(back, mask, self.causal_mask and not cached, start, real)
        looking_over = Over(across, state.memory.mask[:, None, None, :] if self.padding_mask else None)
        x = self.dropout(embed(self.position, x, queries))
        for i, layer in enumerate(self.layers):
            x = layer(x, looking_back, looking_over, state.source[i], state.target[i] if cached else None)
        state.length = end if cached else 0
        return self.final_norm(x, real)

    def _positions(
        self, state: DecoderState, start: int, end: int, x: Tensor, real: Tensor | None
    ) -> tuple[BoundPosition, BoundPosition, Tensor]:
        """Position of self- and of cross-attention for the tokens from ``start`` to ``end``, and their places."""
        memory, own, cross = state.memory, self.position, self.cross_position
        own.check_length(self.numbering.reach(end))
        keys = target_positions(memory, end, x.device)
        queries = keys[..., start:]
        lengths = torch.full((1,), end, device=x.device) if real is None else real.sum(dim=1)
        points = own.point_table(queries, lengths, x.dtype)
        moved = own.point_table(keys, lengths, x.dtype) if own.keys_move else points
        back = BoundPosition(own, points, moved, own.pair_table(queries, keys, x.dtype))
        across = cross.point_table(queries, memory.mask.sum(dim=1), x.dtype)
        over = BoundPosition(cross, across, pair=cross.pair_table(queries, memory.positions, x.dtype))
        return back, over, queries

    def _mask(self, start: int, end: int, cached: bool, real: Tensor | None, device: torch.device) -> Tensor | None:
        """What self-attention may see, but for the causal mask of a full pass, which has a fast path of its own.

        Padding stands on the right, where a causal mask hides it from every real token.
        """
        if not self.causal_mask:
            return real[:, None, None, :] if self.padding_mask and real is not None and not cached else None
        if not cached or end - start == 1:
            return None
        places = torch.arange(end, device=device)
        return places <= places[start:, None]  # (n, end)


def target_positions(memory: Memory, n: int, device: torch.device) -> Tensor:
    """Positions of the first ``n`` target tokens, (n,) or (B, n); past the last one drawn, that one repeats."""
    drawn = memory.target_positions
    if drawn is None:
        return torch.arange(n, device=device)
    return drawn[:, torch.arange(n, device=device).clamp(max=drawn.shape[1] - 1)]


@ARCHITECTURES.register("transformer")
class Transformer(Seq2Seq):
    """Encoder-decoder Transformer, every choice taken from the config (Vaswani et al. 2017).

    Args:
        config: see :class:`ModelConfig`.
        source_size, target_size: vocabulary sizes; one vocabulary where source and target embeddings are tied.
    """

    def __init__(self, config: ModelConfig, source_size: int, target_size: int) -> None:
        super().__init__()
        tying = TYING_KINDS[config.tying]
        # The target embedding comes first: it names the matrix that tied parts share, so that initial values agree.
        self.target_embedding = TokenEmbedding(target_size, config.d_model)
        self.source_embedding = (
            self.target_embedding if tying.source_is_target else TokenEmbedding(source_size, config.d_model)
        )
        numbering = build_numbering(config.randomised_positions, config.shared_draw)
        self.encoder = Encoder(config, numbering)
        self.decoder = Decoder(config, numbering)
        tied = self.target_embedding if tying.output_is_target else None
        self.output = OutputProjection(target_size, config.d_model, config.logit_scale, tied)
        self.numbering = numbering
        self._cache_shape = (config.n_heads, config.head_width)

    def check_lengths(self, source: int, target: int) -> None:
        longest = self.numbering.reach(max(source, target))
        for position in (self.encoder.position, self.decoder.position, self.decoder.cross_position):
            position.check_length(longest)

    def encoder_blocks(self) -> list[nn.Module]:
        """The encoder's layers: each takes the residual stream (B, S, d_model) first, and returns it."""
        return list(self.encoder.layers)

    def decoder_blocks(self) -> list[nn.Module]:
        """The decoder's layers, likewise."""
        return list(self.decoder.layers)

    def attentions(self) -> dict[str, list[nn.Module]]:
        """The modules that attend, each with an ``observer``, from the first layer on: encoder, decoder, cross."""
        encoder = [layer.self_attention for layer in self.encoder.layers if isinstance(layer, EncoderLayer)]
        decoder = [layer for layer in self.decoder.layers if isinstance(layer, DecoderLayer)]
        return {
            "encoder": list(encoder),
            "decoder": [layer.self_attention for layer in decoder],
            "cross": [layer.cross_attention for layer in decoder],
        }

    def encode(self, source: Tensor) -> Memory:
        return self.encoder(self.source_embedding(source), self.token_mask(source))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        state = DecoderState(memory, self.decoder.read_source(memory), [])
        real = self.token_mask(target)
        return self.output(self.decoder(self.target_embedding(target), state, cached=False, real=real))

    def start(self, memory: Memory, capacity: int) -> DecoderState:
        source = self.decoder.read_source(memory)
        heads, width = self._cache_shape
        rows = memory.mask.shape[0]
        target = [KeyValues.allocate(rows, heads, capacity, width, like=kv.k) for kv in source]
        return DecoderState(memory, source, target)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        return self.output(self.decoder(self.target_embedding(tokens), state, cached=True))
