"""Exact statements: the figures that theory gives, and broken parts that make each come out otherwise."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from transformer_ablate.config import Recipe
from transformer_ablate.core import Seq2Seq, attention, embedding
from transformer_ablate.core.baselines.feedforward import ConcatFNN
from transformer_ablate.core.normalization import BatchNorm, RMSNorm
from transformer_ablate.core.positions import NoPosition, Sinusoidal, sinusoidal_table
from transformer_ablate.core.positions.rotary import Rotary
from transformer_ablate.core.transformer import Transformer
from transformer_ablate.measures import exact
from transformer_ablate.measures.exact import CHECKS, Checked
from transformer_ablate.measures.exact.bounds import smoothed_optimum
from transformer_ablate.registry import ARCHITECTURES, NORMS, POSITIONS

HOLD = {
    "order-blind-encoder",
    "integer-all-channels",
    "sinusoidal-bounded",
    "sinusoidal-linear-shift",
    "rope-offset-only",
    "unscaled-saturates",
    "padding-mask-independence",
    "causal-mask-stops-leak-exact",
    "layernorm-independent",
    "tying-2way-count",
    "tying-3way-count",
    "attention-cheaper-crossover",
    "concat-parameters-grow",
    "smoothing-floor",
    "smoothing-clean-ece",
    "bag-of-words-bound",
}
REFUTED = {"order-blind-decoder", "sinusoidal-wavelengths", "sinusoidal-decay"}


def copying(**fields: int) -> dict[str, Recipe]:
    """A study whose copying cell has these sizes."""
    small = {"train_examples": 10, "valid_examples": 10, **fields}
    return {"copy": Recipe().replace({f"data.{name}": value for name, value in small.items()})}


@pytest.fixture(scope="module")
def found() -> dict[str, Checked]:
    """All checks, of a study that has no copying cell."""
    exact.sizes.layer_flops("gru", 1)  # torch imports seconds' worth of modules with its first count
    start = time.process_time()
    outcomes = {name: check({}) for name, check in CHECKS.items()}
    assert time.process_time() - start < 6, "all exact checks together must take less than 6 s of one core"
    return outcomes


# All of them -----------------------------------------------------------------------------------------------------


def test_the_checks_are_those_of_the_exact_claims() -> None:
    assert set(CHECKS) == HOLD | REFUTED


def test_a_second_check_of_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="'order-blind-encoder' already"):
        exact.check("order-blind-encoder")(CHECKS["order-blind-encoder"])


@pytest.mark.parametrize("name", sorted(HOLD))
def test_true_statements_hold(found: dict[str, Checked], name: str) -> None:
    assert found[name].holds


@pytest.mark.parametrize("name", sorted(REFUTED))
def test_statements_that_are_false_as_claimed_do_not_hold(found: dict[str, Checked], name: str) -> None:
    assert not found[name].holds


def test_every_outcome_is_a_finite_number_and_one_line(found: dict[str, Checked]) -> None:
    for outcome in found.values():
        assert math.isfinite(outcome.value)
        assert math.isfinite(outcome.bound)
        assert outcome.detail
        assert "\n" not in outcome.detail
        assert "nan" not in outcome.detail


def test_checks_say_the_same_each_time_and_draw_from_no_global_generator(found: dict[str, Checked]) -> None:
    state = torch.get_rng_state()
    for name in ("unscaled-saturates", "order-blind-decoder", "bag-of-words-bound", "padding-mask-independence"):
        assert CHECKS[name]({}) == found[name]
    assert torch.equal(torch.get_rng_state(), state)


# Positions -------------------------------------------------------------------------------------------------------


def test_a_decoder_of_one_layer_is_order_blind_and_one_of_two_is_not(found: dict[str, Checked]) -> None:
    effect = exact.positions.decoder_order_effect
    with torch.no_grad():
        assert effect(exact.base.small_model(position="none", decoder_layers=1)) < 1e-9
        assert effect(exact.base.small_model(position="sinusoidal", decoder_layers=1)) > 1e-2
    assert found["order-blind-decoder"].value > 0.05


def test_the_longest_wavelength_is_that_of_the_last_exponent(found: dict[str, Checked]) -> None:
    assert found["sinusoidal-wavelengths"].value == pytest.approx(10_000 ** (510 / 512), rel=1e-9)
    assert found["sinusoidal-wavelengths"].value == pytest.approx(9646.6, abs=0.05)


def test_the_dot_product_first_rises_where_it_is_known_to(found: dict[str, Checked]) -> None:
    detail = found["sinusoidal-decay"].detail
    assert "at k = 6 at d 64, at k = 12 at d 128, at k = 44 at d 512" in detail
    products = exact.positions.dot_products(512) * 256
    assert products[[0, 1, 2, 64, 512]].tolist() == pytest.approx(
        [256, 249.1021, 231.7336, 124.2599, 70.7363], abs=1e-4
    )


def test_largest_rise_is_that_of_the_formula(found: dict[str, Checked]) -> None:
    rises = []
    for d in (64, 128, 512):
        frequencies = 10_000.0 ** (-2 * np.arange(d // 2) / d)
        products = np.cos(np.outer(np.arange(513), frequencies)).mean(axis=1)
        rises.append(np.diff(products).max())
    assert found["sinusoidal-decay"].value == pytest.approx(max(rises), abs=1e-9)


def tensor2tensor(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """Sines and cosines whose frequencies end at 1 / base."""
    frequencies = base ** -(torch.arange(d_model // 2, dtype=torch.float64) / (d_model // 2 - 1))
    angles = positions.to(torch.float64)[..., None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


def one_slow_wave(positions: Tensor, d_model: int) -> Tensor:
    angles = positions.to(torch.float64)[..., None] * torch.full((d_model // 2,), 1e-3, dtype=torch.float64)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)


@pytest.mark.parametrize(
    ("name", "table", "holds"),
    [
        ("sinusoidal-bounded", lambda p, d: sinusoidal_table(p, d) * 1.001, False),
        ("sinusoidal-linear-shift", tensor2tensor, False),
        ("sinusoidal-linear-shift", lambda p, d: sinusoidal_table(p, d).sign(), False),
        ("sinusoidal-wavelengths", tensor2tensor, True),
        ("sinusoidal-wavelengths", lambda p, d: sinusoidal_table(2 * p, d), False),
        ("sinusoidal-decay", one_slow_wave, True),
    ],
)
def test_another_table_gives_another_verdict(
    monkeypatch: pytest.MonkeyPatch, name: str, table: Callable[..., Tensor], holds: bool
) -> None:
    monkeypatch.setattr(exact.positions, "sinusoidal_table", table)
    assert CHECKS[name]({}).holds is holds


class TwiceTurnedKeys(Rotary):
    """Scores depend on i - 2 j."""

    def transform_key(self, k: Tensor, table: Any, layer: int) -> Tensor:
        return super().transform_key(super().transform_key(k, table, layer), table, layer)


class TrainedRotary(Rotary):
    """Has a parameter."""

    def __init__(self, geometry: Any, layout: str) -> None:
        super().__init__(geometry, layout=layout)
        self.gain = nn.Parameter(torch.ones(1))


class UnturnedWithLayout(NoPosition):
    """Scores depend on no position."""

    def __init__(self, geometry: Any, layout: str) -> None:
        super().__init__(geometry)


@pytest.mark.parametrize(
    ("table", "component", "broken", "name"),
    [
        (POSITIONS, "none", Sinusoidal, "order-blind-encoder"),
        (POSITIONS, "rope", TwiceTurnedKeys, "rope-offset-only"),
        (POSITIONS, "rope", TrainedRotary, "rope-offset-only"),
        (POSITIONS, "rope", UnturnedWithLayout, "rope-offset-only"),
        (NORMS, "layernorm", RMSNorm, "integer-all-channels"),
        (NORMS, "layernorm", RMSNorm, "layernorm-independent"),
        (NORMS, "layernorm", BatchNorm, "layernorm-independent"),
        (ARCHITECTURES, "fnn_mean", ConcatFNN, "bag-of-words-bound"),
    ],
)
def test_another_component_in_its_place_makes_a_statement_false(
    monkeypatch: pytest.MonkeyPatch, table: Any, component: str, broken: type, name: str
) -> None:
    table.names()  # registers what there is
    monkeypatch.setitem(table._table, component, broken)
    assert not CHECKS[name]({}).holds


# Attention -------------------------------------------------------------------------------------------------------


def test_saturation_is_that_of_the_golden_table(found: dict[str, Checked]) -> None:
    assert found["unscaled-saturates"].value == pytest.approx(0.508 / 3.02, abs=0.01)


def change_attend(monkeypatch: pytest.MonkeyPatch, change: Callable[..., dict[str, Any]]) -> None:
    real = attention.attend

    def changed(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        term: Tensor | None,
        is_causal: bool,
        scale: float | None,
        dropout: float,
    ) -> Tensor:
        return real(q, k, v, **{"mask": mask, "is_causal": is_causal, **change(q, k, is_causal)})

    monkeypatch.setattr(attention, "attend", changed)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("causal-mask-stops-leak-exact", lambda q, k, causal: {"is_causal": False}),
        ("causal-mask-stops-leak-exact", lambda q, k, causal: {"is_causal": q.shape[2] == k.shape[2]}),
        ("padding-mask-independence", lambda q, k, causal: {"mask": None}),
        ("order-blind-encoder", lambda q, k, causal: {"is_causal": q.shape[2] == k.shape[2]}),
    ],
)
def test_attention_with_a_wrong_mask_makes_a_statement_false(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[..., dict[str, Any]]
) -> None:
    change_attend(monkeypatch, change)
    assert not CHECKS[name]({}).holds


def test_a_decoder_whose_tokens_see_themselves_alone_would_be_order_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    def itself(q: Tensor, k: Tensor, causal: bool) -> dict[str, Any]:
        return {"mask": torch.eye(q.shape[2], dtype=torch.bool), "is_causal": False} if causal else {}

    change_attend(monkeypatch, itself)
    assert CHECKS["order-blind-decoder"]({}).holds


def test_a_padding_mask_that_is_always_there_is_no_contrast(monkeypatch: pytest.MonkeyPatch) -> None:
    real = exact.attention.small_model
    monkeypatch.setattr(exact.attention, "small_model", lambda **fields: real())
    assert not CHECKS["padding-mask-independence"]({}).holds
    assert not CHECKS["causal-mask-stops-leak-exact"]({}).holds


@pytest.mark.parametrize(
    ("function", "broken"),
    [
        ("attention_weights", lambda real: lambda q, k, scale: real(q, k)),  # scales always
        ("attention_scores", lambda real: lambda q, k, scale: real(q, k, scale=1.1)),
    ],
)
def test_scores_of_another_scale_saturate_otherwise(
    monkeypatch: pytest.MonkeyPatch, function: str, broken: Callable[..., Any]
) -> None:
    monkeypatch.setattr(exact.attention, function, broken(getattr(exact.attention, function)))
    assert not CHECKS["unscaled-saturates"]({}).holds


# Sizes -----------------------------------------------------------------------------------------------------------


def test_tying_saves_what_the_base_model_is_known_to_have(found: dict[str, Checked]) -> None:
    assert found["tying-2way-count"].value == 37_000 * 512
    assert found["tying-3way-count"].value == 2 * 37_000 * 512
    assert "100.97 M parameters untied, 82.03 M tied" in found["tying-2way-count"].detail
    assert "63.08 M tied" in found["tying-3way-count"].detail


@pytest.mark.parametrize(("kind", "name"), [("decoder", "tying-2way-count"), ("all", "tying-3way-count")])
def test_matrices_that_are_not_one_save_nothing(monkeypatch: pytest.MonkeyPatch, kind: str, name: str) -> None:
    monkeypatch.setitem(embedding.TYING_KINDS, kind, embedding.Tying(False, False))
    outcome = CHECKS[name]({})
    assert (outcome.holds, outcome.value) == (False, 0)


def test_each_place_of_a_concatenation_has_weights_of_its_own(
    found: dict[str, Checked], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = found["concat-parameters-grow"]
    d = exact.sizes.WIDTH
    assert outcome.value == 2 * (d * d + d)  # a map and a bias for each place of the source, and of the target
    monkeypatch.setattr(exact.sizes, "parameter_count", lambda model: 1_000)
    assert not CHECKS["concat-parameters-grow"]({}).holds


def test_attention_and_recurrence_cost_the_same_where_length_is_width(found: dict[str, Checked]) -> None:
    outcome = found["attention-cheaper-crossover"]
    assert outcome.value == 1
    assert "(8 L·d² more)" in outcome.detail
    assert "a plain recurrent layer (4 L·d²) nowhere" in outcome.detail
    assert "a GRU layer (12 L·d²) at L = 1 d" in outcome.detail
    assert "an LSTM layer (16 L·d²) at L = 2 d" in outcome.detail
    d = exact.sizes.WIDTH
    for length, cheaper in ((d - 1, True), (d + 1, False)):
        counts = [exact.sizes.layer_flops(architecture, length) for architecture in ("transformer", "gru")]
        assert (counts[0] < counts[1]) is cheaper


@pytest.mark.parametrize(
    "miscount",
    [
        lambda flops, model, length: flops * (1 + isinstance(model, Transformer)),
        lambda flops, model, length: flops + len(list(model.parameters())) * length**3,
    ],
)
def test_other_counts_cross_elsewhere(monkeypatch: pytest.MonkeyPatch, miscount: Callable[..., int]) -> None:
    real = exact.sizes.forward_flops

    def counted(model: Seq2Seq, source_length: int, target_length: int) -> int:
        return miscount(real(model, source_length, target_length), model, source_length)

    monkeypatch.setattr(exact.sizes, "forward_flops", counted)
    assert not CHECKS["attention-cheaper-crossover"]({}).holds


# Label smoothing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "loss", "nll"),
    [
        (5, 0.38967, 0.08338),
        (16, None, 0.0984),
        (40, 0.67675, 0.10259),
        (72, 0.74237, 0.10382),
        (1_000, 1.01485, 0.10525),
        (37_000, 1.37691, 0.10536),
    ],
)
def test_the_optimum_of_the_smoothed_loss_is_that_of_the_golden_table(
    classes: int, loss: float | None, nll: float
) -> None:
    optimum = smoothed_optimum(classes)
    assert -math.log(optimum.target) == pytest.approx(nll, abs=5e-5)
    assert loss is None or optimum.loss == pytest.approx(loss, abs=5e-6)
    expected = torch.full((classes,), 0.1 / classes, dtype=torch.float64)
    expected[4] += 0.9
    torch.testing.assert_close(optimum.probabilities, expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize(("symbols", "classes"), [(16, 20), (36, 40)])
def test_the_floor_is_of_all_classes_that_the_copying_cell_has(symbols: int, classes: int) -> None:
    bases = copying(vocab_size=symbols)
    floor, ece = CHECKS["smoothing-floor"](bases), CHECKS["smoothing-clean-ece"](bases)
    assert floor.holds
    assert floor.bound == -math.log(0.9 + 0.1 / classes)
    assert ece.holds
    assert ece.bound == 0.1 * (1 - 1 / classes)


def test_without_a_copying_cell_there_are_16_classes(found: dict[str, Checked]) -> None:
    assert found["smoothing-floor"].bound == pytest.approx(0.0984, abs=5e-5)
    assert found["smoothing-clean-ece"].bound == pytest.approx(0.09375)
    assert CHECKS["smoothing-clean-ece"](copying(vocab_size=36)).value == pytest.approx(0.0975, abs=1e-8)
