from __future__ import annotations

import hashlib
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_ablate.data import BOS, EOS, PAD, PackedSequences, Pairs

SEQUENCES = st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=9), max_size=12)


def lists(packed: PackedSequences) -> list[list[int]]:
    return [packed[i].tolist() for i in range(len(packed))]


@given(SEQUENCES)
def test_packing_keeps_the_sequences(sequences: list[list[int]]) -> None:
    packed = PackedSequences.from_lists(sequences)
    assert lists(packed) == [s.tolist() for s in packed] == sequences
    assert packed.lengths.tolist() == [len(s) for s in sequences]
    assert lists(packed.framed()) == [[BOS, *s, EOS] for s in sequences]
    histogram = packed.length_histogram()
    assert list(histogram) == sorted(set(map(len, sequences)))
    assert all(sum(len(s) == length for s in sequences) == n for length, n in histogram.items())


@given(SEQUENCES, st.data())
def test_selection_and_padding_agree_with_loops(sequences: list[list[int]], data: st.DataObject) -> None:
    packed = PackedSequences.from_lists(sequences)
    indices = data.draw(st.lists(st.integers(0, len(sequences) - 1))) if sequences else []
    chosen = [sequences[i] for i in indices]
    assert lists(packed.select(indices)) == chosen
    padded = packed.pad(np.array(indices))
    width = max(map(len, chosen), default=0)
    assert padded.dtype == torch.long
    assert padded.shape == (len(chosen), width)
    assert padded.tolist() == [s + [PAD] * (width - len(s)) for s in chosen]


@given(SEQUENCES, st.integers(0, 3))
def test_packing_a_padded_matrix(sequences: list[list[int]], extra: int) -> None:
    lengths = np.array([len(s) for s in sequences], dtype=np.int64)
    matrix = np.full((len(sequences), lengths.max(initial=0) + extra), 77)
    for row, sequence in zip(matrix, sequences, strict=True):
        row[: len(sequence)] = sequence
    assert lists(PackedSequences.from_padded(matrix, lengths)) == sequences


def test_index_errors_and_write_protection() -> None:
    packed = PackedSequences.from_lists([[4, 5], [6]])
    assert packed[-1].tolist() == [6]
    with pytest.raises(IndexError):
        packed[2]
    with pytest.raises(ValueError, match="read-only"):
        packed[0][0] = 9


def test_digest_sees_where_sequences_end() -> None:
    def digest(sequences: list[list[int]]) -> str:
        h = hashlib.sha256()
        PackedSequences.from_lists(sequences).update(h)
        return h.hexdigest()

    assert digest([[4, 5], [6]]) == digest([[4, 5], [6]])
    assert len({digest([[4, 5], [6]]), digest([[4], [5, 6]]), digest([[4, 5, 6]]), digest([[4, 5], [7]])}) == 4


def test_batch_counts_tokens() -> None:
    source = PackedSequences.from_lists([[4], [4, 5, 6], []]).framed()
    target = PackedSequences.from_lists([[4, 4], [5], []]).framed()
    batch = Pairs(source, target).batch([1, 0])
    assert batch.source.tolist() == [[BOS, 4, 5, 6, EOS], [BOS, 4, EOS, PAD, PAD]]
    assert batch.target.tolist() == [[BOS, 5, EOS, PAD], [BOS, 4, 4, EOS]]
    assert batch.indices.tolist() == [1, 0]
    assert batch.source_tokens == 8
    assert batch.target_tokens == 2 + 3  # a target of n symbols scores n + 1 tokens


def test_pairs_match_and_are_frozen() -> None:
    one, two = PackedSequences.from_lists([[4]]), PackedSequences.from_lists([[4], [5]])
    with pytest.raises(ValueError, match="1 sources but 2 targets"):
        Pairs(one, two)
    pairs = Pairs(two, two)
    assert len(pairs) == 2
    assert lists(pairs.select([1]).target) == [[5]]
    with pytest.raises(FrozenInstanceError):
        pairs.source = one  # type: ignore[misc]
