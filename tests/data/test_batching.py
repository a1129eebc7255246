from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pickle
import random
import time
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_ablate.config import DataConfig
from transformer_ablate.data import (
    Batch,
    PackedSequences,
    Pairs,
    Seq2SeqDataModule,
    TokenBudgetBatches,
    evaluation_batches,
    load_task,
    padding_share,
)
from transformer_ablate.errors import ConfigError

DATA = DataConfig(train_examples=500, valid_examples=50, test_examples=50, batch_tokens=400, length_buckets=3)


def ragged(lengths: list[tuple[int, int]]) -> Pairs:
    source = PackedSequences.from_lists([[4] * s for s, _ in lengths]).framed()
    return Pairs(source, PackedSequences.from_lists([[5] * t for _, t in lengths]).framed())


PAIRS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60).map(ragged)


@settings(deadline=None)
@given(PAIRS, st.integers(44, 400), st.integers(1, 7), st.integers(0, 5))
def test_an_epoch(pairs: Pairs, budget: int, length_buckets: int, seed: int) -> None:
    batches = TokenBudgetBatches(pairs, budget, length_buckets, seed, steps=1).epoch(seed)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(pairs)))
    for indices in batches:
        longest = pairs.source.lengths[indices].max() + pairs.target.lengths[indices].max()
        assert 0 < len(indices) * longest <= budget
    again = TokenBudgetBatches(pairs, budget, length_buckets, seed, steps=1).epoch(seed)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


@settings(deadline=None)
@given(PAIRS, st.integers(1, 90))
def test_evaluation(pairs: Pairs, budget: int) -> None:
    batches = list(evaluation_batches(pairs, budget))
    order = torch.cat([b.indices for b in batches]).tolist()
    assert sorted(order) == list(range(len(pairs)))
    totals = (pairs.source.lengths + pairs.target.lengths)[order]
    assert (np.diff(totals) >= 0).all()
    for batch in batches:
        rows = len(batch.indices)
        assert rows == 1 or rows * (batch.source.shape[1] + batch.target.shape[1]) <= budget
        assert torch.equal(batch.source, pairs.source.pad(batch.indices.numpy()))
        assert torch.equal(batch.target, pairs.target.pad(batch.indices.numpy()))


def digest(batches: Iterable[np.ndarray]) -> str:
    sha = hashlib.sha256()
    for indices in batches:
        sha.update(np.asarray(indices).astype("<i8").tobytes() + b"|")
    return sha.hexdigest()[:16]


@pytest.mark.parametrize(
    ("options", "stream", "epochs"),
    [
        ((1280, 1, 0, 400), "af7d0c0ab619bab4", ["32c09a9a33752545", "4025c1d18a02f96f", "db4371b7cdacf250"]),
        ((600, 4, 3, 400), "e66e32ee9a86aba3", ["eda54fe24a242e4d", "5c7130c7158728e9", "b39a3c3eb6506458"]),
        ((100, 7, 11, 3000), "7ef9f8d8e9a6a578", ["d3063b61cab76eb9", "d84db221b6ce64fe", "69c75b56ea6764f1"]),
    ],
)
def test_the_order_is_the_one_that_finished_runs_had(
    options: tuple[int, int, int, int], stream: str, epochs: list[str]
) -> None:
    pairs = ragged(np.random.default_rng(7).integers(1, 30, size=(2000, 2)).tolist())
    batches = TokenBudgetBatches(pairs, *options)
    assert [digest(batches.epoch(number)) for number in (0, 1, 5)] == epochs
    assert digest(batches) == stream


def test_loader_and_evaluation_have_the_order_that_finished_runs_had() -> None:
    loader = Seq2SeqDataModule(DATA, seed=3, steps=90).train_dataloader()
    assert digest(batch.indices.numpy() for batch in loader) == "3dba2abc5ab2afc7"
    pairs = ragged(np.random.default_rng(7).integers(1, 30, size=(2000, 2)).tolist())
    assert digest(batch.indices.numpy() for batch in evaluation_batches(pairs, 700)) == "ecb8e7f6ed9d3119"


def test_batches_are_as_full_as_the_budget_allows() -> None:
    pairs = ragged([(8, 8)] * 100)
    assert sorted(map(len, TokenBudgetBatches(pairs, 640, 1, 0, 1).epoch(0))) == [4, 32, 32, 32]


def test_order_differs_across_epochs_and_seeds() -> None:
    pairs = load_task(DATA).train
    orders = [
        np.concatenate(TokenBudgetBatches(pairs, 400, 3, seed, 1).epoch(epoch)).tolist()
        for seed, epoch in itertools.product(range(3), range(3))
    ]
    assert len({tuple(order) for order in orders}) == len(orders)


def test_stream_runs_through_the_epochs_for_the_steps_asked() -> None:
    pairs = load_task(DATA).train
    one_epoch = len(TokenBudgetBatches(pairs, 400, 3, 0, 1).epoch(0))
    batches = TokenBudgetBatches(pairs, 400, 3, 0, steps=2 * one_epoch)
    stream = list(batches)
    assert len(batches) == len(stream) == 2 * one_epoch
    expected = [*batches.epoch(0), *batches.epoch(1), *batches.epoch(2)]
    assert all(np.array_equal(a, b) for a, b in zip(stream, expected, strict=False))
    assert not np.array_equal(np.concatenate(batches.epoch(0)), np.concatenate(batches.epoch(1)))


