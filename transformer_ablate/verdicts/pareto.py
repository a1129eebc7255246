"""What arms cost against what they are worth, without a mixed score: which arms none other beats."""

from __future__ import annotations

import math
from collections.abc import Sequence

from transformer_ablate.metrics.catalogue import metric_of
from transformer_ablate.metrics.key import Key
from transformer_ablate.record.index import Index
from transformer_ablate.study.declarations import Pareto


def split(key: str) -> tuple[str, str]:
    """``CELL/METRIC[/BUCKET]`` as cell and key."""
    place = Key.parse(key)
    return place.cell, place.within


def means(index: Index, key: str) -> dict[str, float]:
    """Arm to mean over seeds, for the arms that have one."""
    cell, name = split(key)
    if index.cell(cell) is None:
        return {}
    found = {arm: index.summary(cell, arm, name).mean for arm in index.arms(cell)}
    return {arm: mean for arm, mean in found.items() if mean is not None and math.isfinite(mean)}


def front(costs: Sequence[dict[str, float]], worth: Sequence[dict[str, float]]) -> list[str]:
    """Arms that no other arm beats: none is at least as good in everything and better in something.

    Args:
        costs: arm to value, lower is better.
        worth: arm to value, higher is better.
    """
    shared = [arm for arm in (worth or costs)[0] if all(arm in values for values in (*costs, *worth))]
    points = {arm: [*(-v[arm] for v in costs), *(v[arm] for v in worth)] for arm in shared}
    return [
        arm
        for arm, own in points.items()
        if not any(all(o >= m for o, m in zip(other, own, strict=True)) and other != own for other in points.values())
    ]


def higher_is_better(index: Index, key: str) -> dict[str, float]:
    """Means turned so that higher is better."""
    sign = -1.0 if metric_of(split(key)[1]).better == "lower" else 1.0
    return {arm: sign * mean for arm, mean in means(index, key).items()}


def pareto_front(index: Index, pareto: Pareto) -> list[str]:
    """The arms on the front of all of a study's costs and measures of worth, by their means over seeds."""
    worth = [higher_is_better(index, key) for key in pareto.worth]
    costs = [means(index, key) for key in pareto.costs]
    if not all(worth) or not all(costs):
        return []
    return front(costs, worth)
