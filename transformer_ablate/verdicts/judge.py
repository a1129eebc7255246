"""Verdicts: a claim's rule applied to the stored values, and to nothing else."""

from __future__ import annotations

import dataclasses
import math

from transformer_ablate.study.claims import Claim, Evidence, Verdict


def judge(claim: Claim, evidence: Evidence, cuda: bool = False) -> Verdict:
    """The verdict on a claim from stored values alone.

    Args:
        claim: what is judged.
        evidence: the stored values.
        cuda: whether they come from a CUDA machine.
    """
    if claim.cuda and not cuda:
        return Verdict("not run", "", note="needs a CUDA device")
    found = claim.rule.judge(claim, evidence)
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
            reached = "unknown" if math.isnan(mean) else f"{mean:.3g}"
            told.append(f"{statistic} {reached}, at least {least:g} is asked for")
    return told
