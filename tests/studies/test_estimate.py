"""What a plan is said to take: from earlier runs of the same study, and one at a time where nothing may run beside."""

from __future__ import annotations

import dataclasses

import pytest

from transformer_ablate.run.estimate import SECONDS_OF_TIMING, cell_costs, print_estimate
from transformer_ablate.study.declarations import Study
from transformer_ablate.study.plan import Plan, make_plan


@pytest.fixture
def plan(study: Study) -> Plan:
    return make_plan(study, "smoke", seeds=(0, 1))


def test_earlier_runs_of_the_same_study_count_and_no_others(plan: Plan) -> None:
    run = plan.runs[0]
    past = {
        ("tiny", "smoke", run.cell, run.variant): [2.0, 4.0, 9.0],
        ("tiny", "smoke", run.cell, "another arm"): [100.0],
        ("elsewhere", "smoke", run.cell, run.variant): [1000.0],
    }
    (cost,) = cell_costs([run], past)
    assert (cost.study, cost.cell, cost.runs, cost.seconds, cost.known) == ("tiny", run.cell, 1, 4.0, 1)
    (other,) = cell_costs([r for r in plan.runs if r.variant != run.variant][:1], past)
    assert other.seconds == 6.5  # the median of all runs of the cell: 2, 4, 9 and 100


def test_runs_that_time_things_do_not_share_the_machine(plan: Plan) -> None:
    timed = [dataclasses.replace(run, measures=("throughput",)) for run in plan.runs]
    (cost,) = cell_costs(timed, {})
    assert cost.exclusive
    assert cost.seconds == len(timed) * SECONDS_OF_TIMING
    minutes = len(timed) * SECONDS_OF_TIMING / 60
    assert f"estimate: {minutes:.0f} min with 4 processes" in print_estimate([plan], [cost], workers=4)
    shared = dataclasses.replace(cost, exclusive=False)
    assert f"estimate: {minutes / 4:.0f} min with 4 processes" in print_estimate([plan], [shared], workers=4)
