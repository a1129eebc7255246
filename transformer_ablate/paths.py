"""Where things are kept."""

from __future__ import annotations

import os
from pathlib import Path


def project_root() -> Path:
    """The checkout that this package stands in; the current directory for an installed package without one."""
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def cache_directory() -> Path:
    """Where things are kept that can be made again: ``transformer-ablate`` in ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    # The XDG specification has relative paths ignored.
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "transformer-ablate"
