"""Multi-head attention through PyTorch's fused kernel, with boolean masks and optional additive score terms.

Masks follow ``scaled_dot_product_attention``: boolean, True = may attend. A query that may attend to nothing gets
zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate.config import QKV_BIASES, ModelConfig
from transformer_ablate.core.linear import AttentionProjection, Linear
from transformer_ablate.core.normalization import RMSNorm
from transformer_ablate.core.positions.bound import BoundPosition
from transformer_ablate.core.short_attention import attend_short, is_short

# Which of query, key and value have a bias. That of keys adds one number to all scores of a query: softmax drops it.
BIASED = dict(zip(QKV_BIASES, ((True, True, True), (True, False, True), (False, False, False)), strict=True))


# Is shown the scores of one call, (B, H, L, S) in float32 or wider, and which pairs are allowed, boolean of that shape.
# The weights are their `masked_softmax`. A key behind the others is that of `ExtraKeyValue`.
Observer = Callable[[Tensor, Tensor], None]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    term: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """``softmax(scale q k^T + term) v`` over the allowed keys, by the fused kernel (Vaswani et al. 2017, eq. 1).

    Args:
        q: (B, H, L, d_head).
        k, v: (B, H, S, d_head).
        mask: boolean, broadcastable to (B, H, L, S); True = may attend. None allows all.
        term: additive score term, broadcastable to (B, H, L, S), not scaled.
        is_causal: query i attends to keys <= i; needs L == S. Never for a cached step, whose single query would see key
            0 only (the kernel aligns the triangle to the top left).
        scale: 1 / sqrt(d_head) by default.
        dropout: rate on the weights.

    Returns:
        (B, H, L, d_head).
    """
    short = is_short(q, k) and not dropout
    if term is None and mask is None and not (short and is_causal):
        if short:
            return attend_short(q, k, v, None, scale)
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, dropout_p=dropout)
    if is_causal:
        mask = with_triangle(mask, q.shape[-2], q.device)
    bias = mask
    if term is not None:
        term = term.to(q.dtype)
        bias = term if mask is None else term.masked_fill(~mask, -math.inf)
    assert bias is not None
    if short:
        return attend_short(q, k, v, bias, scale)
    if bias.dim() == 3:
        bias = bias[None]  # the fused kernels know masks of two and of four dimensions
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, dropout_p=dropout)


def with_triangle(mask: Tensor | None, length: int, device: torch.device) -> Tensor:
    """``mask``, broadcastable to (B, H, L, L), with all keys behind the query taken out as well."""
    triangle = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    return triangle if mask is None else mask & triangle


def attention_scores(q: Tensor, k: Tensor, term: Tensor | None = None, scale: float | None = None) -> Tensor:
    """``scale q k^T + term``, (B, H, L, S), in float32 or wider: what the softmax is taken of."""
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores if term is None else scores + term


def allowed_pairs(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """Which key each query may attend to, boolean with the shape of ``scores`` (B, H, L, S)."""
    allowed = torch.ones(scores.shape, dtype=torch.bool, device=scores.device)
    if mask is not None:
        allowed = allowed & mask
    return allowed.tril() if is_causal else allowed


def attention_weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    term: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The softmax of :func:`attend`, (B, H, L, S), in float32 or wider: what the fused kernel never shows."""
    scores = attention_scores(q, k, term, scale)
    return masked_softmax(scores, allowed_pairs(scores, mask, is_causal))


def masked_softmax(scores: Tensor, allowed: Tensor) -> Tensor:
    """Softmax of (..., S) over the allowed keys, zeros elsewhere, also where none is; ``allowed`` broadcasts."""
    # A finite minimum, so that a query that may attend to nothing has finite gradients too.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~allowed, lowest).softmax(dim=-1).masked_fill(~allowed, 0.0)


