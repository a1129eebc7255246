"""Claims as data: what is said about the Transformer, and which number, computed seed by seed, speaks to it.

A claim names statistics (a number for each seed, made from the arms' stored values) and a rule that turns them into a
verdict (:mod:`transformer_ablate.study.rules`). Nothing else goes into a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy

from transformer_ablate.metrics.key import Key

if TYPE_CHECKING:
    from transformer_ablate.measures.exact import Checked

VERDICTS = ("supported", "indicated", "inconclusive", "counter-indicated", "refuted", "not run")


class Evidence(Protocol):
    """The stored values that verdicts are a function of."""

    def values(self, arm: str, key: str) -> Mapping[int, float]:
        """Seed to value of ``CELL/METRIC[/BUCKET]``; empty where nothing was measured; NaN and infinity may occur."""
        ...

    def buckets(self, cell: str, metric: str) -> Sequence[tuple[str, float]]:
        """Name and length ratio of the test sets of a metric, in order of length."""
        ...

    def outcomes(self, arm: str, cell: str) -> Mapping[int, bool]:
        """Seed to whether the run failed to train: it ended without a result, diverged, or did not learn.

        Without the seeds of which that cannot be said.
        """
        ...

    def check(self, name: str) -> Checked | None:
        """The outcome of an exact check; None where it was not made."""
        ...


class Statistic(Protocol):
    """A number for each seed."""

    def per_seed(self, evidence: Evidence) -> dict[int, float]:
        """Seed to finite number; seeds that lack a part are left out."""
        ...

    def needs(self) -> Iterable[tuple[str, str]]:
        """Arms and cells that it is made from."""
        ...

    def told(self, evidence: Evidence) -> str:
        """What it chose on the way, in words; empty where there is nothing to choose."""
        ...


class Rule(Protocol):
    """What decides a claim; :mod:`transformer_ablate.study.rules` has them."""

    @property
    def margin(self) -> float | None:
        """The margin declared beforehand; None where the rule has none."""
        ...

    def words(self) -> str:
        """The rule, for readers."""
        ...

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        """What follows from the claim's statistics, and from whatever else the rule reads."""
        ...

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        """Arms and cells that it reads besides the claim's statistics."""
        ...

    def by_length(self, claim: Claim) -> Iterable[tuple[str, str]]:
        """Arms and cells whose exact match over lengths it is about: what they learnt within N stands beside it."""
        ...

    def checks(self) -> Iterable[str]:
        """Names of the exact checks that it asks for."""
        ...


def at_best(evidence: Evidence, arms: Iterable[str], key: str) -> tuple[str | None, str]:
    """The arm, of those that were run, whose mean over seeds of a loss is lowest; and the choice in words.

    An arm with a seed less than others, or one whose loss is not finite, is not at its best: its other seeds must not
    hide that. None where no arm is left.
    """
    found = {arm: list(values.values()) for arm in arms if (values := evidence.values(arm, key))}
    seeds = max(map(len, found.values()), default=0)
    means = {
        arm: math.fsum(values) / seeds if len(values) == seeds and all(map(math.isfinite, values)) else math.inf
        for arm, values in found.items()
    }
    told = ", ".join(f"{arm} {mean:.3g}" for arm, mean in means.items())
    best = min(means, key=means.__getitem__, default=None)
    if best is None or not math.isfinite(means[best]):
        return None, f"none has a finite {key} in every seed: {told}" if told else f"no values of {key}"
    return best, f"at {best}, the best by {key}: {told}"


def _common(parts: Sequence[Mapping[int, float]]) -> list[int]:
    """Seeds that all parts have a finite number for."""
    if not parts:
        return []
    shared = set(parts[0]).intersection(*parts[1:])
    return sorted(seed for seed in shared if all(math.isfinite(part[seed]) for part in parts))


@dataclass(frozen=True)
class Value:
    """An arm's value of ``CELL/METRIC[/BUCKET]``."""

    arm: str
    key: str

    def per_seed(self, evidence: Evidence) -> dict[int, float]:
        return {seed: v for seed, v in evidence.values(self.arm, self.key).items() if math.isfinite(v)}

    def needs(self) -> Iterable[tuple[str, str]]:
        return [(self.arm, Key.parse(self.key).cell)]

    def told(self, evidence: Evidence) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.key} of {self.arm}"


@dataclass(frozen=True)
class _Composed:
    """Base of statistics made from others."""

    parts: tuple[Statistic, ...]

    def per_seed(self, evidence: Evidence) -> dict[int, float]:
        values = [part.per_seed(evidence) for part in self.parts]
        found = {seed: self._combine(np.array([v[seed] for v in values])) for seed in _common(values)}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    def needs(self) -> Iterable[tuple[str, str]]:
        return dict.fromkeys(need for part in self.parts for need in part.needs())

    def told(self, evidence: Evidence) -> str:
        return "; ".join(filter(None, (part.told(evidence) for part in self.parts)))

    def _combine(self, x: np.ndarray) -> float:
        raise NotImplementedError

    def _named(self, name: str) -> str:
        return f"{name}({', '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Mean(_Composed):
    """The mean of several statistics."""

    def _combine(self, x: np.ndarray) -> float:
        return float(x.mean())

    def __str__(self) -> str:
        return self._named("mean")


@dataclass(frozen=True)
class InterquartileMean(_Composed):
    """The mean of the middle half of several statistics: a quarter, rounded down, is cut at each end (Agarwal et al.
    2021, section 4.3).
    """

    def _combine(self, x: np.ndarray) -> float:
        return float(scipy.stats.trim_mean(x, 0.25))

    def __str__(self) -> str:
        return self._named("IQM")


