"""Latencies by the minute, from what workers report once a second."""

from __future__ import annotations

import pytest

from simulator.collector.status import MOST_MINUTES, MinuteSeries
from simulator.contract import Progress
from simulator.histograms import (
    CoarseCounts,
    add_coarse,
    coarsen_latencies,
    find_percentile_ms,
    read_coarse,
    subtract_coarse,
    write_coarse,
)

FAST, SLOW = coarsen_latencies([0.001] * 200), coarsen_latencies([0.1] * 200)


def make_progress(elapsed_s: float, latency: CoarseCounts, worker: int = 0) -> Progress:
    return Progress(worker=worker, stage="run", elapsed_s=elapsed_s, done=0, latency=latency)


def test_counts_are_added_and_taken_away_again() -> None:
    both = add_coarse(FAST, SLOW)
    assert subtract_coarse(both, SLOW) == FAST
    assert subtract_coarse(FAST, FAST) == (0, [])
    assert read_coarse(write_coarse(both)) == both


def test_each_minute_has_its_own_percentiles() -> None:
    series = MinuteSeries()
    for elapsed_s, latency in (
        (10, FAST),
        (59, FAST),
        (61, add_coarse(FAST, SLOW)),
        (119, add_coarse(FAST, SLOW)),
    ):
        series.take(make_progress(elapsed_s, latency))
    first, second = series.result()
    assert (first.begins_s, first.requests) == (0, 200)
    assert first.p99_ms == pytest.approx(1, rel=0.03)
    assert (second.begins_s, second.requests) == (60, 200)
    assert second.p99_ms == pytest.approx(100, rel=0.03)


def test_workers_and_minutes_add_up_to_the_whole() -> None:
    series = MinuteSeries()
    whole: CoarseCounts = (0, [])
    for second in range(300):
        whole = add_coarse(whole, FAST if second < 297 else SLOW)
        for worker in range(2):
            series.take(make_progress(second + 0.5, whole, worker))
    total: CoarseCounts = (0, [])
    for minute in series.result():
        total = add_coarse(total, read_coarse(minute.counts))
    assert total == add_coarse(whole, whole)
    assert find_percentile_ms([total], 99) == find_percentile_ms([whole], 99)


def test_latest_minute_is_told_once_it_is_over_for_all() -> None:
    series = MinuteSeries()
    series.take(make_progress(59, FAST, 0))
    series.take(make_progress(59, FAST, 1))
    series.take(make_progress(60, FAST, 0))
    assert series.read_latest() is None
    series.take(make_progress(60, FAST, 1))
    latest = series.read_latest()
    assert latest is not None
    assert (latest.begins_s, latest.requests) == (0, 400)


def test_run_of_one_minute_has_none() -> None:
    series = MinuteSeries()
    series.take(make_progress(30, FAST))
    assert series.result() == []


def test_more_than_a_day_by_two_minutes() -> None:
    series = MinuteSeries()
    whole: CoarseCounts = (0, [])
    for minute in range(MOST_MINUTES + 10):
        whole = add_coarse(whole, FAST)
        series.take(make_progress(60 * minute, whole))
    minutes = series.result()
    assert len(minutes) <= MOST_MINUTES
    assert {minute.length_s for minute in minutes} == {120}
    assert sum(minute.requests for minute in minutes) == 200 * (MOST_MINUTES + 10)