def attend_naive(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    term: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The same as :func:`attend`, written out: the oracle that tests hold the fused path against."""
    return attention_weights(q, k, mask, term, is_causal, scale).to(v.dtype) @ v


@dataclass
class KeyValues:
    """Keys and values of the tokens seen so far, (B, H, capacity, d_head) each, written in place.

    While gradients are computed, each step makes new ones, that hold no more than the tokens so far: what is written
    over can not be differentiated.
    """

    k: Tensor
    v: Tensor

    @classmethod
    def allocate(cls, rows: int, n_heads: int, capacity: int, d_head: int, like: Tensor) -> KeyValues:
        """An empty cache with the device and dtype of ``like``."""
        return cls(*(like.new_zeros(rows, n_heads, capacity, d_head) for _ in range(2)))

    def append(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes (B, H, n, d_head) behind the first ``start`` tokens; returns all start + n of them."""
        if torch.is_grad_enabled():
            self.k, self.v = (torch.cat((old[:, :, :start], new), -2) for old, new in ((self.k, k), (self.v, v)))
            return self.k, self.v
        end = start + k.shape[-2]
        self.k[:, :, start:end], self.v[:, :, start:end] = k, v
        return self.k[:, :, :end], self.v[:, :, :end]

    def select(self, rows: Tensor) -> KeyValues:
        """The cache of some of the sentences: ``rows`` are indices (n,), which may repeat, or a boolean mask (B,)."""
        if rows.dtype == torch.bool:
            rows = rows.nonzero().squeeze(1)
        return KeyValues(self.k.index_select(0, rows), self.v.index_select(0, rows))  # twice as fast as indexing


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, L, H d_head) -> (B, H, L, d_head)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, L, d_head) -> (B, L, H d_head)."""
    return x.transpose(1, 2).flatten(-2)


class ExtraKeyValue(nn.Module):
    """A learned key and value a head behind all others, N(0, 1/d_head) at first, that every query may attend to.

    It lets a head attend to nothing. The same as ``add_bias_kv`` of torch's MultiheadAttention; no position reaches it.
    """

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.empty(n_heads, 1, d_head))
        self.value = nn.Parameter(torch.empty(n_heads, 1, d_head))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws both from ``generator``."""
        for vector in (self.key, self.value):
            nn.init.normal_(vector, std=vector.shape[-1] ** -0.5, generator=generator)

    def forward(
        self, k: Tensor, v: Tensor, mask: Tensor | None, term: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Keys, values (B, H, S, d_head), mask and score term, each with one key more: always allowed, term 0."""
        k = torch.cat((k, self.key.to(k.dtype).expand(len(k), -1, -1, -1)), dim=-2)
        v = torch.cat((v, self.value.to(v.dtype).expand(len(v), -1, -1, -1)), dim=-2)
        return (
            k,
            v,
            None if mask is None else F.pad(mask, (0, 1), value=True),
            None if term is None else F.pad(term, (0, 1)),
        )


class MultiHeadAttention(nn.Module):
    """What self- and cross-attention share (Vaswani et al. 2017, section 3.2.2).

    Args:
        config: widths, scale, and which parts there are.
        layer: index in its stack, handed to the positional encoding.

    Attributes:
        observer: is shown the scores of every call; with None, as at first, they are not computed.
    """

    observer: Observer | None = None

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.n_heads, self.layer = config.n_heads, layer
        self.width = config.n_heads * config.head_width
        self.scale = config.attention_scale or None
        self.dropout = config.attention_dropout
        self.q_norm, self.k_norm = (RMSNorm(config.head_width) if config.qk_norm else nn.Identity() for _ in range(2))
        self.extra = ExtraKeyValue(config.n_heads, config.head_width) if config.extra_key_value else None
        self.out = Linear(self.width, config.d_model) if config.output_projection else nn.Identity()

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        position: BoundPosition,
        mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Queries (B, H, L, d_head) over keys and values that have passed door (b) -> (B, L, d_model)."""
        term = position.score_term(q, k, self.layer)
        dropout = self.dropout if self.training else 0.0
        keys = k.shape[-2]
        if self.extra is not None:
            if is_causal:
                mask, is_causal = with_triangle(mask, q.shape[-2], q.device), False
            k, v, mask, term = self.extra(k, v, mask, term)
        if self.observer is not None:
            scores = attention_scores(q, k, term, self.scale)
            self.observer(scores, allowed_pairs(scores, mask, is_causal))
        if position.encoding.adds_values:
            weights = F.dropout(attention_weights(q, k, mask, term, is_causal, self.scale), dropout).to(v.dtype)
            heads = weights @ v
            added = position.value_term(weights[..., :keys], self.layer)
            heads = heads if added is None else heads + added
        else:
            heads = attend(q, k, v, mask, term, is_causal, self.scale, dropout)
        return self.out(merge_heads(heads))

    def scale_initial_values(self, gain: float) -> None:
        """Value and output matrices start smaller by ``gain``."""
        if isinstance(self.out, Linear):
            self.out.initial_gain = gain
        self._projection_of_values().initial_gains[-1] = gain

    def _projection_of_values(self) -> AttentionProjection:
        """The projection whose last matrix makes the values."""
        raise NotImplementedError


class SelfAttention(MultiHeadAttention):
    """Multi-head self-attention with one fused query-key-value projection (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.qkv = AttentionProjection(config.d_model, self.width, BIASED[config.qkv_bias])

    def forward(
        self,
        x: Tensor,
        position: BoundPosition,
        mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValues | None = None,
        start: int = 0,
    ) -> Tensor:
        """(B, L, d_model) -> (B, L, d_model).

        Args:
            x: queries' states; keys and values come from them and, with a cache, from ``start`` earlier tokens.
            position: the stack's encoding at these places.
            mask: boolean, broadcastable to (B, H, L, S).
            is_causal: full pass of a stack that looks back only.
            cache: where earlier keys and values are; this call adds its own. Keys are transformed already, unless the
                encoding's ``keys_move``.
            start: number of tokens in the cache.
        """
        q, k, v = (split_heads(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        q = position.transform_query(self.q_norm(q), self.layer)
        k = self.k_norm(k)
        if cache is not None and position.encoding.keys_move:
            k, v = cache.append(start, k, v)
        k = position.transform_key(k, self.layer)
        if cache is not None and not position.encoding.keys_move:
            k, v = cache.append(start, k, v)
        return self._attend(q, k, v, position, mask, is_causal)

    def _projection_of_values(self) -> AttentionProjection:
        return self.qkv


class CrossAttention(MultiHeadAttention):
    """Multi-head attention from target to source states, keys and values projected together."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__(config, layer)
        query, *key_value = BIASED[config.qkv_bias]
        self.q = AttentionProjection(config.d_model, self.width, (query,))
        self.kv = AttentionProjection(config.d_model, self.width, tuple(key_value))

    def keys_values(self, memory: Tensor, position: BoundPosition) -> KeyValues:
        """Keys and values of the source, computed once a sentence: (B, S, d_model) -> (B, H, S, d_head) each."""
        k, v = (split_heads(part, self.n_heads) for part in self.kv(memory).chunk(2, dim=-1))
        return KeyValues(position.transform_key(self.k_norm(k), self.layer), v)

    def forward(self, x: Tensor, source: KeyValues, position: BoundPosition, mask: Tensor | None) -> Tensor:
        """States (B, L, d_model) attend to the source's keys and values; ``mask`` (B, 1, 1, S) -> (B, L, d_model)."""
        q = self.q_norm(split_heads(self.q(x), self.n_heads))
        q = position.transform_query(q, self.layer)
        return self._attend(q, source.k, source.v, position, mask)

    def _projection_of_values(self) -> AttentionProjection:
        return self.kv
