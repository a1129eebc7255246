"""What positional encodings are in theory: order-blindness, bounds, shifts, wavelengths, offsets."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq
from transformer_ablate.core.attention import attention_scores
from transformer_ablate.core.positions import Geometry, PositionalEncoding, build_position, sinusoidal_table
from transformer_ablate.measures.exact.base import (
    SEEN,
    TOLERANCE,
    Checked,
    check,
    largest_difference,
    random_tokens,
    small_model,
)
from transformer_ablate.measures.size import parameter_count
from transformer_ablate.registry import POSITIONS

# Permutations are seeded by this; what is found does not depend on it.
ORDER_SEED = 1
BASE = 10_000.0
WIDTHS = (64, 128, 512)
FARTHEST = 512  # distance up to which dot products are looked at


def order(length: int) -> Tensor:
    """A permutation of 0 … length - 1 other than the identity."""
    return torch.randperm(length, generator=torch.Generator().manual_seed(ORDER_SEED))


def encoder_order_effect(model: Seq2Seq) -> float:
    """Largest difference between the states of a permuted source and the permuted states of the source."""
    source = random_tokens(4, 11)
    permutation = order(source.shape[1])
    return largest_difference(model.encode(source[:, permutation]).states, model.encode(source).states[:, permutation])


def decoder_order_effect(model: Seq2Seq) -> float:
    """Largest change of the logits behind a target prefix when its tokens but the last are permuted."""
    source, target = random_tokens(4, 7), random_tokens(4, 9, seed=2)
    permuted = torch.cat((target[:, :-1][:, order(8)], target[:, -1:]), dim=1)
    return largest_difference(model(source, permuted)[:, -1], model(source, target)[:, -1])


@check("order-blind-encoder")
def order_blind_encoder(bases: Mapping[str, Recipe]) -> Checked:
    """An encoder without positions is permutation-equivariant (Vaswani et al. 2017, section 3.5)."""
    blind, seeing = (encoder_order_effect(small_model(position=name)) for name in ("none", "sinusoidal"))
    detail = (
        f"permuting the source changes a token's state by at most {blind:.1e} without positions (float64), "
        f"by {seeing:.2f} with sinusoidal ones"
    )
    return Checked(blind < TOLERANCE, blind, TOLERANCE, detail)


@check("order-blind-decoder")
def order_blind_decoder(bases: Mapping[str, Recipe]) -> Checked:
    """A causal decoder without positions is order-blind too: true of one layer only (Haviv et al. 2022).

    The last token of one layer attends to a set. In a second layer it attends to states that each know their own
    prefix, and so to the order.
    """
    one, two, three = (decoder_order_effect(small_model(position="none", decoder_layers=n)) for n in (1, 2, 3))
    detail = (
        f"permuting the tokens before the last changes its logits by at most {one:.1e} with one layer, "
        f"by {two:.2g} with two and {three:.2g} with three (float64): a decoder of one layer alone is order-blind"
    )
    return Checked(two < TOLERANCE, two, TOLERANCE, detail)


def integer_effect(norm: str, placement: str) -> float:
    """Largest change of the logits when every token's position is added to all channels of its embedding."""
    source, target = random_tokens(2, 40), random_tokens(2, 30, seed=2)
    logits = []
    for position, options in (("integer", {"channels": "equal"}), ("none", {})):
        model = small_model(norm=norm, norm_placement=placement, position=position, position_options=options)
        for name, parameter in model.named_parameters():
            if name.endswith("position.direction"):
                nn.init.ones_(parameter)
        logits.append(model(source, target))
    return largest_difference(*logits)


@check("integer-all-channels")
def integer_all_channels(bases: Mapping[str, Recipe]) -> Checked:
    """An integer added equally to all channels is no position at all: LN(x + c) = LN(x) (Ba et al. 2016, eq. 4).

    In a pre-norm stack of LayerNorm with a norm at its end nothing reads the stream but through a norm. RMSNorm does
    not take a mean out, and a post-norm stack reads its first embeddings as they are.
    """
    effect, rms, post = (
        integer_effect(*of) for of in (("layernorm", "pre"), ("rmsnorm", "pre"), ("layernorm", "post"))
    )
    detail = (
        f"adding 0, 1, 2, … to all channels changes the logits by at most {effect:.1e} under pre-LN (float64), "
        f"by {rms:.2f} under RMSNorm and {post:.2f} under post-LN"
    )
    return Checked(effect < TOLERANCE, effect, TOLERANCE, detail)


@check("sinusoidal-bounded")
def sinusoidal_bounded(bases: Mapping[str, Recipe]) -> Checked:
    """Every value of the sinusoidal encoding lies in [-1, 1] (Vaswani et al. 2017, section 3.5)."""
    positions = torch.cat((torch.arange(1_000), 10 ** torch.arange(3, 7)))
    value = max(float(sinusoidal_table(positions, d).abs().max()) for d in WIDTHS)
    detail = f"largest absolute value {value:.6f} at d 64, 128 and 512, positions 0 … 999 and 10^3 … 10^6"
    return Checked(value <= 1, value, 1.0, detail)


