"""One run in a process of its own: data, model, training, measures, record."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from transformer_ablate.core import derive_seed
from transformer_ablate.data.datamodule import Seq2SeqDataModule
from transformer_ablate.measures import MEASURES, Evaluation
from transformer_ablate.studies.plan import Job
from transformer_ablate.studies.tracking import RunResult, Store, StoreError
from transformer_ablate.training.callbacks import CurveRecorder
from transformer_ablate.training.module import Seq2SeqModule

SECONDS_BETWEEN_LOGS = 10.0
SECONDS_BETWEEN_REPORTS = 0.25
EXAMPLES_A_TEST_SET = 3
CHECKPOINT = "model.ckpt"


def execute(job: Job, report: Callable[[int, float], None]) -> None:
    """Trains, measures and records one run in this process.

    Args:
        job: what to do.
        report: called now and then with (update, loss); what it raises ends the run.
    """
    quiet()
    recipe = job.planned.recipe
    store = Store(job.tracking_uri)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # averages of gradients that have died away would take many times as long
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    task = data.task
    module = Seq2SeqModule(recipe, len(task.source_vocabulary), len(task.target_vocabulary))
    recorder: CurveRecorder
    logged, last_log, last_report = 0, time.monotonic(), 0.0

    def watch(step: int, loss: float) -> None:
        nonlocal logged, last_log, last_report
        now = time.monotonic()
        if now - last_report > SECONDS_BETWEEN_REPORTS:
            report(step, loss)
            last_report = now
        if now - last_log > SECONDS_BETWEEN_LOGS:
            last_log = now
            with contextlib.suppress(StoreError):  # a store that is busy now gets these points the next time
                logged = log_new_points(logged)

    def log_new_points(start: int) -> int:
        thin = recorder.curve.thinned(recipe.train.log_every)
        points = {name: values[start:] for name, values in thin.items()}
        store.log_curve(job.run_id, points)
        return start + len(points["step"])

    recorder = CurveRecorder(recipe.train.log_every, watch)
    # Dropout alone draws from the global generator: initial values and data order have generators of their own.
    torch.manual_seed(derive_seed(recipe.train.seed, "dropout"))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            max_steps=recipe.train.max_steps,
            accelerator=job.accelerator,
            devices=job.devices,
            precision=recipe.train.precision,  # type: ignore[arg-type]
            callbacks=[recorder],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            default_root_dir=folder,
        )
        trainer.fit(module, datamodule=data)
        device = trainer.strategy.root_device  # Lightning takes the model back to the CPU when it is through
        checkpoint = Path(folder) / CHECKPOINT
        trainer.save_checkpoint(checkpoint, weights_only=True)
        evaluation = Evaluation(module.model.to(device), task, recipe, recorder.curve)
        measured = [measure.measure(evaluation) for measure in MEASURES]
        log_new_points(logged)
        predictions = [row for m in measured for row in m.artifacts.get("predictions", ())]
        shown = []
        for test in task.test:
            shown += [row for row in predictions if row["bucket"] == test.name][:EXAMPLES_A_TEST_SET]
        result = RunResult(
            metrics={
                **{name: float(value) for m in measured for name, value in m.metrics.items()},
                "padding_share": data.batches.padding_share(),
            },
            curve=recorder.curve.thinned(recipe.train.log_every),
            test_sets=[(test.name, test.ratio, len(test)) for test in task.test],
            examples=shown,
            artifacts={
                **{name: table for m in measured for name, table in m.artifacts.items()},
                "training_lengths": [
                    {"source_tokens": length, "examples": n}
                    for length, n in task.train.source.length_histogram().items()
                ],
            },
        )
        store.finish_run(job.run_id, result, {CHECKPOINT: checkpoint})


def main(job: Job, connection: Connection) -> None:
    """Entry of a worker process. Sends ``("progress", step, loss)``, then ``("done",)`` or ``("failed", traceback)``.

    The parent alone decides about Ctrl-C, which a terminal sends to all processes at once. When the parent is gone the
    pipe breaks and the run ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        execute(job, lambda step, loss: connection.send(("progress", step, loss)))
        message: tuple[object, ...] = ("done",)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)
    except SystemExit:
        os._exit(
            128 + signal.SIGTERM
        )  # Lightning answers SIGTERM by an exit without a status, which would read as success
    except BaseException:
        message = ("failed", traceback.format_exc())
    connection.send(message)
    connection.close()
    sys.stdout.flush()
    os._exit(0)  # nothing is left to do, and libraries' exit handlers may hang


def quiet() -> None:
    """Silences what libraries say for people who run them by hand; errors still come through."""
    for name in ("lightning.pytorch", "lightning.fabric", "mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
