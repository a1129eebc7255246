"""The three doors through which a positional encoding may enter a Transformer.

A positional encoding may (a) add to the embeddings, (b) transform queries and keys, (c) add a term to the attention
scores. :class:`PositionalEncoding` has one hook for each, a no-op by default. Positions are always passed in and never
counted inside, so that a cached decoding step, which sees one query at position t, computes what the full pass does.

Tables that depend on positions alone are built once in a forward pass (``point_table``, ``pair_table``) and handed to
every layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.registry import Registry


@dataclass(frozen=True)
class Geometry:
    """What a positional encoding may know of the attention that it serves.

    Attributes:
        d_model: width of the residual stream.
        n_heads: number of heads.
        layers: number of layers that share the object; hooks are told which of them calls.
        causal: whether keys never lie after the query (decoder self-attention).
    """

    d_model: int
    n_heads: int
    layers: int
    causal: bool

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.n_heads


class PositionalEncoding(nn.Module):
    """No position anywhere ("NoPE"); the base class of all encodings.

    One object serves all layers of one stack, or all cross-attentions of the decoder. Shapes: B sentences, H heads,
    L queries, S keys.
    """

    version: ClassVar[int] = 1

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Door (a): embeddings ``x`` (B, L, d_model) at ``positions`` (L,) -> (B, L, d_model)."""
        return x

    def point_table(self, positions: Tensor, dtype: torch.dtype) -> Any:
        """What door (b) needs for vectors at ``positions`` (L,); ``dtype`` is that of the queries."""
        return None

    def transform_query(self, q: Tensor, table: Any, layer: int) -> Tensor:
        """Door (b) for queries (B, H, L, d_head); ``table`` is :meth:`point_table` of their positions."""
        return q

    def transform_key(self, k: Tensor, table: Any, layer: int) -> Tensor:
        """Door (b) for keys (B, H, S, d_head); ``table`` is :meth:`point_table` of their positions."""
        return k

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Any:
        """What door (c) needs for queries at (L,) and keys at (S,)."""
        return None

    def score_term(self, q: Tensor, k: Tensor, table: Any, layer: int) -> Tensor | None:
        """Door (c): added to ``q k^T / sqrt(d_head)``, broadcastable to (B, H, L, S); None for no term.

        ``q`` (B, H, L, d_head) and ``k`` (B, H, S, d_head) have passed door (b).
        """
        return None

    def check_length(self, longest: int) -> None:
        """Refuses, by ConfigError, a sequence of ``longest`` tokens that the encoding could not place.

        Stacks ask before each pass, by the shape alone: to look at the positions themselves would make a GPU wait.
        """

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the initial values of the encoding's own parameters, if it has any."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of positions and angles: float64 under float64, else float32 whatever the autocast."""
    return torch.promote_types(dtype, torch.float32)


def frequencies(width: int, base: float, device: torch.device) -> Tensor:
    """``base^(-2i/width)`` for i = 0 … ceil(width/2) - 1, in float64, on ``device``."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64, device=device) / width
    return torch.pow(torch.tensor(base, dtype=torch.float64, device=device), -exponents)


def build_position(table: Registry, name: str, geometry: Geometry, options: Mapping[str, Any]) -> PositionalEncoding:
    """Looks up an encoding and constructs it with its options.

    Raises:
        ConfigError: for an unknown name, an option that the encoding does not have, or a value that it refuses.
    """
    encoding = table[name]
    known = [p for p in inspect.signature(encoding.__init__).parameters if p not in ("self", "geometry")]
    for option in options:
        if option not in known:
            raise unknown_name(f"{table.field}_options of {name!r}", option, known or ["(it has none)"])
    built = encoding(geometry, **options)
    if not isinstance(built, PositionalEncoding):
        raise ConfigError(table.field, name, "a subclass of PositionalEncoding")
    return built
