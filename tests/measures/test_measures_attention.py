"""What is caught of attention, and the figures made of it."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from torch import Tensor, nn

from transformer_ablate.config import DataConfig, Recipe
from transformer_ablate.core import Memory, Seq2Seq, attention, build_model
from transformer_ablate.core.attention import Observer
from transformer_ablate.data import BOS, EOS, PAD
from transformer_ablate.data.examples import decoder_inputs
from transformer_ablate.data.synthetic.base import SyntheticTask
from transformer_ablate.data.task import load_task
from transformer_ablate.measures.attention import Attention, entropy, head_divergence, survey
from transformer_ablate.measures.capture import attention_caught
from transformer_ablate.measures.evaluation import Evaluation
from transformer_ablate.registry import TASKS

SMALL: dict[str, Any] = {
    "model.d_model": 16,
    "model.d_ff": 16,
    "model.n_heads": 4,
    "data.max_length": 6,
    "data.vocab_size": 8,
    "data.train_examples": 200,
    "data.valid_examples": 10,
    "data.test_examples": 40,
    "train.warmup_steps": 1,
    "train.max_steps": 2,
}


def evaluation(**options: Any) -> Evaluation:
    recipe = Recipe().replace({**SMALL, **{name.replace("__", "."): value for name, value in options.items()}})
    task = load_task(recipe.data)
    sizes = len(task.source_vocabulary), len(task.target_vocabulary)
    return Evaluation(build_model(recipe.model, *sizes, seed=3), task, recipe)


# Figures of distributions ------------------------------------------------------------------------------------------


def test_entropy_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    torch.testing.assert_close(entropy(weights), torch.tensor([1.039721, 1.386294, 0.0]))


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ([[1, 0], [0, 1]], 0.693147),  # nothing in common: ln 2
        ([[0.5, 0.5], [1, 0]], 0.215762),  # H(.75, .25) - ln(2) / 2
        ([[0.3, 0.7], [0.3, 0.7]], 0.0),
        ([[1, 0], [0, 1], [0.5, 0.5]], (0.693147 + 2 * 0.215762) / 3),
    ],
)
def test_divergence_of_heads_by_hand(heads: list[list[float]], expected: float) -> None:
    weights = torch.tensor(heads)[None, :, None]  # (1, H, 1, S)
    assert float(head_divergence(weights)) == pytest.approx(expected, abs=1e-6)


@given(st.integers(2, 5), st.integers(1, 6), st.integers(0, 2**20))
def test_divergence_is_the_mean_over_pairs_of_heads(heads: int, keys: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2, heads, 3, keys, generator=generator, dtype=torch.float64).mul(2).softmax(-1)
    w = weights.numpy()
    pairs = [jensenshannon(w[:, a], w[:, b], axis=-1) ** 2 for a, b in combinations(range(heads), 2)]
    np.testing.assert_allclose(head_divergence(weights).numpy(), np.nan_to_num(np.mean(pairs, axis=0)), atol=1e-7)


# What is caught ----------------------------------------------------------------------------------------------------

VARIANTS: list[dict[str, Any]] = [
    {},
    {"model__position": "rope", "model__cross_position": "rotary"},
    {"model__position": "alibi", "model__causal_encoder": True},
    {"model__position": "t5", "model__extra_key_value": True},
    {"model__position": "shaw", "model__attention_scale": 1.0, "model__causal_mask": False},
    {"model__position": "cope", "model__padding_mask": False, "model__qk_norm": True},
    {"model__n_heads": 1, "model__randomised_positions": 64},
]


@pytest.mark.parametrize("options", VARIANTS, ids=lambda v: "+".join(map(str, v.values())) or "base")
def test_what_is_caught_is_what_the_fused_kernel_computes(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = evaluation(**options)
    fused: list[Tensor] = []
    attend = attention.attend

    def with_unit_values(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        unit = torch.eye(k.shape[-2]).expand(*k.shape[:2], -1, -1)  # so that the output is the weights
        fused.append(attend(q, k, unit, *rest))
        return attend(q, k, v, *rest)

    monkeypatch.setattr(attention, "attend", with_unit_values)
    batch = run.task.test[0].pairs.batch(np.arange(8))
    with torch.no_grad(), attention_caught(run.model) as caught:
        run.model(batch.source, decoder_inputs(batch.target))
    in_order = caught["encoder"] + [
        layer for pair in zip(caught["decoder"], caught["cross"], strict=True) for layer in pair
    ]
    assert len(fused) == len(in_order) == 6
    for expected, found in zip(fused, in_order, strict=True):
        assert len(found.calls) == 1
        torch.testing.assert_close(found.weights, expected, atol=1e-6, rtol=1e-5)


def test_weights_that_are_added_to_the_values_too_are_caught() -> None:
    run = evaluation(model__position="shaw", model__position_options={"values": True})
    batch = run.task.test[0].pairs.batch(np.arange(4))
    with torch.no_grad(), attention_caught(run.model) as caught:
        run.model(batch.source, decoder_inputs(batch.target))
    sums = caught["decoder"][1].weights.sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("options", VARIANTS[:5], ids=lambda v: "+".join(map(str, v.values())) or "base")
def test_catching_changes_no_output(options: dict[str, Any]) -> None:
    run = evaluation(**options)
    batch = run.task.test[0].pairs.batch(np.arange(8))
    inputs = decoder_inputs(batch.target)
    before = run.model(batch.source, inputs)
    with attention_caught(run.model) as caught:
        during = run.model(batch.source, inputs)
    assert torch.equal(before, during)
    calls = len(caught["cross"][0].calls)
    assert torch.equal(before, run.model(batch.source, inputs))
    assert len(caught["cross"][0].calls) == calls  # nothing is caught any more


def test_observers_are_taken_off_after_a_failure() -> None:
    run = evaluation()
    with pytest.raises(RuntimeError, match="on purpose"), attention_caught(run.model):
        raise RuntimeError("on purpose")
    assert all(getattr(module, "observer", None) is None for module in run.model.modules())


# Means over a test set ---------------------------------------------------------------------------------------------


def test_padding_counts_in_no_figure() -> None:
    run = evaluation(data__task="reverse")
    pairs = run.task.test[0].pairs.select(np.arange(20))
    assert len(set(pairs.source.lengths)) > 2
    layers = survey(run.model, run.task, pairs)
    entropies: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    relative, divergences, masses = [], [], []
    for i in range(20):  # one by one there is no padding
        batch = pairs.batch([i])
        with torch.no_grad(), attention_caught(run.model) as caught:
            run.model(batch.source, batch.target[:, :-1])
        for kind, found in caught.items():
            w = found[1].weights[0]  # (H, L, S)
            entropies[kind].append(-(w * (w + 1e-30).log()).sum(-1))
        w = caught["decoder"][1].weights[0]
        relative += [entropies["decoder"][-1][:, t] / math.log(t + 1) for t in range(1, w.shape[1])]
        w = caught["cross"][1].weights[0]
        divergences += [jensenshannon(w[a], w[b], axis=-1) ** 2 for a, b in combinations(range(4), 2)]
        n = batch.source.shape[1] - 2
        masses += [
            w[:, t, 1 + (n - 1 - t)] for t in range(n)
        ]  # symbol t is read off the one that stands t from the end
    for kind, values in entropies.items():
        torch.testing.assert_close(
            layers[kind][1].means()["entropy"].float(), torch.cat(values, dim=1).mean(dim=1), atol=1e-5, rtol=1e-4
        )
    found = layers["decoder"][1].means()["relative_entropy"].float()
    torch.testing.assert_close(found, torch.stack(relative).mean(dim=0), atol=1e-5, rtol=1e-4)
    cross = layers["cross"][1]
    assert cross.divergence / cross.queries == pytest.approx(np.mean(np.concatenate(divergences)), abs=1e-5)
    assert cross.copies == len(masses) == int((pairs.target.lengths - 2).sum())
    torch.testing.assert_close(
        cross.means()["aligned_mass"].float(), torch.stack(masses).mean(dim=0), atol=1e-5, rtol=1e-4
    )


def test_batches_change_no_figure() -> None:
    run = evaluation()
    pairs = run.task.test[0].pairs
    whole, cut = (survey(run.model, run.task, pairs, tokens) for tokens in (4096, 50))
    for kind, layers in whole.items():
        for a, b in zip(layers, cut[kind], strict=True):
            assert (a.queries, a.choices, a.copies) == (b.queries, b.choices, b.copies)
            for name, value in a.means().items():
                torch.testing.assert_close(value, b.means()[name], atol=1e-5, rtol=1e-4)


class Pointer(Seq2Seq):
    """Attends, at each step, to the source token of its own place + 1 with one head, and evenly with another."""

    class Attends(nn.Module):
        observer: Observer | None = None

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.attends = self.Attends()

    def attentions(self) -> dict[str, list[nn.Module]]:
        return {"cross": [self.attends]}

    def encode(self, source: Tensor) -> Memory:
        return Memory(source, self.token_mask(source), torch.arange(source.shape[1]))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        for t in range(target.shape[1]):  # step by step
            if self.attends.observer is not None:
                peak = F.one_hot(torch.tensor(min(t + 1, memory.mask.shape[1] - 1)), memory.mask.shape[1]) * 1e4
                scores = torch.stack([peak.float(), torch.zeros(len(peak))])[None, :, None].expand(
                    len(target), -1, -1, -1
                )
                self.attends.observer(scores, memory.mask[:, None, None].expand_as(scores))
        return torch.zeros(*target.shape, 12)


def test_a_model_that_points_at_what_it_copies_is_fully_aligned() -> None:
    run = evaluation(data__task="copy")
    measured = Attention().measure(Evaluation(Pointer(), run.task, run.recipe)).metrics
    lengths = run.task.test[0].pairs.source.lengths  # n + 2 keys for n symbols, copied by n queries
    even = sum((n - 2) / n for n in lengths) / sum(n - 2 for n in lengths)
    assert measured["aligned_mass_best"] == pytest.approx(1)
    assert measured["aligned_mass"] == measured["aligned_mass_last"] == pytest.approx((1 + even) / 2)
    uniform = sum((n - 1) * math.log(n) for n in lengths) / sum(n - 1 for n in lengths)
    assert measured["attention_entropy_cross"] == measured["attention_entropy"] == pytest.approx(uniform / 2)
    assert measured["attention_entropy_relative_cross"] == pytest.approx(0.5)
    # A point against n equal weights: H(m) - H(uniform) / 2, m being (1 + 1/n) / 2 once and 1 / 2n elsewhere.
    js = [
        -(1 + 1 / n) / 2 * math.log((1 + 1 / n) / 2) + (n - 1) / (2 * n) * math.log(2 * n) - math.log(n) / 2
        for n in lengths
    ]
    expected = sum((n - 1) * value for n, value in zip(lengths, js, strict=True)) / sum(n - 1 for n in lengths)
    assert measured["head_js_cross"] == pytest.approx(expected)
    assert measured["aligned_mass_best_untrained"] < 0.5
    assert "attention_entropy_encoder" not in measured


def test_figures_of_a_whole_model_and_its_control() -> None:
    run = evaluation()
    measured = Attention().measure(run)
    kinds = ("encoder", "decoder", "cross")
    wanted = {f"{name}_{kind}" for name in ("attention_entropy", "attention_entropy_relative") for kind in kinds}
    wanted |= {f"head_js_{kind}{end}" for kind in kinds for end in ("", "_untrained")}
    wanted |= {f"aligned_mass{which}{end}" for which in ("", "_last", "_best") for end in ("", "_untrained")}
    assert set(measured.metrics) == wanted | {"attention_entropy"}
    assert all(math.isfinite(value) for value in measured.metrics.values())
    assert measured.metrics["attention_entropy"] == pytest.approx(
        np.mean([measured.metrics[f"attention_entropy_{kind}"] for kind in kinds])
    )
    heads = measured.artifacts["attention_heads"]
    assert len(heads) == 3 * 2 * 4
    of_cross = [row["aligned_mass"] for row in heads if row["kind"] == "cross"]
    assert measured.metrics["aligned_mass_best"] == pytest.approx(max(of_cross))
    assert measured.metrics["aligned_mass_last"] == pytest.approx(np.mean(of_cross[4:]))
    assert measured.metrics["head_js_encoder"] != measured.metrics["head_js_encoder_untrained"]
    assert Attention().measure(run).metrics == measured.metrics


def test_one_head_has_no_other_to_differ_from() -> None:
    metrics = Attention().measure(evaluation(model__n_heads=1, data__task="sort")).metrics
    assert not [name for name in metrics if name.startswith(("head_js", "aligned"))]
    assert "attention_entropy_cross" in metrics


def test_models_without_attention_have_no_figures(scripted: Any) -> None:
    run = evaluation()
    assert Attention().measure(Evaluation(scripted(lambda source: source, 12), run.task, run.recipe)).metrics == {}
    assert Attention().measure(evaluation(model__architecture="fnn_mean")).metrics == {}


def test_maps_show_weights_with_their_tokens() -> None:
    run = evaluation(model__extra_key_value=True, model__encoder_layers=3)
    rows = Attention().measure(run).artifacts["attention_maps"]
    assert len({row["example"] for row in rows}) == 3
    assert [row["layer"] for row in rows if row["kind"] == "encoder"] == [0, 2] * 3  # the first and the last
    for row in rows:
        weights = np.array(row["weights"])
        assert weights.shape == (4, len(row["queries"]), len(row["keys"]))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=0.01)
        pairs = run.task.test[0].pairs.select([row["example"]])
        side = pairs.target if row["kind"] == "decoder" else pairs.source
        symbols = run.task.source_vocabulary.symbols
        named = [{BOS: "<bos>", EOS: "<eos>"}.get(t) or symbols[t - 4] for t in side[0].tolist()]
        assert row["keys"] == [*(named[:-1] if row["kind"] == "decoder" else named), "<extra>"]
        if row["kind"] == "decoder":
            assert (np.triu(weights[..., :-1], 1) == 0).all()


# Which source symbol a target symbol is a copy of --------------------------------------------------------------------

SYNTHETIC = [name for name in TASKS.names() if issubclass(TASKS[name], SyntheticTask)]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_aligned_symbols_are_equal(name: str) -> None:
    task = load_task(DataConfig(task=name, max_length=8, vocab_size=12, train_examples=10, test_examples=40))
    for test in task.test:
        for source, (answer,) in zip(test.pairs.source, test.references, strict=True):
            inside = source[(source != BOS) & (source != EOS) & (source != PAD)]
            places = task.alignment(len(inside), len(answer))
            if places is not None:
                assert inside[places].tolist() == list(answer)


def test_which_tasks_know_their_alignment() -> None:
    knowing = set()
    for name in SYNTHETIC:
        task = load_task(DataConfig(task=name, max_length=8, vocab_size=12, train_examples=10, test_examples=40))
        if task.alignment(4, 4) is not None:
            knowing.add(name)
    assert knowing >= {"copy", "copy-unique", "skip-copy", "duplicate", "noisy-copy", "reverse"}
    assert not knowing & {"sort", "parity", "addition"}
