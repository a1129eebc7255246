"""What tasks' constructors check of ``data.task_options``."""

from __future__ import annotations

from transformer_ablate.errors import ConfigError


def positive(option: str, value: int) -> int:
    """``value``, which must be an integer of at least 1.

    Raises:
        ConfigError: where it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"data.task_options.{option}", value, "an integer at least 1")
    return value
