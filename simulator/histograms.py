"""Histograms of latency: what workers record and the collector merges."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from hdrh.histogram import HdrHistogram

from .contract import LatencyMs

if TYPE_CHECKING:
    from numpy import signedinteger
    from numpy.typing import NDArray

    IntArray = NDArray[signedinteger[Any]]

# 1 µs to 1 h with three digits. The same in every process: only equal histograms merge.
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 3_600_000_000, 3

_COARSE_PARTS = 16
"""Parts of each power of two in coarse counts. A percentile from them is at most 3 % off."""

CoarseCounts = tuple[int, list[int]]
"""A histogram in coarse parts: the number of the first part in which there are requests, and how many
there are in each part from it on."""


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


def value_at(histogram: HdrHistogram, percent: float) -> float:
    """The smallest value that so many percent of all don't exceed; 0 of an empty histogram.

    The library itself rounds the rank to the nearest, by which the slowest of 600 requests, say, would
    be above the percentile 99.9.
    """
    count = histogram.get_total_count()
    # Not 999.0000000000001 of 1,000.
    rank = max(1, math.ceil(round(percent * count / 100, 6)))
    return float(histogram.get_value_at_percentile(100 * rank / count)) if count else 0.0


def latency_ms(histogram: HdrHistogram) -> LatencyMs | None:
    """The percentiles that a table shows, or None if nothing was recorded."""
    if not histogram.get_total_count():
        return None

    def at(percentile: float) -> float:
        return value_at(histogram, percentile) / 1000

    return LatencyMs(p50=at(50), p90=at(90), p99=at(99), p99_9=at(99.9), max=at(100))


def coarsen_histogram(histogram: HdrHistogram) -> CoarseCounts:
    """The same in so few numbers that a thousand workers can send them every second. May be called
    while another thread records."""
    import numpy as np

    first, _ = _make_parts()
    counts = np.add.reduceat(np.frombuffer(histogram.counts, np.int64), first)
    found = counts.nonzero()[0]
    if not len(found):
        return 0, []
    return int(found[0]), counts[found[0] : found[-1] + 1].tolist()


def find_percentile_ms(coarse: Iterable[CoarseCounts], percentile: float) -> float | None:
    """A percentile of all requests in these together, in ms; None if there are none."""
    import numpy as np

    _, middle_us = _make_parts()
    counts = np.zeros(len(middle_us), np.int64)
    for number, requests in coarse:
        counts[number : number + len(requests)] += np.array(requests, np.int64)
    up_to = counts.cumsum()
    if not up_to[-1]:
        return None
    wanted = max(1, int(up_to[-1] * percentile / 100 + 0.5))
    return float(middle_us[up_to.searchsorted(wanted)]) / 1000


@cache
def _make_parts() -> tuple[IntArray, IntArray]:
    """Where each part begins among a histogram's counts, and the latency in its middle."""
    import numpy as np

    # The lowest value of each count, as `HdrHistogram.get_value_from_index` has it of one.
    fine = new_histogram()
    index, half = np.arange(fine.counts_len), fine.sub_bucket_half_count
    values = np.where(index < half, index, index % half + half << np.maximum(index // half - 1, 0))
    _, exponents = np.frexp(values)
    width = np.maximum(1, (1 << exponents.astype(np.int64)) // (2 * _COARSE_PARTS))
    first = np.flatnonzero(values % width == 0)
    ends = np.append(values[first[1:] - 1], values[-1])
    return first, (values[first] + ends) // 2
