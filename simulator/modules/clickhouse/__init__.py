"""ClickHouse, over its HTTP interface.

Each event is stored exactly once, however a connection or the server dies
--------------------------------------------------------------------------
Each INSERT has its own token (`insert_deduplication_token`). An INSERT whose outcome is unknown is sent again
unchanged. The server remembers the tokens of the last INSERTs into a table with its parts, so it stores the
INSERT once, whether the first attempt was stored, is still running, or never arrived. An INSERT that fills
several partitions or blocks is stored in parts, each with its own token: parts that are already stored stay,
and the rest is added.

The option `deduplication_window` (100,000) sets how many INSERTs a table remembers. It sets
`non_replicated_deduplication_window`, which is 0 by default, so that a repeated INSERT would be stored twice;
for replicated tables `replicated_deduplication_window`, and these also forget after an hour
(`replicated_deduplication_window_seconds`). It must exceed the INSERTs of all workers into one table during
the time in which a request may be retried: 100,000 are 1,600 a second for a minute. If the window was too
small, the count after the run shows too many events.

With `async_insert`, the server stores the INSERTs of about 200 ms together, and still recognises each by its
token: for replicated tables with `async_insert_deduplicate`, for others if the server has the setting
`deduplicate_insert`; without it, a run is refused. With `wait_for_async_insert=false`, the server
acknowledges INSERTs that it has only received, so they may never be stored. The count after the run shows
what is missing.

A table is sorted by device and time. ClickHouse has no unique keys and no indices of rows: a key
(`--primary-key client` or `uuid`) is an ordinary column.

Tags in a table of their own (`tags=table`) are a ReplacingMergeTree: storing them again leaves one row per
id, immediately in queries (`final = 1`), and on disk once parts are merged.

The size on disk is that of the active parts (`system.parts`). To compact, all parts of a partition are merged
into one (`OPTIMIZE TABLE … FINAL`).

With `client=official`, clickhouse-connect sends the same events: see `server`.

Tested with the real engine of ClickHouse (26.9) behind a stand-in for its server: without asynchronous
inserts, replicas, and the server's own concurrency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import MIB, Allocation, Level, PrimaryKey, Storage
from ...encoding.columns import quote_name
from ...errors import SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.schema import ID, Column, ColumnType
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Needed,
    OwnSchema,
    Support,
    support_keys,
)
from ..kit.module import MARK
from ..kit.options import BATCH_MODES
from ..kit.own_tables import own_schema_lacks
from ..kit.sql_module import SqlModule
from ..options import LEAN, InsertMode
from .encoding import (
    TYPES,
    ClickhouseOptions,
    Codecs,
    NativeEncoder,
    Partition,
    encode_devices,
)
from .queries import ClickhouseDialect, compile_statement, name_device, quote_text
from .server import Connection, read_table_settings

_SERVER_SETTINGS = (
    "async_insert_busy_timeout_max_ms", "async_insert_busy_timeout_min_ms", "async_insert_max_data_size",
    "async_insert_use_adaptive_busy_timeout", "insert_quorum", "max_insert_threads", "max_memory_usage",
    "max_threads", "use_query_cache",
)  # fmt: skip
_TABLE_SETTINGS = (
    "fsync_after_insert", "fsync_part_directory", "index_granularity", "min_bytes_for_wide_part",
    "min_compressed_bytes_to_fsync_after_merge", "non_replicated_deduplication_window",
    "parts_to_delay_insert", "parts_to_throw_insert", "replicated_deduplication_window",
)  # fmt: skip

# https://clickhouse.com/docs/operations/settings/settings#max_compress_block_size
ALLOCATION = Allocation(
    unit_bytes=MIB, cause="ClickHouse compresses columns in blocks of up to 1 MiB, and merges parts"
)
_SOURCE = (
    "system.parts: the files of all active parts, with the marks and the primary index, on the"
    " server that was asked; without merged parts that are not yet deleted, and without the log"
    " of insert tokens"
)

_PARTITIONS = {
    Partition.MONTH: "toYYYYMM({time})",
    Partition.WEEK: "toMonday({time})",
    Partition.DAY: "toYYYYMMDD({time})",
}

# https://clickhouse.com/docs/sql-reference/statements/create/table#specialized-codecs
_SERIES = {
    ColumnType.TIMESTAMP_MS: "Delta, ZSTD",
    ColumnType.INT64: "Delta, ZSTD",
    ColumnType.INT32: "Delta, ZSTD",
    ColumnType.FLOAT32: "Gorilla, ZSTD",
    ColumnType.FLOAT64: "Gorilla, ZSTD",
}


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """https://clickhouse.com/docs/operations/settings/settings#insert_quorum"""
    quorum = str(settings.get("insert_quorum", "0"))
    if "Replicated" not in str(settings.get("engine", "")):
        return 1
    return max(1, int(quorum)) if quorum.isdigit() else None


