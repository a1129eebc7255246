"""The protocol's gate: what is said of longer inputs presumes that an arm has learnt its task within N."""

from __future__ import annotations

from dataclasses import dataclass

from transformer_ablate.record.index import Index
from transformer_ablate.study.declarations import Cell
from transformer_ablate.study.rules import MOST

GATE = 0.95
PASSING_SHARE = MOST  # of the seeds, as for every statement about "most seeds" of the protocol


@dataclass(frozen=True)
class Gate:
    """How many seeds of an arm learnt the task in distribution (exact match of at least ``GATE``)."""

    variant: str
    k: int
    n: int

    @property
    def state(self) -> str:
        """``learned``, ``learned in some seeds``, ``did not learn``, or ``no result``."""
        if self.n == 0:
            return "no result"
        if self.k >= PASSING_SHARE * self.n:
            return "learned"
        return "learned in some seeds" if self.k else "did not learn"


def gates(index: Index, cell: Cell) -> list[Gate]:
    """One gate an arm; none for a cell whose primary metric is not exact match, or that asks for none.

    A value that is not finite does not pass.
    """
    bucket = index.in_distribution(cell.name, cell.metric)
    if cell.metric != "em" or not cell.gate or bucket is None:
        return []
    found = []
    for arm in index.arms(cell.name):
        values = index.values(cell.name, arm, bucket.key("em"))
        found.append(Gate(arm, sum(v >= GATE for v in values.values()), len(values)))
    return found
