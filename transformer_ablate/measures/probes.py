"""Where position is in the encoder: what can be read from its states, and what attention scores make of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer_ablate.core import Seq2Seq
from transformer_ablate.data.examples import PackedSequences
from transformer_ablate.data.stable import stable_generator, stable_seed
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.capture import attention_caught, encoder_blocks, states_caught, untrained
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.tokens import N_SPECIALS

SEQUENCES, LONGEST = 384, 20
TRAINED, VALIDATED = 0.6, 0.2  # shares of the sequences; the rest is tested on
PENALTIES = tuple(10.0**power for power in range(-6, 3))
HIDDEN, BATCH, STEPS, CHECK, RATE = 32, 128, 400, 25, 5e-3


def random_content(n: int, length: int, vocabulary_size: int) -> Tensor:
    """``n`` uniform random strings over all symbols, with BOS and EOS, (n, length + 2); the same for every model."""
    generator = stable_generator("probe content", n, length, vocabulary_size)
    symbols = generator.integers(N_SPECIALS, vocabulary_size, size=(n, length))
    strings = PackedSequences.from_padded(symbols, np.full(n, length)).framed()
    return strings.pad(np.arange(n))


def parts(n: int) -> tuple[slice, slice, slice]:
    """Which of ``n`` sequences a probe is trained on, chosen by, and tested on."""
    trained, seen = int(TRAINED * n), int((TRAINED + VALIDATED) * n)
    return slice(trained), slice(trained, seen), slice(seen, n)


def positions(n: int, length: int, shuffled: bool = False) -> Tensor:
    """What probes predict, (n, length) float64, standardised: each token's index, or any token's index."""
    index = np.tile(np.arange(length, dtype=np.float64), (n, 1))
    if shuffled:
        index = stable_generator("shuffled labels", n, length).permutation(index.ravel()).reshape(n, length)
    return torch.from_numpy((index - index.mean()) / index.std())


def r_squared(predicted: Tensor, y: Tensor) -> Tensor:
    """``1 - SSE / SST`` over the last two dimensions, SST about the mean of ``y``."""
    mean = y.mean(dim=(-2, -1), keepdim=True)
    return 1 - (predicted - y).square().sum(dim=(-2, -1)) / (y - mean).square().sum(dim=(-2, -1))


def standardised(states: Tensor) -> Tensor:
    """States (n, L, d) with mean 0 and variance 1 of each channel over the training part, float64; constants are 0."""
    x = states.double()
    seen = x[parts(len(x))[0]].flatten(0, 1)
    std = seen.std(dim=0, correction=0)
    return (x - seen.mean(dim=0)) / torch.where(std > 0, std, 1.0)


def ridge_r2(x: Tensor, y: Tensor) -> float:
    """R^2 on test sequences of a ridge regression (Hoerl & Kennard 1970, eq. 2.1), its penalty chosen on others.

    Args:
        x: :func:`standardised` states, (n, L, d).
        y: (n, L), of mean 0.
    """
    if not x.isfinite().all():
        return math.nan
    train, valid, test = parts(len(x))
    seen = x[train].flatten(0, 1)
    values, vectors = torch.linalg.eigh(seen.T @ seen / len(seen))
    projected = vectors.T @ (seen.T @ y[train].flatten() / len(seen))
    weights = [vectors @ (projected / (values.clamp(min=0) + penalty)) for penalty in PENALTIES]
    best = max(weights, key=lambda w: float(r_squared(x[valid] @ w, y[valid])))
    return float(r_squared(x[test] @ best, y[test]))


def mlp_r2(x: Tensor, y: Tensor) -> list[float]:
    """R^2 on test sequences of P networks with one hidden ReLU layer, side by side, each by its own best step.

    All start alike, at a prediction of 0, and see the same batches; the step is the best on sequences of their own.

    Args:
        x: :func:`standardised` states, (P, n, L, d).
        y: (P, n, L), of mean 0.
    """
    probes, n, length, d = x.shape
    x, y = x.float(), y.float()
    generator = torch.Generator().manual_seed(stable_seed("probe network", d) >> 1)
    first = torch.randn(d, HIDDEN, generator=generator) * (2 / d) ** 0.5
    # The hidden layer's weights and biases, then those of the output.
    start = (first, torch.zeros(1, HIDDEN), torch.zeros(HIDDEN, 1), torch.zeros(1, 1))
    parameters = [p.expand(probes, -1, -1).to(x.device, copy=True).requires_grad_() for p in start]

    def predict(inputs: Tensor) -> Tensor:
        """(P, m, d) -> (P, m)."""
        hidden = torch.baddbmm(parameters[1], inputs, parameters[0]).relu()
        return torch.baddbmm(parameters[3], hidden, parameters[2]).squeeze(-1)

    train, valid, test = parts(n)
    seen, told = x[:, train].flatten(1, 2), y[:, train].flatten(1)
    optimizer = torch.optim.Adam(parameters, lr=RATE)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, STEPS)
    best, result = torch.full((probes,), -math.inf, device=x.device), torch.zeros(probes, device=x.device)
    for step in range(STEPS + 1):
        if step % CHECK == 0:
            with torch.no_grad():
                valued, tested = (
                    r_squared(predict(x[:, part].flatten(1, 2)).unflatten(1, (-1, length)), y[:, part])
                    for part in (valid, test)
                )
            better = ~(valued <= best)  # a network that diverged is no number, whatever it was before
            best, result = torch.where(better, valued, best), torch.where(better, tested, result)
        rows = torch.randint(seen.shape[1], (BATCH,), generator=generator).to(x.device)
        optimizer.zero_grad()
        (predict(seen[:, rows]) - told[:, rows]).square().mean(dim=1).sum().backward()
        optimizer.step()
        decay.step()
    return result.tolist()


def functional_share(scores: Tensor, allowed: Tensor) -> Tensor:
    """Part of the variance of each query's scores that the offset i - j explains, for each head.

    A constant on all scores of a query changes no weight, so scores are centred over the allowed keys of each query. So
    are the indicators of the offsets: the share is R^2 of the least-squares fit of ``s_ij = a_i + f(i - j)``, with an a
    for each query of each sentence and one f. A term of the offset alone explains 1, however the edges cut it. An f of
    that many values explains a little by chance, less with more sentences.

    Args:
        scores: (B, H, L, L) before the softmax.
        allowed: (L, L) boolean, the same for all sentences.

    Returns:
        (H,) in [0, 1]; NaN where scores do not vary.
    """
    length = scores.shape[-1]
    may = allowed.to(scores.device, torch.float64)
    keys = may.sum(dim=-1, keepdim=True).clamp(min=1)

    def centred(s: Tensor) -> Tensor:
        s = torch.where(allowed.to(s.device), s.double(), 0.0)
        return (s - s.sum(dim=-1, keepdim=True) / keys) * may

    s = centred(scores)
    total = s.square().sum(dim=(0, 2, 3))  # (H,)
    index = torch.arange(length, device=s.device)
    offset = index[:, None] - index + length - 1
    design = centred(torch.nn.functional.one_hot(offset, 2 * length - 1).movedim(-1, 0)).flatten(1)  # (offsets, L L)
    basis = _orthonormal(design)
    explained = (s.mean(dim=0).flatten(1) @ basis.T).square().sum(dim=1) * len(s)
    return explained / total


def _orthonormal(rows: Tensor) -> Tensor:
    """An orthonormal basis, in rows, of what ``rows`` span."""
    _, sizes, basis = torch.linalg.svd(rows, full_matrices=False)
    return basis[sizes > 1e-9 * sizes.max()]


@torch.inference_mode()
def look(model: Seq2Seq, source: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What an encoder does with strings of one length, BOS and EOS left out: they have a place of their own.

    Args:
        model: in evaluation mode.
        source: (n, L + 2).

    Returns:
        the stream (n, L, d) before the first and after each layer, and each layer's functional share (H,).
    """
    with states_caught(model) as states, attention_caught(model) as caught:
        model.encode(source.to(model.device))
    inside = slice(1, source.shape[1] - 1)
    shares = [
        functional_share(a.scores[..., inside, inside], a.allowed[0, 0, inside, inside]) for a in caught["encoder"]
    ]
    return [state[:, inside] for state in states], shares


