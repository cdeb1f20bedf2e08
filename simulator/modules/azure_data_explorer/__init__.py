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
"""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
from azure.kusto.data.exceptions import (
    KustoApiError,
    KustoAuthenticationError,
    KustoError,
    KustoNetworkError,
    KustoServiceError,
    KustoThrottlingError,
)
from pydantic import Field, field_validator, model_validator

from ...conditions import Condition
from ...contract import PrimaryKey
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import (
    Capabilities,
    Encoding,
    Job,
    Module,
    Options,
    Payload,
    Query,
    Support,
    Writer,
)
from ..shared.http import NoAnswer, translated
from .encoding import CsvEncoder, InsertMode
from .ingestion import MAPPING, SHOWN, QueuedIngestion, StreamingIngestion

_log = logging.getLogger(__name__)

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "datetime",
    ColumnType.INT64: "long",
    ColumnType.INT32: "int",
    ColumnType.FLOAT32: "real",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "dynamic",
}

_LOST = "connection_lost"

_UNCLEAR = (_LOST, "timeout")
"""Kinds of errors after which a request may be stored."""

# Streamed events show up in queries within about ten seconds.
# https://learn.microsoft.com/azure/data-explorer/ingest-data-streaming
_STREAMED_VISIBLE_S = 15.0

# Nothing tells when queued events have arrived, so they are counted again and again.
_LOOK_INTERVAL_S = 0.5


def _when(time_ms: int) -> str:
    """A datetime literal."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"datetime({moment:%Y-%m-%dT%H:%M:%S}Z)"


_METRICS = ", ".join(METRICS)
_HOSTS = ", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)