@dataclass(frozen=True)
class Minus(_Composed):
    """The first of two statistics less the second."""

    def _combine(self, x: np.ndarray) -> float:
        return float(x[0] - x[1])

    def __str__(self) -> str:
        return f"{self.parts[0]} − {self.parts[1]}"


@dataclass(frozen=True)
class Ratio(_Composed):
    """The first of two statistics over the second."""

    def _combine(self, x: np.ndarray) -> float:
        return float(x[0] / x[1]) if x[1] else math.nan

    def __str__(self) -> str:
        return f"{self.parts[0]} / {self.parts[1]}"


@dataclass(frozen=True)
class Relative(_Composed):
    """(a − b) / b of two statistics: by which share of the second the first differs from it."""

    def _combine(self, x: np.ndarray) -> float:
        return float((x[0] - x[1]) / x[1]) if x[1] else math.nan

    def __str__(self) -> str:
        return f"({self.parts[0]} − {self.parts[1]}) / {self.parts[1]}"


@dataclass(frozen=True)
class GapClosed(_Composed):
    """(middle − start) / (end − start) of three statistics: the part of a gap that the middle one closes.

    Attributes:
        lower: the end must be below the start (error rates), else above it; a seed without such a gap has no value.
    """

    lower: bool = False

    def _combine(self, x: np.ndarray) -> float:
        start, middle, end = x
        gap = start - end if self.lower else end - start
        return float((middle - start) / (end - start)) if gap > 0 else math.nan

    def __str__(self) -> str:
        return self._named("gap closed")


@dataclass(frozen=True)
class Best:
    """The arm whose mean is best among several, chosen on the same seeds that it is then judged by.

    The choice flatters it a little: a claim that it loses is on the safe side, one that it wins is not.
    """

    arms: tuple[str, ...]
    key: str
    lowest: bool

    def per_seed(self, evidence: Evidence) -> dict[int, float]:
        return Value(best, self.key).per_seed(evidence) if (best := self._best(evidence)) else {}

    def _best(self, evidence: Evidence) -> str | None:
        found = {arm: values for arm in self.arms if (values := Value(arm, self.key).per_seed(evidence))}
        sign = 1 if self.lowest else -1
        return min(found, key=lambda arm: sign * float(np.mean(list(found[arm].values()))), default=None)

    def needs(self) -> Iterable[tuple[str, str]]:
        return [(arm, Key.parse(self.key).cell) for arm in self.arms]

    def told(self, evidence: Evidence) -> str:
        return f"the best is {best}" if (best := self._best(evidence)) else ""

    def __str__(self) -> str:
        return f"best {self.key} of {', '.join(self.arms)}"


@dataclass(frozen=True)
class AtBestSetting:
    """The value of the arm, among one arm's settings (its learning rates, say), whose validation loss is lowest.

    Chosen by the mean over seeds of in-distribution validation data, never by what is then judged. No seed has a value
    unless all settings were run: of two arms that are compared neither may have been searched for less.

    Attributes:
        arms: the settings.
        key: ``CELL/METRIC[/BUCKET]`` of the value.
        by: ``CELL/METRIC`` of the validation loss; lower is better.
    """

    arms: tuple[str, ...]
    key: str
    by: str

    def per_seed(self, evidence: Evidence) -> dict[int, float]:
        best, _ = at_best(evidence, self.arms, self.by)
        return Value(best, self.key).per_seed(evidence) if best and not self._lacking(evidence) else {}

    def _lacking(self, evidence: Evidence) -> list[str]:
        return [arm for arm in self.arms if not evidence.values(arm, self.by)]

    def needs(self) -> Iterable[tuple[str, str]]:
        return [(arm, Key.parse(key).cell) for arm in self.arms for key in dict.fromkeys((self.key, self.by))]

    def told(self, evidence: Evidence) -> str:
        lacking = self._lacking(evidence)
        return f"not run: {', '.join(lacking)}" if lacking else at_best(evidence, self.arms, self.by)[1]

    def __str__(self) -> str:
        return f"{self.key} of {self.arms[0]} at its best of {len(self.arms)} settings"


def difference(a: str, b: str, key: str) -> Minus:
    """Arm ``a`` less arm ``b``, paired by seed."""
    return Minus((Value(a, key), Value(b, key)))


@dataclass(frozen=True)
class Claim:
    """A statement about the Transformer, and what decides it here.

    Attributes:
        id: short name, unique over all studies.
        statement: as notes, courses and papers say it.
        source: who says it.
        cell: where it is tested, for readers: task, setting, metric, lengths.
        rule: turns the statistics into a verdict.
        statistics: one a comparison; several are one family, corrected by Holm, that must hold together.
        kind: ``exact`` (a theorem checked numerically, or a count without chance; decided at any n) or ``statistical``.
        remark: what the literature or theory says; never part of the verdict.
        cuda: it can be decided on a CUDA machine alone.
        learnt: statistics, higher is better, with the least mean over seeds at which the comparison means anything;
            below it the verdict is inconclusive, since models that have learnt nothing agree with many statements.
    """

    id: str
    statement: str
    source: str
    cell: str
    rule: Rule
    statistics: tuple[Statistic, ...] = ()
    kind: str = "statistical"
    remark: str = ""
    cuda: bool = False
    learnt: tuple[tuple[Statistic, float], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the stored values say of a claim.

    Attributes:
        word: one of :data:`VERDICTS`.
        statistic: the number that was judged, in words.
        effect: its mean over seeds; of several comparisons the one that decides against the claim first.
        low, high: its 95 % interval; None where there is none.
        n: seeds that it rests on.
        p: p value where the rule has one, corrected by Holm over the claim's comparisons.
        n_needed: seeds that would decide, at the spread seen here; None where unknown or decided.
        note: why, in one line.
    """

    word: str
    statistic: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None
    n_needed: int | None = None
    note: str = ""
