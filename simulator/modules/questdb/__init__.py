"""QuestDB: lines over HTTP, and INSERTs over PGWire.

Each event is stored exactly once: tables have a write-ahead log (WAL) and deduplicate by the event's natural
key (`DEDUP UPSERT KEYS`: its time, its device, its sequence number if there is one), or by its time and the
client's key (`--primary-key client`). So a request whose outcome is unknown is sent again: stored rows are
replaced with the same values. One case is not covered: a server that loses power may lose acknowledged
events, since it waits for the disk only if `cairo.commit.mode` is `sync`. The default is `nosync`; a result's
settings show it, and the count after the run shows what is lost.

Acknowledged events can be queried once the log has been applied to the table, usually some milliseconds
later. Counts and the first queries wait for it (`wal_tables()`).

Events are sent as lines over HTTP, which the vendor recommends, built column by column (`encoding.py` says
what is binary and what can't be), or over PGWire as prepared statements, one INSERT per event. With
`client=official`, the package `questdb` sends lines (see `official`). Queries use PGWire (see `queries`), or
HTTP without a `connection_string`; everything else uses HTTP (`/exec`).

Queries use SAMPLE BY for buckets of time and LATEST ON for the newest events.

Tags in a separate table (`tags=table`) are identified by `tags_id`, a symbol in both tables, and by a
constant time, since deduplication needs one. So storing them may be repeated.

The size on disk comes from `table_partitions()`. Compaction squashes partitions that late events have split,
and removes the files left over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote_plus

import numpy as np
from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Role, Storage
from ...encoding.columns import KEY_COLUMN, quote_name
from ...errors import SimulatorError
from ...workloads.schema import ID, Column, EventBlock
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
from ..kit.own_tables import own_schema_lacks
from ..kit.sql_module import SqlModule
from ..kit.sql_queries import SqlDialect
from ..options import LEAN, InsertMode
from ..sending import Asker, Writer
from .encoding import (
    INT32_RANGE,
    INT64_RANGE,
    MODES,
    PGWIRE,
    STORED_AT,
    TYPES,
    LineEncoder,
    LineFormat,
    QuestdbOptions,
    describe_tags,
    type_of,
)
from .queries import (
    PgWireAsker,
    QuestdbAsker,
    QuestdbDialect,
    StatementEncoder,
    make_statement_writer,
)
from .server import ALLOCATION, Connection, LineWriter

_HOUR_MS = 3_600_000
_MOST_BYTES = 30_000
"""Length of a table's columns in a URL: by default, the whole head of a request is limited to 32,224
bytes."""


_TEXTS = {"SYMBOL", "VARCHAR", "STRING"}
"""Types of columns that accept the same texts."""


class Questdb(SqlModule[QuestdbOptions, Connection]):
    """A QuestDB server."""

    name = "questdb"
    PACKAGES = ("psycopg", "psycopg-binary")
    options_model = QuestdbOptions
    # Why a table is suspended (`errorMessage`): https://github.com/questdb/questdb/pull/4607
    OLDEST: ClassVar[Mapping[str, str]] = {"QuestDB": "8.1"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "cairo.commit.mode": Condition.DURABILITY,
        "queries": Condition.CLIENT,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}:make_writer", f"{__name__}:make_asker"),
        "official": Client(
            f"{__name__}.official:OfficialQuestdbWriter",
            f"{__name__}.queries:OfficialQuestdbAsker",
            packages=("questdb",),
            ways=dict.fromkeys(
                (InsertMode.BATCH, InsertMode.SINGLE), "questdb's Sender.row and flush"
            ),
        ),
    }
    CAPABILITIES = Capabilities(
        # A table's TTL would drop the same partitions, but only relative to later events.
        ageing=Ageing("partitions of a day, or of an hour, dropped whole", unit_ms=_HOUR_MS),
        # https://questdb.com/docs/configuration/cairo-engine/#cairocommitmode
        durability=Durability(
            {"cairo.commit.mode": Needed(("sync",), "when the operating system writes it")}
        ),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(MODES, Support.FULL),
        # There are no sequences, and no default values.
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.CLIENT),
        shapes=QuestdbDialect.SHAPES,
        impossible_shapes=QuestdbDialect.IMPOSSIBLE,
        percentiles=QuestdbDialect.PERCENTILES,
        statements="SQL",
        own_schema=OwnSchema("SQL", options=("max_uncommitted_rows", "o3_max_lag")),
        # None on times and values; the option `index_devices` creates one on symbols.
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        in_flight=dict.fromkeys(MODES, Support.FULL),
        tags_table=Support.FULL,
        needs_value=True,
        int32_range=INT32_RANGE,
        int64_range=INT64_RANGE,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch binary", {"insert_mode": "batch", "line_format": "binary"}),
        Encoding("transaction", {"insert_mode": "transaction"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
        Encoding("statement", {"insert_mode": "statement"}, batched=False),
    )

    TYPES = TYPES
    KEYS: ClassVar = {PrimaryKey.CLIENT: "VARCHAR"}
    DIALECT = SqlDialect()
    ELSEWHERE = "another table_prefix"
    COLUMNS = "SHOW COLUMNS FROM {name}"

    def __init__(self, options: QuestdbOptions, job: Job) -> None:
        super().__init__(options, options.name_tables(job))
        options, load = self.options, job.load
        if self.mode in PGWIRE:
            options.pgwire(f"insert_mode={options.insert_mode}")
        if options.client != LEAN and load.role is Role.READ:
            options.pgwire(f"client={options.client}")

    @classmethod
    def encoder(cls, options: QuestdbOptions, job: Job) -> LineEncoder | StatementEncoder:
        job, mode = options.name_tables(job), options.mode(job.load)
        if mode in PGWIRE:
            return StatementEncoder(job, mode)
        return LineEncoder(job, options.line_format)

    def connect(self) -> Connection:
        return Connection.connect(self.options, self.job)

    # --- tables -----------------------------------------------------------------------------------

    def type_of(self, column: Column) -> str:
        return type_of(self.job.schema, column)

    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        """Statements are in a URL: columns that don't fit are added one by one, since QuestDB (9.3.4) can't
        add several at once."""
        statements = []
        names = (STORED_AT, ID, self.job.schema.device, *self._list_keys())
        keys = tuple(map(quote_name, names))
        for table in self.tables:
            columns = self.define_columns(table)
            if len(quote_plus(", ".join(columns))) > _MOST_BYTES:
                columns.sort(key=lambda column: not column.startswith(keys))
            ends = np.cumsum([len(quote_plus(f"{column}, ")) for column in columns])
            first = int(np.searchsorted(ends, _MOST_BYTES, "right"))
            statements.append(self.create_table(table, columns[:first]))
            add = f"ALTER TABLE {quote_name(table)} ADD COLUMN IF NOT EXISTS "
            statements += [add + column for column in columns[first:]]
        return statements

    def define_columns(self, table: str) -> list[str]:
        columns = super().define_columns(table)
        if table in self.job.tags_tables:
            columns.append(f"{quote_name(STORED_AT)} TIMESTAMP")
        return columns

    def finish_table(self, table: str) -> str:
        options, settings, indexed = self.options, [], []
        keys, partition = [STORED_AT, ID], "YEAR"
        if table in self.job.table_names:
            keys, partition = self._list_keys(), self.options.partition_by.upper()
            if self.job.retention is not None:
                # None has more than a step.
                partition = "HOUR" if self.job.retention.step_ms % (24 * _HOUR_MS) else "DAY"
            if options.max_uncommitted_rows is not None:
                settings.append(f"maxUncommittedRows={options.max_uncommitted_rows}")
            if options.o3_max_lag is not None:
                settings.append(f"o3MaxLag={options.o3_max_lag}")
            if options.index_devices:
                names = {column.name for column in self.job.schema.row}
                indexed = [name for name in (self.job.schema.device, ID) if name in names]
        indices = "".join(f", INDEX({quote_name(name)})" for name in indexed)
        clause = f" WITH {', '.join(settings)}" if settings else ""
        return (
            f"{indices} TIMESTAMP({quote_name(keys[0])}) PARTITION BY {partition} WAL{clause}"
            f" DEDUP UPSERT KEYS({', '.join(map(quote_name, keys))})"
        )

    def delete_older(self, before_ms: int) -> None:
        """https://questdb.com/docs/query/sql/alter-table-drop-partition/"""
        condition = f"{quote_name(self.job.schema.time)} < {before_ms * 1000}"
        for table in self.job.table_names:
            name = quote_name(table)
            if self.ask(f"SELECT 1 FROM {name} WHERE {condition} LIMIT 1"):
                self.execute(f"ALTER TABLE {name} DROP PARTITION WHERE {condition}")
        self.connection.await_applied(self.job.table_names)

    def _list_keys(self) -> list[str]:
        """The columns that identify an event for QuestDB: the time is always one."""
        schema = self.job.schema
        if self.job.load.primary_key is PrimaryKey.CLIENT:
            return [schema.time, KEY_COLUMN]
        return [schema.time, *(name for name in schema.row_key if name != schema.time)]

    def holds(self, actual: str, expected: str) -> bool:
        return super().holds(actual, expected) or {actual, expected} <= _TEXTS

    def check_own_tables(self) -> None:
        self.check_tables()

    def check_tables(self) -> None:
        """SimulatorError if an existing table identifies events by other columns."""
        for table in self.job.table_names:
            columns = self.ask(f"SHOW COLUMNS FROM {quote_name(table)}")
            names = {name for name, *_ in columns}
            keys = {name for name, *_, is_key in columns if is_key}
            if self.own_tables and keys != set(self._list_keys()):
                raise own_schema_lacks(
                    f"DEDUP UPSERT KEYS({', '.join(sorted(keys))}): repeated requests need"
                    f" DEDUP UPSERT KEYS({', '.join(self._list_keys())}), with TIMESTAMP and WAL"
                )
            if keys != set(self._list_keys()):
                other = PrimaryKey.CLIENT if KEY_COLUMN in names else PrimaryKey.NONE
                key_names = ", ".join(sorted(keys)) or "nothing"
                raise SimulatorError(
                    f"table {table} was created with a different primary key than --primary-key"
                    f" {self.job.load.primary_key}: it deduplicates by {key_names}; run without --no-clean,"
                    f" or with --primary-key {other}"
                )

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        columns = schema.row
        if table in self.job.tags_tables:
            columns = describe_tags(schema).columns
        return {column.name: self.type_of(column) for column in columns}

    def prepare_queries(self) -> None:
        super().prepare_queries()
        self.connection.await_applied([self.job.schema.table, *self.job.tags_tables])

    # --- tags, counting, figures ------------------------------------------------------------------

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = describe_tags(self.job.schema)
        for columns in rows:
            devices = columns[ID]
            encoder = LineEncoder(Job(schema).change(batch=len(devices)), LineFormat.TEXT)
            times = {STORED_AT: np.zeros(len(devices), dtype=np.int64)}
            block = EventBlock(schema, 0, 0, {**columns, **times}, devices)
            for payload in encoder.encode(block):
                self.connection.write(payload.data)
        # Queries that join tags find none before that.
        self.show_events(schema.table)

    def show_events(self, table: str) -> None:
        self.connection.await_applied([table])

    def storage(self) -> Storage:
        self.connection.await_applied(self.tables)
        return self.storage_during()

    def storage_during(self) -> Storage:
        return self.connection.read_storage()

    def compact(self) -> bool:
        self.connection.squash_partitions(self.tables)
        return True

    @property
    def query_dialect(self) -> QuestdbDialect:
        return QuestdbDialect(self.job.schema)

    def server_info(self) -> dict[str, Any]:
        description = self.connection.describe(self.job.table_names[0])
        description["settings"]["queries"] = "PGWire" if self.options.connection_string else "HTTP"
        return description


def make_writer(module: Questdb) -> Writer:
    """A writer over HTTP or PGWire, depending on the insert mode."""
    if module.mode in PGWIRE:
        return make_statement_writer(module)
    return LineWriter(module)


def make_asker(module: Questdb, in_flight: int) -> Asker:
    """An asker over PGWire if the options have its address; otherwise over HTTP."""
    kind = PgWireAsker if module.options.connection_string else QuestdbAsker
    return kind(module, in_flight)
