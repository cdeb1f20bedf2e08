"""CrateDB, by its HTTP endpoint.

Each event is stored exactly once, however a connection or a node dies
---------------------------------------------------------------------
CrateDB has no transactions: of a request with many rows each is stored or refused alone, and the
answer says which (the rows' counts; of UNNEST, how many). What an error leaves open is what became of
the request. The writer therefore waits a second, then until no INSERT is running any more that has begun
until then (sys.jobs), makes what they stored visible (REFRESH TABLE), looks up by their natural keys
which of the request's events are stored, and leaves only the others to be sent again. With a key
from the client the second copy of a row is impossible in any case; without, a run is refused where
the server keeps no list of what it is at work on (stats.enabled).

When a node dies, another one may send its part of a request again of its own accord, and be told that
the rows are there already. So a duplicate is in doubt, too, and looked up, although this client has
sent it once. Only before a writer's first acknowledged request it means that an earlier run has stored
the event; later, the count after the run shows such events.

While nodes leave and join, CrateDB answers errors that only sound final: `Unknown node` as a syntax error
(4000), a shard that recovers as not found (4040), and, from a node that has answered `GET /` with 200 and
named its master, the run's table as unknown (4041, for ten seconds after a restart of all three nodes). They
are tried again. A table that somebody drops during a run is thus told of when the retries, or the patience,
are over.

What can't be promised without a client's key: that a node which had received the request, but not begun
with it for a second, or a proxy on the way doesn't begin with it after that. The count after the run
shows such copies. Nor with `client=official`: CrateDB's client sends a request again by itself whose
connection was reset, see `official`.

Tags in a table of their own (`tags=table`) have `tags_id` as its primary key; rows that are there stay
(`ON CONFLICT DO NOTHING`), so that storing them may be repeated.

Queries use `date_bin` (4.7 and later), and for the newest events `max_by` (5.2 and later).

What is on disk are the segments of all shards and replicas (`sys.segments`), after a flush. To compact,
each shard is merged into one segment (`OPTIMIZE TABLE`). Left out is the translog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import KEY_COLUMN
from ...errors import SimulatorError
from ...workloads.queries import BoundQuery
from ...workloads.schema import Column, ColumnType, Schema
from ...workloads.tags import Tags
from .._base.connected import TableModule
from .._base.errors import (
    INSERT_REMEDY,
    QUERY_REMEDY,
    MissingTable,
    nothing_to_query,
)
from .._base.sql_queries import compile_query, quote_name
from ..base import Capabilities, Encoding, Job, Query, Support, claim_queries
from ..sending import Writer
from .encoding import InsertMode, StatementEncoder, encode_devices, is_object
from .official import make_writer
from .options import CLIENTS, CratedbOptions, EncodingOptions
from .queries import CratedbDialect
from .server import Connection, describe
from .storage import ALLOCATION, merge_segments, read_segments, read_storage
from .writer import CratedbWriter

# https://cratedb.com/docs/crate/reference/en/latest/general/ddl/data-types.html
_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP WITH TIME ZONE",
    ColumnType.INT64: "BIGINT",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT32: "REAL",
    ColumnType.FLOAT64: "DOUBLE PRECISION",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TEXT: "TEXT",
    # An object takes no arrays and no lone values.
    ColumnType.JSON: "TEXT",
}


class Cratedb(TableModule[CratedbOptions, EncodingOptions, Connection]):
    """A CrateDB cluster."""

    name = "cratedb"
    PACKAGES = ("httptools",)
    options_model = CratedbOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "refresh_interval": Condition.DURABILITY,
        "translog.durability": Condition.DURABILITY,
        "translog.sync_interval": Condition.DURABILITY,
        "nodes": Condition.REPLICATION,
        "number_of_shards": Condition.REPLICATION,
        "number_of_replicas": Condition.REPLICATION,
    }
    CAPABILITIES = Capabilities(
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.NONE: Support.FULL,
            # There are no sequences, and its random keys aren't UUIDs.
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(CratedbDialect.SHAPES),
        shapes=CratedbDialect.SHAPES,
        # Every column is indexed anyway.
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
        # The default of mapping.total_fields.limit is 1000, and `id` is one of them.
        most_columns=1000 - 1,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        missing_values=True,
        tags_table=Support.FULL,
        # Both ends stand for NULL where rows are sorted, and are refused since 5.9:
        # https://github.com/crate/crate/pull/16629
        int64_range=(-(2**63) + 1, 2**63 - 2),
        clients=CLIENTS,
    )
    ENCODINGS = (
        Encoding("bulk", {"insert_mode": "bulk"}),
        Encoding("unnest", {"insert_mode": "unnest"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: CratedbOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> StatementEncoder:
        return StatementEncoder(job, options.mode(batch))

    def writer(self, batch: int, prefill: bool = False) -> Writer:
        if self.is_official(prefill):
            return make_writer(self.options, self.job, batch)
        options = self.options
        if prefill and options.insert_mode is InsertMode.SINGLE:
            options = options.model_copy(update={"insert_mode": None})
        return CratedbWriter(self.encoder(options, self.job, batch), options, self.job)

    def connect(self) -> Connection:
        connection = Connection(self.options, self.job)
        connection.check()
        return connection

    def prepare(self) -> None:
        # Before anything is dropped.
        self._check_jobs()
        if self.job.clean:
            for table in (*self.job.all_table_names, self.job.schema.tags_table):
                self._ask(f"DROP TABLE IF EXISTS {quote_name(table)}")
        for table in self.job.table_names:
            self._ask(self._create(table, self._list_columns()))
        if self.job.schema.tags is Tags.TABLE:
            columns = list(map(self._define, self.job.schema.tags_row))
            columns[0] += " PRIMARY KEY"
            self._ask(self._create(self.job.schema.tags_table, columns))
        if not self.job.clean:
            self.check_columns(self.job.table_names, INSERT_REMEDY)
        self.connection.expect_tables()

    def _check_jobs(self) -> None:
        """SimulatorError unless a request in doubt can be found out about."""
        if self.job.load.primary_key is not PrimaryKey.CLIENT and not self.connection.lists_jobs():
            raise SimulatorError(
                f"CrateDB at {self.options.server} keeps no list of running statements (stats.enabled"
                " is false): after a lost connection, events could be stored twice; as the user"
                ' crate, SET GLOBAL "stats.enabled" = TRUE, or use --primary-key client'
            )

    def _define(self, column: Column) -> str:
        """A column's definition."""
        schema = self.job.schema
        kind = _object(schema) if is_object(schema, column) else _COLUMN_TYPES[column.type]
        return f"{quote_name(column.name)} {kind}"

    def _list_columns(self) -> list[str]:
        """The definitions of the columns of events' rows."""
        columns = list(map(self._define, self.job.schema.row))
        if self.job.load.primary_key is not PrimaryKey.NONE:
            key = f"{quote_name(KEY_COLUMN)} TEXT"
            if self.job.load.primary_key is PrimaryKey.DB:
                key += " DEFAULT gen_random_text_uuid()"
            columns.insert(0, f"{key} PRIMARY KEY")
        return columns

    def _create(self, table: str, columns: Sequence[str]) -> str:
        options = self.options
        statement = f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})"
        if options.shards is not None:
            statement += f" CLUSTERED INTO {options.shards} SHARDS"
        if options.replicas is not None:
            statement += f" WITH (number_of_replicas = '{options.replicas}')"
        return statement

    def read_columns(self, table: str) -> Mapping[str, str]:
        found = self._ask(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = ? AND table_name = ?",
            [self.options.default_schema, table],
        )
        return dict(found)

    def prepare_queries(self) -> None:
        schema = self.job.schema
        for table in (schema.table, *self.job.tags_tables):
            try:
                self._ask(f"REFRESH TABLE {quote_name(table)}")
            except MissingTable as error:
                raise nothing_to_query(table, self.job) from error
        self.check_columns([schema.table], QUERY_REMEDY)

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        for columns in rows:
            self.connection.store_missing(encode_devices(schema, columns))
        # Queries that join them find none before that.
        self._ask(f"REFRESH TABLE {quote_name(schema.tags_table)}")

    def count_rows(self, table: str) -> int:
        self._ask(f"REFRESH TABLE {quote_name(table)}")
        return int(self._ask(f"SELECT count(*) FROM {quote_name(table)}")[0][0])

    def storage(self) -> Storage:
        options = self.options
        return read_storage(
            self.connection,
            options.default_schema,
            [*self.job.table_names, *self.job.tags_tables],
            options.database_timeout_s,
        )

    def storage_during(self) -> Storage:
        tables = [*self.job.table_names, *self.job.tags_tables]
        return read_segments(self.connection, self.options.default_schema, tables)

    def compact(self) -> bool:
        tables = [*self.job.table_names, *self.job.tags_tables]
        merge_segments(self.connection, tables, self.options.database_timeout_s)
        return True

    def compile(self, bound: BoundQuery) -> Query:
        return partial(self._ask, compile_query(bound, self.job.schema, CratedbDialect()))

    def server_info(self) -> dict[str, Any]:
        return describe(self.connection, self.options.default_schema, self.job.table_names[0])

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.ask(statement, values)


def _object(schema: Schema) -> str:
    """The type of a device's attributes: more than the one that names it may come."""
    return f"OBJECT(DYNAMIC) AS ({quote_name(schema.device_path or '')} TEXT)"
