"""The recommended recipe: which base, which changes, and a file that the command line reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from transformer_ablate.cli.studies import parse
from transformer_ablate.errors import ConfigError
from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.render import RECOMMENDED, write_report
from transformer_ablate.study.declarations import Steps
from transformer_ablate.verdicts.recommended import Recommended, as_config, recommended

DELTAS: Mapping[str, dict[str, Any]] = {
    "old": {"model.norm_placement": "post", "train.schedule": "noam", "train.lr": 0.5},
    "old-a": {"model.norm_placement": "post", "train.schedule": "noam", "train.lr": 0.5, "model.position": "rope"},
    "old-b": {"model.norm_placement": "post", "train.schedule": "cosine"},
    "new": {"train.schedule": "cosine"},
    "new-a": {"train.schedule": "cosine", "model.ffn": "swiglu"},
}
SIZE = {"model.d_model": 64}  # of the cell's recipe: a peak rate of Noam's means nothing without it
STEPS = Steps("g2p/per/test", {"old": ("old-a", "old-b"), "new": ("new-a",)})


Maker = Callable[..., StudyRecord]


@pytest.fixture
def record(make_study: Maker) -> Maker:
    """Five arms with given error rates and noise over seeds."""

    def record(per: Mapping[str, float], noise: Mapping[str, float] | None = None) -> StudyRecord:
        def change(run: RunRecord) -> RunRecord:
            size = (noise or {}).get(run.variant, 0.001)
            wobble = size * float(np.sin(run.seed * (2 + list(DELTAS).index(run.variant))))
            metrics = {**run.metrics, "per/test": per[run.variant] + wobble}
            return dataclasses.replace(run, metrics=metrics, delta=DELTAS[run.variant])

        made = make_study(names=DELTAS, cells=("g2p",), seeds=range(8), change=change)
        return dataclasses.replace(made, study=dataclasses.replace(made.study, steps=STEPS))

    return record


def advice(record: StudyRecord) -> Recommended:
    found = recommended(Index(record), STEPS)
    assert found is not None
    return found


def test_every_change_that_helps_is_taken_and_what_the_base_set_goes(record: Maker) -> None:
    found = advice(record({"old": 0.3, "old-a": 0.2, "old-b": 0.25, "new": 0.4, "new-a": 0.1}))
    assert (found.base, found.taken) == ("old", ("old-a", "old-b"))
    expected = {**SIZE, "model.norm_placement": "post", "model.position": "rope", "train.schedule": "cosine"}
    assert found.fields == expected  # the peak of noam is gone with it
    assert "not itself an arm" in found.sentence


def test_changes_that_hurt_or_that_are_not_sure_are_left(record: Maker) -> None:
    found = advice(record({"old": 0.3, "old-a": 0.35, "old-b": 0.295, "new": 0.4, "new-a": 0.1}, {"old-b": 0.05}))
    assert (found.base, found.taken, found.fields) == ("old", (), SIZE | DELTAS["old"])
    assert "It is the arm old" in found.sentence


def test_the_better_base_is_where_it_begins(record: Maker) -> None:
    found = advice(record({"old": 0.3, "old-a": 0.01, "old-b": 0.2, "new": 0.2, "new-a": 0.1}))
    assert (found.base, found.taken, found.fields) == ("new", ("new-a",), SIZE | DELTAS["new-a"])


def test_there_is_none_without_values(record: Maker) -> None:
    made = record(dict.fromkeys(DELTAS, 0.1))
    empty = dataclasses.replace(made, runs=[dataclasses.replace(r, status="missing", metrics={}) for r in made.runs])
    assert recommended(Index(empty), STEPS) is None


def test_the_report_writes_a_file_that_the_command_line_reads(record: Maker, tmp_path: Path) -> None:
    per = {"old": 0.3, "old-a": 0.2, "old-b": 0.25, "new": 0.4, "new-a": 0.1}
    write_report(record(per), tmp_path)
    file = tmp_path / RECOMMENDED
    assert file.read_text() == as_config(advice(record(per)))
    assert yaml.safe_load(file.read_text())["model"] == {"d_model": 64, "norm_placement": "post", "position": "rope"}
    assert "Recommended by phone error rate in g2p" in (tmp_path / "report.md").read_text()
    _, overrides = parse(["--config", str(file)], "program")
    assert overrides == advice(record(per)).fields


@pytest.mark.parametrize(
    ("text", "told"), [("model:\n  positon: rope\n", "model.positon"), ("model:\n  d_model: x\n", "an integer")]
)
def test_mistakes_in_a_file_are_told_in_a_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told):
        parse(["--config", str(file)], "program")
