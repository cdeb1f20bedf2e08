"""Latencies recorded many at a time are where the histogram's own library puts each."""

from __future__ import annotations

import random

from simulator.histograms import LatencyRecorder, coarsen_histogram, encode_histogram, new_histogram

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
    found = recorder.finish()
    assert encode_histogram(found) == encode_histogram(expected)
    assert found.get_total_count() == len(values_us)
    assert (found.get_min_value(), found.get_max_value()) == (
        expected.get_min_value(),
        expected.get_max_value(),
    )


def test_latencies_out_of_range_count_at_its_ends() -> None:
    recorder = LatencyRecorder()
    recorder.record(0.0)
    recorder.record(5_000.0)
    recorder.record_us(0.3, 2)
    found = recorder.finish()
    assert found.get_total_count() == 4
    assert found.get_count_at_value(1) == 3
    assert found.get_count_at_value(3_600_000_000) == 1
