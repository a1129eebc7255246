"""Claims with their verdicts: for ``results.json``, for the page, and ``claims.md`` over all studies of a preset."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_ablate.report.evidence import RecordedEvidence
from transformer_ablate.report.index import Index
from transformer_ablate.report.metrics_catalogue import MISSING
from transformer_ablate.report.verdicts import judge
from transformer_ablate.studies.claims import VERDICTS, Claim, Verdict


def verdicts(index: Index) -> list[dict[str, Any]]:
    """The ``claims`` of ``results.json``: each claim of the study with what its numbers say."""
    evidence = RecordedEvidence(index)
    return [_row(claim, judge(claim, evidence, index.record.cuda)) for claim in index.record.study.claims]


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
