"""Requests to PostgreSQL: binary and text COPY, values lists, single inserts, transactions.

All are built in bulk from the schema: any workload's columns will do. An INSERT of one event is a
prepared statement with binary values (Bind, Execute): the server doesn't parse it again, and numpy makes the
messages of all events at once. Without prepared statements it is a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, Columns, bounds, quote_name, with_client_key
from ...encoding.postgres_rows import TYPE_OIDS, bind_rows, copy_binary, text_rows, value_rows
from ...encoding.rows import ROW_SEPARATOR
from ...workloads.schema import Column, ColumnType, EventBlock
from ..kit.libpq_pipeline import Insert
from ..options import InsertMode, Job
from ..sending import Encoder, Payload, deal_block


class CopyFormat(StrEnum):
    """The format of COPY."""

    BINARY = "binary"
    TEXT = "text"


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
        super().__init__(job)
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

    def encode(self, block: EventBlock) -> list[Payload]:
        size = self.size
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
