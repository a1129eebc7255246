"""What must hold for every variant of the model, whatever positions, norms and tying it has."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor

from tests.core.encodings import ENCODINGS, V, config_of, model_of, sentences
from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model, greedy_decode
from transformer_ablate.core.attention import attend_naive
from transformer_ablate.registry import CROSS_POSITIONS, NORM_PLACEMENTS
from transformer_ablate.tokens import BOS
from transformer_ablate.training.losses import cross_entropy

LONGEST = 40
# Door (b) of this one moves with the length: see the test of its own.
NOT_CACHED_AS_FULL = ("rope-dynamic_ntk",)
TYINGS = ("none", "decoder", "encoder-decoder", "all")


# Cross-attention's encodings take turns, so that each meets every placement and every tying. The whole product takes
# minutes and is marked slow; in every run tying takes turns as well, and each encoding still meets each placement and
# each tying, each placement each tying, and both of these each encoding of cross-attention.
_CELLS = itertools.product(enumerate(ENCODINGS), enumerate(NORM_PLACEMENTS.names()), enumerate(TYINGS))
VARIANTS: dict[str, ModelConfig] = {}
IN_TURNS: dict[str, ModelConfig] = {}
for (_i, _encoding), (_j, _placement), (_k, _tying) in _CELLS:
    _crosses = CROSS_POSITIONS.names()
    _cross = _crosses[(_i + _j + _k) % len(_crosses)]
    _name = f"{_encoding}-{_cross}-{_placement}-{_tying}"
    VARIANTS[_name] = config_of(_encoding, cross_position=_cross, norm_placement=_placement, tying=_tying)
    if _k == (_i + _j + _i // len(TYINGS)) % len(TYINGS):
        IN_TURNS[_name] = VARIANTS[_name]


def _parameters(names: Iterable[str]) -> list[ParameterSet]:
    return [pytest.param(VARIANTS[n], id=n, marks=() if n in IN_TURNS else pytest.mark.slow) for n in names]


every_variant = pytest.mark.parametrize("config", _parameters(VARIANTS))
every_cached_variant = pytest.mark.parametrize(
    "config", _parameters(name for name in VARIANTS if not name.startswith(NOT_CACHED_AS_FULL))
)


def test_variants_in_turns_meet_in_pairs() -> None:
    chosen = IN_TURNS.values()
    for one, other, pairs in (
        (lambda c: (c.position, *c.position_options.items()), lambda c: c.norm_placement, len(ENCODINGS) * 4),
        (lambda c: (c.position, *c.position_options.items()), lambda c: c.tying, len(ENCODINGS) * 4),
        (lambda c: c.norm_placement, lambda c: c.tying, 16),
        (lambda c: c.norm_placement, lambda c: c.cross_position, 16),
        (lambda c: c.tying, lambda c: c.cross_position, 16),
    ):
        assert len({(one(c), other(c)) for c in chosen}) == pairs


def target_prefix(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.cat((torch.full((rows, 1), BOS), sentences([length - 1] * rows, seed, framed=False)), dim=1)


@every_cached_variant
def test_cached_decoding_is_the_full_pass(config: ModelConfig) -> None:
    model = model_of(config)
    source, target = sentences([9, 5, 12]), target_prefix(3, LONGEST)
    with torch.inference_mode():
        memory = model.encode(source)
        full = model.decode(target, memory)
        state = model.start(memory, capacity=LONGEST)
        steps = [model.step(target[:, :7], state)]
        steps += [model.step(target[:, t : t + 1], state) for t in range(7, LONGEST)]
        # A prompt of several tokens behind others needs a mask that is neither the triangle nor nothing.
        state = model.start(memory, capacity=LONGEST)
        chunks = [model.step(part, state) for part in target.split((3, 10, 1, 26), dim=1)]
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat(chunks, 1), full, atol=1e-4, rtol=0)
    assert full.std() > 0.1


def test_a_cached_step_of_dynamic_ntk_is_the_full_pass_that_ends_there() -> None:
    # With every token the base moves and the rotation of all keys with it. One layer deep that is all that changes; in
    # deeper ones the states below were made under earlier bases, and would have to be made anew.
    model = model_of(config_of("rope-dynamic_ntk", decoder_layers=1))
    source, target = sentences([9, 5, 12]), target_prefix(3, LONGEST)
    with torch.inference_mode():
        memory = model.encode(source)
        state = model.start(memory, capacity=LONGEST)
        for t in range(LONGEST):
            step = model.step(target[:, t : t + 1], state)[:, 0]
            truncated = model.decode(target[:, : t + 1], memory)[:, -1]
            torch.testing.assert_close(step, truncated, atol=1e-4, rtol=0)
        full, truncated = model.decode(target, memory), model.decode(target[:, :21], memory)
    assert (full[:, 20] - truncated[:, 20]).abs().max() > 1e-3


def test_dynamic_ntk_within_the_trained_length_is_cached_as_any_other() -> None:
    long = {"scaling": "dynamic_ntk", "trained_length": LONGEST}
    test_cached_decoding_is_the_full_pass(config_of("rope", position_options=long))


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


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_later_token_changes_no_earlier_logit_under_dropout(encoding: str) -> None:
    model = model_of(config_of(encoding, dropout=0.3, attention_dropout=0.3)).train()
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


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_decoded_text_does_not_depend_on_batch_mates(encoding: str) -> None:
    model = model_of(config_of(encoding)).double()  # so that rounding decides about no token
    lengths = [3, 11, 7, 5]
    source = sentences(lengths)
    decoded = greedy_decode(model, source)
    for i, length in enumerate(lengths):
        by_itself = greedy_decode(model, source[i : i + 1, :length])
        assert by_itself.sequences()[0] == decoded.sequences()[i]
        assert bool(by_itself.capped[0]) == bool(decoded.capped[i])


@pytest.mark.parametrize("variants", [IN_TURNS, pytest.param(VARIANTS, marks=pytest.mark.slow)], ids=["turns", "all"])
def test_saved_and_loaded_in_a_fresh_process_every_variant_has_the_same_loss(
    variants: dict[str, ModelConfig], tmp_path: Path
) -> None:
    source, target = sentences([9, 5, 3]), sentences([4, 10, 7], seed=1)
    expected = {}
    for name, config in variants.items():
        model = model_of(config)
        with torch.inference_mode():
            expected[name] = cross_entropy(model(source, target[:, :-1]), target[:, 1:]).item()
        saved = {"config": dataclasses.asdict(config), "state": model.state_dict(), "source": source, "target": target}
        torch.save(saved, tmp_path / f"{name}.pt")
    code = """
        import json, sys, torch
        from pathlib import Path
        from transformer_ablate.config import ModelConfig
        from transformer_ablate.core import build_model
        from transformer_ablate.training.losses import cross_entropy
        losses = {}
        for path in Path(sys.argv[1]).glob("*.pt"):
            saved = torch.load(path, weights_only=True)
            model = build_model(ModelConfig(**saved["config"]), 20, 20, seed=99).eval()
            model.load_state_dict(saved["state"], strict=True)
            with torch.inference_mode():
                logits = model(saved["source"], saved["target"][:, :-1])
                losses[path.stem] = cross_entropy(logits, saved["target"][:, 1:]).item()
        print(json.dumps(losses))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found == expected


