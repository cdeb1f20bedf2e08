"""InfluxDB 2.x.

Each event is stored exactly once: a point is its measurement, tags and time, and writing it again
writes the same values. So a request whose fate is unknown is simply sent again, and two events must
never share device and millisecond. They don't: a workload's devices belong to one worker each, whose
timestamps always rise, unless runs start again in time (`Capabilities.repeated_timestamps`).

A table is a measurement. All are in one bucket; `prepare` makes it if it is missing, and remembers by
its description that it did. Cleaning makes such a bucket anew, which leaves nothing behind that could
slow the next run. In a bucket that somebody else made, or that holds other measurements, only the
measurements of the workload are deleted.
"""

from __future__ import annotations

import csv
import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

import certifi
from influxdb_client.client.influxdb_client import InfluxDBClient
from influxdb_client.rest import ApiException
from pydantic import Field, field_validator
from urllib3.exceptions import HTTPError, ReadTimeoutError, SSLError

from ...conditions import Condition
from ...contract import PrimaryKey
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType
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
from ..shared.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    HttpPool,
    NoAnswer,
    TlsRefused,
    scheme_port,
    translated,
)
from ..shared.tls import trusted
from .encoding import PRECISION, InsertMode, LineEncoder, field_columns

_MADE_BY_US = "made by iot-database-benchmark"

# From the first time that the delete API takes to the last that storage can hold.
_ALL_TIME = ("1970-01-01T00:00:00Z", "2262-04-11T23:47:16.854775806Z")

_MAX_RETRY_AFTER_S = 60.0
"""A server that asks for more is not overloaded but down."""

# What is counted in a result, by HTTP status.
_PASSING = {
    429: "too_many_requests",
    500: "server_error",
    502: "server_error",
    503: "unavailable",
    504: "server_error",
}
_LOST = "connection_lost"
_CACHE_FULL = "cache-max-memory-size exceeded"
"""Comes with a 500, until the cache has been written to disk."""

_SETTINGS = (
    "storage-wal-fsync-delay", "storage-wal-max-concurrent-writes", "storage-wal-max-write-delay",
    "storage-write-timeout", "storage-cache-max-memory-size", "storage-cache-snapshot-memory-size",
    "storage-cache-snapshot-write-cold-duration", "storage-compact-full-write-cold-duration",
    "storage-compact-throughput-burst", "storage-max-concurrent-compactions",
    "storage-series-id-set-cache-size", "query-concurrency", "query-memory-bytes", "store",
)  # fmt: skip


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None, description="batch (default with --batch) or single (default without)"
    )
    gzip: Annotated[bool, Condition.CLIENT] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        mode = InsertMode.BATCH if batch else InsertMode.SINGLE
        if self.insert_mode not in (None, mode):
            remedy = "leave --batch out" if batch else "it needs --batch N"
            raise OptionError(f"insert_mode={self.insert_mode}: {remedy}")
        return mode


