"""Rules on the number of seeds that keep a length or fail to train, and rules applied where an arm is at its best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.metrics.key import Key
from transformer_ablate.stats.hypotheses import fisher
from transformer_ablate.stats.summary import clopper_pearson
from transformer_ablate.study.claims import Claim, Evidence, Rule, Verdict, at_best
from transformer_ablate.study.rules.base import KEPT, LEVEL, LOST, MOST, StatisticsAlone, ladder, seeds_to_decide

LONG = f"that are long enough to judge ({LEAST_UPDATES} updates)"


@dataclass(frozen=True)
class KeepsTo(StatisticsAlone):
    """An arm works up to a length: at least 80 % of the seeds keep .9 of their own in-distribution exact match.

    Supported where they do in every test set up to ``ratio``; refuted where at least 80 % have less than half of it in
    the test set at ``ratio``; inconclusive between (it works in part).
    """

    arm: str
    cell: str
    ratio: float
    margin = None

    def words(self) -> str:
        return f"at least {MOST:.0%} of the seeds keep {KEPT:g} of their in-distribution EM up to {self.ratio:g}×"

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        return [(self.arm, self.cell)]

    by_length = needs

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        up_to = [(name, r) for name, r in evidence.buckets(self.cell, "em") if r <= self.ratio + 1e-9]
        name = f"share of the seeds of {self.arm} that keep their EM on {self.cell} up to {self.ratio:g}×"
        if not up_to or up_to[-1][1] < self.ratio - 1e-9:
            return Verdict("not run", name, note=f"no values of {self.arm} in {self.cell} up to {self.ratio:g}×")
        series = [evidence.values(self.arm, f"{self.cell}/em/{bucket}") for bucket, _ in up_to]
        seeds = sorted(set(series[0]).intersection(*series[1:]))
        seeds = [seed for seed in seeds if all(math.isfinite(values[seed]) for values in series)]
        if not seeds:
            return Verdict("not run", name, note=f"no values of {self.arm} in {self.cell}")
        base = [values for (_, r), values in zip(up_to, series, strict=True) if r <= 1 + 1e-9][-1]
        kept = [min(values[seed] for values in series) / base[seed] if base[seed] else 0.0 for seed in seeds]
        n = len(seeds)
        works = sum(base[s] > 0 and all(v[s] >= KEPT * base[s] for v in series) for s in seeds)
        lost = sum(series[-1][s] < LOST * base[s] or base[s] == 0 for s in seeds)
        low, high = clopper_pearson(works, n)
        word = ladder(n, works >= MOST * n, lost >= MOST * n, works == n, lost == n)
        note = f"{works} of {n} seeds keep it, {lost} have lost it, {n - works - lost} in part; "
        note += f"lowest EM up to there over that within N: {math.fsum(kept) / n:.2g} in the mean"
        return Verdict(word, name, works / n, low, high, n, n_needed=seeds_to_decide(n), note=note)


@dataclass(frozen=True)
class FailsMore(StatisticsAlone):
    """Arm ``a`` fails to train in a larger share of the seeds than arm ``b``: Fisher's exact test, one-sided, at 5 %.

    Refuted where the shares differ the other way by the same test, or where ``a`` fails in at most one seed of ten.
    """

    a: str
    b: str
    cell: str
    margin = None

    def words(self) -> str:
        return "share of seeds that fail to train, Fisher's exact test"

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        return [(self.a, self.cell), (self.b, self.cell)]

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        outcomes = {arm: evidence.outcomes(arm, self.cell) for arm in (self.a, self.b)}
        name = f"share that fails to train on {self.cell}: {self.a} − {self.b}"
        if missing := [arm for arm, seeds in outcomes.items() if not seeds]:
            return Verdict("not run", name, note=f"no runs of {', '.join(missing)} in {self.cell} {LONG}")
        (k_a, n_a), (k_b, n_b) = ((sum(seeds.values()), len(seeds)) for seeds in outcomes.values())
        (higher, lower), n = fisher(k_a, n_a, k_b, n_b), min(n_a, n_b)
        few = lower < LEVEL or k_a <= 0.1 * n_a
        word = ladder(n, higher < LEVEL, few, k_a == n_a and k_b == 0, k_a == 0)
        note = f"{self.a}: {k_a} of {n_a} failed, {self.b}: {k_b} of {n_b}"
        effect = k_a / n_a - k_b / n_b
        return Verdict(word, name, effect, n=n, p=higher, n_needed=seeds_to_decide(n), note=note)


@dataclass(frozen=True)
class NeverFails(StatisticsAlone):
    """Arms train in every seed: Clopper–Pearson interval of the share that fails.

    Supported where none of at least 8 seeds fails in any of them; refuted where a share above one half is certain.
    """

    arms: tuple[str, ...]
    cell: str
    margin = None

    def words(self) -> str:
        return "no seed fails to train"

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        return [(arm, self.cell) for arm in self.arms]

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        outcomes = {arm: evidence.outcomes(arm, self.cell) for arm in self.arms}
        name = f"share that fails to train on {self.cell}: {', '.join(self.arms)}"
        if missing := [arm for arm, seeds in outcomes.items() if not seeds]:
            return Verdict("not run", name, note=f"no runs of {', '.join(missing)} in {self.cell} {LONG}")
        n, k = min(map(len, outcomes.values())), max(sum(seeds.values()) for seeds in outcomes.values())
        low, high = clopper_pearson(k, n)
        word = ladder(n, k == 0, low > 0.5, k == 0, k == n)
        note = f"at most {k} of {n} seeds fail in an arm"
        return Verdict(word, name, k / n, low, high, n, n_needed=seeds_to_decide(n), note=note)


@dataclass(frozen=True)
class AtBest(StatisticsAlone):
    """Another rule, applied at the setting (a learning rate, say) at which an arm does best.

    The setting is chosen by the arm's loss on in-distribution validation data, the mean over its seeds, never by what
    the rule then judges. Settings that were not run are left out of it; the verdict's note lists the others.

    Attributes:
        rules: the arm that is to be at its best, in each of the settings, to the rule as it is there.
        key: ``CELL/METRIC`` of the validation loss; lower is better.
    """

    rules: Mapping[str, Rule]
    key: str
    margin = None

    def words(self) -> str:
        first = next(iter(self.rules.values()))
        return f"{first.words()}; where {self.key} is lowest among {', '.join(self.rules)}"

    def needs(self, claim: Claim) -> Iterable[tuple[str, str]]:
        chosen = [(arm, Key.parse(self.key).cell) for arm in self.rules]
        return dict.fromkeys([*chosen, *(need for rule in self.rules.values() for need in rule.needs(claim))])

    def checks(self) -> Iterable[str]:
        return [name for rule in self.rules.values() for name in rule.checks()]

    def judge(self, claim: Claim, evidence: Evidence) -> Verdict:
        best, told = at_best(evidence, self.rules, self.key)
        if best is None:
            tried = any(evidence.values(arm, self.key) for arm in self.rules)
            word = "inconclusive" if tried else "not run"
            return Verdict(word, f"{self.key} of {', '.join(self.rules)}", note=told)
        found = self.rules[best].judge(claim, evidence)
        return dataclasses.replace(found, note=f"{found.note}; {told}")
