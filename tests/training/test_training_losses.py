"""Cross-entropy and its smoothing against golden values and a naive sum over an explicit target distribution."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import SMOOTHINGS, Recipe
from transformer_ablate.data.examples import Batch
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import PAD
from transformer_ablate.training.losses import SMOOTHED, cross_entropy
from transformer_ablate.training.module import Seq2SeqModule


def loss_of(logits: list[list[float]], targets: list[int], alpha: float = 0.0, kind: str = "all") -> float:
    return cross_entropy(torch.tensor([logits], dtype=torch.float64), torch.tensor([targets]), alpha, kind).item()


def distribution(kind: str, V: int, alpha: float, y: int) -> list[float]:
    """The target distribution, written out class by class."""
    if kind == "all":
        return [alpha / V + (1 - alpha) * (c == y) for c in range(V)]
    if kind == "others":
        return [1 - alpha if c == y else alpha / (V - 1) for c in range(V)]
    return [1 - alpha if c == y else 0.0 if c == PAD else alpha / (V - 2) for c in range(V)]


def test_every_kind_that_a_recipe_may_name_is_there() -> None:
    assert set(SMOOTHED) == set(SMOOTHINGS)


# Class 0 is padding here, so golden values that aim at class 0 have classes 0 and 1 exchanged.
GOLDEN = [1, 2, 0, -1, 0.5]
PAD_UNLIKELY: list[list[float]] = [[-20, 4, 0, 0, 0]]


@pytest.mark.parametrize(
    ("logits", "targets", "alpha", "kind", "expected"),
    [
        ([GOLDEN], [1], 0.0, "all", 0.5744379396),
        ([GOLDEN], [1], 0.1, "all", 0.7244379396),
        ([GOLDEN], [1], 0.1, "others", 0.7619379396),
        ([[0, 2, 0, 0], [0, 2, 0, 0]], [1, 3], 0.0, "all", 1.340753),
        ([[0, 2, 0, 0], [0, 2, 0, 0]], [1, 3], 0.1, "all", 1.390753),
        (PAD_UNLIKELY, [1], 0.1, "all", 0.773490),  # the padding class takes its share of alpha, as in torch
        (PAD_UNLIKELY, [1], 0.1, "others-but-pad", 0.453491),
        (PAD_UNLIKELY, [1], 0.0, "all", 0.053491),
    ],
)
def test_golden_values(logits: list[list[float]], targets: list[int], alpha: float, kind: str, expected: float) -> None:
    assert loss_of(logits, targets, alpha, kind) == pytest.approx(expected, abs=1e-6)
    padded = [*logits, [7.0, -3.0, *[0.0] * (len(logits[0]) - 2)]]
    assert loss_of(padded, [*targets, PAD], alpha, kind) == pytest.approx(expected, abs=1e-6)


def test_without_its_entropy_the_loss_is_the_annotated_transformers_divergence() -> None:
    entropy = -sum(q * math.log(q) for q in distribution("others-but-pad", 5, 0.1, 1) if q)
    assert loss_of(PAD_UNLIKELY, [1], 0.1, "others-but-pad") - entropy == pytest.approx(0.018546, abs=1e-6)


@pytest.mark.parametrize("kind", SMOOTHINGS)
@pytest.mark.parametrize(
    ("V", "smoothed", "plain"),
    [
        (5, 0.389673, 0.08338),
        (40, 0.67675, 0.10259),
        (72, 0.74237, 0.10382),
        (1000, 1.01485, 0.10525),
        (8000, 1.223650, None),
        (37000, 1.37691, 0.10536),
    ],
)
def test_floor_of_the_smoothed_loss(V: int, smoothed: float, plain: float | None, kind: str) -> None:
    # The best logits are the logarithms of the smoothed target; no others give less.
    target, best = torch.tensor([[1]]), torch.tensor([[distribution(kind, V, 0.1, 1)]], dtype=torch.float64)
    optimum = best.log()  # -inf for PAD where it gets nothing
    floor = cross_entropy(optimum, target, 0.1, kind).item()
    assert floor == pytest.approx(-torch.special.xlogy(best, best).sum().item(), abs=1e-12)
    hard = cross_entropy(optimum, target).item()
    assert hard == pytest.approx(-math.log(best[0, 0, 1].item()), abs=1e-12)
    if kind == "all":  # the golden values are torch's
        assert floor == pytest.approx(smoothed, abs=1e-5)
        assert plain is None or hard == pytest.approx(plain, abs=1e-5)
    else:
        assert hard == pytest.approx(-math.log(0.9), abs=1e-9)
    for step in (-0.1, 0.1):
        off = optimum.clone()
        off[..., 1] += step
        assert cross_entropy(off, target, 0.1, kind) > floor


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_training_reaches_the_floor_and_goes_no_further(kind: str) -> None:
    logits, target = torch.zeros(1, 1, 5, dtype=torch.float64, requires_grad=True), torch.tensor([[1]])
    optimizer = torch.optim.LBFGS([logits], max_iter=60, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(logits, target, 0.1, kind)
        loss.backward()
        return loss

    optimizer.step(closure)
    q = distribution(kind, 5, 0.1, 1)
    assert logits.detach().softmax(-1).flatten().tolist() == pytest.approx(q, abs=1e-5)
    assert closure().item() == pytest.approx(-sum(p * math.log(p) for p in q if p), abs=1e-6)


@pytest.mark.parametrize("kind", SMOOTHINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
def test_uniform_logits_lose_ln_v_whatever_the_smoothing(alpha: float, kind: str) -> None:
    loss = loss_of([[0.0] * 5] * 3, [1, 2, 4], alpha, kind)
    assert loss == pytest.approx(1.609438, abs=1e-6)
    assert math.exp(loss) == pytest.approx(5.0)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_gradients_are_predicted_less_target_probabilities(kind: str, alpha: float) -> None:
    logits = torch.randn(1, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    cross_entropy(logits, torch.tensor([[2, PAD, 4]]), alpha, kind, "none").sum().backward()
    assert logits.grad is not None
    share = (logits.softmax(-1) - logits.grad)[0].tolist()
    assert share[0] == pytest.approx(distribution(kind, 5, alpha, 2), abs=1e-12)
    assert share[2] == pytest.approx(distribution(kind, 5, alpha, 4), abs=1e-12)
    assert logits.grad[0, 1].tolist() == [0.0] * 5  # no target distribution at all where the target is padding


def test_the_annotated_transformers_row() -> None:
    logits = torch.zeros(1, 1, 5, dtype=torch.float64, requires_grad=True)
    cross_entropy(logits, torch.tensor([[2]]), 0.4, "others-but-pad").backward()
    assert logits.grad is not None
    assert (0.2 - logits.grad).flatten().tolist() == pytest.approx([0, 0.4 / 3, 0.6, 0.4 / 3, 0.4 / 3])


def naive(logits: Tensor, targets: Tensor, alpha: float, kind: str) -> list[list[float]]:
    V = logits.shape[-1]
    rows = []
    for sentence, gold in zip(logits.tolist(), targets.tolist(), strict=True):
        row = []
        for scores, y in zip(sentence, gold, strict=True):
            total = math.log(sum(map(math.exp, scores)))
            share = distribution(kind, V, alpha, y)
            row.append(0.0 if y == PAD else -sum(q * (s - total) for q, s in zip(share, scores, strict=True)))
        rows.append(row)
    return rows


@pytest.mark.parametrize("kind", SMOOTHINGS)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(3, 9),
    st.sampled_from([0.0, 0.1]) | st.floats(0, 0.99),
    st.integers(0, 10**6),
)
def test_means_are_over_real_tokens(kind: str, B: int, T: int, V: int, alpha: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, V, (B, T), generator=generator)
    targets[0, 0] = 1  # at least one real token
    expected = naive(logits, targets, alpha, kind)
    each = cross_entropy(logits, targets, alpha, kind, reduction="none")
    assert each.shape == (B, T)
    torch.testing.assert_close(each, torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=1e-9)
    assert (each[targets == PAD] == 0).all()
    real = int((targets != PAD).sum())
    mean = cross_entropy(logits, targets, alpha, kind).item()
    assert mean == pytest.approx(sum(map(sum, expected)) / real, abs=1e-9)


@given(st.integers(3, 9), st.floats(0.01, 0.5), st.integers(0, 10**6))
def test_other_kinds_are_torchs_at_another_alpha(V: int, alpha: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, V, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, V, (6,), generator=generator)
    others = cross_entropy(logits, targets, alpha, "others").item()
    more = alpha * V / (V - 1)
    assert others == pytest.approx(F.cross_entropy(logits, targets, label_smoothing=more).item(), abs=1e-12)
    # Where PAD is ruled out, leaving it out is a vocabulary without it.
    ruled_out = logits.index_fill(-1, torch.tensor([PAD]), -math.inf)
    but_pad = cross_entropy(ruled_out, targets, alpha, "others-but-pad").item()
    more = alpha * (V - 1) / (V - 2)
    without = F.cross_entropy(logits[:, 1:], targets - 1, label_smoothing=more)
    assert but_pad == pytest.approx(without.item(), abs=1e-12)


@pytest.mark.parametrize("V", [1, 2, 3, 30])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_without_alpha_all_kinds_are_one(V: int, reduction: str) -> None:
    logits = torch.randn(2, 4, V, generator=torch.Generator().manual_seed(1))
    targets = torch.randint(0, V, (2, 4), generator=torch.Generator().manual_seed(2))
    losses = [cross_entropy(logits, targets, 0.0, kind, reduction) for kind in SMOOTHINGS]  # type: ignore[arg-type]
    plain = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction=reduction)
    assert all(torch.equal(loss.flatten(), plain.flatten()) or bool(plain.isnan().all()) for loss in losses)


@pytest.mark.parametrize(("kind", "V"), [("others", 1), ("others-but-pad", 1), ("others-but-pad", 2)])
def test_a_vocabulary_that_leaves_no_class_is_refused(kind: str, V: int) -> None:
    target = torch.tensor([[1]])
    with pytest.raises(ConfigError, match=rf"train\.smoothing: got '{kind}', allowed: all, .* {V} symbols"):
        cross_entropy(torch.zeros(1, 1, V), target, 0.1, kind)


@pytest.mark.parametrize(("kind", "V"), [("others", 2), ("others-but-pad", 3)])
def test_one_class_is_enough_to_spread_over(kind: str, V: int) -> None:
    assert loss_of([[0.0] * V], [1], 0.1, kind) == pytest.approx(math.log(V))


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"all, others, others-but-pad; did you mean 'others'\?"):
        cross_entropy(torch.zeros(1, 1, 5), torch.tensor([[1]]), 0.1, "other")


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_a_token_weighs_the_same_in_every_batch(kind: str) -> None:
    # 11 tokens that lose 2 nats each and 101 that lose 1: the mean of the two rows' means would be 1.5.
    logits, targets = torch.zeros(2, 101, 4, dtype=torch.float64), torch.zeros(2, 101, dtype=torch.long)
    for row, (tokens, nats) in enumerate([(11, 2.0), (101, 1.0)]):
        targets[row, :tokens] = 1
        logits[row, :, 1] = math.log(math.exp(-nats) / (1 - math.exp(-nats)) * 3)
    assert cross_entropy(logits, targets, 0.0, kind).item() == pytest.approx(123 / 112, abs=1e-12)
    sums = cross_entropy(logits, targets, 0.0, kind, reduction="none").sum(1)
    assert sums.tolist() == pytest.approx([22, 101])
    # Gradients of the rows, weighed by their tokens, are the gradient of the batch.
    whole = logits.requires_grad_()
    cross_entropy(whole, targets, 0.1, kind).backward()
    assert whole.grad is not None
    for row, tokens in enumerate((11, 101)):
        part = logits.detach()[row : row + 1].requires_grad_()
        (cross_entropy(part, targets[row : row + 1], 0.1, kind) * tokens / 112).backward()
        torch.testing.assert_close(part.grad, whole.grad[row : row + 1], atol=1e-15, rtol=1e-12)


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_what_is_predicted_at_padding_changes_nothing(kind: str) -> None:
    logits = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(3))
    targets = torch.tensor([[4, 5, PAD], [2, PAD, PAD]])
    other = torch.where((targets == PAD)[..., None], 50 * torch.randn(2, 3, 6), logits)
    assert torch.equal(cross_entropy(logits, targets, 0.1, kind), cross_entropy(other, targets, 0.1, kind))


@pytest.mark.parametrize("kind", SMOOTHINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_half_precision_logits_are_scored_in_float32(alpha: float, kind: str) -> None:
    logits = (8 * torch.randn(2, 50, 30, generator=torch.Generator().manual_seed(0))).to(torch.bfloat16)
    targets = torch.randint(1, 30, (2, 50), generator=torch.Generator().manual_seed(0))
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = cross_entropy(logits, targets, alpha, kind)
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(cross_entropy(logits.double(), targets, alpha, kind).item(), rel=1e-6)


@pytest.mark.parametrize("kind", SMOOTHINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_extreme_logits_give_finite_losses(alpha: float, kind: str) -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([[1, 1]]), alpha, kind)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("kind", SMOOTHINGS)
def test_a_recipe_trains_on_its_kind_and_reports_hard_targets(kind: str) -> None:
    size = {"model.d_model": 8, "model.n_heads": 1, "model.d_ff": 4, "model.encoder_layers": 1}
    recipe = Recipe().replace({**size, "train.label_smoothing": 0.3, "train.smoothing": kind})
    module = Seq2SeqModule(recipe, 9, 9)
    batch = Batch(torch.tensor([[5, 6, 2], [7, 2, 0]]), torch.tensor([[1, 6, 5, 2], [1, 7, 2, 0]]), torch.arange(2))
    step = module.training_step(batch, 0)
    logits = module.model(batch.source, batch.target[:, :-1])
    for value, alpha in ((step["loss"], 0.3), (step["nll"], 0.0)):
        expected = naive(logits, batch.target[:, 1:], alpha, kind)
        assert value.item() == pytest.approx(sum(map(sum, expected)) / 5, rel=1e-5)
