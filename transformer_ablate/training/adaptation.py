"""Fine-tuning with what a model otherwise has at evaluation alone."""

from __future__ import annotations

from torch import nn

from transformer_ablate.config import TrainConfig
from transformer_ablate.core.positions.base import PositionalEncoding
from transformer_ablate.errors import ConfigError


def encodings(model: nn.Module) -> list[PositionalEncoding]:
    """Every positional encoding of a model whose evaluation has something that its training has not."""
    return [m for m in model.modules() if isinstance(m, PositionalEncoding) and m.evaluated_otherwise]


def adapt(model: nn.Module) -> None:
    """Makes all of :func:`encodings` train with what they have at evaluation; repeating it changes nothing."""
    for encoding in encodings(model):
        encoding.adapt()


def check_adaptation(model: nn.Module, train: TrainConfig) -> None:
    """Refuses, by ConfigError, steps of fine-tuning where there is nothing to fine-tune with."""
    if train.adapt_steps and not encodings(model):
        allowed = "0 where no positional encoding has a scaling for evaluation"
        raise ConfigError("train.adapt_steps", train.adapt_steps, allowed, "set model.position_options.evaluation")
