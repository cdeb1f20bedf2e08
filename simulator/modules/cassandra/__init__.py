"""Apache Cassandra, and what speaks its protocol: YugabyteDB's YCQL.

Tables
------
One partition per device, its events in the order of time, newest first:

    PRIMARY KEY ((device_id), timestamp, sequence_number) WITH CLUSTERING ORDER BY (timestamp DESC, …)

So a batch of one device's events is one mutation, and a device's newest event is the first row of
its partition. A device inside a document (workload cpu) gets a column of its own for that.

Every table of this database has a primary key made of columns, and none of it is made by the
server. `--primary-key db` and `none` therefore mean the same, the key above. `client` and `uuid`
put a key column `id` in the place of `sequence_number`; both are made by the worker, as a key made
by the server (`uuid()`, `now()`) would be a new one on each retry.

Each event is stored exactly once
---------------------------------
An INSERT with all key columns given writes the same row however often it is sent. So a request
whose fate is not known (a lost connection, a write timeout, which may have been written nevertheless)
is simply sent again, and every failure is counted. The driver's own retries are off.

Full scans
----------
Counts and statistics over all events are asked range by range of the token ring, several at once:
one query for all would be one coordinator's work, and exceed its timeouts. The timeout is for a whole
aggregate, however it is paged, so a range with large partitions may still exceed it: that is asked
again partition by partition in slices of time, and a slice that exceeds it in two halves.

YCQL (`flavor: ycql`) differs, by YugabyteDB's documentation; nothing of it was run on a YugabyteDB:
no PER PARTITION LIMIT and no GROUP BY (devices are listed by DISTINCT, then asked one by one), no
compaction strategies, `tablets` instead, no virtual tables with the server's settings, and
replication is a matter of the cluster and not of the keyspace.
https://docs.yugabyte.com/stable/api/ycql/dml_select/
https://github.com/yugabyte/yugabyte-db/issues/13956
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from cassandra import (
    AuthenticationFailed,
    CoordinationFailure,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    WriteTimeout,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.connection import ConnectionException, EndPoint, ProtocolVersionUnsupported
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostDistance,
    HostStateListener,
    LoadBalancingPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import (
    BatchMessage,
    ExecuteMessage,
    OverloadedErrorMessage,
    PreparedQueryNotFound,
    StartupMessage,
)
from cassandra.query import PreparedStatement, SimpleStatement, tuple_factory
from pydantic import Field, field_validator, model_validator

from ...conditions import Condition
from ...contract import PrimaryKey
from ...encoding import KEY_COLUMN
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import (
    Capabilities,
    CommaList,
    Encoding,
    Job,
    Module,
    Options,
    Outcome,
    Payload,
    Query,
    Support,
    Writer,
)
from ..shared.http import SOCKET_OPTIONS
from ..shared.sql import quoted
from ..shared.tls import trusting
from .encoding import (
    CONSISTENCY_CODES,
    MAX_BATCH,
    BatchType,
    CassandraEncoder,
    Prepared,
    Request,
    has_key_column,
)
from .wire import ERRORS, RECONNECT_INTERVAL_S, Line, Lines, Node, Topology, connected

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "timestamp",
    ColumnType.INT64: "bigint",
    ColumnType.INT32: "int",
    ColumnType.FLOAT32: "float",
    ColumnType.TEXT: "text",
    # Neither has Cassandra a type for it, nor the driver one for YCQL's jsonb.
    ColumnType.JSON: "text",
}
_KEY_TYPES = {PrimaryKey.CLIENT: "text", PrimaryKey.UUID: "uuid"}

# What is counted as `connection_lost` in a result.
_LOST = "connection_lost"

# How long one retry waits for the driver to have a node to talk to again.
_RECONNECT_S = 2.0
_PROBE = "SELECT key FROM system.local WHERE key = 'local'"

_FIRST_TOKEN, _TOKENS = -(2**63), 2**64
_QUERIES_AT_ONCE = 16
_SLICES = 16

_SETTINGS = (
    "commitlog_sync", "commitlog_sync_period", "commitlog_sync_group_window",
    "periodic_commitlog_sync_lag_block", "commitlog_compression.class_name",
    "commitlog_disk_access_mode", "memtable_allocation_type", "memtable_heap_space",
    "memtable_offheap_space", "write_request_timeout", "read_request_timeout",
    "range_request_timeout", "batch_size_fail_threshold", "batch_size_warn_threshold",
    "concurrent_writes", "concurrent_reads", "concurrent_compactors",
    "compaction_throughput", "num_tokens", "max_mutation_size",
    "native_transport_max_request_data_in_flight", "hinted_handoff_enabled",
    "internode_compression", "endpoint_snitch", "partitioner",
)  # fmt: skip

Consistency = Literal[
    "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "LOCAL_ONE"
]


class Flavor(StrEnum):
    """Whose CQL it is."""

    CASSANDRA = "cassandra"
    YCQL = "ycql"
    """YugabyteDB's."""


