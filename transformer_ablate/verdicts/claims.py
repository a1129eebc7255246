"""Claims with their verdicts: for ``results.json``, for the page, and ``claims.md`` over all studies of a preset."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_ablate.metrics.catalogue import MISSING
from transformer_ablate.record.index import Index
from transformer_ablate.study.claims import VERDICTS, Claim, Verdict
from transformer_ablate.verdicts.evidence import RecordedEvidence
from transformer_ablate.verdicts.gating import GATE, gates
from transformer_ablate.verdicts.judge import judge

# Past so many the effect is the margin itself, and the number of seeds says nothing.
MANY_SEEDS = 1_000


def verdicts(index: Index) -> list[dict[str, Any]]:
    """The ``claims`` of ``results.json``: each claim of the study with what its numbers say."""
    evidence = RecordedEvidence(index)
    found = []
    for claim in index.record.study.claims:
        verdict = judge(claim, evidence, index.record.cuda)
        notes = (verdict.note, "" if verdict.word == "not run" else _ungated(claim, index))
        found.append(_row(claim, dataclasses.replace(verdict, note="; ".join(filter(None, notes)))))
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


def _row(claim: Claim, verdict: Verdict) -> dict[str, Any]:
    return {
        "id": claim.id,
        "kind": claim.kind,
        "statement": claim.statement,
        "source": claim.source,
        "cell": claim.cell,
        "verdict": verdict.word,
        "statistic": verdict.statistic,
        "effect": _finite(verdict.effect),
        "ci_low": _finite(verdict.low),
        "ci_high": _finite(verdict.high),
        "n": verdict.n,
        "p": _finite(verdict.p),
        "margin": claim.rule.margin,
        "rule": claim.rule.words(),
        "n_needed": verdict.n_needed,
        "note": verdict.note,
        "remark": claim.remark,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def figures(row: Mapping[str, Any]) -> str:
    """Effect and interval of a claim's row as text."""
    if row["effect"] is None:
        return MISSING
    text = f"{row['effect']:.3g}"
    if row["ci_low"] is not None and row["ci_high"] is not None:
        text += f" [{row['ci_low']:.3g}, {row['ci_high']:.3g}]"
    return text.replace("-", "−")


def more_seeds(row: Mapping[str, Any]) -> str:
    """How many seeds would decide, in brackets behind a verdict; empty where that is unknown or decided."""
    n = row["n_needed"]
    if not n:
        return ""
    return f" ({n} seeds or more would decide)" if n <= MANY_SEEDS else " (at the margin: no number of seeds would do)"


def texts(row: Mapping[str, Any]) -> dict[str, str]:
    """What a claim's row is told in, for ``claims.md``."""
    return {"figures": figures(row), "told": remark(row), "more": more_seeds(row)}


def tally(rows: Sequence[Mapping[str, Any]]) -> str:
    """``3 supported, 1 refuted; by computation: 2 supported``."""

    def counted(of: Sequence[Mapping[str, Any]]) -> str:
        counts = {word: sum(row["verdict"] == word for row in of) for word in VERDICTS}
        return ", ".join(f"{count} {word}" for word, count in counts.items() if count)

    measured = counted([row for row in rows if row["kind"] != "exact"])
    computed = counted([row for row in rows if row["kind"] == "exact"])
    return "; ".join(filter(None, (measured, computed and f"by computation: {computed}"))) or "no claims"


def remark(row: Mapping[str, Any]) -> str:
    """What was found besides the numbers and, marked as such, what literature or theory said before."""
    return "; ".join(filter(None, (row["note"], row["remark"] and f"beforehand: {row['remark']}")))


def overview(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Study and claims of every report in ``folder`` (``reports/PRESET``) that has any."""
    found = []
    for file in sorted(folder.glob("*/results.json")):
        results = json.loads(file.read_text("utf-8"))
        if results["claims"]:
            found.append((results["study"], results["claims"]))
    return found
