"""The LightningModule that trains any variant."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data.examples import Batch
from transformer_ablate.registry import OPTIMIZERS, SCHEDULES
from transformer_ablate.training.adaptation import adapt, check_adaptation
from transformer_ablate.training.sequential import check_sampling
from transformer_ablate.training.step import losses


class Seq2SeqModule(LightningModule):
    """Training of one recipe, under gold prefixes or partly under the model's own.

    Args:
        recipe: the recipe, or its ``to_dict()`` (what checkpoints hold: plain values that load under ``weights_only``).
        source_size, target_size: vocabulary sizes.

    Raises:
        ConfigError: where a component, or the training regime, refuses what the recipe asks of it.
    """

    def __init__(self, recipe: Recipe | dict[str, Any], source_size: int, target_size: int) -> None:
        super().__init__()
        self.recipe = Recipe.from_dict(recipe) if isinstance(recipe, dict) else recipe
        check_sampling(self.recipe.train)
        plain = {"recipe": self.recipe.to_dict(), "source_size": source_size, "target_size": target_size}
        self.save_hyperparameters(plain)
        self.model = build_model(self.recipe.model, source_size, target_size, self.recipe.train.seed)
        check_adaptation(self.model, self.recipe.train)
        self.gradient_norm = torch.zeros(())  # of the last update, before clipping

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Begins the last ``train.adapt_steps`` updates, wherever training was resumed."""
        train = self.recipe.train
        if train.adapt_steps and self.global_step >= train.max_steps - train.adapt_steps:
            adapt(self.model)

    def training_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor]:
        """See :func:`transformer_ablate.training.step.losses`."""
        return losses(self.model, self.recipe.train, batch, self.global_step, batch_index)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """The recipe's optimizer; its schedule advances once an update and gives update s the rate ``schedule(s)``."""
        train, d_model = self.recipe.train, self.recipe.model.d_model
        rate = SCHEDULES[train.schedule]
        optimizer = OPTIMIZERS[train.optimizer](self.model, train)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: rate(done + 1, train, d_model))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips by the norm over all parameters and keeps the norm, so that it is computed once."""
        limit = self.recipe.train.clip_norm or float("inf")
        self.gradient_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit).detach()
