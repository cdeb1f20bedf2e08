"""What a worker measures of itself and of its requests."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from simulator.histograms import encode_histogram, latency_ms, merge_histograms, new_histogram
from simulator.worker.measure import Recorder, throttled_periods, throttled_share

from ..helpers import histogram_of


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
    measured = recorded(*requests).result(0.0, 0.0, 0.0)
    assert measured.events == 32
    assert measured.timeline == [(0, 20), (1, 5), (3, 7)]
    assert measured.end_s == pytest.approx(3.99)
    assert 0 <= measured.start_s < 2
    latencies = latency_ms(merge_histograms([measured.histogram]))
    assert latencies is not None
    assert latencies.p50 == pytest.approx(250, rel=0.002)
    assert latencies.max == pytest.approx(2990, rel=0.002)
    assert merge_histograms([measured.histogram]).get_total_count() == 4


def test_the_window_ends_with_the_last_answer_in_whatever_order_they_are_told() -> None:
    measured = recorded((0.1, 2.0, 1), (0.2, 1.5, 1)).result(0.0, 0.0, 0.0)
    assert measured.end_s == pytest.approx(2.0)


def test_a_window_with_nothing_in_it() -> None:
    measured = recorded().result(0.0, 0.0, 0.0)
    assert measured.events == 0
    assert measured.end_s == measured.start_s
    assert latency_ms(merge_histograms([measured.histogram])) is None


def test_a_request_quicker_than_the_clock_counts() -> None:
    measured = recorded((1.0, 1.0, 1)).result(0.0, 0.0, 0.0)
    assert merge_histograms([measured.histogram]).get_total_count() == 1


def test_costs_are_handed_on() -> None:
    recorder = recorded((0, 1, 1))
    recorder.retries = 3
    recorder.errors.update({"deadlock_detected": 2, "connection_lost": 1})
    measured = recorder.result(1.5, 2.5, 1e6)
    assert (measured.generate_s, measured.encode_s, measured.ceiling_per_s) == (1.5, 2.5, 1e6)
    assert measured.retries == 3
    assert measured.errors == {"deadlock_detected": 2, "connection_lost": 1}


def test_the_processs_cpu_is_counted_from_begin_to_end() -> None:
    recorder = Recorder()

    def burn(seconds: float) -> None:
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass

    burn(0.05)
    recorder.begin(time.perf_counter())
    burn(0.02)
    recorder.end()
    burn(0.05)
    assert 0.02 <= recorder.result(0, 0, 0).cpu_s < 0.04


def test_merged_histograms_are_the_histogram_of_all() -> None:
    """Percentiles can't be averaged, counts can be added."""
    generator = np.random.Generator(np.random.PCG64(0))
    samples = [generator.lognormal(8, 2, 2000).astype(int) + 1 for _ in range(3)]
    merged = merge_histograms(histogram_of(*sample.tolist()) for sample in samples)
    union = new_histogram()
    for value in np.concatenate(samples).tolist():
        union.record_value(value)
    assert encode_histogram(merged) == encode_histogram(union)
    assert merged.get_total_count() == 6000
    for percent in (50, 90, 99, 100):
        exact = np.percentile(np.concatenate(samples), percent, method="inverted_cdf")
        assert merged.get_value_at_percentile(percent) == pytest.approx(exact, rel=0.002)


def test_percentiles_are_milliseconds() -> None:
    latencies = latency_ms(merge_histograms([histogram_of(*range(1000, 1_001_000, 1000))]))
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
