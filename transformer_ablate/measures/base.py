"""What a measure is: a small object that turns a trained model on its data into numbers and artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from transformer_ablate.measures.evaluation import Evaluation


@dataclass(frozen=True)
class Measured:
    """Outcome of a measure.

    Attributes:
        metrics: ``NAME`` or ``NAME/TEST`` to value; may hold NaN (no such figure) and infinity.
        artifacts: name to something that JSON can hold; tables are lists of dictionaries.
    """

    metrics: Mapping[str, float]
    artifacts: Mapping[str, Any] = field(default_factory=dict)


class Measure(Protocol):
    """Callable on any checkpoint: nothing but the :class:`Evaluation` is looked at."""

    name: str

    def measure(self, run: Evaluation) -> Measured:
        """Numbers and artifacts of one trained model."""
        ...