QUERIES = {
    "count-events": "events | count",
    "temperature-min-max": "events | summarize min(temperature), max(temperature)",
    "temperature-stats": "events | summarize min(temperature), avg(temperature), max(temperature)",
    "temperature-stats-per-device": "events"
    " | summarize min(temperature), avg(temperature), max(temperature) by device_id",
    # `partition` would end at 64 devices, as it did in the reference.
    "newest-per-device": "events | summarize arg_max(timestamp, temperature) by device_id"
    " | project device_id, temperature",
    "cpu-max-all": f"cpu | where ts >= {_when(FIRST_TIMESTAMP_MS)} and ts < {_when(MAX_ALL_UNTIL_MS)}"
    f" | where tostring(tags.hostname) in ({_HOSTS})"
    f" | summarize {', '.join(f'max({name})' for name in METRICS)} by hour = bin(ts, 1h)",
    "high-cpu": f"cpu | where ts >= {_when(FIRST_TIMESTAMP_MS)} and ts < {_when(HIGH_CPU_UNTIL_MS)}"
    f" | where usage_user > {HIGH_CPU_ABOVE}"
    f" | project hostname = tostring(tags.hostname), ts, {_METRICS}",
    "last-point": f"cpu | summarize arg_max(ts, {_METRICS}) by hostname = tostring(tags.hostname)",
}
"""In KQL, by name."""


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    batch: Annotated[bool, Condition.BATCH] = Field(
        True, description="true: queued ingestion, false: streaming ingestion"
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode, which is the same for requests of any size."""
        return InsertMode.QUEUED if self.batch else InsertMode.STREAMING


class AdxOptions(EncodingOptions):
    """Options of targets with `module: azure_data_explorer`."""

    kusto_uri: Annotated[str, Condition.NONE] = Field(
        description="URI of the cluster, e.g. https://name.region.kusto.windows.net"
    )
    kusto_ingest_uri: Annotated[str | None, Condition.NONE] = Field(
        None, description="URI for ingestion (default: kusto_uri with ingest- before the name)"
    )
    kusto_db: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="name of the database"
    )
    adx_aad_app_id: Annotated[str | None, Condition.NONE] = Field(
        None, description="application (client) id to log in as"
    )
    adx_app_key: str | None = Field(None, repr=False, description="its client secret")
    adx_authority_id: Annotated[str | None, Condition.NONE] = Field(
        None, description="its tenant's id"
    )
    batching_time_s: Annotated[int | None, Condition.BATCH] = Field(
        None, ge=10, le=1800,
        description="with batch=true: seconds that data are collected before they are stored"
        " (default: the database's, 300 if nobody changed it)",
    )  # fmt: skip
    settle_s: Annotated[float, Condition.NONE] = Field(
        900, gt=0, description="with batch=true: how long to wait for more events to appear"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=256, description="requests under way at once; with batch=true only"
    )
    query_timeout_s: Annotated[int, Condition.NONE] = Field(
        3600, ge=1, le=3600, description="how long a query may take"
    )

    @field_validator("kusto_uri", "kusto_ingest_uri")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("is no https:// URI")
        if parts.username or parts.query or parts.fragment or ";" in value:
            raise ValueError("may hold host and port only")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError("must begin with https://")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _fits(self) -> AdxOptions:
        if self.max_in_flight > 1 and not self.batch:
            raise ValueError("max_in_flight is for batch=true")
        return self

    @property
    def ingest_uri(self) -> str:
        """The URI for ingestion: what has no name has no other than `kusto_uri`."""
        if self.kusto_ingest_uri is not None:
            return self.kusto_ingest_uri
        host = urlsplit(self.kusto_uri).hostname or ""
        if "ingest-" in host or host == "localhost" or _is_address(host):
            return self.kusto_uri
        return self.kusto_uri.replace("://", "://ingest-", 1)

    def check_login(self) -> None:
        """OptionError unless there is a way to log in, or no need to (a stand-in on this machine)."""
        given = {
            name: getattr(self, name)
            for name in ("adx_aad_app_id", "adx_app_key", "adx_authority_id")
        }
        missing = [name for name, value in given.items() if not value]
        nobody = len(missing) == len(given)
        if missing and not (nobody and urlsplit(self.kusto_uri).scheme == "http"):
            raise OptionError(
                f"no login for {self.kusto_uri}: option {', '.join(missing)} is missing (on Kubernetes"
                " it may come from the Secret that existingSecret names)"
            )

    def secrets(self) -> list[str]:
        return [self.adx_app_key] if self.adx_app_key else []

    def public(self) -> dict[str, Any]:
        return super().public() | ({"adx_app_key": "***"} if self.adx_app_key else {})


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"


class Cluster:
    """The official clients, with errors translated."""

    def __init__(self, options: AdxOptions, run_id: str) -> None:
        options.check_login()
        self.options = options
        self._run_id = run_id
        self._client = KustoClient(self._connection(options.kusto_uri))
        self._streaming: StreamingIngestion | None = None
        self._queue: QueuedIngestion | None = None
        self._properties = ClientRequestProperties()
        # Or an answer of more than 500,000 rows would be an error.
        # https://learn.microsoft.com/azure/data-explorer/kusto/concepts/querylimits
        self._properties.set_option("notruncation", True)
        timeout = timedelta(seconds=options.query_timeout_s)
        self._properties.set_option(self._properties.request_timeout_option_name, timeout)

    def _connection(self, uri: str) -> KustoConnectionStringBuilder:
        options = self.options
        if options.adx_aad_app_id and options.adx_app_key and options.adx_authority_id:
            found = KustoConnectionStringBuilder.with_aad_application_key_authentication(
                uri, options.adx_aad_app_id, options.adx_app_key, options.adx_authority_id
            )
        else:
            found = KustoConnectionStringBuilder.with_no_authentication(uri)
        found.application_for_tracing = f"iot-benchmark/{self._run_id}"
        return found

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        for ingestion in (self._streaming, self._queue):
            if ingestion is not None:
                ingestion.close()

    def ask(self, query: str) -> list[list[Any]]:
        """All rows of a query's or a command's answer, as JSON has them."""
        command = query.startswith(".")
        try:
            answer = self._client.execute(
                self.options.kusto_db, query, None if command else self._properties
            )
        except KustoError as error:
            raise self.meaning(error) from error
        rows: list[list[Any]] = answer.primary_results[0].raw_rows
        return rows

    def open_streaming(self) -> None:
        """Make ready for `stream`."""
        options = self.options
        self._streaming = StreamingIngestion(self._client, options.kusto_uri, options.kusto_db)
        try:
            self._streaming.reach()
        except NoAnswer as error:
            raise self._lost(error) from error
        except KustoError as error:
            raise self.meaning(error) from error

    def stream(self, table: str, body: bytes) -> None:
        """Streaming ingestion of compressed CSV."""
        assert self._streaming is not None
        try:
            self._streaming.put(table, body)
        except NoAnswer as error:
            raise self._lost(error) from error
        except KustoError as error:
            raise self.meaning(error) from error

    def open_queue(self) -> None:
        """Make ready for `enqueue`."""
        options = self.options
        client = KustoClient(self._connection(options.ingest_uri))
        self._queue = QueuedIngestion(client, options.kusto_db)
        try:
            self._queue.renew()
        except KustoError as error:
            raise self.meaning(error, options.ingest_uri) from error

    def enqueue(self, table: str, body: bytes, size: int) -> None:
        """Queued ingestion of compressed CSV that was `size` bytes long."""
        assert self._queue is not None
        try:
            self._queue.put(table, body, size)
        except KustoError as error:
            raise self.meaning(error, self.options.ingest_uri) from error

    def _lost(self, error: NoAnswer) -> Retryable | SimulatorError:
        host = urlsplit(self.options.kusto_uri).netloc
        return translated(error, "Azure Data Explorer", host, "REQUESTS_CA_BUNDLE")

    def meaning(self, error: KustoError, uri: str | None = None) -> Retryable | SimulatorError:
        """What an error means, of `uri` (default: `kusto_uri`): worth another try, or the end of the run."""
        host = urlsplit(uri or self.options.kusto_uri).netloc
        if isinstance(error, KustoThrottlingError):
            return Retryable("throttled", f"{host} is asked for too much at once", backoff_s=1)
        if isinstance(error, KustoNetworkError):
            return Retryable(_LOST, f"{host}: {one_line(error.__cause__ or error, SHOWN)}")
        if isinstance(error, KustoAuthenticationError):
            return SimulatorError(
                f"can't log in to {host}: {one_line(error.exception, SHOWN)}; check adx_aad_app_id,"
                " adx_app_key and adx_authority_id"
            )
        text = one_line(error, SHOWN)
        if isinstance(error, KustoApiError):
            found = error.get_api_error()
            text = f"{found.code}: {one_line(found.description or found.message, SHOWN)}"
            if found.permanent is False:
                return Retryable("server_error", text, backoff_s=0.5)
        if "Failed to resolve table" in text or "EntityNotFound" in text:
            return SimulatorError(f"{host}: {text}; run insert first, or without --no-clean")
        if isinstance(error, KustoServiceError) and text.startswith(("401", "Forbidden")):
            return SimulatorError(
                f"{host} refused the login: {text}; let the application be a user, ingestor and admin"
                f" of the database {self.options.kusto_db}"
            )
        return SimulatorError(f"{host} refused a request: {text}")


def quoted(name: str) -> str:
    """The name of a table or column."""
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


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
        queries=dict.fromkeys(QUERIES, Support.FULL),
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
    )
    ENCODINGS = (
        Encoding("queued", {"batch": "true"}),
        Encoding("streaming", {"batch": "false"}),
        Encoding("streaming single", {"batch": "false"}, batched=False),
    )

    def __init__(self, options: AdxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.settle_s = self.options.settle_s if self.options.batch else _STREAMED_VISIBLE_S
        self._cluster: Cluster | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> CsvEncoder:
        return CsvEncoder(job)

    def writer(self, batch: int, prefill: bool = False) -> AdxWriter:
        return AdxWriter(CsvEncoder(self.job), self.options, self.job)

    def open(self) -> None:
        self._cluster = connected(self.options, self.job.run_id)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    @property
    def cluster(self) -> Cluster:
        """The cluster; only between `open` and `close`."""
        assert self._cluster is not None
        return self._cluster

    def prepare(self) -> None:
        ask = self.cluster.ask
        if self.job.clean:
            for table in self.job.all_table_names:
                ask(f".drop table {quoted(table)} ifexists")
        for table in self.job.table_names:
            for command in self.table_commands(table):
                ask(command)
        if not self.options.batch:
            # Or nodes that know the old table may refuse streamed data for up to five minutes.
            try:
                ask(".clear database cache streamingingestion schema")
            except SimulatorError as error:
                _log.warning("the cache of schemas could not be cleared: %s", error)

    def table_commands(self, table: str) -> list[str]:
        """What makes a table as the mode of ingestion needs it; may be repeated."""
        name = quoted(table)
        columns = self.job.schema.columns
        types = ", ".join(f"{quoted(c.name)}: {_COLUMN_TYPES[c.type]}" for c in columns)
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
        if table not in {row[0] for row in self.cluster.ask(".show tables")}:
            raise SimulatorError(
                f"there is no table {table} to query: run insert first, with --tables single"
            )

    def count(self) -> int:
        answers = [self.cluster.ask(f"{quoted(table)} | count") for table in self.job.table_names]
        return sum(int(rows[0][0]) for rows in answers)

    def workload_queries(self) -> Mapping[str, Query]:
        return {
            name: partial(self._answer, QUERIES[name])
            for name in self.job.schema.queries
            if name in QUERIES
        }

    def _answer(self, query: str) -> Sequence[tuple[Any, ...]]:
        return [tuple(map(_value, row)) for row in self.cluster.ask(query)]

    def server_info(self) -> dict[str, Any]:
        [version] = self.cluster.ask(".show version")
        settings: dict[str, Any] = {"ingestion": self.options.mode(self.job.load.batch)}
        for policy in ("ingestionbatching", "streamingingestion"):
            found = self._policy(policy)
            if found is not None:
                settings[f"{policy} policy"] = found
        return {"version": str(version[0]), "settings": settings}

    def _policy(self, policy: str) -> str | None:
        """A policy of the first table, of the database where the table has none of its own."""
        table = quoted(self.job.table_names[0])
        database = quoted(self.options.kusto_db)
        for owner in (f"table {table}", f"database {database}"):
            with suppress(SimulatorError):
                for row in self.cluster.ask(f".show {owner} policy {policy}"):
                    if row[2] not in (None, "", "null"):
                        return one_line(row[2], SHOWN)
        return None


def _value(value: Any) -> Any:
    """A value of an answer; times in ms since 1970."""
    if isinstance(value, str) and value.endswith("Z") and value[4:5] == "-":
        return round(datetime.fromisoformat(value).timestamp() * 1000)
    return value


class AdxWriter(Writer):
    """Sends payloads of `CsvEncoder`: a request per table."""

    def __init__(self, encoder: CsvEncoder, options: AdxOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_in_flight
        self._options = options
        self._job = job
        self._cluster: Cluster | None = None
        self._in_doubt = False
        """Whether the last streaming request may have been stored without our knowing."""

    def open(self) -> None:
        mode = self._options.mode(self._job.load.batch)
        self._cluster = connected(self._options, self._job.run_id, mode)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def send(self, payload: Payload) -> int:
        assert self._cluster is not None
        # What was acknowledged is not sent again when another table's request fails.
        while payload.data:
            part = payload.data[0]
            if self._options.batch:
                self._cluster.enqueue(part.table, part.body, part.size)
            else:
                self._stream(part.table, part.body)
            payload.data.popleft()
        return payload.events

    def _stream(self, table: str, body: bytes) -> None:
        assert self._cluster is not None
        try:
            self._cluster.stream(table, body)
        except Retryable as error:
            self._in_doubt = error.kind in _UNCLEAR
            raise

    def recover(self, payload: Payload) -> bool:
        if not self._in_doubt:
            return False
        assert self._cluster is not None
        part = payload.data[0]
        if self._is_stored(self._cluster, part.table, part.device, part.time_ms):
            payload.data.popleft()
        self._in_doubt = False
        return not payload.data

    def _is_stored(self, cluster: Cluster, table: str, device: str, time_ms: int) -> bool:
        """Whether the device has an event of that time or later."""
        query = newest_of_each(self._job.schema, table)
        deadline = time.monotonic() + _STREAMED_VISIBLE_S
        while True:
            newest = {str(row[0]): _value(row[1]) for row in cluster.ask(query)}
            if newest.get(device, -1) >= time_ms:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_INTERVAL_S)


def newest_of_each(schema: Schema, table: str) -> str:
    """KQL for the time of each device's newest event."""
    device = quoted(schema.device)
    if schema.device_path:
        device = f"device = tostring({device}{quoted(schema.device_path)})"
    return f"{quoted(table)} | summarize max({quoted(schema.time)}) by {device}"


def connected(options: AdxOptions, run_id: str, mode: InsertMode | None = None) -> Cluster:
    """The cluster, once it has let us in, to send events in a mode or only to ask; SimulatorError with
    its name and a remedy if it doesn't."""
    cluster = Cluster(options, run_id)
    try:
        cluster.ask(".show tables")
        if mode is InsertMode.QUEUED:
            cluster.open_queue()
        elif mode is InsertMode.STREAMING:
            cluster.open_streaming()
    except Retryable as error:
        cluster.close()
        raise SimulatorError(
            f"can't connect to Azure Data Explorer at {error}; check that kusto_uri and"
            " kusto_ingest_uri name a running cluster"
        ) from error
    except SimulatorError:
        cluster.close()
        raise
    return cluster
