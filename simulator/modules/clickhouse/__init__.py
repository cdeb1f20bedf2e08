"""ClickHouse, by its HTTP interface.

Each event is stored exactly once, however a connection or the server dies
--------------------------------------------------------------------------
Each INSERT has a token of its own (`insert_deduplication_token`). One whose fate is unknown is sent again
as it is, and the server, which remembers the tokens of the last INSERTs into a table with its parts,
stores it once, whether the first has been stored, is still at work, or never came. An INSERT that fills
several partitions or blocks is stored in parts, of which each has its token: those that are there stay,
and the rest comes.

How many INSERTs a table remembers is the option `deduplication_window` (100,000): the setting
`non_replicated_deduplication_window`, which is 0 by default, so that an INSERT sent again would be stored
twice; of replicated tables `replicated_deduplication_window`, beside which they forget after an hour
(`replicated_deduplication_window_seconds`). It must be more than the INSERTs of all workers into one table
in the time that a request may be tried again: 100,000 are 1,600 a second for a minute. Counted after the
run, a window that was too small shows by too many events.

With `async_insert` the server stores the INSERTs of some 200 ms together, and knows each by its token
still: of replicated tables by `async_insert_deduplicate`, of others where there is a setting
`deduplicate_insert`; without it, a run is refused. With `wait_for_async_insert=false` the server
acknowledges what it has only received. What can't be promised then: that it is stored at all. The count
after the run shows what is missing.

A table is sorted by device and time. ClickHouse has no unique keys and no indices of rows: a key
(`--primary-key client` or `uuid`) is a column like others.

Tags in a table of their own (`tags=table`) are a ReplacingMergeTree: storing them again leaves one row of
each id, at once for queries (`final = 1`), on disk when parts are merged.

What is on disk are the active parts (`system.parts`). To compact, all of a partition are merged into one
(`OPTIMIZE TABLE … FINAL`).

With `client=official` clickhouse-connect sends the same events, see `official`.

Proven on the real engine of ClickHouse (26.9) behind a stand-in for its server: without asynchronous
inserts, replicas and concurrency of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import SimulatorError
from ...workloads.queries import BoundQuery
from ...workloads.tags import Tags
from .._base.connected import TableModule
from .._base.errors import INSERT_REMEDY
from .._base.sql_queries import quote_name
from ..base import Capabilities, Encoding, Job, Query, Support, claim_queries
from ..sending import Writer
from .encoding import NativeEncoder, encode_devices
from .native import TYPES
from .official import make_writer
from .options import CLIENTS, ClickhouseOptions, EncodingOptions, InsertMode
from .queries import ClickhouseDialect, compile_statement, quote_text
from .server import Connection, describe
from .storage import ALLOCATION, read_storage
from .tables import Tables, column_type, fits
from .writer import ClickhouseWriter


class Clickhouse(TableModule[ClickhouseOptions, EncodingOptions, Connection]):
    """A ClickHouse server, or the replicas of one shard."""

    name = "clickhouse"
    PACKAGES = ("httptools",)
    IMPORTED_LATE = ("lz4.frame",)
    options_model = ClickhouseOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "async_insert": Condition.BATCH,
        "wait_for_async_insert": Condition.DURABILITY,
        "fsync_after_insert": Condition.DURABILITY,
        "fsync_part_directory": Condition.DURABILITY,
        "min_compressed_bytes_to_fsync_after_merge": Condition.DURABILITY,
        "engine": Condition.REPLICATION,
        "insert_quorum": Condition.REPLICATION,
    }
    CAPABILITIES = Capabilities(
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.NONE: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.UUID: Support.FULL,
            # Nothing counts rows.
            PrimaryKey.DB: Support.UNSUPPORTED,
            PrimaryKey.SQL: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(ClickhouseDialect.SHAPES),
        shapes=ClickhouseDialect.SHAPES,
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        missing_values=True,
        tags_table=Support.FULL,
        clients=CLIENTS,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch lz4", {"insert_mode": "batch", "compression": "lz4"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self._tables = Tables(options, job)

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> NativeEncoder:
        options.mode(batch)
        return NativeEncoder(job, options.compression)

    def writer(self, batch: int, prefill: bool = False) -> Writer:
        if self.is_official(prefill):
            return make_writer(self.options, self.job)
        encoder = NativeEncoder(self.job, self.options.compression)
        return ClickhouseWriter(encoder, self.options, self.job)

    def connect(self) -> Connection:
        connection = Connection(self.options, self.job)
        connection.check()
        return connection

    def prepare(self) -> None:
        # Before anything is dropped.
        self._check_tokens()
        schema, database = self.job.schema, self.options.database
        if not self._look_up(f"SELECT 1 FROM system.databases WHERE name = {quote_text(database)}"):
            self._run(self._tables.make_database())
        if self.job.clean:
            for table in (*self.job.all_table_names, schema.tags_table):
                self._run(self._tables.drop(table))
        for table in self.job.table_names:
            self._run(self._tables.make(table))
        if schema.tags is Tags.TABLE:
            self._run(self._tables.make_tags())
        if not self.job.clean:
            self._check_engines()
            self.check_columns(self.job.table_names, INSERT_REMEDY)
            for table in self.job.table_names:
                self._run(self._tables.remember_inserts(table))

    def drop_database(self) -> None:
        """Drop it with all that is in it."""
        self._run(self._tables.drop_database())

    def _check_tokens(self) -> None:
        """SimulatorError if the server would not know an INSERT that is sent again."""
        if not self.options.async_insert or self.options.replicated:
            return
        if not self._look_up("SELECT 1 FROM system.settings WHERE name = 'deduplicate_insert'"):
            raise SimulatorError(
                f"ClickHouse at {self.options.server} is too old to know an asynchronous insert into a"
                " MergeTree that is sent again: leave async_insert out, or use replicated=true"
            )

    def _check_engines(self) -> None:
        """SimulatorError if a table that was there before has replicas and shouldn't, or the reverse."""
        for table in self.job.table_names:
            [(engine,)] = self._look_up(
                f"SELECT engine FROM system.tables WHERE database = {quote_text(self.options.database)}"
                f" AND name = {quote_text(table)}"
            )
            if engine.startswith("Replicated") is not self.options.replicated:
                other = str(not self.options.replicated).lower()
                raise SimulatorError(
                    f"table {table} is a {engine}: run without --no-clean, or with replicated={other}"
                )

    def read_columns(self, table: str) -> Mapping[str, str]:
        rows = self._look_up(
            f"SELECT name, type FROM system.columns WHERE database = {quote_text(self.options.database)}"
            f" AND table = {quote_text(table)}"
        )
        return dict(rows)

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {one.name: column_type(schema, one, low_cardinality=False) for one in columns}

    def fits(self, found: str, expected: str) -> bool:
        return fits(found, expected)

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        names = [column.name for column in schema.tags_row]
        for columns in rows:
            self.connection.store(schema.tags_table, names, encode_devices(schema, columns))

    def count_devices(self) -> int | None:
        counts = [self._count(f"{quote_name(table)} FINAL") for table in self.job.tags_tables]
        return counts[0] if counts else None

    def count(self) -> int:
        if not self.options.wait_for_async_insert:
            self._run("SYSTEM FLUSH ASYNC INSERT QUEUE")
        if self.options.replicated:
            for table in self.job.table_names:
                self._run(self._tables.fetch_all(table))
        return super().count()

    def count_rows(self, table: str) -> int:
        return self._count(quote_name(table))

    def _count(self, source: str) -> int:
        return int(self._ask(f"SELECT count() FROM {source}")[0][0])

    def storage(self) -> Storage:
        tables = [*self.job.table_names, *self.job.tags_tables]
        return read_storage(self.connection, self.options.database, tables)

    def storage_during(self) -> Storage:
        return self.storage()  # parts are on disk: there is nothing to flush

    def compact(self) -> bool:
        for table in [*self.job.table_names, *self.job.tags_tables]:
            self._run(self._tables.optimize(table))
        return True

    def compile(self, bound: BoundQuery) -> Query:
        return partial(self._ask, compile_statement(bound, self.job.schema))

    def server_info(self) -> dict[str, Any]:
        return describe(self.connection, self.options, self.job.table_names[0])

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        return self.connection.ask(question, self.options.database)

    def _look_up(self, question: str) -> list[tuple[Any, ...]]:
        """What is asked of the server's own tables, whether or not there is a database for the run."""
        return self.connection.ask(question)

    def _run(self, statement: str) -> None:
        """One that prepares or compacts."""
        self.connection.run(statement, self.options.database_timeout_s)
