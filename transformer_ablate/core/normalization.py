"""Norms, and where they stand around a sublayer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from transformer_ablate.registry import NORMS


@NORMS.register("layernorm")
class LayerNorm(nn.LayerNorm):
    """Mean 0, variance 1 over the channels of one token, then gain and bias (Ba et al. 2016, eq. 4); epsilon 1e-5."""

    version: ClassVar[int] = 1


@NORMS.register("rmsnorm")
class RMSNorm(nn.RMSNorm):
    """``x / sqrt(mean x^2 + 1e-5)`` over the channels of one token, then gain (Zhang & Sennrich 2019, eq. 4)."""

    version: ClassVar[int] = 1

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, eps=1e-5)


@NORMS.register("none")
class NoNorm(nn.Module):
    """No normalisation: the input as it is. It has no parameters."""

    version: ClassVar[int] = 1

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Residual(nn.Module):
    """A residual connection around a sublayer: ``placement`` subclasses say where the norm stands.

    Args:
        norm: the norm of this connection.
        dropout: rate on the sublayer's output.
    """

    needs_final_norm: ClassVar[bool]

    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = nn.Dropout(dropout)


class PreNorm(Residual):
    """``x + dropout(f(norm(x)))`` (Xiong et al. 2020, figure 1b); the stack ends with a norm of its own."""

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class PostNorm(Residual):
    """``norm(x + dropout(f(x)))`` (Vaswani et al. 2017, section 3.1)."""

    needs_final_norm = False

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


PLACEMENTS: dict[str, type[Residual]] = {"pre": PreNorm, "post": PostNorm}
