"""The training curve of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

COLUMNS = ("step", "nll", "tokens", "seconds", "lr", "grad_norm")


@dataclass
class Curve:
    """The training curve, one point an update.

    Attributes:
        columns: ``step`` (from 1), ``nll`` (hard-target, nats/token, of the batch before the update), ``tokens`` (real
            target tokens so far), ``seconds`` (training time so far), ``lr`` (used by the update), ``grad_norm``
            (before clipping).
    """

    columns: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def __len__(self) -> int:
        return len(self.columns["step"])

    def thinned(self, every: int) -> dict[str, list[float]]:
        """The first and last point and every ``every``-th between: what is logged and drawn."""
        keep = [i for i in range(len(self)) if i == 0 or (i + 1) % every == 0 or i == len(self) - 1]
        return {name: [values[i] for i in keep] for name, values in self.columns.items()}
