"""What a worker measures of itself and of its requests."""

from __future__ import annotations

import math
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from simulator.contract import Arrivals, LatencyMs, WorkerFigures
from simulator.histograms import Histogram, merge_histograms
from simulator.worker.measure import Recorder, throttled_periods, throttled_share
from simulator.worker.schedule import ClosedLoop, OpenLoop, Schedule

from ..helpers import eventually, histogram_of


def recorded(*requests: tuple[float, float, int]) -> Recorder:
    """A recorder that was told of requests: (sent, answered, events), in s since the start."""
    recorder = Recorder()
    origin = time.perf_counter()
    recorder.begin(origin)
    for sent, answered, events in requests:
        recorder.record(origin + sent, origin + answered, events)
    recorder.end()
    return recorder


def test_each_request_lands_in_histogram_and_timeline() -> None:
    requests = ((0.1, 0.35, 10), (0.4, 0.9, 10), (0.9, 1.0, 5), (1.0, 3.99, 7))
    measured = recorded(*requests).result()
    assert measured.count == 32
    assert measured.timeline == [(0, 20), (1, 5), (3, 7)]
    assert measured.end_s == pytest.approx(3.99)
    assert 0 <= measured.start_s < 2
    latencies = LatencyMs.of(measured.histogram)
    assert latencies is not None
    assert latencies.p50 == pytest.approx(250, rel=0.002)
    assert latencies.max == pytest.approx(2990, rel=0.002)
    assert measured.histogram.count == 4


def test_the_window_ends_with_the_last_answer_in_whatever_order_they_are_told() -> None:
    measured = recorded((0.1, 2.0, 1), (0.2, 1.5, 1)).result()
    assert measured.end_s == pytest.approx(2.0)


def test_a_window_with_nothing_in_it() -> None:
    measured = recorded().result()
    assert measured.count == 0
    assert measured.end_s == measured.start_s
    assert LatencyMs.of(measured.histogram) is None


def test_a_request_quicker_than_the_clock_counts() -> None:
    measured = recorded((1.0, 1.0, 1)).result()
    assert measured.histogram.count == 1


def test_costs_are_handed_on() -> None:
    recorder = recorded((0, 1, 1))
    recorder.retries = 3
    recorder.errors.update({"deadlock_detected": 2, "connection_lost": 1})
    measured = recorder.result(generate_s=1.5, encode_s=2.5, ceiling_per_s=1e6)
    assert (measured.generate_s, measured.encode_s, measured.ceiling_per_s) == (1.5, 2.5, 1e6)
    assert measured.retries == 3
    assert measured.errors == {"deadlock_detected": 2, "connection_lost": 1}


def test_half_a_second_without_an_answer_is_a_gap() -> None:
    requests = ((0, 0.25, 1), (0, 0.6, 1), (0, 1.25, 1), (0, 3.0, 1))
    gaps = recorded(*requests).result().gaps
    assert [pytest.approx(gap, abs=1e-6) for gap in gaps] == [(0.6, 1.25), (1.25, 3.0)]


def test_the_gap_that_the_end_cuts_off_is_one() -> None:
    recorder = Recorder(ClosedLoop(duration_s=4.0))
    origin = time.perf_counter()
    recorder.begin(origin)
    recorder.record(origin, origin + 1.0, 1)
    recorder.end()
    assert recorder.result().gaps[-1] == pytest.approx((1.0, 4.0), abs=1e-6)