def slope(depths: Sequence[int], values: Sequence[float]) -> float:
    """Least-squares slope of ``values`` over ``depths``, a layer."""
    x = np.asarray(depths) - np.mean(depths)
    return float(x @ np.asarray(values) / (x @ x))


class Probes:
    """Position in the encoder by depth, on 384 random strings, beside a network that has learnt nothing.

    Strings are uniform over the source vocabulary, so that content tells nothing of position, and as long as the
    longest training source, at most 20 symbols; BOS and EOS are fed, but neither probed nor counted. Probes predict a
    token's index from the stream, 0 being the embeddings (with what the encoding adds), D after layer D, before the
    final norm; they are trained, chosen and tested on different strings.

    Metrics, each ``NAME/D``: ``probe_r2`` (R^2 of a ridge regression), ``probe_r2_mlp`` (of a small network), with
    controls ``_untrained`` (same recipe, no training) and ``_shuffled`` (labels permuted over all tokens);
    ``functional_share``, from 1 on, and ``functional_share_untrained``: see :func:`functional_share`, mean over heads.
    Over layers: ``probe_r2_slope``, ``probe_r2_mlp_slope``, ``functional_share_slope`` (a layer; the last one needs two
    layers), and ``_slope_net``, less the untrained control's. Artifact ``functional_share_heads``: a row a head.
    """

    name = "probes"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        if not encoder_blocks(run.model):
            return Measured({})
        length = min(LONGEST, run.task.longest_source - 2)
        if length < 2:
            return Measured({})
        source = random_content(SEQUENCES, length, len(run.task.source_vocabulary))
        found = {"": look(run.model, source), "_untrained": look(untrained(run), source)}
        figures: dict[str, dict[int, float]] = {}
        for suffix, (_, shares) in found.items():
            figures[f"functional_share{suffix}"] = {n: float(s.mean()) for n, s in enumerate(shares, start=1)}
        figures |= self._probed({suffix: states for suffix, (states, _) in found.items()})
        metrics = {f"{name}/{depth}": value for name, values in figures.items() for depth, value in values.items()}
        for name in ("probe_r2", "probe_r2_mlp", "functional_share"):
            if len(figures[name]) > 1:
                own, control = (slope([*values], [*values.values()]) for values in _both(figures, name))
                metrics |= {f"{name}_slope": own, f"{name}_slope_net": own - control}
        heads = [
            {"layer": n, "head": head, "share": float(own), "share_untrained": float(control)}
            for n, pair in enumerate(zip(found[""][1], found["_untrained"][1], strict=True), start=1)
            for head, (own, control) in enumerate(zip(*pair, strict=True))
        ]
        return Measured(metrics, {"functional_share_heads": heads})

    @staticmethod
    def _probed(states: dict[str, list[Tensor]]) -> dict[str, dict[int, float]]:
        """R^2 by name of the metric and depth, for the states of the model and of the control."""
        x = {suffix: [standardised(state) for state in streams] for suffix, streams in states.items()}
        n, length = x[""][0].shape[:2]
        y = positions(n, length).to(x[""][0])
        cases = {suffix: (streams, y) for suffix, streams in x.items()}
        cases["_shuffled"] = (x[""], positions(n, length, shuffled=True).to(y))
        figures = {
            f"probe_r2{suffix}": {depth: ridge_r2(stream, labels) for depth, stream in enumerate(streams)}
            for suffix, (streams, labels) in cases.items()
        }
        inputs = torch.stack([stream.float() for streams, _ in cases.values() for stream in streams])
        labels = torch.stack([labels.float() for streams, labels in cases.values() for _ in streams])
        results = iter(mlp_r2(inputs, labels))
        for suffix, (streams, _) in cases.items():
            figures[f"probe_r2_mlp{suffix}"] = {depth: next(results) for depth in range(len(streams))}
        return figures


def _both(figures: dict[str, dict[int, float]], name: str) -> tuple[dict[int, float], dict[int, float]]:
    """A figure by depth, of the model and of the untrained control."""
    return figures[name], figures[f"{name}_untrained"]