class InfluxOptions(EncodingOptions):
    """Options of targets with `module: influxdb`."""

    endpoint: Annotated[str, Condition.NONE] = Field(
        description="URL of the server, e.g. https://influxdb:8086"
    )
    org: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="name of the organisation"
    )
    token: str = Field(
        min_length=1, repr=False, description="API token that may read and write buckets"
    )
    bucket: Annotated[str, Condition.NONE] = Field(
        "iot-benchmark", min_length=1, description="bucket to use; made if it is missing"
    )
    shard_group_duration_h: int | None = Field(
        None, ge=1, description="hours of data in one shard of a new bucket (default: the server's)"
    )
    verify_ssl: Annotated[bool, Condition.NONE] = Field(
        True, description="check the server's certificate"
    )
    ssl_ca_cert: Annotated[str | None, Condition.NONE] = Field(
        None, description="file with the certificates to trust (default: those of certifi)"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description="requests under way at once, each on a connection of its own"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="after so many seconds without an answer, a write is sent again"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("is no http:// or https:// URL")
        if parts.username or parts.query or parts.fragment:
            raise ValueError("may hold host, port and path only")
        return value.rstrip("/")

    def secrets(self) -> list[str]:
        return [self.token]

    def public(self) -> dict[str, Any]:
        return super().public() | {"token": "***"}


class InfluxServer:
    """The official client's HTTP layer, with errors translated; writes go by `wire`.

    What lies above it, points and write and query APIs, works per event, on the client's CPU.
    """

    def __init__(self, options: InfluxOptions, run_id: str) -> None:
        self._options = options
        self._client = InfluxDBClient(
            options.endpoint,
            options.token,
            org=options.org,
            verify_ssl=options.verify_ssl,
            ssl_ca_cert=options.ssl_ca_cert,
        )
        self._http = self._client.api_client.rest_client
        self.headers = {
            "Authorization": f"Token {options.token}",
            "User-Agent": f"iot-benchmark/{run_id}",
            "Content-Type": "application/json",
        }
        write = {"org": options.org, "bucket": options.bucket, "precision": PRECISION}
        self.write_target = f"/api/v2/write?{urlencode(write)}"
        self.write_headers = self.headers | {"Content-Type": "text/plain; charset=utf-8"}
        if options.gzip:
            self.write_headers["Content-Encoding"] = "gzip"
        self._writes = HttpPool(
            [options.endpoint],
            scheme_port(options.endpoint),
            self.write_headers,
            options.request_timeout_s,
            # Whom the client trusts, too.
            trusted([options.endpoint], options.ssl_ca_cert or certifi.where(), options.verify_ssl),
        )

    @property
    def name(self) -> str:
        """host:port, for messages."""
        parts = urlsplit(self._options.endpoint)
        return f"{parts.hostname}:{parts.port or scheme_port(self._options.endpoint)}"

    def close(self) -> None:
        """Close all connections."""
        self._writes.close()
        # Its own `clear` leaves that to the garbage collector, which is off while a run is measured.
        pools = self._http.pool_manager.pools
        for key in pools.keys():  # noqa: SIM118 - it can't be iterated over
            pools[key].close()
        pools.clear()

    def reach(self) -> None:
        """Connect for the first write, so that it doesn't have to."""
        self._answered("GET", "/ping", timeout_s=CONNECT_TIMEOUT_S)

    def write(self, body: bytes) -> None:
        """One write request; Retryable if it may be sent again."""
        answer = self._answered("POST", self.write_target, body)
        if answer.status == 204:
            return
        if answer.status >= 400:
            text = answer.body.decode(errors="replace")
            raise self.meaning(answer.status, text, answer.header("Retry-After"))
        raise SimulatorError(
            f"InfluxDB at {self.name} answered a write by {answer.status} instead of 204:"
            " check that endpoint names the server itself"
        )

    def _answered(
        self, method: str, target: str, body: bytes = b"", timeout_s: float | None = None
    ) -> Answer:
        try:
            return self._writes.request(method, target, body, timeout_s=timeout_s)
        except TlsRefused as error:
            raise self._untrusted(str(error)) from error
        except NoAnswer as error:
            raise translated(error, "InfluxDB", self.name, "ssl_ca_cert") from error

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        **params: str,
    ) -> Any:
        """A request to the API, and its answer's JSON (None if it has none)."""
        url = f"{self._options.endpoint}{path}?{urlencode(params)}"
        text = self._translated(method, url, self.headers, body, timeout_s).data
        return json.loads(text) if text else None

    def rows(self, query: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """A Flux query's answer: the values of these columns, times in ms since 1970."""
        dialect = {"header": True, "annotations": ["datatype"], "delimiter": ","}
        url = f"{self._options.endpoint}/api/v2/query?{urlencode({'org': self._options.org})}"
        headers = self.headers | {"Accept": "application/csv"}
        body = {"query": query, "dialect": dialect, "type": "flux"}
        answer = self._translated("POST", url, headers, body, self._options.query_timeout_s)
        return parsed(answer.data, columns)

    def _translated(
        self, method: str, url: str, headers: dict[str, str], body: object, timeout_s: float
    ) -> Any:
        timeouts_ms = (CONNECT_TIMEOUT_S * 1000, timeout_s * 1000)
        try:
            return self._http.request(
                method, url, headers=headers, body=body, _request_timeout=timeouts_ms
            )
        except ApiException as error:
            if not error.status:
                raise self._untrusted(str(error.reason)) from error
            wait_s = error.headers.get("Retry-After")
            raise self.meaning(error.status, error.body or error.reason or "", wait_s) from error
        except HTTPError as error:
            raise self._lost(error, timeout_s) from error

    def _lost(self, error: HTTPError, timeout_s: float) -> Retryable | SimulatorError:
        """What it means that there was no answer."""
        if isinstance(error, SSLError):
            return self._untrusted(str(error))
        if isinstance(error, ReadTimeoutError):
            return Retryable("timeout", f"no answer from {self.name} in {timeout_s:g} s")
        return Retryable(_LOST, f"{self.name}: {one_line(error)}")

    def _untrusted(self, reason: str) -> SimulatorError:
        return SimulatorError(
            f"can't connect to InfluxDB at {self.name}: {one_line(reason)};"
            " name the authority's certificate in ssl_ca_cert, or set verify_ssl=false"
        )

    def meaning(
        self, status: int, body: str, retry_after: str | None
    ) -> Retryable | SimulatorError:
        """What an error means: worth another try, or the end of the run."""
        options = self._options
        text = _message(body)
        if kind := _PASSING.get(status):
            if _CACHE_FULL in text:
                kind = "cache_full"
            wait_s = _retry_after_s(retry_after)
            if wait_s > _MAX_RETRY_AFTER_S:
                return SimulatorError(
                    f"InfluxDB at {self.name} wants to be left alone for {wait_s:g} s ({text})"
                )
            return Retryable(kind, f"{status}: {text}", at_least_s=wait_s)
        if status in (401, 403):
            return SimulatorError(
                f"InfluxDB at {self.name} refused the token ({text}): check token, and that it may"
                f" read and write buckets of the organisation {options.org}"
            )
        if status == 404 and "organization" in text:
            return SimulatorError(f"InfluxDB at {self.name}: {text}; check org")
        if status == 404 and "bucket" in text:
            return SimulatorError(
                f"InfluxDB at {self.name} has no bucket {options.bucket} with events ({text}):"
                " run insert first, or without --no-clean"
            )
        if status == 413:
            return SimulatorError(f"InfluxDB at {self.name}: {text}; use a smaller --batch")
        return SimulatorError(f"InfluxDB at {self.name} refused a request ({status}): {text}")


class Influxdb(Module[InfluxOptions, EncodingOptions]):
    """InfluxDB 2.x, over its HTTP API."""

    name = "influxdb"
    PACKAGES = ("influxdb-client", "urllib3", "httptools")
    options_model = InfluxOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "storage-wal-fsync-delay": Condition.DURABILITY,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            key: Support.FULL if key is PrimaryKey.NONE else Support.UNSUPPORTED
            for key in PrimaryKey
        },
        multiple_tables=Support.FULL,
        queries=dict.fromkeys(
            (
                "count-events",
                "temperature-min-max",
                "temperature-stats",
                "temperature-stats-per-device",
                "newest-per-device",
                "cpu-max-all",
                "high-cpu",
                "last-point",
            ),
            Support.FULL,
        ),
        indices=Support.UNSUPPORTED,
        column_types=frozenset(ColumnType),
        repeated_timestamps=Support.UNSUPPORTED,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch gzip", {"insert_mode": "batch", "gzip": "true"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: InfluxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self._server: InfluxServer | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> LineEncoder:
        options.mode(batch)
        return LineEncoder(job, options.gzip)

    def writer(self, batch: int, prefill: bool = False) -> InfluxWriter:
        return InfluxWriter(LineEncoder(self.job, self.options.gzip), self.options, self.job.run_id)

    def open(self) -> None:
        self._server = connected(self.options, self.job.run_id)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def server(self) -> InfluxServer:
        """The server; only between `open` and `close`."""
        assert self._server is not None
        return self._server

    def prepare(self) -> None:
        bucket = find_bucket(self.server, self.options)
        if bucket is None:
            self._make_bucket()
            return
        for rule in bucket["retentionRules"]:
            if rule["everySeconds"]:
                raise SimulatorError(
                    f"bucket {self.options.bucket} deletes what is older than"
                    f" {rule['everySeconds'] / 86400:g} days, and the events are of 2024 on: name"
                    " another bucket, which is made if it is missing"
                )
        if self.job.clean:
            self._clean(bucket)

    def _make_bucket(self) -> None:
        orgs = self.server.ask("GET", "/api/v2/orgs", org=self.options.org)["orgs"]
        if not orgs:
            raise SimulatorError(
                f"InfluxDB at {self.server.name} doesn't show the organisation {self.options.org} to"
                " this token: let it read the organisation, or make the bucket"
                f" {self.options.bucket} yourself"
            )
        rule = {"type": "expire", "everySeconds": 0}
        if self.options.shard_group_duration_h:
            rule["shardGroupDurationSeconds"] = self.options.shard_group_duration_h * 3600
        bucket = {
            "orgID": orgs[0]["id"],
            "name": self.options.bucket,
            "description": _MADE_BY_US,
            "retentionRules": [rule],
        }
        self.server.ask("POST", "/api/v2/buckets", bucket)

    def _clean(self, bucket: Mapping[str, Any]) -> None:
        """Delete the workload's measurements: with the bucket if that loses nothing else."""
        timeout_s = self.options.query_timeout_s
        measurements = self._measurements()
        ours = measurements & set(self.job.all_table_names)
        if bucket.get("description") == _MADE_BY_US and measurements == ours:
            self.drop_bucket()
            self._make_bucket()
            return
        for name in sorted(ours):
            start, stop = _ALL_TIME
            predicate = {
                "start": start,
                "stop": stop,
                "predicate": f"_measurement={flux_text(name)}",
            }
            self.server.ask(
                "POST",
                "/api/v2/delete",
                predicate,
                timeout_s=timeout_s,
                org=self.options.org,
                bucket=self.options.bucket,
            )

    def drop_bucket(self) -> None:
        """Delete the bucket and all that is in it, if it is there."""
        if bucket := find_bucket(self.server, self.options):
            path = f"/api/v2/buckets/{quote(bucket['id'])}"
            self.server.ask("DELETE", path, timeout_s=self.options.query_timeout_s)

    def _measurements(self) -> set[str]:
        start, stop = _ALL_TIME
        query = f"""
            import "influxdata/influxdb/schema"
            schema.measurements(bucket: {flux_text(self.options.bucket)}, start: {start}, stop: {stop})
            """
        return {row[0] for row in self.server.rows(query, ["_value"])}

    def prepare_queries(self) -> None:
        if find_bucket(self.server, self.options) is None or self._time_span() is None:
            raise SimulatorError(
                f"there is no table {self.job.schema.table} to query: run insert first, with"
                f" --tables single (bucket {self.options.bucket}, measurement"
                f" {self.job.schema.table})"
            )

    def _time_span(self) -> tuple[int, int] | None:
        """Times of the first and the last event in ms; None without events."""
        columns = ["_time"]
        first = self.server.rows(
            f'{self._events()} |> first() |> group() |> min(column: "_time")', columns
        )
        last = self.server.rows(
            f'{self._events()} |> last() |> group() |> max(column: "_time")', columns
        )
        return (first[0][0], last[0][0]) if first and last else None

    def _events(self, table: str | None = None, span: tuple[str, str] = _ALL_TIME) -> str:
        """Flux for one value of each event."""
        name = field_columns(self.job.schema)[-1].name
        return events(self.options.bucket, table or self.job.schema.table, span, name)

    def count(self) -> int:
        counted = 0
        for table in self.job.table_names:
            rows = self.server.rows(f"{self._events(table)} |> {_COUNT}", ["_value"])
            counted += sum(row[0] for row in rows)
        return counted

    def workload_queries(self) -> Mapping[str, Query]:
        # The range of the events is found here: before the queries, which would pay for it.
        span_ms = self._time_span() if self._server is not None else None
        first, last = span_ms or (FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS)
        span = (flux_time(first), flux_time(last + 1))
        return {
            name: partial(self._answer, *flux_query(name, self.options.bucket, span))
            for name in self.job.schema.queries
        }

    def _answer(self, query: str, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        return self.server.rows(query, columns)

    def server_info(self) -> dict[str, Any]:
        version = self.server.ask("GET", "/health")["version"]
        bucket = find_bucket(self.server, self.options) or {"retentionRules": []}
        settings: dict[str, Any] = {}
        for rule in bucket["retentionRules"]:
            settings["bucket_shard_group_duration_s"] = rule["shardGroupDurationSeconds"]
        try:
            found = self.server.ask("GET", "/api/v2/config")["config"]
            settings |= {name: found[name] for name in _SETTINGS if name in found}
        except SimulatorError:
            # It takes an operator's token.
            settings["storage"] = "not shown to this token"
        return {"version": version, "settings": settings}


class InfluxWriter(Writer):
    """Sends payloads of `LineEncoder`."""

    def __init__(self, encoder: LineEncoder, options: InfluxOptions, run_id: str) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_in_flight
        self._options = options
        self._run_id = run_id
        self._server: InfluxServer | None = None

    def open(self) -> None:
        self._server = connected(self._options, self._run_id)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def send(self, payload: Payload) -> int:
        assert self._server is not None
        self._server.write(payload.data)
        return payload.events


def connected(options: InfluxOptions, run_id: str) -> InfluxServer:
    """The server, once it has let us in; SimulatorError with its name and a remedy if not."""
    if options.ssl_ca_cert:
        # Or it would be a failure of each connection, and look like one of the server's certificate.
        try:
            ssl.create_default_context(cafile=options.ssl_ca_cert)
        except OSError as error:
            raise OptionError(
                f"option ssl_ca_cert: {options.ssl_ca_cert} can't be read: {one_line(error)}"
            ) from error
    server = InfluxServer(options, run_id)
    try:
        server.reach()
        find_bucket(server, options)
    except Retryable as error:
        server.close()
        raise SimulatorError(
            f"can't connect to InfluxDB at {server.name}: {error}; check that the server runs and"
            " that endpoint names it"
        ) from error
    except SimulatorError:
        server.close()
        raise
    return server


def find_bucket(server: InfluxServer, options: InfluxOptions) -> Mapping[str, Any] | None:
    """What the server says of the bucket; None if there is none."""
    try:
        [bucket] = server.ask("GET", "/api/v2/buckets", org=options.org, name=options.bucket)[
            "buckets"
        ]
    except SimulatorError as error:
        cause = error.__cause__
        if (
            isinstance(cause, ApiException)
            and cause.status == 404
            and "bucket" in _message(cause.body)
        ):
            return None
        raise
    found: Mapping[str, Any] = bucket
    return found


def _message(body: str) -> str:
    """What the server says, in one line."""
    text = body
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(body)["message"]
    return one_line(text, 500)


def _retry_after_s(value: str | None) -> float:
    """Seconds of a Retry-After header; 0 without one. InfluxDB sends no dates."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0


# --- Flux -----------------------------------------------------------------------------------------


def flux_text(text: str) -> str:
    """A string literal. https://docs.influxdata.com/flux/v0/spec/lexical-elements/"""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


def flux_time(time_ms: int) -> str:
    """A time literal."""
    seconds, milliseconds = divmod(time_ms, 1000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def events(bucket: str, table: str, span: tuple[str, str], field: str | None = None) -> str:
    """Flux for a table's points in [start, stop): of one field, or of all."""
    condition = f"r._measurement == {flux_text(table)}"
    if field:
        condition += f" and r._field == {flux_text(field)}"
    return (
        f"from(bucket: {flux_text(bucket)}) |> range(start: {span[0]}, stop: {span[1]})"
        f" |> filter(fn: (r) => {condition})"
    )


def flux_query(name: str, bucket: str, span: tuple[str, str]) -> tuple[str, list[str]]:
    """A query of a workload, and the columns of its answer.

    Each begins with what storage itself can do (`range`, `filter` and one aggregate), so that Flux
    gets few rows to work on: one per series, which are the devices. For a few devices with many
    events, storage does that four times as fast as an aggregate over all series (`group() |> min()`);
    only from thousands of devices on it is the slower way. Aggregates of the same events each read
    them anew: a stream that is used twice is handed to Flux as it is.
    https://docs.influxdata.com/influxdb/v2/query-data/optimize-queries/
    """
    temperatures = events(bucket, "events", span, "temperature")
    if name == "count-events":
        return f"{temperatures} |> {_COUNT}", ["_value"]
    if name == "temperature-min-max":
        return _side_by_side(temperatures, {"min": _MIN, "max": _MAX}, "_all"), ["min", "max"]
    if name == "temperature-stats":
        parts = {"min": _MIN, "sum": "sum() |> group() |> sum()", "count": _COUNT, "max": _MAX}
        mean = "map(fn: (r) => ({r with mean: r.sum / r.count}))"
        columns = ["min", "mean", "max"]
        return f"{_side_by_side(temperatures, parts, '_all')} |> {mean}", columns
    if name == "temperature-stats-per-device":
        parts = {"min": "min()", "mean": "mean()", "max": "max()"}
        return _side_by_side(temperatures, parts, "device_id"), ["device_id", *parts]
    if name == "newest-per-device":
        return f"{temperatures} |> last() |> group()", ["device_id", "_value"]
    return _cpu_query(name, bucket, span)


# Over all series, by way of each.
_MIN = "min() |> group() |> min()"
_MAX = "max() |> group() |> max()"
_COUNT = "count() |> group() |> sum()"


def _side_by_side(values: str, aggregates: Mapping[str, str], by: str) -> str:
    """Aggregates of the same values as columns of one row for each `by`.

    `by`: a tag that tells the series apart, or a name that is none, for one row of all.
    """
    streams = [
        f"{values} |> {aggregate} |> toFloat() |> group()"
        f' |> keep(columns: ["_value", {flux_text(by)}])'
        f' |> set(key: "of", value: {flux_text(name)})'
        for name, aggregate in aggregates.items()
    ]
    if by == "_all":
        streams = [f'{stream} |> set(key: "_all", value: "")' for stream in streams]
    return (
        f"union(tables: [{', '.join(streams)}])"
        f' |> pivot(rowKey: [{flux_text(by)}], columnKey: ["of"], valueColumn: "_value")'
    )


def _cpu_query(name: str, bucket: str, span: tuple[str, str]) -> tuple[str, list[str]]:
    """The same for workload cpu, whose metrics are fields, and so series of their own."""
    begin = flux_time(FIRST_TIMESTAMP_MS)
    as_columns = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'
    columns = ["hostname", "_time", *METRICS]
    if name == "cpu-max-all":
        hosts = " or ".join(f"r.hostname == {flux_text(host)}" for host in MAX_ALL_HOSTS)
        query = (
            f"{events(bucket, 'cpu', (begin, flux_time(MAX_ALL_UNTIL_MS)))}"
            f" |> filter(fn: (r) => {hosts})"
            ' |> aggregateWindow(every: 1h, fn: max, createEmpty: false, timeSrc: "_start")'
            f' |> group(columns: ["_field", "_time"]) |> max() |> group() |> {as_columns}'
        )
        return query, columns[1:]
    if name == "high-cpu":
        query = (
            f"{events(bucket, 'cpu', (begin, flux_time(HIGH_CPU_UNTIL_MS)))} |> {as_columns}"
            f" |> filter(fn: (r) => r.usage_user > {HIGH_CPU_ABOVE}) |> group()"
        )
        return query, columns
    assert name == "last-point", name
    return f"{events(bucket, 'cpu', span)} |> last() |> {as_columns} |> group()", columns


# https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    "long": int,
    "double": float,
    "string": str,
    "dateTime:RFC3339": lambda text: round(datetime.fromisoformat(text).timestamp() * 1000),
}


def parsed(text: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The values of these columns in annotated CSV, of all its tables.

    Raises SimulatorError if the query failed when part of the answer was on its way already.
    """
    rows = []
    types: list[str] = []
    header: list[str] = []
    places: list[tuple[Callable[[str], Any], int]] = []
    for row in csv.reader(StringIO(text, newline="")):
        if not row or row[0] == "#datatype":
            types, header = row, []
        elif not header:
            header = row
            if "error" not in header:
                found = [header.index(name) for name in columns]
                places = [(_CONVERTERS[types[place]], place) for place in found]
        elif "error" in header:
            raise SimulatorError(f"InfluxDB gave up a query: {row[header.index('error')]}")
        else:
            rows.append(tuple([convert(row[place]) for convert, place in places]))
    return rows
