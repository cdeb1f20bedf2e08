"""How long a campaign takes: by the model, and by what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.plan.requests import InsertRequest, QueryRequest
from cli.plan.target import ExecutorName
from cli.run.campaign.plan import Candidate, Job
from cli.run.campaign.timing import Estimate, add_up, estimate_jobs, model_job
from cli.run.experiments.search import expect_steps
from simulator.contract import Load

RESULTS = Path(__file__).parents[4] / "img" / "results"


@pytest.mark.parametrize("name", ["closed", "open", "disturbed", "rolling", "capacity"])
def test_the_model_is_not_below_stored_runs(name: str) -> None:
    """Runs by the clock, with all their phases, on a machine with other work to do; not twice as long either,
    but for what is around short ones."""
    result = json.loads((RESULTS / f"example-{name}.json").read_text())
    loads, took_s = [], 0.0
    for run in result["runs"]:
        took_s += sum(run["phases_s"].values())
        [group] = run["groups"]
        duration_s = round(group["window_s"] + (group["warm_up_s"] or 0.0))
        loads.append(Load(workers=group["workers"], duration_s=duration_s))
    modelled = model_job(loads, [0] * len(loads), ExecutorName.LOCAL)
    assert modelled.open_runs == 0
    assert took_s <= modelled.known_s <= 1.25 * took_s + 5 + 3 * len(loads) + 8 * len(loads) * 0.3


def test_filling_tables_counts() -> None:
    load = Load(workers=2, duration_s=10.0)
    plain, filled = (model_job([load] * 3, [n] * 3, ExecutorName.LOCAL) for n in (0, 1_000_000))
    assert filled.known_s - plain.known_s == pytest.approx(150)
    until_done = model_job([Load(events=5)], [0], ExecutorName.LOCAL)
    assert until_done.open_runs == 1


def test_inserts_of_a_number_of_events_in_batches_have_a_length() -> None:
    load = Load(workers=2, events=100_000, batch=1000)
    estimate = model_job([load], [0], ExecutorName.LOCAL)
    assert estimate.open_runs == 0
    assert estimate.known_s > 10
    assert model_job([load.model_copy(update={"batch": 1})], [0], ExecutorName.LOCAL).open_runs == 1


def test_the_models_work_is_corrected_by_other_steps_but_its_windows_arent() -> None:
    jobs = [_job(target, step, 1) for target in "ab" for step in ("load", "disk")]
    a_load, a_disk, b_load, b_disk = jobs
    modelled = {job.name: Estimate(60.0, 40.0) for job in jobs}
    # A window of a minute, and half the work that was expected.
    estimates = estimate_jobs([a_disk, b_load], modelled, {a_load: 80.0})
    assert estimates == {name: Estimate(60.0, 20.0) for name in ("a disk 1", "b load 1")}
    # A candidate's own jobs say more than those of others.
    estimates = estimate_jobs([b_disk], modelled, {a_load: 80.0, a_disk: 70.0, b_load: 180.0})
    assert estimates["b disk 1"] == Estimate(60.0, 120.0)


def _job(target: str, step: str, repeat: int) -> Job:
    request: InsertRequest | QueryRequest = InsertRequest(target=target)
    if step == "query":
        request = QueryRequest(target=target, queries={"count-events": 1.0})
    return Job(f"{target} {step} {repeat}", Candidate(target), step, repeat, request, ())


def test_measured_jobs_say_how_long_the_others_take() -> None:
    jobs = [
        _job(target, step, n) for n in (1, 2) for target in "ab" for step in ("insert", "query")
    ]
    modelled = {job.name: Estimate(0.0, 10.0, 1) for job in jobs}

    def estimate(left: list[Job], measured_s: dict[Job, float], settle_s: float) -> Estimate:
        return add_up(estimate_jobs(left, modelled, measured_s).values(), settle_s)

    assert estimate(jobs, {}, 2.0) == Estimate(14.0, 80.0, 8)
    a_insert, a_query, *remaining = jobs
    # The other candidate is taken to be as slow, until it is measured itself.
    known_s = estimate(remaining, {a_insert: 100.0, a_query: 7.0}, 2.0).known_s
    assert known_s == 3 * 100.0 + 3 * 7.0 + 5 * 2.0
    b_insert, b_query, *remaining = remaining
    measured_s = {a_insert: 100.0, a_query: 7.0, b_insert: 20.0, b_query: 5.0}
    assert estimate(remaining, measured_s, 0.0) == Estimate(132.0)
    assert estimate([], measured_s, 2.0) == Estimate()


def test_a_search_is_expected_to_end_before_its_last_step() -> None:
    assert expect_steps(0.05, 24) in range(9, 13)
    assert expect_steps(0.5, 24) < expect_steps(0.05, 24)
    assert expect_steps(0.05, 4) == 4
