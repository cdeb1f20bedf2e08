"""Rows in PostgreSQL's protocol: binary and text COPY, lists of values, and prepared INSERTs, which are
messages with binary values (Bind, Execute)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..workloads.schema import Column, ColumnType
from .binary_rows import BinaryRows
from .columns import TEXTS, Columns, bounds, escape, text_format
from .rows import TextFormat, format_requests

# https://github.com/postgres/postgres/blob/master/src/include/catalog/pg_type.dat
TYPE_OIDS = {
    ColumnType.TIMESTAMP_MS: 20,
    ColumnType.INT64: 20,
    ColumnType.INT32: 23,
    ColumnType.FLOAT32: 700,
    ColumnType.FLOAT64: 701,
    ColumnType.BOOL: 16,
    ColumnType.TEXT: 1043,
    ColumnType.JSON: 3802,
}
"""The type of each column, by the server's numbers of types."""

# https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"
_BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_TRAILER = b"\xff\xff"

# jsonb's binary form begins with a version number.
_JSONB_VERSION = b"\x01"

Missing = Mapping[str, NDArray[np.bool_]]
"""Where columns have no value, as in `EventBlock.missing`."""

_NONE_MISSING: Missing = {}


# https://www.postgresql.org/docs/current/protocol-message-formats.html
HEADER = struct.Struct("!cI")
"""A message's header: its kind, and the length of the rest including these four bytes."""
_TAIL = bytes(2)
"""The end of a Bind: it requests no format for columns of a result."""
_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"
SYNC = HEADER.pack(b"S", 4)


def bind_rows(
    columns: Columns, size: int, name: bytes, missing: Missing = _NONE_MISSING
) -> list[bytes]:
    """For each row Bind (of the prepared statement) and Execute, and Sync after every `size` rows."""
    names, values = columns
    # The Bind's beginning, up to the parameters, which are binary; its length is filled in later.
    head = HEADER.pack(b"B", 0) + b"\0" + name + struct.pack("!xhhh", 1, 1, len(names))
    end = _EXECUTE + SYNC if size == 1 else _EXECUTE
    count = len(values[names[0].name])
    heads = np.full(count, np.void(head))
    rows = BinaryRows(columns, heads, _JSONB_VERSION, _TAIL + end, missing)
    lengths = np.full(count, rows.lengths - 1 - len(end), ">u4")
    octets = heads.view(np.uint8).reshape(count, len(head))
    octets[:, 1:5] = lengths.view(np.uint8).reshape(count, 4)
    if size == 1:
        return rows.singles()
    return [rows.join(start, stop, b"", SYNC) for start, stop in bounds(count, size)]


class ValueCutter:
    """Takes the messages of `bind_rows` apart again for libpq's own functions. Most values are as long as the
    previous row's."""

    def __init__(self) -> None:
        self._length = 0
        """The length of the last Bind without missing values; `_layout` and `_sizes` describe its values."""
        self._layout = struct.Struct("")
        self._sizes: tuple[int, ...] = ()

    def cut(self, messages: bytes) -> Iterator[tuple[bytes, Sequence[bytes | None]]]:
        """The prepared statement's name, and the values of each row in binary form, or None."""
        name = messages[HEADER.size + 1 : messages.index(b"\0", HEADER.size + 1)]
        head = HEADER.size + 1 + len(name) + 7
        at = 0
        while messages.startswith(b"B", at):
            length = HEADER.unpack_from(messages, at)[1]
            is_alike = length == self._length
            fields = self._layout.unpack_from(messages, at + head) if is_alike else ()
            if fields and fields[::2] == self._sizes:
                yield name, fields[1::2]
            else:
                yield name, self._cut_row(messages, at + head, length)
            at += 1 + length + len(_EXECUTE)

    def _cut_row(self, messages: bytes, at: int, length: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        for _ in range(*struct.unpack_from("!h", messages, at - 2)):
            (size,) = struct.unpack_from("!i", messages, at)
            at += 4
            values.append(messages[at : at + size] if size >= 0 else None)
            at += max(size, 0)
        if None not in values:
            self._length, self._sizes = length, tuple(len(value or b"") for value in values)
            self._layout = struct.Struct("!" + "".join(f"i{size}s" for size in self._sizes))
        return values


def _make_text_format(
    quoted: bytes, escapes: Sequence[tuple[bytes, bytes]], null: bytes
) -> TextFormat:
    """Values as text. `quoted`: the %-format of texts, and of NaN and infinities."""

    def find_form(column: Column) -> bytes:
        if column.type in TEXTS:
            return quoted
        form = text_format(column)
        return quoted.replace(b"%b", form) if column.not_finite else form

    return TextFormat(
        find_form,
        lambda column, values: escape(values, escapes) if column.type in TEXTS else values,
        null,
    )


# https://www.postgresql.org/docs/current/sql-copy.html, "Text Format": the backslash first.
_COPIED = _make_text_format(
    b"%b", ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r")), b"\\N"
)
_LITERALS = _make_text_format(b"'%b'", ((b"'", b"''"),), b"NULL")


def value_rows(
    columns: Columns,
    size: int,
    before: bytes,
    separator: bytes,
    missing: Missing = _NONE_MISSING,
) -> list[bytes]:
    """Rows `before` (v, …), joined by `separator`, `size` rows to each result."""
    names, values = columns
    row = before.replace(b"%", b"%%") + b"(" + b",".join(_LITERALS.list_forms(names)) + b")"
    return format_requests(row, separator, _LITERALS.write(names, values, missing), size)


def text_rows(columns: Columns, size: int, missing: Missing = _NONE_MISSING) -> list[bytes]:
    """Rows of text COPY, `size` rows to each result."""
    names, values = columns
    row = b"\t".join(_COPIED.list_forms(names)) + b"\n"
    return format_requests(row, b"", _COPIED.write(names, values, missing), size)


def copy_binary(columns: Columns, size: int, missing: Missing = _NONE_MISSING) -> list[bytes]:
    """Complete binary COPY streams, `size` rows to each."""
    names, values = columns
    rows = BinaryRows(columns, struct.pack("!h", len(names)), _JSONB_VERSION, missing=missing)
    return [
        rows.join(start, stop, _BINARY_HEADER, _BINARY_TRAILER)
        for start, stop in bounds(len(values[names[0].name]), size)
    ]
