"""Options of targets on PostgreSQL and its relatives, and requests to them: binary and text COPY, values
lists, single inserts, transactions.

All are built in bulk from the schema of any workload. An INSERT of one event is a prepared statement with
binary values (Bind, Execute): the server doesn't parse it again, and numpy builds the messages of all events
at once. Without prepared statements, it is a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import cycle
from typing import Annotated, Any, ClassVar, Self

import psycopg
from psycopg.conninfo import make_conninfo
from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList, Load, PrimaryKey, Role
from ...encoding.columns import KEY_COLUMN, Columns, bounds, quote_name, with_client_key
from ...encoding.postgres_rows import TYPE_OIDS, bind_rows, copy_binary, text_rows, value_rows
from ...encoding.rows import ROW_SEPARATOR
from ...errors import OptionError
from ...workloads.schema import Column, ColumnType, EventBlock
from ..base import Client
from ..kit.libpq import ConnectionString, list_secrets, parse_dsn, public_dsn
from ..kit.libpq_pipeline import Insert
from ..kit.module import IndexOptions
from ..options import LEAN, PAYLOAD, InsertMode, Job, among, choose_mode
from ..sending import Encoder, Request, deal_block
from .dialects import DIALECTS, Dialect, DialectName


class CopyFormat(StrEnum):
    """The format of COPY."""

    BINARY = "binary"
    TEXT = "text"


CLIENTS = {
    LEAN: Client(f"{__package__}:make_writer", f"{__package__}:make_asker"),
    "official": Client(
        f"{__package__}.official:DriverWriter",
        f"{__package__}.official:DriverAsker",
        packages=("psycopg2-binary",),
        ways={
            InsertMode.COPY: "psycopg2's copy_expert",
            InsertMode.VALUES_LISTS: "psycopg2's execute_values",
            InsertMode.TRANSACTION: "psycopg2's executemany",
            InsertMode.SINGLE: "psycopg2's execute",
        },
    ),
    "psycopg3": Client(
        f"{__package__}.official:DriverWriter",
        f"{__package__}.official:DriverAsker",
        packages=("psycopg", "psycopg-binary"),
        ways={
            InsertMode.COPY: "psycopg 3's copy",
            InsertMode.TRANSACTION: "psycopg 3's executemany",
            InsertMode.SINGLE: "psycopg 3's execute",
        },
    ),
}
"""The values of the option `client`."""


MODES = (
    InsertMode.COPY,
    InsertMode.VALUES_LISTS,
    InsertMode.TRANSACTION,
    InsertMode.SINGLE,
)


class ServerOptions(IndexOptions):
    """How to send events, where the server is, and what to create there: for this module and those built on
    it."""

    ADDRESSES: ClassVar[str] = "connection_string"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: copy (default with --batch), values_lists, transaction "
        "(an INSERT per event, a commit per batch), single (default without --batch)",
    )
    use_values_lists: Annotated[bool, Condition.BATCH, PAYLOAD] = Field(
        False, description="the reference's name for insert_mode=values_lists; with --batch only"
    )
    copy_format: Annotated[CopyFormat, Condition.BATCH, PAYLOAD] = Field(
        CopyFormat.BINARY,
        description="binary or text, which dialect cockroachdb can't take for JSON columns",
    )
    prepared_statements: Annotated[bool, Condition.CLIENT, PAYLOAD] = Field(
        True,
        description="send insert modes single and transaction as prepared statements with binary"
        " values; false: as text, for a proxy that doesn't keep prepared statements,"
        " such as PgBouncer in transaction mode without max_prepared_statements",
    )

    connection_string: Annotated[ConnectionString, Condition.NONE, ACCESS] = Field(
        repr=False, description="libpq connection string or URL"
    )
    password: str | None = Field(
        None, repr=False, description="the user's password, instead of one in connection_string"
    )
    primary_key_constraint: Annotated[str | None, Condition.SCHEMA] = Field(
        None, description="replaces PRIMARY KEY (id) in CREATE TABLE"
    )
    install_extensions: CommaList = Field(
        [], description="extensions to create first, separated by commas"
    )
    connections: Annotated[int | None, Condition.CLIENT] = Field(
        None,
        ge=1,
        description="connections of each worker; if fewer than its requests in flight, each is pipelined "
        "(default: one per request in flight)",
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="seconds until an insert without an answer is retried"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="seconds until any other request without an answer fails"
    )

    def mode(self, load: Load) -> InsertMode:
        default = self._batch_mode()
        return choose_mode("insert_mode", self.insert_mode, load, InsertMode.SINGLE, default)

    def for_prefill(self) -> Self:
        batches = self.insert_mode in (InsertMode.COPY, InsertMode.VALUES_LISTS)
        changes = {} if batches else {"insert_mode": self._batch_mode()}
        return super().for_prefill().model_copy(update=changes)

    def _batch_mode(self) -> InsertMode:
        return InsertMode.VALUES_LISTS if self.use_values_lists else self.find_dialect().BATCH_MODE

    def find_dialect(self) -> Dialect:
        """The server's dialect."""
        return DIALECTS[DialectName.POSTGRESQL]

    @classmethod
    def _split_addresses(cls, text: str) -> list[str]:
        try:
            parts = parse_dsn(text)
        except psycopg.ProgrammingError:
            return []
        hosts = (parts.get("host") or parts.get("hostaddr") or "localhost").split(",")
        ports = parts.get("port", "").split(",")
        return [f"{host}:{port or 5432}" for host, port in zip(hosts, cycle(ports), strict=False)]

    @property
    def dsn(self) -> str:
        """The connection string with the password, wherever it was given."""
        if self.password is None:
            return self.connection_string
        return make_conninfo(self.connection_string, password=self.password)

    def secrets(self) -> list[str]:
        return list_secrets(self.dsn)

    def table_suffix(self) -> str:
        """What follows the columns in CREATE TABLE; OptionError if the server doesn't support it."""
        return ""

    def public(self) -> dict[str, Any]:
        shown = super().public() | {"connection_string": public_dsn(self.connection_string)}
        return shown | ({"password": "***"} if self.password is not None else {})


