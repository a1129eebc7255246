"""Beam search against every output there is, against a search without cache, batches and early end, and greedy."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Memory, Seq2Seq, build_model, greedy_decode
from transformer_ablate.core.beam import Hypothesis, beam_search
from transformer_ablate.errors import ConfigError
from transformer_ablate.registry import ARCHITECTURES
from transformer_ablate.tokens import BOS, EOS, N_SPECIALS, PAD

V = 14
A = N_SPECIALS
Ids = tuple[int, ...]


@dataclass
class Read:
    """State of a :class:`Table`: the sources and the target tokens so far."""

    source: Tensor
    target: Tensor

    def select(self, rows: Tensor) -> Read:
        return Read(self.source[rows], self.target[rows])


class Table(Seq2Seq):
    """A model whose next-token probabilities are a function of the source's and the prefix's ids."""

    def __init__(self, probabilities: Callable[[Ids, Ids], Sequence[float]], dtype: torch.dtype = torch.float64):
        super().__init__()
        self.probabilities, self.dtype = probabilities, dtype

    def encode(self, source: Tensor) -> Memory:
        return Memory(source[..., None], self.token_mask(source), torch.arange(source.shape[1]))

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        sources = [tuple(ids[ids != PAD].tolist()) for ids in memory.states[..., 0]]
        rows = [
            [self.probabilities(source, tuple(row[1 : t + 1])) for t in range(len(row))]
            for source, row in zip(sources, target.tolist(), strict=True)
        ]
        return torch.tensor(rows, dtype=torch.float64).log().to(self.dtype)

    def start(self, memory: Memory, capacity: int) -> Read:
        source = memory.states[..., 0]
        return Read(source, source.new_empty(len(source), 0))

    def step(self, tokens: Tensor, state: Read) -> Tensor:
        state.target = torch.cat([state.target, tokens], dim=1)
        return self.decode(state.target, self.encode(state.source))[:, -tokens.shape[1] :]


def random_table(seed: int, size: int, zeros: float = 0.0) -> Table:
    """Probabilities without pattern over ``size`` tokens, some of them 0."""

    def probabilities(source: Ids, prefix: Ids) -> list[float]:
        draw = random.Random(f"{seed}/{source}/{prefix}")
        weights = [draw.expovariate(1) ** 2 * (draw.random() >= zeros) for _ in range(size)]
        weights[draw.randrange(size)] += 0.1
        return [w / sum(weights) for w in weights]

    return Table(probabilities)


def golden_table(later: Callable[[Ids], float] = lambda prefix: 1.0) -> Table:
    """GOLDEN: p(EOS) = .6 and p(a) = .4 at first, p(EOS) = .99 after a; ``later`` gives it for longer prefixes."""

    def probabilities(source: Ids, prefix: Ids) -> list[float]:
        eos = {(): 0.6, (A,): 0.99}.get(prefix) or later(prefix)
        return [0.0, 0.0, eos, 0.0, 1 - eos]

    return Table(probabilities)


class Edited(nn.Module):
    """A model's output with its logits changed."""

    def __init__(self, output: nn.Module, edit: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.output, self.edit = output, edit

    def forward(self, x: Tensor) -> Tensor:
        return self.edit(self.output(x))


def transformer(seed: int, eos: float = 1.0, steps: float = 0.0, **options: Any) -> Seq2Seq:
    """A random Transformer that stops now and then; with ``steps`` its logits are multiples of it, many of them equal.

    Untied and post-norm, since a tied untrained one only repeats its last token; float64, so that rounding does not
    choose between tokens.
    """
    config = ModelConfig(d_model=16, n_heads=2, d_ff=32, tying="none", norm_placement="post", **options)
    model = build_model(config, V, V, seed).double().eval()

    def edit(logits: Tensor) -> Tensor:
        logits = logits.index_add(
            -1, torch.tensor([EOS, PAD]), logits.new_tensor([eos, -100.0]).expand_as(logits[..., :2])
        )
        return (logits / steps).round() * steps if steps else logits

    model.output = Edited(model.output, edit)  # type: ignore[arg-type]
    return model


def sources(lengths: Sequence[int], seed: int) -> Tensor:
    tokens = torch.randint(N_SPECIALS, V, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = PAD
    return tokens


@torch.inference_mode()
def naive_beam(model: Seq2Seq, source: Tensor, width: int, n_best: int, penalty: float, limit: int) -> list[Hypothesis]:
    """One unpadded sentence, whole prefixes through the whole model, always up to the limit."""
    beam, finished, capped = [((), 0.0)], [], []
    for n in range(1, limit + 1):
        logits = model(source.expand(len(beam), -1), torch.tensor([[BOS, *prefix] for prefix, _ in beam]))[:, -1]
        following = [
            ((*prefix, token), log_p + more)
            for (prefix, log_p), row in zip(beam, logits.log_softmax(-1).tolist(), strict=True)
            for token, more in enumerate(row)
            if more > -math.inf
        ]
        following.sort(key=lambda hypothesis: -hypothesis[1])
        for tokens, log_p in following[:width]:
            if tokens[-1] == EOS:
                finished.append(Hypothesis([*tokens[:-1]], log_p, log_p / n**penalty, False))
            elif n == limit:
                capped.append(Hypothesis([*tokens], log_p, log_p / n**penalty, True))
        looked_at = following[: 2 * width if width > 1 else 1]
        beam = [(tokens, log_p) for tokens, log_p in looked_at if tokens[-1] != EOS][:width]
        if not beam:
            break
    ranked = [sorted(group, key=lambda h: -h.score) for group in (finished, capped)]
    return [*ranked[0], *ranked[1]][:n_best]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [(h.tokens, h.capped) for h in found] == [(h.tokens, h.capped) for h in expected]
    for mine, other in zip(found, expected, strict=True):
        assert mine.log_probability == pytest.approx(other.log_probability, abs=1e-9)
        assert mine.score == pytest.approx(other.score, abs=1e-9)


def counted_steps(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of each step, filled in while the model decodes."""
    rows: list[int] = []
    step = model.step

    def counting(tokens: Tensor, state: Any) -> Tensor:
        rows.append(len(tokens))
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counting)
    return rows


def test_golden_a_longer_output_wins_under_a_length_penalty() -> None:
    model, source = golden_table(), torch.tensor([[A]])
    short, longer = beam_search(model, source, width=2, n_best=2)[0]
    assert (short.tokens, longer.tokens) == ([], [A])
    assert short.log_probability == short.score == pytest.approx(-0.510826, abs=5e-7)
    assert longer.log_probability == longer.score == pytest.approx(-0.926341, abs=5e-7)
    assert beam_search(model, source, width=2)[0] == [short]
    (best,) = beam_search(model, source, width=2, length_penalty=1.0)[0]
    assert (best.tokens, best.log_probability) == ([A], longer.log_probability)
    assert best.score == pytest.approx(-0.463171, abs=5e-7)
    assert beam_search(model, source, width=2, length_penalty=1.0, limit=torch.tensor([1]))[0] == [short]


@pytest.mark.parametrize(
    ("penalty", "limit", "steps", "best"), [(0.0, 12, 1, 0), (1.0, 10, 2, 1), (1.0, 11, 2, 1), (1.0, 12, 12, 11)]
)
def test_the_search_ends_when_the_best_that_is_left_cannot_win_and_not_before(
    penalty: float, limit: int, steps: int, best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # "a EOS" has -.463171 for its mean; after "a a" all is certain, and the mean of log .004 = -5.5215 over 11 tokens
    # is -.502, over 12 it is -.4601.
    model = golden_table(later=lambda prefix: float(len(prefix) == 11))
    rows = counted_steps(model, monkeypatch)
    ((found,),) = beam_search(model, torch.tensor([[A]]), 2, length_penalty=penalty, limit=torch.tensor([limit]))
    assert (found.tokens, found.capped) == ([A] * best, False)
    assert len(rows) == steps


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 3), st.sampled_from([0.0, 0.6, 1.0, 2.0]), st.sampled_from([0.0, 0.3]))
def test_a_beam_for_all_prefixes_finds_every_output_in_order(
    seed: int, limit: int, penalty: float, zeros: float
) -> None:
    size = N_SPECIALS + 1
    model, source = random_table(seed, size, zeros), (A, A)
    outputs = []
    for length in range(limit + 1):
        for tokens in itertools.product([t for t in range(size) if t != EOS], repeat=length):
            ids = tokens if length == limit else (*tokens, EOS)
            p = math.prod(model.probabilities(source, ids[:t])[ids[t]] for t in range(len(ids)))
            if p > 0:
                outputs.append(Hypothesis([*tokens], math.log(p), math.log(p) / len(ids) ** penalty, length == limit))
    outputs.sort(key=lambda h: (h.capped, -h.score))
    assert math.fsum(math.exp(h.log_probability) for h in outputs) == pytest.approx(1)
    for n_best in (1, 3, size**limit):
        (found,) = beam_search(model, torch.tensor([source]), size**limit, n_best, penalty, torch.tensor([limit]))
        assert_same(found, outputs[:n_best])


@settings(max_examples=60)
@given(st.data())
def test_batched_cached_and_ended_early_is_the_plain_search_on_tables(data: st.DataObject) -> None:
    size, width = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 8))
    n_best, penalty = data.draw(st.integers(1, width)), data.draw(st.sampled_from([0.0, 0.6, 1.0, 1.5]))
    limits = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    model = random_table(data.draw(st.integers(0, 10**6)), size, data.draw(st.sampled_from([0.0, 0.4])))
    source = sources([1 + i % 2 for i in range(len(limits))], 0)
    found = beam_search(model, source, width, n_best, penalty, torch.tensor(limits))
    for i, limit in enumerate(limits):
        assert_same(found[i], naive_beam(model, source[i, : 1 + i % 2], width, n_best, penalty, limit))
        assert len({(*h.tokens, h.capped) for h in found[i]}) == len(found[i])
        assert found[i] == sorted(found[i], key=lambda h: (h.capped, -h.score))


@settings(max_examples=20)
@given(st.data(), st.sampled_from(["sinusoidal", "rope", "none", "learned", "t5", "alibi", "shaw"]))
def test_batched_cached_and_ended_early_is_the_plain_search_on_transformers(data: st.DataObject, position: str) -> None:
    width, penalty = data.draw(st.integers(2, 5)), data.draw(st.sampled_from([0.0, 0.6, 1.0]))
    n_best, seed = data.draw(st.integers(1, width)), data.draw(st.integers(0, 50))
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    model, source = transformer(seed, data.draw(st.floats(0, 3)), position=position), sources(lengths, seed)
    limit = torch.tensor([n + 3 for n in lengths])
    found = beam_search(model, source, width, n_best, penalty, limit)
    for i, n in enumerate(lengths):
        assert_same(found[i], naive_beam(model, source[i, :n], width, n_best, penalty, n + 3))


@pytest.mark.parametrize("architecture", ARCHITECTURES.names())
def test_every_architecture_keeps_its_cache_through_the_reordering(architecture: str) -> None:
    config = ModelConfig(architecture, d_model=16, n_heads=2, d_ff=32, tying="none", norm_placement="post")
    model, source = build_model(config, V, V, seed=1).double().eval(), sources([3, 6, 1, 4], 2)
    found = beam_search(model, source, width=4, n_best=4, length_penalty=0.6, limit=torch.tensor([9, 6, 4, 8]))
    for i, (n, limit) in enumerate([(3, 9), (6, 6), (1, 4), (4, 8)]):
        assert_same(found[i], naive_beam(model, source[i, :n], 4, 4, 0.6, limit))


@settings(max_examples=25)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.integers(0, 50),
    st.floats(0, 3),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(["sinusoidal", "rope", "none", "learned"]),
)
def test_a_beam_of_one_is_greedy_decoding(
    lengths: list[int], seed: int, eos: float, steps: float, penalty: float, position: str
) -> None:
    model, source = transformer(seed, eos, steps, position=position), sources(lengths, seed)
    greedy = greedy_decode(model, source)
    found = beam_search(model, source, width=1, length_penalty=penalty)
    assert [h.tokens for (h,) in found] == greedy.sequences()
    assert [h.capped for (h,) in found] == greedy.capped.tolist()


def test_the_equal_logits_of_the_test_before_are_many() -> None:
    model, source = transformer(3, steps=2.0), sources([5, 5, 5], 3)
    logits = model(source, torch.full((3, 1), BOS))
    assert ((logits == logits.amax(-1, keepdim=True)).sum(-1) > 1).any()


@pytest.mark.parametrize("penalty", [0.0, 0.7])
def test_reported_log_probability_is_the_teacher_forced_one(penalty: float) -> None:
    lengths = [1, 5, 3, 7, 2, 4]
    model, source = transformer(1), sources(lengths, 1)
    found = beam_search(model, source, width=5, n_best=5, length_penalty=penalty)
    hypotheses = [(source[i, :n], h) for i, n in enumerate(lengths) for h in found[i]]
    assert len({h.capped for _, h in hypotheses}) == 2
    for sentence, h in hypotheses:
        ids = torch.tensor([BOS, *h.tokens, *([] if h.capped else [EOS])])
        log_p = model(sentence[None], ids[None, :-1])[0].log_softmax(-1).detach()
        expected = float(log_p.gather(1, ids[1:, None]).sum())
        assert h.log_probability == pytest.approx(expected, abs=1e-9)
        assert h.score == pytest.approx(expected / (len(ids) - 1) ** penalty, abs=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_an_output_does_not_depend_on_its_neighbours(penalty: float) -> None:
    lengths = [1, 7, 2, 5, 3]
    model, source = transformer(7), sources(lengths, 7)
    together = beam_search(model, source, width=4, n_best=3, length_penalty=penalty)
    backwards = beam_search(model, source.flip(0), width=4, n_best=3, length_penalty=penalty)
    for i, n in enumerate(lengths):
        (alone,) = beam_search(model, source[i : i + 1, :n], width=4, n_best=3, length_penalty=penalty)
        assert_same(together[i], alone)
        assert_same(backwards[-1 - i], alone)


def test_encoded_once_and_finished_sentences_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [1, 2, 3, 4, 5, 6, 7, 3, 2, 1, 5, 4]
    model, source = transformer(3, eos=2.0), sources(lengths, 3)
    rows, encoded, encode = counted_steps(model, monkeypatch), [], model.encode
    monkeypatch.setattr(model, "encode", lambda source: encoded.append(len(source)) or encode(source))
    found = beam_search(model, source, width=1)
    ends = [len(h.tokens) + (not h.capped) for (h,) in found]
    assert len(set(ends)) > 3  # otherwise this shows nothing
    assert rows == [sum(end > t for end in ends) for t in range(max(ends))]
    rows.clear()
    found = beam_search(model, source, width=3)
    assert encoded == [len(lengths)] * 2
    assert rows[0] == len(lengths)
    assert rows[1:] == sorted((n - n % 3 for n in rows[1:]), reverse=True)
    assert len(set(rows)) > 3


def test_a_model_that_never_stops_meets_the_limit_of_each_sentence() -> None:
    lengths = [1, 4, 7, 2]
    model = transformer(0, eos=-1e9)
    found = beam_search(model, sources(lengths, 0), width=3, n_best=3)
    assert [[len(h.tokens) for h in hypotheses] for hypotheses in found] == [[2 * n + 10] * 3 for n in lengths]
    assert all(h.capped for hypotheses in found for h in hypotheses)
    found = beam_search(model, sources([3, 3, 3], 0), width=2, limit=torch.tensor([2, 7, 1]))
    assert [[len(h.tokens) for h in hypotheses] for hypotheses in found] == [[2], [7], [1]]


def test_capped_outputs_stand_behind_the_finished_ones() -> None:
    # At the limit of 1: p(EOS) = .3 is an output, p(a) = .7 only the beginning of some.
    found = beam_search(
        Table(lambda source, prefix: [0, 0, 0.3, 0, 0.7]), torch.tensor([[A]]), 2, 2, limit=torch.tensor([1])
    )
    assert [(h.tokens, h.capped) for h in found[0]] == [([], False), ([A], True)]


def test_a_padding_token_that_the_model_chose_is_a_wrong_token() -> None:
    script = [A, PAD, BOS, EOS]
    model = Table(lambda source, prefix: [0.96 if t == script[len(prefix)] else 0.01 for t in range(5)])
    (best,) = beam_search(model, torch.tensor([[A]]), width=3)[0]
    assert best.tokens == [A, PAD, BOS]
    assert greedy_decode(model, torch.tensor([[A]])).sequences() == [best.tokens]


def test_log_probabilities_are_summed_in_float32_at_least() -> None:
    p = [0.05, 0.11, 0.23, 0.27, 0.34]
    coarse = torch.tensor(p, dtype=torch.float64).log().bfloat16()
    expected = coarse.double().log_softmax(-1)
    model = Table(lambda source, prefix: p, torch.bfloat16)
    found = beam_search(model, torch.tensor([[A]]), 4, 4, limit=torch.tensor([4]))
    for h in found[0]:
        ids = [*h.tokens, *([] if h.capped else [EOS])]
        assert h.log_probability == pytest.approx(float(expected[ids].sum()), abs=1e-6)


def test_a_diverged_model_has_outputs_too() -> None:
    model = Table(lambda source, prefix: [math.nan] * 5)
    found = beam_search(model, torch.tensor([[A], [A]]), width=3, n_best=2, limit=torch.tensor([4, 2]))
    assert [len(hypotheses) for hypotheses in found] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"width": 0}, "beam.width"),
        ({"n_best": 0}, "beam.n_best"),
        ({"width": 3, "n_best": 4}, "beam.n_best"),
        ({"length_penalty": -0.1}, "beam.length_penalty"),
        ({"length_penalty": math.nan}, "beam.length_penalty"),
        ({"length_penalty": math.inf}, "beam.length_penalty"),
        ({"limit": torch.tensor([3, 0])}, "beam.limit"),
    ],
)
def test_arguments_out_of_range_are_named_in_one_line(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as error:
        beam_search(golden_table(), torch.tensor([[A], [A]]), **arguments)
    assert error.value.field == field
    assert "\n" not in str(error.value)


def test_decoding_keeps_no_gradients_and_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    model = transformer(0)
    beam_search(model, sources([3, 5], 0))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())
