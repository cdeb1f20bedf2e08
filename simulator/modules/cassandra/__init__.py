"""Apache Cassandra, and YugabyteDB's YCQL, which uses the same protocol.

Tables
------
One partition per device, its events ordered by time, newest first:

    PRIMARY KEY ((device_id), timestamp, sequence_number) WITH CLUSTERING ORDER BY (timestamp DESC, …)

So a batch of one device's events is one mutation, and a device's newest event is the first row of its
partition. A device inside a document (workload cpu) gets a column of its own for this.

Every table of this database has a primary key of columns, none of which the server generates. So
`--primary-key db` and `none` mean the same, the key above. `client` and `uuid` replace `sequence_number` by a
key column `id`; the worker generates both, since a key from the server (`uuid()`, `now()`) would be new on
each retry.

Each event is stored exactly once
---------------------------------
An INSERT with all key columns writes the same row no matter how often it is sent. So a request whose outcome
is unknown (a lost connection, or a write timeout, after which it may still have been written) is sent again,
and every failure is counted. The driver's own retries are off. With `client=official` and
`client=execute_concurrent`, the driver sends the requests: see `official`.

Queries
-------
All described queries can be run. For some, the client does part of the work (a `Plan`), as an application
would have to; this counts in the query's time. Rows are received, and decoded only to be checked.

- Some devices: a statement for each, 16 at once (`device_id = ?`, and a range of times).
- All devices: a statement for each of `scan_ranges` ranges of the token ring, several at once, since a single
  statement would load one coordinator and exceed its timeouts. With a window they use ALLOW FILTERING: every
  partition is visited, and only the window is read.
- A condition on a value uses ALLOW FILTERING, too: all of the window is read. There is no index on values.
- The server groups by device and bucket of time (GROUP BY; buckets since Cassandra 4.1, before that a
  statement for each). Buckets or tags over all devices are combined here, from a row for each device.
- CQL's sum and average have the type of the column, even for whole numbers. So sums are computed after a CAST
  (to double, bigint or varint), and the client divides.
- The newest event of each device is the first of its partition (PER PARTITION LIMIT 1).
- Rows are sorted here: CQL sorts within a partition only. For the newest events of a window, each partition
  returns no more than the query's limit.

The server's timeout applies to a whole aggregate, however it is paged, so an aggregate over a range of tokens
may exceed it. Such a range is then queried partition by partition, a partition that exceeds it in slices of
time, and a slice in two halves. Statements that exceeded it are remembered, so that later executions don't
try them again.

The size on disk is that of the SSTables on all nodes of the data center (`system_views.disk_usage`, since
4.0), in whole MiB, after a flush. CQL can trigger a flush only by changing a table, so each table gets a new
comment. CQL has no statement for compaction.

YCQL (`flavor: ycql`) differs as follows, according to YugabyteDB's documentation and source; it was never run
on YugabyteDB. It has no PER PARTITION LIMIT and no GROUP BY (devices are listed by DISTINCT, then queried one
by one, as are buckets of time), no sums of CASTs (so sums of 32-bit numbers have 32 bits), no compaction
strategies but `tablets`, and no virtual tables with the server's settings; replication is set for the
cluster, not for the keyspace.
https://docs.yugabyte.com/stable/api/ycql/dml_select/
https://github.com/yugabyte/yugabyte-db/issues/2333
https://github.com/yugabyte/yugabyte-db/issues/13956
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import KEY_COLUMN, quote_name
from ...errors import SimulatorError
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
    OwnSchema,
    Support,
    support_keys,
)
from ..kit.module import MARK, Found, nothing_to_query
from ..kit.options import BATCH_MODES
from ..kit.own_tables import OwnTablesModule, own_schema_lacks
from ..options import LEAN, InsertMode
from .encoding import (
    ALLOCATION,
    DURABILITY,
    EXECUTE_CONCURRENT,
    YCQL_DURABILITY,
    CassandraEncoder,
    CassandraOptions,
    Flavor,
    ReplicationStrategy,
    has_key_column,
)

if TYPE_CHECKING:
    from .queries import CassandraQueries, Plan, Selection, Steps
    from .server import ClusterSession

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "timestamp",
    ColumnType.INT64: "bigint",
    ColumnType.INT32: "int",
    ColumnType.FLOAT32: "float",
    ColumnType.FLOAT64: "double",
    ColumnType.BOOL: "boolean",
    ColumnType.TEXT: "text",
    # Cassandra has no type for JSON, and the driver doesn't support YCQL's jsonb.
    ColumnType.JSON: "text",
}
_KEY_TYPES = {PrimaryKey.CLIENT: "text", PrimaryKey.UUID: "uuid"}

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

_IMPOSSIBLE = frozenset(
    {
        Shape.WHERE_NOT, Shape.PATH, Shape.PERCENTILE, Shape.PERCENTILE_OF_ALL,
        Shape.PERCENTILE_BELOW_0, Shape.PER_TEXT,
    }
)  # fmt: skip
"""What CQL can't do: it groups only by primary keys, has no other functions, and a document is a text."""


