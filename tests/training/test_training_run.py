"""Training through Lightning: rates, clipping, curves, data order, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim.optimizer import register_optimizer_step_post_hook

from transformer_ablate.config import Recipe
from transformer_ablate.core import build_model, derive_seed
from transformer_ablate.data import Batch, Seq2SeqDataModule
from transformer_ablate.measures.convergence import diverged
from transformer_ablate.registry import POSITIONS, SCHEDULES
from transformer_ablate.training.callbacks import CurveRecorder
from transformer_ablate.training.curve import COLUMNS, Curve
from transformer_ablate.training.losses import cross_entropy
from transformer_ablate.training.module import Seq2SeqModule
from transformer_ablate.training.optimizers import parameter_groups

SMALL: dict[str, Any] = {
    "model.d_model": 16,
    "model.n_heads": 2,
    "model.d_ff": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 5,
    "data.train_examples": 300,
    "data.valid_examples": 20,
    "data.test_examples": 20,
    "data.batch_tokens": 140,
    "train.max_steps": 6,
    "train.warmup_steps": 4,
}


def recipe(**delta: Any) -> Recipe:
    """A small recipe; ``model__position="rope"`` stands for ``{"model.position": "rope"}``."""
    return Recipe().replace({**SMALL, **{name.replace("__", "."): value for name, value in delta.items()}})


def fit(recipe: Recipe, folder: Path, *callbacks: Callback, module: Seq2SeqModule | None = None) -> Trainer:
    """Trains as a worker does."""
    data = Seq2SeqDataModule(recipe.data, recipe.train.seed, recipe.train.max_steps)
    sizes = len(data.task.source_vocabulary), len(data.task.target_vocabulary)
    module = Seq2SeqModule(recipe, *sizes) if module is None else module
    torch.manual_seed(derive_seed(recipe.train.seed, "dropout"))
    trainer = Trainer(
        max_steps=recipe.train.max_steps,
        accelerator="cpu",
        devices=1,
        precision=recipe.train.precision,  # type: ignore[arg-type]
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    trainer.fit(module, datamodule=data)
    return trainer


@contextmanager
def watching_steps(watch: Callable[[torch.optim.Optimizer], None]) -> Iterator[None]:
    """Calls ``watch`` at the end of every optimizer's step, while the rate and the gradients are those that it used."""
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: watch(optimizer))
    try:
        yield
    finally:
        handle.remove()


# Rates and clipping ----------------------------------------------------------------------------------------------


def used_rates(recipe: Recipe, folder: Path) -> list[float]:
    rates = []
    with watching_steps(lambda optimizer: rates.append({group["lr"] for group in optimizer.param_groups})):
        fit(recipe, folder)
    assert all(len(r) == 1 for r in rates)
    return [next(iter(r)) for r in rates]


def test_noam_rates_are_used_from_the_first_update_on(tmp_path: Path) -> None:
    wide = {"model__d_model": 512, "model__n_heads": 1, "model__d_ff": 8}
    noam = {"train__schedule": "noam", "train__lr": 1.0, "train__warmup_steps": 4000, "train__max_steps": 3}
    rates = used_rates(recipe(**wide, **noam), tmp_path)
    assert rates == pytest.approx([1.746928107e-7, 3.493856215e-7, 3 * 1.746928107e-7], rel=1e-8)


@pytest.mark.parametrize("schedule", SCHEDULES.names())
def test_every_update_uses_the_rate_of_its_number(schedule: str, tmp_path: Path) -> None:
    r = recipe(train__schedule=schedule)
    expected = [SCHEDULES[schedule](s, r.train, 16) for s in range(1, 7)]
    assert used_rates(r, tmp_path) == pytest.approx(expected, rel=1e-12)


def test_warmup_counts_updates_through_epochs(tmp_path: Path) -> None:
    # Counted in epochs the rate would hardly have risen: 14 updates are more than one epoch of 20 examples.
    r = recipe(data__train_examples=20, train__warmup_steps=12, train__max_steps=14, train__schedule="constant")
    rates = used_rates(r, tmp_path)
    assert rates[11] == rates[13] == r.train.lr
    assert rates[10] < r.train.lr


