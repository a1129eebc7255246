"""How examples are held: ragged sequences in flat arrays, pairs of them, test sets and padded batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from transformer_ablate.tokens import BOS, EOS, PAD


class Digest(Protocol):
    """What a hashlib object offers."""

    def update(self, data: bytes, /) -> None: ...


class PackedSequences:
    """n integer sequences of any lengths in one flat, read-only array.

    Args:
        flat: all tokens, sequence after sequence, shape (total,); held as int32.
        offsets: where each sequence begins, and the total at the end, shape (n + 1,); held as int64.
    """

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat = np.array(flat, dtype=np.int32)
        self.offsets = np.array(offsets, dtype=np.int64)
        self.lengths = np.diff(self.offsets)
        # One data set is shared by every run in a process: a write would change them all.
        for array in (self.flat, self.offsets, self.lengths):
            array.flags.writeable = False

    @classmethod
    def from_lengths(cls, flat: np.ndarray, lengths: np.ndarray) -> PackedSequences:
        """Sequences that lie one after another in ``flat`` (total,) with the given lengths (n,)."""
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def from_lists(cls, sequences: Sequence[Sequence[int]]) -> PackedSequences:
        """Packs any sequences of integers."""
        flat = np.fromiter(itertools.chain.from_iterable(sequences), dtype=np.int32)
        return cls.from_lengths(flat, np.fromiter(map(len, sequences), dtype=np.int64))

    @classmethod
    def from_padded(cls, matrix: np.ndarray, lengths: np.ndarray) -> PackedSequences:
        """Packs the first ``lengths[i]`` entries of each row i of ``matrix``, shapes (n,) and (n, width)."""
        return cls.from_lengths(matrix[np.arange(matrix.shape[1]) < lengths[:, None]], lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> np.ndarray:
        """Sequence i, shape (lengths[i],)."""
        i = range(len(self))[i]  # resolves negative indices, raises IndexError
        return self.flat[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(np.split(self.flat, self.offsets[1:-1]) if len(self) else [])

    def select(self, indices: np.ndarray | Sequence[int]) -> PackedSequences:
        """The sequences of these indices, in their order."""
        indices = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[indices]
        ends = np.cumsum(lengths)
        shift = np.repeat(self.offsets[indices] - (ends - lengths), lengths)
        return PackedSequences.from_lengths(self.flat[np.arange(len(shift)) + shift], lengths)

    def framed(self) -> PackedSequences:
        """Each sequence with BOS in front and EOS behind."""
        offsets = self.offsets + 2 * np.arange(len(self) + 1)
        flat = np.empty(offsets[-1], dtype=np.int32)
        inside = np.ones(len(flat), dtype=bool)
        inside[offsets[:-1]] = inside[offsets[1:] - 1] = False
        flat[inside] = self.flat
        flat[offsets[:-1]], flat[offsets[1:] - 1] = BOS, EOS
        return PackedSequences(flat, offsets)

    def pad(self, indices: np.ndarray | Sequence[int], least: int = 0) -> torch.Tensor:
        """The sequences of these indices, filled up with PAD: long, shape (B, longest of them, or ``least``)."""
        indices = np.asarray(indices, dtype=np.int64)
        columns = np.arange(self.lengths[indices].max(initial=least))
        filled = columns < self.lengths[indices][:, None]  # (B, L)
        padded = np.full(filled.shape, PAD, dtype=np.int64)
        padded[filled] = self.flat[(self.offsets[indices][:, None] + columns)[filled]]
        return torch.from_numpy(padded)

    def length_histogram(self) -> dict[int, int]:
        """Length to the number of sequences that have it, by ascending length."""
        counts = np.bincount(self.lengths)
        return {int(length): int(counts[length]) for length in np.flatnonzero(counts)}

    def update(self, digest: Digest) -> None:
        """Feeds the content to a hashlib object, in a byte order of its own so that machines agree."""
        digest.update(f"packed {len(self)} {len(self.flat)};".encode())
        digest.update(self.offsets.astype("<i8").tobytes())
        digest.update(self.flat.astype("<i4").tobytes())


@dataclass(frozen=True)
class Pairs:
    """Source and target of n examples; every sequence begins with BOS and ends with EOS.

    Args:
        source, target: of the examples.
        least_width: batches are padded to at least so many tokens on each side.

    Raises:
        ValueError: where there are not as many targets as sources.
    """

    source: PackedSequences
    target: PackedSequences
    least_width: int = 0

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise ValueError(f"{len(self.source)} sources but {len(self.target)} targets")

    def __len__(self) -> int:
        return len(self.source)

    def select(self, indices: np.ndarray | Sequence[int]) -> Pairs:
        """The pairs of these indices, in their order."""
        return Pairs(self.source.select(indices), self.target.select(indices), self.least_width)

    def batch(self, indices: np.ndarray | Sequence[int]) -> Batch:
        """The pairs of these indices, padded."""
        ids = torch.from_numpy(np.array(indices, dtype=np.int64))
        return Batch(self.source.pad(indices, self.least_width), self.target.pad(indices, self.least_width), ids)

    def update(self, digest: Digest) -> None:
        """Feeds the content to a hashlib object."""
        self.source.update(digest)
        self.target.update(digest)


@dataclass(frozen=True)
class TestSet:
    """Examples of one range of source lengths, never trained on.

    Args:
        name: as in tables, e.g. ``"1.5"`` or ``"9-10"``.
        ratio: upper end of the length range over N, the longest training length; 1.0 means in distribution.
        pairs: the examples.
        references: for each example, every accepted target without BOS and EOS.
    """

    __test__ = False  # not a test class, whatever pytest thinks of its name

    name: str
    ratio: float
    pairs: Pairs
    references: Sequence[Sequence[tuple[int, ...]]]

    def __len__(self) -> int:
        return len(self.pairs)

    def update(self, digest: Digest) -> None:
        """Feeds the content, references included, to a hashlib object."""
        digest.update(f"test {self.name} {self.ratio};".encode())
        self.pairs.update(digest)
        PackedSequences.from_lists([r for accepted in self.references for r in accepted]).update(digest)
        PackedSequences.from_lists([[len(accepted)] for accepted in self.references]).update(digest)


def decoder_inputs(target: torch.Tensor) -> torch.Tensor:
    """What a decoder reads of (B, T) targets, (B, T - 1): all but the last real token of each.

    To cut the last column off would leave the shorter sentences their EOS, which alone they would not have had.
    """
    return target[:, :-1].masked_fill(target[:, 1:] == PAD, PAD)


class Batch(NamedTuple):
    """B padded examples; BOS and EOS included, PAD behind the end.

    :func:`decoder_inputs` are what a decoder reads and ``target[:, 1:]`` what it predicts.
    """

    source: torch.Tensor  # (B, S) long
    target: torch.Tensor  # (B, T) long
    indices: torch.Tensor  # (B,) long: which examples of the data set these are

    @property
    def source_tokens(self) -> int:
        """Source tokens that are not padding, BOS and EOS included. Waits for the device where there is one."""
        return int((self.source != PAD).sum())

    @property
    def target_tokens(self) -> int:
        """Tokens to predict: targets that are not padding, without BOS. Waits for the device where there is one."""
        return int((self.target[:, 1:] != PAD).sum())
