"""KERPLE: biases by conditionally positive definite kernels of the distance: door (c)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry
from transformer_ablate.core.positions.bias import DistanceBias
from transformer_ablate.registry import POSITIONS

# The authors' code keeps r1 and r2 at or above this; here it bounds their first values.
LEAST = 0.01


def log_kernel(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """``-r1 ln(1 + r2 d)``, finite in value and gradients for all d >= 0."""
    return -r1 * torch.log1p(r2 * distance)


def power_kernel(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """``-r1 d^r2``; 0 at d = 0 for every r2, where a power would have 0^0 and the logarithm of 0 in its gradient."""
    return -r1 * distance.clamp(min=1).pow(r2).masked_fill(distance == 0, 0.0)


@dataclass(frozen=True)
class Kernel:
    """One family of kernels.

    Attributes:
        bias: of distance, r1 and r2.
        ranges: r1 and r2 start uniform in (0, these), as in the authors' code.
        to_r2, from_r2: from the real line to the values that r2 may take, and back.
    """

    bias: Callable[[Tensor, Tensor, Tensor], Tensor]
    ranges: tuple[float, float]
    to_r2: Callable[[Tensor], Tensor]
    from_r2: Callable[[Tensor], Tensor]


KERNELS = {
    "log": Kernel(log_kernel, (2.0, 1.0), torch.exp, torch.log),
    "power": Kernel(power_kernel, (1.0, 2.0), lambda x: 2 * x.sigmoid(), lambda r: (r / 2).logit()),
}


@POSITIONS.register("kerple")
class Kerple(DistanceBias):
    """``-r1 ln(1 + r2 |i - j|)`` or ``-r1 |i - j|^r2``, r1, r2 > 0 learned for each head (Chi et al. 2022, section 4).

    r1 and r2 belong to a head and are shared by the layers. The authors clamp them; here r1 is the exponential of a
    parameter, and so is r2, but twice a sigmoid for the power kernel, whose r2 must not exceed 2. They start uniform as
    theirs, but for the outermost 0.01: r1 in (0, 2) and r2 in (0, 1) for the logarithm, r1 in (0, 1) and r2 in (0, 2)
    for the power. The paper treats causal stacks; in an encoder the bias is symmetric, as ALiBi's.

    Args:
        geometry: see :class:`Geometry`.
        kernel: ``log`` or ``power``.
    """

    def __init__(self, geometry: Geometry, kernel: str = "log") -> None:
        super().__init__(geometry)
        self.kernel = options.name(f"{OPTIONS}.kernel", kernel, KERNELS)
        self.raw_r1 = nn.Parameter(torch.empty(geometry.n_heads))
        self.raw_r2 = nn.Parameter(torch.empty(geometry.n_heads))

    def initialise(self, generator: torch.Generator) -> None:
        drawn = torch.rand(2, self.geometry.n_heads, generator=generator)
        r1, r2 = (LEAST + (end - 2 * LEAST) * u for end, u in zip(KERNELS[self.kernel].ranges, drawn, strict=True))
        self.set_scales(r1, r2)

    def set_scales(self, r1: Tensor, r2: Tensor) -> None:
        """Gives each head its r1 and r2, (H,) each."""
        with torch.no_grad():
            self.raw_r1.copy_(r1.log())
            self.raw_r2.copy_(KERNELS[self.kernel].from_r2(r2))

    def scales(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """r1 and r2 of the heads, (H,) each."""
        return self.raw_r1.to(dtype).exp(), KERNELS[self.kernel].to_r2(self.raw_r2.to(dtype))

    def bias(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        r1, r2 = (r[:, None, None] for r in self.scales(dtype))
        return KERNELS[self.kernel].bias(relative.abs().unsqueeze(-3).to(dtype), r1, r2)
