"""Cross-entropy over real tokens."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from transformer_ablate.data.vocabulary import PAD


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    """Cross-entropy against ``(1 - alpha) one-hot + alpha / V`` over all V classes, in nats, in float32 or wider.

    Padding counts neither in the sum nor in the mean. Source: Szegedy et al. 2016, section 7, as torch defines it;
    other definitions spread alpha over V - 1 or V - 2 classes and give other losses.

    Args:
        logits: (B, T, V).
        targets: (B, T) ids, PAD where there is nothing to predict.
        label_smoothing: alpha.
        reduction: ``mean`` over real tokens, or ``none`` for (B, T) with zeros at padding.
    """
    wide = logits.float() if logits.element_size() < 4 else logits
    flat = F.cross_entropy(
        wide.flatten(0, -2), targets.flatten(), ignore_index=PAD, label_smoothing=label_smoothing, reduction=reduction
    )
    return flat.view_as(targets) if reduction == "none" else flat
