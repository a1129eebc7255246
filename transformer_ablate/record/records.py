"""What a run leaves behind, and what a report is made from: one shape from the worker through the store to the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from transformer_ablate.config import LEAST_UPDATES
from transformer_ablate.study.declarations import USUAL_MEASURES, Study

if TYPE_CHECKING:
    from transformer_ablate.measures.exact import Checked


@dataclass(frozen=True)
class Result:
    """What a run leaves behind.

    Attributes:
        metrics: ``METRIC[/BUCKET]`` to value, e.g. ``em/1.25``. NaN and infinity may occur.
        curve: columns ``step, nll, tokens, seconds, lr, grad_norm`` of the training curve.
        test_sets: ``(bucket, ratio, n)`` of every test set in order of length: name, longest length over N, examples.
        examples: a few ``{bucket, source, reference, output}`` of the run's decoded predictions, as text.
        measures: names of what was measured.
        text_scores: one row for each test set and system (``model`` and baselines), as
            :class:`transformer_ablate.measures.text.TextQuality` makes them; empty for tasks that are not on text.
        data_notes: what is known about the data, one line each.
        tables: rows of further tables by name, e.g. ``reliability``; each is a file of its own.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: Mapping[str, Sequence[float]] = field(default_factory=dict)
    test_sets: Sequence[tuple[str, float, int]] = ()
    examples: Sequence[Mapping[str, Any]] = ()
    measures: Sequence[str] = ()
    text_scores: Sequence[Mapping[str, Any]] = ()
    data_notes: Sequence[str] = ()
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    def extended(self, further: Result) -> Result:
        """With what was measured of the same model later; what it has already stays. Only the later tables."""
        return replace(
            self,
            metrics={**further.metrics, **self.metrics},
            measures=tuple(dict.fromkeys([*self.measures, *further.measures])),
            text_scores=self.text_scores or further.text_scores,
            data_notes=self.data_notes or further.data_notes,
            tables={name: rows for name, rows in further.tables.items() if rows},
        )

    def to_json(self) -> str:
        """All but the tables."""
        kept = {named.name: getattr(self, named.name) for named in fields(Result) if named.name != "tables"}
        kept["notes"] = kept.pop("data_notes")
        return to_json(kept)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The inverse of :meth:`to_json`; files of older versions lack some entries."""
        found = json.loads(text)
        return cls(
            metrics={name: float(value) for name, value in found["metrics"].items()},
            curve={name: [float(v) for v in values] for name, values in found["curve"].items()},
            test_sets=[(str(name), float(ratio), int(n)) for name, ratio, n in found["test_sets"]],
            examples=found["examples"],
            measures=found.get("measures", USUAL_MEASURES),
            text_scores=found.get("text_scores", ()),
            data_notes=found.get("notes", ()),
        )


def to_json(value: Any) -> str:
    """JSON has no NaN and no infinity: they become the strings that ``float`` reads."""
    return json.dumps(_encode(value), ensure_ascii=False)


def _encode(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): _encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    return value


@dataclass(frozen=True, kw_only=True)
class RunRecord(Result):
    """One planned run and what the store holds of it: its result, empty unless it finished.

    Attributes:
        variant, cell, seed: its place in the study.
        fingerprint: identity of its recipe, seed and data.
        status: ``finished``, ``failed``, ``interrupted`` or ``missing``.
        base: name of its base recipe.
        delta: dotted field to value: what distinguishes the variant.
        run_id: the store's id of the run.
        made_by: ``commit``, ``source_hash``, ``versions`` and ``hardware`` of the run, as text.
        error: last line of the traceback of a failed run.
    """

    variant: str
    cell: str
    seed: int
    fingerprint: str
    status: str
    base: str = ""
    delta: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = ""
    made_by: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

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
