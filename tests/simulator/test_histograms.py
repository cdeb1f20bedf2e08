"""Latencies recorded many at a time are where the histogram's own library puts each."""

from __future__ import annotations

import base64
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from simulator.histograms import (
    HistogramError,
    LatencyRecorder,
    coarsen_histogram,
    encode_histogram,
    find_percentiles_ms,
    latency_ms,
    merge_histograms,
    new_histogram,
)

EDGES_US = [1, 2, 1023, 1024, 2047, 2048, 2049, 4095, 4096, 2**31 - 1, 2**31, 3_600_000_000]


def test_each_latency_counts_where_the_library_counts_it() -> None:
    draw = random.Random(1)
    values_us = EDGES_US + [int(10 ** draw.uniform(0, 9.5)) for _ in range(5_000)]
    expected, recorder = new_histogram(), LatencyRecorder()
    for value in values_us:
        expected.record_value(value)
        recorder.record((value + 0.5) / 1e6)
        if value == EDGES_US[-1]:
            # What is still pending counts too, the longest included.
            assert sum(recorder.coarsen()[1]) == len(EDGES_US)
    assert recorder.coarsen() == coarsen_histogram(expected)
    histogram = recorder.finish()
    assert encode_histogram(histogram) == encode_histogram(expected)
    assert histogram.get_total_count() == len(values_us)
    assert (histogram.get_min_value(), histogram.get_max_value()) == (
        expected.get_min_value(),
        expected.get_max_value(),
    )


def test_latencies_out_of_range_count_at_its_ends() -> None:
    recorder = LatencyRecorder()
    recorder.record(0.0)
    recorder.record(5_000.0)
    recorder.record_us(0.3, 2)
    histogram = recorder.finish()
    assert histogram.get_total_count() == 4
    assert histogram.get_count_at_value(1) == 3
    assert histogram.get_count_at_value(3_600_000_000) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda _: bytes(100_000_000),  # 100 kB that inflate to 100 MB
        lambda payload: payload[:20],
        lambda payload: payload[:12] + b"\0\0\0\5" + payload[16:],  # five digits
        lambda payload: payload[:40] + b"\xff" * 20,
        lambda payload: b"abc" + payload,
    ],
)
def test_what_is_no_histogram_of_this_tool_is_refused(change: Callable[[bytes], bytes]) -> None:
    recorder = LatencyRecorder()
    recorder.record(0.001)
    packed = base64.b64decode(encode_histogram(recorder.finish()))
    changed = zlib.compress(change(zlib.decompress(packed[8:])))
    text = base64.b64encode(packed[:4] + len(changed).to_bytes(4, "big") + changed).decode()
    tracemalloc.start()
    with pytest.raises(HistogramError, match="a histogram is damaged"):
        merge_histograms([text])
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "AAAA", "é", "A", "x" * 50])
def test_a_text_that_is_no_histogram_is_refused(text: str) -> None:
    with pytest.raises(HistogramError):
        merge_histograms([text])


@pytest.mark.parametrize(
    ("requests", "p99", "p99_9"), [(99, False, False), (100, True, False), (1000, True, True)]
)
def test_percentiles_of_too_few_requests_are_not_known(
    requests: int, p99: bool, p99_9: bool
) -> None:
    recorder = LatencyRecorder()
    for number in range(requests):
        recorder.record(0.001 * (number + 1))
    latency = latency_ms(recorder.finish())
    assert latency is not None
    assert (latency.p99 is not None, latency.p99_9 is not None) == (p99, p99_9)
    assert latency.tail == pytest.approx(latency.p99 or latency.max)
    live = find_percentiles_ms([recorder.coarsen()], [50, 99])
    assert live[0] is not None and (live[1] is not None) == p99
