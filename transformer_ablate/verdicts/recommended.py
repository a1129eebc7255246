"""The recipe that a study's single changes speak for, as a file that ``--config`` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.record.index import Index
from transformer_ablate.stats.summary import holm, paired_difference
from transformer_ablate.study.declarations import Steps
from transformer_ablate.study.rules import DECIDING_SEEDS, LEVEL
from transformer_ablate.verdicts.pareto import higher_is_better, split

# What a file must hold besides, so that it trains what was measured: Noam's peak, for one, follows from the width.
SIZES = ("model.d_model", "model.d_ff", "model.n_heads", "model.encoder_layers", "model.decoder_layers", "model.tying")


@dataclass(frozen=True)
class Recommended:
    """A recipe and why.

    Attributes:
        base: the arm that it starts from.
        taken: arms, each one change from the base, whose change is taken.
        fields: dotted recipe field to value.
        sentence: for the reader.
    """

    base: str
    taken: tuple[str, ...]
    fields: Mapping[str, Any]
    sentence: str


def recommended(index: Index, steps: Steps) -> Recommended | None:
    """The better of the bases by its mean, with every single change that beats it (Holm's p below .05 among them).

    Chosen on the metric that the study names for it, of validation data. None where no base has a value yet.
    """
    cell, name = split(steps.metric)
    means = higher_is_better(index, steps.metric)
    bases = [base for base in steps.changes if base in means]
    if not bases:
        return None
    base = max(bases, key=lambda arm: means[arm])
    of_base = index.values(cell, base, name)
    changes = [arm for arm in steps.changes[base] if arm in means]
    found = [paired_difference(index.values(cell, arm, name), of_base) for arm in changes]
    sure = holm([difference.p for difference in found])
    taken = tuple(
        arm for arm, p in zip(changes, sure, strict=True) if p is not None and p < LEVEL and means[arm] > means[base]
    )
    start = _delta(index, cell, base)
    fields = dict(start)
    for arm in taken:
        own = _delta(index, cell, arm)
        fields = {field: value for field, value in fields.items() if field in own or field not in start}
        fields |= {field: value for field, value in own.items() if start.get(field) != value}
    sizes = {field: value for field, value in index.record.recipes.get(cell, {}).items() if field in SIZES}
    same = next((arm for arm in index.arms(cell) if _delta(index, cell, arm) == fields), None)
    n = index.summary(cell, base, name).n
    sentence = f"Recommended by {metric_of(name).label.lower()} in {cell} (n = {n}): {base}"
    if taken:
        sentence += ", with the changes of " + ", ".join(taken)
    sentence += f"; no other single change from {base} is better with p < {LEVEL:g} after Holm's correction"
    if n < DECIDING_SEEDS:
        sentence += f" (fewer than {DECIDING_SEEDS} seeds: a hint)"
    sentence += f". It is the arm {same}." if same else ". This combination was not itself an arm: measure it."
    return Recommended(base, taken, {**sizes, **fields}, sentence)


def _delta(index: Index, cell: str, arm: str) -> dict[str, Any]:
    return dict(next((run.delta for run in index.runs(cell, arm)), {}))


def as_config(found: Recommended) -> str:
    """YAML text that ``--config`` reads, with the reason in front."""
    nested: dict[str, dict[str, Any]] = {}
    for field, value in sorted(found.fields.items()):
        group, _, name = field.partition(".")
        nested.setdefault(group, {})[name] = value
    return f"# {found.sentence}\n" + yaml.safe_dump(nested, sort_keys=True, allow_unicode=True)
