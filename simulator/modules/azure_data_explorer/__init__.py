"""Azure Data Explorer (Kusto), by queued or streaming ingestion of CSV.

When an event counts as stored
------------------------------
* `batch: true`: a request is a blob and a message in the ingestion queue. It is acknowledged when it
  is queued; the service collects such blobs for up to minutes (`batching_time_s`) before their events
  can be queried. So a run ends with waiting for the count, and its result says two rates: of events
  accepted, and of events that could be queried.
* `batch: false`: streaming ingestion answers when the events are stored.

Each event is stored exactly once, or the run ends: there are no unique keys. A refused request is sent
again. If a streaming request's answer is lost, `recover` looks for its last event (the newest of its
device: times only rise, and a request is stored as a whole) before it sends again. Whether a message
whose answer is lost was queued, nobody can tell for minutes, so that ends the run.

https://learn.microsoft.com/azure/data-explorer/ingest-data-overview

What differs in queries
-----------------------
All floats are `real`, 64 bits: a condition on a float32 column compares with the digits that were sent for
it. A text has no null: an empty one in a nullable column counts as missing.

What is on disk
---------------
The size of the tables' extents: compressed columns and indexes, once, although Azure's storage keeps copies.
Streamed events are in row stores first, which don't tell their size: as long as some are, there is no
figure. Nothing is there to compact by, since the service merges extents by itself.

https://learn.microsoft.com/kusto/management/show-extents
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import SimulatorError, one_line
from ...workloads.base import ColumnType
from ...workloads.queries import Bound
from ..base import Capabilities, Encoding, Job, Module, Query, Support, claim_queries
from ..shared.errors import nothing_to_query
from .encoding import CsvEncoder, InsertMode
from .ingestion import MAPPING, SHOWN
from .options import AdxOptions, EncodingOptions
from .queries import SHAPES, compile_query, quote_name
from .server import Connection, connect
from .storage import check_rows, read_extents
from .writer import STREAMED_VISIBLE_S, AdxWriter

_log = logging.getLogger(__name__)

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "datetime",
    ColumnType.INT64: "long",
    ColumnType.INT32: "int",
    # Kusto's only type for floats: 64 bits.
    ColumnType.FLOAT32: "real",
    ColumnType.FLOAT64: "real",
    ColumnType.BOOL: "bool",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "dynamic",
}


class AzureDataExplorer(Module[AdxOptions, EncodingOptions]):
    """A database of a Kusto cluster."""

    name = "azure_data_explorer"
    PACKAGES = ("azure-kusto-data", "httptools")
    options_model = AdxOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "ingestion": Condition.BATCH,
        "ingestionbatching policy": Condition.BATCH,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            key: Support.FULL if key is PrimaryKey.NONE else Support.UNSUPPORTED
            for key in PrimaryKey
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(SHAPES),
        shapes=SHAPES,
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
        # By the newest event of a device it can be told of one streamed request only whether it is stored.
        in_flight={InsertMode.QUEUED: Support.FULL, InsertMode.STREAMING: Support.MISSING},
        missing_values=True,
    )
    ENCODINGS = (
        Encoding("queued", {"batch": "true"}),
        Encoding("streaming", {"batch": "false"}),
        Encoding("streaming single", {"batch": "false"}, batched=False),
    )

    def __init__(self, options: AdxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.settle_s = self.options.settle_s if self.options.batch else STREAMED_VISIBLE_S
        self._connection: Connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> CsvEncoder:
        return CsvEncoder(job)

    def writer(self, batch: int, prefill: bool = False) -> AdxWriter:
        return AdxWriter(CsvEncoder(self.job), self.options, self.job)

    def open(self) -> None:
        self._connection = connect(self.options, self.job)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> Connection:
        """The connection; there is one between `open` and `close` only."""
        assert self._connection is not None
        return self._connection

    def prepare(self) -> None:
        ask = self.connection.ask
        if self.job.clean:
            for table in self.job.all_table_names:
                ask(f".drop table {quote_name(table)} ifexists")
        for table in self.job.table_names:
            for command in self.table_commands(table):
                ask(command)
        if not self.options.batch:
            # Otherwise nodes that know the old table may refuse streamed data for up to five minutes.
            try:
                ask(".clear database cache streamingingestion schema")
            except SimulatorError as error:
                _log.warning("the cache of schemas could not be cleared: %s", error)

    def table_commands(self, table: str) -> list[str]:
        """Commands that make a table as the mode of ingestion needs it; they may be repeated."""
        name = quote_name(table)
        columns = self.job.schema.columns
        types = ", ".join(f"{quote_name(c.name)}: {_COLUMN_TYPES[c.type]}" for c in columns)
        mapping = [
            {"Column": column.name, "Properties": {"Ordinal": str(ordinal)}}
            for ordinal, column in enumerate(columns)
        ]
        verbatim = json.dumps(mapping).replace("'", "''")
        streaming = "disable" if self.options.batch else "enable"
        commands = [
            f".create-merge table {name} ({types})",
            f".create-or-alter table {name} ingestion csv mapping '{MAPPING}' @'{verbatim}'",
            f".alter table {name} policy streamingingestion {streaming}",
        ]
        if self.options.batch and self.options.batching_time_s:
            minutes, seconds = divmod(self.options.batching_time_s, 60)
            policy = json.dumps({"MaximumBatchingTimeSpan": f"00:{minutes:02d}:{seconds:02d}"})
            commands.append(f".alter table {name} policy ingestionbatching @'{policy}'")
        return commands

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if table not in {row[0] for row in self.connection.ask(".show tables")}:
            raise nothing_to_query(table, self.job)

    def count(self) -> int:
        answers = [
            self.connection.ask(f"{quote_name(table)} | count") for table in self.job.table_names
        ]
        return sum(int(rows[0][0]) for rows in answers)

    def storage(self) -> Storage:
        found, rows = read_extents(self.connection, self.job.table_names)
        check_rows(rows, self.count())
        return found

    def compile(self, bound: Bound) -> Query:
        compiled = compile_query(bound, self.job.schema)

        def ask() -> Sequence[tuple[Any, ...]]:
            return compiled.read(self.connection.ask(compiled.text))

        return ask

    def server_info(self) -> dict[str, Any]:
        [version] = self.connection.ask(".show version")
        settings: dict[str, Any] = {"ingestion": self.options.mode(self.job.load.batch)}
        for policy in ("ingestionbatching", "streamingingestion"):
            found = self._policy(policy)
            if found is not None:
                settings[f"{policy} policy"] = found
        return {"version": str(version[0]), "settings": settings}

    def _policy(self, policy: str) -> str | None:
        """The first table's policy, or the database's if the table has none."""
        table = quote_name(self.job.table_names[0])
        database = quote_name(self.options.kusto_db)
        for owner in (f"table {table}", f"database {database}"):
            with suppress(SimulatorError):
                for row in self.connection.ask(f".show {owner} policy {policy}"):
                    if row[2] not in (None, "", "null"):
                        return one_line(row[2], SHOWN)
        return None
