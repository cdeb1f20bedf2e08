"""Histograms of latency: workers record them, the collector adds them up, a result stores them.

Counts of whole µs in log-linear buckets, laid out and written as HdrHistogram does (V2), so any of its
libraries reads them. Its Python library takes 2 µs for each latency and 10 ms to read one back; this takes
0.1 µs and 0.1 ms.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from .errors import SimulatorError

if TYPE_CHECKING:
    from numpy import floating, signedinteger
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]
    IntArray = NDArray[signedinteger[Any]]

_LOWEST_US, _HIGHEST_US = 1, 3_600_000_000
"""1 µs to 1 h."""

FINE, COARSE = 3, 2
"""Significant digits of stored histograms, and of those sent every second or stored for each second or
minute: a percentile is then at most 0.1 %, or 1 %, too high."""

_PENDING = 4096
"""How many latencies are recorded at once: with numpy each then costs some ns instead of 2 µs. But each time,
one or two requests of a quick open loop are sent late."""

LEAST_REQUESTS = {99.0: 100, 99.9: 1_000}
"""Percentile -> how many requests it needs: with fewer, the slowest one alone determines it."""

_COOKIE, _PACKED_COOKIE = 0x1C849313, 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")
"""Cookie, bytes of counts, offset of the first count, digits, lowest and highest value, ratio of units."""
_MOST_WORD_BYTES = 9


class HistogramError(SimulatorError):
    """A text is not a histogram of this tool."""


class Histogram:
    """How many requests took how long. If read from a text, it is unpacked each time its counts are used, so
    that a result, or a day's minutes, may have thousands."""

    def __init__(self, counts: IntArray | None = None, digits: int = FINE, text: str = "") -> None:
        """`counts`: of each bucket, none by default. `text`: what they are unpacked from."""
        import numpy as np

        self._text = text
        if counts is None and not text:
            counts = np.zeros(_find_size(digits), np.int64)
        self._counts = counts

    @classmethod
    def of(cls, latencies_s: Sequence[float] | FloatArray, digits: int = FINE) -> Self:
        """The histogram of these latencies."""
        histogram = cls(digits=digits)
        histogram.add(latencies_s)
        return histogram

    @property
    def counts(self) -> IntArray:
        """Requests in each bucket. HistogramError if the text is damaged, or its layout differs from this
        class's."""
        if self._counts is not None:
            return self._counts
        try:
            return _unpack(self._text)
        except (ValueError, LookupError, struct.error, zlib.error) as error:
            raise HistogramError(
                "a histogram is damaged, or not from this tool: leave its result out, or measure"
                " again"
            ) from error

    @property
    def text(self) -> str:
        """Base64 of the compressed V2 form, readable by every HdrHistogram implementation."""
        return self._text if self._counts is None else _pack(self._counts)

    def packed(self) -> Histogram:
        """The same in some hundred bytes, for keeping many."""
        return Histogram(text=self.text)

    @property
    def count(self) -> int:
        """The number of requests."""
        return int(self.counts.sum())

    def add(self, latencies_s: Sequence[float] | FloatArray) -> None:
        """Count latencies."""
        import numpy as np

        own = self._counts
        assert own is not None
        np.add.at(own, _find_places(_clip_us(latencies_s), _find_digits(own)), 1)

    def __add__(self, other: Histogram) -> Histogram:
        """The requests of both."""
        return merge_histograms([self, other])

    def __sub__(self, earlier: Histogram) -> Histogram:
        """What was counted since `earlier`; no bucket is below 0."""
        import numpy as np

        return Histogram(np.maximum(self.counts - earlier.counts, 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]

    def values_us(self, percents: Sequence[float]) -> list[float]:
        """For each percentage, the value that this share of all requests doesn't exceed: the highest of its
        bucket; 0 for an empty histogram."""
        import numpy as np

        up_to = self.counts.cumsum()
        count = int(up_to[-1])
        if not count:
            return [0.0] * len(percents)
        # Not 999.0000000000001 of 1,000.
        ranks = [max(1, math.ceil(round(percent * count / 100, 6))) for percent in percents]
        lowest, width = _make_parts(_find_digits(up_to))
        places = np.searchsorted(up_to, ranks)
        return [float(value) for value in (lowest + width - 1)[places].tolist()]

    def percentiles_ms(self, percents: Sequence[float]) -> list[float | None]:
        """Percentiles in ms; None if there are too few requests."""
        counts = self.counts
        total = int(counts.sum())
        values_us = Histogram(counts).values_us(percents)
        return [
            us / 1000 if total and has_percentile(percent, total) else None
            for percent, us in zip(percents, values_us, strict=True)
        ]

    def range_us(self) -> tuple[int, int]:
        """A lower bound of the fastest request's time, and an upper bound of the slowest one's. There must be
        some."""
        counts = self.counts
        filled = counts.nonzero()[0]
        lowest, width = _make_parts(_find_digits(counts))
        slowest = filled[-1]
        return max(_LOWEST_US, int(lowest[filled[0]])), int(lowest[slowest] + width[slowest] - 1)

    def count_slower(self, than_ms: float) -> int:
        """How many requests certainly took longer than this."""
        counts = self.counts
        lowest, _ = _make_parts(_find_digits(counts))
        return int(counts[lowest > than_ms * 1000].sum())

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """In messages and results: its text, unpacked when it is used."""
        read = core_schema.no_info_after_validator_function(
            lambda text: cls(text=text), core_schema.str_schema(min_length=1)
        )
        return core_schema.json_or_python_schema(
            json_schema=read,
            python_schema=core_schema.union_schema([core_schema.is_instance_schema(cls), read]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda histogram: histogram.text, return_schema=core_schema.str_schema()
            ),
        )


class LatencyRecorder:
    """Records latencies into a histogram, many at a time. One thread records."""

    def __init__(self, turn: float = 0.0) -> None:
        """`turn`: if several recorders record the same requests, each records its first ones after another
        share of the usual number; all at once they would hold up the next request for 0.3 ms."""
        self._histogram = Histogram()
        self._pending = array("d")
        self._most = _PENDING - int(turn * _PENDING)
        self._longest_s = 0.0

    def record(self, latency_s: float) -> None:
        """Record one latency. In the hot path."""
        self._pending.append(latency_s)
        if len(self._pending) >= self._most:
            self._record_pending()

    def settle(self) -> None:
        """Use a spare moment to do what recording would have to do later."""
        if 2 * len(self._pending) >= self._most:
            self._record_pending()

    def record_many(self, latencies_s: FloatArray) -> None:
        """Record latencies; there may be millions of them."""
        self._histogram.add(latencies_s)
        self._longest_s = max(self._longest_s, float(latencies_s.max(initial=0.0)))

    def _record_pending(self) -> None:
        self._most = _PENDING
        import numpy as np

        pending, self._pending = self._pending, array("d")
        self.record_many(np.frombuffer(pending))

    def finish(self) -> Histogram:
        """The histogram of everything recorded."""
        if self._pending:
            self._record_pending()
        return self._histogram

    def coarsen(self) -> Histogram:
        """What was recorded so far, in few enough buckets that a thousand workers can send it every second.
        May be called in another thread: what is being recorded may then be missing, or counted twice."""
        import numpy as np

        # A copy: an array can't grow as long as its memory is in use.
        pending = self._pending[:]
        # Usually a tenth of the counts (180 KB) is in use; reading all would hold up requests for 0.3 ms.
        used = int(_find_places(_clip_us([self._longest_s]), FINE)[0]) + 1
        fine, first = self._histogram.counts[:used], _find_coarse_parts()
        coarse = Histogram(digits=COARSE)
        parts = np.add.reduceat(fine, first[: first.searchsorted(used)])
        coarse.counts[: len(parts)] = parts
        if pending:
            coarse.add(np.frombuffer(pending))
        return coarse


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """The sum of histograms: percentiles can't be averaged, but counts can be added. HistogramError if one is
    damaged, or has a different number of digits from the first."""
    total: IntArray | None = None
    for histogram in histograms:
        counts = histogram.counts
        if total is None:
            total = counts.copy()
        elif len(total) != len(counts):
            raise HistogramError("a histogram has other digits than those that it is added to")
        else:
            total += counts
    return Histogram(total)


def has_percentile(percent: float, requests: int) -> bool:
    """Whether this many requests are enough to show a percentile."""
    return requests >= LEAST_REQUESTS.get(percent, 1)


# --- the layout of HdrHistogram -------------------------------------------------------------------


def _find_half(digits: int) -> int:
    """Below twice this many µs each value has its own bucket; above, each power of two has this many
    buckets."""
    return 1 << (math.ceil(math.log2(2 * 10**digits)) - 1)


@cache
def _find_size(digits: int) -> int:
    half = _find_half(digits)
    octaves = 1
    while 2 * half << (octaves - 1) <= _HIGHEST_US:
        octaves += 1
    return (octaves + 1) * half


def _find_digits(counts: IntArray) -> int:
    """The number of significant digits for this many buckets."""
    return next(digits for digits in (1, 2, 3) if _find_size(digits) == len(counts))


def _clip_us(latencies_s: Sequence[float] | FloatArray) -> IntArray:
    """Whole µs within the histogram's range."""
    import numpy as np

    values_us = np.array(latencies_s, np.float64) * 1e6
    clipped: IntArray = np.clip(values_us, _LOWEST_US, _HIGHEST_US).astype(np.int64)
    return clipped


def _find_places(values_us: IntArray, digits: int) -> IntArray:
    """The bucket of each value."""
    import numpy as np

    bits_of_half = _find_half(digits).bit_length()
    _, bits = np.frexp(values_us)
    shift = np.maximum(0, bits.astype(np.int64) - bits_of_half)
    places: IntArray = (shift << (bits_of_half - 1)) + (values_us >> shift)
    return places


@cache
def _make_parts(digits: int) -> tuple[IntArray, IntArray]:
    """The lowest value of each bucket, and how many values it has."""
    import numpy as np

    half = _find_half(digits)
    places = np.arange(_find_size(digits))
    octaves = np.maximum(places // half - 1, 0)
    return places - octaves * half << octaves, np.left_shift(1, octaves)


@cache
def _find_coarse_parts() -> IntArray:
    """Where each coarse bucket begins among the fine ones."""
    return _make_parts(FINE)[0].searchsorted(_make_parts(COARSE)[0])


def _pack(counts: IntArray) -> str:
    """The V2 form: each count, and for several empty buckets minus their number, in zigzag encoding with
    seven bits a byte."""
    import numpy as np

    filled = counts.nonzero()[0]
    gaps = np.diff(filled, prepend=-1) - 1
    words = np.stack([-gaps, counts[filled]], axis=1)
    signed = words[np.stack([gaps > 0, gaps >= 0], axis=1)]
    zigzag = (signed << 1 ^ signed >> 63).astype(np.uint64)[:, None]
    shifted = zigzag >> (7 * np.arange(_MOST_WORD_BYTES, dtype=np.uint64))
    present = shifted > 0
    present[:, 0] = True
    more = np.roll(present, -1, axis=1)
    more[:, -1] = False
    payload = ((shifted & 0x7F) | (more.astype(np.uint64) << 7)).astype(np.uint8)[present].tobytes()
    header = _HEADER.pack(
        _COOKIE, len(payload), 0, _find_digits(counts), _LOWEST_US, _HIGHEST_US, 1.0
    )
    packed = zlib.compress(header + payload)
    return base64.b64encode(struct.pack(">ii", _PACKED_COOKIE, len(packed)) + packed).decode()


def _unpack(text: str) -> IntArray:
    """The counts of such a text; ValueError if it isn't one. Inflates no more than a histogram can have: a
    few bytes may inflate to gigabytes."""
    import numpy as np

    packed = base64.b64decode(text, validate=True)
    inflater = zlib.decompressobj()
    payload = inflater.decompress(packed[8:], _HEADER.size + _find_size(FINE) * _MOST_WORD_BYTES)
    cookie, length, offset, digits, lowest, highest, ratio = _HEADER.unpack_from(payload)
    layout = (cookie, offset, lowest, highest, ratio)
    if not inflater.eof or layout != (_COOKIE, 0, _LOWEST_US, _HIGHEST_US, 1.0):
        raise ValueError("laid out in another way")
    data = np.frombuffer(payload, np.uint8, length, _HEADER.size)
    counts: IntArray = np.zeros(_find_size(digits) if 1 <= digits <= FINE else 0, np.int64)
    if not length:
        return counts
    ends = np.flatnonzero(data < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if ends[-1] != length - 1 or lengths.max() >= _MOST_WORD_BYTES:
        raise ValueError("a word without an end")
    shifts = 7 * (np.arange(length) - np.repeat(starts, lengths))
    zigzag = np.add.reduceat((data & 0x7F).astype(np.int64) << shifts, starts)
    signed = zigzag >> 1 ^ -(zigzag & 1)
    steps = np.where(signed < 0, -signed, 1)
    places = steps.cumsum() - steps
    has_some = signed > 0
    counts[places[has_some]] = signed[has_some]
    return counts
