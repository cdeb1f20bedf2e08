"""Requests on the PostgreSQL wire: binary and text COPY, values lists, single inserts, transactions.

All are built in bulk from the schema: any workload's columns will do. An INSERT of one event is a
prepared statement with binary values (Bind, Execute): the server doesn't parse it again, and numpy makes
the messages of all events at once. Without prepared statements it is a text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import KEY_COLUMN, Columns, bounds, escape, text_format, with_client_key
from ...encoding.rows import ROW_SEPARATOR, Frame, format_requests, no_frame, text_form, text_values
from ...workloads.events import EventBlock
from ...workloads.schema import Column, ColumnType
from .._base.sql_queries import quote_name
from ..base import Job
from ..sending import Encoder, Payload
from .protocol import (
    BIND_TAIL,
    EXECUTE,
    LENGTH_AT,
    SYNC,
    make_bind_head,
    make_copy_ends,
    make_parse,
    make_query,
)


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


Request = tuple[bytes, int]
"""A payload's data: the messages of a request, and how many ReadyForQuery it is answered by."""

_BEGIN, _COMMIT = make_query(b"BEGIN"), make_query(b"COMMIT")

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
"""The type of each column, as the server numbers types."""


class PostgresEncoder(Encoder):
    """Encodes in one insert mode, as messages of PostgreSQL's protocol (`Request`).

    A request leaves the connection without an open transaction, whatever part of it fails: its
    COMMIT is sent in any case, and rolls back what has failed.
    """

    def __init__(
        self,
        job: Job,
        mode: InsertMode,
        copy_format: CopyFormat,
        *,
        prepared: bool = True,
        copy_is_atomic: bool = True,
    ) -> None:
        """`prepared`: single inserts and transactions by the statements of `prepare`;
        `copy_is_atomic`: a COPY needs no transaction around it."""
        self.mode = mode
        self.copy_format = copy_format
        self._is_prepared = prepared and mode in (InsertMode.SINGLE, InsertMode.TRANSACTION)
        self._in_transaction = mode is InsertMode.TRANSACTION or (
            mode is InsertMode.COPY and not copy_is_atomic
        )
        self._tables = job.table_names
        self.has_client_key = job.load.primary_key is PrimaryKey.CLIENT
        names = [column.name for column in job.schema.row]
        self._types = [TYPE_OIDS[self.send_as(column).type] for column in job.schema.row]
        if self.has_client_key:
            names.insert(0, KEY_COLUMN)
            self._types.insert(0, TYPE_OIDS[ColumnType.TEXT])
        self._column_list = ", ".join(map(quote_name, names))

    def send_as(self, column: Column) -> Column:
        """The column as its values are sent."""
        return column

    def list_values(self, block: EventBlock) -> Columns:
        """The columns of the block's rows as they are sent, and their values."""
        if self.has_client_key:
            return with_client_key(block)
        return block.schema.row, block.row_columns

    def copy_statement(self, table: int) -> str:
        """The COPY whose data `encode` makes."""
        name = quote_name(self._tables[table])
        # The syntax from before PostgreSQL 9, since older CockroachDB knows no other.
        how = " WITH BINARY" if self.copy_format is CopyFormat.BINARY else ""
        return f"COPY {name} ({self._column_list}) FROM STDIN{how}"

    def _insert_statement(self, table: int) -> bytes:
        """An INSERT up to its values."""
        name = quote_name(self._tables[table])
        return f"INSERT INTO {name} ({self._column_list}) VALUES ".encode()

    def prepare(self) -> bytes:
        """The request that must come first on a connection, if any: it prepares the statements. It is
        answered by one ReadyForQuery."""
        if not self._is_prepared:
            return b""
        marks = ", ".join(f"${number}" for number in range(1, len(self._types) + 1)).encode()
        statements = [
            make_parse(_name(table), self._insert_statement(table) + b"(%b)" % marks, self._types)
            for table in range(len(self._tables))
        ]
        return b"".join((*statements, SYNC))

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        size = batch or 1
        spans = bounds(len(block), size)
        if len(self._tables) == 1:
            requests = self._make_requests(self._parts(block, size, 0), spans)
        elif size == 1:
            requests = self._dealt_singly(block)
        else:
            requests = [self._dealt(block.part(*span)) for span in spans]
        return [
            Payload(data, stop - start, block, stop - 1)
            for data, (start, stop) in zip(requests, spans, strict=True)
        ]

    def _make_requests(
        self, parts: Sequence[bytes], spans: Sequence[tuple[int, int]]
    ) -> list[Request]:
        """A request of each part; `spans`: of its events."""
        if not self._in_transaction:
            return [(part, 1) for part in parts]
        return [
            self._make_request([part], stop - start)
            for part, (start, stop) in zip(parts, spans, strict=True)
        ]

    def _make_request(self, parts: Sequence[bytes], events: int) -> Request:
        """A request of one part, or of several for different tables."""
        if not self._in_transaction and len(parts) == 1:
            return parts[0], 1
        ready = len(parts)
        if self._is_prepared:
            parts, ready = [*parts, SYNC], 1
        elif self.mode is InsertMode.TRANSACTION:
            ready = events
        return b"".join((_BEGIN, *parts, _COMMIT)), ready + 2

    def _dealt(self, block: EventBlock) -> Request:
        """One request of several tables: event i goes to table i modulo their number."""
        count = len(self._tables)
        parts: list[bytes] = []
        for offset in range(min(count, len(block))):
            table = (block.first + offset) % count
            part = block.part(offset, len(block), count)
            parts.extend(self._parts(part, len(part), table))
        return self._make_request(parts, len(block))

    def _dealt_singly(self, block: EventBlock) -> list[Request]:
        count = len(self._tables)
        requests: list[Request] = [(b"", 0)] * len(block)
        for offset in range(min(count, len(block))):
            table = (block.first + offset) % count
            parts = self._parts(block.part(offset, len(block), count), 1, table)
            requests[offset::count] = self._make_requests(parts, [(0, 1)] * len(parts))
        return requests

    def _parts(self, block: EventBlock, size: int, table: int) -> Sequence[bytes]:
        """The messages that insert the block's rows into one table, `size` rows each."""
        columns = self.list_values(block)
        if self.mode is InsertMode.COPY:
            statement = self.copy_statement(table).encode()
            if self.copy_format is CopyFormat.BINARY:
                return copy_binary(columns, size, statement, block.missing)
            return text_rows(columns, size, block.missing, partial(make_copy_ends, statement))
        if self._is_prepared:
            end = EXECUTE if self.mode is InsertMode.TRANSACTION else EXECUTE + SYNC
            return bind_rows(columns, size, _name(table), end, block.missing)
        insert = self._insert_statement(table)
        if self.mode is InsertMode.VALUES_LISTS:
            rows = value_rows(columns, size, b"", b",", block.missing)
            return [make_query(insert + values) for values in rows]
        rows = value_rows(columns, len(block), insert, ROW_SEPARATOR, block.missing)
        statements = rows[0].split(ROW_SEPARATOR)
        queries = [make_query(statement) for statement in statements]
        if self.mode is InsertMode.SINGLE:
            return queries
        return [b"".join(queries[start:stop]) for start, stop in bounds(len(block), size)]


