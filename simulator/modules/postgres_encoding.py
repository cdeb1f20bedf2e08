"""Payloads of the PostgreSQL wire: binary and text COPY, values lists, single statements.

All are built from the schema: any workload's columns will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import PrimaryKey
from ..encoding import bounds, escaped, format_rows, text_format, with_client_key
from ..workloads.base import Column, ColumnType, EventBlock
from .base import Encoder, Job, Payload


class InsertMode(StrEnum):
    """How events are sent."""

    COPY = "copy"
    """COPY FROM STDIN, one per batch."""
    VALUES_LISTS = "values_lists"
    """One INSERT with a list of values per batch."""
    TRANSACTION = "transaction"
    """An INSERT per event, committed once per batch."""
    SINGLE = "single"
    """An INSERT per event, each committed at once."""


class CopyFormat(StrEnum):
    """The format of COPY."""

    BINARY = "binary"
    TEXT = "text"


Columns = tuple[Sequence[Column], Mapping[str, NDArray[Any]]]

# https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"
_BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_TRAILER = b"\xff\xff"

# Escapes of text COPY (same page, "Text Format"); the backslash first.
_COPY_ESCAPES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r"))
_LITERAL_ESCAPES = ((b"'", b"''"),)

_BINARY_TYPES = {
    ColumnType.TIMESTAMP_MS: ">i8",
    ColumnType.INT64: ">i8",
    ColumnType.INT32: ">i4",
    ColumnType.FLOAT32: ">f4",
}

# Rows are separated by a character that no SQL statement can contain, then split.
_SEPARATOR = b"\0"


def quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


class PostgresEncoder(Encoder):
    """Encodes in one insert mode. A payload's data: list of (table number, bytes or statements)."""

    def __init__(self, job: Job, mode: InsertMode, copy_format: CopyFormat) -> None:
        self.mode = mode
        self.copy_format = copy_format
        self.overlaps = mode is InsertMode.COPY and copy_format is CopyFormat.BINARY
        self._tables = job.table_names
        self._client_key = job.primary_key is PrimaryKey.CLIENT
        names = [column.name for column in job.schema.columns]
        if self._client_key:
            names.insert(0, "id")
        self._column_list = ", ".join(map(quoted, names))

    def copy_statement(self, table: int) -> str:
        """The COPY whose data `encode` makes."""
        name = quoted(self._tables[table])
        # In the syntax from before PostgreSQL 9: older CockroachDB knows no other.
        how = " WITH BINARY" if self.copy_format is CopyFormat.BINARY else ""
        return f"COPY {name} ({self._column_list}) FROM STDIN{how}"

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        size = batch or 1
        if len(self._tables) == 1:
            requests = [[(0, part)] for part in self._parts(block, size, 0)]
        elif size == 1:
            requests = self._dealt_singly(block)
        else:
            requests = [self._dealt(block.part(*span)) for span in bounds(len(block), size)]
        spans = bounds(len(block), size)
        return [
            Payload(data, stop - start, block, stop - 1)
            for data, (start, stop) in zip(requests, spans, strict=True)
        ]

    def _dealt(self, block: EventBlock) -> list[tuple[int, bytes | list[bytes]]]:
        """One request of several tables: event i goes to table i modulo their number."""
        count = len(self._tables)
        parts: list[tuple[int, bytes | list[bytes]]] = []
        for offset in range(min(count, len(block))):
            table = (block.first + offset) % count
            part = block.part(offset, len(block), count)
            parts.extend((table, data) for data in self._parts(part, len(part), table))
        return parts

    def _dealt_singly(self, block: EventBlock) -> list[list[tuple[int, bytes | list[bytes]]]]:
        count = len(self._tables)
        requests: list[list[tuple[int, bytes | list[bytes]]]] = [[]] * len(block)
        for offset in range(min(count, len(block))):
            table = (block.first + offset) % count
            parts = self._parts(block.part(offset, len(block), count), 1, table)
            requests[offset::count] = [[(table, data)] for data in parts]
        return requests

    def _parts(self, block: EventBlock, size: int, table: int) -> Sequence[bytes | list[bytes]]:
        """The block's rows as data for one table, `size` rows each."""
        columns: Columns = (
            with_client_key(block) if self._client_key else (block.schema.columns, block.columns)
        )
        if self.mode is InsertMode.COPY:
            if self.copy_format is CopyFormat.BINARY:
                return binary_rows(columns, size)
            return text_rows(columns, size)
        insert = f"INSERT INTO {quoted(self._tables[table])} ({self._column_list}) VALUES ".encode()
        if self.mode is InsertMode.VALUES_LISTS:
            return [insert + rows for rows in value_rows(columns, size, b"", b",")]
        statements = value_rows(columns, len(block), insert, _SEPARATOR)[0].split(_SEPARATOR)
        if self.mode is InsertMode.SINGLE:
            return statements
        return [statements[start:stop] for start, stop in bounds(len(block), size)]


