"""Latencies by the minute, from what workers report once a second."""

from __future__ import annotations

import pytest

from simulator.collector.status import MOST_MINUTES, MinuteSeries
from simulator.contract import Progress
from simulator.histograms import COARSE, Histogram, merge_histograms

FAST, SLOW = Histogram.of([0.001] * 200, COARSE), Histogram.of([0.1] * 200, COARSE)


def make_progress(elapsed_s: float, latency: Histogram, worker: int = 0) -> Progress:
    return Progress(worker=worker, stage="run", elapsed_s=elapsed_s, done=0, latency=latency)


def test_each_minute_has_its_own_percentiles() -> None:
    series = MinuteSeries()
    for elapsed_s, latency in (
        (10, FAST),
        (59, FAST),
        (61, FAST + SLOW),
        (119, FAST + SLOW),
    ):
        series.take(make_progress(elapsed_s, latency))
    first, second = series.result()
    assert (first.begins_s, first.requests) == (0, 200)
    assert first.p99_ms == pytest.approx(1, rel=0.03)
    assert (second.begins_s, second.requests) == (60, 200)
    assert second.p99_ms == pytest.approx(100, rel=0.03)


def test_workers_and_minutes_add_up_to_the_whole() -> None:
    series = MinuteSeries()
    whole = Histogram(digits=COARSE)
    for second in range(300):
        whole = whole + (FAST if second < 297 else SLOW)
        for worker in range(2):
            series.take(make_progress(second + 0.5, whole, worker))
    total = merge_histograms(minute.histogram for minute in series.result())
    assert total == whole + whole


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
    whole = Histogram(digits=COARSE)
    for minute in range(MOST_MINUTES + 10):
        whole = whole + FAST
        series.take(make_progress(60 * minute, whole))
    minutes = series.result()
    assert len(minutes) <= MOST_MINUTES
    assert {minute.length_s for minute in minutes} == {120}
    assert sum(minute.requests for minute in minutes) == 200 * (MOST_MINUTES + 10)
