"""Tasks on random strings: unlimited data, known answers, any length."""

from __future__ import annotations

from transformer_ablate.data.synthetic.base import Sample, SyntheticTask, length_buckets
from transformer_ablate.data.synthetic.copying import Copy, CopyUnique, Duplicate, NoisyCopy, SkipCopy
from transformer_ablate.data.synthetic.ordering import Reverse, Sort
from transformer_ablate.data.synthetic.reading import Addition, FirstK, Parity, Recall

__all__ = [
    "Addition",
    "Copy",
    "CopyUnique",
    "Duplicate",
    "FirstK",
    "NoisyCopy",
    "Parity",
    "Recall",
    "Reverse",
    "Sample",
    "SkipCopy",
    "Sort",
    "SyntheticTask",
    "length_buckets",
]
