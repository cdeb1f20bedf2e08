"""InfluxDB 2.x.

Each event is stored exactly once: a point is its measurement, tags and time, and writing it again
writes the same values. So a request whose fate is unknown is simply sent again, and two events must
never share device and millisecond. They don't: a workload's devices belong to one worker each, whose
timestamps always rise, unless runs start again in time (`Capabilities.repeated_timestamps`).

A table is a measurement. All are in one bucket; `prepare` makes it if it is missing, and remembers by
its description that it did. Cleaning replaces such a bucket by a new one, which leaves nothing behind that
could slow the next run. In a bucket that somebody else made, or that holds other measurements, only the
measurements of the workload are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote

from ...conditions import Condition
from ...contract import PrimaryKey
from ...errors import SimulatorError
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType
from ..base import Capabilities, Encoding, Job, Module, Query, Support
from ..shared.errors import nothing_to_query
from .encoding import InsertMode, LineEncoder, field_columns
from .options import EncodingOptions, InfluxOptions
from .queries import ALL_TIME, COUNT, NAMES, compile_query, quote_text, select_events, write_time
from .server import Connection, connect
from .writer import InfluxWriter

_MADE_BY_US = "made by iot-database-benchmark"

_SETTINGS = (
    "storage-wal-fsync-delay", "storage-wal-max-concurrent-writes", "storage-wal-max-write-delay",
    "storage-write-timeout", "storage-cache-max-memory-size", "storage-cache-snapshot-memory-size",
    "storage-cache-snapshot-write-cold-duration", "storage-compact-full-write-cold-duration",
    "storage-compact-throughput-burst", "storage-max-concurrent-compactions",
    "storage-series-id-set-cache-size", "query-concurrency", "query-memory-bytes", "store",
)  # fmt: skip


_FIELD_TYPES = {
    **dict.fromkeys(ColumnType, "integer"),
    # The only type for floats has 64 bits.
    ColumnType.FLOAT32: "float",
    ColumnType.FLOAT64: "float",
    ColumnType.BOOL: "boolean",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "string",
}


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
        queries=dict.fromkeys(NAMES, Support.FULL),
        indices=Support.UNSUPPORTED,
        column_types=_FIELD_TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        missing_values=True,
        tags_table=Support.UNSUPPORTED,
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
        self._connection: Connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> LineEncoder:
        options.mode(batch)
        return LineEncoder(job, options.gzip)

    def writer(self, batch: int, prefill: bool = False) -> InfluxWriter:
        return InfluxWriter(LineEncoder(self.job, self.options.gzip), self.options, self.job)

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
        bucket = self.connection.find_bucket()
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
        orgs = self.connection.ask("GET", "/api/v2/orgs", org=self.options.org)["orgs"]
        if not orgs:
            raise SimulatorError(
                f"InfluxDB at {self.options.server} doesn't show the organisation {self.options.org} to"
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
        self.connection.ask("POST", "/api/v2/buckets", bucket)

    def _clean(self, bucket: Mapping[str, Any]) -> None:
        """Delete the workload's measurements, by way of the whole bucket if nothing else is in it."""
        timeout_s = self.options.query_timeout_s
        measurements = self._measurements()
        ours = measurements & set(self.job.all_table_names)
        if bucket.get("description") == _MADE_BY_US and measurements == ours:
            self.drop_bucket()
            self._make_bucket()
            return
        for name in sorted(ours):
            start, stop = ALL_TIME
            predicate = {
                "start": start,
                "stop": stop,
                "predicate": f"_measurement={quote_text(name)}",
            }
            self.connection.ask(
                "POST",
                "/api/v2/delete",
                predicate,
                timeout_s=timeout_s,
                org=self.options.org,
                bucket=self.options.bucket,
            )

    def drop_bucket(self) -> None:
        """Delete the bucket and all that is in it, if it is there."""
        if bucket := self.connection.find_bucket():
            path = f"/api/v2/buckets/{quote(bucket['id'])}"
            self.connection.ask("DELETE", path, timeout_s=self.options.query_timeout_s)

    def _measurements(self) -> set[str]:
        start, stop = ALL_TIME
        query = f"""
            import "influxdata/influxdb/schema"
            schema.measurements(bucket: {quote_text(self.options.bucket)}, start: {start}, stop: {stop})
            """
        return {row[0] for row in self.connection.rows(query, ["_value"])}

    def prepare_queries(self) -> None:
        if self.connection.find_bucket() is None or self._time_span() is None:
            raise nothing_to_query(self.job.schema.table, self.job)

    def _time_span(self) -> tuple[int, int] | None:
        """Times of the first and the last event in ms; None without events."""
        columns = ["_time"]
        first = self.connection.rows(
            f'{self._events()} |> first() |> group() |> min(column: "_time")', columns
        )
        last = self.connection.rows(
            f'{self._events()} |> last() |> group() |> max(column: "_time")', columns
        )
        return (first[0][0], last[0][0]) if first and last else None

    def _events(self, table: str | None = None, span: tuple[str, str] = ALL_TIME) -> str:
        """Flux for one value of each event."""
        # One that every event has.
        always = [column for column in field_columns(self.job.schema) if not column.nullable]
        name = always[-1].name
        return select_events(self.options.bucket, table or self.job.schema.table, span, name)

    def count(self) -> int:
        counted = 0
        for table in self.job.table_names:
            rows = self.connection.rows(f"{self._events(table)} |> {COUNT}", ["_value"])
            counted += sum(row[0] for row in rows)
        return counted

    def workload_queries(self) -> Mapping[str, Query]:
        # The span of the events is found before the queries are timed.
        span_ms = self._time_span() if self._connection is not None else None
        first, last = span_ms or (FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS)
        span = (write_time(first), write_time(last + 1))
        return {
            name: partial(self._answer, *compile_query(name, self.options.bucket, span))
            for name in self.job.schema.queries
            if name in NAMES
        }

    def _answer(self, query: str, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        return self.connection.rows(query, columns)

    def server_info(self) -> dict[str, Any]:
        version = self.connection.ask("GET", "/health")["version"]
        bucket = self.connection.find_bucket() or {"retentionRules": []}
        settings: dict[str, Any] = {}
        for rule in bucket["retentionRules"]:
            settings["bucket_shard_group_duration_s"] = rule["shardGroupDurationSeconds"]
        try:
            found = self.connection.ask("GET", "/api/v2/config")["config"]
            settings |= {name: found[name] for name in _SETTINGS if name in found}
        except SimulatorError:
            # Only an operator's token may read them.
            settings["storage"] = "not shown to this token"
        return {"version": version, "settings": settings}
