"""The three doors through which a positional encoding may enter a Transformer.

A positional encoding may (a) add to the embeddings, (b) transform queries and keys, (c) add a term to the attention
scores, or to the values that are summed under them. :class:`PositionalEncoding` has one hook for each, a no-op by
default. Positions are always passed in and never counted inside, so that a cached decoding step, which sees one query
at position t, computes what the full pass does.

Tables that depend on positions alone are built once in a forward pass (``point_table``, ``pair_table``) and handed to
every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import Registry

# The field of the recipe that encodings get their options from.
OPTIONS = "model.position_options"


@dataclass(frozen=True)
class Geometry:
    """What a positional encoding may know of the attention that it serves.

    Attributes:
        d_model: width of the residual stream.
        n_heads: number of heads.
        layers: number of layers that share the object; hooks are told which of them calls.
        causal: whether keys never lie after the query (decoder self-attention).
        d_head: width of one head; d_model / n_heads by default.
        scale: factor on ``q k^T``; 1 / sqrt(d_head) by default.
    """

    d_model: int
    n_heads: int
    layers: int
    causal: bool
    d_head: int = 0
    scale: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "d_head", self.d_head or self.d_model // self.n_heads)
        object.__setattr__(self, "scale", self.scale or self.d_head**-0.5)


class PositionalEncoding(nn.Module):
    """No position anywhere ("NoPE"); the base class of all encodings.

    One object serves all layers of one stack, or all cross-attentions of the decoder. Shapes: B sentences, H heads,
    L queries, S keys. Positions are (L,), the same for all sentences, or (B, L); what is made of them has the leading
    dimensions of the positions, so hooks index and broadcast from the right.

    Attributes:
        keys_move: door (b) gives a key another value when the sequence grows. Its keys are then cached as they were
            before door (b), and pass it anew at each step.
        adds_values: the encoding uses :meth:`value_term`, so that attention must hand it the weights.
        evaluated_otherwise: evaluation has something that training has not, until :meth:`adapt`.
    """

    version: ClassVar[int] = 1
    keys_move: bool = False
    adds_values: bool = False
    evaluated_otherwise: bool = False

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry

    def adapt(self) -> None:
        """Trains from now on with what is otherwise there at evaluation alone; repeating it changes nothing."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Door (a): embeddings ``x`` (B, L, d_model) at ``positions`` (L,) or (B, L) -> (B, L, d_model)."""
        return x

    def point_table(self, positions: Tensor, lengths: Tensor, dtype: torch.dtype) -> Any:
        """What door (b) needs for vectors at ``positions``.

        Args:
            positions: (L,) or (B, L).
            lengths: (B,) or (1,) number of tokens of each sentence, those to come not counted.
            dtype: of the queries.
        """
        return None

    def transform_query(self, q: Tensor, table: Any, layer: int) -> Tensor:
        """Door (b) for queries (B, H, L, d_head); ``table`` is :meth:`point_table` of their positions."""
        return q

    def transform_key(self, k: Tensor, table: Any, layer: int) -> Tensor:
        """Door (b) for keys (B, H, S, d_head); ``table`` is :meth:`point_table` of their positions."""
        return k

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Any:
        """What door (c) needs for queries at (L,) or (B, L) and keys at (S,) or (B, S)."""
        return None

    def score_term(self, q: Tensor, k: Tensor, table: Any, layer: int) -> Tensor | None:
        """Door (c): added to the scaled ``q k^T``, broadcastable to (B, H, L, S); None for no term.

        ``q`` (B, H, L, d_head) and ``k`` (B, H, S, d_head) have passed door (b).
        """
        return None

    def value_term(self, weights: Tensor, table: Any, layer: int) -> Tensor | None:
        """Door (c) for values: added to ``weights v``, for weights (B, H, L, S) -> (B, H, L, d_head)."""
        return None

    def check_length(self, longest: int) -> None:
        """Refuses, by ConfigError, positions 0 … ``longest`` - 1 where it could not place them all.

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
    return torch.pow(base, -exponents)


def build_position(table: Registry, name: str, geometry: Geometry, options: Mapping[str, Any]) -> PositionalEncoding:
    """Looks up an encoding and constructs it with its options.

    Raises:
        ConfigError: for an unknown name, an option that the encoding does not have, or a value that it refuses.
    """
    encoding = table[name]
    table.check_options(name, options, given=("geometry",))
    try:
        built = encoding(geometry, **options)
    except ConfigError as error:  # an encoding does not know which attention it was chosen for
        field = error.field.replace(OPTIONS, f"{table.field}_options")
        raise ConfigError(field, error.value, error.allowed, error.fix) from None
    if not isinstance(built, PositionalEncoding):
        raise ConfigError(table.field, name, "a subclass of PositionalEncoding")
    return built
