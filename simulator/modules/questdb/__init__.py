"""QuestDB 9: lines over HTTP, and INSERTs by PGWire.

Each event is stored exactly once: tables have a write-ahead log (WAL) and deduplicate by the event's natural
key (`DEDUP UPSERT KEYS`: its time, its device, its sequence number if there is one), or by its time and the
client's key (`--primary-key client`). So a request whose fate is unknown is simply sent again: what is there
is replaced by the same values. What can't be promised: that a server that loses power still has what it has
acknowledged, since it waits for the disk only if `cairo.commit.mode` is `sync`. By default it is `nosync`;
a result's settings tell, and the count after the run shows what is gone.

Acknowledged events can be queried when the log has been applied to the table, usually some milliseconds
later. Counting, and beginning to query, waits for it (`wal_tables()`).

How events are sent: as lines over HTTP, which the vendor recommends, built column by column (`lines.py`
says what is binary and what can't be), or by PGWire as prepared statements, one INSERT per event. Everything
else is asked over HTTP (`/exec`). With `client=official` the package `questdb` sends lines, see `official`.

Queries use SAMPLE BY for buckets of time and LATEST ON for the newest events.

Tags in a table of their own (`tags=table`) are told apart by `tags_id`, a symbol in both tables, and by a
time that is the same for all, since deduplication needs one. So storing them may be repeated.

What is on disk is told by `table_partitions()`. To compact, partitions that late events have split are
squashed, and the files which that leaves are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import KEY_COLUMN
from ...errors import SimulatorError
from ...workloads.events import EventBlock
from ...workloads.queries import BoundQuery
from ...workloads.tags import ID, Tags
from .._base.connected import TableModule
from .._base.errors import (
    INSERT_REMEDY,
    MissingTable,
)
from .._base.sql_queries import compile_query, quote_name
from ..base import Capabilities, Encoding, Job, Query, Support, claim_queries
from ..sending import Encoder, Writer
from .columns import (
    INT32_RANGE,
    INT64_RANGE,
    STORED_AT,
    TYPES,
    create_table,
    describe_tags,
    list_columns,
    list_keys,
)
from .lines import LineEncoder, LineFormat
from .official import make_writer
from .options import CLIENTS, PGWIRE, EncodingOptions, InsertMode, QuestdbOptions
from .queries import QuestdbDialect
from .server import Connection, connect, describe
from .statements import StatementEncoder
from .storage import ALLOCATION, read_storage, squash_partitions
from .writer import LineWriter, make_statement_writer


class Questdb(TableModule[QuestdbOptions, EncodingOptions, Connection]):
    """A QuestDB server."""

    name = "questdb"
    PACKAGES = ("httptools", "psycopg", "psycopg-binary")
    options_model = QuestdbOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "cairo.commit.mode": Condition.DURABILITY,
    }
    CAPABILITIES = Capabilities(
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.NONE: Support.FULL,
            # There are no sequences, and no values by default.
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.DB: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(QuestdbDialect.SHAPES),
        shapes=QuestdbDialect.SHAPES,
        # None on times and values; the option `index_devices` makes one on symbols.
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        missing_values=True,
        tags_table=Support.FULL,
        clients=CLIENTS,
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

    def __init__(self, options: QuestdbOptions, job: Job) -> None:
        super().__init__(options, options.name_tables(job))
        if self.options.mode(job.load.batch) in PGWIRE:
            self.options.pgwire()

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> Encoder:
        job, mode = options.name_tables(job), options.mode(batch)
        if mode in PGWIRE:
            return StatementEncoder(job, mode)
        return LineEncoder(job, options.line_format)

    def writer(self, batch: int, prefill: bool = False) -> Writer:
        options, job = self.options, self.job
        if self.is_official(prefill):
            return make_writer(options, job)
        mode = options.mode(job.load.batch)
        if mode in PGWIRE and not prefill:
            return make_statement_writer(StatementEncoder(job, mode), options, job)
        return LineWriter(LineEncoder(job, options.line_format), options, job)

    def connect(self) -> Connection:
        return connect(self.options, self.job)

    def prepare(self) -> None:
        job, options = self.job, self.options
        if job.clean:
            for table in (*job.all_table_names, job.schema.tags_table):
                self._ask(f"DROP TABLE IF EXISTS {quote_name(table)}")
        settings = []
        if options.max_uncommitted_rows is not None:
            settings.append(f"maxUncommittedRows={options.max_uncommitted_rows}")
        if options.o3_max_lag is not None:
            settings.append(f"o3MaxLag={options.o3_max_lag}")
        columns, keys, schema = list_columns(job), list_keys(job), job.schema
        indexed = [
            name for name in (schema.device, ID) if name in columns and options.index_devices
        ]
        partition = options.partition_by.upper()
        for table in job.table_names:
            self._ask(create_table(table, columns, keys, partition, settings, indexed))
        if schema.tags is Tags.TABLE:
            tags = list_columns(Job(describe_tags(schema)))
            self._ask(create_table(schema.tags_table, tags, (STORED_AT, ID), "YEAR"))
        if not job.clean:
            self.check_columns(job.table_names, INSERT_REMEDY)
            self._check_keys()

    def _check_keys(self) -> None:
        """SimulatorError if a table that was there before tells events apart by other columns."""
        for table in self.job.table_names:
            columns = self._show_columns(table)
            names = {name for name, *_ in columns}
            keys = {name for name, *_, is_key in columns if is_key}
            if keys != set(list_keys(self.job)):
                other = PrimaryKey.CLIENT if KEY_COLUMN in names else PrimaryKey.NONE
                found = ", ".join(sorted(keys)) or "nothing"
                raise SimulatorError(
                    f"table {table} was made with another primary key than --primary-key"
                    f" {self.job.load.primary_key}: it deduplicates by {found}; run without --no-clean,"
                    f" or with --primary-key {other}"
                )

    def _show_columns(self, table: str) -> list[tuple[Any, ...]]:
        """Of each column its name and type first, and whether it is among the keys last."""
        return self._ask(f"SHOW COLUMNS FROM {quote_name(table)}")

    def read_columns(self, table: str) -> Mapping[str, str]:
        try:
            return {name: kind for name, kind, *_ in self._show_columns(table)}
        except MissingTable:
            return {}

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        of_tags = table in self.job.tags_tables
        columns = list_columns(Job(describe_tags(self.job.schema)) if of_tags else self.job)
        columns.pop(KEY_COLUMN, None)
        return dict(columns)

    def prepare_queries(self) -> None:
        super().prepare_queries()
        self.connection.await_applied([self.job.schema.table, *self.job.tags_tables])

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = describe_tags(self.job.schema)
        encoder = LineEncoder(Job(schema), LineFormat.TEXT)
        for columns in rows:
            devices = columns[ID]
            times = {STORED_AT: np.zeros(len(devices), dtype=np.int64)}
            block = EventBlock(schema, 0, 0, {**columns, **times}, devices)
            for payload in encoder.encode(block, len(devices)):
                self.connection.write(payload.data)
        # Queries that join them find none before that.
        self.connection.await_applied([schema.table])

    def count_rows(self, table: str) -> int:
        self.connection.await_applied([table])
        return int(self._ask(f"SELECT count() FROM {quote_name(table)}")[0][0])

    def storage(self) -> Storage:
        self.connection.await_applied([*self.job.table_names, *self.job.tags_tables])
        return self.storage_during()

    def storage_during(self) -> Storage:
        hours = self.options.partition_by.hours
        return read_storage(self.connection, self.job.table_names, self.job.tags_tables, hours)

    def compact(self) -> bool:
        squash_partitions(self.connection, [*self.job.table_names, *self.job.tags_tables])
        return True

    def compile(self, bound: BoundQuery) -> Query:
        schema = self.job.schema
        return partial(self._ask, compile_query(bound, schema, QuestdbDialect(schema)))

    def server_info(self) -> dict[str, Any]:
        return describe(self.connection, self.job.table_names[0])

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self.connection.ask(statement)
