"""The words in which a study is declared. Nothing here trains, stores or draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRESETS = ("smoke", "quick", "standard", "full")
SEEDS = {"smoke": 1, "quick": 3, "standard": 8, "full": 3}


@dataclass(frozen=True)
class Cell:
    """One task that a study measures its variants on.

    Attributes:
        name: how tables call it, e.g. ``copy`` or ``g2p-length``; the first part of every metric key.
        base: name of the base recipe (``transformer_ablate.recipes``).
        delta: what distinguishes the cell from its base, dotted field to value.
        metric: the primary metric (``em``, ``per``); lower is better for error rates.
        title: what the reader of a report is told, in one phrase.
        figure: the cell's test sets are ordered by length and drawn against it.
        core: whether presets run it; other cells run when the command line selects their task and split.
    """

    name: str
    base: str
    delta: Mapping[str, Any]
    metric: str
    title: str
    figure: bool = True
    core: bool = True


@dataclass(frozen=True)
class Variant:
    """A named base recipe and the smallest delta from it.

    Attributes:
        name: how tables call it and how ``--variants`` selects it.
        delta: dotted recipe field to value: all that distinguishes this arm from its base, and nothing else.
        cells: the cells it runs in; None for all of the study's.
        core: whether smoke and quick run it; arms that are not core are named as skipped there.
        why: one line for the reader.
    """

    name: str
    delta: Mapping[str, Any]
    cells: tuple[str, ...] | None = None
    core: bool = True
    why: str = ""


@dataclass(frozen=True)
class Contrast:
    """A difference ``a - b`` that the study set out to estimate, paired by seed.

    Attributes:
        a, b: variant names.
        metric: ``CELL/METRIC[/BUCKET]``, a key of the results.
        primary: whether it belongs to the family that Holm's correction covers.
    """

    a: str
    b: str
    metric: str
    primary: bool = True


@dataclass(frozen=True)
class Study:
    """A question, the tasks and arms that answer it, and the contrasts declared before any run.

    Attributes:
        name: module name under ``experiments/`` and name of the MLflow experiment.
        question: one sentence.
        cells, variants, contrasts: see the classes.
        notes: paragraphs that the report prints before its tables (definitions, known traps).
    """

    name: str
    question: str
    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]
    contrasts: tuple[Contrast, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def cells_of(self, variant: Variant) -> tuple[Cell, ...]:
        """The cells in which a variant runs."""
        return tuple(c for c in self.cells if variant.cells is None or c.name in variant.cells)
