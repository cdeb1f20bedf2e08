"""Reads the times of events, in whatever form a recording has them, as milliseconds since 1970."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import OptionError, one_line
from .settings import Recorded
from .values import LATEST_MS, Problems

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_TEXT = re.compile("'.{1,60}?'")
"""The quoted value in an error of pyarrow's."""
_SECONDS_FROM, _SECONDS_UNTIL = 3 * 10**8, 10**11
"""Numbers from 1979 to the year 5138 are taken as seconds since 1970, numbers up to a thousand times as large
as milliseconds, and so on. Smaller ones may be anything, such as 20240131."""


Times = tuple[NDArray[np.int64], NDArray[np.int32] | None]
"""Times in ms, and how many ns each is later; None: none is."""


def read_times(array: Any, name: str, settings: Recorded, problems: Problems) -> Times:
    """The times. Values that aren't times are noted, with 0 in their place."""
    if array.null_count:
        problems.add(name, "without a time", "remove them, or name another column by recorded.time",
                     array.null_count, "row")  # fmt: skip
        whole, parts = np.zeros(len(array), dtype=np.int64), np.zeros(len(array), dtype=np.int32)
        there = array.is_valid().to_numpy(zero_copy_only=False)
        if there.any():
            whole[there], later = read_times(array.drop_null(), name, settings, problems)
            parts[there] = 0 if later is None else later
        return whole, parts
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        if settings.time_format is not None and pa.types.is_integer(kind):
            texts = array.cast(pa.string())
            times, below = _split(to_instants(texts, texts.type, settings))
        else:
            times, below = _read_numbers(array, name, settings.unit)
    else:
        try:
            times, below = _split(to_instants(array, kind, settings))
        except (pa.ArrowException, OverflowError) as error:
            found = _TEXT.search(one_line(error))
            problem = f"{found[0]} is no time" if found else one_line(error, 150)
            raise OptionError(
                f"column {name}: {problem}: write all times alike, as 2024-01-01T00:00:00.123 with or without"
                " a zone; or set recorded.time_format, as in %d.%m.%Y %H:%M"
            ) from error
    outside = int(np.count_nonzero((times < 0) | (times > LATEST_MS)))
    # A span between two times excludes them.
    if outside and "/" not in (settings.span or ""):
        problems.add(
            name, "before 1970 or after 9999",
            "set recorded.span to 2024-01-01T00:00Z/2024-01-02T00:00Z or the like, or set recorded.unit",
            outside, "time",
        )  # fmt: skip
    return times, below


def _read_numbers(array: Any, name: str, unit: str | None) -> Times:
    """Times from numbers since 1970."""
    if pa.types.is_decimal(array.type):
        array = array.cast(pa.float64())
    numbers = array.to_numpy(zero_copy_only=False)
    if unit is None:
        typical = float(np.median(np.abs(numbers.astype(np.float64))))
        if typical < _SECONDS_FROM:
            raise OptionError(
                f"column {name}: {numbers[0]} isn't a time since 1970 in a usual unit: set recorded.unit if"
                " it is one, or recorded.time_format, as in %Y%m%d"
            )
        units = ["s", "ms", "us", "ns"]
        unit = units[sum(typical >= _SECONDS_UNTIL * 1000**step for step in range(3))]
    if numbers.dtype.kind in "iu":
        return _split_by(numbers.astype(np.int64), _NS[unit])
    # To the microsecond: the precision of a 64-bit float for today's seconds.
    micros = np.rint(np.nan_to_num(numbers) * (_NS[unit] / 1000))
    return _split_by(micros.clip(-9e15, 9e15).astype(np.int64), 1000)


def _split_by(numbers: NDArray[np.int64], ns: int) -> Times:
    if ns >= 10**6:
        return numbers * (ns // 10**6), None
    times, parts = np.divmod(numbers, 10**6 // ns)
    return times, (parts * ns).astype(np.int32) if parts.any() else None


def _split(instants: Any) -> Times:
    """Times from timestamps of any unit."""
    return _split_by(
        instants.cast(pa.int64()).to_numpy(zero_copy_only=False), _NS[instants.type.unit]
    )


def to_instants(array: Any, kind: Any, settings: Recorded) -> Any:
    """Times, or texts of times, of this type as timestamps in UTC. ArrowException if a text isn't a time."""
    zone = settings.zone
    if pa.types.is_date(kind):
        array = array.cast(pa.timestamp("ms"))
    elif not pa.types.is_timestamp(kind):
        texts = pc.utf8_trim_whitespace(array.cast(pa.string()))
        if settings.time_format is not None:
            array = pc.strptime(texts, format=settings.time_format, unit="ms")
        else:
            array = _parse(texts)
    if array.type.tz is not None or zone in (None, "UTC"):
        return array
    return pc.assume_timezone(array, zone, ambiguous="earliest", nonexistent="latest")


_ZONES = ((r"\s*(UTC|GMT)$", "Z"), (r"\s+([+-]\d\d:?\d\d)$", r"\1"))
"""Forms of zones that pyarrow doesn't read, and those that it does."""


def _parse(texts: Any) -> Any:
    try:
        return texts.cast(pa.timestamp("ns"))
    except pa.ArrowInvalid as error:
        has_zone = "zone" in str(error)
    with suppress(pa.ArrowInvalid):
        return texts.cast(pa.timestamp("ns", "UTC"))
    written = texts
    for pattern, replacement in _ZONES:
        written = pc.replace_substring_regex(written, pattern, replacement)
    # Otherwise it may be in years outside the range of nanoseconds (1677 to 2262).
    has_zone = has_zone or not written.equals(texts)
    return written.cast(pa.timestamp("ns", "UTC") if has_zone else pa.timestamp("us"))