def _name(table: int) -> bytes:
    """The prepared statement that inserts into a table."""
    return b"insert%d" % table


Missing = Mapping[str, NDArray[np.bool_]]
"""Where columns have no value, as `EventBlock.missing` has it."""

_NONE_MISSING: Missing = {}


def bind_rows(
    columns: Columns, size: int, name: bytes, end: bytes, missing: Missing = _NONE_MISSING
) -> list[bytes]:
    """A Bind of the prepared statement and `end` for each row, `size` rows to each result."""
    head = make_bind_head(name, len(columns[0]))
    count = _count(columns)
    heads = np.full(count, np.void(head))
    rows = BinaryRows(columns, heads, _JSONB_VERSION, BIND_TAIL + end, missing)
    octets = heads.view(np.uint8).reshape(count, len(head))
    lengths = np.full(count, rows.lengths - 1 - len(end), ">u4")
    octets[:, LENGTH_AT] = lengths.view(np.uint8).reshape(count, 4)
    if size == 1:
        return rows.singles()
    return [rows.join(start, stop) for start, stop in bounds(count, size)]


def value_rows(
    columns: Columns,
    size: int,
    before: bytes,
    separator: bytes,
    missing: Missing = _NONE_MISSING,
) -> list[bytes]:
    """`before` (v, …) rows joined by `separator`, `size` rows to each result."""
    forms = [
        b"'%b'" if column.type in (ColumnType.TEXT, ColumnType.JSON) else text_format(column)
        for column in columns[0]
    ]
    row = [before.replace(b"%", b"%%") + b"(", b",", b")"]
    return _format(columns, size, forms, row, separator, _LITERAL_ESCAPES, missing, b"NULL")


def text_rows(
    columns: Columns,
    size: int,
    missing: Missing = _NONE_MISSING,
    frame: Frame = no_frame,
) -> list[bytes]:
    """Rows of text COPY, `size` rows to each result, framed."""
    forms = [text_format(column) for column in columns[0]]
    row = [b"", b"\t", b"\n"]
    return _format(columns, size, forms, row, b"", _COPY_ESCAPES, missing, b"\\N", frame)


def _format(
    columns: Columns,
    size: int,
    forms: Sequence[bytes],
    row: Sequence[bytes],
    separator: bytes,
    escapes: Sequence[tuple[bytes, bytes]],
    missing: Missing,
    null: bytes,
    frame: Frame = no_frame,
) -> list[bytes]:
    """Rows of values in these forms; `row`: what stands before, between and behind them."""
    names, values = columns
    texts = (ColumnType.TEXT, ColumnType.JSON)
    shown, data = [], []
    for column, form in zip(names, forms, strict=True):
        own = values[column.name]
        if column.type in texts:
            own = escape(own, escapes)
        shown.append(text_form(column, form))
        data.append(text_values(column, form, own, missing.get(column.name), null))
    before, between, behind = row
    return format_requests(before + between.join(shown) + behind, separator, data, size, frame)


def copy_binary(
    columns: Columns,
    size: int,
    statement: bytes | None = None,
    missing: Missing = _NONE_MISSING,
) -> list[bytes]:
    """Complete binary COPY streams, `size` rows to each; with a statement, the messages of its COPYs."""
    head = struct.pack("!h", len(columns[0]))
    rows = BinaryRows(columns, head, _JSONB_VERSION, missing=missing)
    found = []
    for start, stop in bounds(_count(columns), size):
        head, tail = _BINARY_HEADER, _BINARY_TRAILER
        if statement is not None:
            lengths = rows.lengths
            length = (
                lengths * (stop - start)
                if isinstance(lengths, int)
                else int(lengths[start:stop].sum())
            )
            before, behind = make_copy_ends(statement, len(head) + length + len(tail))
            head, tail = before + head, tail + behind
        found.append(rows.join(start, stop, head, tail))
    return found


def _count(columns: Columns) -> int:
    names, values = columns
    return len(values[names[0].name])
