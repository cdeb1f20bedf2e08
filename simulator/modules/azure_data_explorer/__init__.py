"""Azure Data Explorer (Kusto), by queued or streaming ingestion of CSV.

When an event counts as stored
------------------------------
* `batch: true`: a request is a blob and a message in the ingestion queue. It is acknowledged once it is
  queued. The service collects such blobs for up to some minutes (`batching_time_s`) before their events can
  be queried. So a run ends by waiting for the count, and its result has two rates: of events accepted, and of
  events that could be queried.
* `batch: false`: streaming ingestion answers when the events are stored.

There are no unique keys, so each event is stored exactly once, or the run ends. A refused request is sent
again. If a streaming request's answer is lost, its last event is looked up by device and time before the
request is sent again: a request is stored as a whole or not at all. If the answer to a message is lost, it
stays unknown for minutes whether the message was queued, so the run ends. With `client=official`,
azure-kusto-ingest sends and azure-kusto-data queries: see `official`.

https://learn.microsoft.com/azure/data-explorer/ingest-data-overview

Tags in a separate table (`tags=table`)
-----------------------------------------
Each worker looks up which of its devices are stored, and stores the others with `.ingest inline`, which
answers when they are stored. If the answer is lost while the service is still at work, devices may be stored
twice, since nothing is unique; the count of devices after the run shows it. Queries add tags to their results
by id with `lookup`, which the service refuses for more than several tens of MB of tags: hundreds of thousands
of devices.

https://learn.microsoft.com/kusto/query/lookup-operator

What differs in queries
-----------------------
All floats are `real`, 64 bits: a condition on a float32 column compares the digits that were sent. A text
can't be null: an empty text in a nullable column counts as missing.

What is on disk
---------------
The size of the tables' extents: compressed columns and indexes, once, although Azure's storage keeps copies.
Streamed events are in row stores first, which don't report their size, so there is no figure until all have
moved to extents. There is no command for compaction: the service merges extents by itself.

https://learn.microsoft.com/kusto/management/show-extents
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from ...conditions import ACCESS, Condition
from ...contract import Load, PrimaryKey, Storage
from ...errors import OptionError, SimulatorError, one_line
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Percentiles
from ...workloads.schema import ID, Column, ColumnType
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Needed,
    Support,
    support_keys,
)
from ..kit.http_database import SHOWN
from ..kit.module import INSERT_REMEDY, MARK, Found, TableModule
from ..kit.options import IN_FLIGHT_MEANING, check_url
from ..options import LEAN, PAYLOAD, InsertMode, Options
from .ingestion import MAPPING, CsvEncoder, encode_devices
from .queries import SHAPES, Compiled, compile_query, quote_name, select_ids, take_statement

if TYPE_CHECKING:
    from .server import Connection

STREAMED_VISIBLE_S = 15.0
"""Streamed events appear in queries within about ten seconds.
https://learn.microsoft.com/azure/data-explorer/ingest-data-streaming"""


class AdxOptions(Options):
    """Options of targets with `module: azure_data_explorer`."""

    IN_FLIGHT: ClassVar[str | None] = "max_in_flight"
    ADDRESSES: ClassVar[str] = "kusto_uri"

    batch: Annotated[bool, Condition.BATCH, PAYLOAD] = Field(
        True, description="true: queued ingestion, false: streaming ingestion"
    )
    kusto_uri: Annotated[str, Condition.NONE, ACCESS] = Field(
        description="URI of the cluster, e.g. https://name.region.kusto.windows.net"
    )
    kusto_ingest_uri: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="URI for ingestion (default: kusto_uri with ingest- before the name)"
    )
    kusto_db: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="name of the database"
    )
    adx_aad_app_id: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="application (client) ID to log in as"
    )
    adx_app_key: str | None = Field(None, repr=False, description="its client secret")
    adx_authority_id: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="its tenant's id"
    )
    batching_time_s: Annotated[int | None, Condition.BATCH] = Field(
        None, ge=10, le=1800,
        description="with batch=true: seconds to collect data before storing them (default: the"
        " database's, 300 unless changed)",
    )  # fmt: skip
    settle_s: Annotated[float, Condition.NONE] = Field(
        900, gt=0, description="with batch=true: how long to wait for more events to appear"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=256, description=IN_FLIGHT_MEANING
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for the answer to events, in seconds"
    )
    query_timeout_s: Annotated[int, Condition.NONE] = Field(
        3600, ge=1, le=3600, description="how long a query may take"
    )

    @field_validator("kusto_uri", "kusto_ingest_uri")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        login = "adx_aad_app_id, adx_app_key and adx_authority_id"
        check_url(value, "https://name.region.kusto.windows.net", login, path=False)
        parts = urlsplit(value)
        host = parts.hostname or ""
        is_loopback = ip_address(host).is_loopback if _is_address(host) else host == "localhost"
        if parts.scheme == "http" and not is_loopback:
            raise ValueError("must begin with https://")
        return value.rstrip("/")

    def mode(self, load: Load) -> InsertMode:
        return InsertMode.QUEUED if self.batch else InsertMode.STREAMING

    @property
    def ingest_uri(self) -> str:
        """The URI for ingestion; for a server without a name, `kusto_uri`."""
        if self.kusto_ingest_uri is not None:
            return self.kusto_ingest_uri
        host = urlsplit(self.kusto_uri).hostname or ""
        if "ingest-" in host or host == "localhost" or _is_address(host):
            return self.kusto_uri
        return self.kusto_uri.replace("://", "://ingest-", 1)

    def check_login(self) -> None:
        """OptionError unless there is a way to log in, or no need to (a stand-in on this machine)."""
        login = {
            name: getattr(self, name)
            for name in ("adx_aad_app_id", "adx_app_key", "adx_authority_id")
        }
        missing = [name for name, value in login.items() if not value]
        nobody = len(missing) == len(login)
        if missing and not (nobody and urlsplit(self.kusto_uri).scheme == "http"):
            raise OptionError(
                f"no login for {self.kusto_uri}: option {', '.join(missing)} is missing (on Kubernetes"
                " it may come from the Secret that existingSecret names)"
            )


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ip_address(host)
        return True
    return False


