"""Rules by which a claim's numbers are judged, as data; :mod:`transformer_ablate.verdicts.judge` applies them.

Verdicts form a ladder of five steps. **supported** and **refuted** need at least 8 seeds and the rule; **indicated**
and **counter-indicated** at least 3, all of them in the direction, and an effect of at least 3 margins; everything else
is **inconclusive**. An interval without width decides nothing. Exact claims are decided at any n.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

DECIDING_SEEDS = 8
INDICATING_SEEDS = 3
INDICATING_MARGINS = 3
LEVEL = 0.05
# Of the seeds, for statements about "most of them"; and the parts of the in-distribution exact match that an arm keeps
# or has lost.
MOST, KEPT, LOST = 0.8, 0.9, 0.5


class Rule(Protocol):
    """What decides a claim."""

    def words(self) -> str:
        """The rule, for readers."""
        ...

    @property
    def margin(self) -> float | None:
        """The margin declared beforehand; None where the rule has none."""
        ...


@dataclass(frozen=True)
class Beyond:
    """The statistic is larger than a margin (or, with ``below``, smaller than minus the margin), at every comparison.

    Supported where the whole 95 % interval lies beyond the margin (Student t over seeds; p against the margin corrected
    by Holm over the claim's comparisons), refuted where it lies wholly on the other side.

    Attributes:
        margin: at least 0, in the statistic's unit.
        below: the claim says "smaller".
        bound: what the statistic is compared with; 0 for differences.
        counted: judged by the number of seeds beyond the margin and its Clopper–Pearson interval against one half,
            because the values themselves (exact match) may all be 0 or 1 and their t-interval collapses.
    """

    margin: float
    below: bool = False
    bound: float = 0.0
    counted: bool = False

    def words(self) -> str:
        side = "below" if self.below else "above"
        limit = self.bound - self.margin if self.below else self.bound + self.margin
        how = "seeds on that side, Clopper–Pearson against one half" if self.counted else "95 % t-interval, Holm"
        return f"{side} {limit:g} ({how})"


@dataclass(frozen=True)
class Within:
    """The statistic is within ± the margin: equivalence by two one-sided t-tests at 5 % (Schuirmann 1987).

    Supported where both reject; refuted where the 95 % interval lies wholly outside.
    """

    margin: float

    def words(self) -> str:
        return f"within ±{self.margin:g} (two one-sided t-tests, 90 % interval)"


@dataclass(frozen=True)
class KeepsTo:
    """An arm works up to a length: at least 80 % of the seeds keep .9 of their own in-distribution exact match.

    Supported where they do in every test set up to ``ratio``; refuted where at least 80 % have less than half of it in
    the test set at ``ratio``; inconclusive between (it works in part).
    """

    arm: str
    cell: str
    ratio: float
    margin: float | None = None

    def words(self) -> str:
        return f"at least {MOST:.0%} of the seeds keep {KEPT:g} of their in-distribution EM up to {self.ratio:g}×"


@dataclass(frozen=True)
class FailsMore:
    """Arm ``a`` fails to train in a larger share of the seeds than arm ``b``: Fisher's exact test, one-sided, at 5 %.

    Refuted where the shares differ the other way by the same test, or where ``a`` fails in at most one seed of ten.
    """

    a: str
    b: str
    cell: str
    margin: float | None = None

    def words(self) -> str:
        return "share of seeds that fail to train, Fisher's exact test"


@dataclass(frozen=True)
class NeverFails:
    """Arms train in every seed: Clopper–Pearson interval of the share that fails.

    Supported where none of at least 8 seeds fails in any of them; refuted where a share above one half is certain.
    """

    arms: tuple[str, ...]
    cell: str
    margin: float | None = None

    def words(self) -> str:
        return "no seed fails to train"


@dataclass(frozen=True)
class AtBest:
    """Another rule, applied at the setting (a learning rate, say) at which an arm does best.

    The setting is chosen by the arm's loss on in-distribution validation data, the mean over its seeds, never by what
    the rule then judges. Settings that were not run are left out of it; the verdict's note lists the others.

    Attributes:
        rules: the arm that is to be at its best, in each of the settings, to the rule as it is there.
        key: ``CELL/METRIC`` of the validation loss; lower is better.
    """

    rules: Mapping[str, Rule]
    key: str
    margin: float | None = None

    def words(self) -> str:
        first = next(iter(self.rules.values()))
        return f"{first.words()}; where {self.key} is lowest among {', '.join(self.rules)}"


@dataclass(frozen=True)
class Holds:
    """A theorem holds numerically: see ``transformer_ablate.measures.exact``.

    Attributes:
        check: name of the check.
    """

    check: str
    margin: float | None = None

    def words(self) -> str:
        return "decided by computation, at any n"


@dataclass(frozen=True)
class Bounded:
    """The statistic is, in every seed, at most (with ``below`` False: at least) a bound that a check computes.

    A bound that theory fixes is decided at any n, but says nothing of models that are nowhere near it: untrained ones
    keep every such bound.

    Attributes:
        check: name of the check that computes the bound.
        below: whether the bound is an upper one.
        slack: allows for the sampling of test examples.
        near: within which distance of the bound, on its lawful side, every seed must have come; inconclusive else.
    """

    check: str
    below: bool = True
    slack: float = 0.0
    near: float = float("inf")

    @property
    def margin(self) -> float | None:
        return self.slack

    def words(self) -> str:
        return f"every seed {'at most' if self.below else 'at least'} the computed bound, slack {self.slack:g}"


@dataclass(frozen=True)
class Deterministic:
    """The statistic, in which chance has no part (bytes, parameters, operations), lies beyond a bound in every seed.

    Decided at any n: seeds repeat the same count, so that an interval without width is what is to be expected.
    Supported where they are at or beyond the bound, refuted where they are on its other side; inconclusive where they
    differ, since then chance has a part.

    Attributes:
        bound: in the statistic's unit.
        below: the claim says "at most".
    """

    bound: float
    below: bool = False
    margin: float | None = None

    def words(self) -> str:
        return f"at {'most' if self.below else 'least'} {self.bound:g}; a count without chance, decided at any n"


@dataclass(frozen=True)
class MoreVariance:
    """In a crossed table of arms the second factor explains a larger share of the variance than the first.

    Components by ANOVA and their jackknife interval: see ``transformer_ablate.stats.designs.variance_shares``.
    Supported where the interval of the difference of shares lies above 0, refuted where it lies below.

    Attributes:
        table: (level of the first factor, level of the second) to arm; complete.
        key: ``CELL/METRIC[/BUCKET]``.
    """

    table: Mapping[tuple[str, str], str]
    key: str
    margin: float = 0.0

    def words(self) -> str:
        return "variance share of the second factor above that of the first (ANOVA components, jackknife over seeds)"
