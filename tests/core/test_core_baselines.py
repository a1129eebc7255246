"""What must hold for every baseline, as for every Transformer."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Memory, Seq2Seq, build_model, greedy_decode
from transformer_ablate.core.baselines.readers import READERS
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import BOS, EOS, PAD
from transformer_ablate.training.losses import cross_entropy

V = 20
ARCHITECTURES: list[tuple[str, dict[str, Any]]] = [
    ("fnn_mean", {}),
    ("fnn_concat", {"longest": 40}),
    ("rnn_synchronous", {}),
    ("convs2s", {"kernel": 3}),
    ("convs2s", {"kernel": 4}),
    ("convs2s", {"kernel": 1}),
    ("conv_last", {"kernel": 3}),
    *(
        (cell, {"reader": reader, "bidirectional": both})
        for cell in ("gru", "lstm")
        for reader in READERS
        for both in (False, True)
    ),
]
VARIANTS = {
    "-".join([name, *map(str, options.values())]): ModelConfig(
        architecture=name,
        architecture_options=options,
        d_model=16,
        matched=False,
        encoder_layers=2,
        decoder_layers=3,
        tying="none",
    )
    for name, options in ARCHITECTURES
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS.keys())


def model_of(config: ModelConfig, seed: int = 0) -> Seq2Seq:
    """A model in evaluation mode, its biases off their initial values, its logits spread as those of a trained one."""
    model = build_model(config, V, V, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn(p.shape, generator=generator))
        model.output.weight *= 2  # type: ignore[union-attr, operator]
    return model.eval()


def sentences(lengths: list[int], seed: int = 0, framed: bool = True) -> Tensor:
    """Random sentences of these lengths in tokens, padded; ``framed`` ones begin with BOS and end with EOS."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, V, (len(lengths), max(lengths)), generator=generator)
    for row, length in zip(tokens, lengths, strict=True):
        row[length:] = PAD
        if framed:
            row[0], row[length - 1] = BOS, EOS
    return tokens


def target_prefix(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.cat((torch.full((rows, 1), BOS), sentences([length - 1] * rows, seed, framed=False)), dim=1)


@every_variant
def test_cached_decoding_is_the_full_pass(config: ModelConfig) -> None:
    model = model_of(config)
    source, target = sentences([9, 5, 12]), target_prefix(3, 40)
    with torch.inference_mode():
        memory = model.encode(source)
        full = model.decode(target, memory)
        state = model.start(memory, capacity=40)
        steps = [model.step(target[:, :7], state)]
        steps += [model.step(target[:, t : t + 1], state) for t in range(7, 40)]
        # What a prefix gives must not hang on what is to come: the last place sees nothing behind it.
        prefixes = [model(source, target[:, :t])[:, -1] for t in (1, 2, 17)]
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.stack(prefixes, 1), full[:, [0, 1, 16]], atol=1e-4, rtol=0)
    assert full.std() > 0.1
    assert full.std(dim=1).mean() > 0.01  # the target counts


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(VARIANTS)),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    st.integers(0, 100),
)
def test_a_target_may_be_cut_into_any_steps(name: str, lengths: list[int], cuts: list[int], seed: int) -> None:
    model = model_of(VARIANTS[name], seed).double()
    source, target = sentences(lengths, seed, framed=False), target_prefix(len(lengths), sum(cuts), seed)
    with torch.inference_mode():
        memory = model.encode(source)
        state = model.start(memory, capacity=sum(cuts))
        chunks = [model.step(part, state) for part in target.split(cuts, dim=1)]
        torch.testing.assert_close(torch.cat(chunks, 1), model.decode(target, memory), atol=1e-10, rtol=0)


@every_variant
def test_the_source_reaches_every_logit(config: ModelConfig) -> None:
    model = model_of(config)
    target = target_prefix(1, 12)
    with torch.inference_mode():
        difference = model(sentences([9], seed=2), target) - model(sentences([9], seed=3), target)
    at = 1 if config.architecture == "rnn_synchronous" else 0  # at 0 both read no more than their first symbol
    assert (difference.abs().amax(dim=-1) > 1e-4)[:, at:].all()


@every_variant
def test_a_later_token_changes_no_earlier_logit(config: ModelConfig) -> None:
    model = model_of(config)
    source, target = sentences([9, 5]), target_prefix(2, 12)
    with torch.inference_mode():
        before = model(source, target)
        for t in (1, 6, 11):
            changed = target.clone()
            changed[:, t] = 4 + (changed[:, t] - 3) % (V - 4)
            after = model(source, changed)
            assert torch.equal(after[:, :t], before[:, :t])
            assert not torch.allclose(after[:, t], before[:, t])


