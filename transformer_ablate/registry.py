"""Names to classes: the one place where a string in a recipe becomes a component.

A component registers itself with a decorator; nothing else in the code base ever compares a component's name. A user's
plugin file registers in the same way and then stands beside the built-in ones.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from transformer_ablate.errors import unknown_name

T = TypeVar("T")

# Module name to a hash of the content of each plugin's file (see ``transformer_ablate.plugins``).
PLUGIN_CONTENTS: dict[str, str] = {}


class Registry(Generic[T]):
    """A named table of components of one kind.

    Args:
        field: the recipe field whose values are the names, e.g. ``model.position``; errors quote it.
        home: package whose import registers the built-in components. It is imported at the first look-up, so that a
            recipe can be checked without paying for components that it does not use.
    """

    def __init__(self, field: str, home: str) -> None:
        self.field = field
        self._home = home
        self._table: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that enters a component under ``name``; a second component of that name is an error."""

        def enter(component: T) -> T:
            if name in self._table and self._table[name] is not component:
                raise ValueError(f"{self.field}: {name!r} is registered already, by {self._table[name]!r}")
            self._table[name] = component
            return component

        return enter

    def names(self) -> tuple[str, ...]:
        """All registered names, in order of registration."""
        importlib.import_module(self._home)
        return tuple(self._table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __getitem__(self, name: str) -> T:
        names = self.names()
        if name not in self._table:
            raise unknown_name(self.field, name, names)
        return self._table[name]

    def check_options(self, name: str, options: Mapping[str, Any], given: tuple[str, ...]) -> None:
        """Holds the names in a recipe's ``…_options`` against the component's own parameters.

        Args:
            name: a registered name.
            options: what the recipe gives.
            given: parameters that do not come from the recipe.

        Raises:
            ConfigError: for an option that the component does not have.
        """
        component: Any = self[name]
        known = [parameter for parameter in inspect.signature(component).parameters if parameter not in given]
        for option in options:
            if option not in known:
                raise unknown_name(f"{self.field}_options of {name!r}", option, known or ["(it has none)"])

    def version(self, name: str) -> int | str:
        """The component's ``version``: raised by its author when its results change; part of every fingerprint.

        A plugin's component carries its file's content besides, since a file that is being worked on changes often.
        """
        component: Any = self[name]
        version = int(getattr(component, "version", 1))
        content = PLUGIN_CONTENTS.get(getattr(component, "__module__", ""))
        return version if content is None else f"{version}+{content}"


ARCHITECTURES: Registry = Registry("model.architecture", "transformer_ablate.core")
POSITIONS: Registry = Registry("model.position", "transformer_ablate.core.positions")
CROSS_POSITIONS: Registry = Registry("model.cross_position", "transformer_ablate.core.positions")
FEED_FORWARDS: Registry = Registry("model.ffn", "transformer_ablate.core")
NORMS: Registry = Registry("model.norm", "transformer_ablate.core")
NORM_PLACEMENTS: Registry = Registry("model.norm_placement", "transformer_ablate.core")
TASKS: Registry = Registry("data.task", "transformer_ablate.data")
SCHEDULES: Registry = Registry("train.schedule", "transformer_ablate.training")
OPTIMIZERS: Registry = Registry("train.optimizer", "transformer_ablate.training")
