"""Requests to PostgreSQL: binary and text COPY, values lists, single inserts, transactions.

All are built in bulk from the schema: any workload's columns will do. An INSERT of one event is a
prepared statement with binary values: the server doesn't parse it again. Without prepared statements it is a
text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import (
    BIG_ENDIAN,
    KEY_COLUMN,
    Columns,
    bounds,
    escape,
    text_format,
    with_client_key,
)
from ...encoding.rows import ROW_SEPARATOR, format_requests, text_form, text_values
from ...workloads.schema import Column, ColumnType, EventBlock
from .._base.sql_queries import quote_name
from .._base.tables import deal_block
from ..base import Job
from ..sending import Encoder, Payload


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


Insert = tuple[bytes, Any]
"""A statement as text and None; a COPY and its data; the name of a prepared statement and a row of its
values, each in its binary form or None."""


class Request(NamedTuple):
    """A payload's data: what is stored as a whole or not at all."""

    inserts: Sequence[Insert]
    in_transaction: bool
    """Whether BEGIN and COMMIT go around it; COMMIT in any case, as it rolls back what has failed."""


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
    """Encodes in one insert mode, as `Request`."""

    def __init__(
        self,
        job: Job,
        mode: InsertMode,
        copy_format: CopyFormat,
        *,
        prepared: bool = True,
        copy_is_atomic: bool = True,
    ) -> None:
        """`prepared`: single inserts and transactions by the statements of `list_prepared`;
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

    def list_prepared(self) -> list[tuple[bytes, bytes, Sequence[int]]]:
        """The statements that must be prepared on a connection: name, text and types of the parameters."""
        if not self._is_prepared:
            return []
        marks = ", ".join(f"${number}" for number in range(1, len(self._types) + 1)).encode()
        return [
            (_name(table), self._insert_statement(table) + b"(%b)" % marks, self._types)
            for table in range(len(self._tables))
        ]

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        size = batch or 1
        spans = bounds(len(block), size)
        if len(self._tables) == 1:
            parts = self._list_inserts(block, size, 0)
        elif size == 1:
            parts = self._deal_singly(block)
        else:
            parts = [self._deal(block.part(*span)) for span in spans]
        return [
            Payload(
                Request(inserts, self._in_transaction or len(inserts) > 1),
                stop - start, block, stop - 1,
            )
            for inserts, (start, stop) in zip(parts, spans, strict=True)
        ]  # fmt: skip

    def _deal(self, block: EventBlock) -> list[Insert]:
        """One request of several tables."""
        return [
            insert
            for share, part in deal_block(block, len(self._tables))
            for insert in self._list_inserts(part, len(part), share.table)[0]
        ]

    def _deal_singly(self, block: EventBlock) -> list[list[Insert]]:
        found: list[list[Insert]] = [[]] * len(block)
        for share, part in deal_block(block, len(self._tables)):
            found[share.rows.start :: len(self._tables)] = self._list_inserts(part, 1, share.table)
        return found

    def _list_inserts(self, block: EventBlock, size: int, table: int) -> list[list[Insert]]:
        """What inserts the block's rows into one table, `size` rows to each request."""
        columns = self.list_values(block)
        if self.mode is InsertMode.COPY:
            make_rows = copy_binary if self.copy_format is CopyFormat.BINARY else text_rows
            statement = self.copy_statement(table).encode()
            return [[(statement, data)] for data in make_rows(columns, size, block.missing)]
        insert = self._insert_statement(table)
        if self.mode is InsertMode.VALUES_LISTS:
            lists = value_rows(columns, size, b"", b",", block.missing)
            return [[(insert + values, None)] for values in lists]
        if self._is_prepared:
            inserts: list[Insert] = list(
                zip(repeat(_name(table)), bind_rows(columns, block.missing), strict=False)
            )
        else:
            rows = value_rows(columns, len(block), insert, ROW_SEPARATOR, block.missing)
            inserts = [(statement, None) for statement in rows[0].split(ROW_SEPARATOR)]
        if size == 1:
            return [[insert] for insert in inserts]
        return [inserts[start:stop] for start, stop in bounds(len(block), size)]


def _name(table: int) -> bytes:
    """The prepared statement that inserts into a table."""
    return b"insert%d" % table


Missing = Mapping[str, NDArray[np.bool_]]
"""Where columns have no value, as `EventBlock.missing` has it."""

_NONE_MISSING: Missing = {}


def bind_rows(
    columns: Columns, missing: Missing = _NONE_MISSING
) -> Iterator[tuple[bytes | None, ...]]:
    """The values of each row in their binary form; None: there is none."""
    names, values = columns
    return zip(
        *(_list_binary(one, values[one.name], missing.get(one.name)) for one in names), strict=True
    )


def _list_binary(
    column: Column, data: NDArray[Any], missing: NDArray[np.bool_] | None
) -> list[bytes | None]:
    found: list[bytes | None]
    if kind := BIG_ENDIAN.get(column.type):
        data = np.ascontiguousarray(data.astype(kind))
        found = data.view(f"V{data.dtype.itemsize}").tolist()
    elif column.type is ColumnType.JSON:
        found = [_JSONB_VERSION + text for text in data.tolist()]
    else:
        found = data.tolist()
    if missing is not None:
        for row in np.flatnonzero(missing).tolist():
            found[row] = None
    return found


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
) -> list[bytes]:
    """Rows of text COPY, `size` rows to each result."""
    forms = [text_format(column) for column in columns[0]]
    row = [b"", b"\t", b"\n"]
    return _format(columns, size, forms, row, b"", _COPY_ESCAPES, missing, b"\\N")


def _format(
    columns: Columns,
    size: int,
    forms: Sequence[bytes],
    row: Sequence[bytes],
    separator: bytes,
    escapes: Sequence[tuple[bytes, bytes]],
    missing: Missing,
    null: bytes,
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
    return format_requests(before + between.join(shown) + behind, separator, data, size)


def copy_binary(columns: Columns, size: int, missing: Missing = _NONE_MISSING) -> list[bytes]:
    """Complete binary COPY streams, `size` rows to each."""
    names, values = columns
    rows = BinaryRows(columns, struct.pack("!h", len(names)), _JSONB_VERSION, missing=missing)
    return [
        rows.join(start, stop, _BINARY_HEADER, _BINARY_TRAILER)
        for start, stop in bounds(len(values[names[0].name]), size)
    ]
