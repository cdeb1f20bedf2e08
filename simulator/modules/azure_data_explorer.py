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
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from io import BytesIO
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError
from azure.kusto.data import ClientRequestProperties, KustoClient, KustoConnectionStringBuilder
from azure.kusto.data.data_format import DataFormat, IngestionMappingKind
from azure.kusto.data.exceptions import (
    KustoApiError,
    KustoAuthenticationError,
    KustoError,
    KustoNetworkError,
    KustoServiceError,
    KustoThrottlingError,
)
from azure.kusto.ingest import BlobDescriptor, IngestionProperties
from azure.kusto.ingest.base_ingest_client import BaseIngestClient
from azure.kusto.ingest.ingestion_blob_info import IngestionBlobInfo
from azure.storage.blob import ContainerClient
from azure.storage.queue import QueueClient, TextBase64EncodePolicy
from pydantic import Field, field_validator, model_validator

from ..contract import PrimaryKey
from ..errors import OptionError, Retryable, SimulatorError
from ..workloads.base import FIRST_TIMESTAMP_MS, ColumnType, Schema
from ..workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from .azure_data_explorer_encoding import CsvEncoder, InsertMode
from .base import (
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

_log = logging.getLogger(__name__)

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "datetime",
    ColumnType.INT64: "long",
    ColumnType.INT32: "int",
    ColumnType.FLOAT32: "real",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "dynamic",
}

_MAPPING = "iot_benchmark"
"""Name of the tables' ingestion mapping."""

_LOST = "connection_lost"

# What the clients themselves go by.
_RESOURCES_GOOD_S = 3600.0

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

    batch: bool = Field(True, description="true: queued ingestion, false: streaming ingestion")

    def mode(self, batch: int) -> InsertMode:
        """The insert mode, which is the same for requests of any size."""
        return InsertMode.QUEUED if self.batch else InsertMode.STREAMING


class AdxOptions(EncodingOptions):
    """Options of targets with `module: azure_data_explorer`."""

    kusto_uri: str = Field(
        description="URI of the cluster, e.g. https://name.region.kusto.windows.net"
    )
    kusto_ingest_uri: str | None = Field(
        None, description="URI for ingestion (default: kusto_uri with ingest- before the name)"
    )
    kusto_db: str = Field(min_length=1, description="name of the database")
    adx_aad_app_id: str | None = Field(None, description="application (client) id to log in as")
    adx_app_key: str | None = Field(None, repr=False, description="its client secret")
    adx_authority_id: str | None = Field(None, description="its tenant's id")
    batching_time_s: int | None = Field(
        None, ge=10, le=1800,
        description="with batch=true: seconds that data are collected before they are stored"
        " (default: the database's, 300 if nobody changed it)",
    )  # fmt: skip
    settle_s: float = Field(
        900, gt=0, description="with batch=true: how long to wait for more events to appear"
    )
    max_in_flight: int = Field(
        1, ge=1, le=256, description="requests under way at once; with batch=true only"
    )
    query_timeout_s: int = Field(3600, ge=1, le=3600, description="how long a query may take")

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


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Cluster:
    """The official clients, with errors translated."""

    def __init__(self, options: AdxOptions, run_id: str) -> None:
        options.check_login()
        self.options = options
        self._run_id = run_id
        self._client = KustoClient(self._connection(options.kusto_uri))
        self._queue: IngestionQueue | None = None
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
        if self._queue is not None:
            self._queue.close()

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

    def stream(self, table: str, body: bytes) -> None:
        """Streaming ingestion of compressed CSV."""
        try:
            self._client.execute_streaming_ingest(
                self.options.kusto_db, table, BytesIO(body), None, DataFormat.CSV, None, _MAPPING
            )
        except KustoError as error:
            raise self.meaning(error) from error

    def open_queue(self) -> None:
        """Make ready for `enqueue`."""
        options = self.options
        uri = options.kusto_ingest_uri or BaseIngestClient.get_ingestion_endpoint(options.kusto_uri)
        self._queue = IngestionQueue(KustoClient(self._connection(uri)), options.kusto_db)
        try:
            self._queue.renew()
        except KustoError as error:
            raise self.meaning(error) from error

    def enqueue(self, table: str, body: bytes, size: int) -> None:
        """Queued ingestion of compressed CSV that was `size` bytes long."""
        assert self._queue is not None
        try:
            self._queue.put(table, body, size)
        except KustoError as error:
            raise self.meaning(error) from error

    def meaning(self, error: KustoError) -> Retryable | SimulatorError:
        """What an error means: worth another try, or the end of the run."""
        host = urlsplit(self.options.kusto_uri).netloc
        if isinstance(error, KustoThrottlingError):
            return Retryable("throttled", f"{host} is asked for too much at once", backoff_s=1)
        if isinstance(error, KustoNetworkError):
            return Retryable(_LOST, f"{host}: {_one_line(error.__cause__ or error)}")
        if isinstance(error, KustoAuthenticationError):
            return SimulatorError(
                f"can't log in to {host}: {_one_line(error.exception)}; check adx_aad_app_id,"
                " adx_app_key and adx_authority_id"
            )
        text = _one_line(error)
        if isinstance(error, KustoApiError):
            found = error.get_api_error()
            text = f"{found.code}: {_one_line(found.description or found.message)}"
            if found.permanent is False:
                return Retryable("server_error", text, backoff_s=0.5)
        if "Failed to resolve table" in text or "EntityNotFound" in text:
            return SimulatorError(f"{host}: {text}; run insert first, or without --no-clean")
        if isinstance(error, KustoServiceError) and text.startswith("401"):
            return SimulatorError(
                f"{host} refused the login: {text}; let the application be a user, ingestor and admin"
                f" of the database {self.options.kusto_db}"
            )
        return SimulatorError(f"{host} refused a request: {text}")


