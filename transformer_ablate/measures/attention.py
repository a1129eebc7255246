"""Where a model attends: entropy, difference of heads, mass on the token that is to be copied, and maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer_ablate.core import Seq2Seq
from transformer_ablate.data.batching import evaluation_batches
from transformer_ablate.data.examples import Batch, Pairs, decoder_inputs
from transformer_ablate.data.task import TaskData
from transformer_ablate.data.vocabulary import Vocabulary
from transformer_ablate.measures.base import Measured
from transformer_ablate.measures.capture import Caught, attention_caught, untrained
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.tokens import BOS, EOS, N_SPECIALS, PAD, UNK

EXAMPLES = 256
# Padded tokens of one batch: weights of all layers and heads are held at once.
BATCH_TOKENS = 4096
MAPS, MAP_TOKENS, DIGITS = 3, 10, 3
SPECIALS = {PAD: "<pad>", BOS: "<bos>", EOS: "<eos>", UNK: "<unk>"}
EXTRA = "<extra>"  # the learned key behind all others


def entropy(weights: Tensor) -> Tensor:
    """Entropy of distributions (..., S), nats -> (...)."""
    return torch.special.entr(weights).sum(dim=-1)


def head_divergence(weights: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence between two heads' distributions, nats, in [0, ln 2] (Lin 1991, eq. 4.1).

    Args:
        weights: (B, H, L, S), H >= 2.

    Returns:
        (B, L), the mean over the H (H - 1) / 2 pairs of ``H((p + q) / 2) - (H(p) + H(q)) / 2``.
    """
    heads = weights.shape[1]
    mixed = sum(entropy((weights[:, : heads - n] + weights[:, n:]) / 2).sum(dim=1) for n in range(1, heads))
    return mixed / (heads * (heads - 1) / 2) - entropy(weights).mean(dim=1)


@dataclass
class Layer:
    """Sums over queries of real tokens in one layer's attention; those of each head have the shape (H,), float64.

    Attributes:
        entropy: nats; ``queries`` of them.
        relative: entropy over ln(number of allowed keys), for the ``choices`` queries that have two keys and more.
        divergence: mean Jensen-Shannon divergence between heads.
        aligned: weight on the aligned source token, for the ``copies`` queries that have one.
    """

    entropy: Tensor
    relative: Tensor
    aligned: Tensor
    divergence: float = 0.0
    queries: int = 0
    choices: int = 0
    copies: int = 0

    @classmethod
    def empty(cls, heads: int) -> Layer:
        """Before any query."""
        entropy, relative, aligned = torch.zeros(3, heads, dtype=torch.float64)
        return cls(entropy, relative, aligned)

    def add(self, caught: Caught, real: Tensor, aligned: Tensor | None) -> None:
        """Counts one pass.

        Args:
            caught: weights (B, H, L, S).
            real: (B, L) which queries are of real tokens.
            aligned: (B, L) place of each query's aligned key, negative for none; None where no query has one.
        """
        weights = caught.weights.double()
        by_query = entropy(weights).movedim(1, -1)  # (B, L, H)
        keys = caught.allowed.sum(dim=-1).movedim(1, -1)
        chosen = real & (keys > 1).all(dim=-1)
        self.entropy += by_query[real].sum(dim=0).cpu()
        self.relative += (by_query[chosen] / keys[chosen].log()).sum(dim=0).cpu()
        self.queries += int(real.sum())
        self.choices += int(chosen.sum())
        if self.heads > 1:
            self.divergence += float(head_divergence(weights)[real].sum())
        if aligned is not None:
            has = real & (aligned >= 0)
            places = aligned.clamp(min=0)[:, None, :, None].expand(-1, self.heads, -1, 1)
            mass = weights.gather(-1, places).squeeze(-1).movedim(1, -1)  # (B, L, H)
            self.aligned += mass[has].sum(dim=0).cpu()
            self.copies += int(has.sum())

    @property
    def heads(self) -> int:
        return len(self.entropy)

    def means(self) -> dict[str, Tensor]:
        """Each figure's mean, (H,); those that there are."""
        found = {"entropy": self.entropy / self.queries}
        if self.choices:
            found["relative_entropy"] = self.relative / self.choices
        if self.copies:
            found["aligned_mass"] = self.aligned / self.copies
        return found


def aligned_keys(task: TaskData, pairs: Pairs, batch: Batch) -> Tensor:
    """(B, T - 1) place in the padded source of the token that each target token comes from; -1 where none is known."""
    places = np.full((len(batch.target), batch.target.shape[1] - 1), -1)
    for row, i in zip(places, batch.indices.tolist(), strict=True):
        source, target = (int(side.lengths[i]) - 2 for side in (pairs.source, pairs.target))  # without BOS and EOS
        found = task.alignment(source, target)
        if found is not None:
            row[:target] = found + 1  # BOS stands in front
    return torch.from_numpy(places)


@torch.inference_mode()
def survey(model: Seq2Seq, task: TaskData, pairs: Pairs, batch_tokens: int = BATCH_TOKENS) -> dict[str, list[Layer]]:
    """Attention under the gold prefix, by kind, an entry a layer; ``model`` in evaluation mode."""
    layers: dict[str, list[Layer]] = {}
    for batch in evaluation_batches(pairs, batch_tokens):
        source, inputs = batch.source.to(model.device), decoder_inputs(batch.target).to(model.device)
        with attention_caught(model) as caught:
            if not caught:
                return {}
            model(source, inputs)
        aligned = aligned_keys(task, pairs, batch).to(model.device)
        for kind, found in caught.items():
            real = (source if kind == "encoder" else inputs) != PAD
            here = layers.setdefault(kind, [Layer.empty(one.weights.shape[1]) for one in found])
            for layer, one in zip(here, found, strict=True):
                layer.add(one, real, aligned if kind == "cross" else None)
    return layers


