"""Payloads of the PostgreSQL wire: binary and text COPY, values lists, single statements.

All are built from the schema: any workload's columns will do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import StrEnum

from ...contract import PrimaryKey
from ...encoding import (
    BinaryRows,
    Columns,
    bounds,
    escape,
    format_rows,
    text_format,
    with_client_key,
)
from ...workloads.base import ColumnType, EventBlock
from ..base import Encoder, Job, Payload
from ..shared.sql import quote_name


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


# https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"
_BINARY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_TRAILER = b"\xff\xff"

# Escapes of text COPY (same page, "Text Format"); the backslash first.
_COPY_ESCAPES = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\r", b"\\r"))
_LITERAL_ESCAPES = ((b"'", b"''"),)

# jsonb's binary form begins with a version number.
_JSONB_VERSION = b"\x01"

# Rows are separated by a character that no SQL statement can contain, then split.
_SEPARATOR = b"\0"


class PostgresEncoder(Encoder):
    """Encodes in one insert mode. A payload's data: list of (table number, bytes or statements)."""

    def __init__(self, job: Job, mode: InsertMode, copy_format: CopyFormat) -> None:
        self.mode = mode
        self.copy_format = copy_format
        # Encoding in a thread would delay each of a transaction's statements.
        self.overlaps = mode is not InsertMode.TRANSACTION
        self._tables = job.table_names
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        names = [column.name for column in job.schema.columns]
        if self._client_key:
            names.insert(0, "id")
        self._column_list = ", ".join(map(quote_name, names))

    def copy_statement(self, table: int) -> str:
        """The COPY whose data `encode` makes."""
        name = quote_name(self._tables[table])
        # The syntax from before PostgreSQL 9, since older CockroachDB knows no other.
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
                return copy_binary(columns, size)
            return text_rows(columns, size)
        insert = (
            f"INSERT INTO {quote_name(self._tables[table])} ({self._column_list}) VALUES ".encode()
        )
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
    return _format(columns, size, row, separator, _LITERAL_ESCAPES)


def text_rows(columns: Columns, size: int) -> list[bytes]:
    """Rows of text COPY, `size` rows to each result."""
    row = b"\t".join(map(text_format, columns[0])) + b"\n"
    return _format(columns, size, row, b"", _COPY_ESCAPES)


def _format(
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
            data = escape(data, escapes)
        lists.append(data.tolist())
    return [
        format_rows(row, separator, [values[start:stop] for values in lists])
        for start, stop in bounds(len(lists[0]), size)
    ]


def copy_binary(columns: Columns, size: int) -> list[bytes]:
    """Complete binary COPY streams, `size` rows to each."""
    rows = BinaryRows(columns, struct.pack("!h", len(columns[0])), _JSONB_VERSION)
    count = len(columns[1][columns[0][0].name])
    return [
        rows.join(start, stop, _BINARY_HEADER, _BINARY_TRAILER)
        for start, stop in bounds(count, size)
    ]
