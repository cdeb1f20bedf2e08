"""Histograms of latency are laid out and written as HdrHistogram does."""

from __future__ import annotations

import base64
import random
import tracemalloc
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from simulator.contract import LatencyMs
from simulator.histograms import (
    COARSE,
    FINE,
    Histogram,
    HistogramError,
    LatencyRecorder,
    merge_histograms,
)

EDGES_US = [1, 2, 1023, 1024, 2047, 2048, 2049, 4095, 4096, 2**31 - 1, 2**31, 3_600_000_000]


def recorded(*values_us: float) -> LatencyRecorder:
    recorder = LatencyRecorder()
    for value in values_us:
        recorder.record((value + 0.5) / 1e6)
    return recorder


@pytest.mark.parametrize("digits", [1, COARSE, FINE])
@pytest.mark.parametrize("number", [0, 1, 5_000])
def test_the_text_is_that_of_the_library(number: int, digits: int) -> None:
    draw = random.Random(1)
    values_us = EDGES_US[:number] + [int(10 ** draw.uniform(0, 9.5)) for _ in range(number)]
    library = HdrHistogram(1, 3_600_000_000, digits)
    for value in values_us:
        library.record_value(value)
    histogram = Histogram.of([(value + 0.5) / 1e6 for value in values_us], digits)
    assert histogram.text == library.encode().decode()
    read = Histogram(text=histogram.text)
    assert (read.counts == histogram.counts).all()
    assert read.count == len(values_us)
    if values_us:
        assert read.range_us()[0] == library.get_min_value()
        assert read.values_us([50, 90, 100]) == [
            library.get_value_at_percentile(percent) for percent in (50, 90, 100)
        ]


def test_what_is_told_while_it_is_recorded_is_the_same_in_coarser_parts() -> None:
    draw = random.Random(1)
    values_us = EDGES_US + [int(10 ** draw.uniform(0, 9.5)) for _ in range(5_000)]
    recorder = LatencyRecorder()
    assert recorder.coarsen().count == 0
    for number, value in enumerate(values_us, 1):
        recorder.record((value + 0.5) / 1e6)
        if number in (1, len(EDGES_US), 600):
            # What is still pending counts too, the longest included.
            assert recorder.coarsen().count == number
    coarse = Histogram.of([(value + 0.5) / 1e6 for value in values_us], COARSE)
    assert recorder.coarsen() == coarse
    assert recorder.finish().count == len(values_us)
    assert len(recorder.coarsen().text) < 2_000 < len(recorder.finish().text)


def test_latencies_out_of_range_count_at_its_ends() -> None:
    histogram = Histogram.of([0.0, 0.3e-6, 1e-6, 5_000.0])
    assert histogram.count == 4
    assert histogram.values_us([75, 100]) == [1, pytest.approx(3.6e9, rel=1e-3)]


@pytest.mark.parametrize("percentile", [1, 50, 99, 99.9, 100])
@pytest.mark.parametrize("scale_us", [1, 30, 1e3, 1e6, 3e8])
def test_a_percentile_of_all_workers_is_as_good_as_exact(
    scale_us: float, percentile: float
) -> None:
    """With one worker that is far slower: no mean of their percentiles would be near it."""
    generator = np.random.default_rng(0)
    parts = [1 + generator.lognormal(0, 0.3, 300) * scale_us * slow for slow in (1, 1, 1, 2.5)]
    exact = np.percentile(np.concatenate(parts), percentile, method="inverted_cdf") / 1000
    for digits, error in ((COARSE, 0.01), (FINE, 0.001)):
        merged = merge_histograms(Histogram.of(part / 1e6, digits) for part in parts)
        [percentile_ms] = merged.percentiles_ms([percentile])
        assert percentile_ms == pytest.approx(exact, rel=error, abs=0.001)


def test_counts_are_added_and_taken_away_again() -> None:
    fast, slow = Histogram.of([0.001] * 200), Histogram.of([0.1] * 200)
    assert fast + slow - slow == fast
    assert (fast - slow).count == 200
    assert (fast - fast).percentiles_ms([99]) == [None]
    with pytest.raises(HistogramError, match="other digits"):
        fast + Histogram(digits=COARSE)


@pytest.mark.parametrize(
    "change",
    [
        lambda _: bytes(100_000_000),  # 100 kB that inflate to 100 MB
        lambda payload: payload[:20],
        lambda payload: payload[:12] + b"\0\0\0\5" + payload[16:],  # five digits
        lambda payload: payload[:40] + b"\xff" * 20,
        lambda payload: payload[:4] + b"\0\0\0\2" + payload[8:40] + b"\xff\xff",
        lambda payload: b"abc" + payload,
    ],
)
def test_what_is_no_histogram_of_this_tool_is_refused(change: Callable[[bytes], bytes]) -> None:
    packed = base64.b64decode(Histogram.of([0.001]).text)
    changed = zlib.compress(change(zlib.decompress(packed[8:])))
    text = base64.b64encode(packed[:4] + len(changed).to_bytes(4, "big") + changed).decode()
    tracemalloc.start()
    with pytest.raises(HistogramError, match="a histogram is damaged"):
        merge_histograms([Histogram(text=text)])
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["AAAA", "é", "A", "x" * 50])
def test_a_text_that_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(HistogramError):
        merge_histograms([Histogram(text=text)])


@pytest.mark.parametrize(
    ("requests", "p99", "p99_9"), [(99, False, False), (100, True, False), (1000, True, True)]
)
def test_percentiles_of_too_few_requests_are_not_known(
    requests: int, p99: bool, p99_9: bool
) -> None:
    recorder = recorded(*(1000 * (number + 1) for number in range(requests)))
    latency = LatencyMs.of(recorder.finish())
    assert latency is not None
    assert (latency.p99 is not None, latency.p99_9 is not None) == (p99, p99_9)
    assert latency.tail == pytest.approx(latency.p99 or latency.max)
    live = recorder.coarsen().percentiles_ms([50, 99])
    assert live[0] is not None and (live[1] is not None) == p99
