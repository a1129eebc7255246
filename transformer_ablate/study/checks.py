"""A study checks itself where it is declared: every arm, cell, metric and bucket that it names is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from transformer_ablate.errors import ConfigError, unknown_name
from transformer_ablate.metrics.catalogue import CATALOGUE, measures
from transformer_ablate.metrics.key import Key
from transformer_ablate.metrics.metric import TEST_SET

if TYPE_CHECKING:
    from transformer_ablate.study.claims import Claim
    from transformer_ablate.study.declarations import Cell, Study

# Where in a study a name stands, for people; the arm or None; the cell, or the key within which it is named.
Named = tuple[str, str | None, str | Key]


def check_study(study: Study) -> None:
    """Holds every name in a study against what it declares.

    Raises:
        ConfigError: for the first name that there is not, with the nearest one that there is.
    """
    arms, cells = [variant.name for variant in study.variants], {cell.name: cell for cell in study.cells}
    _check_names("arm", arms)
    _check_names("cell", [cell.name for cell in study.cells])
    _check_names("claim", [claim.id for claim in study.claims])
    for cell in study.cells:
        _among(f"cell {cell.name!r}: measures", cell.measures, measures())
        _check_metric(f"cell {cell.name!r}: metric", cell.metric, cell)
    for variant in study.variants:
        _among(f"arm {variant.name!r}: cells", variant.cells or (), cells)
    runs = {variant.name: {cell.name for cell in study.cells_of(variant)} for variant in study.variants}
    for where, arm, place in _named(study):
        name = place.cell if isinstance(place, Key) else place
        _among(f"{where}: cell", [name], cells)
        if arm is not None:
            _among(f"{where}: arm", [arm], arms)
            if name not in runs[arm]:
                there = ", ".join(other for other in arms if name in runs[other])
                raise ConfigError(f"{where}: arm", arm, f"an arm that runs in cell {name!r}: {there}")
        if isinstance(place, Key):
            _check_metric(f"{where}: metric", place.metric, cells[name])
            _check_bucket(f"{where}: {place}", place)


def check_test_sets(study: Study, cell: str, names: Sequence[str]) -> None:
    """Holds the test sets that a study names in a cell against those that the cell's data has.

    Raises:
        ConfigError: for the first that there is not.
    """
    for where, _, key in _named(study):
        if isinstance(key, Key) and key.cell == cell and CATALOGUE[key.metric].counts == TEST_SET:
            _among(f"{where}: test set of {key}", [key.bucket], names)


def exact_checks(study: Study) -> Iterator[tuple[str, str]]:
    """Where an exact check is named, and its name (the checks themselves are slow to import)."""
    yield from ((f"claim {claim.id!r}: check", name) for claim in study.claims for name in claim.rule.checks())


def _named(study: Study) -> Iterator[Named]:
    """All arms, cells and keys that a study names outside their own declarations."""
    for contrast in study.contrasts:
        for arm in (contrast.a, contrast.b):
            yield f"contrast {contrast.a!r} − {contrast.b!r}", arm, Key.parse(contrast.metric)
    for claim in study.claims:
        yield from _named_by(claim)
    if study.pareto is not None:
        yield from (("pareto", None, Key.parse(key)) for key in (*study.pareto.costs, *study.pareto.worth))
    if study.factorial is not None:
        factorial = study.factorial
        yield from (("factorial", arm, Key.parse(key)) for key in factorial.metrics for arm in factorial.arms)
    if study.steps is not None:
        for base, changes in study.steps.changes.items():
            yield from ((f"steps from {base!r}", arm, Key.parse(study.steps.metric)) for arm in (base, *changes))


def _named_by(claim: Claim) -> Iterator[Named]:
    where = f"claim {claim.id!r}"
    yield from ((where, arm, cell) for arm, cell in claim.rule.needs(claim))
    for statistic in (*claim.statistics, *(statistic for statistic, _ in claim.learnt)):
        yield from ((where, arm, cell) for arm, cell in statistic.needs())
    for part in (claim.rule, *claim.statistics, *(statistic for statistic, _ in claim.learnt)):
        for inner in _within(part):
            keys = [Key.parse(getattr(inner, name)) for name in ("key", "by") if hasattr(inner, name)]
            cells: Iterable[str | Key] = keys or ([inner.cell] if hasattr(inner, "cell") else [])
            yield from ((where, arm, cell) for cell in cells for arm in (_arms_of(inner) or [None]))


def _within(part: Any) -> Iterator[Any]:
    """A rule or a statistic and those that it is made of."""
    yield part
    for inner in (*getattr(part, "parts", ()), *getattr(part, "rules", {}).values()):
        yield from _within(inner)


def _arms_of(part: Any) -> list[str | None]:
    """The arms that a rule or a statistic names itself."""
    one = [getattr(part, name) for name in ("arm", "a", "b") if hasattr(part, name)]
    several = (getattr(part, "arms", ()), getattr(part, "table", {}).values(), getattr(part, "rules", ()))
    return [*one, *(arm for arms in several for arm in arms)]


def _check_names(what: str, names: Sequence[str]) -> None:
    """Names are distinct and can be typed: no word of the command line, no part of a list or a key."""
    for i, name in enumerate(names):
        if not name or name == "all" or name.startswith("-") or "," in name or (what == "cell" and "/" in name):
            raise ConfigError(f"{what}'s name", name, "not empty, not 'all', no '-' in front, no ',' (cells: no '/')")
        if name in names[:i]:
            raise ConfigError(f"{what}'s name", name, f"a name that no other {what} has")


def _among(where: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = tuple(known)
    for name in names:
        if name not in known:
            raise unknown_name(where, name, known)


def _check_metric(where: str, name: str, cell: Cell) -> None:
    measured = [m.name for m in CATALOGUE.values() if not m.measure or m.measure in cell.measures]
    if name in CATALOGUE and name not in measured:
        fix = f"add {CATALOGUE[name].measure!r} to its measures"
        raise ConfigError(where, name, f"what cell {cell.name!r} measures ({', '.join(cell.measures)})", fix)
    _among(where, [name], measured)


def _check_bucket(where: str, key: Key) -> None:
    counts = CATALOGUE[key.metric].counts
    if not counts and key.bucket:
        raise ConfigError(where, key.bucket, f"nothing behind {key.metric!r}, which has one value a run")
    if counts and not key.bucket:
        raise ConfigError(where, key.bucket, f"the {counts} behind {key.metric!r}, e.g. {key}/1")
    if CATALOGUE[key.metric].counted and not key.bucket.isdecimal():
        raise ConfigError(where, key.bucket, f"a whole number ({counts})")
