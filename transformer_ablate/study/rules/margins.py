"""Rules on the mean over seeds and its interval: beyond a margin, within it, and shares of the variance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import scipy

from transformer_ablate.metrics.key import Key
from transformer_ablate.stats.designs import variance_shares
from transformer_ablate.stats.hypotheses import n_needed, tost
from transformer_ablate.stats.summary import clopper_pearson, holm, summarise
from transformer_ablate.study.claims import VERDICTS, Claim, Evidence, Verdict
from transformer_ablate.study.rules.base import (
    DECIDING_SEEDS,
    INDICATING_MARGINS,
    INDICATING_SEEDS,
    LEVEL,
    StatisticsAlone,
    absent,
    ladder,
    seeds_to_decide,
)


@dataclass(frozen=True)
class Beyond(StatisticsAlone):
    """The statistic is larger than a margin (or, with ``below``, smaller than minus the margin), at every comparison.

    Supported where the whole 95 % interval lies beyond the margin (Student t over seeds; p against the margin corrected
    by Holm over the claim's comparisons), refuted where it lies wholly on the other side.

    Attributes:
        margin: at least 0, in the statistic's unit.
        below: the claim says "smaller".
        bound: what the statistic is compared with; 0 for differences.
        counted: judged by the number of seeds beyond the margin and its Clopper–Pearson interval against one half,
            because the values themselves (exact match) may all be 0 or 1 and their t-interval collapses.
    """

    margin: float
    below: bool = False
    bound: float = 0.0
    counted: bool = False

    def words(self) -> str:
        side = "below" if self.below else "above"
        limit = self.bound - self.margin if self.below else self.bound + self.margin
        how = "seeds on that side, Clopper–Pearson against one half" if self.counted else "95 % t-interval, Holm"
        return f"{side} {limit:g} ({how})"

    def by_length(self, claim: Claim) -> Iterable[tuple[str, str]]:
        return [need for statistic in claim.statistics for need in statistic.needs()] if self.counted else []

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        values = [statistic.per_seed(evidence) for statistic in claim.statistics]
        if not all(values):
            return absent(claim)
        found = [self._one(str(name), list(of.values())) for name, of in zip(claim.statistics, values, strict=True)]
        steps = []
        for one, p in zip(found, holm([one.p for one in found]), strict=True):
            lost = one.word in ("supported", "refuted") and p is not None and p > LEVEL
            steps.append(dataclasses.replace(one, p=p, word="inconclusive" if lost else one.word))
        # The claim is as strong as its weakest comparison; one refuted comparison refutes it.
        return max(steps, key=lambda verdict: VERDICTS.index(verdict.word))

    def _one(self, name: str, values: list[float]) -> Verdict:
        """The verdict on one comparison, not yet corrected for the others; values over seeds."""
        sign = -1.0 if self.below else 1.0
        towards = [sign * (value - self.bound) for value in values]
        summary, n = summarise(values), len(values)
        found = Verdict("inconclusive", name, summary.mean, summary.low, summary.high, n)
        mean = math.fsum(towards) / n
        far = abs(mean) >= INDICATING_MARGINS * self.margin
        indicated, countered = far and min(towards) > 0, far and max(towards) < 0
        one_sided = n >= INDICATING_SEEDS and len({value > 0 for value in towards}) == 1
        near = "all seeds on one side, by less than three margins on average" if one_sided and not far else ""
        if self.counted:
            k = sum(value > self.margin for value in towards)
            low, high = clopper_pearson(k, n)
            word = ladder(n, low > 0.5, high < 0.5, indicated, countered)
            note = f"{k} of {n} seeds beyond the margin, interval of their share [{low:.3f}, {high:.3f}]"
            note += f"; {near}" if near and word == "inconclusive" else ""
            return dataclasses.replace(found, word=word, n_needed=seeds_to_decide(n), note=note)
        if not summary.sd:
            return dataclasses.replace(found, note=_no_width(n))
        p = float(2 * scipy.stats.t.sf(abs(mean - self.margin) / (summary.sd / math.sqrt(n)), n - 1))
        word = ladder(n, p < LEVEL and mean > self.margin, p < LEVEL and mean < self.margin, indicated, countered)
        needed = None
        if word not in ("supported", "refuted"):
            needed = max(DECIDING_SEEDS, n_needed(summary.sd, abs(mean - self.margin)) or 0)
        note = near if word == "inconclusive" and n < DECIDING_SEEDS else ""
        return dataclasses.replace(found, word=word, p=p, n_needed=needed, note=note)


def _no_width(n: int) -> str:
    return "one seed: no interval" if n == 1 else "all seeds agree: the interval has no width and decides nothing"


@dataclass(frozen=True)
class Within(StatisticsAlone):
    """The statistic is within ± the margin: equivalence by two one-sided t-tests at 5 % (Schuirmann 1987).

    Supported where both reject; refuted where the 95 % interval lies wholly outside.
    """

    margin: float

    def words(self) -> str:
        return f"within ±{self.margin:g} (two one-sided t-tests, 90 % interval)"

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        (statistic,) = claim.statistics
        values = list(statistic.per_seed(evidence).values())
        if not values:
            return absent(claim)
        summary, n = summarise(values), len(values)
        found = Verdict("inconclusive", str(statistic), summary.mean, summary.low, summary.high, n)
        if summary.mean is None or summary.low is None or summary.high is None or not summary.sd:
            return dataclasses.replace(found, note=_no_width(n))
        p, margin = tost(values, self.margin), self.margin
        # "Equal" cannot be far from its margin; three margins away is far from equal.
        far = abs(summary.mean) >= INDICATING_MARGINS * margin
        far = far and all(abs(v) > margin and v * values[0] > 0 for v in values)
        near = all(abs(v) <= margin / INDICATING_MARGINS for v in values)
        word = ladder(n, p is not None and p < LEVEL, summary.low > margin or summary.high < -margin, near, far)
        needed, room = None, abs(margin - abs(summary.mean))
        if word not in ("supported", "refuted") and room:
            needed = max(DECIDING_SEEDS, n_needed(summary.sd, room) or 0)
        return dataclasses.replace(found, word=word, p=p, n_needed=needed)


@dataclass(frozen=True)
class MoreVariance(StatisticsAlone):
    """In a crossed table of arms the second factor explains a larger share of the variance than the first.

    Components by ANOVA and their jackknife interval: see ``transformer_ablate.stats.designs.variance_shares``.
    Supported where the interval of the difference of shares lies above 0, refuted where it lies below.

    Attributes:
        table: (level of the first factor, level of the second) to arm; complete.
        key: ``CELL/METRIC[/BUCKET]``.
    """

    table: Mapping[tuple[str, str], str]
    key: str
    margin: float = 0.0

    def words(self) -> str:
        return "variance share of the second factor above that of the first (ANOVA components, jackknife over seeds)"

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        return [(arm, Key.parse(self.key).cell) for arm in self.table.values()]

    by_length = needs

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        name = f"variance share of the second factor − that of the first, {self.key}"
        values = {levels: evidence.values(arm, self.key) for levels, arm in self.table.items()}
        missing = [arm for levels, arm in self.table.items() if not values[levels]]
        if missing:
            return Verdict("not run", name, note=f"no values of {', '.join(missing)} for {self.key}")
        apart = variance_shares({(second, first): seeds for (first, second), seeds in values.items()}).difference
        above = apart.excludes(0.0) and apart.estimate is not None and apart.estimate > 0
        under = apart.excludes(0.0) and not above
        # One share of all seeds: "every seed in the direction" reads as an interval that leaves 0 out.
        word = ladder(apart.n, above, under, above, under)
        note = "" if apart.estimate is not None else "the arms' values are all equal, or there are fewer than two seeds"
        low, high = apart.low, apart.high
        return Verdict(word, name, apart.estimate, low, high, apart.n, n_needed=seeds_to_decide(apart.n), note=note)
