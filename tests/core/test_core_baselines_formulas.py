"""Baselines against the papers' formulas in plain loops over one sentence, in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.core.recurrent_models import D, model_of
from transformer_ablate.core import Seq2Seq
from transformer_ablate.core.baselines.readers import READERS, AdditiveReader, Source

SOURCE, TARGET = [1, 7, 5, 19, 5, 2], [1, 9, 4, 4, 11]


def logits_of(model: Seq2Seq, source: list[int] = SOURCE, target: list[int] = TARGET) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([source]), torch.tensor([target]))[0]


class Twin:
    """Parameters by name, and the maps that all models use."""

    def __init__(self, model: Seq2Seq) -> None:
        self.p = {name: value.detach() for name, value in model.named_parameters()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        bias = self.p.get(f"{name}.bias")
        return self.p[f"{name}.weight"] @ x + (0 if bias is None else bias)

    def embed(self, side: str, tokens: list[int]) -> list[Tensor]:
        return [self.p[f"{side}_embedding.weight"][token] * math.sqrt(D) for token in tokens]

    def perceptron(self, name: str, x: Tensor, hidden: int) -> Tensor:
        for i in range(hidden):
            x = self.linear(f"{name}.{3 * i}", x).clamp_min(0)
        return self.linear(f"{name}.{3 * hidden}", x)

    def logits(self, states: list[Tensor]) -> Tensor:
        return torch.stack([self.p["output.weight"] @ s for s in states])


class RecurrentTwin(Twin):
    """Recurrent layers one gate at a time, attention one source token at a time."""

    def __init__(self, model: Seq2Seq, kind: str) -> None:
        super().__init__(model)
        self.cell = {"rnn": self.rnn, "gru": self.gru, "lstm": self.lstm}[kind]
        self.n_states = 2 if kind == "lstm" else 1

    def gate(self, name: str, layer: str, block: int, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The input's and the state's share of one gate."""
        rows = slice(block * D, (block + 1) * D)
        shares = []
        for side, value in (("ih", x), ("hh", h)):
            weight, bias = (self.p[f"{name}.rnn.{kind}_{side}_{layer}"][rows] for kind in ("weight", "bias"))
            shares.append(weight @ value + bias)
        return shares[0], shares[1]

    def rnn(self, name: str, layer: str, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        return [torch.tanh(sum(self.gate(name, layer, 0, x, state[0])))]  # type: ignore[arg-type]

    def gru(self, name: str, layer: str, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        (h,) = state
        r, z = (torch.sigmoid(sum(self.gate(name, layer, block, x, h))) for block in (0, 1))  # type: ignore[arg-type]
        of_input, of_state = self.gate(name, layer, 2, x, h)
        return [(1 - z) * torch.tanh(of_input + r * of_state) + z * h]

    def lstm(self, name: str, layer: str, x: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, c = state
        i, f, g, o = (sum(self.gate(name, layer, block, x, h)) for block in range(4))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # type: ignore[arg-type]
        return [torch.sigmoid(o) * torch.tanh(c), c]  # type: ignore[arg-type]

    def encode(self, source: list[int], layers: int, bidirectional: bool) -> tuple[list[Tensor], list[list[Tensor]]]:
        """States of the top layer, and each layer's last states of both directions side by side."""
        x, last = self.embed("source", source), []
        for layer in range(layers):
            outputs, ends = [], []
            for direction in ("", "_reverse") if bidirectional else ("",):
                state = [torch.zeros(D).double()] * self.n_states
                seen = []
                for item in reversed(x) if direction else x:
                    state = self.cell("encoder", f"l{layer}{direction}", item, state)
                    seen.append(state[0])
                outputs.append(seen[::-1] if direction else seen)
                ends.append(state)
            x = [torch.cat(pair) for pair in zip(*outputs, strict=True)]
            last.append([torch.cat(parts) for parts in zip(*ends, strict=True)])
        return x, last

    def bridge(self, last: list[list[Tensor]]) -> list[list[Tensor]]:
        """Each decoder layer's start states."""
        layers = len(last)
        return [
            [torch.tanh(self.linear(f"bridge.parts.{part * layers + i}.0", s)) for part, s in enumerate(states)]
            for i, states in enumerate(last)
        ]

    def stack(self, x: Tensor, states: list[list[Tensor]]) -> list[list[Tensor]]:
        """One step of the decoder's layers."""
        after = []
        for layer, state in enumerate(states):
            after.append(self.cell("decoder.cells", f"l{layer}", x, state))
            x = after[-1][0]
        return after

    def mean(self, energies: list[Tensor], values: list[Tensor]) -> Tensor:
        weights = [math.exp(float(e)) for e in energies]
        return sum(w / sum(weights) * v for w, v in zip(weights, values, strict=True))  # type: ignore[return-value]

    def additive(self, state: Tensor, h: list[Tensor]) -> Tensor:
        W, U, v = (self.p[f"decoder.reader.{name}.weight"] for name in ("query", "key", "score"))
        return self.mean([(v @ torch.tanh(W @ state + U @ h_j))[0] for h_j in h], h)

    def multiplicative(self, state: Tensor, h: list[Tensor]) -> Tensor:
        return self.mean([state @ self.p["decoder.reader.key.weight"] @ h_j for h_j in h], h)

    def seq2seq(self, reader: str, layers: int, bidirectional: bool) -> Tensor:
        h, last = self.encode(SOURCE, layers, bidirectional)
        states = self.bridge(last) if bidirectional else last
        outputs = []
        for y in self.embed("target", TARGET):
            if reader in ("context", "additive"):
                c = last[-1][0] if reader == "context" else self.additive(states[-1][0], h)
                states = self.stack(torch.cat((y, c)), states)
                parts = (states[-1][0], y, c)
            else:
                states = self.stack(y, states)
                parts = (states[-1][0],)  # type: ignore[assignment]
                if reader == "multiplicative":
                    parts = (self.multiplicative(states[-1][0], h), states[-1][0])  # type: ignore[assignment]
            outputs.append(
                parts[0] if len(parts) == 1 else torch.tanh(self.linear("decoder.reader.readout", torch.cat(parts)))
            )
        return self.logits(outputs)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_encoder_decoders_are_their_formulas(cell: str, reader: str, bidirectional: bool) -> None:
    model = model_of(cell, reader=reader, bidirectional=bidirectional)
    expected = RecurrentTwin(model, cell).seq2seq(reader, 2, bidirectional)
    torch.testing.assert_close(logits_of(model), expected, atol=1e-12, rtol=0)


def test_additive_attention_by_hand() -> None:
    reader = AdditiveReader(1, 1).double()
    with torch.no_grad():
        for part, value in ((reader.query, 0.5), (reader.key, 2.0), (reader.score, 3.0)):
            part.weight.fill_(value)
    h = torch.tensor([[[0.0], [1.0]]]).double()
    source = Source(reader.keys(h), h, torch.ones(1, 2, dtype=torch.bool), h[:, -1])
    found = reader.before(torch.zeros(1, 1, 1).double(), torch.ones(1, 1).double(), source)
    # e = 3 tanh(.5) = 1.386352 and 3 tanh(2.5) = 2.959843; the second's weight is sigmoid(1.573491).
    assert found.flatten().tolist() == pytest.approx([0, 0.828281], abs=1e-6)


def test_the_synchronous_rnn_is_its_formulas() -> None:
    model = model_of("rnn_synchronous")
    twin = RecurrentTwin(model, "rnn")
    h, _ = twin.encode(SOURCE, 2, False)
    target = [*TARGET, 6, 8]  # longer than the source
    states, outputs = [[torch.zeros(D).double()]] * 2, []
    for t, y in enumerate(twin.embed("target", target)):
        here = h[t + 1] if t + 1 < len(h) else twin.p["exhausted"]
        x = torch.cat((here, y))
        after = []
        for layer, state in enumerate(states):
            after.append(twin.rnn("decoder", f"l{layer}", x, state))
            x = after[-1][0]
        states = after
        outputs.append(x)
    torch.testing.assert_close(logits_of(model, target=target), twin.logits(outputs), atol=1e-12, rtol=0)


def test_output_t_of_the_synchronous_rnn_sees_no_source_behind_t() -> None:
    model = model_of("rnn_synchronous")
    before = logits_of(model)
    for t in range(1, len(SOURCE)):
        changed = list(SOURCE)
        changed[t] = 12
        different = (logits_of(model, changed) != before).any(dim=-1)
        # The output at place t is the logits behind the target's token t - 1.
        assert different.tolist() == [place + 1 >= t for place in range(len(TARGET))]


def test_feed_forward_on_means_is_its_formulas() -> None:
    model = model_of("fnn_mean", (2, 3))
    twin = Twin(model)
    bag = sum(twin.embed("source", SOURCE)) / len(SOURCE)
    code, y, outputs = twin.perceptron("encoder", bag, 2), twin.embed("target", TARGET), []  # type: ignore[arg-type]
    for t in range(len(TARGET)):
        prefix: Any = sum(y[: t + 1])
        outputs.append(twin.perceptron("decoder", torch.cat((code, prefix / (t + 1), y[t])), 3))
    torch.testing.assert_close(logits_of(model), twin.logits(outputs), atol=1e-12, rtol=0)


def test_feed_forward_on_a_concatenation_is_one_large_matrix() -> None:
    longest = 9
    model = model_of("fnn_concat", (2, 3), longest=longest)
    twin = Twin(model)

    def first_layer(side: str, embeddings: list[Tensor]) -> Tensor:
        filled = [torch.cat((e, torch.ones(1).double())) for e in embeddings]
        slots = torch.cat(filled + [torch.zeros(D + 1).double()] * (longest - len(filled)))
        weight, bias = twin.p[f"{side}_slots.weight"], twin.p[f"{side}_slots.bias"]
        return torch.cat((weight, bias[:, None]), dim=1).flatten(0, 1).T @ slots

    with torch.no_grad():
        model.source_slots.bias += torch.randn(longest, D).double()  # type: ignore[union-attr, operator]
        model.target_slots.bias += torch.randn(longest, D).double()  # type: ignore[union-attr, operator]
    code = twin.perceptron("encoder", first_layer("source", twin.embed("source", SOURCE)).clamp_min(0), 1)
    y, outputs = twin.embed("target", TARGET), []
    for t in range(len(TARGET)):
        hidden = (first_layer("target", y[: t + 1]) + code).clamp_min(0)
        outputs.append(twin.perceptron("decoder", hidden, 2))
    torch.testing.assert_close(logits_of(model), twin.logits(outputs), atol=1e-12, rtol=0)


class ConvolutionalTwin(RecurrentTwin):
    """Windows one token at a time."""

    def position(self, p: int) -> Tensor:
        angles = [p / 10_000 ** (2 * (c // 2) / D) for c in range(D)]
        return torch.tensor([math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)], dtype=torch.float64)

    def placed(self, side: str, tokens: list[int]) -> list[Tensor]:
        return [x + self.position(p) for p, x in enumerate(self.embed(side, tokens))]

    def convolve(self, name: str, x: list[Tensor], kernel: int, back: int) -> list[Tensor]:
        weight, bias = self.p[f"{name}.weight"], self.p[f"{name}.bias"]  # (2 D, D, kernel), (2 D,)
        outputs = []
        for i in range(len(x)):
            total = bias.clone()
            for k in range(kernel):
                if 0 <= i + k - back < len(x):
                    total += weight[:, :, k] @ x[i + k - back]
            outputs.append(total[:D] * torch.sigmoid(total[D:]))
        return outputs

    def encoder(self, kernel: int, layers: int) -> tuple[list[Tensor], list[Tensor]]:
        e = x = self.placed("source", SOURCE)
        for layer in range(layers):
            h = self.convolve(f"encoder.layers.{layer}", x, kernel, kernel // 2)
            x = [(a + b) * 0.5**0.5 for a, b in zip(h, x, strict=True)]
        return x, e

    def convs2s(self, kernel: int, layers: tuple[int, int]) -> Tensor:
        z, e = self.encoder(kernel, layers[0])
        g = x = self.placed("target", TARGET)
        for layer in range(layers[1]):
            h = self.convolve(f"layers.{layer}.convolution", x, kernel, kernel - 1)
            d = [self.linear(f"layers.{layer}.query", h_i) + g_i for h_i, g_i in zip(h, g, strict=True)]
            values = [z_j + e_j for z_j, e_j in zip(z, e, strict=True)]
            c = [self.mean([d_i @ z_j / D**0.5 for z_j in z], values) for d_i in d]
            x = [((h_i + c_i) * 0.5**0.5 + x_i) * 0.5**0.5 for h_i, c_i, x_i in zip(h, c, x, strict=True)]
        return self.logits(x)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_convs2s_is_its_formulas(kernel: int) -> None:
    model = model_of("convs2s", (2, 3), kernel=kernel)
    expected = ConvolutionalTwin(model, "gru").convs2s(kernel, (2, 3))
    torch.testing.assert_close(logits_of(model), expected, atol=1e-12, rtol=0)


def test_the_last_convolutional_state_starts_a_gru() -> None:
    model = model_of("conv_last", (3, 2), kernel=3)
    twin = ConvolutionalTwin(model, "gru")
    last = twin.encoder(3, 3)[0][-1]
    states, outputs = twin.bridge([[last], [last]]), []
    for y in twin.embed("target", TARGET):
        states = twin.stack(y, states)
        outputs.append(states[-1][0])
    torch.testing.assert_close(logits_of(model), twin.logits(outputs), atol=1e-12, rtol=0)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
def test_the_last_convolutional_state_knows_its_receptive_field_and_no_more(kernel: int, layers: int) -> None:
    model = model_of("conv_last", (layers, 1), kernel=kernel)
    source = [1, *range(4, 13), 2]
    before, field = logits_of(model, source), 1 + layers * (kernel // 2)
    for i in range(len(source)):
        changed = list(source)
        changed[i] = 15
        assert torch.equal(logits_of(model, changed), before) == (i < len(source) - field)


def test_a_convolutional_decoder_sees_its_receptive_field_and_no_more() -> None:
    model, target = model_of("convs2s", (1, 2), kernel=3), [1, *range(4, 12)]
    before = logits_of(model, target=target)
    for i in range(len(target)):
        changed = list(target)
        changed[i] = 15
        different = (logits_of(model, target=changed) != before).any(dim=-1)
        assert different.tolist() == [i <= place <= i + 4 for place in range(len(target))]


def test_a_bag_of_words_has_no_order_and_the_others_do() -> None:
    permuted = [SOURCE[i] for i in (3, 5, 0, 2, 1, 4)]
    bag = model_of("fnn_mean")
    torch.testing.assert_close(logits_of(bag, permuted), logits_of(bag), atol=1e-12, rtol=0)
    for architecture in ("fnn_concat", "rnn_synchronous", "gru", "convs2s", "conv_last"):
        model = model_of(architecture)
        assert (logits_of(model, permuted) - logits_of(model)).abs().max() > 1e-3
