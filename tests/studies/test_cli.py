"""The command line's contract: one line and status 2 for a mistake, and what each option does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments import discover
from experiments.pe_extrapolation import STUDY
from transformer_ablate import cli
from transformer_ablate.cli import options
from transformer_ablate.cli.door import COMMANDS, STUDIES_GROUP, enter, installed_studies
from transformer_ablate.plugins import VARIABLE

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "field", "value", "allowed"),
    [
        ("--model.n_heads 7", "model.n_heads", "7", "1, 2, 4, 8, 16, 32"),
        ("--variants nope", "--variants", "nope", "sinusoidal"),
        ("--data.task nope", "data.task", "nope", "copy, reverse, sort"),
        ("--train.max_steps -5", "train.max_steps", "-5", "at least 0"),
        ("--train.max_steps x", "train.max_steps", "x", "an integer"),
        ("--train.lr fast", "train.lr", "fast", "a number"),
        ("--model.qk_norm maybe", "model.qk_norm", "maybe", "true or false"),
        ("--model.cross_position_options 5", "model.cross_position_options", "5", "names with values"),
        ("--model.cross_position_options.clip 5", "model.cross_position_options of 'none'", "clip", "it has none"),
        ("--model.randomised_positions 20", "model.randomised_positions", "20", "at least"),
        ("--model.norm_placement pr", "model.norm_placement", "pr", "did you mean 'pre'"),
        ("--preset quack", "--preset", "quack", "smoke, quick, standard"),
        ("--seeds 0", "--seeds", "0", "at least 1"),
        ("--seed-list 1,1", "--seed-list", "1,1", "distinct"),
        ("--seed-list a", "--seed-list", "a", "integers"),
        ("--train.seed -1", "train.seed", "-1", "at least 0"),
        ("--workers 0", "--workers", "0", "at least 1"),
        ("--accelerator tpu", "--accelerator", "tpu", "auto, cpu, gpu"),
        ("--precision 8", "train.precision", "8", "32-true"),
        ("--model.nheads 4", "option", "--model.nheads", "--model.n_heads"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    words: str, field: str, value: str, allowed: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    status = cli.run([STUDY], [*_with_preset(words), "--tracking-uri", uri], "x")
    out, err = capsys.readouterr()
    assert status == 2
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    for part in (field, value, allowed):
        assert part in err
    assert out == ""
    assert not (tmp_path / "m.db").exists()


def _with_preset(words: str) -> list[str]:
    return words.split() if "--preset" in words else [*words.split(), "--preset", "smoke"]


def test_a_mistake_through_the_real_command_has_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.pe_extrapolation", "--model.n_heads", "7"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: model.n_heads: got 7, allowed: a divisor of model.d_model=32: 1, 2, 4, 8, 16, 32"
    ]


def test_options_and_overrides_are_told_apart() -> None:
    given, overrides = options.parse(["--seeds", "2", "--train.lr", "1e-3", "--precision", "bf16-mixed"], "x")
    assert given.seeds == 2
    assert overrides == {"train.lr": 1e-3, "train.precision": "bf16-mixed"}


@pytest.mark.parametrize(
    ("words", "seeds"),
    [("", None), ("--seeds 2", [0, 1]), ("--seed-list 4,2", [4, 2]), ("--train.seed 5", [5])],
)
def test_seeds(words: str, seeds: list[int] | None) -> None:
    assert options.chosen_seeds(*options.parse(words.split(), "x")) == seeds


def test_dry_run_prints_the_plan_and_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    assert cli.run([STUDY], ["--preset", "smoke", "--dry-run", "--tracking-uri", uri], "x") == 0
    out = capsys.readouterr().out
    assert "preset smoke: 42 runs" in out
    assert "copy: 14 arms x 1 seeds" in out
    assert re.search(r"copy: 14 runs x \d+ s", out)
    assert "estimate: " in out
    assert re.search(r"skipped .*g2p-stem", out)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_recipe_field_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        options.parse(["--help"], "x")
    assert stopped.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("--model.n_heads", "--data.batch_tokens", "--train.label_smoothing", "attention heads", "[1280]"):
        assert words in text


@pytest.mark.parametrize("words", [[], ["list"], ["--help"]])
def test_the_door_lists_commands_and_studies(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert enter(words, "experiments", discover) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
    assert all(study.question in out for study in discover().values())


def test_the_library_finds_studies_by_the_metadata_of_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"][STUDIES_GROUP] == {"experiments": "experiments:discover"}
    assert installed_studies() == discover()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run"], "all, architectures"),
        (["run", "pe_extrapolat"], "did you mean"),
        (["report", "pe_extrapolat"], "did you mean"),
        (["walk"], "list, run, report"),
        (["run", "nowhere.py"], "a Python file"),
    ],
)
def test_the_door_refuses_what_it_does_not_know(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert enter(words, "experiments", discover) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert expected in err


def test_a_study_in_a_file_is_run_by_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "")  # what it loads is not for the processes of other tests
    file = tmp_path / "mine.py"
    file.write_text("from experiments.pe_extrapolation import STUDY\n")
    words = ["--preset", "smoke", "--dry-run", "--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}", "--variants", "rope"]
    assert enter(["run", str(file), *words], "transformer_ablate", dict) == 0
    assert STUDY.question in capsys.readouterr().out
    file.write_text("STUDY = 3\n")
    other = file.rename(tmp_path / "other.py")
    assert enter(["run", str(other)], "transformer_ablate", dict) == 2
    assert "a Study called STUDY" in capsys.readouterr().err


def test_a_usage_line_is_a_command_that_works(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from experiments.ffn import STUDY\nfrom transformer_ablate.cli import main\n\nmain([STUDY])\n")
    commands = (["-m", "experiments.ffn"], ["-m", "experiments", "run"], ["-m", "transformer_ablate", "report"],
                ["-m", "transformer_ablate", "data"], [str(file)])  # fmt: skip
    for words in commands:
        done = subprocess.run(
            [sys.executable, *words, "--help"], capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert " ".join(done.stdout.split()).startswith(f"usage: {' '.join(['python', *words])} [")


def imported(*words: str) -> set[str]:
    """The modules that a command imports, in a process of its own."""
    command = [sys.executable, "-X", "importtime", "-m", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}


def test_listing_and_planning_import_nothing_before_it_is_needed(tmp_path: Path) -> None:
    assert imported("experiments").isdisjoint({"torch", "lightning", "mlflow", "pandas", "matplotlib", "scipy.stats"})
    words = ["--preset", "smoke", "--dry-run", "--tracking-uri", f"sqlite:///{tmp_path / 'm.db'}", "--cells", "copy"]
    planning = imported("experiments.pe_extrapolation", *words)
    assert planning.isdisjoint({"lightning", "mlflow", "pandas", "matplotlib"})
    assert "torch" in planning
