"""Greedy decoding against a loop without cache and without batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Decoded, Seq2Seq, build_model, greedy_decode
from transformer_ablate.tokens import BOS, EOS, N_SPECIALS, PAD

V = 14


class Biased(nn.Module):
    """The model's output with a constant added to the logits of some tokens."""

    def __init__(self, output: nn.Module, bias: dict[int, float]) -> None:
        super().__init__()
        self.output, self.bias = output, bias

    def forward(self, x: Tensor) -> Tensor:
        logits = self.output(x)
        for token, value in self.bias.items():
            logits[..., token] += value
        return logits


class Scripted(nn.Module):
    """In place of the output: one token after another, whatever the states."""

    def __init__(self, script: list[int]) -> None:
        super().__init__()
        self.script = iter(script)

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.zeros(*x.shape[:2], V)
        logits[..., next(self.script)] = 1
        return logits


def model_with(bias: dict[int, float], seed: int = 0, **options: Any) -> Seq2Seq:
    """A model that stops now and then: untrained ones would go on for ever or stop at once."""
    # Untied and post-norm, since a tied untrained model only repeats its last token.
    config = ModelConfig(d_model=16, n_heads=2, d_ff=32, tying="none", norm_placement="post", **options)
    # In float64 no two tokens come so close that rounding would choose between them.
    model = build_model(config, V, V, seed).double().eval()
    model.output = Biased(model.output, bias)  # type: ignore[arg-type]
    return model


def sources(lengths: list[int], seed: int) -> Tensor:
    tokens = torch.randint(N_SPECIALS, V, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = PAD
    return tokens


@torch.inference_mode()
def naive_greedy(model: Seq2Seq, source: Tensor, limit: int) -> tuple[list[int], bool]:
    """One unpadded sentence: the whole prefix through the whole model for every token."""
    prefix = [BOS]
    while len(prefix) <= limit:
        token = int(model(source[None], torch.tensor([prefix]))[0, -1].argmax())
        if token == EOS:
            return prefix[1:], False
        prefix.append(token)
    return prefix[1:], True


@settings(max_examples=30)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=8),
    st.integers(0, 50),
    st.floats(0, 3),
    st.sampled_from(["sinusoidal", "rope", "none", "learned"]),
)
def test_batched_and_cached_is_one_by_one_and_uncached(
    lengths: list[int], seed: int, eos: float, position: str
) -> None:
    model = model_with({EOS: eos, PAD: -100}, seed, position=position)
    source = sources(lengths, seed)
    decoded = greedy_decode(model, source)
    for i, length in enumerate(lengths):
        expected = naive_greedy(model, source[i, :length], limit=2 * length + 10)
        assert (decoded.sequences()[i], bool(decoded.capped[i])) == expected


def test_finished_sentences_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [1, 2, 3, 4, 5, 6, 7, 3, 2, 1, 5, 4, 3, 2, 6, 6]
    model, source = model_with({EOS: 1.0, PAD: -100}, seed=3), sources(lengths, 3)
    rows, step = [], model.step

    def counted(tokens: Tensor, state: Any) -> Tensor:
        rows.append(len(tokens))
        return step(tokens, state)

    monkeypatch.setattr(model, "step", counted)
    decoded = greedy_decode(model, source)
    ends = sorted(len(s) + (not c) for s, c in zip(decoded.sequences(), decoded.capped.tolist(), strict=True))
    assert len(set(ends)) > 3  # otherwise this shows nothing
    assert len(rows) == ends[-1]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] == len(lengths)
    assert len(set(rows)) > 2
    for t, n in enumerate(rows):
        still_going = sum(end > t for end in ends)
        assert still_going <= n
        assert still_going > 0.75 * n or n == rows[0] == still_going


def test_a_model_that_never_stops_meets_the_limit_of_each_sentence() -> None:
    lengths = [1, 4, 7, 2, 12]
    decoded = greedy_decode(model_with({EOS: -1e9, PAD: -1e9}), sources(lengths, 0))
    assert decoded.capped.all()
    assert [len(s) for s in decoded.sequences()] == [2 * n + 10 for n in lengths]


def test_a_model_that_stops_at_once_is_not_capped() -> None:
    decoded = greedy_decode(model_with({EOS: 1e9}), sources([3, 5], 0))
    assert not decoded.capped.any()
    assert decoded.sequences() == [[], []]
    assert decoded.tokens[:, 0].tolist() == [EOS, EOS]


def test_given_limits_belong_to_sentences() -> None:
    decoded = greedy_decode(model_with({EOS: -1e9, PAD: -1e9}), sources([3, 3, 3], 0), limit=torch.tensor([2, 7, 1]))
    assert [len(s) for s in decoded.sequences()] == [2, 7, 1]
    assert decoded.capped.all()


@pytest.mark.parametrize(("script", "capped"), [([5, 6, EOS], False), ([5, 6, 7], True)])
def test_eos_at_the_limit_counts_as_an_end(script: list[int], capped: bool) -> None:
    model = model_with({})
    model.output = Scripted(script)
    decoded = greedy_decode(model, sources([3], 0), limit=torch.tensor([3]))
    assert decoded.capped.tolist() == [capped]
    assert decoded.sequences() == [[t for t in script if t != EOS]]


@pytest.mark.parametrize("script", [[5, PAD, 6, EOS], [5, 6, PAD, EOS], [PAD, 5, 6, EOS], [5, 6, PAD, PAD]])
def test_a_padding_token_that_the_model_chose_is_a_wrong_token(script: list[int]) -> None:
    model = model_with({})
    model.output = Scripted(script)
    decoded = greedy_decode(model, sources([3], 0), limit=torch.tensor([4]))
    assert decoded.sequences()[0] != [5, 6]


def test_decoding_keeps_no_gradients_and_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    decoded = greedy_decode(model_with({EOS: 1.0}), sources([3, 5], 0))
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(decoded, Decoded)
    assert not decoded.tokens.requires_grad