def shift_error(d: int, k: int, positions: Tensor) -> float:
    """Largest difference between PE(p + k) and PE(p) with the pair of each frequency w turned by k w."""
    angles = torch.tensor([k * BASE ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    here, there = (sinusoidal_table(p, d).unflatten(-1, (-1, 2)) for p in (positions, positions + k))  # (n, d / 2, 2)
    sin, cos = here.unbind(-1)
    turned = torch.stack((cos * angles.sin() + sin * angles.cos(), cos * angles.cos() - sin * angles.sin()), dim=-1)
    return largest_difference(turned, there)


@check("sinusoidal-linear-shift")
def sinusoidal_linear_shift(bases: Mapping[str, Recipe]) -> Checked:
    """PE(p + k) = M_k PE(p), where M_k has one 2 x 2 rotation a frequency (Vaswani et al. 2017, section 3.5)."""
    positions = torch.tensor([0, 3, 1_000])
    value = max(shift_error(d, k, positions) for d in WIDTHS for k in (1, 5, 100))
    detail = f"largest error {value:.1e} over d 64, 128, 512, k 1, 5, 100 and p 0, 3, 1000 (float64)"
    return Checked(value < TOLERANCE, value, TOLERANCE, detail)


def wavelengths(d: int) -> Tensor:
    """Wavelengths of the encoding in units of 2 pi, (d / 2,), read off its values at position 1."""
    sin, cos = sinusoidal_table(torch.ones(1), d)[0].unflatten(-1, (-1, 2)).unbind(-1)
    return 1 / torch.atan2(sin, cos)


@check("sinusoidal-wavelengths")
def sinusoidal_wavelengths(bases: Mapping[str, Recipe]) -> Checked:
    """Wavelengths run from 2 pi to 10000 * 2 pi (Vaswani et al. 2017, section 3.5): not quite.

    Exponents stop at (d - 2) / d, so that the longest is 10000^((d - 2) / d) * 2 pi.
    """
    found = {d: wavelengths(d) for d in WIDTHS}
    shortest, longest = float(found[512].min()), float(found[512].max())
    holds = math.isclose(shortest, 1, rel_tol=1e-6) and math.isclose(longest, BASE, rel_tol=1e-6)
    others = ", ".join(f"{float(found[d].max()):.1f} at d {d}" for d in WIDTHS[:-1])
    detail = f"from {shortest:.4f} to {longest:.1f} times 2π at d 512; the longest is {others} times 2π"
    return Checked(holds, longest, BASE, detail)


def dot_products(d: int) -> Tensor:
    """PE(0) · PE(k) for k = 0 … FARTHEST, over that of k = 0; by the shift theorem the same from any position."""
    table = sinusoidal_table(torch.arange(FARTHEST + 1), d)
    return table @ table[0] / table[0].square().sum()


@check("sinusoidal-decay")
def sinusoidal_decay(bases: Mapping[str, Recipe]) -> Checked:
    """Dot products of sinusoidal positions fall monotonically with distance (of the encoding of Vaswani et al. 2017).

    PE(p) · PE(p + k) is the sum of cos(k w) over the frequencies w: it falls at first, and then waves.
    """
    rises = [dot_products(d).diff() for d in WIDTHS]  # entry k - 1 is the step to distance k
    firsts = [next(iter((rise > 0).nonzero().flatten().add(1).tolist()), None) for rise in rises]
    value = max(float(rise.max()) for rise in rises)
    told = [f"never at d {d}" if k is None else f"at k = {k} at d {d}" for d, k in zip(WIDTHS, firsts, strict=True)]
    detail = (
        f"the dot product first rises {', '.join(told)}, after a minimum one step before; "
        f"the largest rise is {value:.3f} of the dot product at distance 0"
    )
    return Checked(value <= 0, value, 0.0, detail)


def scores_at(encoding: PositionalEncoding, queries: Tensor, keys: Tensor) -> Tensor:
    """Scores (1, H, L, S) of fixed random contents at the given query and key positions, (L,) and (S,)."""
    geometry, generator = encoding.geometry, torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, geometry.n_heads, len(p), geometry.d_head, generator=generator, dtype=torch.float64)
        for p in (queries, keys)
    )
    tables = [encoding.point_table(p, torch.tensor([len(p)]), q.dtype) for p in (queries, keys)]
    return attention_scores(encoding.transform_query(q, tables[0], 0), encoding.transform_key(k, tables[1], 0))


@check("rope-offset-only")
def rope_offset_only(bases: Mapping[str, Recipe]) -> Checked:
    """Rotary scores depend on i - j alone, and rotations have no parameters (Su et al. 2021, eq. 14-16)."""
    geometry, positions = Geometry(d_model=64, n_heads=4, layers=1, causal=False), torch.arange(24)
    value, moved, parameters = 0.0, math.inf, 0
    for layout in ("interleaved", "half"):
        encoding = build_position(POSITIONS, "rope", geometry, {"layout": layout})
        scores = scores_at(encoding, positions, positions)
        for n in (1, 7, 100, 10_000):
            value = max(value, largest_difference(scores_at(encoding, positions + n, positions + n), scores))
        moved = min(moved, largest_difference(scores_at(encoding, positions + 1, positions), scores))
        parameters += parameter_count(encoding)
    learned = parameter_count(build_position(POSITIONS, "learned", geometry, {"rows": 512}))
    holds = value < TOLERANCE and moved > SEEN and parameters == 0 and learned == 512 * geometry.d_model
    detail = (
        f"shifting both positions by up to 10 000 changes a score by at most {value:.1e}, the query's alone by 1 by up "
        f"to {moved:.2f} (float64); {parameters} parameters (512 learned rows of width {geometry.d_model}: {learned:,})"
    )
    return Checked(holds, value, TOLERANCE, detail)
