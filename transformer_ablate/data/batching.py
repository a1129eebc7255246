"""Batches of a bounded number of tokens, in an order that depends on the seed alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from transformer_ablate.data.examples import Batch, Pairs
from transformer_ablate.data.stable import stable_generator
from transformer_ablate.errors import ConfigError


def cut(pairs: Pairs, order: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Divides ``order`` into consecutive batches, each as long as the budget allows.

    A batch's cost is rows x (longest source + longest target), all with BOS and EOS, or the least width that the pairs
    ask for. An example that alone exceeds the budget gets a batch of its own.

    Args:
        pairs: the examples.
        order: indices of examples, shape (n,).
        batch_tokens: the budget in padded tokens.
    """
    sources, targets = pairs.source.lengths[order].tolist(), pairs.target.lengths[order].tolist()
    least = pairs.least_width
    starts, start, longest_source, longest_target = [], 0, least, least
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if source > longest_source:
            longest_source = source
        if target > longest_target:
            longest_target = target
        if (i - start + 1) * (longest_source + longest_target) > batch_tokens and i > start:
            starts.append(i)
            start, longest_source, longest_target = i, max(source, least), max(target, least)
    return np.split(order, starts) if len(order) else []


class TokenBudgetBatches:
    """The batches of a training run: a batch sampler for ``torch.utils.data.DataLoader``.

    Each epoch holds each example exactly once, in another order. Examples are shuffled within quantile buckets of
    source + target length, cut to the budget, and the batches of all buckets are shuffled. The order depends on
    ``seed``, the epoch and the lengths, never on the model or on a global generator.

    Args:
        pairs: the training examples.
        batch_tokens: most padded tokens in a batch: rows x (longest source + longest target), with BOS and EOS.
        length_buckets: number of quantile buckets; 1 shuffles all lengths together.
        seed: of the order.
        steps: number of batches, through as many epochs as that takes.

    Raises:
        ConfigError: where one example alone exceeds the budget.
    """

    def __init__(self, pairs: Pairs, batch_tokens: int, length_buckets: int, seed: int, steps: int) -> None:
        self.pairs, self.batch_tokens, self.seed, self.steps = pairs, batch_tokens, seed, steps
        tokens = pairs.source.lengths + pairs.target.lengths
        longest = max(int(tokens.max()), 2 * pairs.least_width)
        if longest > batch_tokens:
            raise ConfigError("data.batch_tokens", batch_tokens, f"at least {longest}, the longest example's tokens")
        self._buckets = np.array_split(np.argsort(tokens, kind="stable"), length_buckets)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[np.ndarray]:
        """Index arrays of the run's batches."""
        every = itertools.chain.from_iterable(map(self.epoch, itertools.count()))
        return itertools.islice(every, self.steps)

    def epoch(self, number: int) -> list[np.ndarray]:
        """All batches of one epoch (counted from 0), each an array of example indices."""
        generator = stable_generator("batch order", self.seed, number)
        batches: list[np.ndarray] = []
        for bucket in self._buckets:
            batches += cut(self.pairs, generator.permutation(bucket), self.batch_tokens)
        return [batches[i] for i in generator.permutation(len(batches))]

    def padding_share(self, epoch: int = 0) -> float:
        """Padded slots over all slots of source and target in one epoch, in [0, 1)."""
        return padding_share(self.pairs, self.epoch(epoch))


def padding_share(pairs: Pairs, batches: Iterable[np.ndarray]) -> float:
    """Padded slots over all slots of source and target, in [0, 1), if these index arrays are padded as batches."""
    slots = tokens = 0
    for indices in batches:
        for lengths in (pairs.source.lengths[indices], pairs.target.lengths[indices]):
            slots += len(lengths) * int(lengths.max(initial=pairs.least_width))
            tokens += int(lengths.sum())
    return 1 - tokens / slots


def evaluation_batches(pairs: Pairs, batch_tokens: int) -> Iterator[Batch]:
    """Each example once, by ascending length, in batches of at most ``batch_tokens`` padded tokens.

    An example that alone exceeds the budget comes alone: test sets reach past the training lengths.
    """
    order = np.argsort(pairs.source.lengths + pairs.target.lengths, kind="stable")
    for indices in cut(pairs, order, batch_tokens):
        yield pairs.batch(indices)
