"""What is known of a command while it runs."""

from __future__ import annotations

from typing import Any

from cli.run.live.state import MOST_POINTS, JobState, LiveState, Totals
from simulator.contract import (
    DatabaseUse,
    GroupStatus,
    Mark,
    Measure,
    Phase,
    Role,
    RunLimit,
    Status,
)


class Clock:
    """The wall clock under control."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def writers(done: int, **more: Any) -> GroupStatus:
    return GroupStatus(role=Role.WRITE, done=done, **more)


def status(phase: Phase, *groups: GroupStatus, **more: Any) -> Status:
    return Status(phase=phase, age_s=1.0, groups=list(groups), **more)


def make_state(clock: Clock | None = None) -> LiveState:
    return LiveState("insert", "somewhere", clock=clock or Clock())


def test_totals_only_rise_over_all_runs() -> None:
    """Within a run they may be told anew; between two runs progress begins at 0 again."""
    state = make_state()
    totals = []
    for run in ("first", "second"):
        state.begin_run(run)
        state.begin_run(run)
        for done, retries in ((10, 0), (30, 2), (20, 1)):
            state.follow(status(Phase.RUN, writers(done, retries=retries)))
            totals.append(state.read_figures().totals[Role.WRITE])
        # Here a group makes the right answers, and those are no queries.
        state.follow(status(Phase.CHECK, GroupStatus(role=Role.READ, done=500)))
        state.end_run("done")
    assert [total["done"] for total in totals] == [10, 30, 30, 40, 60, 60]
    assert state.read_figures().totals == {Role.WRITE: Totals(done=60, retries=4)}
    assert state.read_figures().runs_ended == 2


def test_a_page_begins_with_the_run_under_way_and_has_its_limits() -> None:
    """Once workers have begun together with that, without the prefill before it. The limits are the run's
    own, or those that the campaign requires."""
    clock = Clock()
    state = make_state(clock)
    state.note_limits([
        RunLimit(measure=Measure.P99, at_most=100),
        RunLimit(measure=Measure.P90, query="range", at_most=1000),
        RunLimit(measure=Measure.ERROR_SHARE, at_most=0.01),
    ])  # fmt: skip
    assert state.describe()["limits"] == [
        {"role": "write", "at_most": 100.0, "text": "p99=100ms"},
        {"role": "read", "at_most": 1000.0, "text": "query:range:p90=1s"},
    ]
    state.plan_jobs(["a"], [], [RunLimit(measure=Measure.P99, at_most=500)])
    state.note_limits([])
    assert [limit["text"] for limit in state.describe()["limits"]] == ["p99=500ms"]
    clock.now = 1010.0
    state.begin_run("run 1")
    clock.now = 1020.0
    state.follow(status(Phase.PREFILL, writers(5)))
    assert state.describe()["run"]["since"] == 1010.0
    clock.now = 1030.0
    state.follow(status(Phase.RUN, writers(5), elapsed_s=4.0))
    assert state.describe()["run"]["since"] == 1026.0


def test_only_what_is_new_is_told_again() -> None:
    state = make_state()
    state.plan_jobs(["a", "b", "c"], ["a"])
    state.note_job("b", JobState.RUNNING)
    state.begin_run("run 1 of 2")
    state.follow(status(Phase.RUN, writers(5, rate_per_s=2.0, recent_p99_ms=7.0)), ["3 s left"])
    whole = state.describe()
    assert whole["whole"]
    assert whole["run"]["label"] == "b: run 1 of 2"
    assert whole["run"]["words"] == ["3 s left"]
    assert [job["state"] for job in whole["jobs"]] == ["done", "running", "left"]
    (point,) = whole["points"]
    assert {key: value for key, value in point["write"].items() if value is not None} == {
        "rate": 2.0,
        "p99": 7.0,
    }
    assert "cpus" not in point

    assert state.serial == whole["serial"]
    state.follow(status(Phase.RUN, writers(9), database=DatabaseUse(cpus_used=0.5)))
    assert state.serial > whole["serial"]
    news = state.describe(whole["serial"])
    assert [point["cpus"] for point in news["points"]] == [0.5]
    assert news.keys() & {"runs", "marks", "jobs"} == set()
    state.end_run("9 inserts/s")
    later = state.describe(news["serial"])
    assert [run["outcome"] for run in later["runs"]] == ["9 inserts/s"]
    assert later["points"] == []
    assert later["run"] is None


def test_a_night_is_no_more_than_its_last_minutes() -> None:
    state = make_state()
    state.begin_run("run")
    for done in range(MOST_POINTS + 50):
        state.follow(status(Phase.RUN, writers(done)))
    points = state.describe()["points"]
    assert len(points) == MOST_POINTS
    assert points[-1]["serial"] == MOST_POINTS + 51


def test_marks_stand_at_their_time_and_are_counted_once() -> None:
    clock = Clock()
    state = make_state(clock)
    state.begin_run("run")
    clock.now = 1010.0
    begun = Mark(at_s=3.0, action="3s restart-server")
    done = begun.model_copy(update={"ended_s": 5.5})
    for elapsed_s, marks in ((4.0, [begun]), (6.0, [done]), (7.0, [done])):
        state.follow(status(Phase.RUN, writers(1), elapsed_s=elapsed_s, marks=marks))
        clock.now += 1
    (mark,) = state.describe()["marks"]
    assert (mark["at"], mark["took_s"], mark["number"]) == (1009.0, 2.5, 1)
    assert state.read_figures().marks == 1


def test_the_first_end_counts() -> None:
    state = make_state()
    assert state.describe()["ended"] is None
    state.end("failed: the disk is full")
    state.end("done")
    assert state.describe()["ended"] == "failed: the disk is full"
