"""The wait for a report: what ends it, when, and with which words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cli.run.executors import (
    Failed,
    PartChanged,
    Problem,
    Problems,
    ReportArrived,
    RunUnderWay,
    await_report,
)
from cli.system.errors import RunFailed
from simulator.contract import GroupStatus, Phase, Report, Role, Status

from ....helpers import make_report

RUN = "run"


class Parts(RunUnderWay):
    """A run whose parts say by themselves what is wrong with them."""

    def notice(self, news: Any) -> None:
        self.problems.note(*news)

    def describe_start(self) -> str:
        return "nothing has begun"


def status(phase: Phase = Phase.RUN, run: str = RUN, **more: Any) -> Status:
    """What the collector of a run answers."""
    return Status(run_id=run, phase=phase, age_s=7.0, **more)


def report() -> Report:
    """A report whose content doesn't matter."""
    return make_report()


def failure(parts: Parts, within_s: float | None = None) -> str:
    """Why there is no report, with a time limit if one is given."""
    deadline = None if within_s is None else time.monotonic() + within_s
    with pytest.raises(RunFailed) as failed:
        await_report(parts, RUN, deadline, lambda status: None)
    return failed.value.message


def test_status_is_shown_until_the_report_comes() -> None:
    parts = Parts()
    shown: list[Status] = []
    sent = report()
    for event in (status(run="earlier"), status(Phase.PREPARE), status(), ReportArrived(sent)):
        parts.events.put(event)
    arrival = await_report(parts, RUN, None, shown.append)
    assert arrival.report is sent
    assert [update.phase for update in shown] == [Phase.PREPARE, Phase.RUN]
    assert arrival.heard_at is not None
    assert arrival.age_s == 7.0


def test_a_run_that_is_not_heard_of_is_starting() -> None:
    parts = Parts()
    shown: list[Status] = []
    with pytest.raises(RunFailed):
        await_report(parts, RUN, time.monotonic() + 0.7, shown.append)
    assert {update.phase for update in shown} == {Phase.START}


def test_a_failure_ends_it() -> None:
    parts = Parts()
    parts.events.put(Failed("the table is gone"))
    assert failure(parts) == "the table is gone"


def test_a_problem_ends_it_when_it_has_lasted() -> None:
    parts = Parts()
    parts.events.put(PartChanged(("worker 1", Problem("worker 1 ended", 0.4))))
    began = time.monotonic()
    assert failure(parts) == "worker 1 ended"
    assert time.monotonic() - began >= 0.4


def test_a_problem_that_passes_does_not() -> None:
    parts = Parts()
    # A busy machine hears that it has passed before it counts.
    parts.events.put(PartChanged(("pod a", Problem("image pull", 0.5))))
    parts.events.put(PartChanged(("pod a", None)))
    assert "--timeout was reached" in failure(parts, within_s=0.7)


def test_who_has_told_the_collector_why_is_not_asked_for_the_status() -> None:
    parts = Parts()
    parts.events.put(PartChanged(("worker 1", Problem("worker 1 ended with status 1", 5.0))))
    parts.events.put(Failed("worker 1: no such host"))
    assert failure(parts) == "worker 1: no such host"


def test_the_deadline_says_how_far_the_run_has_come() -> None:
    parts = Parts()
    assert failure(parts, within_s=0).endswith("--timeout was reached: nothing has begun")
    group = GroupStatus(role=Role.WRITE, done=3, total=5)
    parts.events.put(status(Phase.RUN, groups=[group]))
    assert failure(parts, within_s=0.2).endswith(": phase run, 3 of 5 done")
    group = GroupStatus(role=Role.READ, done=3)
    parts.events.put(status(Phase.RUN, groups=[group], elapsed_s=7.2, duration_s=60))
    assert failure(parts, within_s=0.2).endswith(": phase run, 3 done, 7 of 60 s")
    parts.events.put(status(Phase.BARRIER, waiting_for=[2, 4]))
    assert failure(parts, within_s=0.2).endswith(": phase barrier, waiting for workers 2, 4")


def test_the_deadline_says_what_is_wrong_by_then() -> None:
    parts = Parts()
    parts.problems.note("pod a", Problem("pod a can't be scheduled", 10.0))
    assert failure(parts, within_s=0.1).endswith("nothing has begun; pod a can't be scheduled")


def test_events_without_end_do_not_keep_the_deadline_from_being_noticed() -> None:
    parts = Parts()

    def show(_: Status) -> None:
        parts.events.put(status())

    parts.events.put(status())
    with pytest.raises(RunFailed, match="--timeout was reached"):
        await_report(parts, RUN, time.monotonic() + 0.2, show)


def test_of_several_problems_the_most_telling_is_told() -> None:
    problems = Problems()
    problems.note("job w", Problem("job w failed", 0.0, rank=1))
    problems.note("pod a", Problem("pod a was evicted"))
    with pytest.raises(RunFailed, match="pod a was evicted"):
        problems.raise_due()
    problems.note("pod a", None)
    with pytest.raises(RunFailed, match="job w failed"):
        problems.raise_due()


def test_a_problem_counts_from_when_something_was_wrong_first() -> None:
    problems = Problems()
    problems.note("pod a", Problem("ErrImagePull", 8.0))
    first = problems.first_due()
    time.sleep(0.01)
    problems.note("pod a", Problem("ErrImagePull", 8.0))
    assert problems.first_due() == first
    problems.note("pod a", Problem("ImagePullBackOff", 0.0))
    with pytest.raises(RunFailed, match="ImagePullBackOff"):
        problems.raise_due()