_log = logging.getLogger(__name__)

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "datetime",
    ColumnType.INT64: "long",
    ColumnType.INT32: "int",
    # Kusto's only floating-point type: 64 bits.
    ColumnType.FLOAT32: "real",
    ColumnType.FLOAT64: "real",
    ColumnType.BOOL: "bool",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "dynamic",
}


_MARKED = f'with (docstring = "{MARK}")'
"""https://learn.microsoft.com/kusto/management/create-merge-table-command"""


def _define(columns: Iterable[Column]) -> str:
    return ", ".join(
        f"{quote_name(column.name)}: {_COLUMN_TYPES[column.type]}" for column in columns
    )


class AzureDataExplorer(TableModule[AdxOptions, "Connection"]):
    """A database of a Kusto cluster."""

    name = "azure_data_explorer"
    PACKAGES = ("azure-kusto-data",)
    IMPORTED_LATE = ("azure.kusto.data", f"{__name__}.server")
    options_model = AdxOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "ingestion": Condition.BATCH,
        "ingestionbatching policy": Condition.BATCH,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.server:AdxWriter", f"{__package__}.server:AdxAsker"),
        "official": Client(
            f"{__name__}.official:OfficialWriter",
            f"{__name__}.official:OfficialAdxAsker",
            packages=("azure-kusto-ingest",),
            ways={
                InsertMode.QUEUED: "azure-kusto-ingest's QueuedIngestClient",
                InsertMode.STREAMING: "azure-kusto-ingest's KustoStreamingIngestClient",
            },
        ),
    }
    CAPABILITIES = Capabilities(
        # A queued blob is in Azure's storage by then; for streamed events the documentation doesn't say.
        durability=Durability(
            {"ingestion": Needed(("queued",), "")}, count_places=lambda settings: None
        ),
        ageing=Ageing(reason="its retention depends on when events were ingested"),
        insert_modes=dict.fromkeys((InsertMode.QUEUED, InsertMode.STREAMING), Support.FULL),
        primary_keys=support_keys(PrimaryKey.NONE),
        shapes=SHAPES,
        # https://learn.microsoft.com/kusto/query/percentiles-aggregation-function#estimation-error-in-
        # percentiles
        percentiles=Percentiles("t-digests", rank_error=0.01),
        statements="KQL",
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
        in_flight=dict.fromkeys((InsertMode.QUEUED, InsertMode.STREAMING), Support.FULL),
        # https://learn.microsoft.com/kusto/query/scalar-data-types/null-values
        empty_texts=False,
        tags_table=Support.FULL,
    )
    ENCODINGS = (
        Encoding("queued", {"batch": "true"}),
        Encoding("streaming", {"batch": "false"}),
        Encoding("streaming single", {"batch": "false"}, batched=False),
    )

    def __init__(self, options: AdxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.settle_s = self.options.settle_s if self.options.batch else STREAMED_VISIBLE_S

    @classmethod
    def encoder(cls, options: AdxOptions, job: Job) -> CsvEncoder:
        return CsvEncoder(job)

    def connect(self) -> Connection:
        from .server import Connection

        connection = Connection(self.options, self.job)
        connection.reach(lambda: connection.ask(".show tables"))
        return connection

    def prepare(self) -> None:
        ask = self.connection.ask
        ours = self.claim_tables()
        if self.job.clean:
            for table in ours:
                ask(f".drop table {quote_name(table)} ifexists")
        else:
            self.check_columns(self.job.table_names, INSERT_REMEDY)
        for command in self.describe_schema():
            ask(command)
        if not self.options.batch:
            # Otherwise, nodes that know the old table may refuse streamed data for up to five minutes.
            try:
                ask(".clear database cache streamingingestion schema")
            except SimulatorError as error:
                _log.warning("the cache of schemas could not be cleared: %s", error)

    def describe_schema(self) -> list[str]:
        commands = [
            command for table in self.job.table_names for command in self.table_commands(table)
        ]
        return [*commands, self.tags_command()] if self.job.tags_tables else commands

    def table_commands(self, table: str) -> list[str]:
        """Commands that create a table for the mode of ingestion; they may be repeated."""
        name = quote_name(table)
        columns = self.job.schema.row
        mapping = [
            {"Column": column.name, "Properties": {"Ordinal": str(ordinal)}}
            for ordinal, column in enumerate(columns)
        ]
        verbatim = json.dumps(mapping).replace("'", "''")
        streaming = "disable" if self.options.batch else "enable"
        commands = [
            f".create-merge table {name} ({_define(columns)}) {_MARKED}",
            f".create-or-alter table {name} ingestion csv mapping '{MAPPING}' @'{verbatim}'",
            f".alter table {name} policy streamingingestion {streaming}",
        ]
        if self.options.batch and self.options.batching_time_s:
            minutes, seconds = divmod(self.options.batching_time_s, 60)
            policy = json.dumps({"MaximumBatchingTimeSpan": f"00:{minutes:02d}:{seconds:02d}"})
            commands.append(f".alter table {name} policy ingestionbatching @'{policy}'")
        return commands

    def tags_command(self) -> str:
        """The command that creates the tags' table; it may be repeated."""
        schema = self.job.schema
        name = quote_name(schema.tags_table)
        return f".create-merge table {name} ({_define(schema.tags_row)}) {_MARKED}"

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        # https://learn.microsoft.com/kusto/management/show-tables-command
        rows = self.connection.ask(".show tables")
        return {name: Found(doc == MARK) for name, _, _, doc in rows if name in names}

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: _COLUMN_TYPES[column.type] for column in columns}

    def read_columns(self, table: str) -> Mapping[str, str]:
        if table not in {row[0] for row in self.connection.ask(".show tables")}:
            return {}
        [row] = self.connection.ask(f".show table {quote_name(table)} cslschema")
        pairs = (part.partition(":") for part in str(row[1]).split(","))
        return {name.strip("[]'\""): kind for name, _, kind in pairs}

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        schema = self.job.schema
        for columns in rows:
            ids = columns[ID]
            stored = self.connection.ask(select_ids(schema, int(ids.min()), int(ids.max())))
            lacking = ~np.isin(ids, [row[0] for row in stored])
            if not lacking.any():
                continue
            devices = {name: values[lacking] for name, values in columns.items()}
            for text in encode_devices(schema, devices):
                table = quote_name(schema.tags_table)
                self.connection.ask(f".ingest inline into table {table} <|\n{text.decode()}")

    def count_rows(self, table: str) -> int:
        return int(self.connection.ask(f"{quote_name(table)} | count")[0][0])

    def storage(self) -> Storage:
        from .server import check_rows

        storage = self.storage_during()
        check_rows(
            storage.level.events if storage.level else 0, sum(map(self.count_rows, self.tables))
        )
        return storage

    def storage_during(self) -> Storage:
        return self.connection.read_extents(self.tables)

    def compile(self, bound: BoundQuery) -> Compiled:
        return compile_query(bound, self.job.schema)

    def take_statement(self, text: str, bound: BoundQuery) -> Compiled:
        return take_statement(text, bound, self.job.schema)

    def describe_statement(self, statement: Compiled) -> str:
        return statement.text

    def server_info(self) -> dict[str, Any]:
        [version] = self.connection.ask(".show version")
        settings: dict[str, Any] = {"ingestion": self.mode}
        table = quote_name(self.job.table_names[0])
        database = quote_name(self.options.kusto_db)
        for policy in ("ingestionbatching", "streamingingestion"):
            # The first table's policy, or the database's if the table has none.
            for owner in (f"table {table}", f"database {database}"):
                with suppress(SimulatorError):
                    values = [
                        row[2] for row in self.connection.ask(f".show {owner} policy {policy}")
                    ]
                    if given := [value for value in values if value not in (None, "", "null")]:
                        settings[f"{policy} policy"] = one_line(given[0], SHOWN)
                        break
        return {"version": str(version[0]), "settings": settings}
