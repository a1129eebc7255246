"""The encoder-decoder Transformer that every variant shares (Vaswani et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core.attention import CrossAttention, KeyValues, Places, SelfAttention
from transformer_ablate.core.embedding import TYING_KINDS, OutputProjection, TokenEmbedding
from transformer_ablate.core.normalization import PLACEMENTS, Residual
from transformer_ablate.core.positions import Geometry, PositionalEncoding, build_position
from transformer_ablate.core.seq2seq import Memory, Seq2Seq
from transformer_ablate.registry import ARCHITECTURES, CROSS_POSITIONS, FEED_FORWARDS, NORMS, POSITIONS


@dataclass
class DecoderState:
    """What a cached step needs of the steps before it.

    Attributes:
        mask: (B, S) boolean, True for real source tokens.
        source_positions: (S,).
        source: keys and values of the source, one entry a layer.
        target: keys and values of the target so far, one entry a layer.
        length: number of target tokens so far.
    """

    mask: Tensor
    source_positions: Tensor
    source: list[KeyValues]
    target: list[KeyValues]
    length: int = 0

    def select(self, rows: Tensor) -> DecoderState:
        """The state of some of the sentences: ``rows`` are indices (n,) or a boolean mask (B,)."""
        source, target = ([kv.select(rows) for kv in layers] for layers in (self.source, self.target))
        return DecoderState(self.mask[rows], self.source_positions, source, target, self.length)


def _residual(config: ModelConfig) -> Residual:
    return PLACEMENTS[config.norm_placement](NORMS[config.norm](config.d_model), config.dropout)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config.d_model, config.n_heads, layer)
        self.feed_forward = FEED_FORWARDS[config.ffn](config.d_model, config.d_ff)
        self.around_self, self.around_ffn = _residual(config), _residual(config)

    def forward(self, x: Tensor, position: PositionalEncoding, places: Places, mask: Tensor) -> Tensor:
        """(B, S, d_model) -> (B, S, d_model); ``mask`` (B, 1, 1, S)."""
        x = self.around_self(x, partial(self.self_attention, position=position, places=places, mask=mask))
        return self.around_ffn(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, and feed-forward, each in a residual connection."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config.d_model, config.n_heads, layer)
        self.cross_attention = CrossAttention(config.d_model, config.n_heads, layer)
        self.feed_forward = FEED_FORWARDS[config.ffn](config.d_model, config.d_ff)
        self.around_self, self.around_cross, self.around_ffn = (_residual(config) for _ in range(3))


class Encoder(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        geometry = Geometry(config.d_model, config.n_heads, config.encoder_layers, causal=False)
        self.position = build_position(POSITIONS, config.position, geometry, config.position_options)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(EncoderLayer(config, i) for i in range(config.encoder_layers))
        final = PLACEMENTS[config.norm_placement].needs_final_norm
        self.final_norm = NORMS[config.norm](config.d_model) if final else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor) -> Memory:
        """Embeddings (B, S, d_model) and their mask (B, S) -> memory."""
        self.position.check_length(x.shape[1])
        positions = torch.arange(x.shape[1], device=x.device)
        points = self.position.point_table(positions, x.dtype)
        places = Places(points, points, self.position.pair_table(positions, positions, x.dtype))
        x = self.dropout(self.position.embed(x, positions))
        for layer in self.layers:
            x = layer(x, self.position, places, mask[:, None, None, :])
        return Memory(self.final_norm(x), mask, positions)


class Decoder(nn.Module):
    """A stack of decoder layers; the full pass and the cached step are one and the same code."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        geometry = Geometry(config.d_model, config.n_heads, config.decoder_layers, causal=True)
        self.position = build_position(POSITIONS, config.position, geometry, config.position_options)
        between = Geometry(config.d_model, config.n_heads, config.decoder_layers, causal=False)
        self.cross_position = build_position(CROSS_POSITIONS, config.cross_position, between, {})
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.decoder_layers))
        final = PLACEMENTS[config.norm_placement].needs_final_norm
        self.final_norm = NORMS[config.norm](config.d_model) if final else nn.Identity()

    def read_source(self, memory: Memory) -> list[KeyValues]:
        """Keys and values of the source for every layer."""
        table = self.cross_position.point_table(memory.positions, memory.states.dtype)
        attentions = [layer.cross_attention for layer in self.layers if isinstance(layer, DecoderLayer)]
        return [attention.keys_values(memory.states, self.cross_position, table) for attention in attentions]

    def forward(self, x: Tensor, state: DecoderState, cached: bool) -> Tensor:
        """Embeddings (B, n, d_model) of the tokens behind the first ``state.length`` -> states (B, n, d_model).

        With ``cached`` the new keys and values are kept in ``state``; without, this is the full pass from position 0.
        """
        start, n = state.length, x.shape[1]
        self.position.check_length(start + n)
        keys = torch.arange(start + n, device=x.device)
        queries = keys[start:]
        points = self.position.point_table(queries, x.dtype)
        places = Places(points, points, self.position.pair_table(queries, keys, x.dtype))
        cross_points = self.cross_position.point_table(queries, x.dtype)
        cross_pair = self.cross_position.pair_table(queries, state.source_positions, x.dtype)
        cross_places = Places(cross_points, None, cross_pair)
        # Padding stands on the right, where the causal mask hides it from every real token: no further mask is needed.
        behind = None if not cached or n == 1 else keys[None, :] <= queries[:, None]  # (n, start + n)
        source_mask = state.mask[:, None, None, :]
        x = self.dropout(self.position.embed(x, queries))
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            look_back = partial(
                layer.self_attention,
                position=self.position,
                places=places,
                mask=behind,
                is_causal=not cached,
                cache=state.target[i] if cached else None,
                start=start,
            )
            look_over = partial(
                layer.cross_attention,
                source=state.source[i],
                position=self.cross_position,
                places=cross_places,
                mask=source_mask,
            )
            x = layer.around_self(x, look_back)
            x = layer.around_cross(x, look_over)
            x = layer.around_ffn(x, layer.feed_forward)
        state.length = start + n if cached else 0
        return self.final_norm(x)


@ARCHITECTURES.register("transformer")
class Transformer(Seq2Seq):
    """Encoder-decoder Transformer (Vaswani et al. 2017), every choice taken from the config.

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
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        tied = self.target_embedding if tying.output_is_target else None
        self.output = OutputProjection(target_size, config.d_model, config.logit_scale, tied)
        self._cache_shape = (config.n_heads, config.d_head)

    def encode(self, source: Tensor) -> Memory:
        return self.encoder(self.source_embedding(source), self.token_mask(source))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        state = DecoderState(memory.mask, memory.positions, self.decoder.read_source(memory), [])
        return self.output(self.decoder(self.target_embedding(target), state, cached=False))

    def start(self, memory: Memory, capacity: int) -> DecoderState:
        source = self.decoder.read_source(memory)
        heads, width = self._cache_shape
        rows = memory.mask.shape[0]
        target = [KeyValues.allocate(rows, heads, capacity, width, like=kv.k) for kv in source]
        return DecoderState(memory.mask, memory.positions, source, target)

    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        return self.output(self.decoder(self.target_embedding(tokens), state, cached=True))
