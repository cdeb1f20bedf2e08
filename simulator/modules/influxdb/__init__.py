"""InfluxDB 2.x.

Each event is stored exactly once: a point is its measurement, tags and time, and writing it again
writes the same values. So a request whose fate is unknown is simply sent again, and two events must
never share device and millisecond. They don't: a workload's devices belong to one worker each, whose
timestamps always rise, unless runs start again in time (`Capabilities.repeated_timestamps`). With
`client=official` and `client=batching` the client's write API sends them, see `official`.

A table is a measurement. Columns that describe the device are tags of its points, as the device's name
is; all others but the time are fields (`encoding.py`).

All measurements are in one bucket; `prepare` makes it if it is missing, and remembers by its description
that it did. Cleaning replaces such a bucket by a new one, which leaves nothing behind that could slow the
next run. In a bucket that somebody else made, or that holds other measurements, only the measurements of
the workload are deleted.

What is on disk is told by the server's metrics, for the whole bucket: its data files, once a backup of each
shard has begun and so emptied its write-ahead log. The series index is in no metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import SimulatorError
from ...workloads.queries import BoundQuery, Shape
from ...workloads.schema import ColumnType
from .._base.connected import ConnectedModule
from .._base.errors import nothing_to_query
from .._base.labels import find_witness
from ..base import Capabilities, Encoding, Job, Query, Support, claim_queries
from ..sending import Writer
from .encoding import InsertMode, LineEncoder
from .flux import ALL_TIME, quote_text, select_events
from .options import CLIENTS, EncodingOptions, InfluxOptions
from .queries import compile_query
from .storage import ALLOCATION, read_storage

if TYPE_CHECKING:
    from .server import Connection

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


class Influxdb(ConnectedModule[InfluxOptions, EncodingOptions, "Connection"]):
    """InfluxDB 2.x, over its HTTP API."""

    name = "influxdb"
    PACKAGES = ("influxdb-client", "urllib3", "httptools")
    IMPORTED_LATE = ("influxdb_client", f"{__name__}.writer")
    options_model = InfluxOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "storage-wal-fsync-delay": Condition.DURABILITY,
    }
    CAPABILITIES = Capabilities(
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            key: Support.FULL if key is PrimaryKey.NONE else Support.UNSUPPORTED
            for key in PrimaryKey
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(frozenset(Shape)),
        indices=Support.UNSUPPORTED,
        column_types=_FIELD_TYPES,
        in_flight=dict.fromkeys(InsertMode, Support.FULL),
        missing_values=True,
        needs_value=True,
        # Answers are CSV, which has one form for both:
        # https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
        empty_texts=False,
        tags_table=Support.UNSUPPORTED,
        shapes=frozenset(Shape),
        repeated_timestamps=Support.UNSUPPORTED,
        clients=CLIENTS,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch gzip", {"insert_mode": "batch", "gzip": "true"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: InfluxOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> LineEncoder:
        options.mode(batch)
        return LineEncoder(job, options.gzip)

    def writer(self, batch: int, prefill: bool = False) -> Writer:
        if self.is_official(prefill):
            from .official import make_writer

            return make_writer(self.options, self.job, batch)
        from .writer import InfluxWriter

        return InfluxWriter(LineEncoder(self.job, self.options.gzip), self.options, self.job)

    def connect(self) -> Connection:
        from .server import connect

        return connect(self.options, self.job)

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
        table = self.job.schema.table
        first = f"{self._select_events(table)} |> first() |> group() |> limit(n: 1)"
        if self.connection.find_bucket() is None or (
            self.must_have_events and not self.connection.rows(first, ["_value"])
        ):
            raise nothing_to_query(table, self.job)

    def _select_events(self, table: str) -> str:
        """Flux for one value of each event."""
        witness = find_witness(self.job.schema)
        return select_events(self.options.bucket, table, ALL_TIME, [witness])

    def count(self) -> int:
        counted = 0
        for table in self.job.table_names:
            # Of each series in storage, then of all.
            query = f"{self._select_events(table)} |> count() |> group() |> sum()"
            counted += sum(row[0] for row in self.connection.rows(query, ["_value"]))
        return counted

    def storage(self) -> Storage:
        bucket = self.connection.find_bucket()
        if bucket is None:
            raise SimulatorError(f"InfluxDB has no bucket {self.options.bucket} any more")
        others = self._measurements() - set(self.job.table_names)
        return read_storage(self.connection, bucket["id"], len(others))

    def compile(self, bound: BoundQuery) -> Query:
        question = compile_query(bound, self.job.schema, self.options.bucket)
        return lambda: question.ask(self.connection.answer)

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
