"""Bytes from columns, in bulk: what the modules' encoders are made of.

Nothing here is done per event in Python: either numpy fills records, or one `%` formats a whole
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from .workloads.base import Column, ColumnType, EventBlock

KEY_COLUMN = "id"
"""Column of a key that the worker makes (`--primary-key client`)."""


def digits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Decimal digits of non-negative numbers, zero-padded: shape (n, width), ASCII."""
    text = np.empty((len(numbers), width), dtype=np.uint8)
    rest = numbers
    for position in range(width - 1, -1, -1):
        rest, digit = np.divmod(rest, 10)
        text[:, position] = digit
    text += ord("0")
    return text


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
def _repeated(row: bytes, separator: bytes, count: int) -> bytes:
    return separator.join([row] * count)


def format_rows(row: bytes, separator: bytes, columns: Sequence[Sequence[Any]]) -> bytes:
    """`row` % the values, once per row, joined by `separator`: one formatting pass for all rows.

    `columns` are lists of Python values (`ndarray.tolist()`), all of the same length.
    """
    width, count = len(columns), len(columns[0])
    values: list[Any] = [None] * (width * count)
    for position, column in enumerate(columns):
        values[position::width] = column
    return _repeated(row, separator, count) % tuple(values)


def escaped(values: NDArray[Any], replacements: Sequence[tuple[bytes, bytes]]) -> NDArray[Any]:
    """A bytes column with `replacements` made, in order; the column itself if it needs none."""
    content = values.tobytes()
    for old, new in replacements:
        if old in content:
            values = np.char.replace(values, old, new)
    return values


# What JSON (RFC 8259, section 7) doesn't take as it is within a string.
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
            values = json_escaped(values)
        elif column.type is ColumnType.JSON:
            # Outside of strings, where they are escaped, line breaks mean nothing.
            values = escaped(values, ((b"\n", b" "), (b"\r", b" ")))
        lists.append(values.tolist())
    return lists


def json_escaped(values: NDArray[Any]) -> NDArray[Any]:
    """UTF-8 texts as the inside of JSON strings; the column itself if nothing is to be escaped."""
    content = values.tobytes()
    # One pass of C over the whole column: most columns are ids that need nothing.
    if len(content.translate(None, _JSON_SPECIAL)) == len(content):
        return values
    return np.array([orjson.dumps(text.decode())[1:-1] for text in values.tolist()])


def bounds(count: int, batch: int) -> list[tuple[int, int]]:
    """[start, stop) of each request of `batch` rows."""
    return [(start, min(start + batch, count)) for start in range(0, count, batch)]
