"""Linear maps whose initial values come from a generator of their own."""

from __future__ import annotations

import hashlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """``x W^T + b``; at first weights are U(-1/sqrt(d_in), 1/sqrt(d_in)) and biases zero.

    So start the feed-forward and attention-output matrices of torch's own Transformer layers.

    Args:
        d_in, d_out: widths.

    Attributes:
        initial_gain: factor on the initial weights.
    """

    initial_gain: float = 1.0

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        bound = self.initial_gain * self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class AttentionProjection(nn.Linear):
    """Query, key and value matrices in one piece, Xavier-uniform at first (Glorot & Bengio 2010, eq. 16).

    Args:
        d_model: width of the input.
        width: width of each matrix's output, all heads together.
        biased: for each matrix, whether it has a bias.

    Each matrix is drawn on a d_model x d_model block of its own: over the whole of a query-key-value matrix, scores
    would start with a quarter of their variance. A matrix of another width has the same bounds.

    Attributes:
        initial_gains: factor on the initial weights of each matrix.
    """

    def __init__(self, d_model: int, width: int, biased: tuple[bool, ...]) -> None:
        super().__init__(d_model, len(biased) * width, bias=False)
        self.width, self.biased = width, biased
        self.initial_gains = [1.0] * len(biased)
        if any(biased):
            self.bias = nn.Parameter(torch.empty(sum(biased) * width))

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        bound = (3 / self.in_features) ** 0.5
        for block, gain in zip(self.weight.split(self.width), self.initial_gains, strict=True):
            nn.init.uniform_(block, -gain * bound, gain * bound, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_model) -> (..., matrices * width)."""
        if self.bias is None or all(self.biased):
            return F.linear(x, self.weight, self.bias)
        given = iter(self.bias.split(self.width))
        none = self.bias.new_zeros(self.width)
        return F.linear(x, self.weight, torch.cat([next(given) if has else none for has in self.biased]))


def derive_seed(seed: int, name: str) -> int:
    """A seed for the stream called ``name`` of a run's ``seed``: streams never share a generator."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1


def initialise(model: nn.Module, seed: int) -> None:
    """Draws all initial values, each module's from a generator seeded by ``seed`` and the module's own name.

    So two models that differ in one part have the same initial values in all the parts that they share, and nothing is
    taken from the global generator.
    """
    with torch.no_grad():
        for name, module in model.named_modules():
            draw = getattr(module, "initialise", None)
            if draw is not None:
                draw(torch.Generator().manual_seed(derive_seed(seed, f"init/{name}")))