def test_length_buckets_save_padding() -> None:
    pairs = load_task(DATA).train
    shares = [TokenBudgetBatches(pairs, 400, buckets, 0, 1).padding_share() for buckets in (1, 4)]
    assert 0 < shares[1] < 0.5 * shares[0]
    assert padding_share(ragged([(2, 6), (4, 2)]), [np.array([0, 1])]) == pytest.approx(1 - 22 / 28)


@settings(deadline=None)
@given(PAIRS, st.integers(1, 40), st.integers(80, 400), st.integers(0, 5))
def test_batches_are_padded_as_far_as_is_asked_for(pairs: Pairs, least: int, budget: int, seed: int) -> None:
    wide = dataclasses.replace(pairs, least_width=least)
    batches = TokenBudgetBatches(wide, budget, 1, seed, steps=1)
    slots = 0
    for indices in batches.epoch(0):
        batch, usual = wide.batch(indices), pairs.batch(indices)
        for padded, plain in zip(batch[:2], usual[:2], strict=True):
            assert padded.shape == (len(indices), max(least, plain.shape[1]))
            assert torch.equal(padded[:, : plain.shape[1]], plain)
            assert not padded[:, plain.shape[1] :].any()  # PAD is 0
            slots += padded.numel()
        assert len(indices) == 1 or batch.source.numel() + batch.target.numel() <= budget
    tokens = int(pairs.source.lengths.sum() + pairs.target.lengths.sum())
    assert batches.padding_share() == pytest.approx(1 - tokens / slots)
    with pytest.raises(ConfigError, match=r"data\.batch_tokens"):
        TokenBudgetBatches(wide, 2 * least - 1, 1, seed, steps=1)


def test_only_training_batches_are_padded_further_and_the_data_stay_the_same() -> None:
    usual, wide = load_task(DATA), load_task(dataclasses.replace(DATA, pad_to=16))
    assert wide.train.batch([0, 1]).source.shape[1] == 16
    assert wide.train.source is usual.train.source
    assert usual.train.least_width == wide.valid.least_width == wide.test[0].pairs.least_width == 0
    assert wide.content_hash == usual.content_hash
    assert load_task(DATA).train.least_width == 0


def test_too_small_a_budget_names_the_field() -> None:
    with pytest.raises(ConfigError, match="at least 20") as caught:
        TokenBudgetBatches(load_task(DATA).train, 19, 1, 0, 1)
    assert caught.value.field == "data.batch_tokens"


def test_cutting_a_large_epoch() -> None:
    """Prints the time; asserts the result only."""
    generator = np.random.default_rng(0)
    pairs = ragged([(n, n) for n in generator.integers(1, 9, size=100_000).tolist()])
    batches = TokenBudgetBatches(pairs, 1_280, 1, 0, 1)
    start = time.perf_counter()
    epoch = batches.epoch(0)
    print(f"{len(epoch)} batches of 100 000 examples in {time.perf_counter() - start:.3f} s")
    assert 1_500 < len(epoch) < 1_700


def loaded(workers: int, seed: int = 3, steps: int = 40) -> list[Batch]:
    data = DataConfig(**{**DATA.__dict__, "loader_workers": workers})
    return list(Seq2SeqDataModule(data, seed=seed, steps=steps).train_dataloader())


def test_loader_processes_do_not_change_the_batches() -> None:
    here, elsewhere = loaded(0), loaded(2)
    assert len(here) == len(elsewhere) == 40
    for a, b in zip(here, elsewhere, strict=True):
        assert isinstance(b, Batch)
        assert torch.equal(a.source, b.source)
        assert torch.equal(a.target, b.target)
        assert torch.equal(a.indices, b.indices)
    pairs = load_task(DATA).train
    assert torch.equal(here[0].source, pairs.source.pad(here[0].indices.numpy()))
    assert not torch.equal(here[0].indices[:5], loaded(0, seed=4)[0].indices[:5])


@pytest.mark.parametrize("workers", [0, 2])
def test_global_generators_are_left_alone(workers: int) -> None:
    def state() -> tuple[bytes, bytes, object]:
        return torch.get_rng_state().numpy().tobytes(), pickle.dumps(np.random.get_state()), random.getstate()

    load_task.__globals__["_load"].cache_clear()
    before = state()
    loaded(workers)
    list(evaluation_batches(load_task(DATA).valid, 400))
    assert state() == before


def test_dataset_survives_pickling_as_spawned_workers_need() -> None:
    loader = Seq2SeqDataModule(DATA, seed=0, steps=2).train_dataloader()
    dataset, batches = pickle.loads(pickle.dumps((loader.dataset, loader.batch_sampler)))
    first = next(iter(batches))
    assert torch.equal(dataset.__getitems__(first).source, next(iter(loader)).source)
    assert dataset[7].source.shape[0] == 1
    assert len(dataset) == 500


def test_the_order_depends_on_seed_and_data_alone() -> None:
    torch.manual_seed(1)
    first = [b.indices.tolist() for b in loaded(0)]
    torch.manual_seed(2)
    torch.rand(3)
    assert [b.indices.tolist() for b in loaded(0)] == first
