"""Bytes from columns, in bulk: what the modules' encoders are made of.

Nothing here is done per event in Python: either numpy fills records, or one `%` formats a whole
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ..workloads.schema import FLOATS, Column, ColumnType, EventBlock, Tags, number_devices

KEY_COLUMN = "id"
"""Column of a key that the worker makes (`--primary-key client`)."""

Columns = tuple[Sequence[Column], Mapping[str, NDArray[Any]]]


def quote_name(name: str) -> str:
    """An identifier as SQL and CQL write it, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def digits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Decimal digits of non-negative numbers, zero-padded: shape (n, width), ASCII."""
    text = np.empty((len(numbers), width), dtype=np.uint8)
    rest = numbers
    for position in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, position] = digit
    text += ord("0")
    return text


def iso_times(times_ms: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Milliseconds since 1970 as texts like 2024-01-01T00:00:00.450Z.

    Takes a tenth of the time of `numpy.datetime_as_string`, which computes each date again.
    """
    days, rest = np.divmod(times_ms, 86_400_000)
    text = np.empty((len(times_ms), 24), dtype=np.uint8)
    kinds, which = np.unique(days, return_inverse=True)
    dates = np.datetime_as_string(kinds.astype("datetime64[D]")).astype("S10")
    text[:, :10] = dates.view(np.uint8).reshape(len(kinds), 10)[which]
    rest, milliseconds = np.divmod(rest, 1000)
    rest, seconds = np.divmod(rest, 60)
    hours, minutes = np.divmod(rest, 60)
    for place, numbers, width in (
        (11, hours, 2), (14, minutes, 2), (17, seconds, 2), (20, milliseconds, 3),
    ):  # fmt: skip
        text[:, place : place + width] = digits(numbers, width)
    for place, mark in ((10, "T"), (13, ":"), (16, ":"), (19, "."), (23, "Z")):
        text[:, place] = ord(mark)
    return text.view("S24").reshape(len(times_ms))


def client_keys(block: EventBlock) -> NDArray[np.bytes_]:
    """A key per event from its natural key: device id, timestamp and sequence number if there is one.

    All of one width, so that text order is the order of device, then time.
    """
    if block.schema.tags is Tags.ROW:
        parts = [octets_of(block.devices)]
    else:
        parts = [digits(number_devices(block.devices), 11)]
    parts.append(digits(block.columns[block.schema.time], 13))
    if block.schema.sequence:
        parts.append(digits(block.columns[block.schema.sequence], 12))
    text = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return text.view(f"S{text.shape[1]}").reshape(len(block))


def with_client_key(block: EventBlock) -> Columns:
    """Columns and values of the events' rows with the client's key in front."""
    columns = (Column(KEY_COLUMN, ColumnType.TEXT), *block.schema.row)
    return columns, {KEY_COLUMN: client_keys(block), **block.row_columns}


def text_format(column: Column) -> bytes:
    """The %-format of a column's plain text form."""
    if column.type in TEXTS or column.type is ColumnType.BOOL:
        return b"%b"  # of `bool_texts`, if it isn't a text
    if column.type in FLOATS and column.decimals is not None:
        return b"%%.%df" % column.decimals
    if column.type is ColumnType.FLOAT32:
        # Nine significant digits identify every float32, seventeen every float64 (IEEE 754).
        return b"%.9g"
    return b"%.17g" if column.type is ColumnType.FLOAT64 else b"%d"


BIG_ENDIAN = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
    ColumnType.FLOAT64: ">f8",
    ColumnType.BOOL: "?",
}
"""Numpy's types of values that binary protocols have in network order; texts have none."""

TEXTS = (ColumnType.TEXT, ColumnType.JSON)
_BOOLS = np.array([b"false", b"true"])


def bool_texts(values: NDArray[np.bool_]) -> NDArray[np.bytes_]:
    """true and false: what JSON, SQL, CSV and line protocol call them."""
    return _BOOLS[values.view(np.uint8)]


_LEAST_REPEATED = 64
"""With fewer texts it isn't worth looking for those that repeat."""