@every_variant
def test_a_later_token_changes_no_earlier_logit_under_dropout(config: ModelConfig) -> None:
    model = model_of(replace(config, dropout=0.3)).train()
    source, target = sentences([9, 5]), target_prefix(2, 12)
    logits = []
    for last in (5, 6):
        target[:, 8] = last
        torch.manual_seed(0)
        logits.append(model(source, target))
    assert torch.equal(logits[0][:, :8], logits[1][:, :8])
    assert not torch.allclose(logits[0][:, 8:], logits[1][:, 8:])
    torch.manual_seed(1)
    assert not torch.allclose(model(source, target), logits[1])


@every_variant
def test_outputs_do_not_depend_on_batch_mates(config: ModelConfig) -> None:
    model = model_of(config)
    lengths, target_lengths = [3, 11, 7, 5, 8, 4, 12, 6], [5, 3, 9, 12, 2, 7, 4, 10]
    source, target = sentences(lengths), sentences(target_lengths, seed=1)
    with torch.inference_mode():
        together = model(source, target)
        for i, (length, target_length) in enumerate(zip(lengths, target_lengths, strict=True)):
            alone = model(source[i : i + 1, :length], target[i : i + 1, :target_length])
            torch.testing.assert_close(alone[0], together[i, :target_length], atol=1e-5, rtol=0)


@every_variant
def test_batched_greedy_decoding_is_one_by_one_and_uncached(config: ModelConfig) -> None:
    model = model_of(config).double()  # so that rounding decides about no token
    lengths = [3, 6, 1, 5]
    source, limit = sentences(lengths, framed=False), torch.tensor([8, 9, 5, 3])
    decoded = greedy_decode(model, source, limit)
    for i, length in enumerate(lengths):
        prefix = [BOS]
        with torch.inference_mode():
            while len(prefix) <= limit[i] and prefix[-1] != EOS:
                prefix.append(int(model(source[i : i + 1, :length], torch.tensor([prefix]))[0, -1].argmax()))
        assert decoded.sequences()[i] == [t for t in prefix[1:] if t != EOS]
        assert bool(decoded.capped[i]) == (prefix[-1] != EOS)


@every_variant
def test_selected_rows_go_on_as_they_would_have(config: ModelConfig) -> None:
    model = model_of(config)
    source, target = sentences([9, 5, 12, 4]), target_prefix(4, 12)
    repeated, masked = torch.tensor([2, 0, 2, 3, 3]), torch.tensor([True, False, True, True])
    with torch.inference_mode():
        memory = model.encode(source)
        full = model.decode(target, memory)
        for rows in (repeated, masked):
            state = model.start(memory, capacity=12)
            model.step(target[:, :5], state)
            chosen = state.select(rows)
            model.step(target[:, 5:6] * 0 + 7, state)  # the original goes another way, and must not be seen
            found = torch.cat([model.step(target[rows, t : t + 1], chosen) for t in range(5, 12)], dim=1)
            torch.testing.assert_close(found, full[rows, 5:], atol=1e-5, rtol=0)
            torch.testing.assert_close(model.decode(target[rows], memory.select(rows)), full[rows], atol=1e-5, rtol=0)


@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
@every_variant
def test_loss_and_all_gradients_are_finite_even_beside_an_empty_source(config: ModelConfig, autocast: bool) -> None:
    model = build_model(config, V, V, seed=0).train()
    source, target = sentences([9, 5, 3, 9]), sentences([4, 10, 7, 6], seed=1)
    source[3] = PAD
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = model(source, target[:, :-1])
        loss = cross_entropy(logits, target[:, 1:])
    assert logits.dtype == (torch.bfloat16 if autocast else torch.float32)
    assert logits.isfinite().all()
    assert 0.5 * math.log(V) < loss.item() < 3 * math.log(V)
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        if p.dim() >= 2:
            assert p.grad.abs().max() > 0, name
    with torch.inference_mode():
        model.eval()
        torch.testing.assert_close(model(source[:3], target[:3]), model(source, target)[:3], atol=1e-5, rtol=0)


@every_variant
def test_a_saved_model_gives_the_same_logits(config: ModelConfig) -> None:
    config = replace(config, matched=True, d_model=24, tying="all", dropout=0.1)
    model = build_model(config, V, V, seed=3).eval()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = build_model(config, V, V).eval()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    source, target = sentences([9, 5]), target_prefix(2, 6)
    with torch.inference_mode():
        assert torch.equal(loaded(source, target), model(source, target))


