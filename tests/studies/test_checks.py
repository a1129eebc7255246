"""A study checks itself: every kind of typo is refused in one line that says where it is and what was meant."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.studies.conftest import TINY
from transformer_ablate.cli import run
from transformer_ablate.cli import studies as cli
from transformer_ablate.errors import ConfigError
from transformer_ablate.study.claims import AtBestSetting, Best, Claim, Minus, Value, difference
from transformer_ablate.study.declarations import (
    USUAL_MEASURES,
    Cell,
    Contrast,
    Factorial,
    Pareto,
    Steps,
    Study,
    Variant,
)
from transformer_ablate.study.plan import make_plan
from transformer_ablate.study.rules import (
    AtBest,
    Beyond,
    Bounded,
    FailsMore,
    Holds,
    KeepsTo,
    MoreVariance,
    NeverFails,
    Rule,
)

MEASURES = (*USUAL_MEASURES, "probes", "throughput")
CELLS = (
    Cell("copy", "synthetic", {**TINY, "data.task": "copy"}, "em", "copy", measures=MEASURES),
    Cell("sort", "synthetic", {**TINY, "data.task": "sort"}, "em", "sort"),
)
ARMS = (
    Variant("rope", {"model.position": "rope"}),
    Variant("none", {"model.position": "none"}),
    Variant("only", {}, ("sort",)),
)
CONTRAST, CLAIM = "contrast 'rope' − 'none'", "claim 'id'"
EM, LOSS, ABOVE = "copy/em/1", "copy/valid_nll", Beyond(0.0)


def study(**fields: Any) -> Study:
    """Three arms on two cells, and what a test adds."""
    return Study("checked", "Is every name there?", **{"cells": CELLS, "variants": ARMS, **fields})


def about(rule: Rule, *statistics: Any, learnt: Any = ()) -> dict[str, Any]:
    """A claim alone."""
    return {"claims": (Claim("id", "Something.", "people", "somewhere", rule, statistics, learnt=learnt),)}


def contrast(key: str, a: str = "rope", b: str = "none") -> dict[str, Any]:
    """A contrast alone."""
    return {"contrasts": (Contrast(a, b, key),)}


@dataclasses.dataclass(frozen=True)
class Mine(NeverFails):
    """A rule of a user's own, which says what it reads."""

    def needs(self, claim: Claim) -> list[tuple[str, str]]:
        return [("nonne", "copy")]