@pytest.mark.parametrize("limit", [0.0, 0.05, 1e9])
def test_clipping(limit: float, tmp_path: Path) -> None:
    norms = []

    def norm(optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(math.sqrt(sum(float(g.double().square().sum()) for g in gradients)))

    recorder = CurveRecorder(every=3)
    with watching_steps(norm):
        fit(recipe(train__clip_norm=limit), tmp_path, recorder)
    before = recorder.curve.columns["grad_norm"]
    assert min(before) > 0.05
    expected = [min(n, limit) for n in before] if limit else before
    assert norms == pytest.approx(expected, rel=1e-4)


def test_only_matrices_of_linear_maps_decay() -> None:
    model = build_model(recipe(model__position="learned", model__tying="none").model, 12, 12, 0)
    decayed, kept = parameter_groups(model, 0.3)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    inside = {names[id(p)] for p in decayed["params"]}  # type: ignore[attr-defined]
    outside = {names[id(p)] for p in kept["params"]}  # type: ignore[attr-defined]
    assert inside | outside == set(names.values())
    assert not inside & outside
    maps = (".qkv.weight", ".q.weight", ".kv.weight", ".out.weight", ".up.weight", ".down.weight")
    assert inside == {name for name in names.values() if name.endswith(maps)}
    assert len(inside) == 4 + 7


def test_adam_is_the_papers() -> None:
    r = recipe(train__beta1=0.8, train__beta2=0.95, train__weight_decay=0.1)
    configured = Seq2SeqModule(r, 20, 20).configure_optimizers()
    optimizer = configured["optimizer"]
    assert isinstance(optimizer, torch.optim.AdamW)
    assert {(*group["betas"], group["eps"]) for group in optimizer.param_groups} == {(0.8, 0.95, 1e-9)}


# The loss --------------------------------------------------------------------------------------------------------


def test_smoothing_changes_the_loss_and_not_the_reported_nll() -> None:
    batch = Seq2SeqDataModule(recipe().data, 0, 1).task.train.batch(range(10))
    steps = {
        a: Seq2SeqModule(recipe(train__label_smoothing=a), 20, 20).training_step(batch, 0) for a in (0.0, 0.1, 0.2)
    }
    assert len({float(step["nll"]) for step in steps.values()}) == 1
    assert len({float(step["loss"].detach()) for step in steps.values()}) == 3
    assert float(steps[0.0]["loss"].detach()) == float(steps[0.0]["nll"])
    assert not steps[0.1]["nll"].requires_grad


def test_targets_are_shifted_once() -> None:
    batch = Batch(torch.tensor([[1, 7, 8, 2]]), torch.tensor([[1, 7, 8, 2, 0]]), torch.tensor([0]))
    module = Seq2SeqModule(recipe(), 20, 20)
    with torch.no_grad():
        logits = module.model(batch.source, torch.tensor([[1, 7, 8]]))
        nll = -logits.log_softmax(-1)[0, [0, 1, 2], [7, 8, 2]].mean()  # n + 1 scored tokens, EOS among them
        assert module.training_step(batch, 0)["loss"].item() == pytest.approx(nll.item(), rel=1e-6)


# Curves ----------------------------------------------------------------------------------------------------------


class Batches(Callback):
    """Keeps what was trained on, and the global generator's state before the first batch."""

    def __init__(self) -> None:
        self.indices: list[list[int]] = []
        self.tokens: list[int] = []
        self.generator: list[torch.Tensor] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        if not self.indices:
            self.generator.append(torch.get_rng_state())
        self.indices.append(batch.indices.tolist())
        self.tokens.append(int((batch.target != 0).sum()) - len(batch.target))


def test_curve_holds_every_update(tmp_path: Path) -> None:
    r, seen, reports = recipe(train__max_steps=7), Batches(), []
    recorder = CurveRecorder(every=3, report=lambda step, loss: reports.append((step, loss)))
    fit(r, tmp_path, seen, recorder)
    columns = recorder.curve.columns
    assert set(columns) == set(COLUMNS)
    assert {len(values) for values in columns.values()} == {7} == {len(recorder.curve)}
    assert columns["step"] == [1, 2, 3, 4, 5, 6, 7]
    assert columns["lr"] == pytest.approx([SCHEDULES["linear"](s, r.train, 16) for s in range(1, 8)], rel=1e-12)
    assert columns["tokens"] == np.cumsum(seen.tokens).tolist()
    assert columns["seconds"] == sorted(columns["seconds"])
    assert columns["seconds"][0] > 0
    assert reports == [(n, columns["nll"][n - 1]) for n in (3, 6, 7)]


def test_first_point_is_the_loss_and_the_gradient_before_any_update(tmp_path: Path) -> None:
    r, seen = recipe(train__label_smoothing=0.2, train__max_steps=1, train__clip_norm=0.01), Batches()
    recorder = CurveRecorder(every=1)
    fit(r, tmp_path, seen, recorder)
    model = build_model(r.model, 20, 20, r.train.seed)
    batch = Seq2SeqDataModule(r.data, 0, 1).task.train.batch(seen.indices[0])
    logits = model(batch.source, batch.target[:, :-1])
    assert recorder.curve.columns["nll"] == pytest.approx([cross_entropy(logits, batch.target[:, 1:]).item()], rel=1e-5)
    cross_entropy(logits, batch.target[:, 1:], 0.2).backward()
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters()))  # type: ignore[union-attr]
    assert recorder.curve.columns["grad_norm"] == pytest.approx([norm], rel=1e-4)