class ReplicationStrategy(StrEnum):
    """Class of a keyspace's replication."""

    NETWORK = "NetworkTopologyStrategy"
    """`replication_factor` copies in the local data center."""
    SIMPLE = "SimpleStrategy"
    """Copies without regard to data centers and racks."""


class InsertMode(StrEnum):
    """How events are sent."""

    BATCH = "batch"
    """BATCH messages, each of one partition."""
    SINGLE = "single"
    """An INSERT per event."""


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None, description="batch (default with --batch) or single (default without)"
    )
    consistency_level: Annotated[Consistency, Condition.DURABILITY] = Field(
        "LOCAL_QUORUM", description="of writes (single and batch) and of reads"
    )
    batch_type: Annotated[BatchType, Condition.BATCH] = Field(
        BatchType.UNLOGGED, description="unlogged or logged"
    )

    def check(self, batch: int) -> None:
        """OptionError if requests of `batch` events can't be made."""
        if batch and self.insert_mode is InsertMode.SINGLE:
            raise OptionError("insert_mode=single sends each event alone: leave --batch out")
        if not batch and self.insert_mode is InsertMode.BATCH:
            raise OptionError("insert_mode=batch needs --batch N")
        if batch > MAX_BATCH:
            raise OptionError(f"a batch of Cassandra has at most {MAX_BATCH} events, not {batch}")


