"""The training loader, as Lightning wants it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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


class ResumableLoader(DataLoader[Batch]):
    """A loader of training batches whose place in the run is kept in checkpoints.

    ``state_dict`` and ``load_state_dict`` are Lightning's interface for that: a run that is resumed with ``ckpt_path``
    goes on with the batch after the last one that was trained on, and sees no example of an epoch twice.

    Args:
        pairs: the training examples.
        batches: the order.
        seed: of the loader processes' own generators, which nothing draws from.
        workers: loader processes; 0 loads in this one.
    """

    def __init__(self, pairs: Pairs, batches: TokenBudgetBatches, seed: int, workers: int) -> None:
        super().__init__(
            PairsDataset(pairs),
            batch_sampler=batches,  # type: ignore[arg-type]  # index arrays are as good as lists
            num_workers=workers,
            collate_fn=_as_it_is,  # type: ignore[arg-type]  # __getitems__ returns the batch already
            # Without a generator of its own a DataLoader draws its workers' seed from the global one.
            generator=torch.Generator().manual_seed(stable_seed("loader", seed) >> 1),
        )
        self.batches = batches
        self._done = 0

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]  # DataLoader promises a class that it keeps private
        """The run's batches, from where it stood; once more from there by another iteration."""
        self._done = 0
        for batch in super().__iter__():
            # Loader processes are ahead of training; what was handed out is what counts.
            self._done += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where the run stands."""
        return self.batches.state(self._done)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes to where a run stood.

        Raises:
            ConfigError: where that run had other data or another order.
        """
        self.batches.resume(state)
        self._done = 0


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

    def train_dataloader(self) -> ResumableLoader:
        """``steps`` batches of type :class:`Batch`, from epoch 0 on; one process's share where several train."""
        self.batches.start = 0
        if self.trainer is not None:
            self.batches.rank, self.batches.ranks = self.trainer.global_rank, self.trainer.world_size
        return ResumableLoader(self.task.train, self.batches, self.seed, self.config.loader_workers)
