"""InfluxDB 2.x.

Each event is stored exactly once: a point is identified by its measurement, tags and time, and writing it
again writes the same values. So a request whose outcome is unknown is sent again, and two events must never
share device and millisecond. They don't: each of a workload's devices belongs to one worker, whose timestamps
always rise, unless runs restart in time (`Capabilities.repeated_timestamps`). With `client=official` and
`client=batching`, the client's write API sends the requests: see `official`.

A table is a measurement. Columns that describe the device are tags of its points, like the device's name; all
others except the time are fields (`encoding.py`).

All measurements are in one bucket; `prepare` creates it if it is missing, and notes that in its description.
Cleaning replaces such a bucket with a new one, which leaves nothing behind that could slow the next run. In a
bucket that someone else created, or that has other measurements, only measurements with the workload's names,
fields and tags are deleted.

The size on disk comes from the server's metrics, for the whole bucket: its data files, after the start of a
backup has emptied each shard's write-ahead log. No metric includes the series index.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import certifi
from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import MIB, Allocation, CommaList, PrimaryKey, Storage
from ...errors import OptionError, SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Shape
from ...workloads.schema import ColumnType
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Needed,
    OwnSchema,
    RefusedText,
    Support,
    support_keys,
)
from ..kit.module import MARK, ConnectedModule, Found, nothing_to_query
from ..kit.options import (
    BATCH_MODES,
    BatchOptions,
    ClientCertOptions,
    HttpOptions,
    InFlightOptions,
    any_encrypted,
    is_pem,
    make_tls_context,
)
from ..kit.series import field_columns, find_witness, has_labels
from ..options import LEAN, PAYLOAD, InsertMode
from .encoding import LineEncoder
from .flux import ALL_TIME, Question, quote_text, select_events, write_time
from .queries import compile_query

if TYPE_CHECKING:
    from .server import Connection

_PACKAGES = ("influxdb-client", "reactivex")
_REFUSED_TEXTS = (
    RefusedText(
        "\t", "a tab", r"which the client stores as \t (a backslash and a t)", tags_only=True
    ),
)


class InfluxOptions(BatchOptions, HttpOptions, ClientCertOptions, InFlightOptions):
    """Options of targets with `module: influxdb`."""

    EXAMPLE_URL: ClassVar[str] = "https://influxdb:8086"
    LOGIN: ClassVar[str] = "token"
    TRUST_REMEDY: ClassVar[str] = "ssl_ca_cert (or set verify_ssl=false)"

    gzip: Annotated[bool, Condition.CLIENT, PAYLOAD] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1, max_length=1, description="URL of the server, e.g. https://influxdb:8086"
    )
    org: Annotated[str, Condition.NONE, ACCESS] = Field(
        min_length=1, description="name of the organisation"
    )
    token: str = Field(
        min_length=1, repr=False, description="API token with read and write access to buckets"
    )
    bucket: Annotated[str, Condition.NONE] = Field(
        "iot-benchmark", min_length=1, description="bucket to use; created if it is missing"
    )
    shard_group_duration_h: int | None = Field(
        None, ge=1, description="hours of data in one shard of a new bucket (default: the server's)"
    )
    verify_ssl: Annotated[bool, Condition.NONE, ACCESS] = Field(
        True, description="check the server's certificate"
    )
    ssl_ca_cert: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None,
        description=(
            "trusted certificate authorities: a PEM file, or its text (default: certifi's)"
        ),
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    def login(self) -> dict[str, str]:
        return {"authorization": f"Token {self.token}"}

    def make_tls_context(self) -> ssl.SSLContext | None:
        if not any_encrypted(self.endpoint):
            return None
        # The authorities that the client trusts by default.
        authorities = self.ssl_ca_cert or certifi.where()
        try:
            make_tls_context(authorities)
        except SimulatorError as error:
            named = "its text" if is_pem(authorities) else authorities
            raise OptionError(
                f"option ssl_ca_cert: {named} can't be read: {error.__cause__}"
            ) from error
        return make_tls_context(authorities, self.verify_ssl, self.client_cert, self.client_key)


_SETTINGS = (
    "storage-wal-fsync-delay", "storage-wal-max-concurrent-writes", "storage-wal-max-write-delay",
    "storage-write-timeout", "storage-cache-max-memory-size", "storage-cache-snapshot-memory-size",
    "storage-cache-snapshot-write-cold-duration", "storage-compact-full-write-cold-duration",
    "storage-compact-throughput-burst", "storage-max-concurrent-compactions",
    "storage-series-id-set-cache-size", "query-concurrency", "query-memory-bytes", "store",
)  # fmt: skip


_FIELD_TYPES = {
    **dict.fromkeys(ColumnType, "integer"),
    # The only floating-point type has 64 bits.
    ColumnType.FLOAT32: "float",
    ColumnType.FLOAT64: "float",
    ColumnType.BOOL: "boolean",
    ColumnType.TEXT: "string",
    ColumnType.JSON: "string",
}


class Influxdb(ConnectedModule[InfluxOptions, "Connection"]):
    """InfluxDB 2.x, over its HTTP API."""

    name = "influxdb"
    PACKAGES = ("influxdb-client", "urllib3")
    IMPORTED_LATE = ("influxdb_client", f"{__name__}.server")
    options_model = InfluxOptions
    # The API: https://docs.influxdata.com/influxdb/v2/api-guide/
    OLDEST: ClassVar[Mapping[str, str]] = {"InfluxDB": "2.0"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "storage-wal-fsync-delay": Condition.DURABILITY,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.server:InfluxWriter", f"{__package__}.server:InfluxAsker"),
        "official": Client(
            f"{__name__}.official:PointsWriter",
            f"{__name__}.official:OfficialInfluxAsker",
            packages=_PACKAGES,
            ways=dict.fromkeys(BATCH_MODES, "influxdb-client's write of points, synchronous"),
            in_flight=True,
            refused_texts=_REFUSED_TEXTS,
        ),
        "batching": Client(
            f"{__name__}.official:BatchingWriter",
            f"{__name__}.official:OfficialInfluxAsker",
            packages=_PACKAGES,
            ways={InsertMode.BATCH: "influxdb-client's write of points, batching"},
            refused_texts=_REFUSED_TEXTS,
        ),
    }
    CAPABILITIES = Capabilities(
        own_schema=OwnSchema(reason="it creates no tables, columns come with events"),
        # https://docs.influxdata.com/influxdb/v2/reference/config-options/#storage-wal-fsync-delay
        durability=Durability(
            {
                "storage-wal-fsync-delay": Needed(
                    ("0s", "0"), "within {storage-wal-fsync-delay}, storage-wal-fsync-delay"
                )
            }
        ),
        ageing=Ageing(
            "requests to delete a range of time: a bucket's own retention uses today's date"
        ),
        # https://docs.influxdata.com/influxdb/v2/reference/config-options/#storage-cache-snapshot-memory-size
        allocation=Allocation(
            unit_bytes=25 * MIB,
            cause="InfluxDB writes 25 MiB of its cache at a time, and merges it later",
        ),
        insert_modes=dict.fromkeys(BATCH_MODES, Support.FULL),
        primary_keys=support_keys(PrimaryKey.NONE),
        indices=Support.UNSUPPORTED,
        column_types=_FIELD_TYPES,
        in_flight=dict.fromkeys(BATCH_MODES, Support.FULL),
        needs_value=True,
        # Answers are CSV, which has the same form for both:
        # https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/
        empty_texts=False,
        refused_texts=(
            RefusedText("\r", "a carriage return", "which is lost in the database's answers"),
            RefusedText("\n", "a line break", "which no tag can have", tags_only=True),
            RefusedText(r"\\\Z", "a final backslash", "which no tag can have", tags_only=True),
        ),
        tags_table=Support.UNSUPPORTED,
        shapes=frozenset(Shape) - {Shape.PATH},
        repeated_timestamps=Support.UNSUPPORTED,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch gzip", {"insert_mode": "batch", "gzip": "true"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    # A query may miss the most recent of the acknowledged events:
    # https://docs.influxdata.com/influxdb/v2/reference/key-concepts/design-principles/
    settle_s = 5.0

    @classmethod
    def encoder(cls, options: InfluxOptions, job: Job) -> LineEncoder:
        return LineEncoder(job, options.gzip)

    ELSEWHERE = "another bucket"

    def connect(self) -> Connection:
        from .server import Connection

        return Connection.connect(self.options, self.job)

    def prepare(self) -> None:
        bucket = self.connection.find_bucket()
        if bucket is None:
            self._make_bucket()
            return
        for rule in bucket.retention_rules:
            if rule.every_seconds:
                raise SimulatorError(
                    f"bucket {self.options.bucket} deletes events older than"
                    f" {rule.every_seconds / 86400:g} days, and the events begin in 2024: name"
                    " another bucket, which is created if it is missing"
                )
        ours = self.claim_tables()
        if not self.job.clean:
            return
        # By replacing the whole bucket if nothing else is in it.
        if bucket.description == MARK and self._list("measurements") == set(ours):
            self.drop_bucket()
            self._make_bucket()
            return
        for name in ours:
            self._delete(name, *ALL_TIME)

    def _make_bucket(self) -> None:
        from influxdb_client.domain.bucket_retention_rules import BucketRetentionRules
        from influxdb_client.domain.post_bucket_request import PostBucketRequest

        connection, options = self.connection, self.options
        find = connection.client.organizations_api().find_organizations
        orgs = connection.ask(find, org=options.org)
        if not orgs:
            raise SimulatorError(
                f"{connection.place} hides the organisation {options.org} from this token: allow"
                f" it to read the organisation, or create the bucket {options.bucket} yourself"
            )
        bucket = PostBucketRequest(
            org_id=orgs[0].id,
            name=options.bucket,
            description=MARK,
            retention_rules=[BucketRetentionRules(**self._retention())],
        )
        connection.ask(connection.client.buckets_api().create_bucket, bucket)

    def describe_schema(self) -> list[str]:
        bucket = {"description": MARK, "retention_rules": [self._retention()]}
        return [f"bucket {self.options.bucket} {json.dumps(bucket)}"]

    def _retention(self) -> dict[str, Any]:
        """The bucket's only rule, in the client's terms: nothing is deleted."""
        hours = self.options.shard_group_duration_h
        return {
            "type": "expire",
            "every_seconds": 0,
            "shard_group_duration_seconds": hours and hours * 3600,
        }

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        # Others may write into a bucket created by this tool.
        there = self._list("measurements") if self.connection.find_bucket() else set()
        return {name: Found(False) for name in names if name in there}

    def read_columns(self, table: str) -> Mapping[str, str]:
        columns: dict[str, str] = {}
        for kind in ("Field", "Tag"):
            names = self._list(f"measurement{kind}Keys", f", measurement: {quote_text(table)}")
            columns |= dict.fromkeys(names, kind)
        return {name: kind for name, kind in columns.items() if not name.startswith("_")}

    def is_like_ours(self, table: str) -> bool:
        columns = self.read_columns(table)
        schema = self.job.schema
        tags = {name for name, kind in columns.items() if kind == "Tag"}
        # Fields appear with their first value.
        fields = {column.name for column in field_columns(schema)}
        found = columns.keys() - tags
        return find_witness(schema) in found and found <= fields and has_labels(schema, tags)

    def _delete(self, table: str, start: str, stop: str) -> None:
        connection, options = self.connection, self.options
        predicate = f"_measurement={quote_text(table)}"
        connection.ask(
            connection.client.delete_api().delete,
            start,
            stop,
            predicate,
            options.bucket,
            options.org,
            timeout_s=options.query_timeout_s,
        )

    def delete_older(self, before_ms: int) -> None:
        """https://docs.influxdata.com/influxdb/v2/write-data/delete-data/"""
        for table in self.job.table_names:
            self._delete(table, ALL_TIME[0], write_time(before_ms - 1))

    def drop_bucket(self) -> None:
        """Delete the bucket and everything in it, if it exists."""
        connection = self.connection
        if bucket := connection.find_bucket():
            delete = connection.client.buckets_api().delete_bucket
            connection.ask(delete, bucket, timeout_s=self.options.query_timeout_s)

    def _list(self, function: str, arguments: str = "") -> set[str]:
        """The result of a function: https://docs.influxdata.com/flux/v0/stdlib/influxdata/influxdb/schema/"""
        start, stop = ALL_TIME
        bucket = f"bucket: {quote_text(self.options.bucket)}, start: {start}, stop: {stop}"
        query = f"""
            import "influxdata/influxdb/schema"
            schema.{function}({bucket}{arguments})
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

    def list_kept_apart(self) -> Sequence[str]:
        return [column.name for column in field_columns(self.job.schema)]

    def count(self) -> int:
        counted = 0
        for table in self.job.table_names:
            # Counted per series in storage, then summed.
            query = f"{self._select_events(table)} |> count() |> group() |> sum()"
            counted += sum(row[0] for row in self.connection.rows(query, ["_value"]))
        return counted

    def storage(self) -> Storage:
        bucket = self.connection.find_bucket()
        if bucket is None:
            raise SimulatorError(f"InfluxDB no longer has the bucket {self.options.bucket}")
        others = self._list("measurements") - set(self.job.table_names)
        return self.connection.read_storage(bucket.id, len(others))

    def compile(self, bound: BoundQuery) -> Question:
        return compile_query(bound, self.job.schema, self.options.bucket)

    def describe_statement(self, statement: Question) -> str:
        if statement.is_scanned:
            return statement.text
        return f"{statement.text}\nfollowed by a query for rows that the answer may lack"

    def server_info(self) -> dict[str, Any]:
        from influxdb_client.service.config_service import ConfigService
        from influxdb_client.service.health_service import HealthService

        connection = self.connection
        client = connection.client.api_client
        version = connection.ask(HealthService(client).get_health).version
        settings: dict[str, Any] = {}
        if bucket := connection.find_bucket():
            for rule in bucket.retention_rules:
                settings["bucket_shard_group_duration_s"] = rule.shard_group_duration_seconds
        try:
            config = connection.ask(ConfigService(client).get_config).config
            settings |= {name: config[name] for name in _SETTINGS if name in config}
        except SimulatorError:
            # Only an operator's token may read them.
            settings["storage"] = "not shown to this token"
        return {"version": version, "settings": settings}