class CassandraOptions(EncodingOptions):
    """Options of targets with `module: cassandra`."""

    contact_points: Annotated[CommaList, Condition.NONE] = Field(
        min_length=1, description="nodes to connect to first, separated by commas"
    )
    port: Annotated[int, Condition.NONE] = Field(
        9042, ge=1, le=65535, description="port of all nodes"
    )
    local_datacenter: Annotated[str | None, Condition.NONE] = Field(
        None, description="data center to send requests to (default: that of the contact points)"
    )
    username: Annotated[str | None, Condition.NONE] = Field(
        None, description="with password: how to log in"
    )
    password: str | None = Field(None, repr=False, description="see username")
    tls: Annotated[bool, Condition.CLIENT] = Field(False, description="encrypt the connections")
    ca_certs: Annotated[str | None, Condition.NONE] = Field(
        None,
        description="with tls: file of the certificates to trust, or their PEM text (default: the system's)",
    )
    verify_certs: Annotated[bool, Condition.NONE] = Field(
        True, description="with tls: check the server's certificate and that it is for this host"
    )
    keyspace: Annotated[str, Condition.NONE] = Field(
        "benchmark", pattern=r"^\w{1,48}$", description="keyspace, made if there is none"
    )
    replication_strategy: Annotated[ReplicationStrategy, Condition.REPLICATION] = Field(
        ReplicationStrategy.NETWORK, description="of the keyspace, if it is made"
    )
    replication_factor: Annotated[int, Condition.REPLICATION] = Field(
        3, ge=1, description="copies of each row, in one data center"
    )
    max_sync_calls: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=16_384, description="requests of a worker under way at once"
    )
    request_timeout: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="seconds until an insert without answer is tried again"
    )
    query_timeout: Annotated[float, Condition.NONE] = Field(
        600, gt=0, description="seconds until a query is given up"
    )
    connect_timeout: Annotated[float, Condition.NONE] = Field(
        10, gt=0, description="seconds until a node counts as away"
    )
    protocol_version: Annotated[Literal[3, 4, 5] | None, Condition.CLIENT] = Field(
        None, description="of the native protocol (default: 5; with flavor ycql 4)"
    )
    compaction: CommaList | None = Field(
        None,
        description="class of the tables' compaction strategy, then its settings, e.g. "
        "TimeWindowCompactionStrategy, compaction_window_size=1 (default: the server's)",
    )
    scan_ranges: Annotated[int, Condition.CLIENT] = Field(
        32, ge=1, le=65_536, description="parts in which all events are counted or scanned"
    )
    flavor: Flavor = Field(Flavor.CASSANDRA, description="cassandra or ycql")
    tablets: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, description="tablets of a table (flavor ycql; default: the server's choice)"
    )

    @field_validator("protocol_version", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        # On a command line it is a text, which a Literal does not take for a number.
        return int(value) if isinstance(value, str) and value.isdigit() else value

    @field_validator("compaction")
    @classmethod
    def _settings(cls, value: list[str] | None) -> list[str] | None:
        if value and not all(part.count("=") == 1 for part in value[1:]):
            raise ValueError("is a class, then settings as key=value")
        return value

    @model_validator(mode="after")
    def _fits(self) -> CassandraOptions:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        if self.flavor is Flavor.YCQL and self.compaction:
            raise ValueError("compaction: YCQL has no compaction strategies")
        if self.flavor is not Flavor.YCQL and self.tablets:
            raise ValueError("tablets: only flavor ycql has tablets")
        return self

    def secrets(self) -> list[str]:
        return [self.password] if self.password else []

    def public(self) -> dict[str, Any]:
        return super().public() | ({"password": "***"} if self.password else {})

    @property
    def servers(self) -> str:
        """host:port of the contact points, for messages."""
        return ", ".join(f"{point}:{self.port}" for point in self.contact_points)

    @property
    def replication(self) -> dict[str, str]:
        """The keyspace's replication, but for the data center's name with NetworkTopologyStrategy."""
        factor = str(self.replication_factor)
        return {"class": self.replication_strategy.value, "replication_factor": factor}


class Cassandra(Module[CassandraOptions, EncodingOptions]):
    """Cassandra or YCQL."""

    name = "cassandra"
    PACKAGES = ("cassandra-driver",)
    options_model = CassandraOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "commitlog_sync": Condition.DURABILITY,
        "commitlog_sync_period": Condition.DURABILITY,
        "commitlog_sync_group_window": Condition.DURABILITY,
        "periodic_commitlog_sync_lag_block": Condition.DURABILITY,
        "durable_writes": Condition.DURABILITY,
        "consistency_level": Condition.DURABILITY,
        "nodes": Condition.REPLICATION,
        "replication": Condition.REPLICATION,
        "hinted_handoff_enabled": Condition.REPLICATION,
        "endpoint_snitch": Condition.REPLICATION,
        "batch_type": Condition.BATCH,
        "max_sync_calls": Condition.CLIENT,
        "protocol_version": Condition.CLIENT,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.UUID: Support.FULL,
            PrimaryKey.NONE: Support.FULL,
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
        # The table's key is in the order that the queries need; no other index would serve them.
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: CassandraOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.check(job.load.batch)
        self._connection: _Connection | None = None
        self._statements: dict[str, PreparedStatement] = {}
        self._large: set[str] = set()
        """Tables that proved to be too large to be asked range by range."""

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> CassandraEncoder:
        options.check(batch)
        return CassandraEncoder(
            job, batch, options.batch_type, options.consistency_level, job.schema.devices_per_worker
        )

    def writer(self, batch: int, prefill: bool = False) -> CassandraWriter:
        options = self.options
        if prefill:
            # In batches, whatever the target's mode.
            options = options.model_copy(update={"insert_mode": InsertMode.BATCH})
        return CassandraWriter(self.encoder(options, self.job, batch), options, self.job)

    def open(self) -> None:
        self._connection = _Connection(self.options, self.job.run_id)
        self._statements = {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- tables -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        keyspace = self.options.keyspace
        replication = self._replication()
        literal = ", ".join(f"'{key}': '{value}'" for key, value in replication.items())
        self._ask(
            f"CREATE KEYSPACE IF NOT EXISTS {quoted(keyspace)} WITH replication = {{{literal}}}"
        )
        found = self._found_replication()
        if self.options.flavor is not Flavor.YCQL and found != replication:
            raise SimulatorError(
                f"keyspace {keyspace} has replication {found}, not {replication}: drop or alter it,"
                " or change replication_factor, replication_strategy or keyspace"
            )
        present = self._tables()
        if self.job.clean:
            for table in self.job.all_table_names:
                if table in present:
                    self._ask(f"DROP TABLE {self._table(table)}")
        for table in self.job.table_names:
            self._ask(f"CREATE TABLE IF NOT EXISTS {self._table(table)} {self._definition()}")

    def _replication(self) -> dict[str, str]:
        """The replication that the options ask for, as the server shows it."""
        wanted = self.options.replication
        if self.options.replication_strategy is ReplicationStrategy.SIMPLE:
            return wanted
        assert self._connection is not None
        return {"class": wanted["class"], self._connection.datacenter: wanted["replication_factor"]}

    def _found_replication(self) -> dict[str, str] | None:
        """The keyspace's replication; None if there is no such keyspace."""
        rows = self._ask(
            "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s",
            [self.options.keyspace],
        )
        if not rows:
            return None
        found = dict(rows[0][0])
        return found | {"class": found["class"].rpartition(".")[2]}

    def _tables(self) -> set[str]:
        """The keyspace's tables."""
        rows = self._ask(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s",
            [self.options.keyspace],
        )
        return {row[0] for row in rows}

    def _table(self, name: str) -> str:
        return f"{quoted(self.options.keyspace)}.{quoted(name)}"

    @property
    def _device(self) -> str:
        """The partition key."""
        return quoted(self.job.schema.device_path or self.job.schema.device)

    def _definition(self) -> str:
        """Columns, key and properties of CREATE TABLE."""
        schema, options = self.job.schema, self.options
        columns = [f"{quoted(c.name)} {_COLUMN_TYPES[c.type]}" for c in schema.columns]
        if schema.device_path:
            columns.insert(0, f"{self._device} text")
        clustering = [schema.time]
        if has_key_column(self.job):
            columns.insert(0, f"{KEY_COLUMN} {_KEY_TYPES[self.job.load.primary_key]}")
            clustering.append(KEY_COLUMN)
        else:
            clustering += [key for key in schema.key if key not in (schema.device, schema.time)]
        names = [quoted(name) for name in clustering]
        order = ", ".join(f"{name} DESC" for name in names)
        properties = [f"CLUSTERING ORDER BY ({order})"]
        if options.compaction:
            strategy, *settings = options.compaction
            pairs = [("class", strategy), *(setting.split("=") for setting in settings)]
            literal = ", ".join(f"'{key.strip()}': '{value.strip()}'" for key, value in pairs)
            properties.append(f"compaction = {{{literal}}}")
        if options.tablets:
            properties.append(f"tablets = {options.tablets}")
        return (
            f"({', '.join(columns)}, PRIMARY KEY (({self._device}), {', '.join(names)}))"
            f" WITH {' AND '.join(properties)}"
        )

    # --- queries ----------------------------------------------------------------------------------

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if table not in self._tables():
            raise SimulatorError(
                f"there is no table {table} to query: run insert first, with --tables single"
            )

    def count(self) -> int:
        return sum(self._counted(table) for table in self.job.table_names)

    def workload_queries(self) -> Mapping[str, Query]:
        queries: dict[str, Query] = {
            "count-events": lambda: [(self._counted("events"),)],
            "temperature-min-max": self._temperature_min_max,
            "temperature-stats": self._temperature_stats,
            "temperature-stats-per-device": self._temperature_stats_per_device,
            "newest-per-device": partial(self._newest, "temperature"),
            "cpu-max-all": self._cpu_max_all,
            "high-cpu": self._high_cpu,
            "last-point": partial(self._newest, ", ".join(("tounixtimestamp(ts)", *METRICS))),
        }
        return {name: queries[name] for name in self.job.schema.queries}

    def _counted(self, table: str) -> int:
        return sum(row[0] for _, *row in self._aggregates("count(*)", table))

    def _temperature_min_max(self) -> Sequence[tuple[Any, ...]]:
        rows = self._aggregates("min(temperature), max(temperature)", "events")
        return [_minimum_and_maximum(row for _, *row in rows)]

    def _temperature_stats(self) -> Sequence[tuple[Any, ...]]:
        return [_statistics(row for _, *row in self._aggregates(self._selected, "events"))]

    def _temperature_stats_per_device(self) -> Sequence[tuple[Any, ...]]:
        by_device: dict[str, list[Sequence[Any]]] = {}
        for device, *row in self._aggregates(self._selected, "events", by_device=True):
            by_device.setdefault(device, []).append(row)
        return [(device, *_statistics(rows)) for device, rows in by_device.items()]

    @property
    def _selected(self) -> str:
        """What `_statistics` is computed from. As float, a sum would lose digits."""
        total = "temperature" if self._ycql else "CAST(temperature AS double)"
        return f"min(temperature), max(temperature), sum({total}), count(*)"

    @property
    def _ycql(self) -> bool:
        return self.options.flavor is Flavor.YCQL

    def _newest(self, values: str) -> Sequence[tuple[Any, ...]]:
        """Each device's newest event."""
        table = self.job.schema.table
        if not self._ycql:
            return self._scan(f"{self._device}, {values}", table, "PER PARTITION LIMIT 1")
        return self._concurrently(
            f"SELECT {self._device}, {values} FROM {self._table(table)}"
            f" WHERE {self._device} = ? LIMIT 1",
            self._scan(f"DISTINCT {self._device}", table),
        )

    def _cpu_max_all(self) -> Sequence[tuple[Any, ...]]:
        hours = range(FIRST_TIMESTAMP_MS, MAX_ALL_UNTIL_MS, HOUR_MS)
        asked = [(host, hour, hour + HOUR_MS) for host in MAX_ALL_HOSTS for hour in hours]
        answers = self._concurrently(
            f"SELECT {', '.join(f'max({name})' for name in METRICS)} FROM {self._table('cpu')}"
            f" WHERE {self._device} = ? AND ts >= ? AND ts < ?",
            asked,
        )
        maxima: dict[int, list[int]] = {}
        for (_, hour, _), found in zip(asked, answers, strict=True):
            if found[0] is not None:
                maxima[hour] = list(map(max, maxima.get(hour, found), found))
        return [(hour, *values) for hour, values in sorted(maxima.items())]

    def _high_cpu(self) -> Sequence[tuple[Any, ...]]:
        return self._scan(
            f"{self._device}, tounixtimestamp(ts), {', '.join(METRICS)}",
            "cpu",
            f"AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}"
            f" AND usage_user > {HIGH_CPU_ABOVE} ALLOW FILTERING",
        )

    def _scan(self, select: str, table: str, suffix: str = "") -> list[tuple[Any, ...]]:
        """The rows of a query that is asked for each range of tokens, several at once."""
        return self._concurrently(
            f"SELECT {select} FROM {self._table(table)}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ? {suffix}",
            token_ranges(self.options.scan_ranges),
        )

    def _aggregates(
        self, select: str, table: str, by_device: bool = False
    ) -> list[tuple[Any, ...]]:
        """Device (or None, unless `by_device`) and aggregates of parts that together are the table."""
        ranges = token_ranges(self.options.scan_ranges)
        if table in self._large or (by_device and self._ycql):
            return self._sliced(select, table, ranges)
        group = f"GROUP BY {self._device}" if by_device else ""
        answers = self._answers(
            f"SELECT {f'{self._device}, ' * by_device}{select} FROM {self._table(table)}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ? {group}",
            ranges,
        )
        late = [asked for asked, rows in zip(ranges, answers, strict=True) if rows is None]
        found = [row if by_device else (None, *row) for rows in answers for row in rows or ()]
        if not late:
            return found
        self._large.add(table)
        return found + self._sliced(select, table, late)

    def _sliced(
        self, select: str, table: str, ranges: Sequence[tuple[int, int]]
    ) -> list[tuple[Any, ...]]:
        """Device and aggregates of slices of time of each partition in these ranges of tokens."""
        name, time_column = self._table(table), quoted(self.job.schema.time)
        devices = self._concurrently(
            f"SELECT DISTINCT {self._device} FROM {name}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ?",
            ranges,
        )
        ends = [
            self._concurrently(
                f"SELECT tounixtimestamp({time_column}) FROM {name} WHERE {self._device} = ?"
                f" ORDER BY {time_column} {order} LIMIT 1",
                devices,
            )
            for order in ("ASC", "DESC")
        ]
        slices: list[tuple[str, int, int]] = []
        for (device,), (first,), (last,) in zip(devices, *ends, strict=True):
            slices += [(device, begin, end) for begin, end in time_slices(first, last, _SLICES)]
        statement = (
            f"SELECT {select} FROM {name}"
            f" WHERE {self._device} = ? AND {time_column} >= ? AND {time_column} <= ?"
        )
        found: list[tuple[Any, ...]] = []
        while slices:
            late = []
            for asked, rows in zip(slices, self._answers(statement, slices), strict=True):
                if rows is None:
                    device, begin, end = asked
                    if begin == end:
                        raise Retryable("read_timeout", f"{table}: too slow to be read")
                    late += [(device, *half) for half in time_slices(begin, end, 2)]
                else:
                    found += [(asked[0], *row) for row in rows]
            slices = late
        return found

    def _concurrently(
        self, statement: str, values: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """All rows of the statement with each of `values`, in their order."""
        connection = self._connected()
        try:
            answers = execute_concurrent_with_args(
                connection.session, self._prepared(statement), values, _QUERIES_AT_ONCE
            )
            return [row for answer in answers for row in answer.result_or_exc]
        except ERRORS as error:
            raise connection.failed(error) from error

    def _answers(
        self, statement: str, values: Sequence[Sequence[Any]]
    ) -> list[list[tuple[Any, ...]] | None]:
        """The rows with each of `values`; None where the server took too long."""
        connection = self._connected()
        try:
            answers = execute_concurrent_with_args(
                connection.session, self._prepared(statement), values, _QUERIES_AT_ONCE,
                raise_on_first_error=False,
            )  # fmt: skip
            return [_rows_in_time(answer.result_or_exc) for answer in answers]
        except ERRORS as error:
            raise connection.failed(error) from error

    def _prepared(self, statement: str) -> PreparedStatement:
        if statement not in self._statements:
            self._statements[statement] = self._connected().session.prepare(statement)
        return self._statements[statement]

    def server_info(self) -> dict[str, Any]:
        [(version,)] = self._ask("SELECT release_version FROM system.local")
        assert self._connection is not None
        session = self._connection.session
        settings: dict[str, Any] = {}
        if self.options.flavor is not Flavor.YCQL:
            rows = self._ask("SELECT name, value FROM system_views.settings")
            settings = {name: value for name, value in sorted(rows) if name in _SETTINGS}
        replication = self._found_replication()
        return {
            "version": f"{self.options.flavor.value} {version}",
            "settings": {
                **settings,
                "nodes": len(session.hosts),
                "protocol_version": session.cluster.protocol_version,
                "replication": replication or self._replication(),
                "durable_writes": self._durable_writes(),
                "consistency_level": self.options.consistency_level,
                "batch_type": self.options.batch_type.value,
                "max_sync_calls": self.options.max_sync_calls,
            },
        }

    def _durable_writes(self) -> bool:
        """Whether the keyspace's writes go to the commit log; true of one that is still to be made."""
        rows = self._ask(
            "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s",
            [self.options.keyspace],
        )
        return bool(rows[0][0]) if rows else True

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement about keyspaces, tables or a node: such has no other copies."""
        connection = self._connected()
        try:
            return list(connection.session.execute(_local(statement), values or None))
        except ERRORS as error:
            raise connection.failed(error) from error

    def _connected(self) -> _Connection:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        self._connection.await_node()
        return self._connection


def token_ranges(count: int) -> list[tuple[int, int]]:
    """The token ring in `count` parts: first and last token of each."""
    begins = [_FIRST_TOKEN + part * _TOKENS // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def time_slices(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """The times from `first` to `last` in `count` parts, or as many as there are: ends of each."""
    count = min(count, last - first + 1)
    begins = [first + part * (last - first + 1) // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def _rows_in_time(answer: Any) -> list[tuple[Any, ...]] | None:
    """The rows, or None if the server took too long; raises what else went wrong.

    A replica that gives up a read says so by a failure for no reason, the coordinator by a timeout.
    """
    if isinstance(answer, (ReadTimeout, ReadFailure)):
        return None
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


def _minimum_and_maximum(rows: Iterable[Sequence[Any]]) -> tuple[Any, Any]:
    """Of (minimum, maximum, …) of parts, of which some may be empty."""
    full = [row for row in rows if row[0] is not None]
    return min((row[0] for row in full), default=None), max((row[1] for row in full), default=None)


def _statistics(rows: Iterable[Sequence[Any]]) -> tuple[Any, Any, Any]:
    """Minimum, mean, maximum, from (minimum, maximum, sum, number) of parts."""
    full = [row for row in rows if row[3]]
    minimum, maximum = _minimum_and_maximum(full)
    number = sum(row[3] for row in full)
    return minimum, (sum(row[2] for row in full) / number if number else None), maximum


# --- writing --------------------------------------------------------------------------------------


class CassandraWriter(Writer):
    """Sends what `CassandraEncoder` makes, by lines of its own."""

    encoder: CassandraEncoder

    def __init__(self, encoder: CassandraEncoder, options: CassandraOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_sync_calls
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._options = options
        self._job = job
        self._connection: _Connection | None = None
        self._lines: Lines | None = None
        self._prepared: list[Prepared] = []

    def open(self) -> None:
        connection = _Connection(self._options, self._job.run_id)
        self._connection = connection
        keyspace = quoted(self._options.keyspace)
        columns = self.encoder.columns
        names, marks = ", ".join(map(quoted, columns)), ", ".join("?" for _ in columns)
        statements = [
            f"INSERT INTO {keyspace}.{quoted(table)} ({names}) VALUES ({marks})"
            for table in self._job.table_names
        ]
        self._lines = Lines(
            connection.only_topology(),
            partial(self._line, connection, statements),
            self._options.request_timeout,
            partial(translated, options=self._options),
        )
        try:
            self._lines.open()
        except ERRORS as error:
            raise _as_failure(translated(error, self._options)) from error
        self.encoder.prepared(self._prepared, connection.version)

    def _line(self, connection: _Connection, statements: Sequence[str], node: Node) -> Line:
        """A line to the node, on which the statements are prepared."""
        line, prepared = connection.line(node, statements)
        self._prepared = self._prepared or prepared
        if prepared != self._prepared:
            line.close()
            # What it calls them is in the requests already. It is computed from their texts.
            raise ConnectionException(
                "the node calls prepared statements otherwise than the others"
            )
        return line

    def close(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        self.submit(payload, None)
        [outcome] = self.outcomes(None)
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def submit(self, payload: Payload, request: object) -> None:
        assert self._lines is not None
        data: Request = payload.data
        self._lines.submit(data.partition, self._operation, data.body, request, payload.events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome]:
        assert self._lines is not None
        return self._lines.outcomes(timeout_s)

    def stop_submitting(self) -> None:
        assert self._lines is not None
        self._lines.finish()

    def recover(self, payload: Payload) -> bool:
        assert self._lines is not None
        self._lines.await_line(_RECONNECT_S)
        return False


# --- connecting -----------------------------------------------------------------------------------


class _Connection:
    """A driver's session, which reconnects by itself, and what is known of its state."""

    def __init__(self, options: CassandraOptions, run_id: str) -> None:
        """Connects. Raises SimulatorError with the servers' names and a remedy if that fails."""
        self._options = options
        self._lost = False
        """Whether the connection was lost since a node last answered."""
        self._up = threading.Event()
        self._local = DCAwareRoundRobinPolicy(options.local_datacenter or "")
        profile = ExecutionProfile(
            TokenAwarePolicy(self._local),
            # Retrying is the loop's affair, which counts.
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=CONSISTENCY_CODES[options.consistency_level],
            request_timeout=options.query_timeout,
            row_factory=tuple_factory,
        )
        auth = None
        if options.username is not None:
            auth = PlainTextAuthProvider(options.username, options.password)
        version = options.protocol_version or (4 if options.flavor is Flavor.YCQL else 5)
        self._auth = auth
        self._tls = trusting(options.ca_certs, options.verify_certs) if options.tls else None
        self._name = f"iot-benchmark {run_id}"
        self._cluster = Cluster(
            options.contact_points,
            options.port,
            protocol_version=version,
            auth_provider=auth,
            ssl_context=self._tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=options.connect_timeout,
            control_connection_timeout=options.connect_timeout,
            reconnection_policy=ConstantReconnectionPolicy(RECONNECT_INTERVAL_S, None),
            compression=False,
            sockopts=SOCKET_OPTIONS,
        )
        self._cluster.connection_class = _named(self._cluster.connection_class, self._name)
        self._cluster.register_listener(_WhenUp(self._up))
        try:
            self.session: Session = self._cluster.connect()
        except ERRORS as error:
            datacenters = {host.datacenter for host in self._cluster.metadata.all_hosts()} - {None}
            self._cluster.shutdown()
            raise SimulatorError(_connect_hint(options, error, datacenters)) from error

    @property
    def datacenter(self) -> str:
        """The data center that requests go to."""
        return str(self._local.local_dc)

    @property
    def version(self) -> int:
        """Of the protocol."""
        return int(self._cluster.protocol_version)

    def close(self) -> None:
        self._cluster.shutdown()

    def only_topology(self) -> Topology:
        """End the connections for queries, keep the one that tells of the cluster's nodes."""
        self.session.shutdown()
        return _Topology(self._cluster, self._local, self._options.keyspace)

    def line(self, node: Node, statements: Sequence[str]) -> tuple[Line, list[Prepared]]:
        """As `connected`, with this connection's options. Raises `ERRORS`."""
        assert isinstance(node, EndPoint)
        return connected(
            node.resolve(),
            self._tls,
            self.version,
            self._options.connect_timeout,
            self._name,
            self._auth.new_authenticator(node.address) if self._auth else None,
            statements,
        )

    def failed(self, error: Exception) -> Retryable | SimulatorError:
        """What an error means; remembers that the connection is lost."""
        meaning = translated(error, self._options)
        if isinstance(meaning, Retryable) and meaning.kind == _LOST:
            self._lost = True
        return meaning

    def await_node(self) -> None:
        """After a lost connection, wait until a node answers. Raises Retryable if none does."""
        if not self._lost:
            return
        deadline = time.monotonic() + _RECONNECT_S
        while True:
            self._up.clear()
            try:
                self.session.execute(_local(_PROBE), timeout=self._options.connect_timeout)
            except ERRORS as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Retryable(_LOST, f"{self._options.servers}: {_first(error)}") from error
                self._up.wait(min(left, RECONNECT_INTERVAL_S))
            else:
                self._lost = False
                return


def _local(statement: str) -> SimpleStatement:
    """A statement that one node answers, whatever the target's consistency level."""
    return SimpleStatement(statement, consistency_level=CONSISTENCY_CODES["ONE"])


class _WhenUp(HostStateListener):  # type: ignore[misc]
    """Tells when a node can be talked to again."""

    def __init__(self, up: threading.Event) -> None:
        self._up = up

    def on_up(self, host: object) -> None:
        self._up.set()

    def on_down(self, host: object) -> None:
        """Whoever sends a request will notice."""

    def on_add(self, host: object) -> None:
        self._up.set()

    def on_remove(self, host: object) -> None:
        """As on_down."""


class _Topology(HostStateListener):  # type: ignore[misc]
    """What the driver knows of a cluster's nodes: a `Topology`."""

    def __init__(self, cluster: Cluster, policy: LoadBalancingPolicy, keyspace: str) -> None:
        self._metadata = cluster.metadata
        self._policy = policy
        self._keyspace = keyspace
        self.version = 0
        cluster.register_listener(self)

    def nodes(self) -> Sequence[Node]:
        hosts = self._metadata.all_hosts()
        return [h.endpoint for h in hosts if self._policy.distance(h) == HostDistance.LOCAL]

    def replicas(self, partition: bytes) -> Sequence[Node]:
        return [host.endpoint for host in self._metadata.get_replicas(self._keyspace, partition)]

    def _changed(self, host: object) -> None:
        self.version += 1

    on_up = on_down = on_add = on_remove = _changed


def _named(connection_class: type, name: str) -> type:
    """The connection class, under a name by which an administrator knows it (`system_views.clients`)."""

    class Named(connection_class):  # type: ignore[misc]
        def send_msg(self, msg: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(msg, StartupMessage):
                msg.options["APPLICATION_NAME"] = name
            return super().send_msg(msg, *args, **kwargs)

    return Named


def _as_failure(error: Retryable | SimulatorError) -> SimulatorError:
    """While connecting nothing is retried."""
    return error if isinstance(error, SimulatorError) else SimulatorError(str(error))


def _connect_hint(options: CassandraOptions, error: Exception, datacenters: set[str | None]) -> str:
    """One line for a failed connection, with a remedy."""
    causes = list(_causes(error))
    reason = _first(error)
    if any(isinstance(cause, (AuthenticationFailed, Unauthorized)) for cause in causes):
        remedy = "check username and password"
    # The driver makes another OSError of an SSLError.
    elif "ssl" in reason.lower() or "certificate" in reason:
        remedy = "check tls, ca_certs, and that the certificate is for the names in contact_points"
    elif any(isinstance(cause, ProtocolVersionUnsupported) for cause in causes):
        remedy = "set protocol_version to one that the server speaks"
    elif options.local_datacenter and datacenters and options.local_datacenter not in datacenters:
        known = ", ".join(sorted(map(str, datacenters)))
        remedy = f"set local_datacenter to one that there is: {known}"
    else:
        remedy = "check that the server runs and that contact_points, port and tls are right"
    return f"can't connect to Cassandra at {options.servers}: {reason}; {remedy}"


def _causes(error: Exception) -> Iterable[Exception]:
    """The error and what it is made of: NoHostAvailable has one for each node."""
    yield error
    parts = getattr(error, "errors", None)
    for part in parts.values() if isinstance(parts, dict) else ():
        if isinstance(part, Exception):
            yield from _causes(part)


def _first(error: Exception) -> str:
    """What went wrong, in one line: on the first of the nodes, if on several."""
    return one_line(list(_causes(error))[-1])


def translated(error: Exception, options: CassandraOptions) -> Retryable | SimulatorError:
    """What an error means: worth another try, or the end of the run."""
    text = _first(error)
    for kind, name in (
        (WriteTimeout, "write_timeout"),
        (ReadTimeout, "read_timeout"),
        (OperationTimedOut, "client_timeout"),
        (Unavailable, "unavailable"),
        (OverloadedErrorMessage, "overloaded"),
        (PreparedQueryNotFound, "unprepared"),
        (CoordinationFailure, "replica_failure"),
    ):
        if any(isinstance(cause, kind) for cause in _causes(error)):
            return Retryable(name, text)
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return SimulatorError(f"Cassandra refused {options.servers}: {text}; check username")
    if isinstance(error, (NoHostAvailable, ConnectionException, OSError)):
        return Retryable(_LOST, text)
    if isinstance(error, InvalidRequest) and ("does not exist" in text or "unconfigured" in text):
        return SimulatorError(f"{text}; run insert first, or without --no-clean")
    if isinstance(error, InvalidRequest) and "too large" in text:
        return SimulatorError(f"{text}; use a smaller --batch")
    return SimulatorError(f"Cassandra refused a request: {text}")
