"""What is declared of metrics, and how a user's own stand beside the built-in ones."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transformer_ablate.measures import MEASURES
from transformer_ablate.metrics import CATALOGUE, FAMILIES, LAYER, Family, Key, Metric, register
from transformer_ablate.metrics.catalogue import measures, metric_of, order_of
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.render import write_report

MINE = Family("mine", "mine", "Depth of thought", (
    Metric("thought", "Thought", "higher", "decimal", "How deep, by layer.", counts=LAYER),
    Metric("moments", "Moments", "lower", "count", "How many.", never_reached=True, shared_machine=True),
))  # fmt: skip


@pytest.fixture
def registered() -> Iterator[Family]:
    register(MINE)
    yield MINE
    FAMILIES.remove(MINE)
    for metric in MINE.metrics:
        del CATALOGUE[metric.name]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("copy/em/1.5", Key("copy", "em", "1.5")),
        ("copy/valid_nll", Key("copy", "valid_nll")),
        ("g2p-length/per/9-10", Key("g2p-length", "per", "9-10")),
        ("copy", Key("copy", "")),
    ],
)
def test_a_key_is_its_text(text: str, key: Key) -> None:
    assert Key.parse(text) == key
    assert str(key).rstrip("/") == text
    assert Key.of(key.within, key.cell) == key


def test_a_key_within_a_cell() -> None:
    assert Key.parse("copy/em/1.5").within == "em/1.5"
    assert Key.of("em/1.5") == Key("", "em", "1.5")
    assert str(Key.of("em/1.5")) == "em/1.5"


def test_every_measure_is_declared_and_no_metric_twice() -> None:
    assert set(measures()) == set(MEASURES)
    names = [metric.name for family in FAMILIES for metric in family.metrics]
    assert len(names) == len(set(names)) == len(CATALOGUE)


def test_a_metric_has_from_its_family_what_it_does_not_say_itself() -> None:
    told = {name: (m.group, m.measure, m.counts) for name, m in CATALOGUE.items()}
    assert told["em"] == ("quality", "quality", "test set")
    assert told["em_oracle"] == ("quality", "extrapolation", "test set")
    assert told["valid_nll"] == ("quality", "quality", "")
    assert told["padding_share"] == ("cost", "", "")
    assert told["probe_r2"] == ("probes", "probes", "layer")
    assert told["probe_r2_slope"] == ("probes", "probes", "")
    assert [m.name for m in CATALOGUE.values() if m.shared_machine] == ["train_seconds", "train_tokens_per_second"]


def test_declarations_cost_no_heavy_import() -> None:
    code = (
        "import sys, transformer_ablate.study.declarations, transformer_ablate.study.claims, "
        "transformer_ablate.study.rules, transformer_ablate.metrics as m; "
        "print([n for n in ('torch', 'lightning', 'mlflow', 'scipy.stats') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_users_family_has_its_tables(
    registered: Family, make_study: Callable[..., StudyRecord], tmp_path: Path
) -> None:
    def measured(run: RunRecord) -> RunRecord:
        own = {"thought/1": 0.25, "thought/2": 0.5, "moments": float("nan"), "unheard_of": 1.0}
        return dataclasses.replace(run, metrics={**run.metrics, **own})

    assert order_of("thought") == len(CATALOGUE) - 2
    write_report(make_study(cells=["copy"], change=measured), tmp_path)
    page = (tmp_path / "report.md").read_text()
    assert "Depth of thought" in page
    assert "Thought ↑ by layer" in page
    assert "Moments ↓ (shared machine)" in page
    assert "| never |" in page
    assert metric_of("unheard_of").group == "further"
    assert "unheard of" in page


def test_a_family_is_registered_once(registered: Family) -> None:
    register(MINE)
    assert FAMILIES.count(MINE) == 1


@pytest.mark.parametrize(
    ("family", "told"),
    [
        (Family("other", "other", "Others", (Metric("em", "EM", "", "short", "Mine."),)), "declared already: em"),
        (Family("other", "other", "", (Metric("m", "M", "", "short", "Mine."),)), "needs a title"),
    ],
)
def test_a_family_that_no_page_could_show_is_refused(family: Family, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        register(family)
    assert family not in FAMILIES
