"""Described queries in QuestDB's SQL, sent over HTTP with answers in JSON, for use without PGWire (below).

https://questdb.com/docs/query/rest-api/#exec---execute-queries
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from ...encoding.columns import quote_name
from ...errors import one_line
from ...units import write_duration
from ...workloads.queries import Aggregate, Every, Function, Percentiles, Query, Shape, Where
from ...workloads.schema import Column, ColumnType, Schema
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SqlAsker, read_json
from ..kit.sql_queries import SqlDialect, list_aliased, quote_text
from ..sending import Received, Rows
from .server import ASK_TARGET, Connection, limit_time, read_rows

if TYPE_CHECKING:
    from ..questdb import Questdb


from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray
from psycopg import pq

from ...encoding.columns import KEY_COLUMN, Columns, client_keys
from ...workloads.drawing import BoundQueries
from ...workloads.schema import ID, EventBlock
from ..kit.libpq_lines import Question as PreparedQuestion
from ..options import InsertMode, Job
from ..postgres.dialects import Dialect
from ..postgres.encoding import CopyFormat, PostgresEncoder
from ..postgres.official import DriverAsker, Question
from ..postgres.queries import PostgresAsker
from ..postgres.writer import PostgresWriter
from .encoding import as_sent, find_sent_values

if TYPE_CHECKING:
    from . import Questdb

_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "T": 1}
"""The source for SAMPLE BY."""


class QuestdbDialect(SqlDialect):
    """https://questdb.com/docs/query/sql/select/"""

    NUMBERS: Mapping[ColumnType, str] = {
        ColumnType.INT32: "int",
        ColumnType.INT64: "long",
        ColumnType.FLOAT32: "float",
        ColumnType.FLOAT64: "double",
    }

    # https://questdb.com/docs/query/functions/aggregation/#approx_percentile
    PERCENTILES = Percentiles(
        "approx_percentile with three digits (HdrHistogram)", relative_error=0.001
    )
    IMPOSSIBLE = frozenset({Shape.PERCENTILE_BELOW_0})
    SHAPES = frozenset(Shape) - IMPOSSIBLE

    # A filter on a cast isn't compiled (9.3.4): a day of one machine took 80 ms instead of 3.
    WIDENS = True

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"json_extract({column}::varchar, {quote_text('.' + path)})" if path else column

    def read_path(self, column: Column) -> str:
        path = quote_text("." + ".".join(column.path))
        text = f"json_extract({quote_name(column.stored_as)}, {path})"
        return text if column.type is ColumnType.TEXT else f"{text}::{self.NUMBERS[column.type]}"

    def compare_texts(self, column: Column, where: Where) -> str:
        compared = super().compare_texts(column, where)
        # Unlike in standard SQL, NULL differs from all texts.
        is_told = where.none_of is not None and column.nullable
        return f"{compared} AND {self.read(column)} IS NOT NULL" if is_told else compared

    def instant(self, time_ms: int) -> str:
        return str(time_ms * 1000)

    def bucket(self, time: str, every_ms: int) -> str:
        # SAMPLE BY turns an event's time into the start of its bucket.
        return time

    def group(self, places: int, buckets: Sequence[Every]) -> str:
        if not buckets:
            return super().group(places, buckets)
        # SAMPLE BY groups by everything that isn't computed.
        return f" SAMPLE BY {write_duration(buckets[0].every, _UNITS_MS)} ALIGN TO CALENDAR"

    def among(self, column: str, statement: str, count: int | None) -> str:
        # Only times can be compared with the result of a statement.
        return f"{column} IN ({statement})"

    def select(self, values: Sequence[str]) -> str:
        # Values are ordered by name.
        return list_aliased(values)

    def put_in_order(self, statement: str, query: Query) -> str:
        assert query.order is not None
        by, direction = query.order.by, "DESC" if query.order.descending else "ASC"
        names = [f'"_v{place}"' for place in range(query.width)]
        # There is no NULLS LAST, and symbols would be in the order of UTF-16.
        value = f"{names[by]}::varchar" if self._schema.orders_texts(query) else names[by]
        places = [f"{names[by]} IS NULL", f"{value} {direction}"]
        places += [f"{names[key]} ASC" for key in range(query.keys) if key != by]
        return f"SELECT * FROM ({statement}) ORDER BY {', '.join(places)}"

    def aggregate(self, aggregate: Aggregate, schema: Schema) -> str:
        if aggregate.function is Function.LAST:
            # Rows are ordered by time.
            return f"last({self.read(schema.column(aggregate.column or ''))})"
        return super().aggregate(aggregate, schema)

    def percentile(self, column: Column, percent: float) -> str:
        return f"approx_percentile({self.read(column)}, {percent / 100:g}, 3)"

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # LATEST ON needs a column: a device's document is always the same.
        key = values[0] if values[0].startswith('"') else quote_name(self._schema.device)
        return f"SELECT {list_aliased(values)} FROM {source} LATEST ON {time} PARTITION BY {key}"

    def select_newest_of_one(self, values: Sequence[str], time: str, source: str) -> str:
        # With the column for the device's name, it takes half the time, without an index on that; with a
        # subquery on tags, three times as long.
        if values[0] == quote_name(self._schema.device):
            return self.select_newest(values, time, source)
        return super().select_newest_of_one(values, time, source)


