"""What rules share: the steps of the ladder, and what most of them do not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from transformer_ablate.study.claims import Claim, Verdict

DECIDING_SEEDS = 8
INDICATING_SEEDS = 3
INDICATING_MARGINS = 3
LEVEL = 0.05
# Of the seeds, for statements about "most of them"; and the parts of the in-distribution exact match that an arm keeps
# or has lost.
MOST, KEPT, LOST = 0.8, 0.9, 0.5


@dataclass(frozen=True)
class StatisticsAlone:
    """Base of rules: reads nothing but the claim's statistics, and is not about exact match or lengths."""

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        """See :class:`~transformer_ablate.study.claims.Rule`."""
        return ()

    def by_length(self, claim: Claim) -> Iterable[tuple[str, str]]:
        """See :class:`~transformer_ablate.study.claims.Rule`."""
        return ()

    def checks(self) -> Iterable[str]:
        """See :class:`~transformer_ablate.study.claims.Rule`."""
        return ()


def ladder(n: int, supported: bool, refuted: bool, indicated: bool, countered: bool) -> str:
    """The highest step whose condition holds and that ``n`` seeds are enough for."""
    if n >= DECIDING_SEEDS and (supported or refuted):
        return "supported" if supported else "refuted"
    if n >= INDICATING_SEEDS and (indicated or countered):
        return "indicated" if indicated else "counter-indicated"
    return "inconclusive"


def seeds_to_decide(n: int) -> int | None:
    """Seeds with which a rule that counts seeds can decide; None where there are enough."""
    return DECIDING_SEEDS if n < DECIDING_SEEDS else None


def absent(claim: Claim) -> Verdict:
    """The verdict where a statistic has no value in any seed."""
    arms = dict.fromkeys(f"{arm} in {cell}" for statistic in claim.statistics for arm, cell in statistic.needs())
    return Verdict("not run", " | ".join(map(str, claim.statistics)), note=f"no values of {', '.join(arms)}")
