"""The training loader, as Lightning wants it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from lightning import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from transformer_ablate.config import DataConfig
from transformer_ablate.data.batching import TokenBudgetBatches
from transformer_ablate.data.examples import Batch, Pairs
from transformer_ablate.data.stable import stable_seed
from transformer_ablate.data.task import load_task


class PairsDataset(Dataset[Batch]):
    """Pairs behind torch's interface; a whole batch is padded in one go."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Batch:
        return self.pairs.batch([index])

    def __getitems__(self, indices: np.ndarray | Sequence[int]) -> Batch:
        return self.pairs.batch(indices)


def _as_it_is(batch: Batch) -> Batch:
    return batch


class Seq2SeqDataModule(LightningDataModule):
    """One task's training batches; evaluation takes :func:`evaluation_batches` instead, without a loader.

    The order of the data depends on ``seed`` and ``data`` alone: every variant of a model sees the same batches, with
    any number of loader processes. The global random generators are left alone, so that dropout is not disturbed.

    Args:
        data: the task, its size and its batches.
        seed: of the order of the examples.
        steps: batches that the training loader yields.

    Raises:
        ConfigError: where the task cannot be loaded, or one example exceeds ``data.batch_tokens``.
    """

    def __init__(self, data: DataConfig, seed: int, steps: int) -> None:
        super().__init__()
        self.config, self.seed = data, seed
        self.task = load_task(data)
        self.batches = TokenBudgetBatches(self.task.train, data.batch_tokens, data.length_buckets, seed, steps)

    def train_dataloader(self) -> DataLoader[Batch]:
        """``steps`` batches of type :class:`Batch`, from epoch 0 on."""
        return DataLoader(
            PairsDataset(self.task.train),
            batch_sampler=self.batches,  # type: ignore[arg-type]  # index arrays are as good as lists
            num_workers=self.config.loader_workers,
            collate_fn=_as_it_is,  # type: ignore[arg-type]  # __getitems__ returns the batch already
            # Nothing draws from it; without one a DataLoader seeds its workers from the global generator.
            generator=torch.Generator().manual_seed(stable_seed("loader", self.seed) >> 1),
        )
