"""Apache IoTDB 2: its table model, or with `model=tree` its tree model.

Tables
------
A workload's table is a table of IoTDB. The device's name is a TAG, and so is each text that describes the
device; everything else except the time is a FIELD. The time column is called `time` in every table, as IoTDB
2.0 requires, whatever the workload calls it. A device inside a document (workload cpu) gets a column of its
own.

The only key of a table is its tags and time. So `--primary-key db` and `none` mean the same, and two events
must never share device and millisecond. They don't: each of a workload's devices belongs to one worker, whose
timestamps always rise, unless runs restart in time (`Capabilities.repeated_timestamps`).

Tags in a separate table (`tags=table`) are FIELDs there, at time 0 of their device: `tags_id`, a text of
eleven digits, is the TAG of both tables. Storing them again changes nothing. Queries join the two. A
condition on tags that selects an event's devices is a join, too, since 2.0.1 has no IN with a subquery. Each
statement has a condition on the tags' time that is always true (`queries.py`).

Events are sent as tablets, columns of many events, by `insertTablet` of IoTDB's Thrift service, as the
official client's NumpyTablet sends them (`tablets.py`); single inserts are tablets of one row, since a table
session has no other insert except SQL. A tablet belongs to one table: with several tables, a request has a
tablet for each, sent together.

The tree
--------
A device is a path, `root.<database>.<table>.<device>`, whose measurements are the other columns, including
tags (`schema.py` explains why). An event is identified by its path and its time, in milliseconds as in
tables, so keys mean the same. A request has a tablet for each of its devices and tables, all sent by one
`insertTablets`, as the official client's `insert_aligned_tablets` does; a single insert is an `insertRecord`.
Queries are in the tree's own language (`queries.py`): all kinds that the table model supports; for some,
their time includes the client's part.

Each event is stored exactly once
---------------------------------
A row with the same tags, or path, and time overwrites the one before. So a request whose outcome is unknown
is sent again, and every failure is counted. An answer means that the row is in the write-ahead log's buffer;
with `wal_mode=ASYNC`, the default, it is on disk up to a second later.

The size on disk is that of the TsFiles in the database's regions, once everything is flushed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

from numpy.typing import NDArray
from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import PrimaryKey, Storage
from ...encoding.columns import quote_name
from ...errors import OptionError, Retryable, SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function
from ...workloads.schema import Tags
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
from ..kit.module import missing_table
from ..kit.options import (
    BATCH_MODES,
    BatchOptions,
    HostList,
    InFlightOptions,
    TlsOptions,
    join_address,
)
from ..kit.sql_module import SqlModule
from ..options import LEAN, PAYLOAD
from ..own_statements import list_own_statements
from ..sending import Encoder
from .queries import Computation, IotdbDialect, Selection, compile_question, compile_statement
from .schema import (
    LEVEL,
    TABLES,
    TIME,
    TREE,
    TYPES,
    Model,
    TableColumn,
    check_measurements,
    check_names,
    describe_tags,
    find_steady,
    list_columns,
    list_measurements,
    make_tags,
    name_table,
    quote,
    split_path,
)
from .server import ALLOCATION, Server
from .tablets import TabletEncoder
from .tree_tablets import TreeEncoder


class IotdbOptions(BatchOptions, InFlightOptions, TlsOptions):
    """How to reach the data nodes, and where to store."""

    ADDRESSES: ClassVar[str] = "host"

    model: Annotated[Model, Condition.SCHEMA, PAYLOAD] = Field(
        Model.TABLE,
        description="table (rows of tables) or tree (a path for each device, of aligned timeseries)",
    )
    database: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "benchmark",
        pattern=r"^[a-z_]\w{0,63}$",
        description="database, created if it is missing; root.<database> with model=tree",
    )
    host: Annotated[HostList, Condition.NONE, ACCESS] = Field(
        min_length=1, description="data nodes, separated by commas; connections go to them in turn"
    )
    port: Annotated[int, Condition.NONE, ACCESS] = Field(
        6667, ge=1, le=65535, description="port of all data nodes (dn_rpc_port)"
    )
    tls: Annotated[bool, Condition.CLIENT, ACCESS] = Field(
        False, description="encrypt the connections; set trust with ca_certs and verify_certs"
    )
    username: Annotated[str, Condition.NONE, ACCESS] = Field(
        "root", min_length=1, description="user name"
    )
    password: str = Field(min_length=1, repr=False, description="the user's password")
    time_partition_interval_s: Annotated[int | None, Condition.SCHEMA] = Field(
        None,
        ge=1,
        description="seconds of data in one partition of a new database (default: a week)",
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="seconds without an answer after which an insert is sent again"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @property
    def servers(self) -> str:
        """host:port of the data nodes, for messages."""
        return ", ".join(join_address(host, self.port) for host in self.host)

    @property
    def place(self) -> str:
        """The database, as in the server's lists."""
        return f"root.{self.database}" if self.model is Model.TREE else self.database