class Attention:
    """Entropy, diversity of heads and alignment on 256 in-distribution test examples, under the gold prefix.

    Kinds are encoder and decoder self-attention and attention to the source (cross); what a model does not have is
    left out. Metrics, KIND being encoder, decoder or cross: ``attention_entropy_KIND`` (nats, mean over queries of real
    tokens, heads and layers) and ``attention_entropy`` (mean of the kinds); ``attention_entropy_relative_KIND`` (the
    same over ln of the number of allowed keys, where there are several); ``head_js_KIND`` (mean Jensen-Shannon
    divergence between two heads of a layer, nats; none for one head), with ``head_js_KIND_untrained`` of a network of
    the same recipe that has learnt nothing. Where the task knows from which source token a target token is copied, the
    weight of cross-attention on it, for the query that predicts it: ``aligned_mass`` (mean over layers and heads),
    ``aligned_mass_last`` (mean over the heads of the last layer), ``aligned_mass_best`` (the head of any layer that
    has most), each also with ``_untrained``. Artifacts: ``attention_heads``, a row a head; ``attention_maps``, weights
    of the first and the last layer on three examples, [head][query][key].
    """

    name = "attention"

    def measure(self, run: Evaluation) -> Measured:
        """See the class."""
        pairs = run.task.test[0].pairs
        pairs = pairs.select(np.arange(min(EXAMPLES, len(pairs))))
        tokens = min(BATCH_TOKENS, run.batch_tokens)
        layers = survey(run.model, run.task, pairs, tokens)
        if not layers:
            return Measured({})
        metrics = _entropies(layers)
        control = survey(untrained(run), run.task, pairs, tokens)
        for found, suffix in ((layers, ""), (control, "_untrained")):
            compared = _divergences(found) | _alignments(found)
            metrics |= {f"{name}{suffix}": value for name, value in compared.items()}
        rows = [
            {"kind": kind, "layer": n, "head": head, **{name: float(v[head]) for name, v in layer.means().items()}}
            for kind, found in layers.items()
            for n, layer in enumerate(found)
            for head in range(layer.heads)
        ]
        return Measured(
            metrics, {"attention_heads": rows, "attention_maps": attention_maps(run.model, run.task, pairs)}
        )


def _entropies(layers: dict[str, list[Layer]]) -> dict[str, float]:
    metrics = {f"attention_entropy_{kind}": _mean(found, "entropy") for kind, found in layers.items()}
    metrics["attention_entropy"] = math.fsum(metrics.values()) / len(metrics)
    for kind, found in layers.items():
        if all(layer.choices for layer in found):
            metrics[f"attention_entropy_relative_{kind}"] = _mean(found, "relative_entropy")
    return metrics


def _divergences(layers: dict[str, list[Layer]]) -> dict[str, float]:
    return {
        f"head_js_{kind}": math.fsum(layer.divergence / layer.queries for layer in found) / len(found)
        for kind, found in layers.items()
        if found[0].heads > 1
    }


def _alignments(layers: dict[str, list[Layer]]) -> dict[str, float]:
    found = layers.get("cross", [])
    if not found or not found[0].copies:
        return {}
    mass = torch.stack([layer.means()["aligned_mass"] for layer in found])  # (layers, H)
    return {
        "aligned_mass": float(mass.mean()),
        "aligned_mass_last": float(mass[-1].mean()),
        "aligned_mass_best": float(mass.max()),
    }


def _mean(layers: Sequence[Layer], name: str) -> float:
    return float(torch.stack([layer.means()[name] for layer in layers]).mean())


@torch.inference_mode()
def attention_maps(model: Seq2Seq, task: TaskData, pairs: Pairs) -> list[dict[str, object]]:
    """Weights on the three examples whose lengths are nearest to ten tokens, of each kind's first and last layer.

    Queries of the decoder are named by the token that is read, not by the one that is predicted from it.
    """
    off = abs(pairs.source.lengths - MAP_TOKENS) + abs(pairs.target.lengths - MAP_TOKENS)
    rows: list[dict[str, object]] = []
    for example in sorted(np.argsort(off, kind="stable")[:MAPS].tolist()):
        batch = pairs.batch([example])
        with attention_caught(model) as caught:
            model(batch.source.to(model.device), batch.target[:, :-1].to(model.device))
        source = _names(task.source_vocabulary, batch.source[0].tolist())
        target = _names(task.target_vocabulary, batch.target[0, :-1].tolist())
        for kind, found in caught.items():
            queries, keys = source if kind == "encoder" else target, target if kind == "decoder" else source
            for layer in sorted({0, len(found) - 1}):
                weights = found[layer].weights[0]  # (H, L, S)
                rounded = weights.double().cpu().numpy().round(DIGITS).tolist()
                extra = [EXTRA] * (weights.shape[-1] - len(keys))
                rows.append(
                    {"example": example, "kind": kind, "layer": layer}
                    | {"queries": queries, "keys": keys + extra, "weights": rounded}
                )
    return rows


def _names(vocabulary: Vocabulary, ids: Sequence[int]) -> list[str]:
    return [SPECIALS[i] if i < N_SPECIALS else vocabulary.symbols[i - N_SPECIALS] for i in ids]