def test_what_the_report_raises_ends_the_run(tmp_path: Path) -> None:
    def report(step: int, loss: float) -> None:
        raise BrokenPipeError(str(step))

    with pytest.raises(BrokenPipeError, match=r"^2$"):
        fit(recipe(), tmp_path, CurveRecorder(every=2, report=report))


class Poison(Callback):
    """Spoils the model after some updates."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Batch, batch_idx: int) -> None:
        if trainer.global_step == self.after:
            with torch.no_grad():
                next(pl_module.parameters()).fill_(torch.nan)


def test_a_loss_that_is_no_number_ends_the_run_as_diverged(tmp_path: Path) -> None:
    recorder = CurveRecorder(every=2)
    trainer = fit(recipe(train__max_steps=30), tmp_path, Poison(after=4), recorder)
    nll = recorder.curve.columns["nll"]
    assert trainer.global_step == len(nll) == 6  # found out at the next report
    assert [math.isnan(v) for v in nll] == [False] * 4 + [True] * 2
    assert {len(values) for values in recorder.curve.columns.values()} == {6}
    assert diverged(nll, 20)
    assert not diverged([*nll[:4], *[0.1] * 60], 20)


def test_a_rate_far_too_high_counts_as_diverged(tmp_path: Path) -> None:
    recorder = CurveRecorder(every=5)
    fit(recipe(train__lr=1e4, train__warmup_steps=0, train__max_steps=100), tmp_path, recorder)
    assert diverged(recorder.curve.columns["nll"], 20)


def test_thinning_keeps_the_ends() -> None:
    curve = Curve()
    for name in COLUMNS:
        curve.columns[name] = [float(i) for i in range(1, 24)]
    assert curve.thinned(10)["step"] == [1, 10, 20, 23]
    assert curve.thinned(10)["nll"] == [1, 10, 20, 23]
    assert curve.thinned(1)["step"] == curve.columns["step"]
    assert curve.thinned(23)["step"] == [1, 23]
    assert Curve().thinned(10) == {name: [] for name in COLUMNS}


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions_train(precision: str, tmp_path: Path) -> None:
    losses = {}
    for name in ("32-true", precision):
        recorder = CurveRecorder(every=10)
        fit(recipe(train__precision=name, train__max_steps=5), tmp_path, recorder)
        losses[name] = recorder.curve.columns["nll"]
    assert losses[precision] == pytest.approx(losses["32-true"], rel=2e-2 if precision == "bf16-mixed" else 1e-3)
    assert losses[precision] != losses["32-true"]


# The order of data and the stream of dropout ---------------------------------------------------------------------

VARIANTS: list[dict[str, Any]] = [
    {},
    {"model__position": "learned", "model__tying": "all"},
    {"model__position": "rope", "model__cross_position": "rotary", "model__norm_placement": "post"},
    {"model__encoder_layers": 3, "model__d_model": 32, "model__tying": "none", "train__schedule": "noam"},
]


def test_variants_of_a_seed_see_the_same_batches_and_the_same_dropout_stream(tmp_path: Path) -> None:
    runs = []
    for delta in VARIANTS:
        torch.manual_seed(len(runs))  # whatever went before
        seen = Batches()
        fit(recipe(**delta, model__dropout=0.1, train__max_steps=3), tmp_path, seen)
        runs.append(seen)
    assert all(len(run.indices) == 3 for run in runs)
    assert all(run.indices == runs[0].indices for run in runs)
    # Nothing but dropout draws from the global generator, so every variant begins where its seed put it.
    start = torch.manual_seed(derive_seed(0, "dropout")).get_state()
    assert all(torch.equal(run.generator[0], start) for run in runs)
    other = Batches()
    fit(recipe(train__seed=1, train__max_steps=3), tmp_path, other)
    assert other.indices != runs[0].indices
    assert not torch.equal(other.generator[0], runs[0].generator[0])


def test_a_run_can_be_repeated_and_seeds_differ_from_the_first_loss_on(tmp_path: Path) -> None:
    def losses(seed: int) -> list[float]:
        recorder = CurveRecorder(every=10)
        fit(recipe(train__seed=seed, model__dropout=0.2), tmp_path, recorder)
        return recorder.curve.columns["nll"]

    first = losses(0)
    assert losses(0) == first
    assert len({first[0], losses(1)[0], losses(2)[0]}) == 3


# Checkpoints -----------------------------------------------------------------------------------------------------

LOADED = """
import json, sys, torch
torch.set_num_threads(1)
from transformer_ablate.training.module import Seq2SeqModule
results = {}
for path in sys.argv[1:]:
    module = Seq2SeqModule.load_from_checkpoint(path).eval()
    batch = torch.load(path + ".batch")
    with torch.no_grad():
        loss = module.training_step(type("B", (), batch), 0)["nll"].item()
    results[path] = [loss, module.recipe.fingerprint("d")]
