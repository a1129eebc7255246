"""The house: imports go down the list of rooms and never up, and in no circle; a file can be read at one sitting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.architecture import PICTURE, ROOMS, arrows, imports, modules, picture, room_of

ROOT = Path(__file__).parent.parent
LONGEST = 400


def upward(importing: str, imported: str) -> bool:
    """Whether an import goes from a room to one that stands after it."""
    return ROOMS.index(room_of(importing)) < ROOMS.index(room_of(imported))


def test_every_module_is_in_a_room() -> None:
    assert {room_of(name) for name in modules()} == set(ROOMS)
    assert len({*ROOMS}) == len(ROOMS)


def test_no_import_goes_up() -> None:
    assert [f"{a} -> {b}" for a, found in imports().items() for b in found if upward(a, b)] == []


def test_an_upward_import_would_be_seen() -> None:
    assert upward("transformer_ablate.core.attention", "transformer_ablate.measures.size")
    assert not upward("transformer_ablate.report.render", "transformer_ablate.record.index")
    assert upward("transformer_ablate.cli.door", "experiments.ffn")
    assert {"transformer_ablate.config"} <= imports()["transformer_ablate.core"]


def circles(arrows: dict[str, set[str]]) -> Iterator[list[str]]:
    """Modules that reach themselves."""
    for start in arrows:
        waiting, seen = [start], set()
        while waiting:
            for other in arrows.get(waiting.pop(), ()):
                if other == start:
                    yield [start]
                    waiting = []
                    break
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)


def test_no_module_imports_itself_in_a_circle() -> None:
    # A package's __init__ gathers its own modules, which name the package where they need what it gathers.
    arrows = {a: {b for b in found if not a.startswith(b + ".")} for a, found in imports(running=True).items()}
    assert list(circles(arrows)) == []
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("room", ["transformer_ablate", "experiments", "scripts", "examples", "tests"])
def test_files_can_be_read_at_one_sitting(room: str) -> None:
    long = {str(file): n for file in (ROOT / room).rglob("*.py") if (n := len(file.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_mlflow_is_known_in_one_room() -> None:
    knowing = set()
    for name, file in modules().items():
        tree = ast.parse(file.read_text("utf-8"))
        found = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        found |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        if any(word.split(".")[0] == "mlflow" for word in found):
            knowing.add(room_of(name))
    assert knowing == {"record"}


def test_the_picture_is_of_the_imports_as_they_are() -> None:
    assert PICTURE.read_text("utf-8") == picture(), "python -m scripts.architecture draws it anew"
    assert arrows()["report", "record"] > 0
    assert arrows()["record", "report"] == 0
