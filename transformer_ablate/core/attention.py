"""Multi-head attention through PyTorch's fused kernel, with boolean masks and optional additive score terms.

Masks follow ``scaled_dot_product_attention``: boolean, True = may attend. A query that may attend to nothing gets
zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate.core.linear import AttentionProjection, Linear
from transformer_ablate.core.positions import PositionalEncoding


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, term: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """``softmax(q k^T / sqrt(d_head) + term) v`` over the allowed keys, by the fused kernel (Vaswani et al. 2017).

    Args:
        q: (B, H, L, d_head).
        k, v: (B, H, S, d_head).
        mask: boolean, broadcastable to (B, H, L, S); True = may attend. None allows all.
        term: additive score term, broadcastable to (B, H, L, S), not scaled.
        is_causal: query i attends to keys <= i; needs L == S. Never for a cached step, whose single query would see key
            0 only (the kernel aligns the triangle to the top left).

    Returns:
        (B, H, L, d_head).
    """
    if term is None and mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    if is_causal:
        triangle = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        mask = triangle if mask is None else mask & triangle
    if term is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    term = term.to(q.dtype)
    bias = term if mask is None else term.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def attend_naive(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, term: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    """The same as :func:`attend`, written out: the oracle that tests hold the fused path against."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, L, S)
    if term is not None:
        scores = scores + term
    allowed = torch.ones(scores.shape, dtype=torch.bool, device=q.device)
    if mask is not None:
        allowed = allowed & mask
    if is_causal:
        allowed = allowed.tril()
    weights = scores.masked_fill(~allowed, -math.inf).softmax(dim=-1)
    return weights.nan_to_num(0.0).masked_fill(~allowed, 0.0) @ v


@dataclass
class KeyValues:
    """Keys and values of the tokens seen so far, (B, H, capacity, d_head) each, written in place."""

    k: Tensor
    v: Tensor

    @classmethod
    def allocate(cls, rows: int, n_heads: int, capacity: int, d_head: int, like: Tensor) -> KeyValues:
        """An empty cache with the device and dtype of ``like``."""
        return cls(*(like.new_zeros(rows, n_heads, capacity, d_head) for _ in range(2)))

    def append(self, start: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Writes (B, H, n, d_head) behind the first ``start`` tokens; returns all start + n of them."""
        end = start + k.shape[-2]
        self.k[:, :, start:end], self.v[:, :, start:end] = k, v
        return self.k[:, :, :end], self.v[:, :, :end]

    def select(self, rows: Tensor) -> KeyValues:
        """The cache of some of the sentences."""
        return KeyValues(self.k[rows], self.v[rows])


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, L, H d_head) -> (B, H, L, d_head)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, L, d_head) -> (B, L, H d_head)."""
    return x.transpose(1, 2).flatten(-2)


@dataclass(frozen=True)
class Places:
    """Position tables of one forward pass, shared by the layers of a stack."""

    query: object
    key: object
    pair: object


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused query-key-value projection (Vaswani et al. 2017, section 3.2.2).

    Args:
        d_model: width; divisible by ``n_heads``.
        n_heads: heads.
        layer: index in its stack, handed to the positional encoding.
    """

    def __init__(self, d_model: int, n_heads: int, layer: int) -> None:
        super().__init__()
        self.n_heads, self.layer = n_heads, layer
        self.qkv = AttentionProjection(d_model, 3)
        self.out = Linear(d_model, d_model)

    def forward(
        self,
        x: Tensor,
        position: PositionalEncoding,
        places: Places,
        mask: Tensor | None = None,
        is_causal: bool = False,
        cache: KeyValues | None = None,
        start: int = 0,
    ) -> Tensor:
        """(B, L, d_model) -> (B, L, d_model).

        Args:
            x: queries' states; keys and values come from them and, with a cache, from ``start`` earlier tokens.
            position, places: the stack's encoding and its tables for these positions.
            mask: boolean, broadcastable to (B, H, L, S).
            is_causal: full pass of a decoder.
            cache: where earlier keys and values are, already transformed; this call adds its own.
            start: number of tokens in the cache.
        """
        q, k, v = (split_heads(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        q = position.transform_query(q, places.query, self.layer)
        k = position.transform_key(k, places.key, self.layer)
        if cache is not None:
            k, v = cache.append(start, k, v)
        term = position.score_term(q, k, places.pair, self.layer)
        return self.out(merge_heads(attend(q, k, v, mask, term, is_causal)))


class CrossAttention(nn.Module):
    """Multi-head attention from target to source states, keys and values projected together.

    Args:
        d_model, n_heads, layer: as in :class:`SelfAttention`.
    """

    def __init__(self, d_model: int, n_heads: int, layer: int) -> None:
        super().__init__()
        self.n_heads, self.layer = n_heads, layer
        self.q = AttentionProjection(d_model, 1)
        self.kv = AttentionProjection(d_model, 2)
        self.out = Linear(d_model, d_model)

    def keys_values(self, memory: Tensor, position: PositionalEncoding, key_table: object) -> KeyValues:
        """Keys and values of the source, computed once a sentence: (B, S, d_model) -> (B, H, S, d_head) each."""
        k, v = (split_heads(part, self.n_heads) for part in self.kv(memory).chunk(2, dim=-1))
        return KeyValues(position.transform_key(k, key_table, self.layer), v)

    def forward(
        self, x: Tensor, source: KeyValues, position: PositionalEncoding, places: Places, mask: Tensor
    ) -> Tensor:
        """States (B, L, d_model) attend to the source's keys and values; ``mask`` (B, 1, 1, S) -> (B, L, d_model)."""
        q = position.transform_query(split_heads(self.q(x), self.n_heads), places.query, self.layer)
        term = position.score_term(q, source.k, places.pair, self.layer)
        return self.out(merge_heads(attend(q, source.k, source.v, mask, term)))
