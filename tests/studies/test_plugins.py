"""A user's own file beside the built-in components."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer_ablate import plugins, registry
from transformer_ablate.cli import run
from transformer_ablate.cli.studies import with_plugins
from transformer_ablate.config import Recipe
from transformer_ablate.errors import ConfigError
from transformer_ablate.plugins import VARIABLE, load_inherited, load_plugin
from transformer_ablate.study.declarations import Study

PLUGIN = '''
"""A position that only the tests know."""

from transformer_ablate.core.positions import PositionalEncoding
from transformer_ablate.registry import POSITIONS
from transformer_ablate.study.declarations import Variant


@POSITIONS.register("halved")
class Halved(PositionalEncoding):
    def embed(self, x, positions):
        return x + 0.5 * positions[..., None]


VARIANTS = (Variant("mine", {"model.position": "halved"}, why="half the position in every channel"),)
'''


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    yield path
    registry.POSITIONS._table.pop("halved", None)


def test_a_plugins_component_and_arm_stand_beside_the_built_in_ones(
    file: Path, study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--preset", "smoke", "--plugin", str(file), "--variants", "mine,sinusoidal", "--workers", "1"]
    words += ["--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}", "--output", str(tmp_path / "reports")]
    assert run([study], words, "test") == 0
    report = (tmp_path / "reports" / "smoke" / study.name / "report.md").read_text()
    assert "| mine |" in report
    assert "2 trained, 0 reused, 0 failed" in capsys.readouterr().out


def test_a_changed_file_is_another_component(file: Path) -> None:
    load_plugin(str(file))
    before = Recipe().replace({"model.position": "halved"}).fingerprint("data")
    registry.POSITIONS._table.pop("halved")
    other = file.with_name("other.py")
    other.write_text(PLUGIN.replace("0.5", "0.25"))
    load_plugin(str(other))
    assert Recipe().replace({"model.position": "halved"}).fingerprint("data") != before


def test_a_plugin_is_remembered_for_processes_that_this_one_starts(file: Path) -> None:
    module = load_plugin(str(file))
    assert os.environ[VARIABLE] == str(file)
    assert load_plugin(str(file)) is module
    plugins.sys.modules.pop(module.__name__)
    registry.POSITIONS._table.pop("halved")
    load_inherited()
    assert "halved" in registry.POSITIONS.names()


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "exists"), ("import nothing_of_that_name", "nothing_of_that_name' (line 1)"), ("\n\n1 / 0", "line 3")],
)
def test_a_file_that_cannot_be_imported_is_one_line(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "broken.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="--plugin") as caught:
        load_plugin(str(path))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return x.reshape(-1, 7)", "RuntimeError"),
        ("return (x + positions[..., None])[:, :1]", "halved"),  # fails in the layer that is handed it
        ("raise KeyError('no table')", "KeyError: 'no table'"),
        ("return x + x.sub(x).sqrt()", "not finite"),  # the gradient of a root at 0
        ("return x + float('nan')", "not finite"),
    ],
)
def test_a_component_that_fails_is_named_before_anything_is_trained(
    body: str, told: str, file: Path, study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(PLUGIN.replace("return x + 0.5 * positions[..., None]", body))
    words = ["--preset", "smoke", "--plugin", str(file), "--variants", "sinusoidal,mine", "--dry-run"]
    assert run([study], [*words, "--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}"], "test") == 2
    err = capsys.readouterr().err
    assert err.startswith("error: model.position: got 'halved'")
    assert "arm 'mine'" in err
    assert told in err
    assert err.count("\n") == 1


def test_an_arm_cannot_take_the_name_of_another(file: Path, study: Study) -> None:
    file.write_text(PLUGIN.replace('Variant("mine"', 'Variant("sinusoidal"'))
    with pytest.raises(ConfigError, match="sinusoidal"):
        with_plugins(study, [load_plugin(str(file))])


def test_variants_must_be_variants(file: Path, study: Study) -> None:
    file.write_text(PLUGIN + "\nVARIANTS = ('mine',)\n")
    with pytest.raises(ConfigError, match="Variant objects"):
        with_plugins(study, [load_plugin(str(file))])
