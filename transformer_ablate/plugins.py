"""A user's own file: components and tasks that register themselves, and arms that stand beside the built-in ones.

A plugin is a Python file named on the command line. Importing it registers what its decorators name, e.g.
``@registry.POSITIONS.register("mine")``; a tuple ``VARIANTS`` in it holds arms (``Variant``) for the studies that are
run. Worker processes import it too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType

from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import PLUGIN_CONTENTS

# Absolute paths of the plugins of this process, for those that it starts.
VARIABLE = "TRANSFORMER_ABLATE_PLUGINS"


def load_plugin(file: str) -> ModuleType:
    """Imports a plugin, once, and remembers it for worker processes.

    Raises:
        ConfigError: where there is no such file, or it cannot be imported.
    """
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError("--plugin", file, "a Python file (.py) that exists")
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    name = f"transformer_ablate_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    PLUGIN_CONTENTS[name] = content
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name], PLUGIN_CONTENTS[name]
        if isinstance(error, ConfigError):  # of a study in it, say, which tells best itself
            raise
        line = next(
            (f" (line {t.tb_lineno})" for t in _frames(error) if t.tb_frame.f_code.co_filename == str(path)), ""
        )
        told = f"{type(error).__name__}: {error}{line}"
        raise ConfigError("--plugin", file, "a Python file that can be imported", told) from error
    known = [known for known in os.environ.get(VARIABLE, "").split(os.pathsep) if known]
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*known, str(path)]))
    return module


def load_inherited() -> None:
    """Imports the plugins of the process that started this one."""
    for file in os.environ.get(VARIABLE, "").split(os.pathsep):
        if file:
            load_plugin(file)


def _frames(error: BaseException) -> Iterator[TracebackType]:
    """Traceback entries, the innermost first."""
    entries: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    return reversed(entries)