_PROBE = "iot_database_benchmark_regions"
"""A temporary table."""
_REGIONS_S = 30.0


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """Ratis acknowledges what most replicas have; the other protocols, what the leader has."""
    copies = str(settings.get("data_replication_factor"))
    if "Ratis" not in str(settings.get("data_region_consensus_protocol_class")):
        return 1
    return int(copies) // 2 + 1 if copies.isdigit() else None


class Iotdb(SqlModule[IotdbOptions, Server]):
    """An IoTDB cluster."""

    name = "iotdb"
    options_model = IotdbOptions
    # The table model, and the properties of databases in its versions:
    # https://iotdb.apache.org/UserGuide/latest-Table/Background-knowledge/Data-Model-and-Terminology_apache.html
    OLDEST: ClassVar[Mapping[str, str]] = {"IoTDB": "2.0"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "wal_mode": Condition.DURABILITY,
        "wal_async_mode_fsync_delay_in_ms": Condition.DURABILITY,
        "wal_sync_mode_fsync_delay_in_ms": Condition.DURABILITY,
        "data_replication_factor": Condition.REPLICATION,
        "schema_replication_factor": Condition.REPLICATION,
        "data_region_consensus_protocol_class": Condition.REPLICATION,
        "nodes": Condition.REPLICATION,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.channels:IotdbWriter", f"{__package__}.channels:IotdbAsker"),
        "official": Client(asker=f"{__name__}.official:OfficialAsker", packages=("apache-iotdb",)),
    }
    CAPABILITIES = Capabilities(
        # https://iotdb.apache.org/UserGuide/latest/Reference/DataNode-Config-Manual.html
        durability=Durability(
            {
                "wal_mode": Needed(
                    ("SYNC",), "within {wal_async_mode_fsync_delay_in_ms} ms (wal_mode={wal_mode})"
                )
            },
            count_places=_count_places,
        ),
        ageing=Ageing("DELETE of a range of time: a TTL uses today's date"),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(BATCH_MODES, Support.FULL),
        primary_keys=support_keys(PrimaryKey.NONE, PrimaryKey.DB),
        # Everything on disk is ordered by tags and time.
        indices=Support.UNSUPPORTED,
        column_types=TYPES,
        not_finite=True,
        in_flight=dict.fromkeys(BATCH_MODES, Support.FULL),
        repeated_timestamps=Support.UNSUPPORTED,
        tags_table=Support.FULL,
        # Sums and means are DOUBLE.
        rounded=frozenset({Function.SUM, Function.AVG}),
        shapes=IotdbDialect.SHAPES,
        statements="SQL",
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )
    TYPES = TYPES
    DIALECT = IotdbDialect()
    COLUMNS = "DESC {name}"
    OWN_COLUMNS = (TIME,)

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        super().__init__(options, job)
        self._is_tree = options.model is Model.TREE
        self._layout = TREE if self._is_tree else TABLES
        if options.tls and options.client != LEAN:
            raise OptionError(
                f"client={options.client} of module iotdb queries without TLS: use client={LEAN}"
            )
        if self._is_tree:
            check_measurements(job.schema)
            for name in list_own_statements(self.own_names, job.schema):
                raise OptionError(
                    f"query {name}: statement: module iotdb takes statements of a workload only"
                    " with model=table: leave it out, or use that"
                )
        else:
            check_names(job.schema)
            if job.schema.tags is Tags.TABLE:
                check_names(describe_tags(job.schema))

    @classmethod
    def encoder(cls, options: IotdbOptions, job: Job) -> Encoder:
        if options.model is Model.TREE:
            return TreeEncoder(job, options.database)
        return TabletEncoder(job)

    def connect(self) -> Server:
        return Server(self.options, self.job)

    # --- tables -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        precision = dict(self.ask("SHOW VARIABLES")).get("TimestampPrecision", "ms")
        if precision != "ms":
            raise SimulatorError(
                f"IoTDB counts time in {precision}, and would take the events for those of another time:"
                " use a cluster with timestamp_precision=ms, the default"
            )
        if self.place not in {row[0] for row in self.ask("SHOW DATABASES")}:
            self.ask(self._create_database())
            self._make_regions()
        super().prepare()

    def _create_database(self) -> str:
        statement = self._layout.create.format(database=self.place)
        if self.options.time_partition_interval_s is not None:
            statement += self._layout.interval.format(self.options.time_partition_interval_s * 1000)
        return statement

    def _make_regions(self) -> None:
        """Have a new database create its regions. This takes seconds, which the first events would pay for
        otherwise. Raises Retryable if they don't exist in time."""
        deadline = time.monotonic() + _REGIONS_S
        while True:
            try:
                for statement in self._layout.probe:
                    self.ask(statement.format(table=self.name_table(_PROBE)))
                break
            except Retryable:
                # There is no event for it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.drop(_PROBE)

    @property
    def place(self) -> str:
        return self.options.place

    def name_table(self, table: str) -> str:
        return name_table(self.options.database, table) if self._is_tree else quote_name(table)

    def _list_tables(self) -> set[str]:
        rows = self.ask(self._layout.tables.format(database=self.place))
        return {split_path(row[0])[LEVEL] if self._is_tree else row[0] for row in rows}

    def drop(self, table: str) -> None:
        for statement in self._layout.drop:
            self.ask(statement.format(table=self.name_table(table)))

    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        # In the tree, tables come with events.
        return [] if self._is_tree else super().create_tables(there)

    def define_columns(self, table: str) -> list[str]:
        columns = [
            f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
            for column in self._list_columns(table)
        ]
        return [f"{TIME} TIMESTAMP TIME", *columns]

    def _list_columns(self, table: str) -> list[TableColumn]:
        """The columns of a table's rows, without the time."""
        schema = self.job.schema
        return list_columns(describe_tags(schema) if table in self.job.tags_tables else schema)

    def expect_columns(self, table: str) -> Mapping[str, str]:
        # Its names have no capital letters.
        return {column.name.lower(): column.type for column in self._list_columns(table)}

    def read_columns(self, table: str) -> Mapping[str, str]:
        if not self._is_tree:
            return super().read_columns(table)
        # A device gets the measurements that its events have.
        return self.expect_columns(table) if table in self._list_tables() else {}

    def is_like_ours(self, table: str) -> bool:
        if not self._is_tree:
            return super().is_like_ours(table)

        def count(path: str, condition: str = "") -> int:
            return int(
                self.ask(f"COUNT TIMESERIES {self.name_table(table)}.{path}{condition}")[0][0]
            )

        ours = list_measurements(self.job.schema)
        known = sum(count(f"*.{quote(c.name)}", f" WHERE DATATYPE = {c.type}") for c in ours)
        return known == count("**")

    def describe_schema(self) -> list[str]:
        return [self._create_database(), *self.create_tables()]

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        job = Job(describe_tags(self.job.schema))
        for columns in rows:
            block = make_tags(self.job.schema, columns)
            for payload in TabletEncoder(job.change(batch=len(block))).encode(block):
                self.connection.insert(payload.data, payload.events)

    def count_rows(self, table: str) -> int:
        value = quote(find_steady(self.job.schema)) if self._is_tree else "*"
        rows = self.ask(self._layout.count.format(value=value, table=self.name_table(table)))
        return sum(int(row[0]) for row in rows)

    def list_kept_apart(self) -> Sequence[str]:
        return [c.name for c in list_columns(self.job.schema) if not (c.is_tag or c.is_device)]

    def delete_older(self, before_ms: int) -> None:
        for table in self.job.table_names:
            self.ask(self._layout.delete.format(before_ms, table=self.name_table(table)))

    def storage(self) -> Storage:
        return self.connection.read_storage()

    def server_info(self) -> dict[str, Any]:
        return self.connection.describe()

    # --- queries ----------------------------------------------------------------------------------

    def prepare_queries(self) -> None:
        # In the tree, tables come with events.
        if self.must_have_events or not self._is_tree:
            super().prepare_queries()

    def compile(self, bound: BoundQuery) -> Any:
        """A text in the table model; a `Selection` or a `Computation` in the tree."""
        schema = self.job.schema
        if not self._is_tree:
            return compile_statement(bound, schema)
        path = self.name_table(schema.table)
        problem = f"IoTDB: there are no timeseries below {path}"
        missing = partial(missing_table, problem, self.job) if self.must_have_events else None
        return compile_question(bound, schema, path, missing)

    def describe_statement(self, statement: str | Selection | Computation) -> str:
        if isinstance(statement, Computation):
            return statement.describe()
        return statement if isinstance(statement, str) else statement.text