@every_variant
def test_initial_values_come_from_the_seed_alone(config: ModelConfig) -> None:
    before = torch.get_rng_state()
    first, again, other = (build_model(config, V, V, seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    matrices = [name for name, value in first.items() if value.dim() >= 2 and not name.endswith("slots.bias")]
    assert not any(torch.equal(first[name], other[name]) for name in matrices)
    assert all(value.isfinite().all() for value in first.values())


@pytest.mark.parametrize("tying", ["none", "decoder", "encoder-decoder", "all"])
@pytest.mark.parametrize("architecture", ["fnn_mean", "gru", "convs2s"])
def test_tied_matrices_are_one(architecture: str, tying: str) -> None:
    model = build_model(ModelConfig(architecture=architecture, tying=tying, logit_scale="rsqrt_d"), V, V, seed=0)
    target, source, output = model.target_embedding, model.source_embedding, model.output
    assert (source is target) == (tying in ("encoder-decoder", "all"))
    assert (output.weight is target.weight) == (tying in ("decoder", "all"))  # type: ignore[union-attr]
    assert output.scale == pytest.approx(model.width**-0.5)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("encoder_layers", [1, 2, 4])
def test_decoder_layers_start_from_the_encoder_layers_at_their_height(encoder_layers: int) -> None:
    config = replace(VARIANTS["gru-start-False"], encoder_layers=encoder_layers, decoder_layers=3)
    model = model_of(config)
    source = sentences([9, 5])
    _, last = model.encoder.read(model.source_embedding(source), source != PAD)  # type: ignore[union-attr, operator]
    expected = {1: [0, 0, 0], 2: [0, 0, 1], 4: [1, 2, 3]}[encoder_layers]
    initial = model.encode(source).initial[0]  # type: ignore[attr-defined]
    assert torch.equal(initial, last[0][expected])


@pytest.mark.parametrize(
    ("architecture", "options", "field", "allowed"),
    [
        ("gru", {"reader": "aditive"}, "reader", "did you mean 'additive'?"),
        ("lstm", {"bidirectional": "yes"}, "bidirectional", "true or false"),
        ("convs2s", {"kernel": 0}, "kernel", "an integer at least 1"),
        ("conv_last", {"kernel": 2.5}, "kernel", "an integer at least 1"),
        ("fnn_concat", {"longest": True}, "longest", "an integer at least 1"),
    ],
)
def test_a_bad_option_is_one_line(architecture: str, options: dict[str, Any], field: str, allowed: str) -> None:
    config = ModelConfig(architecture=architecture, architecture_options=options)
    with pytest.raises(ConfigError) as error:
        build_model(config, V, V)
    assert str(error.value).startswith(f"model.architecture_options.{field}: got {options[field]!r}")
    assert allowed in str(error.value)


def test_slots_end_with_an_error_that_says_what_to_do() -> None:
    options = {"longest": 6}
    model = model_of(replace(VARIANTS["fnn_concat-40"], architecture_options=options))
    memory = model.encode(sentences([6]))
    state = model.start(memory, capacity=100)
    model.step(target_prefix(1, 6), state)
    message = r"model\.architecture_options\.longest: got 6, allowed: at least 7 for a sequence of 7 tokens; raise it"
    for too_much in (
        lambda: model.encode(sentences([7])),
        lambda: model.decode(target_prefix(1, 7), memory),
        lambda: model.step(torch.tensor([[5]]), state),
    ):
        with pytest.raises(ConfigError, match=message):
            too_much()


@pytest.mark.parametrize("architecture", ["convs2s", "conv_last"])
@pytest.mark.parametrize("position", ["rope", "t5", "shaw", "alibi"])
def test_convolutions_refuse_positions_that_work_inside_attention(architecture: str, position: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.position: got '{position}'.*{architecture}.*sinusoidal"):
        build_model(ModelConfig(architecture=architecture, position=position), V, V)


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned"])
def test_convolutions_take_positions_that_add_to_embeddings(position: str) -> None:
    for architecture in ("convs2s", "conv_last"):
        config = ModelConfig(architecture=architecture, position=position)
        if position == "learned":
            config = replace(config, position_options={"rows": 8})
        model = model_of(config)
        memory = model.encode(sentences([8]))
        assert isinstance(memory, Memory)
        if position == "learned":
            with pytest.raises(ConfigError, match="rows"):
                model.encode(sentences([9]))