class Clickhouse(SqlModule[ClickhouseOptions, Connection]):
    """A ClickHouse server, or the replicas of one shard."""

    name = "clickhouse"
    IMPORTED_LATE = ("lz4.frame",)
    options_model = ClickhouseOptions
    # `insert_deduplication_token`: https://clickhouse.com/docs/whats-new/changelog/2022#222
    OLDEST: ClassVar[Mapping[str, str]] = {"ClickHouse": "22.2"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "async_insert": Condition.BATCH,
        "wait_for_async_insert": Condition.DURABILITY,
        "fsync_after_insert": Condition.DURABILITY,
        "fsync_part_directory": Condition.DURABILITY,
        "min_compressed_bytes_to_fsync_after_merge": Condition.DURABILITY,
        "engine": Condition.REPLICATION,
        "insert_quorum": Condition.REPLICATION,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(
            f"{__name__}.server:ClickhouseWriter", f"{__package__}.server:ClickhouseAsker"
        ),
        # A session of the client takes one request at a time.
        "official": Client(
            f"{__name__}.server:OfficialClickhouseWriter",
            f"{__name__}.server:OfficialClickhouseAsker",
            packages=("clickhouse-connect",),
            ways={
                InsertMode.BATCH: "clickhouse-connect's insert of rows with an InsertContext",
                InsertMode.SINGLE: "the same with one row",
            },
        ),
    }
    CAPABILITIES = Capabilities(
        ageing=Ageing("partitions of a step's time, dropped whole"),
        durability=Durability(
            {
                "wait_for_async_insert": Needed(("true", "1"), "once it has been stored, or never"),
                "fsync_after_insert": Needed(("true", "1"), "when the operating system writes it"),
            },
            count_places=_count_places,
        ),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(BATCH_MODES, Support.FULL),
        # No sequential keys: nothing counts rows.
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.CLIENT, PrimaryKey.UUID),
        shapes=ClickhouseDialect.SHAPES,
        statements="SQL",
        own_schema=OwnSchema("SQL", options=("fsync_after_insert",)),
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        not_finite=True,
        in_flight=dict.fromkeys(BATCH_MODES, Support.FULL),
        tags_table=Support.FULL,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch lz4", {"insert_mode": "batch", "compression": "lz4"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    TYPES = TYPES
    # It has no unique keys.
    KEYS: ClassVar = {
        PrimaryKey.CLIENT: "String",
        PrimaryKey.UUID: "UUID DEFAULT generateUUIDv4()",
    }
    DIALECT = ClickhouseDialect()
    COLUMNS = "SELECT name, type FROM system.columns WHERE database = {place} AND table = {table}"
    MARKS = (
        "SELECT name, comment, endsWith(engine, 'MergeTree') FROM system.tables"
        " WHERE database = {place} AND name IN ({names})"
    )

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        super().__init__(options, job)
        cluster = options.cluster if options.replicated else None
        self._on_cluster = f" ON CLUSTER {quote_name(cluster)}" if cluster else ""
        kind = "replicated" if options.replicated else "non_replicated"
        self._window = f"{kind}_deduplication_window = {options.deduplication_window}"

    @classmethod
    def encoder(cls, options: ClickhouseOptions, job: Job) -> NativeEncoder:
        return NativeEncoder(job, options.compression)

    def connect(self) -> Connection:
        return Connection.connect(self.options, self.job)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.connection.ask(statement, self.options.database)

    def execute(self, statement: str) -> None:
        self.connection.run(statement, self.options.database_timeout_s)

    # --- tables -----------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self.options.database

    def name_table(self, table: str) -> str:
        return f"{quote_name(self.options.database)}.{quote_name(table)}{self._on_cluster}"

    def prepare(self) -> None:
        if self.options.async_insert and not self.options.replicated:
            question = "SELECT 1 FROM system.settings WHERE name = 'deduplicate_insert'"
            if not self.connection.ask(question):
                raise SimulatorError(
                    f"ClickHouse at {self.options.server} is too old to deduplicate a repeated asynchronous"
                    " insert into a MergeTree: leave async_insert out, or use replicated=true"
                )
        database = self.options.database
        # Outside any database: there may be none.
        databases = self.connection.ask(
            f"SELECT 1 FROM system.databases WHERE name = {quote_text(database)}"
        )
        if not databases:
            self.execute(self._create_database())
        super().prepare()

    def describe_schema(self) -> list[str]:
        return [self._create_database(), *super().describe_schema()]

    def _create_database(self) -> str:
        """The statement that creates the database."""
        database = quote_name(self.options.database)
        return f"CREATE DATABASE IF NOT EXISTS {database}{self._on_cluster}"

    def drop_database(self) -> None:
        """Drop the database and everything in it."""
        database = quote_name(self.options.database)
        self.execute(f"DROP DATABASE IF EXISTS {database}{self._on_cluster} SYNC")

    def drop(self, table: str) -> None:
        # SYNC: otherwise it would keep its disk space for some minutes.
        self.execute(f"DROP TABLE IF EXISTS {self.name_table(table)} SYNC")

    def finish_table(self, table: str) -> str:
        # Without arguments, Keeper's path and the replica's name come from the server's settings.
        engine = " ENGINE = Replicated" if self.options.replicated else " ENGINE = "
        mark = f" COMMENT {quote_text(MARK)}"
        if table in self.job.tags_tables:
            # Rows with the same id become one when parts are merged.
            return f"{engine}ReplacingMergeTree ORDER BY {quote_name(ID)}{mark}"
        schema, partition = self.job.schema, _PARTITIONS.get(self.options.partition)
        time = quote_name(schema.time)
        if self.job.retention is not None:
            partition = f"intDiv(toUnixTimestamp64Milli({{time}}), {self.job.retention.step_ms})"
        device = quote_name(ID) if schema.is_apart(schema.device) else name_device(schema)
        partitions = f" PARTITION BY {partition.format(time=time)}" if partition else ""
        settings = [self._window]
        if self.options.fsync_after_insert:
            settings += ["fsync_after_insert = 1", "fsync_part_directory = 1"]
        return (
            f"{engine}MergeTree{partitions} ORDER BY ({device}, {time})"
            f" SETTINGS {', '.join(settings)}{mark}"
        )

    def type_of(self, column: Column) -> str:
        schema, kind = self.job.schema, self._plain_type_of(column)
        describes = column.name == schema.device or column.tag
        if self.options.low_cardinality and column.type is ColumnType.TEXT and describes:
            return f"LowCardinality({kind})"
        return kind

    def _plain_type_of(self, column: Column) -> str:
        schema = self.job.schema
        if column.name == schema.device and schema.device_path:
            return f"JSON({quote_name(schema.device_path)} String)"
        kind = TYPES[column.type]
        return f"Nullable({kind})" if column.nullable else kind

    def define(self, column: Column) -> str:
        kind = self.type_of(column)
        codec = "" if kind.startswith("JSON") else self._codec(column.type)
        return f"{quote_name(column.name)} {kind}{codec}"

    def define_columns(self, table: str) -> list[str]:
        definitions = super().define_columns(table)
        if self.has_key(table):
            definitions[0] += self._codec(ColumnType.TEXT)
        return definitions

    def _codec(self, kind: ColumnType) -> str:
        codecs = self.options.codecs
        if codecs is Codecs.DEFAULT:
            return ""
        codec = _SERIES.get(kind, "ZSTD") if codecs is Codecs.SERIES else "ZSTD"
        return f" CODEC({codec})"

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: self._plain_type_of(column) for column in columns}

    def fits(self, actual: str, expected: str) -> bool:
        if expected.startswith("JSON("):
            # The server chooses the form, and it may have more paths.
            return actual.startswith("JSON")
        return actual in (expected, f"LowCardinality({expected})")

    def delete_older(self, before_ms: int) -> None:
        """https://clickhouse.com/docs/sql-reference/statements/alter/partition#drop-partitionpart"""
        assert self.job.retention is not None
        first = before_ms // self.job.retention.step_ms
        for table in self.job.table_names:
            steps = self.ask(
                "SELECT DISTINCT toInt64(partition) AS step FROM system.parts WHERE active"
                f" AND database = {quote_text(self.options.database)} AND table = {quote_text(table)}"
                f" AND step < {first} ORDER BY step"
            )
            if steps:
                dropped = ", ".join(f"DROP PARTITION {step}" for (step,) in steps)
                self.execute(f"ALTER TABLE {self.name_table(table)} {dropped}")

    def mark_table(self, table: str) -> list[str]:
        return [f"ALTER TABLE {self.name_table(table)} MODIFY COMMENT {quote_text(MARK)}"]

    def check_own_tables(self) -> None:
        self.check_tables()

    def check_tables(self) -> None:
        """SimulatorError if a table has replicas and shouldn't, or the reverse. Sets the number of remembered
        INSERTs on tables without replicas."""
        for table in self.job.table_names:
            [(engine,)] = self.ask(
                f"SELECT engine FROM system.tables WHERE database = {quote_text(self.options.database)}"
                f" AND name = {quote_text(table)}"
            )
            if self.own_tables and not engine.endswith("MergeTree"):
                raise own_schema_lacks(f"the engine {engine}, which forgets inserts: use MergeTree")
            if engine.startswith("Replicated") is not self.options.replicated:
                other = str(not self.options.replicated).lower()
                raise SimulatorError(
                    f"table {table} is a {engine}: run without --no-clean, or with replicated={other}"
                )
        for table in self.job.table_names:
            self.execute(f"ALTER TABLE {self.name_table(table)} MODIFY SETTING {self._window}")

    # --- tags, counting, figures ------------------------------------------------------------------

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        names = [column.name for column in schema.tags_row]
        for columns in rows:
            self.connection.store(schema.tags_table, names, encode_devices(schema, columns))

    def count(self) -> int:
        if not self.options.wait_for_async_insert:
            self.execute("SYSTEM FLUSH ASYNC INSERT QUEUE")
        if self.options.replicated:
            for table in self.job.table_names:
                self.execute(self.fetch_all(table))
        return super().count()

    def fetch_all(self, table: str) -> str:
        """The statement that makes replicas catch up with the others."""
        name = f"{quote_name(self.options.database)}.{quote_name(table)}"
        return f"SYSTEM SYNC REPLICA{self._on_cluster} {name}"

    def count_rows(self, table: str) -> int:
        # Rows with the same id count as one, merged or not.
        final = " FINAL" if table in self.job.tags_tables else ""
        return int(self.ask(f"SELECT count() FROM {quote_name(table)}{final}")[0][0])

    def storage(self) -> Storage:
        """https://clickhouse.com/docs/operations/system-tables/parts"""
        database, among = quote_text(self.options.database), ", ".join(map(quote_text, self.tables))
        [(total, rows, index)] = self.connection.ask(
            "SELECT sum(bytes_on_disk), sum(rows), sum(marks_bytes + primary_key_size"
            " + secondary_indices_compressed_bytes + secondary_indices_marks_bytes) FROM system.parts"
            f" WHERE active AND database = {database} AND table IN ({among})"
        )
        indexes = self.connection.ask(
            "SELECT concat(table, ' ', type, ' (', expr, ')'), data_compressed_bytes"
            f" FROM system.data_skipping_indices WHERE database = {database} AND table IN ({among})"
        )
        return Storage(
            total_bytes=int(total),
            data_bytes=int(total) - int(index),
            indexes={name: int(size) for name, size in indexes},
            index_bytes=int(index),
            copies=1,
            level=Level(size_bytes=int(total), events=int(rows)),
            source=_SOURCE,
        )

    def storage_during(self) -> Storage:
        return self.storage()  # parts are on disk: there is nothing to flush

    def compact(self) -> bool:
        for table in self.tables:
            self.execute(f"OPTIMIZE TABLE {self.name_table(table)} FINAL")
        return True

    def compile(self, bound: BoundQuery) -> str:
        return compile_statement(bound, self.job.schema)

    def server_info(self) -> dict[str, Any]:
        options, ask = self.options, self.connection.ask
        [(version,)] = ask("SELECT version()")
        settings: dict[str, Any] = {}
        for source, names in (
            ("settings", _SERVER_SETTINGS), ("merge_tree_settings", _TABLE_SETTINGS),
        ):  # fmt: skip
            among = ", ".join(map(quote_text, names))
            settings |= dict(
                ask(f"SELECT name, value FROM system.{source} WHERE name IN ({among})")
            )
        settings |= {
            "async_insert": options.async_insert,
            "wait_for_async_insert": options.wait_for_async_insert,
        }
        for engine, full in ask(
            "SELECT engine, engine_full FROM system.tables WHERE database ="
            f" {quote_text(options.database)} AND name = {quote_text(self.job.table_names[0])}"
        ):
            settings |= {"engine": engine, "engine_full": full, **read_table_settings(full)}
        return {"version": f"ClickHouse {version}", "settings": settings}
