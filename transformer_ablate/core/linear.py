"""Linear maps whose initial values come from a generator of their own."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


class Linear(nn.Linear):
    """``x W^T + b``; at first weights are U(-1/sqrt(d_in), 1/sqrt(d_in)) and biases zero.

    So start the feed-forward and attention-output matrices of torch's own Transformer layers.

    Args:
        d_in, d_out: widths.
    """

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the weights from ``generator``."""
        nn.init.uniform_(self.weight, -(self.in_features**-0.5), self.in_features**-0.5, generator=generator)
        nn.init.zeros_(self.bias)


class AttentionProjection(Linear):
    """Query, key and value matrices in one piece, Xavier-uniform at first (Glorot & Bengio 2010, eq. 16).

    Args:
        d_model: width of the input and of each matrix's output.
        matrices: how many there are. Each is drawn on its own d_model x d_model block: over the whole of a
            query-key-value matrix scores would start with a quarter of their variance.
    """

    def __init__(self, d_model: int, matrices: int) -> None:
        super().__init__(d_model, matrices * d_model)
        self.matrices = matrices

    def initialise(self, generator: torch.Generator) -> None:
        for block in self.weight.chunk(self.matrices):
            nn.init.xavier_uniform_(block, generator=generator)
        nn.init.zeros_(self.bias)


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
