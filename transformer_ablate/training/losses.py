"""Cross-entropy over real tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.tokens import PAD

Reduction = Literal["mean", "none"]


def over_all(logits: Tensor, targets: Tensor, alpha: float, reduction: Reduction) -> Tensor:
    """``alpha / V`` on all V classes, ``1 - alpha`` more on the target, as in torch (Szegedy et al. 2016, section 7).

    Args:
        logits: (N, V), in float32 or wider.
        targets: (N,) ids.
        alpha: probability that is spread.
        reduction: ``mean`` over real tokens, or ``none`` for (N,).
    """
    return F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=alpha, reduction=reduction)


def over_others(logits: Tensor, targets: Tensor, alpha: float, reduction: Reduction) -> Tensor:
    """``1 - alpha`` on the target and ``alpha / (V - 1)`` on each other class (Vaswani et al. 2018, tensor2tensor).

    So does fairseq since 2020. tensor2tensor takes the least possible loss off, which changes no gradient.
    """
    log_probabilities = logits.log_softmax(-1)  # (N, V)
    share = alpha / classes_left("others", logits.shape[-1], 1)
    return weighted(log_probabilities, log_probabilities.sum(-1), targets, alpha, share, reduction)


def over_others_but_pad(logits: Tensor, targets: Tensor, alpha: float, reduction: Reduction) -> Tensor:
    """``1 - alpha`` on the target, 0 on PAD, ``alpha / (V - 2)`` elsewhere (Rush 2018, The Annotated Transformer).

    The source takes the least possible loss off (its loss is a divergence), which changes no gradient.
    """
    log_probabilities = logits.log_softmax(-1)  # (N, V)
    share = alpha / classes_left("others-but-pad", logits.shape[-1], 2)
    # Left out, not subtracted: a PAD that is ruled out (-inf) then costs nothing.
    real = log_probabilities[:, :PAD].sum(-1) + log_probabilities[:, PAD + 1 :].sum(-1)  # (N,)
    return weighted(log_probabilities, real, targets, alpha, share, reduction)


SMOOTHED: dict[str, Callable[[Tensor, Tensor, float, Reduction], Tensor]] = {
    "all": over_all,
    "others": over_others,
    "others-but-pad": over_others_but_pad,
}


def classes_left(kind: str, V: int, left_out: int) -> int:
    """The number of classes that alpha is spread over: V but for ``left_out``.

    Raises:
        ConfigError: where none is left.
    """
    left = V - left_out
    if left < 1:
        raise ConfigError("train.smoothing", kind, f"all, where the vocabulary has {V} symbols")
    return left


def weighted(
    log_probabilities: Tensor, spread_sum: Tensor, targets: Tensor, alpha: float, share: float, reduction: Reduction
) -> Tensor:
    """Cross-entropy against ``1 - alpha`` on the target and ``share`` on other classes; padding counts nothing.

    Args:
        log_probabilities: (N, V).
        spread_sum: (N,) their sum over the target and the classes that alpha is spread over.
        targets: (N,) ids.
    """
    target = log_probabilities.gather(-1, targets[:, None])[:, 0]  # (N,)
    padding = targets == PAD
    each = -((1 - alpha) * target + share * (spread_sum - target)).masked_fill(padding, 0.0)
    return each if reduction == "none" else each.sum() / (~padding).sum()


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    smoothing: str = "all",
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy against smoothed targets, in nats, in float32 or wider.

    Padding counts neither in the sum nor in the mean. Losses of different alphas or kinds of smoothing are not
    comparable; those without smoothing are.

    Args:
        logits: (B, T, V).
        targets: (B, T) ids, PAD where there is nothing to predict.
        label_smoothing: alpha, the probability that is spread; 0 for hard targets, which are the same in every kind.
        smoothing: the classes that it is spread over, one of :data:`SMOOTHED`: ``all`` V (torch, and the definition of
            Szegedy et al. 2016), the V - 1 ``others``, or the V - 2 ``others-but-pad``.
        reduction: ``mean`` over real tokens, or ``none`` for (B, T) with zeros at padding.

    Raises:
        ConfigError: for an unknown kind, or a vocabulary that leaves no class to spread alpha over.
    """
    if smoothing not in SMOOTHED:
        raise unknown_name("train.smoothing", smoothing, SMOOTHED)
    loss = SMOOTHED[smoothing] if label_smoothing else over_all
    wide = logits.float() if logits.element_size() < 4 else logits
    flat = loss(wide.flatten(0, -2), targets.flatten(), label_smoothing, reduction)
    return flat.view_as(targets) if reduction == "none" else flat
