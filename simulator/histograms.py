"""Histograms of latency: what workers record and the collector merges."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hdrh import codec
from hdrh.histogram import HdrHistogram

from .contract import LatencyMs
from .errors import SimulatorError

if TYPE_CHECKING:
    from numpy import floating, signedinteger
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]
    IntArray = NDArray[signedinteger[Any]]

# 1 µs to 1 h with three digits. The same in every process: only equal histograms merge.
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 3_600_000_000, 3

_PENDING = 512
"""Latencies recorded at once: with numpy each costs 0.1 µs instead of 2, and all together less than 50."""

_COARSE_PARTS = 16
"""Parts of each power of two in coarse counts. A percentile from them is at most 3 % off."""

LEAST_REQUESTS = {99.0: 100, 99.9: 1_000}
"""Percentile -> how many requests it needs: of fewer, the slowest one alone decides it."""


class HistogramError(SimulatorError):
    """A text is no histogram of this tool."""


_DAMAGED = (
    ValueError, LookupError, ArithmeticError, zlib.error, HistogramError, codec.HdrCookieException,
    codec.HdrLengthException, codec.HdrHistogramSettingsException,
)  # fmt: skip
"""What the library raises for a text that is no histogram."""

_SHOWN = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9, "max": 100.0}

CoarseCounts = tuple[int, list[int]]
"""A histogram in coarse parts: the number of the first part in which there are requests, and how many
there are in each part from it on."""


def new_histogram() -> HdrHistogram:
    """An empty latency histogram in µs."""
    return HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)


class LatencyRecorder:
    """Records latencies into a histogram, many at a time. One thread records."""

    def __init__(self, turn: float = 0.0) -> None:
        """`turn`: of several recorders of the same requests, each records its first ones after another
        share of the usual number; all at once they'd hold up the next request for 0.3 ms."""
        self._histogram = new_histogram()
        self._pending: list[float] = []
        self._most = _PENDING - int(turn * _PENDING)

    def record(self, latency_s: float) -> None:
        """Note one latency. In the hot path."""
        self._pending.append(latency_s)
        if len(self._pending) >= self._most:
            self._most = _PENDING
            self._record_pending()

    def settle(self) -> None:
        """Use a good moment to do what recording would do sooner or later."""
        if 2 * len(self._pending) >= self._most:
            self._most = _PENDING
            self._record_pending()

    def record_us(self, latency_us: float, count: int) -> None:
        """Note a latency that `count` requests had."""
        self._histogram.record_value(max(_LOWEST_US, latency_us), count)

    def record_many(self, latencies_s: FloatArray) -> None:
        """Note latencies; there may be millions of them."""
        import numpy as np

        latencies_us = latencies_s * 1e6
        # As exact as the histogram's three digits, without a step for each of them.
        unit = 10 ** np.maximum(0, np.floor(np.log10(np.maximum(latencies_us, 1))) - 3)
        values, counts = np.unique(np.round(latencies_us / unit) * unit, return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.record_us(value, count)

    def _record_pending(self) -> None:
        import numpy as np

        pending, self._pending = self._pending, []
        values_us = _clip_us(pending)
        histogram = self._histogram
        np.add.at(np.frombuffer(histogram.counts, np.int64), _find_places(values_us), 1)
        histogram.total_count += len(values_us)
        histogram.min_value = min(histogram.min_value, int(values_us.min()))
        histogram.max_value = max(histogram.max_value, int(values_us.max()))

    def finish(self) -> HdrHistogram:
        """The histogram of all that was recorded."""
        if self._pending:
            self._record_pending()
        return self._histogram

    def coarsen(self) -> CoarseCounts:
        """What was recorded so far, in coarse parts. May be called in another thread: then what is being
        recorded may be missing, or be there twice."""
        return coarsen_histogram(self._histogram, self._pending)


def merge_histograms(encoded: Iterable[str]) -> HdrHistogram:
    """The sum of encoded histograms (percentiles can't be averaged, counts can be added). HistogramError if
    one is damaged, or isn't laid out like `new_histogram`."""
    merged = new_histogram()
    for text in encoded:
        try:
            _check_payload(text)
            merged.decode_and_add(text)
        except _DAMAGED as error:
            raise HistogramError(
                "a histogram is damaged, or not from this tool: leave its result out, or measure"
                " again"
            ) from error
    return merged


def _check_payload(text: str) -> None:
    """Inflate no more than a histogram can have: a few bytes may inflate to gigabytes. HistogramError if
    there is more, or if its header says that it is laid out in another way."""
    packed = base64.b64decode(text, validate=True)
    inflater = zlib.decompressobj()
    most = codec.payload_header_size + _layout().counts_len * codec.V2_MAX_WORD_SIZE_IN_BYTES
    payload = inflater.decompress(packed[codec.ext_header_size :], most)
    if not inflater.eof:
        raise HistogramError("too long")
    header = codec.PayloadHeader.from_buffer_copy(payload)
    own = (
        header.significant_figures,
        header.lowest_trackable_value,
        header.highest_trackable_value,
    )
    if own != (_DIGITS, _LOWEST_US, _HIGHEST_US):
        raise HistogramError("laid out in another way")


def encode_histogram(histogram: HdrHistogram) -> str:
    """Base64 of the compressed V2 form, readable by every HdrHistogram implementation."""
    return str(histogram.encode().decode("ascii"))


def values_at(histogram: HdrHistogram, percents: Sequence[float]) -> list[float]:
    """For each percentage the smallest value that so many percent of all don't exceed; 0 for an empty
    histogram.

    The library itself rounds the rank to the nearest, so that the slowest of 600 requests, say, would
    be above the percentile 99.9.
    """
    count = histogram.get_total_count()
    if not count:
        return [0.0] * len(percents)
    # Not 999.0000000000001 of 1,000.
    ranks = [max(1, math.ceil(round(percent * count / 100, 6))) for percent in percents]
    rank_percents = [100 * rank / count for rank in ranks]
    values = histogram.get_percentile_to_value_dict(rank_percents)
    return [float(values[percent]) for percent in rank_percents]


def latency_ms(histogram: HdrHistogram) -> LatencyMs | None:
    """The percentiles that a table shows, without those for which there are too few requests; None if
    nothing was recorded."""
    count = histogram.get_total_count()
    if not count:
        return None
    percents = {name: percent for name, percent in _SHOWN.items() if has_percentile(percent, count)}
    values_us = values_at(histogram, list(percents.values()))
    return LatencyMs(**{name: us / 1000 for name, us in zip(percents, values_us, strict=True)})


def has_percentile(percent: float, requests: int) -> bool:
    """Whether so many requests are enough for a percentile to be shown."""
    return requests >= LEAST_REQUESTS.get(percent, 1)


def coarsen_histogram(histogram: HdrHistogram, pending_s: Sequence[float] = ()) -> CoarseCounts:
    """A histogram, and latencies that aren't in it yet, in so few numbers that a thousand workers can send
    them every second."""
    import numpy as np

    first, _, _ = _make_parts()
    pending_us = _clip_us(pending_s)
    longest_us = max(int(histogram.max_value), int(pending_us.max(initial=0)))
    # Mostly a tenth of the counts (180 KB) is in use; to read all would hold up requests for 0.3 ms.
    used = int(_find_places(np.array([longest_us]))[0]) + 1
    fine = np.frombuffer(histogram.counts, np.int64, used).copy()
    np.add.at(fine, _find_places(pending_us), 1)
    return _trim(np.add.reduceat(fine, first[: first.searchsorted(used)]))


def coarsen_latencies(latencies_s: Sequence[float]) -> CoarseCounts:
    """The same for latencies alone."""
    return coarsen_histogram(_layout(), latencies_s)


def find_percentile_ms(coarse: Iterable[CoarseCounts], percentile: float) -> float | None:
    """A percentile of all requests in these counts together, in ms; None if there are too few."""
    return find_percentiles_ms(coarse, [percentile])[0]


def find_percentiles_ms(
    coarse: Iterable[CoarseCounts],
    percentiles: Sequence[float],
    before: Iterable[CoarseCounts] = (),
) -> list[float | None]:
    """Percentiles of all requests in these counts together, in ms; None if there are too few. `before`: what
    was in them earlier, and is left out."""
    import numpy as np

    _, _, middle_us = _make_parts()
    # What was counted while it was being recorded may be missing, or be there twice.
    up_to = np.maximum(_add_up(coarse) - _add_up(before), 0).cumsum()
    count = int(up_to[-1])
    return [
        float(middle_us[up_to.searchsorted(max(1, int(count * percentile / 100 + 0.5)))]) / 1000
        if count and has_percentile(percentile, count)
        else None
        for percentile in percentiles
    ]


def add_coarse(first: CoarseCounts, second: CoarseCounts) -> CoarseCounts:
    """All requests of both."""
    return _trim(_add_up([first, second]))


def subtract_coarse(later: CoarseCounts, earlier: CoarseCounts) -> CoarseCounts:
    """What was added to the earlier counts since then."""
    import numpy as np

    return _trim(np.maximum(_add_up([later]) - _add_up([earlier]), 0))


def _trim(counts: IntArray) -> CoarseCounts:
    filled = counts.nonzero()[0]
    return (int(filled[0]), counts[filled[0] : filled[-1] + 1].tolist()) if len(filled) else (0, [])


def write_coarse(coarse: CoarseCounts) -> str:
    """A line for a result: the first part's number, then how many requests there are in each part."""
    return ",".join(map(str, [coarse[0], *coarse[1]]))


def read_coarse(text: str) -> CoarseCounts:
    """The counts of such a line; ValueError if it is none."""
    first, *counts = map(int, text.split(","))
    return first, counts


def split_counts(coarse: Iterable[CoarseCounts], at_most_ms: float) -> tuple[int, int]:
    """How many requests these counts have together, and how many of them certainly took longer than that."""
    _, lowest_us, _ = _make_parts()
    counts = _add_up(coarse)
    return int(counts.sum()), int(counts[lowest_us > at_most_ms * 1000].sum())


def find_fastest_ms(coarse: Iterable[CoarseCounts]) -> float | None:
    """The least that the fastest request can have taken; None if there are no requests."""
    _, lowest_us, _ = _make_parts()
    filled = _add_up(coarse).nonzero()[0]
    return max(_LOWEST_US, int(lowest_us[filled[0]])) / 1000 if len(filled) else None


def _add_up(coarse: Iterable[CoarseCounts]) -> IntArray:
    import numpy as np

    counts = np.zeros(len(_make_parts()[0]), np.int64)
    for number, requests in coarse:
        own = counts[number : number + len(requests)]
        own += np.array(requests[: len(own)], np.int64)
    return counts


def _clip_us(latencies_s: Sequence[float]) -> IntArray:
    """Whole µs within the histogram's range."""
    import numpy as np

    values_us = np.array(latencies_s, np.float64) * 1e6
    clipped: IntArray = np.clip(values_us, _LOWEST_US, _HIGHEST_US).astype(np.int64)
    return clipped


def _find_places(values_us: IntArray) -> IntArray:
    """The places of values among a histogram's counts, as `HdrHistogram.record_value` finds them: below
    2,048 each value has its own, from there on each power of two has 1,024."""
    import numpy as np

    half = _layout().sub_bucket_half_count
    _, bits = np.frexp(values_us)
    shift = np.maximum(0, bits.astype(np.int64) - half.bit_length())
    places: IntArray = (shift << (half.bit_length() - 1)) + (values_us >> shift)
    return places


@cache
def _layout() -> HdrHistogram:
    """A histogram in which nothing is recorded, to read the layout from."""
    return new_histogram()


@cache
def _make_parts() -> tuple[IntArray, IntArray, IntArray]:
    """Where each part begins among a histogram's counts, its lowest latency, and its middle one."""
    import numpy as np

    # The lowest value of each count, as `HdrHistogram.get_value_from_index` gives it for one.
    fine = _layout()
    index, half = np.arange(fine.counts_len), fine.sub_bucket_half_count
    values = np.where(index < half, index, index % half + half << np.maximum(index // half - 1, 0))
    _, exponents = np.frexp(values)
    width = np.maximum(1, (1 << exponents.astype(np.int64)) // (2 * _COARSE_PARTS))
    first = np.flatnonzero(values % width == 0)
    ends = np.append(values[first[1:] - 1], values[-1])
    return first, values[first], (values[first] + ends) // 2
