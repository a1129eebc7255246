"""Which positions tokens stand at: consecutive ones, or a random increasing sample."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_ablate.config import ModelConfig
from transformer_ablate.core import Seq2Seq, build_model, greedy_decode, longest_output
from transformer_ablate.core.positions.numbering import Numbering, RandomisedNumbering, build_numbering
from transformer_ablate.errors import ConfigError
from transformer_ablate.tokens import PAD


def draw(numbering: Numbering, *lengths: int, width: int = 0) -> tuple[Tensor, Tensor]:
    source, target = numbering.draw(torch.tensor(lengths), width or max(lengths))
    assert target is not None
    return source, target


def randomised(size: int, shared: bool = False, train: bool = True) -> RandomisedNumbering:
    return RandomisedNumbering(size, shared).train(train)


def test_a_size_of_zero_counts_tokens() -> None:
    numbering = build_numbering(0, shared=False)
    source, target = numbering.draw(torch.tensor([3, 5]), 5)
    assert source.tolist() == [0, 1, 2, 3, 4]
    assert target is None
    assert numbering.reach(7) == 7
    assert isinstance(build_numbering(64, shared=True), RandomisedNumbering)
    assert build_numbering(64, shared=True).reach(7) == 64


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(34, 90),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
)
def test_positions_increase_strictly_within_the_range(
    lengths: list[int], size: int, shared: bool, train: bool, padding: int
) -> None:
    width = min(max(lengths) + padding, 12)
    source, target = draw(randomised(size, shared, train), *lengths, width=width)
    assert source.shape == (len(lengths), width)
    assert target.shape == (len(lengths), longest_output(width))
    for positions, counts in ((source, lengths), (target, [longest_output(n) for n in lengths])):
        assert positions.dtype == torch.int64
        assert (positions >= 0).all()
        assert (positions < size).all()
        for row, count in zip(positions, counts, strict=True):
            assert (row[:count].diff() > 0).all()
            if positions is target or not shared:
                assert (row[count:] == size - 1).all()


@pytest.mark.parametrize(("train", "draws"), [(True, 20_000), (False, 600)])
def test_every_position_and_every_pair_is_as_likely_as_any_other(train: bool, draws: int) -> None:
    # 5 of 20 positions each time: a position is there with probability 1/4, a pair with 1/19.
    torch.manual_seed(0)
    numbering = randomised(20, train=train)
    rows: list[Tensor] = []
    while sum(map(len, rows)) < draws:
        rows.append(draw(numbering, *[5] * (1000 if train else 1))[0])
        numbering.eval_draw += 1
    drawn = torch.cat(rows)
    there = torch.zeros(draws, 20).scatter(1, drawn, 1)
    assert (there.sum(dim=1) == 5).all()
    both = there.T @ there / draws
    margin = 6 / math.sqrt(draws)  # standard deviations of the one are .43, of the other .22, over the root
    assert (both.diagonal() - 1 / 4).abs().max() < 0.43 * margin
    assert (both[~torch.eye(20, dtype=torch.bool)] - 1 / 19).abs().max() < 0.22 * margin


def test_each_step_and_each_sentence_of_training_has_its_own_draw() -> None:
    torch.manual_seed(0)
    numbering = randomised(500)
    (first, first_target), (second, second_target) = draw(numbering, *[9] * 8), draw(numbering, *[9] * 8)
    for draws in ([*first, *second], [*first_target, *second_target]):
        assert len({tuple(row.tolist()) for row in draws}) == 16
    torch.manual_seed(0)
    again, again_target = draw(randomised(500), *[9] * 8)
    assert torch.equal(again, first)
    assert torch.equal(again_target, first_target)


def test_an_evaluation_draw_depends_on_the_number_of_positions_and_the_chosen_draw_alone() -> None:
    numbering = randomised(100, train=False)
    source, target = draw(numbering, 4, 9, 4, 1, width=15)
    for row, length in enumerate((4, 9, 4, 1)):
        alone, alone_target = draw(numbering, length)
        assert alone[0].tolist() == source[row, :length].tolist()
        assert alone_target[0].tolist() == target[row, : longest_output(length)].tolist()
    torch.manual_seed(1)
    assert torch.equal(draw(randomised(100, train=False), 4, 9, 4, 1, width=15)[0], source)
    numbering.eval_draw = 1
    other, other_target = draw(numbering, 4, 9, 4, 1, width=15)
    assert all(not torch.equal(a[1], b[1]) for a, b in ((other, source), (other_target, target)))
    # Each number of positions has a draw of its own: that of a longer sentence does not contain a shorter one's.
    assert not set(source[0, :4].tolist()) <= set(source[1, :9].tolist())


def test_evaluation_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    draw(randomised(100, train=False), 4, 9)
    assert torch.equal(torch.get_rng_state(), before)


def overlap(numbering: RandomisedNumbering, draws: int) -> float:
    """Share of the first four source positions that are first four target positions of the same sentence, too."""
    found: Counter[bool] = Counter()
    for _ in range(draws):
        for source, target in zip(*draw(numbering, 4, 4, 4, 4), strict=True):
            found.update(p in target[:4].tolist() for p in source.tolist())
        numbering.eval_draw += 1
    return found[True] / found.total()


@pytest.mark.parametrize("train", [True, False])
def test_source_and_target_are_drawn_apart_unless_shared(train: bool) -> None:
    torch.manual_seed(0)
    assert overlap(randomised(400, shared=False, train=train), 20) < 0.1
    assert overlap(randomised(400, shared=True, train=train), 20) == 1
    # Nor do a source and a target of as many positions share a draw.
    source, target = draw(randomised(400, train=train), 18)[0], draw(randomised(400, train=train), 4)[1]
    assert source.shape == target.shape == (1, 18)
    assert not torch.equal(source, target)


def test_a_range_that_is_too_small_is_an_error_that_names_both_numbers() -> None:
    draw(randomised(34), 12)
    with pytest.raises(ConfigError, match=r"got 34, allowed: at least 36\b") as caught:
        draw(randomised(34), 5, width=13)
    assert caught.value.field == "model.randomised_positions"


# Whole models ----------------------------------------------------------------------------------------------------


def model_of(**options: object) -> Seq2Seq:
    config = ModelConfig(**{"d_model": 16, "n_heads": 2, "d_ff": 32, "randomised_positions": 90, **options})  # type: ignore[arg-type]
    return build_model(config, 20, 20, seed=0).double().eval()


def tokens(*lengths: int) -> Tensor:
    found = torch.randint(4, 20, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(0))
    return found.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], PAD)


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {"position": "sinusoidal"},
        {"position": "learned"},
        {"position": "rope", "cross_position": "rotary"},
        {"position": "xpos", "shared_draw": True},
    ],
    ids=str,
)
def test_randomised_models_step_and_decode_alone_as_they_do_together(options: dict[str, object]) -> None:
    model = model_of(**options)
    source, target = tokens(4, 12, 7), tokens(30, 30, 30)
    memory = model.encode(source)
    full = model.decode(target, memory)
    state = model.start(memory, capacity=30)
    steps = [model.step(target[:, :5], state), *(model.step(target[:, t : t + 1], state) for t in range(5, 30))]
    torch.testing.assert_close(torch.cat(steps, 1), full, atol=1e-10, rtol=0)
    decoded = greedy_decode(model, source)
    for row, length in enumerate((4, 12, 7)):
        alone = source[row, None, :length]
        torch.testing.assert_close(model(alone, target[row, None, :9])[0], full[row, :9], atol=1e-10, rtol=0)
        assert greedy_decode(model, alone).sequences()[0] == decoded.sequences()[row]


def test_a_randomised_model_trains_on_fresh_draws_and_is_evaluated_on_fixed_ones() -> None:
    model = model_of(position="rope")
    source = tokens(9)
    torch.manual_seed(0)
    with torch.no_grad():
        fixed, again = (model(source, source) for _ in range(2))
        assert torch.equal(fixed, again)
        model.train()
        first, second = (model(source, source) for _ in range(2))
        assert (first - second).abs().max() > 1e-3