class PostgresOptions(ServerOptions):
    """Options of targets with `module: postgres`; the server may also be a relative of PostgreSQL."""

    dialect: Annotated[DialectName, PAYLOAD] = Field(
        DialectName.POSTGRESQL,
        description="what the server is: postgresql, cockroachdb (batches are values_lists unless "
        "insert_mode says copy) or yugabytedb",
    )
    tablets: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, description="split each table into this many tablets (dialect yugabytedb)"
    )
    colocation: Annotated[bool | None, Condition.REPLICATION] = Field(
        None,
        description="put the tables into the shared tablet of a database created WITH COLOCATION, or"
        " (false) outside it (dialect yugabytedb; default: the database's setting)",
    )

    def find_dialect(self) -> Dialect:
        return DIALECTS[self.dialect]

    def table_suffix(self) -> str:
        return self.find_dialect().table_suffix(self.tablets, self.colocation)


def check_copy(options: ServerOptions, job: Job) -> None:
    """OptionError if texts would be copied into a JSON column that keeps their escapes."""
    dialect, load = options.find_dialect(), job.load
    columns = [column.name for column in job.schema.row if column.type is ColumnType.JSON]
    if dialect.COPY_UNESCAPES_JSON or load.role is Role.READ or not columns:
        return
    if load.role is Role.FILL:
        options, job = options.for_prefill(), job.for_prefill()
    mode, is_lean = options.mode(job.load), options.client == LEAN
    is_binary = is_lean and options.copy_format is CopyFormat.BINARY
    if mode is not InsertMode.COPY or is_binary:
        return
    other = next(
        way for way in (MODES if is_lean else CLIENTS[options.client].ways) if way is not mode
    )
    binary = "copy_format=binary, or " if is_lean else ""
    raise OptionError(
        f"dialect {dialect.name} can't copy texts: its COPY doesn't unescape JSON columns"
        f" ({', '.join(columns)}), so other values would be stored: use {binary}insert_mode={other}"
    )


class PostgresEncoder(Encoder):
    """Encodes in one insert mode, as `Inserts`."""

    def __init__(
        self,
        job: Job,
        mode: InsertMode,
        copy_format: CopyFormat,
        *,
        prepared: bool = True,
        copy_is_atomic: bool = True,
    ) -> None:
        """`prepared`: use the statements of `list_prepared` for single inserts and transactions;
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
        """The column in the form in which its values are sent."""
        return column

    def list_values(self, block: EventBlock) -> Columns:
        """The columns of the block's rows in the form to send, and their values."""
        if self.has_client_key:
            return with_client_key(block)
        return block.schema.row, block.row_columns

    def copy_statement(self, table: int) -> str:
        """The COPY for the data from `encode`."""
        name = quote_name(self._tables[table])
        # The syntax from before PostgreSQL 9, since older CockroachDB supports no other.
        how = " WITH BINARY" if self.copy_format is CopyFormat.BINARY else ""
        return f"COPY {name} ({self._column_list}) FROM STDIN{how}"

    def _insert_statement(self, table: int) -> bytes:
        """An INSERT up to its values."""
        name = quote_name(self._tables[table])
        return f"INSERT INTO {name} ({self._column_list}) VALUES ".encode()

    def list_prepared(self) -> list[tuple[bytes, bytes, Sequence[int]]]:
        """The statements to prepare on a connection: name, text and types of the parameters."""
        if not self._is_prepared:
            return []
        marks = ", ".join(f"${number}" for number in range(1, len(self._types) + 1)).encode()
        return [
            (_name(table), self._insert_statement(table) + b"(%b)" % marks, self._types)
            for table in range(len(self._tables))
        ]

    def encode(self, block: EventBlock) -> list[Request]:
        size = self.size
        spans = bounds(len(block), size)
        if len(self._tables) == 1:
            parts = self._list_inserts(block, size, 0)
        elif size == 1:
            parts = self._deal_singly(block)
        else:
            parts = [self._deal(block.part(*span)) for span in spans]
        return [
            Request(
                (inserts, self._in_transaction or len(inserts) > 1), stop - start, block, stop - 1
            )
            for inserts, (start, stop) in zip(parts, spans, strict=True)
        ]

    def _deal(self, block: EventBlock) -> list[Insert]:
        """The inserts of one request that is dealt to several tables."""
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
        """The inserts of the block's rows into one table, `size` rows per request."""
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
