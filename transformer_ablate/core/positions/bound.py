"""An encoding at the places of one forward pass: what travels through the layers of a stack."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from transformer_ablate.core.positions.base import PositionalEncoding, wide


def as_given(made: Tensor, given: Tensor) -> Tensor:
    """What an encoding made of ``given``, in its type: a table in float64 must not widen the whole model."""
    return made if made.dtype == given.dtype else made.to(given.dtype)


@dataclass(frozen=True)
class BoundPosition:
    """An encoding with its tables, made once a pass and shared by the layers; the one place where its doors are called.

    Attributes:
        encoding: the stack's, or that of all cross-attentions.
        query, key: tables for the tokens of this pass; ``key`` for all keys where the encoding's ``keys_move``.
        pair: table for this pass's queries and all keys.
    """

    encoding: PositionalEncoding
    query: object = None
    key: object = None
    pair: object = None

    def transform_query(self, q: Tensor, layer: int) -> Tensor:
        """Door (b) for queries (B, H, L, d_head), in their type."""
        return as_given(self.encoding.transform_query(q, self.query, layer), q)

    def transform_key(self, k: Tensor, layer: int) -> Tensor:
        """Door (b) for keys (B, H, S, d_head), in their type."""
        return as_given(self.encoding.transform_key(k, self.key, layer), k)

    def score_term(self, q: Tensor, k: Tensor, layer: int) -> Tensor | None:
        """Door (c), broadcastable to (B, H, L, S): no wider than float32, unless the queries are."""
        term = self.encoding.score_term(q, k, self.pair, layer)
        return term if term is None or term.dtype == q.dtype else term.to(wide(q.dtype))

    def value_term(self, weights: Tensor, layer: int) -> Tensor | None:
        """Door (c) for values: (B, H, L, S) -> (B, H, L, d_head), in the weights' type."""
        added = self.encoding.value_term(weights, self.pair, layer)
        return added if added is None else as_given(added, weights)


def embed(encoding: PositionalEncoding, x: Tensor, positions: Tensor) -> Tensor:
    """Door (a): embeddings (B, L, d_model) with their positions, in their type."""
    return as_given(encoding.embed(x, positions), x)
