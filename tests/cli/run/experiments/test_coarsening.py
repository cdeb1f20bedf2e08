"""The timelines of long runs coarsen; those of an hour stay."""

from __future__ import annotations

import pytest

from cli.results.model import GroupRun
from cli.run.experiments.long_runs import (
    MOST_ENTRIES,
    MOST_GAPS,
    add_up_steps,
    choose_step_s,
    coarsen_run,
    keep_most,
)
from cli.show.runs import PANELS, list_panels
from simulator.contract import (
    GroupResult,
    Offered,
    Resources,
    Role,
    RunResult,
    Stall,
    WorkerTimeline,
)

HOUR, DAY = 3_600, 86_400


def make_run(length_s: int) -> RunResult:
    seconds = [(second, 100 + second % 7) for second in range(length_s)]
    return RunResult(
        resources=Resources(timeline=[(second, 0.5, second) for second in range(length_s)]),
        groups=[
            GroupResult(
                role=Role.WRITE,
                workers=1,
                window_s=length_s,
                timeline=list(seconds),
                slowest_worker=WorkerTimeline(worker=0, timeline=list(seconds)),
                offered=Offered(
                    rate_per_s=1, due=1, achieved=1, backlog_max=0, backlog_growth=0,
                    backlog=[(second, second % 1000) for second in range(length_s)], saturated=False,
                ),
            )
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("length_s", "step_s"),
    [(0, 1), (HOUR, 1), (HOUR + 1, 2), (2 * HOUR, 2), (DAY, 30), (60 * HOUR, 60), (7 * DAY, 180)],
)
def test_step(length_s: int, step_s: int) -> None:
    assert choose_step_s(length_s) == step_s


def test_an_hour_stays_as_it_is() -> None:
    run = make_run(HOUR)
    coarsen_run(run)
    assert run == make_run(HOUR)


def test_a_day_adds_up_to_the_same() -> None:
    before, run = make_run(DAY), make_run(DAY)
    coarsen_run(run)
    group, was = run.groups[0], before.groups[0]
    assert run.step_s == 30
    assert len(group.timeline) == DAY // 30 <= MOST_ENTRIES
    assert sum(count for _, count in group.timeline) == sum(count for _, count in was.timeline)
    assert group.slowest_worker is not None
    assert group.slowest_worker.timeline == group.timeline
    assert group.offered is not None
    assert max(group.offered.backlog, key=lambda entry: entry[1])[1] == 999
    assert run.resources is not None
    assert run.resources.timeline[1] == (30, 0.5, 59)
    assert len(run.model_dump_json(indent=1)) < 1_000_000


def test_coarsened_once() -> None:
    run = make_run(DAY)
    coarsen_run(run)
    again = run.model_copy(deep=True)
    coarsen_run(again)
    assert again == run


def test_boundaries() -> None:
    assert add_up_steps([(0, 1), (1, 2), (2, 4), (9, 8)], 2) == [(0, 3), (2, 4), (8, 8)]
    assert keep_most([(0, 1), (1, 5), (2, 0), (3, 0)], 2) == [(1, 5), (2, 0)]


def test_longest_gaps_stay_in_their_order() -> None:
    run = make_run(10)
    run.groups[0].gaps = [(float(n), n + 0.5 + (n % 2) / 10) for n in range(2 * MOST_GAPS)]
    stalls = [
        Stall(worker=0, begins_s=n, length_s=0.5 + (n % 2) / 10) for n in range(2 * MOST_GAPS)
    ]
    run.groups[0].stalls = stalls
    coarsen_run(run)
    assert run.groups[0].stalls == stalls[1::2]
    assert run.groups[0].gaps == [(float(n), n + 0.6) for n in range(1, 2 * MOST_GAPS, 2)]


def list_rates(run: RunResult) -> list[tuple[float, float]]:
    panels, _ = list_panels([("x", GroupRun(run, run.groups[0]))])
    (rows,) = [panel.rows for panel in panels if panel.title == PANELS["all"]]
    return [(row["x"], row["value"]) for row in rows]


def test_rates_are_drawn_by_the_length_of_a_step() -> None:
    run = make_run(DAY)
    coarsen_run(run)
    drawn = list_rates(run)
    assert 200 < len(drawn) <= 300
    assert all(rate == pytest.approx(103, abs=0.2) for _, rate in drawn)
