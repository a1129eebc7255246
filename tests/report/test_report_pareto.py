"""What arms cost against what they are worth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.drawing import looks
from transformer_ablate.report.pareto import pareto_figure
from transformer_ablate.study.declarations import Pareto
from transformer_ablate.verdicts.pareto import front

Make = Callable[..., StudyRecord]
SECONDS = {"none": 10.0, "sinusoidal": 11.0, "rope": 14.0}


@pytest.fixture
def index(make_study: Make) -> Index:
    def change(run: RunRecord) -> RunRecord:
        return dataclasses.replace(run, metrics={**run.metrics, "train_seconds": SECONDS[run.variant] + run.seed / 10})

    return Index(make_study(change=change))


def test_costs_that_all_arms_share_are_named_and_not_drawn(index: Index) -> None:
    made = pareto_figure(index, Pareto(("copy/train_seconds", "copy/flops"), ("copy/em/2",)), looks(index))
    assert made is not None
    figure, caption = made
    assert [ax.get_xlabel() for ax in figure.axes] == ["Seconds (copy)"]
    assert caption.endswith("Not drawn, as all arms are within 5%: flops (copy).")
    both = pareto_figure(index, Pareto(("copy/train_seconds",), ("copy/em/2",)), looks(index))
    assert both is not None
    assert "Not drawn" not in both[1]


def test_without_a_cost_that_differs_there_is_no_picture(index: Index) -> None:
    assert pareto_figure(index, Pareto(("copy/flops",), ("copy/em/2",)), looks(index)) is None


def test_the_front_has_what_nothing_beats() -> None:
    cost, worth = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.1, "b": 0.9, "c": 0.5}
    assert set(front([cost], [worth])) == {"a", "b"}
