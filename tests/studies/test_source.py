"""The hash of the source: it changes with what decides a result, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from transformer_ablate.record.source import BESIDE, DECIDING, PACKAGE, source_hash


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The library's source in a place of its own."""
    return shutil.copytree(PACKAGE, tmp_path / "library", ignore=shutil.ignore_patterns("__pycache__"))


def hash_with(copy: Path, file: str, old: str, new: str) -> str:
    """The hash with ``old`` replaced in a file; with ``new`` at its end where ``old`` is empty."""
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new) if old else text + new)
    return source_hash.__wrapped__(copy)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("config.py", '"width of the residual stream"', '"channels"'),
        ("config.py", '"""Width of one head, resolved."""', '"""Its width."""'),
        ("config.py", "# A NaN fails", "# It fails"),
        ("core/attention.py", "", '# why\n"""More about it."""\n'),
        ("study/recipes.py", "", "NEW = 1\n"),  # recipes stand in the fingerprint
        ("cli/corpus.py", "", "NEW = 1\n"),
        ("measures/exact/base.py", "", "NEW = 1\n"),
        ("report/render.py", "", "NEW = 1\n"),
    ],
)
def test_what_only_tells_or_is_told_elsewhere_does_not_count(copy: Path, file: str, old: str, new: str) -> None:
    assert hash_with(copy, file, old, new) == source_hash()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("config.py", "self.d_model // self.n_heads", "self.d_model // self.n_heads + 1"),
        ("config.py", 'd_model: int = option(64, "', 'd_model: int = option(65, "'),
        ("config.py", 'the residual stream", at_least=1', 'the residual stream", at_least=2'),
        ("core/baselines/cells.py", "", "NEW = 1\n"),
        ("data/batching.py", "", "NEW = 1\n"),
        ("training/schedules.py", "", "NEW = 1\n"),
        ("measures/quality.py", "", "NEW = 1\n"),
        ("tokens.py", "", "NEW = 1\n"),
        ("run/worker.py", "10, 3", "10, 4"),
    ],
)
def test_what_decides_a_result_counts(copy: Path, file: str, old: str, new: str) -> None:
    assert hash_with(copy, file, old, new) != source_hash()


def test_a_file_of_another_name_counts(copy: Path) -> None:
    (copy / "core" / "linear.py").rename(copy / "core" / "linear_maps.py")
    assert source_hash.__wrapped__(copy) != source_hash()


def test_it_is_read_once_a_process(copy: Path) -> None:
    first = source_hash(copy)
    assert hash_with(copy, "run/worker.py", "10, 3", "10, 4") != first  # on the disk alone: what runs is loaded already
    assert source_hash(copy) == first


def test_everything_named_is_there() -> None:
    assert [name for name in (*DECIDING, *BESIDE) if not (PACKAGE / name).exists()] == []
