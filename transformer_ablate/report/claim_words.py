"""Claims and their verdicts in words: for the page of a study, and for ``claims.md`` over all studies of a preset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from transformer_ablate.metrics.catalogue import MISSING
from transformer_ablate.study.claims import VERDICTS
from transformer_ablate.verdicts.claims import Judged

# Past so many the effect is the margin itself, and the number of seeds says nothing.
MANY_SEEDS = 1_000


def figures(judged: Judged) -> str:
    """Effect and interval as text."""
    if judged.effect is None:
        return MISSING
    text = f"{judged.effect:.3g}"
    if judged.ci_low is not None and judged.ci_high is not None:
        text += f" [{judged.ci_low:.3g}, {judged.ci_high:.3g}]"
    return text.replace("-", "−")


def more_seeds(judged: Judged) -> str:
    """How many seeds would decide, in brackets behind a verdict; empty where that is unknown or decided."""
    n = judged.n_needed
    if not n:
        return ""
    return f" ({n} seeds or more would decide)" if n <= MANY_SEEDS else " (at the margin: no number of seeds would do)"


def remark(judged: Judged) -> str:
    """What was found besides the numbers and, marked as such, what literature or theory said before."""
    return "; ".join(filter(None, (judged.note, judged.remark and f"beforehand: {judged.remark}")))


def texts(judged: Judged) -> dict[str, str]:
    """What it is told in, for ``claims.md``."""
    return {"figures": figures(judged), "told": remark(judged), "more": more_seeds(judged)}


def tally(claims: Sequence[Judged]) -> str:
    """``3 supported, 1 refuted; by computation: 2 supported``."""
    measured = _counted(one.verdict for one in claims if one.kind != "exact")
    computed = _counted(one.verdict for one in claims if one.kind == "exact")
    return "; ".join(filter(None, (measured, computed and f"by computation: {computed}"))) or "no claims"


def _counted(words: Iterable[str]) -> str:
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
