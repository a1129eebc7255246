"""Reliability curves and attention maps: what is drawn, from which rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.artifact_figures import (
    FEWEST_TOKENS,
    MOST_MAPS,
    attention_figure,
    pooled,
    reliability_figure,
)
from transformer_ablate.report.drawing import looks
from transformer_ablate.report.render import write_report

Maker = Callable[..., StudyRecord]


def bin_row(number: int, n: int, confidence: float, accuracy: float, curve: str = "teacher-forced") -> dict[str, Any]:
    return {"curve": curve, "bin": number, "n": n, "confidence": confidence, "accuracy": accuracy}


def map_row(example: int, layer: int, kind: str, weight: float) -> dict[str, Any]:
    weights = [[[weight, 1 - weight]], [[1 - weight, weight]]]  # two heads, one query, two keys
    return {
        "example": example, "kind": kind, "layer": layer, "queries": ["<bos>"], "keys": ["a", "straight"],
        "weights": weights,
    }  # fmt: skip


def with_tables(make_study: Maker, tables: dict[str, list[dict[str, Any]]], **options: Any) -> StudyRecord:
    def change(run: RunRecord) -> RunRecord:
        return dataclasses.replace(run, tables=tables)

    return make_study(cells=("g2p",), change=change, **options)


def test_bins_of_all_seeds_are_weighted_by_tokens_and_small_ones_left_out() -> None:
    rows = [bin_row(3, 30, 0.2, 0.1), bin_row(3, 10, 0.24, 0.5), bin_row(5, FEWEST_TOKENS - 1, 0.4, 0.4)]
    assert pooled(rows) == [(pytest.approx(0.21), pytest.approx(0.2), 40)]
    assert pooled([]) == []


def test_there_is_a_panel_for_each_way_to_look(make_study: Maker) -> None:
    rows = [bin_row(3, 90, 0.2, 0.1), bin_row(8, 90, 0.6, 0.7), bin_row(8, 90, 0.6, 0.6, "scaled")]
    record = with_tables(make_study, {"reliability": rows})
    index = Index(record)
    made = reliability_figure(index, record.study.cells[0], looks(index))
    assert made is not None
    first, second = made[0].axes
    assert [ax.get_title(loc="left") for ax in (first, second)] == ["teacher-forced", "scaled"]
    assert len(first.lines) == 1 + 3  # the diagonal, three arms
    assert list(first.lines[1].get_xdata()) == pytest.approx([0.2, 0.6])
    assert list(first.lines[1].get_ydata()) == pytest.approx([0.1, 0.7])


def test_a_map_is_of_the_last_layer_of_the_first_example(make_study: Maker) -> None:
    rows = [
        map_row(7, 0, "cross", 0.5), map_row(7, 1, "cross", 1.0), map_row(7, 2, "encoder", 0.3),
        map_row(9, 5, "cross", 0.1),
    ]  # fmt: skip
    record = with_tables(make_study, {"attention_maps": rows})
    index = Index(record)
    made = attention_figure(index, record.study.cells[0], looks(index))
    assert made is not None
    shown = [ax for ax in made[0].axes if ax.get_visible()]
    assert [ax.get_title(loc="left") for ax in shown] == ["none", "sinusoidal", "rope"]
    image = shown[0].images[0].get_array()
    assert image is not None
    assert image.tolist() == [[0.5, 0.5]]  # 1 and 0 in one head, 0 and 1 in the other
    assert [label.get_text() for label in shown[0].get_xticklabels()] == ["a", "strai…"]


def test_more_arms_than_have_room_are_told(make_study: Maker) -> None:
    names = [f"arm-{i}" for i in range(MOST_MAPS + 2)]
    record = with_tables(make_study, {"attention_maps": [map_row(0, 0, "cross", 0.5)]}, names=names, seeds=(0,))
    index = Index(record)
    made = attention_figure(index, record.study.cells[0], looks(index))
    assert made is not None
    assert "2 further arms" in made[1]


def test_runs_without_them_have_neither_and_a_report_has_both(make_study: Maker, tmp_path: Path) -> None:
    record = make_study(cells=("g2p",))
    index = Index(record)
    assert reliability_figure(index, record.study.cells[0], looks(index)) is None
    assert attention_figure(index, record.study.cells[0], looks(index)) is None
    tables = {"reliability": [bin_row(3, 90, 0.2, 0.1)], "attention_maps": [map_row(0, 0, "cross", 0.5)]}
    write_report(with_tables(make_study, tables), tmp_path)
    text = (tmp_path / "report.md").read_text()
    for kind in ("reliability", "maps"):
        assert (tmp_path / "figures" / f"g2p-{kind}.png").stat().st_size > 5_000
        assert f"figures/g2p-{kind}.png" in text
