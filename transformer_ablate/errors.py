"""The one exception a user's mistake raises: it becomes one line on the terminal and exit status 2."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from types import TracebackType


class ConfigError(ValueError):
    """A setting that cannot be run.

    Args:
        field: dotted name as typed on the command line, e.g. ``model.n_heads``.
        value: what was given.
        allowed: what would be accepted, in words.
        fix: what to type instead; left out where ``allowed`` already says it.
    """

    def __init__(self, field: str, value: object, allowed: str, fix: str = "") -> None:
        self.field, self.value, self.allowed, self.fix = field, value, allowed, fix
        tail = f"; {fix}" if fix else ""
        super().__init__(" ".join(f"{field}: got {value!r}, allowed: {allowed}{tail}".split()))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, object, str, str]]:
        return type(self), (self.field, self.value, self.allowed, self.fix)


def unknown_name(field: str, value: object, names: Iterable[str]) -> ConfigError:
    """The error for a name that is not one of ``names``, with the nearest name as the suggested fix."""
    known = list(names)
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    return ConfigError(field, value, ", ".join(known), f"did you mean {near[0]!r}?" if near else "")


def tell_in_one_line() -> None:
    """From now on a ConfigError that nothing catches ends the process with one line and status 2.

    A study checks itself where its file declares it, which is before a command line is there to catch anything.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, ConfigError):
            return before(kind, error, trace)
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)  # the interpreter takes the status from here

    sys.excepthook = hook
