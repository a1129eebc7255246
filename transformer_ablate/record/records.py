"""What a report is made from. The tracking layer fills these; the report only reads them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.study.declarations import Study

if TYPE_CHECKING:
    from transformer_ablate.measures.exact import Checked


@dataclass(frozen=True)
class RunRecord:
    """One planned run and what the store holds of it.

    Attributes:
        variant, cell, seed: its place in the study.
        fingerprint: identity of its recipe, seed and data.
        status: ``finished``, ``failed``, ``interrupted`` or ``missing``.
        base: name of its base recipe.
        delta: dotted field to value: what distinguishes the variant.
        metrics: ``METRIC[/BUCKET]`` to value, e.g. ``em/1.25``; empty unless finished. NaN and infinity may occur.
        curve: columns ``step, nll, tokens, seconds, lr, grad_norm`` of the training curve; empty unless finished.
        test_sets: ``(bucket, ratio, n)`` of every test set in order of length: name, longest length over N, examples.
        examples: a few ``{bucket, source, reference, output}`` of the run's decoded predictions, as text.
        run_id: the store's id of the run.
        made_by: ``commit``, ``source_hash``, ``versions`` and ``hardware`` of the run, as text.
        error: last line of the traceback of a failed run.
        text_scores: one row for each test set and system (``model`` and baselines), as
            :class:`transformer_ablate.measures.text.TextQuality` makes them; empty for tasks that are not on text.
        tables: rows of some of the run's artifacts, by name: ``reliability``, ``attention_maps``.
        data_notes: what is known about the data, one line each.
    """

    variant: str
    cell: str
    seed: int
    fingerprint: str
    status: str
    base: str = ""
    delta: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    test_sets: Sequence[tuple[str, float, int]] = ()
    examples: Sequence[Mapping[str, Any]] = ()
    run_id: str = ""
    made_by: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    text_scores: Sequence[Mapping[str, Any]] = ()
    data_notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether its metrics count."""
        return self.status == "finished"

    @property
    def diverged(self) -> bool:
        """Whether training diverged by the protocol's rule (metric ``diverged`` is 1) and was long enough to tell."""
        return bool(self.metrics.get("diverged", 0.0)) and not self.too_short

    @property
    def updates(self) -> int:
        """Updates that it was trained for; 0 without a curve."""
        return int(max(self.curve.get("step", ()), default=0))

    @property
    def too_short(self) -> bool:
        """Whether it made too few updates to say that training diverged; a loss that is no number says so at once."""
        judged = "diverged" in self.metrics and 0 < self.updates < LEAST_UPDATES
        return judged and all(map(math.isfinite, self.curve["nll"]))


@dataclass(frozen=True)
class StudyRecord:
    """A study, the runs of its plan, and where they were made.

    Attributes:
        study: the declaration.
        preset: which preset was planned.
        runs: one record for each planned variant, cell and seed, finished or not.
        skipped: ``(name, reason)`` of arms that this preset or selection leaves out.
        recipes: cell name to the flat fields of its base recipe, the cell's delta and the user's overrides included.
        environment: ``commit``, ``source_hash``, ``versions``, ``hardware`` and ``command`` of this invocation.
        checks: outcomes of the exact checks that the study's claims name.
        cuda: whether the runs were made on a CUDA device.
    """

    study: Study
    preset: str
    runs: Sequence[RunRecord]
    skipped: Sequence[tuple[str, str]] = ()
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, Checked] = field(default_factory=dict)
    cuda: bool = False
