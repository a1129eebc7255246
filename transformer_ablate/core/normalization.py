"""Norms, and where they stand around a sublayer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from transformer_ablate.registry import NORM_PLACEMENTS, NORMS


@NORMS.register("layernorm")
class LayerNorm(nn.LayerNorm):
    """Mean 0, variance 1 over the channels of one token, then gain and bias (Ba et al. 2016, eq. 4); epsilon 1e-5."""

    version: ClassVar[int] = 1

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


@NORMS.register("rmsnorm")
class RMSNorm(nn.RMSNorm):
    """``x / sqrt(mean x^2 + 1e-5)`` over the channels of one token, then gain (Zhang & Sennrich 2019, eq. 4)."""

    version: ClassVar[int] = 1

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, eps=1e-5)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        # Under autocast queries and keys come in half precision: the fused kernel wants them as wide as the gain.
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


@NORMS.register("batchnorm")
class BatchNorm(nn.Module):
    """Mean 0, variance 1 of each channel over a batch's real tokens, gain and bias (Ioffe & Szegedy 2015, alg. 1).

    Padding counts in no statistic. Evaluation uses running means (momentum .1), so that a token's output does not
    depend on the batch; in training it does, and no causal mask keeps later tokens out of the statistics.
    """

    version: ClassVar[int] = 1
    counts_padding: ClassVar[bool] = False
    momentum: ClassVar[float] = 0.1
    eps: ClassVar[float] = 1e-5
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_buffer("running_mean", torch.zeros(d_model))
        self.register_buffer("running_var", torch.ones(d_model))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training:
            counted = wide.new_ones(wide.shape[:-1]) if real is None or self.counts_padding else real.to(wide.dtype)
            mean, variance = self._statistics(wide, counted[..., None])
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight / (variance + self.eps).sqrt()
        return ((wide - mean) * scale + self.bias).to(x.dtype)

    def _statistics(self, x: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and biased variance of each channel; moves the running ones, with the unbiased variance.

        Args:
            x: (B, L, d_model).
            counted: (B, L, 1) with 1 for tokens that count, of which there is one at least, and 0 for others: weights,
                and not a selection, for which a GPU would have to wait.
        """
        n = counted.sum()
        mean = (x * counted).sum(dim=(0, 1)) / n
        variance = ((x - mean).square() * counted).sum(dim=(0, 1)) / n
        with torch.no_grad():
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (variance * n / (n - 1).clamp(min=1) - self.running_var)
        return mean, variance


@NORMS.register("batchnorm_unmasked")
class UnmaskedBatchNorm(BatchNorm):
    """Batch normalisation that counts padding like any token: the usual fault (Ioffe & Szegedy 2015, alg. 1)."""

    counts_padding = True


@NORMS.register("none")
class NoNorm(nn.Module):
    """No normalisation: the input as it is, without parameters (the baseline of Ba et al. 2016)."""

    version: ClassVar[int] = 1

    def __init__(self, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return x


class Residual(nn.Module):
    """A residual connection around a sublayer; subclasses say where the norms stand.

    Args:
        make_norm: constructs one of the norms of this connection.
        dropout: rate on the sublayer's output.
        keep: factor on the stream that the output is added to: :meth:`stream_gain`, or 0 for no residual connection.
    """

    version: ClassVar[int] = 1
    # Whether a stack ends with a norm of its own.
    needs_final_norm: ClassVar[bool]

    def __init__(self, make_norm: Callable[[], nn.Module], dropout: float, keep: float = 1.0) -> None:
        super().__init__()
        self.norm = make_norm()
        self.dropout = nn.Dropout(dropout)
        self.keep = keep

    @staticmethod
    def stream_gain(own_layers: int, other_layers: int, decoder: bool) -> float:
        """Factor on the residual stream, for a stack of ``own_layers`` beside one of ``other_layers``."""
        return 1.0

    @staticmethod
    def initial_gain(own_layers: int, other_layers: int, decoder: bool) -> float:
        """Factor on the initial values of feed-forward, value and attention-output matrices."""
        return 1.0

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The stream ``x`` and a sublayer's output ``y`` together."""
        if self.keep == 1:
            return x + self.dropout(y)
        return self.keep * x + self.dropout(y) if self.keep else self.dropout(y)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        """The stream (B, L, d_model) through the sublayer; ``real`` (B, L) is handed to the norms."""
        raise NotImplementedError


@NORM_PLACEMENTS.register("pre")
class PreNorm(Residual):
    """``x + dropout(f(norm(x)))``; the stack ends with a norm of its own (Xiong et al. 2020, figure 1b)."""

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return self.add(x, sublayer(self.norm(x, real)))


@NORM_PLACEMENTS.register("post")
class PostNorm(Residual):
    """``norm(x + dropout(f(x)))`` (Vaswani et al. 2017, section 3.1)."""

    needs_final_norm = False

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return self.norm(self.add(x, sublayer(x)), real)


@NORM_PLACEMENTS.register("sandwich")
class SandwichNorm(Residual):
    """``x + dropout(norm2(f(norm1(x))))``; the stack ends with a norm too (Ding et al. 2021, section 2.4)."""

    needs_final_norm = True

    def __init__(self, make_norm: Callable[[], nn.Module], dropout: float, keep: float = 1.0) -> None:
        super().__init__(make_norm, dropout, keep)
        self.norm_after = make_norm()

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return self.add(x, self.norm_after(sublayer(self.norm(x, real)), real))


@NORM_PLACEMENTS.register("deepnorm")
class DeepNorm(PostNorm):
    """``norm(alpha x + dropout(f(x)))`` and initial values smaller by beta (Wang et al. 2022, figure 2).

    For N encoder and M decoder layers, alpha is .81 (N^4 M)^(1/16) in the encoder and (3 M)^(1/4) in the decoder, beta
    .87 (N^4 M)^(-1/16) and (12 M)^(-1/4).
    """

    @staticmethod
    def stream_gain(own_layers: int, other_layers: int, decoder: bool) -> float:
        return (3 * own_layers) ** 0.25 if decoder else 0.81 * (own_layers**4 * other_layers) ** (1 / 16)

    @staticmethod
    def initial_gain(own_layers: int, other_layers: int, decoder: bool) -> float:
        return (12 * own_layers) ** -0.25 if decoder else 0.87 * (own_layers**4 * other_layers) ** (-1 / 16)
