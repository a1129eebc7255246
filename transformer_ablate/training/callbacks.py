"""What is watched while a run trains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from transformer_ablate.data.examples import Batch
from transformer_ablate.tokens import PAD
from transformer_ablate.training.curve import Curve
from transformer_ablate.training.module import Seq2SeqModule


class CurveRecorder(Callback):
    """Fills a :class:`Curve` and tells the outside how training goes.

    Values stay on the device until ``every`` updates are through, so that a GPU is not made to wait at each.

    Args:
        every: updates between two reports.
        report: called with (update, loss) then; it may raise to end the run.
    """

    def __init__(self, every: int, report: Callable[[int, float], None] | None = None) -> None:
        self.curve = Curve()
        self._every, self._report = every, report
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._tokens = 0
        self._began = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._began = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        self.curve.columns["lr"].append(float(optimizer.param_groups[0]["lr"]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        scored = (batch.target[:, 1:] != PAD).sum()
        self._waiting.append((outputs["nll"], pl_module.gradient_norm, scored))
        columns = self.curve.columns
        columns["step"].append(float(trainer.global_step))
        columns["seconds"].append(time.perf_counter() - self._began)
        if len(self._waiting) >= self._every:
            self._flush(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._flush(trainer)

    def _flush(self, trainer: Trainer) -> None:
        if not self._waiting:
            return
        for nll, norm, scored in self._waiting:
            self._tokens += int(scored)
            self.curve.columns["nll"].append(float(nll))
            self.curve.columns["grad_norm"].append(float(norm))
            self.curve.columns["tokens"].append(float(self._tokens))
        self._waiting.clear()
        loss = self.curve.columns["nll"][-1]
        if self._report is not None:
            self._report(len(self.curve.columns["nll"]), loss)
        # A run whose loss is no number any more cannot recover: it ends here and is counted as diverged.
        trainer.should_stop = trainer.should_stop or not math.isfinite(loss)
