"""Rows of claims: what stands beside a verdict."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from transformer_ablate.record.index import Index
from transformer_ablate.record.records import RunRecord, StudyRecord
from transformer_ablate.report.claim_words import more_seeds, tally
from transformer_ablate.study.claims import Claim, Verdict, difference
from transformer_ablate.study.rules import Beyond, FailsMore, KeepsTo, MoreVariance, NeverFails, Rule, Within
from transformer_ablate.verdicts.claims import Judged, verdicts

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
    return row.note


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
    assert more_seeds(judged("inconclusive", n_needed=n)) == told


@pytest.mark.parametrize("rule", [FailsMore("rope", "none", "copy"), NeverFails(("rope", "none"), "copy")])
def test_runs_too_short_to_judge_say_nothing_of_failing(make_study: Make, rule: Rule) -> None:
    def found(updates: int) -> Judged:
        def change(run: RunRecord) -> RunRecord:
            curve = {"step": list(range(1, updates + 1)), "nll": [2.9] * updates}
            return dataclasses.replace(run, curve=curve, metrics={**run.metrics, "diverged": 1.0, "em/1": 0.0})

        record = make_study(change=change)
        study = dataclasses.replace(record.study, claims=(Claim("id", "it fails", "somebody", "a cell", rule),))
        (one,) = verdicts(Index(dataclasses.replace(record, study=study)))
        return one

    assert (found(24).verdict, found(24).n) == ("not run", 0)
    assert found(24).note == "no runs of rope, none in copy that are long enough to judge (100 updates)"
    assert found(100).n == 3


def judged(word: str, kind: str = "statistical", **found: Any) -> Judged:
    """A claim whose verdict is this."""
    claim = Claim("id", "a statement", "somebody", "a cell", Within(0.05), kind=kind, remark="said before")
    return Judged.of(claim, Verdict(word, "a statistic", **found))


def test_verdicts_are_written_and_read_back_whole_and_without_numbers_that_do_not_exist() -> None:
    one = judged("refuted", effect=math.inf, low=-0.5, high=math.nan, n=8, p=0.25, n_needed=9, note="why")
    assert (one.effect, one.ci_low, one.ci_high) == (None, -0.5, None)
    assert Judged.from_row(json.loads(json.dumps(one.row(), allow_nan=False))) == one


def test_a_tally_counts_what_was_computed_apart() -> None:
    found = [judged("refuted"), judged("supported", "exact"), judged("supported"), judged("supported")]
    assert tally(found) == "2 supported, 1 refuted; by computation: 1 supported"
    assert tally([]) == "no claims"
