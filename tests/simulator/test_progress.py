"""How far a run is: what its workers tell while it goes on, and what the collector makes of it."""

from __future__ import annotations

import time
from itertools import takewhile

import numpy as np
import pytest

from simulator.collector.barrier import Barrier
from simulator.collector.status import PhaseTracker
from simulator.contract import (
    Arrivals,
    GroupStatus,
    Load,
    Phase,
    Progress,
    Ready,
    Role,
    Stage,
    make_groups,
)
from simulator.histograms import COARSE, Histogram
from simulator.worker.base import read_progress
from simulator.worker.measure import Recorder
from simulator.worker.schedule import ClosedLoop, OpenLoop, Schedule

from ..helpers import settings


def coarse(*latencies_us: float) -> Histogram:
    return Histogram.of([latency / 1e6 for latency in latencies_us], COARSE)


# --- what is due ----------------------------------------------------------------------------------


def due_times(schedule: Schedule, until: float) -> list[float]:
    return list(takewhile(lambda due: due < until, iter(lambda: schedule.next_due(0), None)))


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_due_requests_are_those_that_the_schedule_tells_of(arrivals: Arrivals) -> None:
    schedule = OpenLoop(0.01, 0.003, arrivals, seed=(1,), duration_s=20)
    schedule.begin(1000.0)
    schedule.next_due(0)
    times = [1000.0 + second for second in (0, 0.0029, 0.0031, 0.5, 7.77, 19.9)]
    counted = [schedule.count_due(at) for at in times]
    again = OpenLoop(0.01, 0.003, arrivals, seed=(1,), duration_s=20)
    again.begin(1000.0)
    due = due_times(again, 1020.0)
    assert counted == [sum(due_at <= at for due_at in due) for at in times]
    # Nothing is due after the end.
    assert schedule.count_due(1021.0) == schedule.count_due(2000.0) == len(due)


def test_requests_far_ahead_of_the_one_that_is_sent_are_estimated() -> None:
    schedule = OpenLoop(0.001, arrivals=Arrivals.POISSON, seed=(1,))
    schedule.begin(0.0)
    assert schedule.count_due(2.0) == 2000
    for _ in range(5000):
        last = schedule.next_due(0)
    count = schedule.count_due(last + 30)
    assert count is not None
    assert count == pytest.approx(35_000, rel=0.02)
    assert schedule.count_due(last) == 5000


def test_of_a_closed_loop_nothing_is_due() -> None:
    assert ClosedLoop().count_due(10.0) is None


