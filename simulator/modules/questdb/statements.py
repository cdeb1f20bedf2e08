"""INSERTs by PGWire, which is PostgreSQL's protocol: prepared statements with binary values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ...encoding.columns import KEY_COLUMN, Columns, client_keys
from ...workloads.schema import ID, Column, ColumnType, EventBlock
from .._base.sql_queries import SqlDialect
from ..base import Job
from ..postgres.dialects import Connection as PgConnection
from ..postgres.dialects import Dialect
from ..postgres.encoding import CopyFormat, PostgresEncoder
from ..postgres.encoding import InsertMode as PgMode
from ..postgres.writer import PostgresWriter
from .encoding import as_sent, find_sent_values
from .options import InsertMode, QuestdbOptions
from .queries import QuestdbDialect

_MODES = {
    InsertMode.TRANSACTION: PgMode.TRANSACTION,
    InsertMode.STATEMENT: PgMode.SINGLE,
}


class StatementEncoder(PostgresEncoder):
    """Sends times as microseconds in a bigint, JSON and devices' ids as text; the rest as for PostgreSQL."""

    def __init__(self, job: Job, mode: InsertMode) -> None:
        super().__init__(job, _MODES[mode], CopyFormat.BINARY)

    def send_as(self, column: Column) -> Column:
        if column.type is ColumnType.JSON or column.name == ID:
            return Column(column.name, ColumnType.TEXT, nullable=column.nullable)
        return as_sent(column)

    def list_values(self, block: EventBlock) -> Columns:
        columns = [self.send_as(column) for column in block.schema.row]
        values: dict[str, NDArray[Any]] = {}
        for column in block.schema.row:
            sent: NDArray[Any] = find_sent_values(column, block)
            if column.type is ColumnType.TIMESTAMP_MS:
                sent = sent * 1000
            elif column.name == ID:
                sent = sent.astype("S")
            values[column.name] = sent
        if not self.has_client_key:
            return columns, values
        key = Column(KEY_COLUMN, ColumnType.TEXT)
        return [key, *columns], {KEY_COLUMN: client_keys(block), **values}


class PgWire(Dialect):
    """PostgreSQL's protocol as QuestDB speaks it."""

    IS_REPEATABLE = True

    def __init__(self, sql: SqlDialect) -> None:
        """`sql`: compiles queries."""
        self.SQL = sql

    def backend(self, connection: PgConnection) -> Any:
        return None


def make_statement_writer(
    encoder: StatementEncoder, options: QuestdbOptions, job: Job
) -> PostgresWriter:
    """A writer that sends payloads of `StatementEncoder`; OptionError without a connection string."""
    # The load says here what the target's own option may say.
    load = job.load.model_copy(update={"in_flight": options.in_flight(job.load)})
    pg_options = options.pgwire(f"insert_mode={options.insert_mode}")
    dialect = PgWire(QuestdbDialect(job.schema))
    return PostgresWriter(encoder, pg_options, replace(job, load=load), dialect)
