"""Rules that decide at any n: theorems, bounds that theory fixes, and counts without chance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from transformer_ablate.stats.summary import summarise
from transformer_ablate.study.claims import Claim, Evidence, Verdict
from transformer_ablate.study.rules.base import StatisticsAlone, absent

# Relative difference up to which seeds have one count: a median of equal counts may differ in its last digits.
EQUAL_COUNTS = 1e-6


@dataclass(frozen=True)
class Holds(StatisticsAlone):
    """A theorem holds numerically: see ``transformer_ablate.measures.exact``.

    Attributes:
        check: name of the check.
    """

    check: str
    margin = None

    def words(self) -> str:
        return "decided by computation, at any n"

    def checks(self) -> Iterable[str]:
        return [self.check]

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        found = evidence.check(self.check)
        if found is None:
            return Verdict("not run", self.check, note="the check was not made")
        return Verdict("supported" if found.holds else "refuted", self.check, found.value, note=found.detail)


@dataclass(frozen=True)
class Bounded(StatisticsAlone):
    """The statistic is, in every seed, at most (with ``below`` False: at least) a bound that a check computes.

    A bound that theory fixes is decided at any n, but says nothing of models that are nowhere near it: untrained ones
    keep every such bound.

    Attributes:
        check: name of the check that computes the bound.
        below: whether the bound is an upper one.
        slack: allows for the sampling of test examples.
        near: within which distance of the bound, on its lawful side, every seed must have come; inconclusive else.
    """

    check: str
    below: bool = True
    slack: float = 0.0
    near: float = float("inf")

    @property
    def margin(self) -> float | None:
        return self.slack

    def words(self) -> str:
        return f"every seed {'at most' if self.below else 'at least'} the computed bound, slack {self.slack:g}"

    def checks(self) -> Iterable[str]:
        return [self.check]

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        found = evidence.check(self.check)
        (statistic,) = claim.statistics
        values = list(statistic.per_seed(evidence).values())
        if found is None or not values:
            return absent(claim)
        sign = 1 if self.below else -1
        holds = all(sign * (value - found.bound) <= self.slack for value in values)
        summary = summarise(values)
        note = f"bound {found.bound:.4g}: {found.detail}"
        word = "supported" if holds else "refuted"
        if holds and any(abs(value - found.bound) > self.near for value in values):
            word, note = "inconclusive", f"not every seed has come within {self.near:g} of it; {note}"
        return Verdict(word, str(statistic), summary.mean, summary.low, summary.high, len(values), note=note)


@dataclass(frozen=True)
class Deterministic(StatisticsAlone):
    """The statistic, in which chance has no part (bytes, parameters, operations), lies beyond a bound in every seed.

    Decided at any n: seeds repeat the same count, so that an interval without width is what is to be expected.
    Supported where they are at or beyond the bound, refuted where they are on its other side; inconclusive where they
    differ, since then chance has a part.

    Attributes:
        bound: in the statistic's unit.
        below: the claim says "at most".
    """

    bound: float
    below: bool = False
    margin = None

    def words(self) -> str:
        return f"at {'most' if self.below else 'least'} {self.bound:g}; a count without chance, decided at any n"

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        (statistic,) = claim.statistics
        values = list(statistic.per_seed(evidence).values())
        if not values:
            return absent(claim)
        mean, n = summarise(values).mean, len(values)
        if max(values) - min(values) > EQUAL_COUNTS * abs(max(values, key=abs)):
            note = f"seeds differ, from {min(values):.4g} to {max(values):.4g}: chance has a part in it"
            return Verdict("inconclusive", str(statistic), mean, n=n, note=note)
        kept = values[0] <= self.bound if self.below else values[0] >= self.bound
        return Verdict("supported" if kept else "refuted", str(statistic), mean, n=n)
