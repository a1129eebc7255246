"""Token embeddings, the output projection, and the ways in which their matrices may be one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate.errors import ConfigError


@dataclass(frozen=True)
class Tying:
    """Which matrices are one (Press & Wolf 2017; Vaswani et al. 2017, section 3.4)."""

    source_is_target: bool
    output_is_target: bool


TYING_KINDS = {
    "none": Tying(False, False),
    "decoder": Tying(False, True),
    "encoder-decoder": Tying(True, False),
    "all": Tying(True, True),
}
LOGIT_SCALE_EXPONENTS = {"none": 0.0, "rsqrt_d": -0.5}


class TokenEmbedding(nn.Module):
    """Rows of a (V, d_model) matrix times sqrt(d_model) (Vaswani et al. 2017, section 3.4).

    The matrix starts as N(0, 1/d_model), so that embeddings have unit variance a channel.
    """

    def __init__(self, size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, d_model))
        self.scale = math.sqrt(d_model)

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the matrix from ``generator``."""
        nn.init.normal_(self.weight, std=1 / self.scale, generator=generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L) token ids -> (B, L, d_model)."""
        return F.embedding(tokens, self.weight) * self.scale


class OutputProjection(nn.Module):
    """States to logits, ``(B, L, d_model) -> (B, L, V)``, without bias.

    Args:
        size, d_model: shape of the matrix.
        logit_scale: ``none``, or ``rsqrt_d`` for logits times d_model^-1/2.
        tied: the embedding whose matrix is used; None for a matrix of its own, N(0, 1/d_model) at first.
    """

    def __init__(self, size: int, d_model: int, logit_scale: str, tied: TokenEmbedding | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, d_model)) if tied is None else tied.weight
        self.tied = tied is not None
        self.scale = d_model ** LOGIT_SCALE_EXPONENTS[logit_scale]

    def initialise(self, generator: torch.Generator) -> None:
        """Draws the matrix from ``generator``, unless it belongs to an embedding."""
        if not self.tied:
            nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x if self.scale == 1 else x * self.scale, self.weight)


def check_tying(kind: str, source_size: int, target_size: int, joint_vocabulary: bool) -> None:
    """Sharing source and target embeddings needs one vocabulary for both sides.

    Raises:
        ConfigError: naming both sizes.
    """
    if TYING_KINDS[kind].source_is_target and not (joint_vocabulary and source_size == target_size):
        allowed = ", ".join(name for name, tying in TYING_KINDS.items() if not tying.source_is_target)
        raise ConfigError(
            "model.tying",
            kind,
            f"{allowed} where source and target have vocabularies of their own (sizes {source_size} and {target_size})",
        )
