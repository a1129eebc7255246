"""Where things are kept."""

from __future__ import annotations

import hashlib
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


def source_hash() -> str:
    """12 hex digits of all source that can change a run's result: core, data, training, measures, recipes, worker."""
    package = Path(__file__).resolve().parent
    folders = [package / name for name in ("core", "data", "training", "measures")]
    files = [package / "study" / "recipes.py", package / "run" / "worker.py"]
    files += [file for folder in folders for file in folder.rglob("*.py")]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
