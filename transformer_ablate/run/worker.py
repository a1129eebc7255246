"""One run in a process of its own: data, model, training, measures, record."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from lightning.pytorch import Trainer

from transformer_ablate.core import derive_seed
from transformer_ablate.data.datamodule import Seq2SeqDataModule
from transformer_ablate.lock import machine_lock
from transformer_ablate.measures import MEASURES, Evaluation, Measured
from transformer_ablate.record.reading import CHECKPOINT
from transformer_ablate.record.records import Result
from transformer_ablate.record.store import Store, StoreError
from transformer_ablate.run.launchers import Job
from transformer_ablate.training.callbacks import CurveRecorder
from transformer_ablate.training.curve import Curve
from transformer_ablate.training.module import Seq2SeqModule

SECONDS_BETWEEN_LOGS = 10.0
SECONDS_BETWEEN_REPORTS = 0.25
EXAMPLES_IN_DISTRIBUTION, EXAMPLES_ELSEWHERE = 10, 3


def execute(job: Job, report: Callable[[int, float], None]) -> None:
    """Trains, measures and records one run in this process; or only measures what another one has trained.

    Args:
        job: what to do.
        report: called now and then with (update, loss); what it raises ends the run.

    Raises:
        RuntimeError: where the data are not those that were planned.
    """
    quiet()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # averages of gradients that have died away would take many times as long
    planned, store = job.planned, Store(job.tracking_uri)
    recipe = planned.recipe
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    task = data.task
    if task.content_hash != planned.data_hash:
        raise RuntimeError(f"the data of {recipe.data.task!r} have changed since the plan was made: plan again")
    module = Seq2SeqModule(recipe, len(task.source_vocabulary), len(task.target_vocabulary))
    # What times things takes the machine to itself; until then it waits for runs like this one, of any sweep.
    beside_others = contextlib.nullcontext() if planned.exclusive else machine_lock(exclusive=False)
    with beside_others, tempfile.TemporaryDirectory() as folder:
        if job.checkpoint is not None:
            state = torch.load(job.checkpoint, map_location="cpu", weights_only=True)["state_dict"]
            module.load_state_dict(state)
            module.to("cuda" if job.accelerator == "gpu" else "cpu")
            curve = Curve({name: list(values) for name, values in job.curve.items()})
        else:
            made = Path(folder) / CHECKPOINT
            curve = _train(job, module, data, store, report, made)
        evaluation = Evaluation(module.model, task, recipe, curve)
        measured = [MEASURES[name].measure(evaluation) for name in planned.measures]
        result = _result(job, data, measured, curve)
        if job.checkpoint is not None:
            store.extend_run(job.run_id, result)
        else:
            store.finish_run(job.run_id, result, {CHECKPOINT: made})


def _train(
    job: Job,
    module: Seq2SeqModule,
    data: Seq2SeqDataModule,
    store: Store,
    report: Callable[[int, float], None],
    checkpoint: Path,
) -> Curve:
    """Trains ``module``, leaves it on its device, writes the checkpoint; returns the curve, which is logged as well."""
    train = job.planned.recipe.train
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
        thin = recorder.curve.thinned(train.log_every)
        points = {name: values[start:] for name, values in thin.items()}
        store.log_curve(job.run_id, points)
        return start + len(points["step"])

    recorder = CurveRecorder(train.log_every, watch)
    # Dropout alone draws from the global generator: initial values and data order have generators of their own.
    torch.manual_seed(derive_seed(train.seed, "dropout"))
    trainer = Trainer(
        max_steps=train.max_steps,
        accelerator=job.accelerator,
        devices=1,
        precision=train.precision,  # type: ignore[arg-type]
        callbacks=[recorder],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=checkpoint.parent,
    )
    trainer.fit(module, datamodule=data)
    device = trainer.strategy.root_device  # Lightning takes the model back to the CPU when it is through
    trainer.save_checkpoint(checkpoint, weights_only=True)
    module.to(device)
    log_new_points(logged)
    return recorder.curve


def _result(job: Job, data: Seq2SeqDataModule, measured: Sequence[Measured], curve: Curve) -> Result:
    task, train = data.task, job.planned.recipe.train
    predictions = [row for m in measured for row in m.artifacts.get("predictions", ())]
    lengths = task.train.source.length_histogram()
    return Result(
        metrics={
            **{name: float(value) for m in measured for name, value in m.metrics.items()},
            "padding_share": data.batches.padding_share(),
        },
        curve=curve.thinned(train.log_every) if len(curve) else curve.columns,
        test_sets=[(test.name, test.ratio, len(test)) for test in task.test],
        examples=_drawn(predictions, [test.name for test in task.test], train.seed),
        tables={
            **{name: table for m in measured for name, table in m.artifacts.items()},
            "training_lengths": [{"source_tokens": length, "examples": n} for length, n in lengths.items()],
        },
        measures=job.planned.measures,
        text_scores=[row for m in measured for row in m.artifacts.get("text_scores", ())],
        data_notes=task.notes,
    )


def _drawn(predictions: Sequence[Mapping[str, object]], tests: Sequence[str], seed: int) -> list[Mapping[str, object]]:
    """Examples of each test set to show, drawn at random: ten in distribution, three past it."""
    chance, shown = random.Random(seed), []
    for i, name in enumerate(tests):
        rows = [row for row in predictions if row["bucket"] == name]
        shown += chance.sample(rows, min(len(rows), EXAMPLES_IN_DISTRIBUTION if i == 0 else EXAMPLES_ELSEWHERE))
    return shown


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
