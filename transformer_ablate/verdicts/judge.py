"""Verdicts: a claim's rule applied to the stored values, and to nothing else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import singledispatch

from scipy import stats

from transformer_ablate.stats.designs import variance_shares
from transformer_ablate.stats.hypotheses import fisher, n_needed, tost
from transformer_ablate.stats.summary import clopper_pearson, holm, summarise
from transformer_ablate.study.claims import Claim, Evidence, Statistic, Verdict, at_best
from transformer_ablate.study.rules import (
    DECIDING_SEEDS,
    INDICATING_MARGINS,
    INDICATING_SEEDS,
    KEPT,
    LEVEL,
    LOST,
    MOST,
    AtBest,
    Beyond,
    Bounded,
    Deterministic,
    FailsMore,
    Holds,
    KeepsTo,
    MoreVariance,
    NeverFails,
    Rule,
    Within,
)

# Relative difference up to which seeds have one count: a median of equal counts may differ in its last digits.
EQUAL_COUNTS = 1e-6


def judge(claim: Claim, evidence: Evidence, cuda: bool = False) -> Verdict:
    """The verdict on a claim from stored values alone.

    Args:
        claim: what is judged.
        evidence: the stored values.
        cuda: whether they come from a CUDA machine.
    """
    if claim.cuda and not cuda:
        return Verdict("not run", "", note="needs a CUDA device")
    found = _judged(claim.rule, claim, evidence)
    lacking = [] if found.word == "not run" else _not_learnt(claim, evidence)
    if lacking:
        note = f"not learnt: {'; '.join(lacking)}"
        found = dataclasses.replace(found, word="inconclusive", n_needed=None, note=note)
    told = [statistic.told(evidence) for statistic in claim.statistics]
    return dataclasses.replace(found, note="; ".join(filter(None, (found.note, *dict.fromkeys(told)))))


def _not_learnt(claim: Claim, evidence: Evidence) -> list[str]:
    """What did not get as far as the claim asks for, in words."""
    told = []
    for statistic, least in claim.learnt:
        values = statistic.per_seed(evidence)
        mean = math.fsum(values.values()) / len(values) if values else math.nan
        if not mean >= least:
            told.append(
                f"{statistic} {'unknown' if math.isnan(mean) else f'{mean:.3g}'}, at least {least:g} is asked for"
            )
    return told


@singledispatch
def _judged(rule: Rule, claim: Claim, evidence: Evidence) -> Verdict:
    raise TypeError(f"no judge for rule {type(rule).__name__}")


def _absent(claim: Claim, evidence: Evidence) -> Verdict:
    arms = dict.fromkeys(f"{arm} in {cell}" for statistic in claim.statistics for arm, cell in statistic.needs())
    return Verdict("not run", " | ".join(map(str, claim.statistics)), note=f"no values of {', '.join(arms)}")


def _ladder(supported: bool, refuted: bool, indicated: bool, countered: bool) -> str:
    for word, holds in (
        ("supported", supported),
        ("refuted", refuted),
        ("indicated", indicated),
        ("counter-indicated", countered),
    ):
        if holds:
            return word
    return "inconclusive"


@_judged.register
def _(rule: Beyond, claim: Claim, evidence: Evidence) -> Verdict:
    judged = [_judge_one(rule, statistic, evidence) for statistic in claim.statistics]
    if any(one is None for one in judged):
        return _absent(claim, evidence)
    found = [one for one in judged if one is not None]
    corrected = holm([one.p for one in found]) if not rule.counted else [None] * len(found)
    steps = []
    for one, p in zip(found, corrected, strict=True):
        word = one.word
        if len(found) > 1 and not rule.counted and word in ("supported", "refuted") and (p is None or p > LEVEL):
            word = "inconclusive"
        steps.append(Verdict(word, one.statistic, one.effect, one.low, one.high, one.n, p, one.n_needed, one.note))
    # The claim is as strong as its weakest comparison; one refuted comparison refutes it.
    order = ("refuted", "counter-indicated", "inconclusive", "indicated", "supported")
    return min(steps, key=lambda verdict: order.index(verdict.word))


def _judge_one(rule: Beyond, statistic: Statistic, evidence: Evidence) -> Verdict | None:
    values = statistic.per_seed(evidence)
    if not values:
        return None
    sign = -1.0 if rule.below else 1.0
    towards = {seed: sign * (value - rule.bound) for seed, value in values.items()}
    summary, n = summarise(values.values()), len(values)
    mean = math.fsum(towards.values()) / n
    far = abs(mean) >= INDICATING_MARGINS * rule.margin and n >= INDICATING_SEEDS
    indicated = far and all(value > 0 for value in towards.values())
    countered = far and all(value < 0 for value in towards.values())
    name = str(statistic)
    one_sided = n >= INDICATING_SEEDS and len({value > 0 for value in towards.values()}) == 1
    near = "all seeds on one side, by less than three margins on average" if one_sided and not far else ""
    if rule.counted:
        k = sum(value > rule.margin for value in towards.values())
        interval = clopper_pearson(k, n)
        assert interval is not None
        word = _ladder(
            n >= DECIDING_SEEDS and interval[0] > 0.5, n >= DECIDING_SEEDS and interval[1] < 0.5, indicated, countered
        )
        note = f"{k} of {n} seeds beyond the margin, interval of their share [{interval[0]:.3f}, {interval[1]:.3f}]"
        note += f"; {near}" if near and word == "inconclusive" else ""
        needed = DECIDING_SEEDS if word not in ("supported", "refuted") and n < DECIDING_SEEDS else None
        return Verdict(word, name, summary.mean, summary.low, summary.high, n, None, needed, note)
    if summary.low is None or summary.high is None or summary.zero_width or not summary.sd:
        note = "one seed: no interval" if n == 1 else "all seeds agree: the interval has no width and decides nothing"
        return Verdict("inconclusive", name, summary.mean, summary.low, summary.high, n, None, None, note)
    standard_error = summary.sd / math.sqrt(n)
    p = float(2 * stats.t.sf(abs(mean - rule.margin) / standard_error, n - 1))
    decides = n >= DECIDING_SEEDS and p < LEVEL
    word = _ladder(decides and mean > rule.margin, decides and mean < rule.margin, indicated, countered)
    needed = None
    if word not in ("supported", "refuted"):
        needed = max(DECIDING_SEEDS, n_needed(summary.sd, abs(mean - rule.margin)) or 0)
    note = near if word == "inconclusive" and n < DECIDING_SEEDS else ""
    return Verdict(word, name, summary.mean, summary.low, summary.high, n, p, needed, note)


@_judged.register
def _(rule: Within, claim: Claim, evidence: Evidence) -> Verdict:
    (statistic,) = claim.statistics
    values = list(statistic.per_seed(evidence).values())
    if not values:
        return _absent(claim, evidence)
    summary, n, name = summarise(values), len(values), str(statistic)
    if summary.low is None or summary.high is None or not summary.sd:
        note = "one seed: no interval" if n == 1 else "all seeds agree: the interval has no width and decides nothing"
        return Verdict("inconclusive", name, summary.mean, summary.low, summary.high, n, None, None, note)
    p = tost(values, rule.margin).p
    outside = summary.low > rule.margin or summary.high < -rule.margin
    enough, some = n >= DECIDING_SEEDS, n >= INDICATING_SEEDS
    # "Equal" cannot be far from its margin; three margins away is far from equal.
    far = abs(float(summary.mean or 0.0)) >= INDICATING_MARGINS * rule.margin and all(
        abs(v) > rule.margin and v * values[0] > 0 for v in values
    )
    near = all(abs(v) <= rule.margin / INDICATING_MARGINS for v in values)
    word = _ladder(enough and p is not None and p < LEVEL, enough and outside, some and near, some and far)
    needed = None
    if word not in ("supported", "refuted"):
        room = abs(rule.margin - abs(float(summary.mean or 0.0)))
        needed = max(DECIDING_SEEDS, n_needed(summary.sd, room) or 0) if room else None
    return Verdict(word, name, summary.mean, summary.low, summary.high, n, p, needed)


@_judged.register
def _(rule: KeepsTo, claim: Claim, evidence: Evidence) -> Verdict:
    up_to = [(name, r) for name, r in evidence.buckets(rule.cell, "em") if r <= rule.ratio + 1e-9]
    name = f"share of the seeds of {rule.arm} that keep their EM on {rule.cell} up to {rule.ratio:g}×"
    if not up_to or up_to[-1][1] < rule.ratio - 1e-9:
        return Verdict("not run", name, note=f"no values of {rule.arm} in {rule.cell} up to {rule.ratio:g}×")
    series = [evidence.values(rule.arm, f"{rule.cell}/em/{bucket}") for bucket, _ in up_to]
    seeds = sorted(set(series[0]).intersection(*series[1:])) if series else []
    seeds = [seed for seed in seeds if all(math.isfinite(values[seed]) for values in series)]
    if not seeds:
        return Verdict("not run", name, note=f"no values of {rule.arm} in {rule.cell}")
    base = [values for (_, r), values in zip(up_to, series, strict=True) if r <= 1 + 1e-9][-1]
    kept = {seed: min(values[seed] for values in series) / base[seed] if base[seed] else 0.0 for seed in seeds}
    n = len(seeds)
    works = sum(base[s] > 0 and all(v[s] >= KEPT * base[s] for v in series) for s in seeds)
    lost = sum(series[-1][s] < LOST * base[s] or base[s] == 0 for s in seeds)
    low, high = clopper_pearson(works, n) or (None, None)
    word = _ladder(
        n >= DECIDING_SEEDS and works >= MOST * n,
        n >= DECIDING_SEEDS and lost >= MOST * n,
        n >= INDICATING_SEEDS and works == n,
        n >= INDICATING_SEEDS and lost == n,
    )
    note = f"{works} of {n} seeds keep it, {lost} have lost it, {n - works - lost} in part; "
    note += f"lowest EM up to there over that within N: {math.fsum(kept.values()) / n:.2g} in the mean"
    needed = DECIDING_SEEDS if n < DECIDING_SEEDS else None
    return Verdict(word, name, works / n, low, high, n, None, needed, note)


@_judged.register
def _(rule: FailsMore, claim: Claim, evidence: Evidence) -> Verdict:
    outcomes = {arm: evidence.outcomes(arm, rule.cell) for arm in (rule.a, rule.b)}
    name = f"share that fails to train on {rule.cell}: {rule.a} − {rule.b}"
    if not all(outcomes.values()):
        missing = ", ".join(arm for arm, seeds in outcomes.items() if not seeds)
        return Verdict("not run", name, note=f"no runs of {missing} in {rule.cell}")
    (k_a, n_a), (k_b, n_b) = ((sum(seeds.values()), len(seeds)) for seeds in outcomes.values())
    found = fisher(k_a, n_a, k_b, n_b)
    more, less = found.p_greater, found.p_less
    assert more is not None  # both arms have seeds
    assert less is not None
    n = min(n_a, n_b)
    word = _ladder(
        n >= DECIDING_SEEDS and more < LEVEL,
        n >= DECIDING_SEEDS and (less < LEVEL or k_a <= 0.1 * n_a),
        n >= INDICATING_SEEDS and k_a == n_a and k_b == 0,
        n >= INDICATING_SEEDS and (k_a == 0),
    )
    note = f"{rule.a}: {k_a} of {n_a} failed, {rule.b}: {k_b} of {n_b}"
    needed = DECIDING_SEEDS if n < DECIDING_SEEDS else None
    return Verdict(word, name, k_a / n_a - k_b / n_b, None, None, n, more, needed, note)


@_judged.register
def _(rule: NeverFails, claim: Claim, evidence: Evidence) -> Verdict:
    outcomes = [evidence.outcomes(arm, rule.cell) for arm in rule.arms]
    name = f"share that fails to train on {rule.cell}: {', '.join(rule.arms)}"
    if not all(outcomes):
        return Verdict("not run", name, note=f"no runs of {', '.join(rule.arms)} in {rule.cell}")
    n, k = min(map(len, outcomes)), max(sum(seeds.values()) for seeds in outcomes)
    low, high = clopper_pearson(k, n) or (0.0, 1.0)
    word = _ladder(
        n >= DECIDING_SEEDS and k == 0,
        n >= DECIDING_SEEDS and low > 0.5,
        n >= INDICATING_SEEDS and k == 0,
        n >= INDICATING_SEEDS and k == n,
    )
    needed = DECIDING_SEEDS if n < DECIDING_SEEDS else None
    return Verdict(word, name, k / n, low, high, n, None, needed, f"at most {k} of {n} seeds fail in an arm")


@_judged.register
def _(rule: AtBest, claim: Claim, evidence: Evidence) -> Verdict:
    best, told = at_best(evidence, rule.rules, rule.key)
    if best is None:
        tried = any(evidence.values(arm, rule.key) for arm in rule.rules)
        word = "inconclusive" if tried else "not run"
        return Verdict(word, f"{rule.key} of {', '.join(rule.rules)}", note=told)
    found = _judged(rule.rules[best], claim, evidence)
    return dataclasses.replace(found, note=f"{found.note}; {told}")


@_judged.register
def _(rule: Holds, claim: Claim, evidence: Evidence) -> Verdict:
    found = evidence.check(rule.check)
    if found is None:
        return Verdict("not run", rule.check, note="the check was not made")
    return Verdict("supported" if found.holds else "refuted", rule.check, found.value, note=found.detail)


@_judged.register
def _(rule: Bounded, claim: Claim, evidence: Evidence) -> Verdict:
    found = evidence.check(rule.check)
    (statistic,) = claim.statistics
    values: Sequence[float] = list(statistic.per_seed(evidence).values())
    if found is None or not values:
        return _absent(claim, evidence)
    sign = 1 if rule.below else -1
    holds = all(sign * (value - found.bound) <= rule.slack for value in values)
    summary = summarise(values)
    note = f"bound {found.bound:.4g}: {found.detail}"
    word = "supported" if holds else "refuted"
    if holds and any(abs(value - found.bound) > rule.near for value in values):
        word, note = "inconclusive", f"not every seed has come within {rule.near:g} of it; {note}"
    return Verdict(word, str(statistic), summary.mean, summary.low, summary.high, len(values), note=note)


@_judged.register
def _(rule: Deterministic, claim: Claim, evidence: Evidence) -> Verdict:
    (statistic,) = claim.statistics
    values = list(statistic.per_seed(evidence).values())
    if not values:
        return _absent(claim, evidence)
    summary, n, name = summarise(values), len(values), str(statistic)
    if max(values) - min(values) > EQUAL_COUNTS * abs(max(values, key=abs)):
        note = f"seeds differ, from {min(values):.4g} to {max(values):.4g}: chance has a part in it"
        return Verdict("inconclusive", name, summary.mean, n=n, note=note)
    kept = values[0] <= rule.bound if rule.below else values[0] >= rule.bound
    return Verdict("supported" if kept else "refuted", name, summary.mean, n=n)


@_judged.register
def _(rule: MoreVariance, claim: Claim, evidence: Evidence) -> Verdict:
    name = f"variance share of the second factor − that of the first, {rule.key}"
    values = {levels: evidence.values(arm, rule.key) for levels, arm in rule.table.items()}
    missing = [arm for levels, arm in rule.table.items() if not values[levels]]
    if missing:
        return Verdict("not run", name, note=f"no values of {', '.join(missing)} for {rule.key}")
    found = variance_shares({(second, first): seeds for (first, second), seeds in values.items()})
    apart, n = found.difference, found.difference.n
    decides = n >= DECIDING_SEEDS and apart.excludes(0.0)
    above = apart.estimate is not None and apart.estimate > 0
    # One share of all seeds: "every seed in the direction" reads as an interval that leaves 0 out.
    some = n >= INDICATING_SEEDS and apart.excludes(0.0)
    word = _ladder(decides and above, decides and not above, some and above, some and not above)
    needed = DECIDING_SEEDS if n < DECIDING_SEEDS else None
    note = "" if apart.estimate is not None else "the arms' values are all equal, or there are fewer than two seeds"
    return Verdict(word, name, apart.estimate, apart.low, apart.high, n, None, needed, note)
