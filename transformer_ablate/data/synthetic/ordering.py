"""Tasks that put a string's symbols in another order."""

from __future__ import annotations

import numpy as np

from transformer_ablate import registry
from transformer_ablate.data.synthetic.base import SyntheticTask


@registry.TASKS.register("reverse")
class Reverse(SyntheticTask):
    """x -> x from its last symbol to its first."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from_the_end = lengths[:, None] - 1 - np.arange(symbols.shape[1])
        return np.take_along_axis(symbols, np.maximum(from_the_end, 0), axis=1), lengths

    def alignment(self, source_length: int, target_length: int) -> np.ndarray:
        return np.arange(target_length)[::-1]


@registry.TASKS.register("sort")
class Sort(SyntheticTask):
    """x -> the symbols of x in ascending order, each as often as it stands in x."""

    def targets(self, symbols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        past_all = np.iinfo(symbols.dtype).max  # padding must not come first
        inside = np.arange(symbols.shape[1]) < lengths[:, None]
        return np.sort(np.where(inside, symbols, past_all), axis=1), lengths