SOUND: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "contrasts": {"contrasts": tuple(Contrast("rope", "none", key) for key in (
        EM, "copy/em_oracle/1.25", LOSS, "copy/diverged", "copy/padding_share", "copy/parameters", "copy/final_nll",
        "copy/train_seconds", "copy/probe_r2/0", "copy/probe_r2_slope", "copy/forward_ms/64", "sort/rho_90",
    ))},
    "rules": about(AtBest({"rope": KeepsTo("none", "copy", 1.5)}, LOSS)),
    "statistics": about(ABOVE, AtBestSetting(("rope", "none"), EM, LOSS), learnt=((Value("only", "sort/em/1"), 0.5),)),
    "designs": {
        "pareto": Pareto(("copy/train_seconds",), (EM,)),
        "factorial": Factorial(("position",), {"rope": (1,), "none": (-1,)}, (LOSS,)),
        "steps": Steps(LOSS, {"none": ("rope",)}),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_what_is_there_may_be_named(name: str) -> None:
    assert len(study(**SOUND[name]).cells) == 2


@pytest.mark.parametrize(
    ("fields", "where", "got", "told"),
    [
        (contrast(EM, b="nonne"), "contrast 'rope' − 'nonne': arm", "nonne", "did you mean 'none'?"),
        (contrast(EM, a="rop"), "contrast 'rop' − 'none': arm", "rop", "did you mean 'rope'?"),
        (contrast(EM, a="only"), "contrast 'only' − 'none': arm", "only", "runs in cell 'copy': rope, none"),
        (contrast("coppy/em/1"), f"{CONTRAST}: cell", "coppy", "did you mean 'copy'?"),
        (contrast("copy/emm/1"), f"{CONTRAST}: metric", "emm", "did you mean 'em'?"),
        (contrast("sort/probe_r2/1"), f"{CONTRAST}: metric", "probe_r2", "add 'probes' to its measures"),
        (contrast("copy/em"), f"{CONTRAST}: copy/em", "", "the test set behind 'em', e.g. copy/em/1"),
        (contrast("copy/valid_nll/1"), f"{CONTRAST}: copy/valid_nll/1", "1", "which has one value a run"),
        (contrast("copy/probe_r2/first"), f"{CONTRAST}: copy/probe_r2/first", "first", "a whole number (layer)"),
        (contrast("copy/forward_ms"), f"{CONTRAST}: copy/forward_ms", "", "the tokens behind 'forward_ms'"),
        (about(ABOVE, difference("rope", "nonne", EM)), f"{CLAIM}: arm", "nonne", "did you mean 'none'?"),
        (about(ABOVE, difference("rope", "only", EM)), f"{CLAIM}: arm", "only", "runs in cell 'copy'"),
        (about(ABOVE, Minus((Value("rope", EM), Value("none", "copy/emm/1")))), f"{CLAIM}: metric", "emm", "'em'"),
        (about(ABOVE, Best(("rope", "non"), EM, lowest=True)), f"{CLAIM}: arm", "non", "'none'"),
        (about(ABOVE, AtBestSetting(("rope",), EM, "copy/valid_nl")), f"{CLAIM}: metric", "valid_nl", "'valid_nll'"),
        (about(ABOVE, learnt=((Value("rop", EM), 0.5),)), f"{CLAIM}: arm", "rop", "'rope'"),
        (about(ABOVE, learnt=((Value("rope", "copy/em"), 0.5),)), f"{CLAIM}: copy/em", "", "e.g. copy/em/1"),
        (about(KeepsTo("rop", "copy", 1.5)), f"{CLAIM}: arm", "rop", "'rope'"),
        (about(KeepsTo("rope", "coppy", 1.5)), f"{CLAIM}: cell", "coppy", "'copy'"),
        (about(FailsMore("rope", "nonne", "copy")), f"{CLAIM}: arm", "nonne", "'none'"),
        (about(NeverFails(("rope", "only"), "copy")), f"{CLAIM}: arm", "only", "runs in cell 'copy'"),
        (about(Mine((), "copy")), f"{CLAIM}: arm", "nonne", "'none'"),
        (about(MoreVariance({("a", "b"): "rop"}, EM)), f"{CLAIM}: arm", "rop", "'rope'"),
        (about(MoreVariance({("a", "b"): "rope"}, "copy/emm/1")), f"{CLAIM}: metric", "emm", "'em'"),
        (about(AtBest({"rop": ABOVE}, LOSS)), f"{CLAIM}: arm", "rop", "'rope'"),
        (about(AtBest({"rope": KeepsTo("non", "copy", 1.5)}, LOSS)), f"{CLAIM}: arm", "non", "'none'"),
        ({"pareto": Pareto(("copy/train_second",), (EM,))}, "pareto: metric", "train_second", "'train_seconds'"),
        ({"pareto": Pareto(("copy/flops",), ("sorts/em/1",))}, "pareto: cell", "sorts", "'sort'"),
        ({"factorial": Factorial(("p",), {"rop": (1,)}, (EM,))}, "factorial: arm", "rop", "'rope'"),
        ({"factorial": Factorial(("p",), {"rope": (1,)}, ("copy/em",))}, "factorial: copy/em", "", "e.g. copy/em/1"),
        ({"steps": Steps(LOSS, {"none": ("rop",)})}, "steps from 'none': arm", "rop", "'rope'"),
        ({"steps": Steps(LOSS, {"nonne": ("rope",)})}, "steps from 'nonne': arm", "nonne", "'none'"),
        ({"variants": (Variant("a", {}, ("coppy",)),)}, "arm 'a': cells", "coppy", "'copy'"),
        ({"variants": (*ARMS, ARMS[0])}, "arm's name", "rope", "a name that no other arm has"),
        ({"cells": (*CELLS, CELLS[0])}, "cell's name", "copy", "a name that no other cell has"),
        ({"cells": (dataclasses.replace(CELLS[0], metric="emm"), CELLS[1])}, "cell 'copy': metric", "emm", "'em'"),
        ({"cells": (dataclasses.replace(CELLS[0], measures=("sise",)), CELLS[1])}, "cell 'copy': measures", "sise",
         "'size'"),
        ({"claims": 2 * about(ABOVE)["claims"]}, "claim's name", "id", "a name that no other claim has"),
        *(({"variants": (Variant(word, {}),)}, "arm's name", word, "not 'all'") for word in ("", "all", "-a", "a,b")),
        *(({"cells": (dataclasses.replace(CELLS[0], name=word),), "variants": ()}, "cell's name", word, "not 'all'")
          for word in ("", "all", "-a", "a,b", "a/b")),
    ],
)  # fmt: skip
def test_a_typo_is_refused(fields: dict[str, Any], where: str, got: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study(**fields)
    message = str(caught.value)
    assert message.startswith(f"{where}: got {got!r}, allowed: ")
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("fields", "where", "got", "told"),
    [
        (contrast("copy/em/1.24"), f"{CONTRAST}: test set of copy/em/1.24", "1.24", "did you mean '1.25'?"),
        ({"pareto": Pareto(("copy/flops",), ("sort/nll/9",))}, "pareto: test set of sort/nll/9", "9", "1, 1.25"),
        (about(Holds("rope-offset-onli")), f"{CLAIM}: check", "rope-offset-onli", "did you mean 'rope-offset-only'?"),
        (about(Bounded("rope-offset-onli")), f"{CLAIM}: check", "rope-offset-onli", "'rope-offset-only'"),
    ],
)
def test_what_only_the_data_or_the_computations_know_is_refused_by_the_plan(
    fields: dict[str, Any], where: str, got: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([study(**fields)], ["--preset", "smoke", "--dry-run"], "x") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {where}: got {got!r}, allowed: ")
    assert told in err
    assert err.count("\n") == 1


def test_test_sets_of_cells_that_are_not_planned_are_not_looked_at() -> None:
    named = study(**contrast("sort/em/1.24"))
    assert {run.cell for run in make_plan(named, "smoke", cells=["copy"]).runs} == {"copy"}
    # Other data may have other test sets; the report then says that the contrast has no values.
    assert make_plan(named, "smoke", overrides={"data.max_length": 4}).runs
    with pytest.raises(ConfigError, match=r"1\.24"):
        make_plan(named, "smoke")


FILE = """
from transformer_ablate.cli import main
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant

CELL = Cell("copy", "synthetic", {"data.task": "copy"}, "em", "copy")
ARMS = (Variant("1+3", {}), Variant("3+1", {"model.position": "rope"}))
STUDY = Study("mine", "Which?", (CELL,), ARMS, (Contrast("1+3", "3+2", "copy/em/1"),))

if __name__ == "__main__":
    main([STUDY], program="mine")
"""


def run_file(path: Path, content: str) -> subprocess.CompletedProcess[str]:
    path.write_text(content)
    command = [sys.executable, str(path), "--preset", "smoke", "--dry-run"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)


def test_a_users_file_with_a_typo_ends_with_one_line(tmp_path: Path) -> None:
    done = run_file(tmp_path / "mine.py", FILE)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: contrast '1+3' − '3+2': arm: got '3+2', allowed: 1+3, 3+1; did you mean '3+1'?\n"
    )  # fmt: skip


def test_a_users_file_with_a_typo_is_told_by_the_one_door_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    command = [sys.executable, "-m", "experiments", "run", str(path), "--preset", "smoke", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: contrast '1+3' − '3+2': arm: got '3+2'")
    assert done.stderr.count("\n") == 1


def test_other_errors_of_a_users_file_keep_their_traceback(tmp_path: Path) -> None:
    done = run_file(tmp_path / "mine.py", FILE.replace("STUDY = Study(", "STUDY = Stuty("))
    assert done.returncode == 1
    assert "NameError" in done.stderr
    assert "Traceback" in done.stderr


def test_a_plugins_arm_is_checked_too(make_tiny_study: Callable[..., Study]) -> None:
    from types import ModuleType

    plugin = ModuleType("plugin")
    plugin.__dict__.update(VARIANTS=(Variant("mine", {}, ("coppy",)),), __file__="plugin.py")
    with pytest.raises(ConfigError, match=r"arm 'mine': cells: got 'coppy'.*did you mean 'copy'"):
        cli.with_plugins(make_tiny_study(), [plugin])
