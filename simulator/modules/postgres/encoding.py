"""Requests to PostgreSQL: binary and text COPY, values lists, single inserts, transactions.

All are built in bulk from the schema: any workload's columns will do. An INSERT of one event is a
prepared statement with binary values (Bind, Execute): the server doesn't parse it again, and numpy makes the
messages of all events at once. Without prepared statements it is a text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.binary_rows import BinaryRows
from ...encoding.columns import KEY_COLUMN, Columns, bounds, escape, text_format, with_client_key
from ...encoding.rows import ROW_SEPARATOR, TextFormat, format_requests
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

# jsonb's binary form begins with a version number.
_JSONB_VERSION = b"\x01"


Insert = tuple[bytes, Any]
"""A statement as text and None; a COPY and its data; nothing and the messages of prepared INSERTs up to a
synchronisation (`bind_rows`)."""


Request = tuple[Sequence[Insert], bool]
"""A payload's data, stored as a whole or not at all, and whether BEGIN and COMMIT go around it; COMMIT in any
case, as it rolls back what has failed."""


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
                (inserts, self._in_transaction or len(inserts) > 1), stop - start, block, stop - 1
            )
            for inserts, (start, stop) in zip(parts, spans, strict=True)
        ]

    def _deal(self, block: EventBlock) -> list[Insert]:
        """The inserts of one request, which goes to several tables."""
        return [
            insert
            for share, part in deal_block(block, len(self._tables))
            for insert in self._list_inserts(part, len(part), share.table)[0]
        ]

    def _deal_singly(self, block: EventBlock) -> list[list[Insert]]:
        requests: list[list[Insert]] = [[]] * len(block)
        for share, part in deal_block(block, len(self._tables)):
            requests[share.rows.start :: len(self._tables)] = self._list_inserts(
                part, 1, share.table
            )
        return requests

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
            requests = bind_rows(columns, size, _name(table), block.missing)
            return [[(b"", messages)] for messages in requests]
        rows = value_rows(columns, len(block), insert, ROW_SEPARATOR, block.missing)
        inserts: list[Insert] = [(text, None) for text in rows[0].split(ROW_SEPARATOR)]
        return [inserts[start:stop] for start, stop in bounds(len(block), size)]


def _name(table: int) -> bytes:
    """The prepared statement that inserts into a table."""
    return b"insert%d" % table


Missing = Mapping[str, NDArray[np.bool_]]
"""Where columns have no value, as `EventBlock.missing` has it."""

_NONE_MISSING: Missing = {}


# https://www.postgresql.org/docs/current/protocol-message-formats.html
_BIND = struct.Struct("!cI")
_TAIL = bytes(2)
"""The end of a Bind: no result has columns whose format could be asked for."""
_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"
_SYNC = b"S\0\0\0\x04"


def _make_head(name: bytes, parameters: int) -> bytes:
    """A Bind of a prepared statement up to its parameters, which are binary, without its length."""
    return _BIND.pack(b"B", 0) + b"\0" + name + struct.pack("!xhhh", 1, 1, parameters)


def bind_rows(
    columns: Columns, size: int, name: bytes, missing: Missing = _NONE_MISSING
) -> list[bytes]:
    """Bind of the prepared statement and Execute for each row, and behind `size` rows Sync."""
    names, values = columns
    head, end = _make_head(name, len(names)), _EXECUTE + _SYNC if size == 1 else _EXECUTE
    count = len(values[names[0].name])
    heads = np.full(count, np.void(head))
    rows = BinaryRows(columns, heads, _JSONB_VERSION, _TAIL + end, missing)
    lengths = np.full(count, rows.lengths - 1 - len(end), ">u4")
    octets = heads.view(np.uint8).reshape(count, len(head))
    octets[:, 1:5] = lengths.view(np.uint8).reshape(count, 4)
    if size == 1:
        return rows.singles()
    return [rows.join(start, stop, b"", _SYNC) for start, stop in bounds(count, size)]


class ValueCutter:
    """Takes apart what `bind_rows` has made, for libpq's own functions. Mostly, values are as long as those
    of the row before."""

    def __init__(self) -> None:
        self._length = 0
        """The length of the last Bind whose values were all there; `_layout` and `_sizes` are those of its
        values."""
        self._layout = struct.Struct("")
        self._sizes: tuple[int, ...] = ()

    def cut(self, messages: bytes) -> Iterator[tuple[bytes, Sequence[bytes | None]]]:
        """The prepared statement's name, and the values of each row, in their binary form, or None."""
        name = messages[_BIND.size + 1 : messages.index(b"\0", _BIND.size + 1)]
        head = _BIND.size + 1 + len(name) + 7
        at = 0
        while messages.startswith(b"B", at):
            length = _BIND.unpack_from(messages, at)[1]
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
    """Values as text; `quoted`: the %-format of texts."""
    texts = (ColumnType.TEXT, ColumnType.JSON)
    return TextFormat(
        lambda column: quoted if column.type in texts else text_format(column),
        lambda column, values: escape(values, escapes) if column.type in texts else values,
        null,
    )


# Text COPY (same page, "Text Format"): in its escapes the backslash comes first.
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
    """`before` (v, …) rows joined by `separator`, `size` rows to each result."""
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
