"""Bytes from columns, in bulk: what the modules' encoders are made of.

Nothing here is done per event in Python: either numpy fills records, or one `%` formats a whole
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from .workloads.base import Column, ColumnType, EventBlock

KEY_COLUMN = "id"
"""Column of a key that the worker makes (`--primary-key client`)."""


Columns = tuple[Sequence[Column], Mapping[str, NDArray[Any]]]

_BIG_ENDIAN = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
}


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
    device = np.ascontiguousarray(block.devices)
    width = device.dtype.itemsize
    parts = [device.view(np.uint8).reshape(len(block), width)]
    parts.append(digits(block.columns[block.schema.time], 13))
    if block.schema.sequence:
        parts.append(digits(block.columns[block.schema.sequence], 12))
    text = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return text.view(f"S{text.shape[1]}").reshape(len(block))


def with_client_key(block: EventBlock) -> tuple[Sequence[Column], Mapping[str, NDArray[Any]]]:
    """Columns and values with the client's key in front."""
    columns = (Column(KEY_COLUMN, ColumnType.TEXT), *block.schema.columns)
    return columns, {KEY_COLUMN: client_keys(block), **block.columns}


def text_format(column: Column) -> bytes:
    """The %-format of a column's plain text form."""
    if column.type in (ColumnType.TEXT, ColumnType.JSON):
        return b"%b"
    if column.type is ColumnType.FLOAT32:
        # Nine significant digits identify every float32 (IEEE 754).
        return b"%.9g" if column.decimals is None else b"%%.%df" % column.decimals
    return b"%d"


@lru_cache(maxsize=8)
def _repeat(row: bytes, separator: bytes, count: int) -> bytes:
    return separator.join([row] * count)


_ROWS_AT_ONCE = 256
"""Rows formatted by one operation, during which no other thread runs: some 70 µs."""


def format_rows(row: bytes, separator: bytes, columns: Sequence[Sequence[Any]]) -> bytes:
    """`row` % the values, once per row, joined by `separator`: a formatting pass for many rows.

    `columns` are lists of Python values (`ndarray.tolist()`), all of the same length.
    """
    return separator.join(
        _format_some(row, separator, [column[start:stop] for column in columns])
        for start, stop in bounds(len(columns[0]), _ROWS_AT_ONCE)
    )


def _format_some(row: bytes, separator: bytes, columns: Sequence[Sequence[Any]]) -> bytes:
    width, count = len(columns), len(columns[0])
    values: list[Any] = [None] * (width * count)
    for position, column in enumerate(columns):
        values[position::width] = column
    return _repeat(row, separator, count) % tuple(values)


def escape(values: NDArray[Any], replacements: Sequence[tuple[bytes, bytes]]) -> NDArray[Any]:
    """A bytes column with `replacements` made, in order; the column itself if it needs none."""
    content = values.tobytes()
    for old, new in replacements:
        if old in content:
            values = np.char.replace(values, old, new)
    return values


# What has to be escaped within a JSON string (RFC 8259, section 7).
_JSON_SPECIAL = b'"\\' + bytes(range(1, 0x20))


def json_object_format(columns: Sequence[Column]) -> bytes:
    """The %-format of an object with the columns as members, on one line.

    Takes the columns as `json_columns` gives them.
    """
    members = []
    for column in columns:
        value = text_format(column)
        if column.type is ColumnType.TEXT:
            value = b'"' + value + b'"'
        members.append(orjson.dumps(column.name).replace(b"%", b"%%") + b":" + value)
    return b"{" + b",".join(members) + b"}"


def json_columns(block: EventBlock) -> list[list[Any]]:
    """The block's columns in the schema's order as lists of values for `json_object_format`."""
    lists = []
    for column in block.schema.columns:
        values = block.columns[column.name]
        if column.type is ColumnType.TEXT:
            values = escape_json(values)
        elif column.type is ColumnType.JSON:
            # Line breaks mean nothing outside of strings, and within strings they are escaped.
            values = escape(values, ((b"\n", b" "), (b"\r", b" ")))
        lists.append(values.tolist())
    return lists


