"""Position-wise feed-forward sublayers."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate.core.linear import Linear
from transformer_ablate.registry import FEED_FORWARDS


@FEED_FORWARDS.register("relu")
class ReLUFeedForward(nn.Module):
    """``max(0, x W1 + b1) W2 + b2`` (Vaswani et al. 2017, eq. 2): (..., d_model) -> (..., d_model)."""

    version: ClassVar[int] = 1

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up = Linear(d_model, d_ff)
        self.down = Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)))
