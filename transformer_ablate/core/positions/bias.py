"""Encodings that add to the scores a bias of the distance alone: door (c)."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor, nn

from transformer_ablate import options
from transformer_ablate.core.positions.base import OPTIONS, Geometry, PositionalEncoding, wide
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import CROSS_POSITIONS, POSITIONS


def offsets(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Key minus query position: (..., L), (..., S) -> (..., L, S)."""
    return key_positions[..., None, :] - query_positions[..., :, None]


class DistanceBias(PositionalEncoding):
    """Base of encodings whose score term is a function of key minus query position, the same in all layers.

    The term is made once a forward pass and shared, parameters and all.
    """

    def bias(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        """Offsets (..., L, S) -> term (..., H, L, S), computed and returned in ``dtype`` or wider."""
        raise NotImplementedError

    def pair_table(self, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
        precision = wide(dtype)
        return self.bias(offsets(query_positions, key_positions), precision).to(precision)  # (H, L, S) or (B, H, L, S)

    def score_term(self, q: Tensor, k: Tensor, table: Tensor, layer: int) -> Tensor:
        return table


@lru_cache
def bucket_starts(buckets: int, max_distance: int) -> tuple[int, ...]:
    """Smallest distance of each logarithmic bucket, in exact integer arithmetic.

    Distances below ``buckets / 2`` have a bucket each; the other half spans the distances up to ``max_distance``
    evenly in their logarithm. A logarithm in floating point misses the thresholds that are whole numbers.

    Args:
        buckets: number of buckets of one direction, even.
        max_distance: where the last bucket would end; all that is farther shares it.
    """
    exact = buckets // 2
    steps = buckets - exact
    starts = []
    for step in range(steps):
        # Smallest n with n / exact >= (max_distance / exact)^(step / steps), raised to the power of steps.
        bound = exact ** (steps - step) * max_distance**step
        n = int(exact * (max_distance / exact) ** (step / steps))
        while n**steps < bound:
            n += 1
        while n > 0 and (n - 1) ** steps >= bound:
            n -= 1
        starts.append(n)
    return tuple(starts)


def t5_bucket(relative: Tensor, buckets: int, max_distance: int, causal: bool) -> Tensor:
    """Bucket of each offset key - query, as T5 divides them (Raffel et al. 2020, section 2.1, and its code).

    Args:
        relative: offsets, any shape.
        buckets: number of buckets over both directions.
        max_distance: see :func:`bucket_starts`.
        causal: all buckets are for keys at or before the query, and later keys share bucket 0; otherwise half of the
            buckets are for either side.
    """
    side = buckets if causal else buckets // 2
    distance = (-relative).clamp(min=0) if causal else relative.abs()
    starts = torch.tensor(bucket_starts(side, max_distance), device=relative.device)
    far = side // 2 - 1 + torch.bucketize(distance, starts, right=True)
    bucket = torch.where(distance < side // 2, distance, far)
    return bucket if causal else bucket + side * (relative > 0)


@POSITIONS.register("t5")
@CROSS_POSITIONS.register("relative_bias")
class T5Bias(DistanceBias):
    """A learned scalar for each head and bucket of distance, shared by the layers (Raffel et al. 2020, section 2.1).

    Bidirectional in an encoder, backward-looking in a causal decoder. In cross-attention, where T5 itself has none, the
    offset is source minus target position, in bidirectional buckets. The bias is added to scores that are divided by
    sqrt(d_head), where T5 leaves the division out and starts with smaller weights.

    Args:
        geometry: see :class:`Geometry`.
        buckets: number of buckets, divisible by 4.
        max_distance: distance from which on all share the last bucket; near the training length, or the far buckets
            are never trained.
    """

    def __init__(self, geometry: Geometry, buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(geometry)
        if options.whole(f"{OPTIONS}.buckets", buckets, at_least=4) % 4:
            raise ConfigError(f"{OPTIONS}.buckets", buckets, "a positive multiple of 4")
        if options.whole(f"{OPTIONS}.max_distance", max_distance, at_least=1) <= buckets // 2:
            allowed = f"more than half of buckets={buckets}"
            raise ConfigError(f"{OPTIONS}.max_distance", max_distance, allowed)
        self.buckets, self.max_distance = buckets, max_distance
        self.scalars = nn.Parameter(torch.empty(buckets, geometry.n_heads))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.scalars, std=self.geometry.d_model**-0.5, generator=generator)

    def bias(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        buckets = t5_bucket(relative, self.buckets, self.max_distance, self.geometry.causal)
        return self.scalars[buckets].movedim(-1, -3)


def alibi_slopes(n_heads: int) -> list[float]:
    """Slope of each head, by the authors' code: 2^(-8i/n) for a power of two, else those of the next lower power of two
    and every second one of the next higher. (The paper's prose would give 2^(-8/n) throughout.)
    """
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    between = [2.0 ** (-8 * i / (2 * power)) for i in range(1, 2 * power + 1)]
    return slopes + between[0::2][: n_heads - power]


# In which order the heads take, for keys after the query, the slopes that they have for keys before it.
ALIBI_SIDES = {"symmetric": 1, "heads": -1}


@POSITIONS.register("alibi")
@CROSS_POSITIONS.register("alibi")
class ALiBi(DistanceBias):
    """``-slope |i - j|`` on the scores, with a fixed slope for each head (Press et al. 2022, section 3).

    It has no parameters. Fewer than four heads leave hardly any slope. In cross-attention i is the target's position
    and j the source's. The paper treats causal stacks alone, where both forms below are its own, as no query sees keys
    after it.

    Args:
        geometry: see :class:`Geometry`.
        sides: ``symmetric``: one slope for both sides, so that in an encoder a string and its mirror image look alike
            but for BOS and EOS. ``heads``: head h of n has the paper's slope h for keys before the query and slope
            n + 1 - h for keys after it, so that one half of the heads reaches farther back and the other half farther
            ahead. (The authors' issue #5 proposes slopes that differ by side, or heads that see one side alone. The
            latter would leave nothing to a query with only padding on its side, and is not offered.)
    """

    def __init__(self, geometry: Geometry, sides: str = "symmetric") -> None:
        super().__init__(geometry)
        order = ALIBI_SIDES[options.name(f"{OPTIONS}.sides", sides, ALIBI_SIDES)]
        if order < 0 and geometry.n_heads == 1:
            raise ConfigError(f"{OPTIONS}.sides", sides, "symmetric, where there is one head only")
        slopes = alibi_slopes(geometry.n_heads)
        self.slopes = (slopes, slopes[::order])

    def bias(self, relative: Tensor, dtype: torch.dtype) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=torch.float64, device=relative.device)[..., None, None]  # (2, H, 1, 1)
        offset = relative.unsqueeze(-3)
        return -torch.where(offset > 0, slopes[1], slopes[0]) * offset.abs()
