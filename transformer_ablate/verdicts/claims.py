"""The claims of a study with their verdicts, as they are told and written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ablate.record.index import Index
from transformer_ablate.study.claims import Claim, Verdict
from transformer_ablate.verdicts.evidence import RecordedEvidence
from transformer_ablate.verdicts.gating import GATE, gates
from transformer_ablate.verdicts.judge import judge


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict: an entry of ``claims`` in ``results.json``, whose keys are the fields in this order.

    Attributes: see :class:`~transformer_ablate.study.claims.Claim` and
        :class:`~transformer_ablate.study.claims.Verdict`; ``verdict`` is the verdict's word, ``ci_low`` and ``ci_high``
        its interval, ``rule`` the claim's rule in words. Numbers that do not exist or are not finite are None.
    """

    id: str
    kind: str
    statement: str
    source: str
    cell: str
    verdict: str
    statistic: str
    effect: float | None
    ci_low: float | None
    ci_high: float | None
    n: int
    p: float | None
    margin: float | None
    rule: str
    n_needed: int | None
    note: str
    remark: str

    @classmethod
    def of(cls, claim: Claim, found: Verdict) -> Judged:
        """A claim and what was found of it."""
        about = (claim.id, claim.kind, claim.statement, claim.source, claim.cell, found.word, found.statistic)
        numbers = (_finite(found.effect), _finite(found.low), _finite(found.high), found.n, _finite(found.p))
        return cls(*about, *numbers, claim.rule.margin, claim.rule.words(), found.n_needed, found.note, claim.remark)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Judged:
        """What a ``results.json`` holds of it."""
        return cls(**{field.name: row[field.name] for field in dataclasses.fields(cls)})

    def row(self) -> dict[str, Any]:
        """For ``results.json``."""
        return dataclasses.asdict(self)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def verdicts(index: Index) -> list[Judged]:
    """Each claim of the study with what its numbers say."""
    evidence = RecordedEvidence(index)
    found = []
    for claim in index.record.study.claims:
        verdict = judge(claim, evidence, index.record.cuda)
        notes = (verdict.note, "" if verdict.word == "not run" else _ungated(claim, index))
        found.append(Judged.of(claim, dataclasses.replace(verdict, note="; ".join(filter(None, notes)))))
    return found


def _ungated(claim: Claim, index: Index) -> str:
    """Which of the arms that a claim on longer inputs is about have not learnt well enough within N, in words.

    The verdict is on all seeds, as the protocol wants it; that an arm's seeds fail within N already belongs beside it.
    """
    told = []
    for arm, name in dict.fromkeys(claim.rule.by_length(claim)):
        cell = index.cell(name)
        if cell is None or not any(bucket.ratio > 1 for bucket in index.buckets(name, cell.metric)):
            continue
        told += [
            f"{arm} {g.k} of {g.n}" for g in gates(index, cell) if g.variant == arm and g.n and g.state != "learned"
        ]
    return f"seeds with EM of at least {GATE:g} within N: {', '.join(told)}" if told else ""