# --- what a worker tells --------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The worker's and the collector's clock, which the test sets."""
    now = [100.0]
    monkeypatch.setattr("simulator.worker.measure.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("simulator.collector.status.time.monotonic", lambda: now[0])
    return now


def test_a_worker_tells_its_backlog_in_events(clock: list[float]) -> None:
    recorder = Recorder(OpenLoop(0.1, duration_s=10))
    recorder.begin(100.0)
    clock[0] = 101.05
    for due in (100.0, 100.1):
        recorder.record_due(due, due, due, due + 0.04, 50)
    progress = read_progress(3, "run", recorder, 50)
    assert (progress.worker, progress.stage, progress.done) == (3, "run", 100)
    assert progress.elapsed_s == pytest.approx(1.05)
    # Eleven requests were due.
    assert progress.backlog == 450
    # No more than there are, whatever the schedule says.
    assert read_progress(3, "run", recorder, 50, most=330).backlog == 230
    assert progress.latency is not None
    assert progress.latency.percentiles_ms([50]) == [pytest.approx(40, rel=0.01)]
    # Queries that failed wait for nothing.
    assert read_progress(3, "run", recorder, 50, failed=100).backlog == 350
    recorder.end()


def test_what_is_left_out_of_the_figures_is_left_out_of_progress(clock: list[float]) -> None:
    recorder = Recorder(OpenLoop(0.1, warm_up_s=5, duration_s=10))
    recorder.begin(100.0)
    recorder.record_due(100.0, 100.0, 100.0, 103.0, 1)
    latency = read_progress(0, "run", recorder).latency
    assert latency is not None and latency.count == 0
    recorder.record_due(105.0, 105.0, 105.0, 105.02, 1)
    latency = read_progress(0, "run", recorder).latency
    assert latency is not None
    assert latency.percentiles_ms([100]) == [pytest.approx(20, rel=0.01)]
    recorder.end()


def test_a_closed_loop_has_no_backlog_and_a_prefill_no_latency(clock: list[float]) -> None:
    recorder = Recorder()
    recorder.begin(100.0)
    recorder.record(100.0, 100.01, 1)
    assert read_progress(0, "run", recorder).backlog is None
    progress = read_progress(0, "prefill", recorder, 1000)
    assert (progress.done, progress.backlog, progress.latency) == (1, None, None)
    recorder.end()


# --- what the collector makes of it ---------------------------------------------------------------


class Story:
    """A collector's course, with workers that tell it how far they are."""

    def __init__(self, clock: list[float], *loads: Load, prefill: int = 0) -> None:
        run = settings(prefill=prefill, groups=make_groups(*loads))
        self._clock = clock
        self.phases = PhaseTracker(run, 100.0)
        self.barrier = Barrier(run, 100.0)
        self._workers = run.workers

    def start(self) -> None:
        """All are ready; the common start is now."""
        for worker in range(self._workers):
            self.barrier.arrive(Ready(worker=worker, stage=Stage.RUN))
        self.barrier.start_at = self._clock[0]
        self.phases.enter(Phase.RUN)

    def tell(self, worker: int, done: int, **more: object) -> None:
        assert self.barrier.start_at is not None
        values = {"worker": worker, "stage": "run", "done": done, **more}
        values.setdefault("elapsed_s", self._clock[0] - self.barrier.start_at)
        message = Progress.model_validate(values)
        self.phases.take_report(message, self.barrier.advance(message))

    def groups(self) -> list[GroupStatus]:
        return self.phases.status(self.barrier, None).groups


def test_the_rate_is_that_of_the_last_seconds(clock: list[float]) -> None:
    story = Story(clock, Load(workers=2, events=10_000))
    story.start()
    assert story.groups()[0].rate_per_s is None
    done = 0
    for second, rate in enumerate((100, 100, 400, 500, 600), 1):
        clock[0] = 100.0 + second
        done += rate
        story.tell(0, done)
        story.tell(1, 10 * second)
        if second == 1:
            # Both since the start.
            assert story.groups()[0].rate_per_s == pytest.approx(110)
    assert story.groups()[0].rate_per_s == pytest.approx(510)
    # When one is asked between two reports makes no difference, unless none has come for long.
    clock[0] += 0.9
    assert story.groups()[0].rate_per_s == pytest.approx(510)
    clock[0] += 3.6
    assert story.groups()[0].rate_per_s == pytest.approx(255)


def test_recent_times_are_those_of_the_last_seconds(clock: list[float]) -> None:
    """A stall shows at once, not only when it is a hundredth of all requests."""
    story = Story(clock, Load(workers=2, events=10_000))
    story.start()
    assert story.groups()[0].recent_p99_ms is None
    latencies_us = [2_000.0] * 20_000
    for second in range(1, 6):
        clock[0] = 100.0 + second
        latencies_us += [40_000.0] * 50 * (second > 3)
        for worker in (0, 1):
            story.tell(worker, len(latencies_us), latency=coarse(*latencies_us))
        if second == 1:
            assert story.groups()[0].recent_p50_ms == pytest.approx(2, rel=0.03)
    (writers,) = story.groups()
    assert writers.p99_ms == pytest.approx(2, rel=0.03)
    assert writers.recent_p50_ms == writers.recent_p99_ms == pytest.approx(40, rel=0.03)
    for second in (6, 7, 8):
        clock[0] = 100.0 + second
        for worker in (0, 1):
            story.tell(worker, len(latencies_us), latency=coarse(*latencies_us))
    assert story.groups()[0].recent_p99_ms is None


def test_how_long_answers_are_is_told_of_readers(clock: list[float]) -> None:
    story = Story(clock, Load(role=Role.READ, duration_s=60))
    story.start()
    for second in (1, 2, 3, 4):
        clock[0] = 100.0 + second
        story.tell(0, 10 * second, rows=1_000 * second, bytes=70_000 * second)
    (readers,) = story.groups()
    assert [readers.rate_per_s, readers.rows_per_s] == pytest.approx([10, 1_000])
    assert readers.bytes_per_s == pytest.approx(70_000)
    writing = Story(clock, Load(workers=1, events=10))
    writing.start()
    clock[0] += 1
    writing.tell(0, 10)
    assert writing.groups()[0].rows_per_s is None


def test_writers_and_readers_are_told_apart(clock: list[float]) -> None:
    story = Story(
        clock,
        Load(workers=2, duration_s=60, warm_up_s=10),
        Load(role=Role.READ, workers=1, duration_s=60, warm_up_s=10, rate_per_s=4),
    )
    story.start()
    clock[0] = 101.0
    fast = coarse(*[2_000] * 99)
    story.tell(0, 500, backlog=7, latency=fast, retries=1)
    story.tell(1, 700, backlog=5, latency=coarse(*[80_000] * 3))
    story.tell(2, 4, latency=coarse(300_000), failed=2)
    status = story.phases.status(story.barrier, None)
    assert (status.elapsed_s, status.warm_up_s, status.duration_s) == (1.0, 10, 60)
    writers, readers = status.groups
    assert (writers.role, writers.done, writers.total) == (Role.WRITE, 1200, None)
    assert (writers.backlog, writers.retries) == (12, 1)
    assert writers.rate_per_s == pytest.approx(1200)
    # Three of 102 are slower than the others: percentiles of all, not the mean of theirs.
    assert writers.p99_ms == pytest.approx(80, rel=0.03)
    assert (readers.role, readers.done, readers.backlog) == (Role.READ, 4, None)
    assert (writers.failed, readers.failed) == (0, 2)
    assert (writers.is_open, readers.is_open) == (False, True)
    assert readers.p99_ms is None  # of four queries
    assert readers.rate_per_s == pytest.approx(4)


def test_those_who_only_prefill_are_no_group_of_the_run(clock: list[float]) -> None:
    readers = Load(role=Role.READ, workers=1, duration_s=60)
    story = Story(clock, Load(role=Role.FILL, workers=1), readers, prefill=300)
    story.phases.enter(Phase.PREFILL)
    message = Progress(worker=0, stage="prefill", elapsed_s=2, done=200)
    story.phases.take_report(message, story.barrier.advance(message))
    status = story.phases.status(story.barrier, None)
    assert status.elapsed_s is None
    (filling,) = status.groups
    assert (filling.role, filling.done, filling.total) == (Role.FILL, 200, 300)
    assert filling.rate_per_s == pytest.approx(100)
    story.barrier.arrive(Ready(worker=0, stage=Stage.RUN, prefilled=300))
    (filling,) = story.groups()
    assert (filling.done, filling.rate_per_s) == (300, None)
    story.start()
    assert [group.role for group in story.groups()] == [Role.READ]
    story.phases.enter(Phase.VERIFY)
    assert story.groups() == []


def find_telling_s(requests: int) -> float:
    """The CPU time in which a worker that has sent this many requests tells how far it is."""
    recorder = Recorder(OpenLoop(1e-4, arrivals=Arrivals.POISSON, seed=(1,), duration_s=1))
    origin = time.perf_counter()
    recorder.begin(origin)
    for latency in np.random.default_rng(0).lognormal(-6, 1, requests).tolist():
        recorder.record_due(origin, origin, origin, origin + latency, 1)
    spent_s = []
    for _ in range(50):
        began = time.thread_time()
        read_progress(0, "run", recorder).model_dump_json()
        spent_s.append(time.thread_time() - began)
    recorder.end()
    return min(spent_s)


def test_telling_costs_a_worker_little() -> None:
    """It can't send meanwhile. 20 to 230 µs once a second, by machine and by how different latencies are,
    with the message: an entry for each request would take more than a millisecond."""
    assert find_telling_s(20_000) < 5 * find_telling_s(20)
