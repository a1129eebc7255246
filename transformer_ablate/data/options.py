"""Options of tasks: what ``data.task_options`` may hold is what a task's constructor takes."""

from __future__ import annotations

import inspect
from typing import TypeVar

from transformer_ablate.config import DataConfig
from transformer_ablate.data.task import Task
from transformer_ablate.errors import ConfigError, unknown_name

T = TypeVar("T", bound=Task)


def configured(task: T, config: DataConfig) -> T:
    """A task of the same class, constructed with ``config.task_options``.

    Raises:
        ConfigError: for an option that the task does not have, or a value that it refuses.
    """
    known = list(inspect.signature(type(task)).parameters)
    for option in config.task_options:
        if option not in known:
            raise unknown_name(f"data.task_options of {config.task!r}", option, known or ["(it has none)"])
    return type(task)(**config.task_options)


def positive(option: str, value: int) -> int:
    """``value``, which must be an integer of at least 1.

    Raises:
        ConfigError: where it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"data.task_options.{option}", value, "an integer at least 1")
    return value
