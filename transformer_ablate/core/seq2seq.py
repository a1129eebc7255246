"""What every architecture can do: encode a source, score a target, decode step by step with a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate.tokens import PAD


@dataclass(frozen=True)
class Memory:
    """An encoded source.

    Attributes:
        states: (B, S, d_model).
        mask: (B, S) boolean, True for real tokens.
        positions: (S,) or (B, S) positions of the tokens.
        target_positions: (B, K) positions that target tokens will have; None for 0, 1, 2, …
    """

    states: Tensor
    mask: Tensor
    positions: Tensor
    target_positions: Tensor | None = None

    def select(self, rows: Tensor) -> Memory:
        """The memory of some of the sentences: ``rows`` are indices (n,), which may repeat, or a boolean mask (B,)."""
        positions = self.positions if self.positions.ndim == 1 else self.positions[rows]
        target = None if self.target_positions is None else self.target_positions[rows]
        return Memory(self.states[rows], self.mask[rows], positions, target)


class Seq2Seq(nn.Module):
    """Base class of sequence-to-sequence models. Token ids are (B, L) integers, padded on the right with PAD."""

    version: ClassVar[int] = 1

    def encode(self, source: Tensor) -> Memory:
        """(B, S) -> the source's memory."""
        raise NotImplementedError

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        """Target prefix (B, T), beginning with BOS -> logits (B, T, V) of the token after each."""
        raise NotImplementedError

    def start(self, memory: Memory, capacity: int) -> Any:
        """An empty decoding state for up to ``capacity`` target tokens."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Feeds (B, n) further target tokens, n >= 1, updates ``state`` and returns logits (B, n, V)."""
        raise NotImplementedError

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (B, S), target prefix (B, T) -> logits (B, T, V)."""
        return self.decode(target, self.encode(source))

    def check_lengths(self, source: int, target: int) -> None:
        """Refuses, by ConfigError, a source and a target of so many tokens where they are too long for the model.

        It asks every part that has a ``check_length``.
        """
        for part in self.modules():
            check = getattr(part, "check_length", None)
            if check is not None:
                check(max(source, target))

    @staticmethod
    def token_mask(tokens: Tensor) -> Tensor:
        """(B, L) -> (B, L) boolean, True for real tokens."""
        return tokens != PAD

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device