_END = re.compile(rb'\],"count":(\d+)\}\Z')
"""The end of an answer without an error. Quotes within a text would be escaped."""
_END_BYTES = 48


class QuestdbAsker(SqlAsker[Connection]):
    """Sends the queries of `Questdb.compile`."""

    def __init__(self, module: Questdb, in_flight: int) -> None:
        timeout_s = module.options.query_timeout_s
        super().__init__(module, QuestdbDialect(module.job.schema), in_flight, timeout_s)
        self._headers = limit_time(timeout_s)

    def escape(self, part: str) -> str:
        return quote_plus(part)

    def make_request(self, escaped: str) -> HttpRequest:
        # An asker that isn't open only shows what it would send.
        target = self.database.target(escaped) if self._database else ASK_TARGET + escaped
        return HttpRequest("GET", target, headers=self._headers)

    def count_rows(self, body: bytes) -> int:
        if match := _END.search(body, max(0, len(body) - _END_BYTES)):
            return int(match[1])
        # An error that occurred after the first rows were sent, or an answer that isn't QuestDB's.
        answer = read_json(body)
        raise self.database.explain_refusal(
            one_line(
                answer["error"] if isinstance(answer, dict) and "error" in answer else answer, 500
            )
        )

    def decode(self, received: Received) -> Rows:
        return read_rows(read_json(received.data))


# --- PGWire ------------------------------------------------------------------------------------------
# PGWire, which is PostgreSQL's protocol, on the lean path of module postgres.
#
# INSERTs are prepared statements with binary values. For queries, QuestDB's vendor recommends PGWire: each
# statement is prepared once and answers are binary, as with asyncpg, pgx and Npgsql; with `client=official`,
# psycopg 3 queries.
#
# Over HTTP, QuestDB compiles each statement every time, and formatting numbers takes longer. On one busy
# machine, `point` took 0.06 ms over PGWire and 0.5 ms over HTTP, an answer of 160,000 rows 40 ms and 95 ms
# (tenth percentiles).
#
# https://questdb.com/docs/query/pgwire/python/


class StatementEncoder(PostgresEncoder):
    """Sends times as microseconds in a bigint, JSON and devices' ids as text; all else as for PostgreSQL."""

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
    """QuestDB's variant of PostgreSQL's protocol."""

    IS_REPEATABLE = True
    BACKEND = None
    # Times are numbers or binary, and texts UTF-8, whatever is set: it has no such settings.
    SESSION: ClassVar = {}

    def __init__(self, schema: Schema) -> None:
        self.SQL = QuestdbDialect(schema)


def make_statement_writer(module: Questdb) -> PostgresWriter:
    """A writer that sends payloads of `StatementEncoder`; OptionError without a connection string."""
    options, encoder = module.options, module.encoder(module.options, module.job)
    # The load sets here what the target's own option may set.
    job = module.job.change(in_flight=options.in_flight(module.job.load))
    pg_options = options.pgwire(f"insert_mode={options.insert_mode}")
    return PostgresWriter(encoder, pg_options, job, PgWire(job.schema))


# --- queries ----------------------------------------------------------------------------------------


def _in_us(bounds: BoundQueries) -> BoundQueries:
    """The bounds with times in QuestDB's form for parameters: in µs since 1970."""
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
    """Sends the queries of `Questdb.compile`."""

    RESULTS = pq.Format.BINARY

    def __init__(self, module: Questdb, in_flight: int) -> None:
        options = module.options.pgwire("PGWire")
        super().__init__(module, in_flight, options, PgWire(module.job.schema))

    def encode(self, bounds: BoundQueries) -> Iterable[PreparedQuestion]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))


class OfficialQuestdbAsker(DriverAsker):
    """Queries with psycopg 3."""

    def __init__(self, module: Questdb, in_flight: int) -> None:
        options = module.options.pgwire("PGWire")
        super().__init__(module, in_flight, options, PgWire(module.job.schema))

    def encode(self, bounds: BoundQueries) -> Iterable[Question]:
        return super().encode(_in_us(bounds))

    def decode(self, received: Received) -> Rows:
        return _read_times(super().decode(received))
