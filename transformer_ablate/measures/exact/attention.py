"""What attention, its two masks and layer normalisation do by construction."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from transformer_ablate.config import Recipe
from transformer_ablate.core.attention import attention_scores, attention_weights
from transformer_ablate.measures.exact.base import (
    SEEN,
    TOLERANCE,
    VOCABULARY,
    Checked,
    check,
    largest_difference,
    random_tokens,
    small_model,
)
from transformer_ablate.registry import NORMS
from transformer_ablate.tokens import PAD

DRAWS, KEYS, D_K = 2_000, 32, 64
MOST_OF_ENTROPY, VARIANCE_SHARE = 0.25, 0.05
# LayerNorm divides by sqrt(variance + 1e-5): a little less than the standard deviation.
VARIANCE_TOLERANCE = 1e-4


@check("unscaled-saturates")
def unscaled_saturates(bases: Mapping[str, Recipe]) -> Checked:
    """Without 1 / sqrt(d_k), scores have variance d_k and softmax saturates (Vaswani et al. 2017, section 3.2.1).

    For N(0, 1) queries and keys of width 64 and 32 keys: the entropy of the weights is at most a quarter of that of
    scaled attention, and the variance of the scores is within 5 % of d_k.
    """
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(DRAWS, 1, 1, D_K, generator=generator)
    k = torch.randn(DRAWS, 1, KEYS, D_K, generator=generator)
    unscaled, scaled = (
        float(torch.special.entr(attention_weights(q, k, scale=scale)).sum(-1).mean()) for scale in (1.0, None)
    )
    variance = float(attention_scores(q, k, scale=1.0).var())
    value = unscaled / scaled
    detail = (
        f"mean entropy over {KEYS} keys at d_k {D_K}: {unscaled:.3f} nats unscaled, {scaled:.3f} scaled, "
        f"ratio {value:.3f}; variance of q·k {variance:.1f}"
    )
    holds = value <= MOST_OF_ENTROPY and abs(variance / D_K - 1) <= VARIANCE_SHARE
    return Checked(holds, value, MOST_OF_ENTROPY, detail)


def batch_effect(padding_mask: bool) -> float:
    """Largest difference that longer batch mates, and so padding, make to a sentence's logits."""
    model = small_model(padding_mask=padding_mask)
    source, target = random_tokens(3, 9), random_tokens(3, 8, seed=2)
    source[0, 5:], target[0, 4:] = PAD, PAD
    return largest_difference(model(source, target)[:1, :4], model(source[:1, :5], target[:1, :4]))


@check("padding-mask-independence")
def padding_mask_independence(bases: Mapping[str, Recipe]) -> Checked:
    """A sentence's logits do not depend on its batch mates' length, but without the padding mask (by construction)."""
    masked, unmasked = batch_effect(True), batch_effect(False)
    detail = (
        f"logits of a sentence alone and beside longer ones differ by at most {masked:.1e} with the mask (float64), "
        f"by {unmasked:.2f} without"
    )
    return Checked(masked < TOLERANCE and unmasked > SEEN, masked, TOLERANCE, detail)


def future_effect(causal_mask: bool) -> tuple[float, float]:
    """Largest change of the logits before a target token that is changed, and of those at it."""
    model = small_model(causal_mask=causal_mask)
    source, target = random_tokens(3, 7), random_tokens(3, 8, seed=2)
    changed = target.clone()
    changed[:, 5] = (target[:, 5] - 3) % (VOCABULARY - 4) + 4  # the next symbol
    before, after = model(source, target), model(source, changed)
    return largest_difference(before[:, :5], after[:, :5]), largest_difference(before[:, 5], after[:, 5])


@check("causal-mask-stops-leak-exact")
def causal_mask_stops_leak(bases: Mapping[str, Recipe]) -> Checked:
    """No logit depends on a later target token with the causal mask; without it they do (Vaswani et al. 2017, 3.1)."""
    (masked, own), (unmasked, _) = future_effect(True), future_effect(False)
    detail = (
        f"another token at position 5 changes the logits before it by at most {masked:.1e} with the mask (float64; "
        f"its own by {own:.2f}), by {unmasked:.2f} without"
    )
    return Checked(masked < TOLERANCE and min(own, unmasked) > SEEN, masked, TOLERANCE, detail)


def skewness(x: Tensor) -> Tensor:
    """Third standardised moment over the last dimension."""
    centred = x - x.mean(-1, keepdim=True)
    return centred.pow(3).mean(-1) / centred.square().mean(-1).pow(1.5)


@check("layernorm-independent")
def layernorm_independent(bases: Mapping[str, Recipe]) -> Checked:
    """LayerNorm gives each token mean 0 and variance 1, whatever its batch and length (Ba et al. 2016, section 3).

    So before gain and bias, which start as 1 and 0. It standardises and makes nothing normal: the shape of a token's
    distribution over the channels stays as it is.
    """
    d = 64
    generator = torch.Generator().manual_seed(0)
    # Skewed, off zero and wide.
    x = torch.rand(5, 9, d, generator=generator, dtype=torch.float64).log().mul(-3).add(10)  # (B, L, d)
    layer_norm, batch_norm = (NORMS[name](d).double() for name in ("layernorm", "batchnorm"))
    y = layer_norm(x, None)
    effect, of_batch_norm = (
        largest_difference(norm(x, None)[:1, :4], norm(x[:1, :4], None)) for norm in (layer_norm, batch_norm)
    )
    mean = float(y.mean(-1).abs().max())
    variance = float((y.var(-1, correction=0) - 1).abs().max())
    holds = effect < TOLERANCE and mean < TOLERANCE and variance < VARIANCE_TOLERANCE
    detail = (
        f"a token's output alone and in a batch differs by at most {effect:.1e} (BatchNorm in training: "
        f"{of_batch_norm:.2f}); |mean| ≤ {mean:.1e}, |variance − 1| ≤ {variance:.1e}; skewness "
        f"{float(skewness(x).mean()):.2f} before and {float(skewness(y).mean()):.2f} after: standardised, not normal"
    )
    return Checked(holds, effect, TOLERANCE, detail)
