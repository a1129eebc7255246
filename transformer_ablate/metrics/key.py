"""A place in the results: which number, of which cell, on which test set (or layer, or number of tokens)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """``CELL/METRIC[/BUCKET]``, e.g. ``copy/em/1.5``; within a cell, ``METRIC[/BUCKET]``."""

    cell: str
    metric: str
    bucket: str = ""

    @classmethod
    def parse(cls, text: str) -> Key:
        """The key that ``CELL/METRIC[/BUCKET]`` names."""
        cell, _, within = text.partition("/")
        return cls.of(within, cell)

    @classmethod
    def of(cls, within: str, cell: str = "") -> Key:
        """The key that ``METRIC[/BUCKET]`` names in a cell."""
        metric, _, bucket = within.partition("/")
        return cls(cell, metric, bucket)

    @property
    def within(self) -> str:
        """``METRIC[/BUCKET]``, as a run records it."""
        return f"{self.metric}/{self.bucket}" if self.bucket else self.metric

    def __str__(self) -> str:
        return f"{self.cell}/{self.within}" if self.cell else self.within
