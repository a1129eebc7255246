"""Study records made by hand: synthetic numbers for a report that is a pure function of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.study.declarations import Cell, Contrast, Study, Variant

RATIOS = (("1", 1.0, 2000), ("1.25", 1.25, 2000), ("1.5", 1.5, 2000), ("2", 2.0, 2000), ("3", 3.0, 2000))
LETTERS = (("7", 1.0, 900), ("8", 8 / 7, 700), ("9-10", 10 / 7, 800), ("11-14", 2.0, 500))
SINGLE = (("test", 1.0, 1500),)
TEST_SETS = {"copy": RATIOS, "g2p-length": LETTERS, "g2p": SINGLE}
CELLS = {
    "copy": Cell("copy", "synthetic", {"data.task": "copy"}, "em", "Copying"),
    "g2p-length": Cell("g2p-length", "g2p", {"data.split": "length", "data.max_length": 7}, "per", "Spelling to sound"),
    "g2p": Cell("g2p", "g2p", {"data.split": "stem"}, "per", "Spelling to sound, unseen stems", figure=False),
}
RECIPES = {  # by cell, as a plan gives them
    "copy": {"data.task": "copy", "data.max_length": 8, "model.d_model": 32, "train.lr": 2e-3},
    "g2p-length": {"data.task": "g2p", "data.max_length": 7, "model.d_model": 64, "train.lr": 3e-3},
    "g2p": {"data.task": "g2p", "data.max_length": 20, "model.d_model": 64, "train.lr": 3e-3},
}


def make_run(variant: Variant, cell: Cell, seed: int, *, skill: float, speed: float = 1.0) -> RunRecord:
    """A finished run. ``skill`` in 0..1 is how well the arm keeps its quality at longer lengths."""
    rng = np.random.default_rng([seed, len(variant.name), int(1000 * skill), len(cell.name)])
    tests = TEST_SETS[cell.name]
    metrics: dict[str, float] = {"parameters": 41_234.0, "flops": 1.234e6, "valid_nll": 0.02, "diverged": 0.0}
    for bucket, ratio, _ in tests:
        kept = float(np.clip(1 - (1.2 - skill) * (ratio - 1) + rng.normal(0, 0.03) * (ratio > 1), 0, 1))
        if cell.metric == "em":
            metrics |= {f"em/{bucket}": kept, f"em_oracle/{bucket}": min(1.0, kept + 0.05)}
        else:
            metrics |= {f"per/{bucket}": 0.15 + 0.4 * (1 - kept) + rng.normal(0, 0.01), f"wer/{bucket}": 1 - 0.5 * kept}
        metrics |= {
            f"nll/{bucket}": 0.1 + 1 - kept,
            f"token_accuracy/{bucket}": kept,
            f"length_error/{bucket}": 1 - kept,
        }
    steps = np.arange(10, 810, 10)
    nll = 2.9 * np.exp(-steps * speed / 120) + 0.01 * np.exp(rng.normal(0, 0.3, len(steps)))
    metrics |= {"initial_nll": 2.9, "final_nll": float(nll[-1]), "steps_to_half": 90 / speed, "area": float(nll.mean())}
    metrics |= {"train_seconds": 8.0 + rng.normal(0, 0.5), "train_tokens_per_second": 151_000.0, "odd_thing": 3.25}
    examples = [
        {"bucket": b, "source": f"a b c {seed}", "reference": "a b c", "output": "a b c" if kept > 0.5 else "a b"}
        for b, _, _ in tests
    ]
    return RunRecord(
        metrics, {"step": steps.tolist(), "nll": nll.tolist()}, tests, examples,
        variant=variant.name, cell=cell.name, seed=seed, fingerprint=f"{variant.name}-{cell.name}-{seed}",
        status="finished", base=cell.base, delta=variant.delta, run_id=f"id{seed}", made_by={"source_hash": "cafe"},
    )  # fmt: skip


def make_study(
    names: Iterable[str] = ("none", "sinusoidal", "rope"),
    cells: Iterable[str] = ("copy", "g2p-length", "g2p"),
    seeds: Iterable[int] = (0, 1, 2),
    crosses: Iterable[str] = ("none",),
    contrasts: Iterable[Contrast] = (),
    change: Callable[[RunRecord], RunRecord] = lambda run: run,
    **fields: Any,
) -> StudyRecord:
    """A record of a study in which every arm has every cell; ``change`` may replace each run."""
    names, crosses = list(names), list(crosses)
    variants = []
    for name in names:
        for cross in crosses:
            delta: Mapping[str, Any] = {"model.position": name}
            delta = delta if cross == "none" else {**delta, "model.cross_position": cross}
            variants.append(
                Variant(name if cross == "none" else f"{name}+cross-{cross}", delta, why=f"what {name} does")
            )
    chosen = tuple(CELLS[c] for c in cells)
    # Declared and not run, unless it is asked for.
    left_out = () if "kerple" in names else (Variant("kerple", {"model.position": "kerple"}, level="claims"),)
    study = Study(
        "pe_extrapolation", "Which encoding learns, and which still works past the training length?", chosen,
        (*variants, *left_out), tuple(contrasts), ("A note on the task.",),
    )  # fmt: skip
    runs = []
    for i, variant in enumerate(variants):
        for cell in chosen:
            skill = 0.2 + 0.75 * (i + 1) / len(variants)
            runs += [change(make_run(variant, cell, s, skill=skill, speed=0.6 + 0.1 * (i % 9))) for s in seeds]
    settings: dict[str, Any] = {
        "skipped": [("kerple", "not a core arm: standard runs it")],
        "recipes": RECIPES,
        "environment": {"commit": "abc123", "hardware": "2 cores", "command": "python -m experiments.pe_extrapolation"},
    }
    return StudyRecord(study, "quick", runs, **(settings | fields))


@pytest.fixture(name="make_study")
def _make_study() -> Callable[..., StudyRecord]:
    return make_study
