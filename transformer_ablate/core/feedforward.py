"""Position-wise feed-forward sublayers: (..., d_model) -> (..., d_model)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_ablate.core.linear import Linear
from transformer_ablate.registry import FEED_FORWARDS

# Relative difference in parameters above which a matched sublayer is warned of.
MATCHED_WITHIN = 0.005
# Set by each subclass as a static method.
Activation = Callable[[Tensor], Tensor]


class FeedForward(nn.Module):
    """``f(x W1 + b1) W2 + b2`` with hidden width d_ff (Vaswani et al. 2017, eq. 2, for f = ReLU).

    Args:
        d_model, d_ff: widths.
        matched: for types of another shape: whether they take the hidden width at which their parameters are as many as
            here; otherwise d_ff is their width, and their size another.
    """

    version: ClassVar[int] = 1
    # Whether there is a sublayer at all.
    present: ClassVar[bool] = True
    activation: Activation

    def __init__(self, d_model: int, d_ff: int, matched: bool = True) -> None:
        super().__init__()
        self.up = Linear(d_model, d_ff)
        self.down = Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))

    def scale_initial_values(self, gain: float) -> None:
        """All matrices start smaller by ``gain``."""
        for linear in self.children():
            if isinstance(linear, Linear):
                linear.initial_gain = gain


class GatedFeedForward(FeedForward):
    """``(f(x W + b) * (x V + c)) W2 + b2`` (Shazeer 2020, eq. 6), by default as large as a plain one with d_ff.

    A width that leaves the parameters more than .5 % apart is warned of.
    """

    def __init__(self, d_model: int, d_ff: int, matched: bool = True) -> None:
        nn.Module.__init__(self)
        width = matched_width(d_model, d_ff) if matched else d_ff
        if matched:
            warn_of_mismatch(d_model, d_ff, width)
        self.gate = Linear(d_model, width)
        self.up = Linear(d_model, width)
        self.down = Linear(width, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


def plain_parameters(d_model: int, d_ff: int) -> int:
    """Parameters of a plain sublayer, biases counted."""
    return 2 * d_model * d_ff + d_ff + d_model


def gated_parameters(d_model: int, width: int) -> int:
    """Parameters of a gated sublayer, biases counted."""
    return 3 * d_model * width + 2 * width + d_model


def matched_width(d_model: int, d_ff: int) -> int:
    """Hidden width of the gated sublayer whose parameters come nearest to a plain one's: about 2/3 of d_ff."""
    target = plain_parameters(d_model, d_ff)
    near = round((target - d_model) / (3 * d_model + 2))
    return min(
        (w for w in (near - 1, near, near + 1) if w >= 1), key=lambda w: abs(gated_parameters(d_model, w) - target)
    )


@lru_cache
def warn_of_mismatch(d_model: int, d_ff: int, width: int) -> None:
    """Warns, once for each shape, where no integer width comes within .5 % of a plain sublayer's parameters."""
    plain, gated = plain_parameters(d_model, d_ff), gated_parameters(d_model, width)
    if abs(gated / plain - 1) > MATCHED_WITHIN:
        warnings.warn(
            f"gated feed-forward of width {width} has {gated} parameters, {gated / plain - 1:+.2%} against the plain"
            f" one's {plain} at d_model={d_model}, d_ff={d_ff}: no width comes nearer",
            stacklevel=2,
        )


@FEED_FORWARDS.register("relu")
class ReLU(FeedForward):
    """``max(0, x)`` (Vaswani et al. 2017, eq. 2)."""

    activation = staticmethod(F.relu)


@FEED_FORWARDS.register("gelu")
class GELU(FeedForward):
    """``x Phi(x)`` by the error function (Hendrycks & Gimpel 2016, section 2)."""

    activation = staticmethod(F.gelu)


@FEED_FORWARDS.register("gelu_tanh")
class GELUTanh(FeedForward):
    """GELU by its tanh approximation (Hendrycks & Gimpel 2016, section 2)."""

    activation = staticmethod(partial(F.gelu, approximate="tanh"))


@FEED_FORWARDS.register("silu")
class SiLU(FeedForward):
    """``x sigmoid(x)`` (Hendrycks & Gimpel 2016, section 2)."""

    activation = staticmethod(F.silu)


@FEED_FORWARDS.register("squared_relu")
class SquaredReLU(FeedForward):
    """``max(0, x)^2`` (So et al. 2021)."""

    activation = staticmethod(lambda x: F.relu(x).square())


@FEED_FORWARDS.register("linear")
class LinearFeedForward(FeedForward):
    """No activation: the two matrices are one map of rank d_ff at most."""

    activation = staticmethod(lambda x: x)


@FEED_FORWARDS.register("glu")
class GLU(GatedFeedForward):
    """Sigmoid gate (Dauphin et al. 2017; Shazeer 2020, eq. 4)."""

    activation = staticmethod(torch.sigmoid)


@FEED_FORWARDS.register("bilinear")
class Bilinear(GatedFeedForward):
    """Gate without activation (Shazeer 2020, eq. 4)."""

    activation = staticmethod(lambda x: x)


@FEED_FORWARDS.register("reglu")
class ReGLU(GatedFeedForward):
    """ReLU gate (Shazeer 2020, eq. 6)."""

    activation = staticmethod(F.relu)


@FEED_FORWARDS.register("geglu")
class GEGLU(GatedFeedForward):
    """GELU gate (Shazeer 2020, eq. 6)."""

    activation = staticmethod(F.gelu)


@FEED_FORWARDS.register("swiglu")
class SwiGLU(GatedFeedForward):
    """SiLU gate (Shazeer 2020, eq. 6)."""

    activation = staticmethod(F.silu)


@FEED_FORWARDS.register("none")
class NoFeedForward(FeedForward):
    """No sublayer, nor a norm or residual connection for it: attention alone (Dong et al. 2021)."""

    present = False

    def __init__(self, d_model: int, d_ff: int, matched: bool = True) -> None:
        nn.Module.__init__(self)

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("there is no sublayer to call")
