"""What is measured of a run: more of a trained one, alone on the machine, or of a model that nothing trained."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer_ablate import cli
from transformer_ablate.record.store import Store
from transformer_ablate.run.launchers import Job, LocalLauncher
from transformer_ablate.stats.summary import summarise
from transformer_ablate.study.claims import Claim, difference
from transformer_ablate.study.declarations import USUAL_MEASURES, Study
from transformer_ablate.study.plan import PlannedRun, make_plan
from transformer_ablate.study.rules import Beyond, Holds

Invoke = Callable[..., tuple[int, str]]


@pytest.fixture
def invoke(uri: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Invoke:
    def call(studies: list[Study], *words: str) -> tuple[int, str]:
        where = ["--preset", "smoke", "--tracking-uri", uri, "--output", str(tmp_path / "reports")]
        status = cli.run(studies, [*where, *words], "x")
        return status, capsys.readouterr().out

    return call


def results(tmp_path: Path, study: str = "tiny") -> dict:
    found: dict = json.loads((tmp_path / "reports" / "smoke" / study / "results.json").read_text())
    return found


def measuring(study: Study, *names: str) -> Study:
    return dataclasses.replace(study, cells=tuple(dataclasses.replace(cell, measures=names) for cell in study.cells))


def test_a_trained_run_is_measured_further_without_training_it_again(
    invoke: Invoke, study: Study, make_tiny_study: Callable[..., Study], store: Store, tmp_path: Path
) -> None:
    assert invoke([study])[1].splitlines()[-1] == "2 trained, 0 reused, 0 failed"
    before = results(tmp_path)["variants"]["rope"]["metrics"]
    more = measuring(study, *USUAL_MEASURES, "calibration", "attention")
    status, out = invoke([more])
    assert status == 0
    assert "2 trained runs to measure further" in out
    assert out.splitlines()[-1] == "0 trained, 2 reused, 0 failed"
    after = results(tmp_path)["variants"]["rope"]["metrics"]
    assert {name: after[name] for name in before} == before
    assert {"copy/ece", "copy/attention_entropy_encoder"} <= set(after) - set(before)
    assert "measure further" not in invoke([more])[1]
    # The same figures as of a run that was measured so from the start.
    invoke([more], "--fresh")
    fresh = results(tmp_path)["variants"]["rope"]["metrics"]
    assert fresh["copy/ece"]["values"] == after["copy/ece"]["values"]
    # Another study that needs no more takes all of it.
    other = dataclasses.replace(more, name="other")
    assert invoke([other])[1].splitlines()[-1] == "0 trained, 2 reused, 0 failed"
    assert "copy/ece" in results(tmp_path, "other")["variants"]["rope"]["metrics"]
    runs = store.client.search_runs([store.open_experiment("other")], "tags.kind = 'copy'")
    assert all("ece" in run.data.metrics for run in runs)


def test_studies_that_measure_differently_train_a_shared_run_once(invoke: Invoke, study: Study, tmp_path: Path) -> None:
    other = dataclasses.replace(measuring(study, *USUAL_MEASURES, "calibration"), name="other")
    assert invoke([study, other])[1].splitlines()[-1] == "2 trained, 0 reused, 0 failed"
    assert "copy/ece" in results(tmp_path, "other")["variants"]["rope"]["metrics"]


def test_a_model_that_nothing_trains_can_be_timed(invoke: Invoke, study: Study, tmp_path: Path) -> None:
    changed = {"metric": "forward_ms", "axis": "tokens", "measures": ("throughput", "size")}
    cells = tuple(dataclasses.replace(cell, **changed) for cell in study.cells)
    timed = dataclasses.replace(study, cells=cells, contrasts=())
    status, out = invoke([timed], "--train.max_steps", "0", "--variants", "rope", "--workers", "2")
    assert (status, out.splitlines()[-1]) == (0, "1 trained, 0 reused, 0 failed")
    metrics = results(tmp_path)["variants"]["rope"]["metrics"]
    assert metrics["copy/forward_ms/4"]["mean"] > 0
    assert metrics["copy/work_doubling_ratio"]["mean"] > 1.3


def test_a_run_that_is_timed_runs_with_nothing_beside_it(study: Study, uri: str) -> None:
    plan = make_plan(study, "smoke", seeds=[0, 1])
    alone = [dataclasses.replace(run, measures=("throughput",)) if run.seed else run for run in plan.runs]
    running: set[str] = set()
    beside: dict[str, int] = {}

    class Observer:
        def started(self, planned: PlannedRun) -> None:
            running.add(planned.fingerprint)
            for name in running:
                beside[name] = max(beside.get(name, 0), len(running))

        def progress(self, planned: PlannedRun, step: int, loss: float) -> None: ...

        def ended(self, planned: PlannedRun, error: str) -> bool:
            running.discard(planned.fingerprint)
            return True

    # The job's store does not exist: each run fails at once, which is all that this needs.
    launcher = LocalLauncher(2, [])
    launcher.run(alone, lambda run: Job(run, "none", "sqlite:////nowhere/m.db", "cpu"), Observer())
    assert {run.seed: beside[run.fingerprint] for run in alone} == {0: 2, 1: 1}


def test_claims_are_judged_and_listed(invoke: Invoke, study: Study, tmp_path: Path) -> None:
    claims = (
        Claim("theorem", "Sines lie within one.", "somebody", "anywhere", Holds("sinusoidal-bounded"), kind="exact"),
        Claim("better", "RoPE is better.", "somebody", "copy, NLL", Beyond(0.0, below=True),
              (difference("rope", "sinusoidal", "copy/nll/1"),)),
        Claim("absent", "None is better.", "somebody", "copy, NLL", Beyond(0.0),
              (difference("none", "rope", "copy/nll/1"),)),
    )  # fmt: skip
    assert invoke([dataclasses.replace(study, claims=claims)], "--seeds", "2")[0] == 0
    found = {row["id"]: row for row in results(tmp_path)["claims"]}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "theorem": "supported", "better": "inconclusive", "absent": "not run",
    }  # fmt: skip
    values = results(tmp_path)["variants"]
    differences = [
        a - b
        for a, b in zip(
            *(values[arm]["metrics"]["copy/nll/1"]["values"] for arm in ("rope", "sinusoidal")), strict=True
        )
    ]
    assert found["better"]["effect"] == pytest.approx(summarise(differences).mean)
    assert found["better"]["n_needed"] >= 8
    text = (tmp_path / "reports" / "smoke" / "claims.md").read_text()
    assert "1 inconclusive, 1 not run; by computation: 1 supported" in text
    assert "RoPE is better" in text
    assert "Sines lie within one" in (tmp_path / "reports" / "smoke" / "tiny" / "report.html").read_text()
