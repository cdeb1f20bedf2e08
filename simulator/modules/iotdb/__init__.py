"""Apache IoTDB 2, table model.

Tables
------
A workload's table is a table of IoTDB. The device's name is a TAG, and so is each text that describes the
device; everything else but the time is a FIELD. The column of time is called `time` in every table, as
IoTDB 2.0 wants it, whatever the workload calls it. A device inside a document (workload cpu) gets a column
of its own.

The key of every table is made of tags and time, and there is no other. So `--primary-key db` and `none`
mean the same, and two events must never share device and millisecond. They don't: a workload's
devices belong to one worker each, whose timestamps always rise, unless runs start again in time
(`Capabilities.repeated_timestamps`).

Events are sent as tablets, columns of many events, by `insertTablet` of IoTDB's Thrift service, as the
official client's NumpyTablet sends them (`encoding.py`); single inserts are tablets of one row, since that
is the only insert of a table session besides SQL. A tablet is of one table: with several tables, a request
is a tablet for each of them, sent together.

Each event is stored exactly once
---------------------------------
A row with the same tags and time overwrites the one before. So a request whose fate is not known is simply
sent again, and every failure is counted. An answer means that the row is in the write-ahead log's buffer;
with `wal_mode=ASYNC`, the default, it is on disk up to a second later.

What is on disk is the size of the TsFiles in the database's regions, once everything is flushed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import OptionError, Retryable
from ...workloads.base import Schema
from ...workloads.queries import Bound, Function
from ..base import Capabilities, Encoding, Job, Module, Query, Support, claim_queries
from ..shared.errors import nothing_to_query
from ..shared.sql import quote_name
from .answers import Row
from .encoding import TIME, TYPES, TabletEncoder, list_columns
from .options import EncodingOptions, InsertMode, IotdbOptions
from .queries import IotdbDialect, compile_statement
from .server import Server
from .storage import read_storage
from .writer import IotdbWriter

_PROBE = "iot_database_benchmark_regions"
"""A table that is there for a moment."""
_REGIONS_S = 30.0


class Iotdb(Module[IotdbOptions, EncodingOptions]):
    """An IoTDB cluster."""

    name = "iotdb"
    options_model = IotdbOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "wal_mode": Condition.DURABILITY,
        "wal_async_mode_fsync_delay_in_ms": Condition.DURABILITY,
        "wal_sync_mode_fsync_delay_in_ms": Condition.DURABILITY,
        "data_replication_factor": Condition.REPLICATION,
        "schema_replication_factor": Condition.REPLICATION,
        "data_region_consensus_protocol_class": Condition.REPLICATION,
        "nodes": Condition.REPLICATION,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
            PrimaryKey.NONE: Support.FULL,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(IotdbDialect.SHAPES),
        # Tags and time are the order of everything on disk.
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        repeated_timestamps=Support.UNSUPPORTED,
        missing_values=True,
        # What tells devices apart is a text there, and ids are numbers.
        tags_table=Support.MISSING,
        # Sums and means are DOUBLE.
        rounded=frozenset({Function.SUM, Function.AVG}),
        shapes=IotdbDialect.SHAPES,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        _check_names(job.schema)
        self._server: Server | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> TabletEncoder:
        options.mode(batch)
        return TabletEncoder(job, batch)

    def writer(self, batch: int, prefill: bool = False) -> IotdbWriter:
        # Tablets of many events are tablets, so filling needs no other way.
        return IotdbWriter(TabletEncoder(self.job, batch), self.options, self.job)

    def open(self) -> None:
        self._server = Server(self.options, self.job)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def prepare(self) -> None:
        options = self.options
        statement = f"CREATE DATABASE IF NOT EXISTS {quote_name(options.database)}"
        if options.time_partition_interval_s is not None:
            interval_ms = options.time_partition_interval_s * 1000
            statement += f" WITH (time_partition_interval={interval_ms})"
        if options.database not in {row[0] for row in self._ask("SHOW DATABASES")}:
            self._ask(statement)
            self._make_regions()
        if self.job.clean:
            present = self._list_tables()
            for table in self.job.all_table_names:
                if table in present:
                    # Or rows that came out of the order of time are in the next table of that name (2.0.1).
                    self._ask(f"DELETE FROM {quote_name(table)}")
                    self._ask(f"DROP TABLE {quote_name(table)}")
        columns = [f"{TIME} TIMESTAMP TIME"]
        columns += [
            f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
            for column in list_columns(self.job.schema)
        ]
        for table in self.job.table_names:
            self._ask(f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})")

    def _make_regions(self) -> None:
        """Have a new database make its regions, which takes seconds and else would be the first events'
        time. Raises Retryable if they aren't there in time."""
        self._ask(
            f"CREATE TABLE IF NOT EXISTS {_PROBE} ({TIME} TIMESTAMP TIME, name STRING TAG, value INT32 FIELD)"
        )
        deadline = time.monotonic() + _REGIONS_S
        rows = ", ".join(f"(0, '{number}', 0)" for number in range(16))
        while True:
            try:
                self._ask(f"INSERT INTO {_PROBE}({TIME}, name, value) VALUES {rows}")
                break
            except Retryable:
                # There is no event for it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self._ask(f"DROP TABLE {_PROBE}")

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if table not in self._list_tables():
            raise nothing_to_query(table, self.job)

    def _list_tables(self) -> set[str]:
        """The database's tables; none if there is no such database."""
        database = self.options.database
        if database not in {row[0] for row in self._ask("SHOW DATABASES")}:
            return set()
        return {row[0] for row in self._ask(f"SHOW TABLES FROM {quote_name(database)}")}

    def count(self) -> int:
        counts = [
            self._ask(f"SELECT count(*) FROM {quote_name(table)}") for table in self.job.table_names
        ]
        return sum(int(rows[0][0]) for rows in counts)

    def storage(self) -> Storage:
        return read_storage(self._connect(), self.options.database, self.options.database_timeout_s)

    def compile(self, bound: Bound) -> Query:
        statement = compile_statement(bound, self.job.schema)
        return partial(self._connect().ask, statement, self.options.query_timeout_s)

    def server_info(self) -> dict[str, Any]:
        return self._connect().describe(self.options.database)

    def _connect(self) -> Server:
        if self._server is None:
            self.open()
        assert self._server is not None
        return self._server

    def _ask(self, statement: str) -> list[Row]:
        return self._connect().ask(statement, self.options.database_timeout_s)


def _check_names(schema: Schema) -> None:
    """OptionError if two columns would have one name, as IoTDB has no capital letters in names."""
    seen = {TIME: schema.time}
    for column in list_columns(schema):
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name or column.name.lower() == TIME:
            raise OptionError(
                f"module iotdb can't tell the columns {other} and {column.name} apart: names have no"
                f" capital letters there, and the events' time is called {TIME}"
            )