def escape(values: NDArray[Any], replacements: Sequence[tuple[bytes, bytes]]) -> NDArray[Any]:
    """A bytes column with `replacements` made, in order; the column itself if it needs none."""
    if is_constant(values):
        return np.broadcast_to(escape(values[:1].copy(), replacements), values.shape)
    content = values.tobytes()
    if not any(old in content for old, _ in replacements):
        return values
    if period := find_period(values):
        return np.resize(escape(values[:period], replacements), values.shape)
    for old, new in replacements:
        if old in content:
            values = np.char.replace(values, old, new)
    return values


def find_period(values: NDArray[np.bytes_]) -> int:
    """After how many texts they begin again, as those do that describe devices taking turns; 0 if they
    don't, or not even twice."""
    octets = octets_of(values)
    count, width = octets.shape
    if count < _LEAST_REPEATED:
        return 0
    flat = octets.reshape(-1)
    first, content = octets[0].tobytes(), octets[: count // 2 + 1].tobytes()
    place = content.find(first, width)
    while place > 0 and place % width:
        # It lies across two texts: on with the next whole one.
        place = content.find(first, place - place % width + width)
    if place < 0:
        return 0
    return place // width if np.array_equal(flat[place:], flat[:-place]) else 0


def count_turns(devices: NDArray[np.bytes_], batch: int) -> int:
    """How many devices take turns throughout, if each request of `batch` events ends with the last of them;
    0: they don't."""
    if len(devices) % batch or (devices[1:2] == devices[:1]).all():
        return 0
    turns = find_period(devices)
    if not turns or batch % turns or len(set(devices[:turns].tolist())) < turns:
        return 0
    return turns


SHORT_NUMBERS = 1 << 16
"""Numbers of 16 bits are sorted fastest."""
_MOST_NUMBERS = 1 << 31


def number_names(devices: NDArray[np.bytes_]) -> tuple[NDArray[Any], int]:
    """A number for each event's device, in the order of names, and a bound that all of them are below; 1:
    there is one device."""
    numbers: NDArray[Any] = np.zeros(len(devices), np.uint16)
    kinds = 1
    if is_constant(devices) or all_alike(devices):
        return numbers, kinds
    # The places in which names differ, as digits.
    for octets in octets_of(devices).T:
        least = int(octets.min())
        span = int(octets.max()) - least + 1
        if span == 1:
            continue
        kinds *= span
        if kinds > _MOST_NUMBERS:
            names, numbers = np.unique(devices, return_inverse=True)
            return numbers, len(names)
        if kinds > SHORT_NUMBERS:
            numbers = numbers.astype(np.int64, copy=False)
        numbers *= span
        numbers += octets - least
    return numbers, kinds


# What has to be escaped within a JSON string (RFC 8259, section 7).
_JSON_SPECIAL = b'"\\' + bytes(range(1, 0x20))


def escape_json(values: NDArray[Any]) -> NDArray[Any]:
    """UTF-8 texts as the inside of JSON strings; the column itself if nothing is to be escaped."""
    if is_constant(values):
        return np.broadcast_to(escape_json(values[:1].copy()), values.shape)
    content = values.tobytes()
    # One pass in C over the whole column: most columns are ids that need no escaping.
    if len(content.translate(None, _JSON_SPECIAL)) == len(content):
        return values
    if period := find_period(values):
        return np.resize(escape_json(values[:period]), values.shape)
    return np.array([orjson.dumps(text.decode())[1:-1] for text in values.tolist()])


def bounds(count: int, batch: int) -> list[tuple[int, int]]:
    """[start, stop) of each request of `batch` rows."""
    return [(start, min(start + batch, count)) for start in range(0, count, batch)]


def is_constant(data: NDArray[Any]) -> bool:
    """Whether a column has one value for all rows, as `numpy.broadcast_to` makes it."""
    return data.strides == (0,) and len(data) > 0


def all_alike(data: NDArray[np.generic]) -> bool:
    """Whether all values are the same. On texts, numpy's own comparison takes ten times as long."""
    octets, width = octets_of(data).reshape(-1), data.dtype.itemsize
    return bool((octets[width:] == octets[:-width]).all())


def octets_of(data: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The values' bytes: shape (values, bytes of one)."""
    data = np.ascontiguousarray(data)
    return data.view(np.uint8).reshape(len(data), data.dtype.itemsize)
