"""Histograms of latency: what workers record and the collector merges."""

from __future__ import annotations

from collections.abc import Iterable

from hdrh.histogram import HdrHistogram

from .contract import LatencyMs

# 1 µs to 1 h with three digits. The same in every process: only equal histograms merge.
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 3_600_000_000, 3


def new_histogram() -> HdrHistogram:
    """An empty latency histogram in µs."""
    return HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)


def merge_histograms(encoded: Iterable[str]) -> HdrHistogram:
    """The sum of encoded histograms (percentiles can't be averaged, counts can be added)."""
    merged = new_histogram()
    for text in encoded:
        merged.decode_and_add(text)
    return merged


def encode_histogram(histogram: HdrHistogram) -> str:
    """Base64 of the compressed V2 form, readable by every HdrHistogram implementation."""
    return str(histogram.encode().decode("ascii"))


def latency_ms(histogram: HdrHistogram) -> LatencyMs | None:
    """The percentiles that a table shows, or None if nothing was recorded."""
    if not histogram.get_total_count():
        return None

    def at(percentile: float) -> float:
        return float(histogram.get_value_at_percentile(percentile)) / 1000

    return LatencyMs(p50=at(50), p90=at(90), p99=at(99), p99_9=at(99.9), max=at(100))
