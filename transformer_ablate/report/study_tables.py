"""Tables of a whole study: its claims, the effects of its two-level design, its Pareto front."""

from __future__ import annotations

from collections.abc import Sequence

from transformer_ablate.metrics.catalogue import MISSING, metric_of
from transformer_ablate.record.index import Index
from transformer_ablate.report.blocks import Entry, Table
from transformer_ablate.report.claim_words import figures, more_seeds, remark
from transformer_ablate.report.views import contrast_metric, p_text, signed
from transformer_ablate.stats.designs import factorial_effects
from transformer_ablate.verdicts.claims import Judged
from transformer_ablate.verdicts.pareto import pareto_front, split


def effects_tables(index: Index) -> list[Table]:
    """One table for each metric of the study's design whose arms have all been run; else none."""
    design = index.record.study.factorial
    if design is None:
        return []
    tables = []
    for key in design.metrics:
        cell, name = split(key)
        runs = {levels: index.values(cell, arm, name) for arm, levels in design.arms.items()}
        if not all(runs.values()):
            continue
        metric, rows = metric_of(name), []
        for effect in factorial_effects(runs, design.factors):
            summary = effect.effect.summary
            value = MISSING if summary.mean is None else signed(metric.format(summary.mean))
            interval = MISSING
            if summary.low is not None and summary.high is not None:
                interval = f"[{signed(metric.format(summary.low))}, {signed(metric.format(summary.high))}]"
            alias = " × ".join(effect.alias) if effect.alias else ""
            texts = (" × ".join(effect.factors), value, interval, p_text(effect.effect.p), str(summary.n), alias)
            rows.append([Entry(text) for text in texts])
        header = [Entry(h) for h in ("Effect", "Size", "95 % interval", "p", "n", "Confounded with")]
        caption = f"Effects on {contrast_metric(index, key)}: mean at the second level less mean at the first"
        tables.append(Table(caption, header, rows))
    return tables


def claims_table(claims: Sequence[Judged]) -> Table | None:
    """The claims of one study for its page."""
    if not claims:
        return None
    header = ("Claim", "Statement", "Tested on", "Verdict", "Effect", "n", "Rule", "Remark")
    lines = []
    for one in claims:
        told = (one.id, f"{one.statement} ({one.source})", one.cell, one.verdict + more_seeds(one), figures(one))
        lines.append([Entry(text) for text in (*told, str(one.n), one.rule, remark(one))])
    return Table("Claims and what the stored values say of them", [Entry(h) for h in header], lines, "words")


def front_sentence(index: Index) -> str:
    """Which arms no other arm beats in everything; empty where the study draws no such picture."""
    pareto = index.record.study.pareto
    arms = pareto_front(index, pareto) if pareto is not None else []
    if not arms:
        return ""
    return f"No other arm is at least as good in all of these and better in one (means over seeds): {', '.join(arms)}."
