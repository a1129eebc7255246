"""What a plan contains, and that faults show before anything is trained."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from experiments.pe_extrapolation import STUDY
from transformer_ablate.config import Recipe
from transformer_ablate.data import TokenBudgetBatches, load_task
from transformer_ablate.errors import ConfigError
from transformer_ablate.study.declarations import SEEDS, Cell, Study, Variant
from transformer_ablate.study.plan import make_plan
from transformer_ablate.study.trial import parts


def test_the_first_study_has_the_arms_and_cells_that_it_promises() -> None:
    plan = make_plan(STUDY, "quick")
    cells: dict[str, set[str]] = {}
    for run in plan.runs:
        cells.setdefault(run.cell, set()).add(run.variant)
    encodings = {"none", "sinusoidal", "learned", "shaw", "t5", "rope", "alibi"}
    crossed = {f"{name}+cross" for name in encodings}
    assert cells == {
        "copy": encodings | crossed,
        "g2p-length": encodings | crossed,
        "reverse": encodings,
        "sort": encodings,
    }
    assert {run.seed for run in plan.runs} == set(range(SEEDS["quick"]))
    missing = {v.name for v in STUDY.variants} | {c.name for c in STUDY.cells}
    missing -= {run.variant for run in plan.runs} | {run.cell for run in plan.runs}
    assert missing <= {name for name, _ in plan.skipped}
    assert len({run.fingerprint for run in plan.runs}) == len(plan.runs)


def test_arms_differ_in_what_they_name_and_in_nothing_else() -> None:
    plan = make_plan(STUDY, "standard", seeds=[3], cells=["copy"])
    for run in plan.runs:
        base, recipe = plan.bases[run.cell], run.recipe.flat()
        differing = {name for name, value in recipe.items() if base[name] != value} - {"train.seed"}
        assert differing <= set(run.delta)


def test_every_variant_of_a_seed_sees_the_same_data_in_the_same_order() -> None:
    plan = make_plan(STUDY, "smoke", seeds=[0, 1], cells=["copy"])
    orders: dict[int, set[bytes]] = {}
    for run in plan.runs:
        data, train = run.recipe.data, run.recipe.train
        pairs = load_task(data).train
        batches = TokenBudgetBatches(pairs, data.batch_tokens, data.length_buckets, train.seed, train.max_steps)
        orders.setdefault(run.seed, set()).add(b"".join(ids.tobytes() for ids in batches))
    assert {seed: len(found) for seed, found in orders.items()} == {0: 1, 1: 1}
    assert orders[0] != orders[1]


def test_a_split_that_no_cell_has_divides_the_cells_that_have_one() -> None:
    plan = make_plan(STUDY, "smoke", variants=["rope"], overrides={"data.task": "g2p", "data.split": "random"})
    assert {run.recipe.data.split for run in plan.runs} == {"random"}
    assert {run.recipe.data.task for run in plan.runs} == {"g2p"}
    titles = {cell.name: cell.title for cell in plan.study.cells}
    assert all("random split" in titles[run.cell] for run in plan.runs)
    alone = make_plan(STUDY, "smoke", variants=["rope"], overrides={"data.split": "random"})
    assert {run.recipe.data.task for run in alone.runs} == {"g2p"}
    with pytest.raises(ConfigError, match=r"data\.split"):
        make_plan(STUDY, "smoke", overrides={"data.task": "copy", "data.split": "random"})


def test_titles_are_of_the_corpus_that_is_learnt(tmp_path: Path) -> None:
    from experiments.weight_tying import STUDY as TYING

    file = tmp_path / "mine.tsv"
    words = [hashlib.sha256(str(i).encode()).hexdigest()[:8] for i in range(600)]
    file.write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    cell = next(cell for cell in TYING.cells if cell.base == "text")
    fields = {"data.source": str(file), "data.tokenizer": "char", "data.tokenizer_size": 40}
    plan = make_plan(TYING, "smoke", cells=[cell.name], overrides=fields)
    titles = {c.name: c.title for c in plan.study.cells}
    assert titles[cell.name] == f"translation of {file}: column 0 to column 1"
    unchanged = make_plan(TYING, "smoke", cells=[cell.name]).study.cells
    assert unchanged == TYING.cells


def test_seeds_come_before_arms_so_that_a_broken_off_sweep_is_balanced(study: Study) -> None:
    plan = make_plan(study, "quick")
    assert [run.seed for run in plan.runs] == [0, 0, 1, 1, 2, 2]


def test_equal_recipes_under_two_names_have_one_fingerprint(study: Study) -> None:
    twin = Study(
        study.name, study.question, study.cells, (*study.variants, Variant("rope again", {"model.position": "rope"}))
    )
    runs = make_plan(twin, "smoke").runs
    by_name = {run.variant: run.fingerprint for run in runs}
    assert by_name["rope"] == by_name["rope again"] != by_name["sinusoidal"]


def test_what_a_preset_leaves_out_is_named(study: Study) -> None:
    assert make_plan(study, "quick").skipped == (("none", "not in preset quick; --variants all, or its name, runs it"),)
    assert make_plan(study, "standard").skipped == ()
    assert make_plan(study, "quick", variants=["all"]).skipped == ()
    selected = make_plan(study, "quick", variants=["none"])
    assert {run.variant for run in selected.runs} == {"none"}
    assert selected.skipped == (("sinusoidal", "not among --variants"), ("rope", "not among --variants"))


def test_naming_a_task_selects_cells() -> None:
    plan = make_plan(STUDY, "smoke", overrides={"data.task": "g2p", "data.split": "stem"})
    assert {run.cell for run in plan.runs} == {"g2p-stem"}


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ({"variants": ["nope"]}, "--variants", "sinusoidal, rope"),
        ({"overrides": {"data.task": "nope"}}, "data.task", "copy"),
        ({"overrides": {"data.task": "g2p"}}, "data.task", "copy"),
        ({"overrides": {"model.n_heads": 7}}, "model.n_heads", "1, 2, 4, 8, 16"),
        ({"overrides": {"train.max_steps": -1}}, "train.max_steps", "at least 0"),
        ({"overrides": {"train.lr": 0.0}}, "train.lr", "above 0"),
        ({"overrides": {"model.position": "rope"}}, "model.position", "defined by it"),
        ({"overrides": {"data.batch_tokens": 5}}, "data.batch_tokens", "at least 14"),
        ({"overrides": {"model.d_model": 6, "model.n_heads": 2}}, "model.n_heads", "even"),
        ({"overrides": {"model.position_options": {"bass": 3}}}, "model.position_options", "base"),
        ({"overrides": {"model.position_options": {"base": 0}}}, "model.position_options.base", "above 1"),
        ({"cells": ["nope"]}, "--cells", "copy, all"),
    ],
)
def test_what_cannot_be_trained_is_refused(study: Study, arguments: dict, field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_plan(study, **{"preset": "smoke", **arguments})
    message = str(caught.value)
    assert field in message
    assert words in message
    assert "\n" not in message


def test_tying_over_two_vocabularies_names_both_sizes() -> None:
    cell = Cell("g2p", "g2p", {"model.tying": "all"}, "per", "words")
    with pytest.raises(ConfigError, match=r"model\.tying.*sizes 30 and 43"):
        make_plan(Study("s", "?", (cell,), (Variant("a", {}),)), "smoke")


def test_a_table_of_positions_too_short_for_the_test_sets_is_refused(study: Study) -> None:
    arms = (Variant("short", {"model.position": "learned", "model.position_options": {"rows": 20}}),)
    with pytest.raises(ConfigError, match=r"position_options\.rows: got 20.*at least 54"):
        make_plan(Study("s", "?", study.cells, arms), "smoke")


def test_training_sets_may_hold_longer_sentences_than_test_sets(study: Study) -> None:
    # The longest source to test in g2p's smoke has 16 tokens, the longest to train on 22: 2 x 22 + 10 positions.
    words = {"data.task": "g2p", "data.split": "stem", "data.max_length": 20, "data.test_examples": 20}
    arguments = {"preset": "smoke", "overrides": {**words, "model.tying": "decoder", "model.randomised_positions": 42}}
    with pytest.raises(ConfigError, match=r"model\.randomised_positions: got 42, allowed: at least 5\d\b"):
        make_plan(STUDY, **arguments)


def test_arms_that_differ_in_a_part_are_each_tried_and_sizes_are_not() -> None:
    base = Recipe().model
    assert parts(base) == parts(dataclasses.replace(base, d_model=32, n_heads=2))
    for other in ({"randomised_positions": 60}, {"attention_dropout": 0.1}, {"qk_norm": True}, {"position": "rope"}):
        assert parts(base) != parts(dataclasses.replace(base, **other))