def value_rows(columns: Columns, size: int, before: bytes, separator: bytes) -> list[bytes]:
    """`before` (v, …) rows joined by `separator`, `size` rows to each result."""
    names, _ = columns
    row = b",".join(
        b"'%b'" if column.type in (ColumnType.TEXT, ColumnType.JSON) else text_format(column)
        for column in names
    )
    row = before.replace(b"%", b"%%") + b"(" + row + b")"
    return _formatted(columns, size, row, separator, _LITERAL_ESCAPES)


def text_rows(columns: Columns, size: int) -> list[bytes]:
    """Rows of text COPY, `size` rows to each result."""
    row = b"\t".join(map(text_format, columns[0])) + b"\n"
    return _formatted(columns, size, row, b"", _COPY_ESCAPES)


def _formatted(
    columns: Columns,
    size: int,
    row: bytes,
    separator: bytes,
    escapes: Sequence[tuple[bytes, bytes]],
) -> list[bytes]:
    names, values = columns
    lists = []
    for column in names:
        data = values[column.name]
        if column.type in (ColumnType.TEXT, ColumnType.JSON):
            data = escaped(data, escapes)
        lists.append(data.tolist())
    return [
        format_rows(row, separator, [values[start:stop] for values in lists])
        for start, stop in bounds(len(lists[0]), size)
    ]


def binary_rows(columns: Columns, size: int) -> list[bytes]:
    """Complete binary COPY streams, `size` rows to each.

    The rows are one numpy record array: big-endian fields, each behind its length. Texts shorter
    than their column's width are cut out of the records' bytes afterwards, for all rows at once.
    """
    names, values = columns
    count = len(values[names[0].name])
    texts = {
        column.name: values[column.name].dtype.itemsize
        for column in names
        if column.type not in _BINARY_TYPES
    }
    records = _template(tuple(names), tuple(texts.values()), count, get_ident())
    lengths = {}
    for column in names:
        data = values[column.name]
        records[f"v_{column.name}"] = data
        if column.name not in texts:
            continue
        if _fills(data):
            records[f"n_{column.name}"] = texts[column.name] + _prefix(column)
        else:
            lengths[column.name] = np.char.str_len(data)
            records[f"n_{column.name}"] = lengths[column.name] + _prefix(column)
    flat = records.view(np.uint8)
    row_size = records.dtype.itemsize
    if not lengths:
        return [
            b"".join(
                (_BINARY_HEADER, flat[start * row_size : stop * row_size].data, _BINARY_TRAILER)
            )
            for start, stop in bounds(count, size)
        ]
    keep = np.ones((count, row_size), dtype=np.bool_)
    row_sizes = np.full(count, row_size)
    for name, length in lengths.items():
        fields = records.dtype.fields
        assert fields is not None
        offset = fields[f"v_{name}"][1]
        width = texts[name]
        keep[:, offset : offset + width] = np.arange(width) < length[:, None]
        row_sizes -= width - length
    packed = flat[keep.reshape(-1)]
    ends = np.concatenate(([0], np.cumsum(row_sizes)))
    return [
        b"".join((_BINARY_HEADER, packed[ends[start] : ends[stop]].data, _BINARY_TRAILER))
        for start, stop in bounds(count, size)
    ]


def _prefix(column: Column) -> int:
    """Bytes before the text: jsonb's binary form begins with a version number."""
    return 1 if column.type is ColumnType.JSON else 0


def _fills(data: NDArray[np.generic]) -> bool:
    """Whether every text is as long as the column is wide (numpy pads with NUL)."""
    data = np.ascontiguousarray(data)
    last = data.view(np.uint8).reshape(len(data), data.dtype.itemsize)[:, -1]
    return bool(last.all())


@lru_cache(maxsize=16)
def _template(
    columns: tuple[Column, ...], widths: tuple[int, ...], count: int, _thread: int
) -> NDArray[np.void]:
    """Records with everything filled in that is the same in each row.

    The same array each time: each call of `binary_rows` overwrites the rest of it (hence one per
    thread). In fresh memory, filling it would cost twice as much.
    """
    fields: list[tuple[str, str]] = [("columns", ">i2")]
    text_widths = iter(widths)
    constants: dict[str, int] = {"columns": len(columns)}
    for column in columns:
        fields.append((f"n_{column.name}", ">i4"))
        if column.type in _BINARY_TYPES:
            kind = _BINARY_TYPES[column.type]
            constants[f"n_{column.name}"] = np.dtype(kind).itemsize
        else:
            width = next(text_widths)
            kind = f"S{width}"
            if _prefix(column):
                fields.append((f"p_{column.name}", "u1"))
                constants[f"p_{column.name}"] = 1
        fields.append((f"v_{column.name}", kind))
    records = np.zeros(count, dtype=fields)
    for name, value in constants.items():
        records[name] = value
    return records
