"""When a run can't keep a limit any more, and how it is ended then."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from math import sqrt

import pytest

from simulator.collector.status import NOTICE_S, LimitWatch, find_loss
from simulator.contract import (
    Arrivals,
    Group,
    Load,
    Measure,
    Progress,
    ProgressAnswer,
    QueryProgress,
    Report,
    Role,
    RunLimit,
)
from simulator.histograms import COARSE, Histogram
from simulator.worker.loop import InsertLoop
from simulator.worker.measure import Recorder
from simulator.worker.schedule import ClosedLoop, OpenLoop, Schedule

from ..helpers import histogram_of, settings
from .collecting import FakeDatabase, Run, play, until
from .writing import FakeWriter, feed

P99 = RunLimit(measure=Measure.P99, at_most=100.0)
P50 = RunLimit(measure=Measure.P50, at_most=100.0)


def counts(fast: int, slow: int = 0, fast_ms: float = 1.0, slow_ms: float = 200.0) -> Histogram:
    return Histogram.of([fast_ms / 1000] * fast + [slow_ms / 1000] * slow, COARSE)


def progress(fast: int, slow: int = 0, worker: int = 0, elapsed_s: float = 5.0) -> Progress:
    return Progress(
        worker=worker,
        stage="run",
        elapsed_s=elapsed_s,
        done=fast + slow,
        latency=counts(fast, slow),
    )


def lost(limit: RunLimit, load: Load, *messages: Progress, places: int = 1) -> str | None:
    return find_loss(limit, Group(load=load), messages, places)


def test_only_what_is_certainly_longer_counts_as_slow() -> None:
    latency = counts(5, 3) + counts(2, 1, slow_ms=100.1)
    assert (latency.count, latency.count_slower(100.0)) == (11, 3)
    # 100.1 ms is in a part that begins below 100 ms, so it may have been less.
    assert latency.count_slower(90.0) == 4
    assert latency.range_us() == pytest.approx((1_000, 200_000), rel=0.01)
    assert Histogram().count_slower(1.0) == 0


@pytest.mark.parametrize(
    ("limit", "slow", "is_lost"),
    # 10,000 requests of two workers: 100 of them may be slow, and half of them.
    [(P99, 100, False), (P99, 101, True), (P50, 5000, False), (P50, 5001, True)],
)
def test_a_percentile_is_lost_when_the_rest_has_no_room(
    limit: RunLimit, slow: int, is_lost: bool
) -> None:
    load = Load(workers=2, events=50_000, batch=10)
    reason = lost(limit, load, progress(10, slow - 1), progress(0, 1, worker=1))
    assert reason == (f"{slow:,} of at most 10,000 requests took longer" if is_lost else None)


@pytest.mark.parametrize("arrivals", [Arrivals.EVEN, Arrivals.POISSON])
def test_of_a_rate_the_most_that_can_be_due_counts(arrivals: Arrivals) -> None:
    """10,000 requests in a window of 50 s; by chance 500 more."""
    load = Load(
        rate_per_s=2000.0, batch=10, duration_s=60.0, warm_up_s=10.0, arrivals=arrivals
    )  # fmt: skip
    allowed = 105 if arrivals is Arrivals.POISSON else 100
    assert lost(P99, load, progress(0, allowed)) is None
    assert lost(P99, load, progress(0, allowed + 1)) is not None


def test_a_closed_loop_may_go_on_as_fast_as_its_fastest_request() -> None:
    """8 places and 30 s left: at 1 ms each, some 240,000 requests, of which 2,400 may be slow."""
    load = Load(workers=4, duration_s=35.0)
    assert lost(P99, load, progress(1000, 2300), places=2) is None
    assert lost(P99, load, progress(1000, 2700), places=2) is not None
    assert lost(P99, load, progress(0, 0), places=2) is None
    # At its end there are no more.
    assert lost(P99, load, progress(990, 10, elapsed_s=35.0)) is None
    assert lost(P99, load, progress(989, 11, elapsed_s=35.0)) is not None


def test_of_too_few_requests_a_percentile_is_never_known_and_never_lost() -> None:
    assert lost(P99, Load(events=99), progress(0, 99)) is None
    assert lost(P99, Load(events=100), progress(0, 2)) is not None


def test_a_share_of_errors_is_lost_when_all_else_could_not_make_up_for_it() -> None:
    limit = RunLimit(measure=Measure.ERROR_SHARE, at_most=0.01)
    load = Load(events=990)
    few, many = (progress(5).model_copy(update={"retries": n}) for n in (10, 11))
    assert lost(limit, load, few) is None
    assert lost(limit, load, many) == "11 of at most 1,001 requests failed"
    none = RunLimit(measure=Measure.ERROR_SHARE, at_most=0.0)
    assert lost(none, load, progress(5)) is None
    assert lost(none, load, progress(5).model_copy(update={"retries": 1})) is not None


def test_service_times_of_an_open_loop_are_only_known_at_the_end() -> None:
    limit = RunLimit(measure=Measure.SERVICE_P99, at_most=100.0)
    assert lost(limit, Load(events=100), progress(0, 50)) is not None
    assert lost(limit, Load(events=100, rate_per_s=10.0), progress(0, 50)) is None


def test_a_query_has_its_own_times_and_its_share_of_the_executions() -> None:
    """Two readers ask 8,000 times in all, a quarter of it `slow`: 20 of 2,000 may be longer."""
    limit = P99.model_copy(update={"query": "slow"})
    load = Load(
        role=Role.READ, workers=2, rate_per_s=100.0, duration_s=80.0, arrivals=Arrivals.EVEN,
        weights={"quick": 3.0, "slow": 1.0},
    )  # fmt: skip

    def told(slow: int, failed: int = 0) -> Progress:
        queries = {
            "quick": QueryProgress(latency=counts(0, 500)),
            "slow": QueryProgress(latency=counts(10, slow), failed=failed),
        }
        return progress(5).model_copy(update={"queries": queries})

    assert lost(limit, load, told(20)) is None
    assert lost(limit, load, told(21)) is not None
    errors = RunLimit(measure=Measure.ERROR_SHARE, at_most=0.01, query="slow")
    assert lost(errors, load, told(0, failed=20)) is None
    assert lost(errors, load, told(0, failed=21)) is not None
    by_number = Load(role=Role.READ, workers=2, runs=500)
    assert lost(limit, by_number, told(10)) is None
    assert lost(limit, by_number, told(11)) == "11 of at most 1,000 requests took longer"


def test_a_limit_is_lost_when_it_was_found_so_twice_and_not_in_the_warm_up() -> None:
    run_settings = settings(events=1000, workers=1, warm_up_s=2.0, duration_s=9.0, rate_per_s=100.0)
    watch = LimitWatch(run_settings.model_copy(update={"abort_limits": [P50, P99]}))

    def find_lost(message: Progress | None, elapsed_s: float) -> str | None:
        loss = watch.find_lost(lambda _: message, lambda _: 1, elapsed_s)
        return None if loss is None else loss[0].measure

    bad, good = progress(0, 200), progress(200)
    assert find_lost(bad, 1.0) is None
    assert find_lost(bad, 1.9) is None
    assert find_lost(bad, 3.0) is None  # suspected
    assert find_lost(bad, 3.5) is None  # too early to look again
    assert find_lost(good, 4.0) is None
    assert find_lost(bad, 5.0) is None
    assert find_lost(None, 6.0) is None
    assert find_lost(bad, 7.0) is None
    assert find_lost(bad, 8.0) == "p99"


# --- how the run ends ------------------------------------------------------------------------------


def test_all_workers_are_told_the_same_end_and_the_run_is_verified(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.collector.status.LOOK_INTERVAL_S", 0.0)
    limit = RunLimit(measure=Measure.P99, at_most=100.0)

    async def story(run: Run) -> None:
        await run.start()
        heard: list[ProgressAnswer] = []
        sent_s: list[float] = []

        async def tell(worker: int) -> None:
            message = progress(0, 5, worker=worker, elapsed_s=0.1)
            sent_s.append(time.monotonic())
            heard.append(
                ProgressAnswer.model_validate_json((await run.post("/progress", message)).content)
            )

        await until(lambda: run.collector.barrier.elapsed_s() > 0)
        await tell(0)
        assert heard[-1].ends_in_s is None  # found once
        await tell(1)
        await tell(0)
        now_s = time.monotonic()
        for answer in heard[1:]:
            # The same instant, from whenever each of them was told.
            assert answer.ends_in_s is not None
            assert NOTICE_S - (now_s - sent_s[1]) <= answer.ends_in_s <= NOTICE_S + 1e-6
        for worker in (0, 1):
            await run.result(worker, end_s=1.6, count=40, histogram=histogram_of(200_000, 200_000))
        report = Report.model_validate_json((await run.report()).content)
        result = report.run
        assert result.aborted is not None
        assert result.aborted.limit == "p99=100ms"
        assert result.aborted.reason == "10 of at most 200 requests took longer"
        # Nothing else speaks against it: events that were never to come aren't missing.
        assert result.invalid_reasons == [str(result.aborted)]
        assert result.failures == []
        (writers,) = result.groups
        assert writers.verification is not None
        assert writers.verification.stored == 80
        assert writers.rate_per_s == pytest.approx(80 / 1.6)

    database.counts = [80]
    play(story, events=100, abort_limits=[limit])


@pytest.mark.parametrize(
    "schedule",
    [
        ClosedLoop(),
        ClosedLoop(duration_s=3600.0),
        OpenLoop(0.01),
        OpenLoop(0.01, arrivals=Arrivals.POISSON, duration_s=3600.0),
        OpenLoop(60.0, duration_s=3600.0),
    ],
)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_worker_ends_when_it_is_told(schedule: Schedule, in_flight: int) -> None:
    """Also one that waits for a request that is due much later."""
    writer = FakeWriter(len, in_flight)
    recorder = Recorder(schedule)
    began = time.perf_counter()
    recorder.begin(began)
    ends: list[float] = []

    def tell() -> None:
        # A busy machine lets a timer come late: what counts is when it came.
        ends.append(time.perf_counter() + 0.1)
        recorder.end_early(ends[0])

    timer = threading.Timer(0.1, tell)
    timer.start()
    with closing(writer):
        InsertLoop(writer, recorder, 0, lambda: None, schedule).run(feed(10**9, 1)[0])
    ended = time.perf_counter()
    recorder.end()
    timer.join()
    # Not before it is told, though before the end if nothing is due until then. One that doesn't hear of it
    # goes on for an hour, or for good.
    assert ends[0] - 0.1 <= ended < ends[0] + 60
    end_s = recorder.result().end_s
    assert end_s == pytest.approx(ends[0] - began)
    figures = recorder.result()
    assert figures.measured is not None
    assert figures.measured <= figures.count
    if figures.offered is not None:
        most = end_s / 0.01
        # By chance some more.
        assert figures.offered.due <= most + 10 * sqrt(most)


def test_a_worker_that_ends_before_is_not_made_to_wait() -> None:
    schedule = ClosedLoop(duration_s=0.1)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    recorder.end_early(time.perf_counter() + 60)
    assert schedule.ends - schedule.begins == pytest.approx(0.1)
    recorder.end()
