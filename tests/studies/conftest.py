"""A study small enough to be run for real in every test, and a store of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_ablate.record.store import Store
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant

TINY = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "data.max_length": 5,
    "data.train_examples": 400,
    "data.valid_examples": 20,
    "data.test_examples": 20,
    "data.batch_tokens": 224,
    "train.max_steps": 6,
    "train.warmup_steps": 2,
    "train.log_every": 2,
}


def tiny_study(name: str = "tiny", tasks: tuple[str, ...] = ("copy",)) -> Study:
    """Two arms on small synthetic cells."""
    return Study(
        name=name,
        question="Does the machinery work?",
        cells=tuple(Cell(task, "synthetic", {**TINY, "data.task": task}, "em", task) for task in tasks),
        variants=(
            Variant("sinusoidal", {"model.position": "sinusoidal"}),
            Variant("rope", {"model.position": "rope"}),
            Variant("none", {"model.position": "none"}, level="claims"),
        ),
        contrasts=(Contrast("rope", "sinusoidal", "copy/em/1.25"),),
    )


@pytest.fixture
def make_tiny_study() -> Callable[..., Study]:
    return tiny_study


@pytest.fixture
def study() -> Study:
    return tiny_study()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables and nothing in them: MLflow takes seconds to make one."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    Store(f"sqlite:///{path}").client.search_experiments()
    return path


@pytest.fixture
def fresh_uri(tmp_path: Path) -> str:
    """A store that is not there yet."""
    return f"sqlite:///{tmp_path / 'store' / 'mlflow.db'}"


@pytest.fixture
def uri(fresh_uri: str, empty_database: Path) -> str:
    """A store with nothing in it."""
    path = Path(fresh_uri.removeprefix("sqlite:///"))
    path.parent.mkdir()
    shutil.copy(empty_database, path)
    return fresh_uri


@pytest.fixture
def store(uri: str) -> Store:
    return Store(uri)
