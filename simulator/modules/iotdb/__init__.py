"""Apache IoTDB 2: its table model, or with `model=tree` its tree model.

Tables
------
A workload's table is a table of IoTDB. The device's name is a TAG, and so is each text that describes the
device; everything else but the time is a FIELD. The time column is called `time` in every table, as IoTDB 2.0
requires, whatever the workload calls it. A device inside a document (workload cpu) gets a column of its own.

The only key of a table is its tags and time. So `--primary-key db` and `none` mean the same, and two events
must never share device and millisecond. They don't: each of a workload's devices belongs to one worker, whose
timestamps always rise, unless runs restart in time (`Capabilities.repeated_timestamps`).

Tags in a table of their own (`tags=table`) are FIELDs there, at time 0 of their device: `tags_id`, a text of
eleven digits, is the TAG of both tables. Storing them again changes nothing. Queries join the two; a
condition on tags that selects an event's devices is a join, too, since 2.0.1 has no IN with a subquery. Each
statement has a condition on the tags' time that is always true (`queries.py`).

Events are sent as tablets, columns of many events, by `insertTablet` of IoTDB's Thrift service, as the
official client's NumpyTablet sends them (`encoding.py`); single inserts are tablets of one row, since a table
session has no other insert except SQL. A tablet belongs to one table: with several tables, a request has a
tablet for each, sent together.

The tree
--------
A device is a path, `root.<database>.<table>.<device>`, whose measurements are the other columns, including
tags: `tree.py` says why. An event is identified by its path and its time, in milliseconds as in tables, so
keys mean the same. A request has a tablet for each of its devices and tables, all sent by one
`insertTablets`, as the official client's `insert_aligned_tablets` does; a single insert is an `insertRecord`.
Queries are in the tree's own language (`tree_queries.py`): all kinds that the table model answers; for some,
their time includes the client's part.

Each event is stored exactly once
---------------------------------
A row with the same tags, or path, and time overwrites the one before. So a request whose outcome is unknown
is sent again, and every failure is counted. An answer means that the row is in the write-ahead log's buffer;
with `wal_mode=ASYNC`, the default, it is on disk up to a second later.

The size on disk is that of the TsFiles in the database's regions, once everything is flushed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import OptionError, Retryable
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function
from ...workloads.schema import Tags
from .._base.connected import TableModule
from .._base.errors import INSERT_REMEDY
from .._base.row_order import Row
from .._base.sql_queries import SqlDialect, fill_sql, quote_name
from ..base import (
    Ageing,
    Capabilities,
    Encoding,
    Job,
    OfficialClient,
    Support,
    support_keys,
)
from ..options import LEAN
from ..own_statements import list_own_statements
from ..sending import Encoder
from .asking import IotdbAsker
from .models import Layout, Statement, Tables, Tree
from .options import EncodingOptions, InsertMode, IotdbOptions, Model
from .queries import IotdbDialect
from .schema import TYPES, check_measurements, check_names, describe_tags, make_tags
from .server import ALLOCATION, IotdbWriter, Server
from .tablets import TabletEncoder
from .tree_queries import Computation
from .tree_tablets import TreeEncoder

_PROBE = "iot_database_benchmark_regions"
"""A table that is there for a moment."""
_REGIONS_S = 30.0


class Iotdb(TableModule[IotdbOptions, EncodingOptions, Server]):
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
        ageing=Ageing("DELETE of a range of time: a TTL uses today's date"),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.DB),
        # Tags and time are the order of everything on disk.
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        clients={
            "official": OfficialClient(
                ("apache-iotdb",), {}, in_flight=True, asker=f"{__name__}.official:OfficialAsker"
            )
        },
        repeated_timestamps=Support.UNSUPPORTED,
        tags_table=Support.FULL,
        # Sums and means are DOUBLE.
        rounded=frozenset({Function.SUM, Function.AVG}),
        shapes=IotdbDialect.SHAPES,
        statements="SQL",
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        kind = Tree if options.model is Model.TREE else Tables
        self._layout: Layout = kind(options, job, self.ask)
        if options.tls and options.client != LEAN:
            raise OptionError(
                f"client={options.client} of module iotdb queries without TLS: use client={LEAN}"
            )
        if options.model is Model.TREE:
            check_measurements(job.schema)
            for name in list_own_statements(type(self), job.schema):
                raise OptionError(
                    f"query {name}: statement: module iotdb takes statements of a workload only"
                    " with model=table: leave it out, or use that"
                )
        else:
            check_names(job.schema)
            if job.schema.tags is Tags.TABLE:
                check_names(describe_tags(job.schema))

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> Encoder:
        options.mode(batch)
        return _make_encoder(options, job, batch)

    def writer(self, batch: int, prefill: bool = False) -> IotdbWriter:
        # Tablets of many events are tablets, so filling needs no other way.
        encoder = _make_encoder(self.options, self.job, batch)
        return IotdbWriter(encoder, self.options, self.job)

    def connect(self) -> Server:
        return Server(self.options, self.job)

    def prepare(self) -> None:
        layout = self._layout
        if not layout.is_there():
            self.ask(layout.create_database())
            self._make_regions()
        if self.job.clean:
            present = layout.list_tables()
            for table in (*self.job.all_table_names, self.job.schema.tags_table):
                if table in present:
                    layout.drop_table(table)
        for statement in layout.create_tables():
            self.ask(statement)
        if not self.job.clean:
            self.check_columns(self.job.table_names, INSERT_REMEDY)

    def _make_regions(self) -> None:
        """Have a new database make its regions, which takes seconds and else would be the first events'
        time. Raises Retryable if they aren't there in time."""
        deadline = time.monotonic() + _REGIONS_S
        while True:
            try:
                self._layout.fill_probe(_PROBE)
                break
            except Retryable:
                # There is no event for it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self._layout.drop_table(_PROBE)

    def describe_schema(self) -> list[str]:
        layout = self._layout
        return [layout.create_database(), *layout.create_tables()]

    def describe_statement(self, statement: Statement) -> str:
        if isinstance(statement, Computation):
            return statement.describe()
        return statement if isinstance(statement, str) else statement.text

    def prepare_queries(self) -> None:
        # In the tree, tables come with events.
        if self.must_have_events or self.options.model is Model.TABLE:
            super().prepare_queries()

    def read_columns(self, table: str) -> Mapping[str, str]:
        return self._layout.read_types(table) if table in self._layout.list_tables() else {}

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        return {column.name: None for column in self._layout.list_columns(table)}

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        job = Job(describe_tags(self.job.schema), run_id=self.job.run_id)
        writer = IotdbWriter(TabletEncoder(job, 1), self.options, job)
        writer.open()
        try:
            for columns in rows:
                block = make_tags(self.job.schema, columns)
                for payload in writer.encoder.encode(block, len(block)):
                    writer.send(payload)
        finally:
            writer.close()

    def count_rows(self, table: str) -> int:
        return self._layout.count_rows(table)

    def delete_older(self, before_ms: int) -> None:
        for table in self.job.table_names:
            self.ask(f"DELETE FROM {self._layout.name_events(table)} WHERE time < {before_ms}")

    def storage(self) -> Storage:
        return self.connection.read_storage(self._layout.database)

    def compile(self, bound: BoundQuery) -> Statement:
        return self._layout.compile(bound)

    def take_statement(self, text: str, bound: BoundQuery) -> str:
        schema = self.job.schema
        return fill_sql(text, bound, schema, self.query_dialect, quote_name(schema.table))

    def make_asker(self, in_flight: int) -> IotdbAsker:
        return IotdbAsker(self, in_flight)

    @property
    def query_dialect(self) -> SqlDialect:
        """How queries have their parameters."""
        return self._layout.DIALECT

    def server_info(self) -> dict[str, Any]:
        return self.connection.describe(self._layout.database)

    def ask(self, statement: str) -> list[Row]:
        """All rows of a statement. Raises Retryable or SimulatorError."""
        return self.connection.ask(statement, self.options.database_timeout_s)


def _make_encoder(options: EncodingOptions, job: Job, batch: int) -> Encoder:
    if options.model is Model.TREE:
        return TreeEncoder(job, options.database)
    return TabletEncoder(job, batch)