@every_variant
@pytest.mark.parametrize("autocast", [False, True], ids=["fp32", "bf16"])
def test_loss_and_all_gradients_are_finite(config: ModelConfig, autocast: bool) -> None:
    model = build_model(config, V, V, seed=0).train()
    source, target = sentences([9, 5, 3]), sentences([4, 10, 7], seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = model(source, target[:, :-1])
        loss = cross_entropy(logits, target[:, 1:], label_smoothing=0.1)
    assert logits.dtype == (torch.bfloat16 if autocast else torch.float32)
    assert loss.dtype == torch.float32
    assert 0.5 * math.log(V) < loss.item() < 4 * math.log(V)
    loss.backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
        # Softmax does not see a constant added to all keys, so only the keys' biases may have none.
        if p.dim() == 2 and ".position." not in name:
            assert p.grad.abs().max() > 0, name


# A twin in plain formulas ----------------------------------------------------------------------------------------


def naive_positions(length: int, d_model: int) -> Tensor:
    def channel(p: int, c: int) -> float:
        angle = p / 10_000 ** (2 * (c // 2) / d_model)
        return math.cos(angle) if c % 2 else math.sin(angle)

    return torch.tensor([[channel(p, c) for c in range(d_model)] for p in range(length)], dtype=torch.float64)


def naive_rotation(x: Tensor) -> Tensor:
    """(H, L, d_head): the vector at position p, seen as d_head/2 complex numbers, times exp(i p theta)."""
    H, L, d = x.shape
    numbers = torch.view_as_complex(x.reshape(H, L, d // 2, 2).contiguous())
    theta = torch.tensor([10_000 ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float64)
    angles = torch.arange(L, dtype=torch.float64)[:, None] * theta
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).reshape(H, L, d)


class NaiveTwin:
    """The model of one sentence without padding, from the parameters by name and the papers' formulas."""

    def __init__(self, model: Seq2Seq, config: ModelConfig) -> None:
        self.p = {n: v.detach() for n, v in model.named_parameters(remove_duplicate=False)}
        self.c = config

    def linear(self, name: str, x: Tensor, part: slice = slice(None)) -> Tensor:
        return x @ self.p[f"{name}.weight"][part].T + self.p[f"{name}.bias"][part]

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def heads(self, x: Tensor) -> Tensor:
        return torch.stack(x.split(self.c.head_width, dim=-1))

    def attention(self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, rotate: bool) -> Tensor:
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        if rotate:
            q, k = naive_rotation(q), naive_rotation(k)
        return torch.cat(list(attend_naive(q[None], k[None], v[None], is_causal=causal)[0]), dim=-1)

    def self_attention(self, name: str, x: Tensor, causal: bool) -> Tensor:
        d = self.c.d_model
        q, k, v = (self.linear(f"{name}.qkv", x, slice(i * d, (i + 1) * d)) for i in range(3))
        return self.linear(f"{name}.out", self.attention(q, k, v, causal=causal, rotate=self.c.position == "rope"))

    def cross_attention(self, name: str, x: Tensor, memory: Tensor) -> Tensor:
        d = self.c.d_model
        q = self.linear(f"{name}.q", x)
        k, v = (self.linear(f"{name}.kv", memory, slice(i * d, (i + 1) * d)) for i in range(2))
        rotate = self.c.cross_position == "rotary"
        return self.linear(f"{name}.out", self.attention(q, k, v, causal=False, rotate=rotate))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.down", self.linear(f"{name}.up", x).clamp_min(0))

    def around(self, name: str, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.c.norm_placement == "pre":
            return x + sublayer(self.norm(f"{name}.norm", x))
        return self.norm(f"{name}.norm", x + sublayer(x))

    def embed(self, table: str, stack: str, tokens: list[int]) -> Tensor:
        x = self.p[f"{table}_embedding.weight"][tokens] * math.sqrt(self.c.d_model)
        if self.c.position == "sinusoidal":
            x = x + naive_positions(len(tokens), self.c.d_model)
        if self.c.position == "learned":
            x = x + self.p[f"{stack}.position.weight"][: len(tokens)]
        return x

    def logits(self, source: list[int], target: list[int]) -> Tensor:
        pre = self.c.norm_placement == "pre"
        memory = self.embed("source", "encoder", source)
        for i in range(self.c.encoder_layers):
            name = f"encoder.layers.{i}"
            look_around = partial(self.self_attention, f"{name}.self_attention", causal=False)
            memory = self.around(f"{name}.around_self", memory, look_around)
            memory = self.around(f"{name}.around_ffn", memory, partial(self.feed_forward, f"{name}.feed_forward"))
        memory = self.norm("encoder.final_norm", memory) if pre else memory
        x = self.embed("target", "decoder", target)
        for i in range(self.c.decoder_layers):
            name = f"decoder.layers.{i}"
            look_back = partial(self.self_attention, f"{name}.self_attention", causal=True)
            look_over = partial(self.cross_attention, f"{name}.cross_attention", memory=memory)
            x = self.around(f"{name}.around_self", x, look_back)
            x = self.around(f"{name}.around_cross", x, look_over)
            x = self.around(f"{name}.around_ffn", x, partial(self.feed_forward, f"{name}.feed_forward"))
        x = self.norm("decoder.final_norm", x) if pre else x
        return x @ self.p["output.weight"].T * (self.c.d_model**-0.5 if self.c.logit_scale == "rsqrt_d" else 1)


@pytest.mark.parametrize("logit_scale", ["none", "rsqrt_d"])
@pytest.mark.parametrize("tying", ["none", "all"])
@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("cross_position", ["none", "rotary"])
@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rope"])
def test_the_model_is_its_formulas(
    position: str, cross_position: str, placement: str, tying: str, logit_scale: str
) -> None:
    config = ModelConfig(
        d_model=12,
        n_heads=2,
        d_ff=10,
        encoder_layers=2,
        decoder_layers=3,
        position=position,
        cross_position=cross_position,
        norm_placement=placement,
        tying=tying,
        logit_scale=logit_scale,
    )
    model = model_of(config).double()
    source, target = sentences([6])[0], target_prefix(1, 5)[0]
    with torch.no_grad():
        expected = NaiveTwin(model, config).logits(source.tolist(), target.tolist())
        torch.testing.assert_close(model(source[None], target[None])[0], expected, atol=1e-9, rtol=1e-9)