class Cassandra(OwnTablesModule[CassandraOptions, "ClusterSession"]):
    """Cassandra or YCQL."""

    name = "cassandra"
    PACKAGES = ("cassandra-driver",)
    IMPORTED_LATE = ("cassandra.cluster", f"{__name__}.pool", f"{__name__}.asking")
    options_model = CassandraOptions
    # Protocol 5, and the virtual tables with the server's settings:
    # https://cassandra.apache.org/doc/4.0/cassandra/new/
    OLDEST: ClassVar[Mapping[str, str]] = {"Cassandra": "4.0"}
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
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.pool:CassandraWriter", f"{__package__}.asking:CassandraAsker"),
        "official": Client(
            f"{__name__}.official:DriverWriter",
            f"{__name__}.official:DriverAsker",
            packages=("cassandra-driver",),
            ways={
                InsertMode.BATCH: "cassandra-driver's BatchStatement of prepared INSERTs",
                InsertMode.SINGLE: "cassandra-driver's execute of a prepared INSERT",
            },
            in_flight=True,
        ),
        EXECUTE_CONCURRENT: Client(
            f"{__name__}.official:DriverWriter",
            f"{__name__}.official:DriverAsker",
            packages=("cassandra-driver",),
            ways={InsertMode.BATCH: "cassandra-driver's execute_concurrent of prepared INSERTs"},
            in_flight=True,
        ),
    }
    CAPABILITIES = Capabilities(
        durability=DURABILITY,
        ageing=Ageing(
            "a DELETE by range of time for each device: a TTL depends on when a row was written"
        ),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(BATCH_MODES, Support.FULL),
        primary_keys=support_keys(
            PrimaryKey.NONE, PrimaryKey.DB, PrimaryKey.CLIENT, PrimaryKey.UUID
        ),
        # The order of the table's key is the one that queries need; no other index would serve them.
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
        not_finite=True,
        in_flight=dict.fromkeys(BATCH_MODES, Support.FULL),
        tags_table=Support.UNSUPPORTED,
        shapes=frozenset(Shape) - _IMPOSSIBLE,
        impossible_shapes=_IMPOSSIBLE,
        statements="CQL",
        own_schema=OwnSchema("CQL", options=("tablets",), ages=True),
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    @classmethod
    def encoder(cls, options: CassandraOptions, job: Job) -> CassandraEncoder:
        return CassandraEncoder(
            job, options.batch_type, options.consistency_level, job.schema.devices_per_worker
        )

    @cached_property
    def _queries(self) -> CassandraQueries:
        from .queries import CassandraQueries

        return CassandraQueries(self.options, self.job.schema, lambda: self.session.release)

    def connect(self) -> ClusterSession:
        from cassandra import DependencyException

        try:
            from .server import ClusterSession
        except DependencyException as error:
            raise SimulatorError(
                "cassandra-driver can't connect here: its extension for libev is missing, and Python 3.12"
                " and later have no asyncore; install a wheel of it: pip install --force-reinstall"
                " --only-binary :all: cassandra-driver"
            ) from error
        return ClusterSession(self.options, self.job)

    def check(self) -> None:
        options, nodes = self.options, len(self.session.topology.nodes())
        if options.flavor is Flavor.CASSANDRA and nodes < options.needed_replicas:
            raise SimulatorError(
                f"consistency_level {options.consistency_level} of replication_factor"
                f" {options.replication_factor} needs {options.needed_replicas} nodes, and data center"
                f" {self.session.datacenter} has {nodes}: set replication_factor to {nodes}, or add nodes"
            )

    # --- tables -----------------------------------------------------------------------------------

    ELSEWHERE = "another keyspace"

    def prepare(self) -> None:
        keyspace = self.options.keyspace
        replication = self._replication()
        self.session.ask(self._create_keyspace(replication))
        current, _ = self._read_keyspace()
        if self.options.flavor is not Flavor.YCQL and current != replication:
            raise SimulatorError(
                f"keyspace {keyspace} has replication {current}, not {replication}: drop or alter it,"
                " or change replication_factor, replication_strategy or keyspace"
            )
        self.try_own_tables()
        ours = self.claim_tables()
        if self.job.clean:
            for table in ours:
                self.drop(table)
            ours = []
        for statement in self.make_statements(ours):
            self.execute(statement)

    def execute(self, statement: str) -> None:
        self.session.ask(statement)

    def drop(self, table: str) -> None:
        self.execute(f"DROP TABLE IF EXISTS {self.name_table(table)}")

    def name_table(self, table: str) -> str:
        return self.options.name_table(table)

    def mark_table(self, table: str) -> list[str]:
        # YCQL has no comments.
        if self.options.flavor is Flavor.YCQL:
            return []
        return [f"ALTER TABLE {self.name_table(table)} WITH comment = '{MARK}'"]

    def check_own_tables(self) -> None:
        schema = self.job.schema
        device = schema.device_path or schema.device
        for table in self.tables:
            keys = self.session.ask(
                "SELECT column_name, kind, position FROM system_schema.columns"
                " WHERE keyspace_name = %s AND table_name = %s",
                [self.options.keyspace, table],
            )
            partition = [name for name, kind, _ in keys if kind == "partition_key"]
            order = {name: place for name, kind, place in keys if kind == "clustering"}
            others = {*schema.key} - {schema.device, schema.time}
            if partition != [device] or order.get(schema.time) != 0 or not others <= set(order):
                names = ", ".join([schema.time, *sorted(others)])
                raise own_schema_lacks(
                    f"another primary key than (({device}), {names}), which identifies events and serves"
                    " queries"
                )

    def describe_schema(self) -> list[str]:
        # Without a connection, the data center's name is unknown.
        datacenter = self.options.local_datacenter or "<the local data center>"
        return [self._create_keyspace(self._replication(datacenter)), *self.make_statements()]

    def _create_keyspace(self, replication: Mapping[str, str]) -> str:
        literal = ", ".join(f"'{key}': '{value}'" for key, value in replication.items())
        keyspace = quote_name(self.options.keyspace)
        return f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{literal}}}"

    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        return [
            f"CREATE TABLE IF NOT EXISTS {self.options.name_table(table)} {self._define()}"
            for table in self.job.table_names
        ]

    def _replication(self, datacenter: str | None = None) -> dict[str, str]:
        """The replication of the options, as the server shows it; `datacenter`: the local one, if no node is
        to be asked for it."""
        replication = self.options.replication
        if self.options.replication_strategy is ReplicationStrategy.SIMPLE:
            return replication
        datacenter = datacenter or self.session.datacenter
        return {"class": replication["class"], datacenter: replication["replication_factor"]}

    def _read_keyspace(self) -> tuple[dict[str, str], bool]:
        """The keyspace's replication, and whether its writes go to the commit log; for a keyspace that
        doesn't exist yet, what it will have."""
        rows = self.session.ask(
            "SELECT replication, durable_writes FROM system_schema.keyspaces"
            " WHERE keyspace_name = %s",
            [self.options.keyspace],
        )
        if not rows:
            return self._replication(), True
        replication = dict(rows[0][0])
        return replication | {"class": replication["class"].rpartition(".")[2]}, bool(rows[0][1])

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        rows = self.session.ask(
            "SELECT table_name, comment FROM system_schema.tables WHERE keyspace_name = %s",
            [self.options.keyspace],
        )
        # YCQL has no comments.
        return {name: Found((text or "").startswith(MARK)) for name, text in rows if name in names}

    def read_columns(self, table: str) -> Mapping[str, str]:
        rows = self.session.ask(
            "SELECT column_name, type FROM system_schema.columns"
            " WHERE keyspace_name = %s AND table_name = %s",
            [self.options.keyspace, table],
        )
        return dict(rows)

    def expect_columns(self, table: str) -> Mapping[str, str]:
        schema = self.job.schema
        device = {schema.device_path: "text"} if schema.device_path else {}
        return device | {column.name: _COLUMN_TYPES[column.type] for column in schema.columns}

    def _define(self) -> str:
        """Columns, key and properties of CREATE TABLE."""
        schema, options = self.job.schema, self.options
        device = quote_name(schema.device_path or schema.device)
        columns = [
            f"{quote_name(column.name)} {_COLUMN_TYPES[column.type]}" for column in schema.columns
        ]
        if schema.device_path:
            columns.insert(0, f"{device} text")
        clustering = [schema.time]
        if has_key_column(self.job):
            columns.insert(0, f"{KEY_COLUMN} {_KEY_TYPES[self.job.load.primary_key]}")
            clustering.append(KEY_COLUMN)
        else:
            clustering += [key for key in schema.key if key not in (schema.device, schema.time)]
        names = [quote_name(name) for name in clustering]
        order = ", ".join(f"{name} DESC" for name in names)
        properties = [f"CLUSTERING ORDER BY ({order})", f"comment = '{MARK}'"]
        if options.compaction:
            strategy, *settings = options.compaction
            pairs = [("class", strategy), *(setting.split("=") for setting in settings)]
            literal = ", ".join(f"'{key.strip()}': '{value.strip()}'" for key, value in pairs)
            properties.append(f"compaction = {{{literal}}}")
        if options.tablets:
            properties.append(f"tablets = {options.tablets}")
        return (
            f"({', '.join(columns)}, PRIMARY KEY (({device}), {', '.join(names)}))"
            f" WITH {' AND '.join(properties)}"
        )

    # --- counting, queries, figures ---------------------------------------------------------------

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if not self.find_tables([table]):
            raise nothing_to_query(table, self.job)

    def count(self) -> int:
        plans = map(self._queries.count, self.job.table_names)
        return sum(int(events) for plan in plans for (events,) in self.fetch(plan))

    def list_kept_apart(self) -> Sequence[str]:
        # Cells of a row are deleted and repaired one by one. The cells of the key make the row.
        schema = self.job.schema
        key = {schema.time, *([] if schema.device_path else [schema.device])}
        if not has_key_column(self.job):
            key.update(schema.key)
        return [column.name for column in schema.columns if column.name not in key]

    def delete_older(self, before_ms: int) -> None:
        """https://cassandra.apache.org/doc/latest/cassandra/developing/cql/dml.html#delete_statement"""
        schema = self.job.schema
        device, time = quote_name(schema.device_path or schema.device), quote_name(schema.time)
        for table in self.job.table_names:
            devices = self.session.ask(
                f"SELECT DISTINCT {device} FROM {self.options.name_table(table)}"
            )
            delete = (
                f"DELETE FROM {self.options.name_table(table)} WHERE {device} = ? AND {time} < ?"
            )
            self.session.repeat(delete, [(name, before_ms) for (name,) in devices])

    def storage(self) -> Storage:
        if self.options.flavor is Flavor.YCQL:
            raise SimulatorError("YCQL doesn't report the size on disk: it has no system_views")
        self.claim_tables()
        return self.session.read_storage(self.job.table_names)

    def compile(self, bound: BoundQuery) -> Selection | Plan:
        return self._queries.compile(bound)

    def take_statement(self, text: str, bound: BoundQuery) -> Selection:
        return self._queries.take_statement(text, bound)

    def describe_statement(self, statement: Selection | Plan) -> str:
        from .queries import BUCKETS_SINCE, CassandraQueries, Plan, describe_steps

        if not isinstance(statement, Plan):
            return statement.describe()
        # As for a Cassandra that groups by buckets of time.
        queries = CassandraQueries(self.options, self.job.schema, lambda: BUCKETS_SINCE)
        return describe_steps(queries.begin(statement))

    def begin(self, plan: Plan) -> Steps:
        """The steps that carry out a plan: its statements, and what the client makes of the answers."""
        return self._queries.begin(plan)

    def server_info(self) -> dict[str, Any]:
        [(version,)] = self.session.ask("SELECT release_version FROM system.local")
        driver = self.session.driver
        settings: dict[str, Any] = {}
        if self.options.flavor is not Flavor.YCQL:
            rows = self.session.ask("SELECT name, value FROM system_views.settings")
            settings = {name: value for name, value in sorted(rows) if name in _SETTINGS}
        replication, durable_writes = self._read_keyspace()
        return {
            "version": f"{self.options.flavor.value} {version}",
            "settings": {
                **settings,
                "nodes": len(driver.hosts),
                "protocol_version": driver.cluster.protocol_version,
                "replication": replication,
                "durable_writes": durable_writes,
                "consistency_level": self.options.consistency_level,
                "batch_type": self.options.batch_type.value,
                "max_sync_calls": self.options.in_flight(self.job.load),
            },
        }

    @classmethod
    def find_durability(cls, version: str) -> Durability:
        return YCQL_DURABILITY if version.startswith(Flavor.YCQL.value) else DURABILITY

    def read_versions(self) -> Mapping[str, str]:
        # YugabyteDB tells only which Cassandra version it resembles.
        if self.options.flavor is Flavor.YCQL:
            return {}
        return {"Cassandra": ".".join(map(str, self.session.release))}

    @property
    def session(self) -> ClusterSession:
        """The session, once a node answers; Retryable if none does."""
        self.connection.await_node()
        return self.connection
