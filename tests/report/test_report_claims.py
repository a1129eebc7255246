"""Rows of claims: what stands beside a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.study.claims import Claim, difference
from transformer_ablate.study.rules import Beyond, KeepsTo, MoreVariance, Rule, Within
from transformer_ablate.verdicts.claims import more_seeds, verdicts

Make = Callable[..., StudyRecord]
WITH_ROPE = {("x", "u"): "none", ("x", "v"): "rope", ("y", "u"): "none", ("y", "v"): "rope"}
ALL_BUT_ROPE = {("x", "u"): "none", ("x", "v"): "sinusoidal", ("y", "u"): "none", ("y", "v"): "sinusoidal"}


def note(make_study: Make, rule: Rule, key: str) -> str:
    """The note of a claim on RoPE against none, where two of RoPE's three seeds have not learnt to copy within N."""

    def change(run: RunRecord) -> RunRecord:
        poor = run.cell == "copy" and run.variant == "rope" and run.seed > 0
        return dataclasses.replace(run, metrics={**run.metrics, "em/1": 0.6}) if poor else run

    record = make_study(change=change)
    claim = Claim("id", "a statement", "somebody", "a cell", rule, (difference("rope", "none", key),))
    (row,) = verdicts(Index(dataclasses.replace(record, study=dataclasses.replace(record.study, claims=(claim,)))))
    return str(row["note"])


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (Beyond(0.05, counted=True), "copy/em/2"),
        (KeepsTo("rope", "copy", 1.5), "copy/em/1.5"),
        (MoreVariance(WITH_ROPE, "copy/em/2"), "copy/em/2"),
    ],
)
def test_arms_that_have_not_learnt_within_n_are_named_beside_a_claim_on_longer_inputs(
    make_study: Make, rule: Rule, key: str
) -> None:
    assert note(make_study, rule, key).endswith("seeds with EM of at least 0.95 within N: rope 1 of 3")


@pytest.mark.parametrize(
    ("rule", "key"),
    [
        (Within(0.05), "copy/valid_nll"),  # not on lengths
        (Beyond(0.05, counted=True), "g2p-length/wer/7"),  # no gate there
        (KeepsTo("none", "copy", 1.5), "copy/em/1.5"),  # all of its seeds have learnt
        (MoreVariance(ALL_BUT_ROPE, "copy/em/2"), "copy/em/2"),
        (KeepsTo("kerple", "copy", 1.5), "copy/em/1.5"),  # not run
    ],
)
def test_other_claims_say_nothing_of_it(make_study: Make, rule: Rule, key: str) -> None:
    assert "within N" not in note(make_study, rule, key).replace("over that within N", "")


@pytest.mark.parametrize(
    ("n", "told"),
    [
        (None, ""),
        (24, " (24 seeds or more would decide)"),
        (1_000, " (1000 seeds or more would decide)"),
        (1_177_811, " (at the margin: no number of seeds would do)"),
    ],
)
def test_how_many_seeds_would_decide_is_told_while_it_is_a_number_that_one_could_run(n: int | None, told: str) -> None:
    assert more_seeds({"n_needed": n}) == told
