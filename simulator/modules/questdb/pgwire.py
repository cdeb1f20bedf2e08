"""PGWire, which is PostgreSQL's protocol, by the lean path of module postgres.

INSERTs are prepared statements with binary values. For queries, QuestDB's vendor recommends it: each
statement is prepared once and answers are binary, as asyncpg, pgx and Npgsql have them; with
`client=official` psycopg 3 asks.

Over HTTP, QuestDB compiles each statement anew, and a number costs more to write. On one busy machine `point`
took 0.06 ms by PGWire and 0.5 ms over HTTP, an answer of 160,000 rows 40 ms and 95 ms (tenth percentiles).

https://questdb.com/docs/query/pgwire/python/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray
from psycopg import pq

from ...encoding.columns import KEY_COLUMN, Columns, client_keys
from ...workloads.drawing import BoundQueries
from ...workloads.schema import ID, Column, ColumnType, EventBlock, Schema
from ..kit.libpq_lines import Question as PreparedQuestion
from ..options import InsertMode, Job
from ..postgres.dialects import Dialect
from ..postgres.encoding import CopyFormat, PostgresEncoder
from ..postgres.official import DriverAsker, Question
from ..postgres.queries import PostgresAsker
from ..postgres.writer import PostgresWriter
from ..sending import Received, Rows
from .encoding import QuestdbOptions, as_sent, find_sent_values
from .queries import QuestdbDialect

if TYPE_CHECKING:
    from . import Questdb


class StatementEncoder(PostgresEncoder):
    """Sends times as microseconds in a bigint, JSON and devices' ids as text; the rest as for PostgreSQL."""

    def __init__(self, job: Job, mode: InsertMode) -> None:
        single = mode is InsertMode.STATEMENT
        super().__init__(job, InsertMode.SINGLE if single else mode, CopyFormat.BINARY)

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
    BACKEND = None
    # Times are numbers or binary, and texts UTF-8, whatever is set: it has no such settings.
    SESSION: ClassVar = {}

    def __init__(self, schema: Schema) -> None:
        self.SQL = QuestdbDialect(schema)


def make_statement_writer(
    encoder: StatementEncoder, options: QuestdbOptions, job: Job
) -> PostgresWriter:
    """A writer that sends payloads of `StatementEncoder`; OptionError without a connection string."""
    # The load says here what the target's own option may say.
    job = job.change(in_flight=options.in_flight(job.load))
    pg_options = options.pgwire(f"insert_mode={options.insert_mode}")
    return PostgresWriter(encoder, pg_options, job, PgWire(job.schema))


# --- questions --------------------------------------------------------------------------------------


def _in_us(bounds: BoundQueries) -> BoundQueries:
    """The bounds with times as QuestDB takes them for parameters: in µs since 1970."""
    if bounds.start_ms is None or bounds.end_ms is None:
        return bounds
    return replace(bounds, start_ms=bounds.start_ms * 1000, end_ms=bounds.end_ms * 1000)


def _read_times(rows: Rows) -> list[tuple[Any, ...]]:
    """The rows with times in ms since 1970."""
    return [
        tuple(
            round(value.replace(tzinfo=UTC).timestamp() * 1000)
            if isinstance(value, datetime)
            else value
            for value in row
        )
        for row in rows
    ]


class PgWireAsker(PostgresAsker):
    """Asks what `Questdb.compile` gives."""

    RESULTS = pq.Format.BINARY

    def __init__(self, module: Questdb, in_flight: int) -> None:
        options = module.options.pgwire("PGWire")
        super().__init__(module, in_flight, options, PgWire(module.job.schema))

    def encode(self, bounds: BoundQueries) -> Iterable[PreparedQuestion]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))


class OfficialQuestdbAsker(DriverAsker):
    """Asks by psycopg 3."""

    def __init__(self, module: Questdb, in_flight: int) -> None:
        options = module.options.pgwire("PGWire")
        super().__init__(module, in_flight, options, PgWire(module.job.schema))

    def encode(self, bounds: BoundQueries) -> Sequence[Question]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))