print(json.dumps(results))
"""


def test_checkpoints_load_in_a_fresh_process_with_the_same_loss(tmp_path: Path) -> None:
    deltas: list[dict[str, Any]] = [{"model__position": name} for name in POSITIONS.names()]
    deltas += [{"model__tying": t} for t in ("none", "encoder-decoder", "all")]
    deltas += [
        {"model__position": "rope", "model__position_options": {"layout": "half", "base": 100.0}},
        {"model__cross_position": "rotary", "model__norm_placement": "post", "model__logit_scale": "rsqrt_d"},
    ]
    expected = {}
    for i, delta in enumerate(deltas):
        r = recipe(**delta, train__max_steps=2)
        module = Seq2SeqModule(r, 20, 20)
        trainer = fit(r, tmp_path, module=module)
        path = tmp_path / f"{i}.ckpt"
        trainer.save_checkpoint(path, weights_only=True)
        batch = Seq2SeqDataModule(r.data, 0, 1).task.train.batch(range(12))
        torch.save({"source": batch.source, "target": batch.target}, f"{path}.batch")
        with torch.no_grad():
            loss = module.eval().training_step(batch, 0)["nll"].item()
        expected[str(path)] = [pytest.approx(loss, rel=1e-6), r.fingerprint("d")]
    command = [sys.executable, "-c", LOADED, *expected]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == expected


def test_checkpoint_holds_plain_values_and_each_matrix_once(tmp_path: Path) -> None:
    sizes = {}
    for tying in ("none", "decoder", "all"):
        r = recipe(model__tying=tying, data__vocab_size=2000, train__max_steps=1)
        trainer = fit(r, tmp_path)
        path = tmp_path / f"{tying}.ckpt"
        trainer.save_checkpoint(path, weights_only=True)
        sizes[tying] = path.stat().st_size
        held = torch.load(path, weights_only=True)["hyper_parameters"]
        assert json.loads(json.dumps(dict(held))) == {"recipe": r.to_dict(), "source_size": 2004, "target_size": 2004}
    matrix = 2004 * 16 * 4
    assert sizes["none"] - sizes["decoder"] == pytest.approx(matrix, rel=0.02)
    assert sizes["none"] - sizes["all"] == pytest.approx(2 * matrix, rel=0.02)


def test_module_takes_a_recipe_or_its_dictionary() -> None:
    r = recipe(model__position_options={"base": 100.0})
    one, other = Seq2SeqModule(r, 20, 20), Seq2SeqModule(r.to_dict(), 20, 20)
    assert one.recipe == other.recipe == r
    assert dataclasses.asdict(r) == one.hparams["recipe"]
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