def test_the_processs_cpu_is_counted_from_begin_to_end() -> None:
    recorder = Recorder()

    def burn(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    # Far more outside than within, where the process may do something of its own, such as collecting garbage.
    burn(0.15)
    recorder.begin(time.perf_counter())
    burn(0.02)
    recorder.end()
    burn(0.15)
    assert 0.02 <= recorder.result().cpu_s < 0.15


# --- a window -------------------------------------------------------------------------------------


def total_of(histogram: Histogram | None) -> int:
    """How many requests are in a histogram."""
    assert histogram is not None
    return histogram.count


def offer(
    schedule: Schedule, *requests: tuple[float, float, float], unsent: float | None = None
) -> WorkerFigures:
    """The figures of a recorder of requests of 10 events each, (due, sent, answered) in s since the start,
    with a place in flight from when they were due. `unsent`: when the first request was due that was never
    sent."""
    recorder = Recorder(schedule)
    origin = time.perf_counter()
    recorder.begin(origin)
    for due, sent, answered in requests:
        times = (origin + due, origin + due, origin + sent, origin + answered)
        recorder.record_due(*times, 10)
    if unsent is not None:
        # As the loop does, which asks for the time of each.
        while schedule.next_due(0.0) < origin + unsent - 1e-6:
            pass
        recorder.leave_unsent(origin + unsent, 10)
    recorder.end()
    return recorder.result()


def each_second(warm_up_s: float = 0.0, duration_s: float | None = 10.0) -> OpenLoop:
    """A request is due each second."""
    return OpenLoop(1.0, 0.0, Arrivals.EVEN, (), warm_up_s, duration_s)


def test_response_time_counts_from_when_it_was_due_and_service_time_from_when_it_was_sent() -> None:
    measured = offer(each_second(), (1.0, 3.0, 3.5))
    response = LatencyMs.of(measured.histogram)
    assert measured.service_histogram is not None
    service = LatencyMs.of(measured.service_histogram)
    assert response is not None
    assert service is not None
    assert (response.max, service.max) == pytest.approx((2500, 500), rel=0.002)
    assert measured.offered is not None
    own_delay = LatencyMs.of(measured.offered.own_delay)
    assert own_delay is not None
    assert own_delay.max == pytest.approx(2000, rel=0.002)


def test_what_is_due_in_the_warm_up_is_in_the_timeline_alone() -> None:
    """Even if it is answered in the window: then it counts for the rate, as others do that are under
    way at its end."""
    measured = offer(each_second(2.0), (0.0, 0.0, 0.5), (1.0, 1.0, 2.5), (2.0, 2.0, 2.6))
    assert (measured.count, measured.measured) == (30, 20)
    assert measured.timeline == [(0, 10), (2, 20)]
    assert (total_of(measured.histogram), total_of(measured.service_histogram)) == (1, 1)
    assert measured.offered is not None
    assert measured.offered.due == 10
    assert measured.offered.due_timeline == [(0, 10), (1, 10), (2, 10)]
    assert total_of(measured.offered.own_delay) == 1
    assert (measured.start_s, measured.end_s) == pytest.approx((2.0, 10.0))


def test_an_answer_after_the_end_counts_for_the_response_time_alone() -> None:
    """It is the one that a stall held up."""
    measured = offer(each_second(), (1.0, 1.0, 1.5), (9.0, 9.0, 14.0))
    assert (measured.count, measured.measured) == (20, 10)
    assert measured.end_s == pytest.approx(10.0)
    latency = LatencyMs.of(measured.histogram)
    assert latency is not None
    assert latency.max == pytest.approx(5000, rel=0.002)
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (20, 0)
    assert measured.timeline == [(1, 10), (14, 10)]


def test_what_was_never_sent_counts_with_the_time_that_it_waited() -> None:
    """Ten requests are due; the database answers the first and stalls in the second."""
    measured = offer(each_second(), (0.0, 0.0, 0.1), (1.0, 1.0, 30.0), unsent=2.0)
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (100, 80)
    assert measured.offered.due_timeline == [(second, 10) for second in range(10)]
    assert total_of(measured.histogram) == 10
    assert total_of(measured.service_histogram) == 2
    values_us = measured.histogram.values_us([10 * n + 5 for n in range(10)])
    waited = [us / 1e6 for us in values_us]
    assert waited == pytest.approx([0.1, 1, 2, 3, 4, 5, 6, 7, 8, 29], rel=0.002)


def test_of_the_warm_up_what_was_never_sent_is_in_the_timeline_alone() -> None:
    measured = offer(each_second(5.0), unsent=1.0)
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (50, 50)
    assert [second for second, _ in measured.offered.due_timeline] == list(range(1, 10))
    assert total_of(measured.histogram) == 5


def test_millions_that_were_never_sent_are_counted_at_once() -> None:
    schedule = OpenLoop(5e-6, 0.0, Arrivals.POISSON, (1,), 0.0, 10.0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    began = time.process_time()
    recorder.leave_unsent(schedule.next_due(0.0), 1)
    assert time.process_time() - began < 5
    recorder.end()
    measured = recorder.result()
    assert measured.offered is not None
    assert measured.offered.unsent == pytest.approx(2_000_000, rel=0.005)
    assert total_of(measured.histogram) == measured.offered.unsent
    # They were due all the time, so they waited from nothing to 10 s.
    percents = [1, 10, 50, 90, 99]
    waited_us = measured.histogram.values_us(percents)
    assert waited_us == pytest.approx([percent * 1e5 for percent in percents], rel=0.02)


def test_a_closed_loop_leaves_its_warm_up_out_too() -> None:
    recorder = Recorder(ClosedLoop(2.0, 10.0))
    origin = time.perf_counter()
    recorder.begin(origin)
    for sent, answered in ((0.0, 1.0), (1.9, 2.1), (2.1, 2.2), (9.9, 12.0)):
        recorder.record(origin + sent, origin + answered, 5)
    recorder.end()
    measured = recorder.result()
    assert (measured.count, measured.measured) == (20, 10)
    assert total_of(measured.histogram) == 2
    assert (measured.service_histogram, measured.offered) == (None, None)
    assert measured.timeline == [(1, 5), (2, 10), (12, 5)]
    assert measured.end_s - measured.start_s == pytest.approx(8.0)


def test_a_run_that_ends_within_its_warm_up_has_no_window() -> None:
    recorder = Recorder(ClosedLoop(60.0))
    origin = time.perf_counter()
    recorder.begin(origin)
    recorder.record(origin, origin + 1, 5)
    recorder.end()
    measured = recorder.result()
    assert measured.end_s == measured.start_s
    assert (measured.count, measured.measured) == (5, 0)


def test_a_worker_that_starts_after_the_end_has_no_window() -> None:
    recorder = Recorder(ClosedLoop(0.0, 1.0))
    recorder.begin(time.perf_counter() - 2)
    recorder.end()
    measured = recorder.result()
    assert measured.end_s == measured.start_s


def test_cpu_and_costs_are_those_of_the_window_alone() -> None:
    """A thread reads them, whatever the worker waits for at the time."""

    def burn(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    opened: list[float] = []
    recorder = Recorder(ClosedLoop(0.2, 0.4), lambda: opened.append(time.process_time()))
    origin = time.perf_counter()
    recorder.begin(origin)
    burn(0.05)
    eventually(lambda: opened, "the window opens")
    while time.perf_counter() < origin + 0.4:
        burn(0.001)
    # Each thread ends as soon as it has read.
    assert len(recorder._timers) == 2
    for timer in recorder._timers:
        timer.join(60)
    closed = time.process_time()
    burn(0.05)
    recorder.end()
    assert len(opened) == 1
    assert 0 < recorder.result().cpu_s < closed - opened[0] + 0.01


def test_without_a_warm_up_nothing_is_forgotten() -> None:
    """What was made before the start belongs to the run's cost."""
    opened: list[int] = []
    recorder = Recorder(ClosedLoop(0.0, 0.01), lambda: opened.append(1))
    recorder.begin(time.perf_counter())
    time.sleep(0.03)
    recorder.end()
    assert opened == []


# --- histograms -----------------------------------------------------------------------------------


def test_merged_histograms_are_the_histogram_of_all() -> None:
    """Percentiles can't be averaged, counts can be added."""
    generator = np.random.Generator(np.random.PCG64(0))
    samples = [generator.lognormal(8, 2, 2000).astype(int) + 1 for _ in range(3)]
    merged = merge_histograms(histogram_of(*sample.tolist()) for sample in samples)
    assert merged == histogram_of(*np.concatenate(samples).tolist())
    assert merged.count == 6000
    percents = [50, 90, 99, 100]
    exact = np.percentile(np.concatenate(samples), percents, method="inverted_cdf")
    assert merged.values_us(percents) == pytest.approx(exact.tolist(), rel=0.002)


@pytest.mark.parametrize("count", [1, 2, 7, 10, 99, 101, 396, 600, 1000, 1599])
def test_a_percentile_is_a_value_that_so_many_percent_dont_exceed(count: int) -> None:
    """Rounded down, the rank would leave out the slowest: of 600 values, 599.4 is the place of p99.9."""
    histogram = histogram_of(*range(1, count + 1))
    for percent in ("0", "0.1", "50", "90", "95", "99", "99.9", "100"):
        rank = max(1, math.ceil(Fraction(percent) * count / 100))
        assert histogram.values_us([float(percent)]) == [rank], percent
    assert Histogram().values_us([50]) == [0]


def test_percentiles_are_milliseconds() -> None:
    latencies = LatencyMs.of(histogram_of(*range(1000, 1_001_000, 1000)))
    assert latencies is not None
    shown = (latencies.p50, latencies.p90, latencies.p99, latencies.p99_9, latencies.max)
    assert shown == pytest.approx((500, 900, 990, 999, 1000), rel=0.002)


V2 = """usage_usec 83
user_usec 60
system_usec 23
nr_periods 200
nr_throttled 7
throttled_usec 1234
"""
V2_WITHOUT_A_LIMIT = "usage_usec 83\nuser_usec 60\nsystem_usec 23\n"
V1 = "nr_periods 50\nnr_throttled 2\nthrottled_time 99\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (V2, None, (200, 7)),
        (None, V1, (50, 2)),
        (V2, V1, (200, 7)),
        (V2_WITHOUT_A_LIMIT, V1, (50, 2)),
        (V2_WITHOUT_A_LIMIT, None, None),
        (None, None, None),
    ],
    ids=["v2", "v1", "both", "v2 without a limit", "no limit", "no container"],
)
def test_throttled_periods(
    tmp_path: Path, first: str | None, second: str | None, expected: tuple[int, int] | None
) -> None:
    files = [tmp_path / "cpu.stat", tmp_path / "cpu" / "cpu.stat"]
    files[1].parent.mkdir()
    for file, text in zip(files, (first, second), strict=True):
        if text:
            file.write_text(text)
    assert throttled_periods(files) == expected


@pytest.mark.parametrize(
    ("begin", "end", "share"),
    [
        ((100, 5), (200, 7), 0.02),
        ((100, 5), (100, 5), None),
        (None, (100, 5), None),
        ((100, 5), None, None),
    ],
)
def test_throttled_share(
    begin: tuple[int, int] | None, end: tuple[int, int] | None, share: float | None
) -> None:
    assert throttled_share(begin, end) == share


def test_histograms_of_the_same_requests_are_filled_in_turns() -> None:
    """Each takes some 0.1 ms, during which no request can leave."""
    recorder = Recorder(OpenLoop(0.001))
    recorder.begin(0.0)
    filled: Counter[int] = Counter()
    histograms = (recorder._latency, recorder._service, recorder._own_delay)
    before = [0, 0, 0]
    for number in range(16_000):
        due = number * 0.001
        recorder.record_due(due, due, due + 0.0001, due + 0.0002, 1)
        after = [histogram._histogram.count for histogram in histograms]
        grown = [place for place in range(3) if after[place] > before[place]]
        assert len(grown) <= 1
        filled.update(grown)
        before = after
    assert sorted(filled.values()) == [3, 4, 4]


def half_past(warm_up_s: float = 0.0, duration_s: float | None = 3600.0) -> OpenLoop:
    """A request is due in the middle of each second."""
    return OpenLoop(1.0, 0.5, Arrivals.EVEN, (), warm_up_s, duration_s)


def give_up(
    schedule: OpenLoop, told: int, acknowledged: int, most: int | None = None
) -> WorkerFigures:
    """An open loop in batches of 10 that was given up after 9 s, with so many requests begun and done."""
    recorder = Recorder(schedule)
    origin = time.perf_counter() - 9.0
    recorder.begin(origin)
    due = [schedule.next_due(0.0) for _ in range(told)]
    for due_s in due[:acknowledged]:
        recorder.record_due(due_s, origin, due_s, due_s + 0.1, 10)
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr("simulator.worker.measure.time.perf_counter", lambda: origin + 9.0)
        recorder.give_up(10, most)
    return recorder.result()


def test_what_was_due_till_a_run_was_given_up_counts_whether_or_not_it_was_done() -> None:
    measured = give_up(half_past(), told=5, acknowledged=3)
    assert measured.measured == 30
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (90, 40)
    assert measured.offered.due_timeline == [(second, 10) for second in range(9)]
    # The two that were begun have no time; those that never were have waited till the end.
    assert total_of(measured.histogram) == 3 + 4
    response = LatencyMs.of(measured.histogram)
    assert response is not None
    assert response.max == pytest.approx(3500, rel=0.1)


def test_of_a_run_that_is_given_up_its_warm_up_is_in_the_timeline_alone() -> None:
    measured = give_up(half_past(2.0), told=1, acknowledged=1)
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (70, 70)
    assert len(measured.offered.due_timeline) == 9


def test_no_more_was_due_than_there_was_to_insert() -> None:
    measured = give_up(half_past(duration_s=None), told=5, acknowledged=3, most=65)
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (65, 15)
    assert measured.offered.due_timeline == [*((second, 10) for second in range(6)), (6, 5)]


def test_arrivals_by_chance_are_due_when_they_were_told_to_be() -> None:
    def arrivals() -> OpenLoop:
        return OpenLoop(0.001, 0.0, Arrivals.POISSON, (1, 2), 0.0, 3600.0)

    measured = give_up(arrivals(), told=20, acknowledged=20)
    schedule = arrivals()
    schedule.begin(0.0)
    times = [schedule.next_due(0.0) for _ in range(20_000)]
    assert measured.offered is not None
    assert measured.offered.due_timeline[:9] == [
        (second, 10 * sum(second <= due_s < second + 1 for due_s in times)) for second in range(9)
    ]


def test_what_was_left_at_the_end_of_the_schedule_is_left_once() -> None:
    """Patience may end while what was under way then is waited for."""
    schedule = half_past(duration_s=8.0)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter() - 9.0)
    recorder.leave_unsent(schedule.next_due(0.0), 10)
    recorder.give_up(10)
    measured = recorder.result()
    assert measured.offered is not None
    assert (measured.offered.due, measured.offered.unsent) == (80, 80)
    assert total_of(measured.histogram) == 8
