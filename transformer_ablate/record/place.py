"""Where the store is; without MLflow, which takes seconds to import."""

from __future__ import annotations

import os
from pathlib import Path

from transformer_ablate.paths import project_root


def default_uri() -> str:
    """``MLFLOW_TRACKING_URI`` as it is now, or the project's own SQLite file, which ``mlflow ui`` finds by itself."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{project_root() / 'mlflow.db'}"


def store_exists(uri: str | None) -> bool:
    """Whether there may be something to read, without making a database."""
    path = (uri or default_uri()).removeprefix("sqlite:///")
    return "://" in path or Path(path).is_file()
