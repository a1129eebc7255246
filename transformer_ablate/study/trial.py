"""A tiny real pass of each arm before anything is trained: a component that fails is named in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from transformer_ablate.config import ModelConfig, Recipe
from transformer_ablate.core import build_model
from transformer_ablate.data.task import TaskData
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import PLUGIN_CONTENTS, Registry
from transformer_ablate.training.step import losses, one_thread

# From here on one layer of each stack stands for all: they are alike, and a plan is to take seconds.
MOST_PARAMETERS = 3_000_000
TRIED_LENGTH = 8
ALLOWED = "a component with which a forward and a backward pass succeed and stay finite"


def parts(model: ModelConfig) -> tuple[Any, ...]:
    """All that a model is but its sizes: what one pass has shown need not be shown again at another width.

    Of a number it counts whether there is one: 0 turns a part off.
    """
    values = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return tuple((name, bool(v) if type(v) in (int, float) else repr(v)) for name, v in values.items())


@one_thread()
def try_out(arm: str, recipe: Recipe, task: TaskData, parameters: int) -> None:
    """One forward and backward pass of a short pair and a shorter one, in the recipe's own precision.

    Args:
        arm: named in the error.
        recipe: what is tried.
        task: where the two examples come from.
        parameters: of the whole model.

    Raises:
        ConfigError: where it raises, or the loss or a gradient is not finite or of another type than asked for; the
            field is that of the component at fault.
    """
    model = recipe.model
    if parameters > MOST_PARAMETERS:
        model = dataclasses.replace(model, encoder_layers=1, decoder_layers=1)
    lengths = task.train.source.lengths
    rows = np.array([np.argmin(lengths), np.argmin(np.abs(lengths - TRIED_LENGTH))])
    double, half = recipe.train.precision == "64-true", recipe.train.precision == "bf16-mixed"
    wanted = torch.float64 if double else torch.float32
    try:
        built = build_model(model, len(task.source_vocabulary), len(task.target_vocabulary), seed=0).to(wanted)
        with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
            loss = losses(built.train(), recipe.train, task.train.batch(rows))["loss"]
        loss.backward()
    except ConfigError:
        raise
    except Exception as error:
        field, name = _at_fault(recipe.model, (frame.f_globals.get("__name__") for frame, _ in
                                               traceback.walk_tb(error.__traceback__)))  # fmt: skip
        last = traceback.extract_tb(error.__traceback__)[-1]
        told = f"arm {arm!r}: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        raise ConfigError(field, name, ALLOWED, told) from error
    faults = [] if loss.dtype == wanted else [f"the loss is {loss.dtype}, not {wanted}"]
    named = built.named_parameters()
    odd = [name for name, p in named if p.grad is not None and not bool(torch.isfinite(p.grad).all())]
    if odd or not bool(torch.isfinite(loss)):
        faults.append(f"not finite: {', '.join(odd[:3]) or 'the loss'}")
    if faults:
        field, name = _at_fault(recipe.model, ())
        raise ConfigError(field, name, ALLOWED, f"arm {arm!r}: {'; '.join(faults)}")


def _at_fault(model: ModelConfig, modules: Iterable[str | None]) -> tuple[str, object]:
    """Field and name of the component whose module stands deepest in a traceback, else of a plugin's, else the model.

    What a component returns may fail in the layer that uses it; a user's own is then the likelier cause.
    """
    named = {}
    for field in dataclasses.fields(model):
        table = field.metadata["choices"]
        if isinstance(table, Registry):
            named[table[getattr(model, field.name)].__module__] = (table.field, getattr(model, field.name))
    # Built-in modules hold several components and the base classes of others': they say nothing by themselves.
    own = {module: place for module, place in named.items() if module in PLUGIN_CONTENTS}
    deepest = [own[module] for module in modules if module in own]
    return deepest[-1] if deepest else next(iter(own.values()), ("model.architecture", model.architecture))
