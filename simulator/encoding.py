"""Bytes from columns, in bulk: what the modules' encoders are made of.

Nothing here is done per event in Python: either numpy fills records, or one `%` formats a whole
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class BinaryRows:
    """Rows of bytes, one after the other. Valid until this thread makes the next ones."""

    flat: NDArray[np.uint8]
    begins: NDArray[np.int64]
    """Where each row begins, and finally where the last one ends."""

    def part(self, start: int, stop: int) -> memoryview:
        """The bytes of rows [start, stop)."""
        return self.flat[self.begins[start] : self.begins[stop]].data


def binary_rows(
    columns: Columns,
    prefix: bytes | NDArray[np.void],
    json_prefix: bytes = b"",
    suffix: bytes = b"",
) -> BinaryRows:
    """Each row: a prefix, for each value its length, an int32, and the value, both big-endian; a suffix.

    PostgreSQL's binary COPY wants rows like that, and CQL's binary protocol a query's values.
    `prefix` is one for all rows, or an array with one for each. `json_prefix` is part of the value.
    A TEXT column of numpy's type `V` holds arbitrary bytes, all values of the same length.

    All rows are one numpy record array. Texts shorter than their column's width are cut out of the
    records' bytes afterwards, for all rows at once.
    """
    names, values = columns
    count = len(values[names[0].name])
    kinds = tuple(_BIG_ENDIAN.get(c.type) or values[c.name].dtype.str[1:] for c in names)
    constant = prefix if isinstance(prefix, bytes) else bytes(prefix.dtype.itemsize)
    records = _records(tuple(names), kinds, count, constant, json_prefix, suffix, get_ident())
    if not isinstance(prefix, bytes):
        records["prefix"] = prefix
    lengths = {}
    for column, kind in zip(names, kinds, strict=True):
        data = values[column.name]
        records[f"v_{column.name}"] = data
        if not kind.startswith("S"):
            continue
        width = data.dtype.itemsize
        extra = len(json_prefix) if column.type is ColumnType.JSON else 0
        if _fills(data):
            records[f"n_{column.name}"] = width + extra
        else:
            lengths[column.name] = np.char.str_len(data)
            records[f"n_{column.name}"] = lengths[column.name] + extra
    flat = records.view(np.uint8)
    row_size = records.dtype.itemsize
    if not lengths:
        return BinaryRows(flat, np.arange(0, (count + 1) * row_size, row_size))
    keep = np.ones((count, row_size), dtype=np.bool_)
    row_sizes = np.full(count, row_size)
    for name, length in lengths.items():
        fields = records.dtype.fields
        assert fields is not None
        field, offset = fields[f"v_{name}"][:2]
        width = field.itemsize
        keep[:, offset : offset + width] = np.arange(width) < length[:, None]
        row_sizes -= width - length
    return BinaryRows(flat[keep.reshape(-1)], np.concatenate(([0], np.cumsum(row_sizes))))


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


@lru_cache(maxsize=16)
def _records(
    columns: tuple[Column, ...],
    kinds: tuple[str, ...],
    count: int,
    prefix: bytes,
    json_prefix: bytes,
    suffix: bytes,
    _thread: int,
) -> NDArray[np.void]:
    """Records in which everything is filled in that is the same in each row.

    Every call gets the same array, and `binary_rows` overwrites the rest of it, so each thread has
    one of its own. Filling fresh memory would cost twice as much.
    """
    fields: list[tuple[str, str]] = [("prefix", f"V{len(prefix)}")]
    constants: dict[str, Any] = {"prefix": np.void(prefix)}
    for column, kind in zip(columns, kinds, strict=True):
        fields.append((f"n_{column.name}", ">i4"))
        constants[f"n_{column.name}"] = np.dtype(kind).itemsize
        if json_prefix and column.type is ColumnType.JSON:
            fields.append((f"p_{column.name}", f"V{len(json_prefix)}"))
            constants[f"p_{column.name}"] = np.void(json_prefix)
        fields.append((f"v_{column.name}", kind))
    if suffix:
        fields.append(("suffix", f"V{len(suffix)}"))
        constants["suffix"] = np.void(suffix)
    records = np.zeros(count, dtype=fields)
    for name, value in constants.items():
        records[name] = value
    return records