class IngestionQueue:
    """Queued ingestion by Azure's clients for blobs and queues, connections kept open.

    What the ingestion client does, too, but that makes new clients for each request, at 10 ms of CPU.
    https://learn.microsoft.com/azure/data-explorer/kusto/api/netfx/kusto-ingest-client-rest
    """

    def __init__(self, client: KustoClient, database: str) -> None:
        """`client` is that of the ingestion URI."""
        self._client = client
        self._database = database
        self._lock = threading.Lock()
        self._turn = count()
        self._renew_at = 0.0
        self._token = ""
        self._containers: list[ContainerClient] = []
        self._queues: list[QueueClient] = []

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        for container in self._containers:
            container.close()
        for queue in self._queues:
            queue.close()

    def renew(self) -> None:
        """Ask for the containers, queues and the token to use, which are good for a while."""
        with self._lock:
            if time.monotonic() < self._renew_at:
                return
            rows = self._asked(".get ingestion resources")
            [[self._token]] = self._asked(".get kusto identity token")
            # Retries are the loop's affair, which counts them.
            self._containers = [
                ContainerClient.from_container_url(uri, retry_total=0)
                for kind, uri in rows
                if kind == "TempStorage"
            ]
            policy = TextBase64EncodePolicy()
            self._queues = [
                QueueClient.from_queue_url(uri, message_encode_policy=policy, retry_total=0)
                for kind, uri in rows
                if kind == "SecuredReadyForAggregationQueue"
            ]
            self._renew_at = time.monotonic() + _RESOURCES_GOOD_S

    def _asked(self, command: str) -> list[list[str]]:
        rows: list[list[str]] = self._client.execute_mgmt(None, command).primary_results[0].raw_rows
        return [row[:2] for row in rows]

    def put(self, table: str, body: bytes, size: int) -> None:
        """A blob, and a message that names it.

        Raises Retryable if nothing was queued, SimulatorError if nobody knows.
        """
        self.renew()
        turn = next(self._turn)
        container = self._containers[turn % len(self._containers)]
        queue = self._queues[turn % len(self._queues)]
        try:
            blob = container.upload_blob(f"{self._database}__{table}__{uuid.uuid4()}.csv.gz", body)
        except AzureError as error:
            raise Retryable("blob_not_stored", _one_line(error)) from error
        properties = IngestionProperties(
            self._database,
            table,
            data_format=DataFormat.CSV,
            ingestion_mapping_kind=IngestionMappingKind.CSV,
            ingestion_mapping_reference=_MAPPING,
        )
        message = IngestionBlobInfo(BlobDescriptor(blob.url, size), properties, self._token)
        try:
            queue.send_message(message.to_json())
        except (HttpResponseError, ServiceRequestError) as error:
            # Refused, or not even sent.
            raise Retryable("message_not_queued", _one_line(error)) from error
        except AzureError as error:
            raise SimulatorError(
                "the answer to a message was lost, so nobody knows whether it was queued, and the run"
                f" can't go on: {_one_line(error)}"
            ) from error


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]


def quoted(name: str) -> str:
    """The name of a table or column."""
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"


class AzureDataExplorer(Module):
    """A database of a Kusto cluster."""

    name = "azure_data_explorer"
    options_model = AdxOptions
    encoding_options_model = EncodingOptions
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            key: Support.FULL if key is PrimaryKey.NONE else Support.UNSUPPORTED
            for key in PrimaryKey
        },
        multiple_tables=Support.FULL,
        queries=dict.fromkeys(QUERIES, Support.FULL),
        indices=Support.UNSUPPORTED,
        workloads={"temperature": Support.FULL, "cpu": Support.FULL},
    )
    ENCODINGS = (
        Encoding("queued", {"batch": "true"}),
        Encoding("streaming", {"batch": "false"}),
        Encoding("streaming single", {"batch": "false"}, batched=False),
    )

    options: AdxOptions

    def __init__(self, options: Options, job: Job) -> None:
        super().__init__(options, job)
        self.settle_s = self.options.settle_s if self.options.batch else _STREAMED_VISIBLE_S
        self._cluster: Cluster | None = None

    @classmethod
    def encoder(cls, options: Options, job: Job, batch: int) -> CsvEncoder:
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
            f".create-or-alter table {name} ingestion csv mapping '{_MAPPING}' @'{verbatim}'",
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
        settings: dict[str, Any] = {"ingestion": self.options.mode(self.job.batch)}
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
                        return _one_line(row[2])
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
        self._cluster = connected(self._options, self._job.run_id)
        if self._options.batch:
            self._cluster.open_queue()

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
            self._in_doubt = error.kind == _LOST
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


def connected(options: AdxOptions, run_id: str) -> Cluster:
    """The cluster, once it has let us in; SimulatorError with its name and a remedy if not."""
    cluster = Cluster(options, run_id)
    try:
        cluster.ask(".show tables")
    except Retryable as error:
        cluster.close()
        raise SimulatorError(
            f"can't connect to Azure Data Explorer at {error}; check that kusto_uri names a running"
            " cluster"
        ) from error
    except SimulatorError:
        cluster.close()
        raise
    return cluster