def escape_json(values: NDArray[Any]) -> NDArray[Any]:
    """UTF-8 texts as the inside of JSON strings; the column itself if nothing is to be escaped."""
    content = values.tobytes()
    # One pass in C over the whole column: most columns are ids that need no escaping.
    if len(content.translate(None, _JSON_SPECIAL)) == len(content):
        return values
    return np.array([orjson.dumps(text.decode())[1:-1] for text in values.tolist()])


def bounds(count: int, batch: int) -> list[tuple[int, int]]:
    """[start, stop) of each request of `batch` rows."""
    return [(start, min(start + batch, count)) for start in range(0, count, batch)]


# --- binary rows ----------------------------------------------------------------------------------

# Rows made at once: so many bytes stay in a core's own cache until they have been copied into requests.
_WINDOW_BYTES = 1 << 18


class BinaryRows:
    """Each row: a prefix, for each value its length, an int32, and the value, both big-endian; a suffix.

    PostgreSQL's binary COPY wants rows like that, and CQL's binary protocol a query's values.
    `prefix` is one for all rows, or an array with one for each, which is read when rows are asked for.
    `json_prefix` is part of the value. A TEXT column of numpy's type `V` holds arbitrary bytes, all values
    of the same length.

    Rows are made when they are asked for, some at a time. What is of fixed length is one numpy record
    array, in which a column that has one value for all rows (`is_constant`) and known lengths stay.
    Texts of different lengths stand between two such arrays and are joined with them.

    The arrays are kept, as filling fresh memory would cost twice as much. So a thread must be done
    with one object's rows before it asks another one for some.
    """

    def __init__(
        self,
        columns: Columns,
        prefix: bytes | NDArray[np.void],
        json_prefix: bytes = b"",
        suffix: bytes = b"",
    ) -> None:
        names, values = columns
        self._count = len(values[names[0].name])
        runs = [_Run()]
        self.lengths: NDArray[np.int64] | int = 0
        """Bytes of each row; one number if all have the same."""
        self._texts: list[NDArray[np.bytes_]] = []
        """What stands behind each run but the last: texts of different lengths."""
        if isinstance(prefix, bytes):
            runs[0].keep(prefix)
        else:
            runs[0].take(prefix.dtype.str, prefix)
        for column in names:
            data = values[column.name]
            kind = _BIG_ENDIAN.get(column.type) or data.dtype.str
            before = json_prefix if column.type is ColumnType.JSON else b""
            if data.dtype.kind == "S" and is_constant(data):
                text = before + data[0]
                runs[-1].keep(_length(len(text)) + text)
            elif data.dtype.kind == "S" and not _fills(data):
                lengths = np.char.str_len(data)
                self.lengths = self.lengths + lengths
                runs[-1].take(">i4", lengths + len(before))
                runs[-1].keep(before)
                runs.append(_Run())
                self._texts.append(data)
            else:
                runs[-1].keep(_length(np.dtype(kind).itemsize + len(before)) + before)
                runs[-1].take(kind, data)
        runs[-1].keep(suffix)
        fixed = sum(run.bytes for run in runs)
        self.lengths = self.lengths + fixed
        width = fixed + sum(text.dtype.itemsize for text in self._texts)
        self._window = max(1, _WINDOW_BYTES // width)
        self._arrays = [run.records(self._window) for run in runs if run.bytes]
        self._moving = [
            (records[name], data)
            for run, records in zip(runs, self._arrays, strict=False)
            for name, data in run.moving
        ]
        self._begin = self._end = 0
        """Which rows the arrays hold."""
        self._pieces: list[bytes] = []
        """Their parts in order, if there are texts of different lengths."""

    def join(self, start: int, stop: int, head: bytes = b"", tail: bytes = b"") -> bytes:
        """The bytes of rows [start, stop) between `head` and `tail`."""
        parts = [head]
        while start < stop:
            if not self._begin <= start < self._end:
                self._fill(start)
            if stop <= self._end:
                return b"".join((*parts, self._part(start, stop), tail))
            parts.append(bytes(self._part(start, self._end)))
            start = self._end
        return b"".join((*parts, tail))

    def singles(self) -> list[bytes]:
        """Each row on its own."""
        rows: list[bytes] = []
        for start in range(0, self._count, self._window):
            self._fill(start)
            if not self._texts:
                rows += _blobs(self._arrays[0], self._end - start)
            else:
                width = len(self._pieces) // (self._end - start)
                rows += [
                    b"".join(self._pieces[first : first + width])
                    for first in range(0, len(self._pieces), width)
                ]
        return rows

    def _fill(self, start: int) -> None:
        """Make rows from `start` on, as many as there is room for."""
        count = min(self._window, self._count - start)
        self._begin, self._end = start, start + count
        for field, data in self._moving:
            field[:count] = data[start : start + count]
        if not self._texts:
            return
        parts: list[list[bytes]] = [[]] * (len(self._arrays) + len(self._texts))
        parts[0::2] = [_blobs(records, count) for records in self._arrays]
        parts[1::2] = [text[start : start + count].tolist() for text in self._texts]
        self._pieces = [b""] * (len(parts) * count)
        for position, part in enumerate(parts):
            self._pieces[position :: len(parts)] = part

    def _part(self, start: int, stop: int) -> bytes | memoryview:
        """The bytes of rows that the arrays hold."""
        first, last = start - self._begin, stop - self._begin
        if not self._texts:
            return self._arrays[0][first:last].view(np.uint8).data
        width = len(self._pieces) // (self._end - self._begin)
        return b"".join(self._pieces[first * width : last * width])


class _Run:
    """Consecutive fields of a row, all of fixed length."""

    def __init__(self) -> None:
        self._fields: list[tuple[str, bytes]] = []
        """Type of each, and what it is in each row, if it's always the same."""
        self.moving: list[tuple[str, NDArray[Any]]] = []
        """Name and values of each that isn't."""
        self.bytes = 0

    def keep(self, constant: bytes) -> None:
        """A field that is the same in each row."""
        if constant:
            self._add(f"V{len(constant)}", constant)

    def take(self, kind: str, data: NDArray[Any]) -> None:
        """A field with a value for each row."""
        self.moving.append((f"f{len(self._fields)}", data))
        self._add(kind, b"")

    def _add(self, kind: str, constant: bytes) -> None:
        self._fields.append((kind, constant))
        self.bytes += np.dtype(kind).itemsize

    def records(self, count: int) -> NDArray[np.void]:
        """Records in which everything is filled in that is the same in each row."""
        return _records(tuple(self._fields), count, get_ident())


@lru_cache(maxsize=16)
def _records(fields: tuple[tuple[str, bytes], ...], count: int, _thread: int) -> NDArray[np.void]:
    records = np.zeros(count, dtype=[(f"f{n}", kind) for n, (kind, _) in enumerate(fields)])
    for number, (_, constant) in enumerate(fields):
        if constant:
            records[f"f{number}"] = np.void(constant)
    return records


def _length(octets: int) -> bytes:
    return octets.to_bytes(4, "big")


def _blobs(records: NDArray[np.void], count: int) -> list[bytes]:
    """The first `count` records, each as its bytes."""
    found: list[bytes] = records[:count].view(f"V{records.dtype.itemsize}").tolist()
    return found


def is_constant(data: NDArray[Any]) -> bool:
    """Whether a column says one value for all rows, as `numpy.broadcast_to` makes it."""
    return data.strides == (0,) and len(data) > 0


def all_alike(data: NDArray[np.generic]) -> bool:
    """Whether all values are the same. On texts, numpy's own comparison takes ten times as long."""
    octets, width = _octets(data).reshape(-1), data.dtype.itemsize
    return bool((octets[width:] == octets[:-width]).all())


def _fills(data: NDArray[np.generic]) -> bool:
    """Whether every text is as long as the column is wide (numpy pads with NUL)."""
    return bool(_octets(data)[:, -1].all())


def _octets(data: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The values' bytes: shape (values, bytes of one)."""
    data = np.ascontiguousarray(data)
    return data.view(np.uint8).reshape(len(data), data.dtype.itemsize)
