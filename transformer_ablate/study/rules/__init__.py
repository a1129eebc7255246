"""Rules by which a claim's numbers are judged: data that says of itself what it reads and what follows.

Verdicts form a ladder of five steps. **supported** and **refuted** need at least 8 seeds and the rule; **indicated**
and **counter-indicated** at least 3, all of them in the direction, and an effect of at least 3 margins; everything else
is **inconclusive**. An interval without width decides nothing. Exact claims are decided at any n.
"""

from transformer_ablate.study.claims import Rule
from transformer_ablate.study.rules.base import DECIDING_SEEDS, KEPT, LEVEL, MOST
from transformer_ablate.study.rules.computed import Bounded, Deterministic, Holds
from transformer_ablate.study.rules.margins import Beyond, MoreVariance, Within
from transformer_ablate.study.rules.seeds import AtBest, FailsMore, KeepsTo, NeverFails

__all__ = [
    "DECIDING_SEEDS",
    "KEPT",
    "LEVEL",
    "MOST",
    "AtBest",
    "Beyond",
    "Bounded",
    "Deterministic",
    "FailsMore",
    "Holds",
    "KeepsTo",
    "MoreVariance",
    "NeverFails",
    "Rule",
    "Within",
]
