"""The words in which a study is declared. Nothing here trains, stores or draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformer_ablate.config import Recipe
from transformer_ablate.study.checks import check_study
from transformer_ablate.study.claims import Claim

PRESETS = ("smoke", "quick", "standard", "full")
SEEDS = {"smoke": 1, "quick": 3, "standard": 8, "full": 3}
# core: every preset; claims: what the study's claims need besides, from standard on; full: what needs a GPU's speed;
# further: on request.
LEVELS = ("core", "claims", "full", "further")
LEVEL_OF_PRESET = {"smoke": "core", "quick": "core", "standard": "claims", "full": "full"}
# What is measured where a cell says nothing else (see ``transformer_ablate.measures.MEASURES``).
USUAL_MEASURES = ("quality", "text", "extrapolation", "convergence", "size")


def within(level: str, preset: str) -> bool:
    """Whether a preset runs what is of this level."""
    return LEVELS.index(level) <= LEVELS.index(LEVEL_OF_PRESET[preset])


@dataclass(frozen=True)
class FromBase:
    """A value of a delta that follows from the cell's base recipe, e.g. rows of a table that is trained to its end.

    Attributes:
        text: what tables print for it.
        value: base recipe to value.
    """

    text: str
    value: Callable[[Recipe], Any]

    def __str__(self) -> str:
        return self.text


def resolved(delta: Mapping[str, Any], base: Recipe) -> dict[str, Any]:
    """A delta as plain values."""
    return {name: value.value(base) if isinstance(value, FromBase) else value for name, value in delta.items()}


@dataclass(frozen=True)
class Cell:
    """One task that a study measures its variants on.

    Attributes:
        name: how tables call it, e.g. ``copy`` or ``g2p-length``; the first part of every metric key.
        base: name of the base recipe (``transformer_ablate.study.recipes``).
        delta: what distinguishes the cell from its base, dotted field to value.
        metric: the primary metric (``em``, ``per``); lower is better for error rates.
        title: what the reader of a report is told, in one phrase.
        figure: the cell's test sets are ordered by length and drawn against it.
        axis: what the buckets of the primary metric count where they are no test sets: ``layer``, ``tokens``; it is
            then drawn against them, with logarithmic axes where they are powers.
        level: which presets run it (see :data:`LEVELS`); the others when ``--cells`` or its task and split select it.
        measures: names of what is measured in it, in order.
        gate: exact match in distribution of at least .95 is asked for before anything is said of longer inputs.
        small: fields that hold it to a size that many arms and seeds can be afforded at, in every preset but full.
    """

    name: str
    base: str
    delta: Mapping[str, Any]
    metric: str
    title: str
    figure: bool = True
    axis: str = ""
    level: str = "core"
    measures: tuple[str, ...] = USUAL_MEASURES
    small: Mapping[str, Any] = field(default_factory=dict)
    gate: bool = True

    def fields(self, preset: str) -> Mapping[str, Any]:
        """What it sets on its base recipe in a preset, dotted field to value."""
        return self.delta if preset == "full" else {**self.delta, **self.small}


@dataclass(frozen=True)
class Variant:
    """A named base recipe and the smallest delta from it.

    Attributes:
        name: how tables call it and how ``--variants`` selects it.
        delta: dotted recipe field to value: all that distinguishes this arm from its base, and nothing else.
        cells: the cells it runs in; None for all of the study's.
        level: which presets run it (see :data:`LEVELS`); arms that a preset leaves out are named as skipped.
        why: one line for the reader.
    """

    name: str
    delta: Mapping[str, Any]
    cells: tuple[str, ...] | None = None
    level: str = "core"
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
class Pareto:
    """A picture of what each arm costs against what it is worth, one panel a measure; no mixed score.

    Attributes:
        costs: ``CELL/METRIC`` keys for the horizontal axes, e.g. ``g2p/train_seconds``; lower is better.
        worth: ``CELL/METRIC[/BUCKET]`` keys for the vertical axes, in the catalogue's direction.
    """

    costs: tuple[str, ...]
    worth: tuple[str, ...]


@dataclass(frozen=True)
class Factorial:
    """A two-level design among a study's arms, whose main effects and interactions are estimated.

    Attributes:
        factors: names, in order.
        arms: arm name to its level of each factor, -1 or +1.
        metrics: ``CELL/METRIC[/BUCKET]`` keys that effects are estimated for.
    """

    factors: tuple[str, ...]
    arms: Mapping[str, tuple[int, ...]]
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Steps:
    """Bases and the single changes from each, from which a recipe is recommended.

    Attributes:
        metric: ``CELL/METRIC[/BUCKET]``, of validation data: what the recommendation is chosen by.
        changes: arm to the arms that are one change away from it.
        trained_by: the command that trains a recipe, but for ``--config FILE``; the report prints it.
    """

    metric: str
    changes: Mapping[str, tuple[str, ...]]
    trained_by: str = ""


@dataclass(frozen=True)
class Study:
    """A question, the tasks and arms that answer it, and the contrasts and claims declared before any run.

    Attributes:
        name: module name under ``experiments/`` and name of the MLflow experiment.
        question: one sentence.
        cells, variants, contrasts, claims: see the classes.
        notes: paragraphs that the report prints before its tables (definitions, known traps).
        left_out: ``(name, reason)`` of arms that cannot work in any preset on any machine so far.
        one_rate: arms mean something at one shared learning rate only, so that --lr-grid leaves them alone.
        pareto, factorial, steps: see the classes; None for none.

    Raises:
        ConfigError: for the name of an arm, cell, metric or bucket that there is not; see :mod:`.checks`.
    """

    name: str
    question: str
    cells: tuple[Cell, ...]
    variants: tuple[Variant, ...]
    contrasts: tuple[Contrast, ...] = ()
    notes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    pareto: Pareto | None = None
    factorial: Factorial | None = None
    steps: Steps | None = None
    one_rate: bool = False

    def __post_init__(self) -> None:
        check_study(self)

    def cells_of(self, variant: Variant) -> tuple[Cell, ...]:
        """The cells in which a variant runs."""
        return tuple(c for c in self.cells if variant.cells is None or c.name in variant.cells)
