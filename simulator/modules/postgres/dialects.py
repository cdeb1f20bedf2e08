"""What differs between PostgreSQL and its relatives, apart from speed.

A target says which it is by the option `dialect`: what a payload looks like must be known where no
server is asked. The collector compares it with what the server says of itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from ...contract import MIB, Allocation
from ...errors import OptionError, Retryable
from ...workloads.schema import Schema
from ..capabilities import Durability, Needed
from ..kit.sql_queries import Newest, SqlDialect
from ..options import InsertMode


class ServerConnection(Protocol):
    """A connection that takes statements: libpq's, or a driver's."""

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def close(self, *, cut: bool = False) -> None: ...


_BY_SYSTEM = "when the operating system writes it"


def _count_standbys(settings: Mapping[str, Any]) -> int | None:
    """https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES"""
    names = str(settings.get("synchronous_standby_names") or "")
    if not names or str(settings.get("synchronous_commit")) in ("local", "off"):
        return 1
    number = re.match(r"\s*(?:FIRST|ANY)?\s*(\d+)\s*\(", names, re.IGNORECASE)
    return 1 + (int(number[1]) if number else 1)


def _count_majority(settings: Mapping[str, Any]) -> int | None:
    """Raft acknowledges what most replicas have."""
    copies = re.search(r"num_replicas = (\d+)", str(settings.get("zone_configuration")))
    return int(copies[1]) // 2 + 1 if copies else None


NEWEST = {"newest-per-device": Newest.WINDOW}
"""What is asked otherwise than by DISTINCT ON, which sorts all events where no index serves it."""

MOST_ROW_BYTES = 8160
"""A row lies on one page of 8 kB, but for long texts, which are stored elsewhere: `MaxHeapTupleSize` in
https://github.com/postgres/postgres/blob/master/src/include/access/htup_details.h"""

MOST_IN_ARRAY = 100
"""Of how many devices an array is made at most. Without an index, each event is compared with each of
them."""


class PostgresSql(SqlDialect):
    """What PostgreSQL and its planner need to be told."""

    # The order of most databases is that of a locale. As the columns have it, indexes serve it; a column's
    # own order takes no time that the other wouldn't.
    COLLATION = ' COLLATE "C"'

    def device(self, schema: Schema) -> str:
        # What is taken out of a document has the database's order.
        name = super().device(schema)
        return f"({name}){self.COLLATION}" if schema.device_path and self.COLLATION else name

    def among(self, column: str, statement: str, count: int | None) -> str:
        # An array is found first, and then an index on device and time can be gone through by it: of a
        # join, the planner doesn't know which devices it will find. With the index, means of ten of
        # 1,000 devices took 30 ms instead of 117.
        if count is not None and 1 < count <= MOST_IN_ARRAY:
            return f"{column} = ANY (ARRAY({statement}))"
        return super().among(column, statement, count)


class YugabyteSql(PostgresSql):
    """Its databases are all in the order of bytes."""

    COLLATION = ""


class DialectName(StrEnum):
    """Values of the option `dialect`."""

    POSTGRESQL = "postgresql"
    COCKROACHDB = "cockroachdb"
    YUGABYTEDB = "yugabytedb"


class Dialect:
    """PostgreSQL, and what its relatives have in common with it."""

    name: ClassVar[DialectName] = DialectName.POSTGRESQL
    PRODUCT: ClassVar[str] = "PostgreSQL"
    # `DETACH`: https://www.postgresql.org/docs/14/sql-altertable.html. `gen_random_uuid` came with 13.
    OLDEST: ClassVar[str] = "14"
    """The oldest version that is supported."""
    BATCH_MODE: ClassVar[InsertMode] = InsertMode.COPY
    """How batches are sent if no option says it."""
    MOST_ROW_BYTES: ClassVar[int | None] = MOST_ROW_BYTES
    """What a row may take; None: as much as its columns."""
    COPY_IS_ATOMIC: ClassVar[bool] = True
    """Whether a COPY without BEGIN is stored as a whole or not at all."""
    COPY_UNESCAPES_JSON: ClassVar[bool] = True
    """Whether a COPY of texts takes the escapes out of a JSON column's values, as out of all others."""
    ADVISORY_LOCKS: ClassVar[bool] = True
    IS_REPEATABLE: ClassVar[bool] = False
    """Whether a request that is stored already may be sent again: the database drops what it has."""
    SESSION: ClassVar[Mapping[str, str]] = {
        # What is read as texts.
        "extra_float_digits": "3",
        "datestyle": "ISO, MDY",
        "intervalstyle": "postgres",
        "bytea_output": "hex",
        "timezone": "UTC",
        "quote_all_identifiers": "off",
        # What is sent as texts.
        "standard_conforming_strings": "on",
        # How long statements and connections may take is for the target's own options.
        "statement_timeout": "0",
        "lock_timeout": "0",
        "transaction_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
    """Settings that each session gets, as far as the server knows them, whatever the server, the database or
    the role has: docs/reference/databases.md."""
    SQL: SqlDialect = PostgresSql()
    """The SQL in which queries are asked."""
    INDEXED_NEWEST: ClassVar[Newest | None] = Newest.SEEK
    """How each device's newest event is asked for where an index serves it; None: as `NEWEST` says."""
    PLAIN_NEWEST: ClassVar[Newest | None] = Newest.JOIN
    """How it is asked for without an index; None: by DISTINCT ON, except for `NEWEST`."""
    # https://www.postgresql.org/docs/current/wal-async-commit.html
    DURABILITY: ClassVar[Durability] = Durability(
        {
            "fsync": Needed(("on",), _BY_SYSTEM),
            "synchronous_commit": Needed(
                ("on", "remote_write", "remote_apply", "local"),
                "up to three times wal_writer_delay later (0.6 s by default)",
            ),
        },
        count_places=_count_standbys,
    )
    """What an acknowledgement is worth."""
    SETTINGS: ClassVar[Sequence[str]] = ()
    """Settings that `server_info` tells besides those of PostgreSQL."""
    FACTS: ClassVar[Mapping[str, str]] = {}
    """Name -> statement whose answer `server_info` tells, if the user may ask it."""

    STORAGE: ClassVar[str] = (
        "SELECT pg_total_relation_size({text}::regclass), pg_indexes_size({text}::regclass), 1"
    )
    """What says how many bytes a table takes in all, how many of them its indexes, and how many copies
    are in that: `{name}` is the table's name, `{text}` the same as a text."""
    INDEX_SIZES: ClassVar[str] = (
        "SELECT c.relname, coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree(c.oid)),"
        " pg_table_size(c.oid)) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
        " WHERE indrelid = {text}::regclass"
    )
    """What says how many bytes each of a table's indexes takes, in all copies."""
    STORED: ClassVar[str] = (
        "pg_total_relation_size: the table's files with TOAST and indexes, on the server that was asked;"
        " without the write-ahead log, and without standbys"
    )
    """Where these figures come from, and what they leave out."""
    STORAGE_RIGHT: ClassVar[str] = ""
    """What to do if the user may not ask for them."""
    ALLOCATION: ClassVar[Allocation] = Allocation(
        unit_bytes=64 * 8192, cause="PostgreSQL's files grow by up to 64 pages, 512 KiB, at a time"
    )
    """MAX_BUFFERS_TO_EXTEND_BY in src/backend/access/heap/hio.c."""
    COMPACTION: ClassVar[str | None] = "VACUUM (ANALYZE)"
    """What a night would do for a table, as the beginning of a statement."""

    BACKEND: ClassVar[str | None] = (
        "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    """Asks what tells a connection's server process from all others; None if nothing does."""
    END: ClassVar[Sequence[str]] = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s",
    )
    """End that process, by what `BACKEND` told of it; the answer to the last is empty when it has ended."""

    NO_PARTITIONS: ClassVar[str | None] = None
    """Why tables have no partitions by time that could be dropped; None: they have."""
    DETACH: ClassVar[str | None] = "ALTER TABLE {table} DETACH PARTITION {partition} CONCURRENTLY"
    """What takes a partition out of its table without making others wait, before it is dropped; None: it is
    dropped at once."""

    def table_suffix(self, tablets: int | None, colocation: bool | None) -> str:
        """What follows the columns in CREATE TABLE; OptionError if there is no such thing."""
        if tablets is not None or colocation is not None:
            raise OptionError("options tablets and colocation need dialect=yugabytedb")
        return ""

    def find_version(self, text: str) -> str:
        """The product's version in the answer to `version()`."""
        return text.rpartition("-YB-")[2]

    def backend(self, connection: ServerConnection) -> Any:
        """What tells this connection's server process from all others, by `BACKEND`; None if nothing does."""
        rows = connection.ask(self.BACKEND) if self.BACKEND else []
        return rows[0] if rows else None

    def is_gone(
        self,
        connection: ServerConnection,
        backend: Any,
        lost_for_s: float,
        connect_to: Callable[[str, int], ServerConnection],
    ) -> bool:
        """End a lost connection's `backend`; returns whether it has ended, so that nothing of it can be
        committed any more. `connect_to(host, port)` connects to another node of a cluster, or raises
        OSError."""
        *others, last = self.END
        for statement in others:
            connection.ask(statement, backend)
        return not connection.ask(last, backend)

    def find_passing_error(self, text: str) -> Retryable | None:
        """The error that this text is about, if it passes and leaves nothing behind in this dialect."""
        return None


class CockroachDB(Dialect):
    """https://www.cockroachlabs.com/docs/stable/postgresql-compatibility"""

    name = DialectName.COCKROACHDB
    PRODUCT = "CockroachDB"
    # Sizes, see STORAGE: https://www.cockroachlabs.com/docs/v23.2/show-ranges
    OLDEST = "23.2"
    MOST_ROW_BYTES = None
    # What the reference measured. With some versions and settings COPY is faster: it can be chosen.
    BATCH_MODE = InsertMode.VALUES_LISTS
    # Before 22.2, and with copy_from_atomic_enabled off, each 100 rows are a transaction of their
    # own: https://www.cockroachlabs.com/docs/v22.1/copy-from
    COPY_IS_ATOMIC = False
    # The types that are unescaped: readTextTuple in
    # https://github.com/cockroachdb/cockroach/blob/master/pkg/sql/copy_from.go
    COPY_UNESCAPES_JSON = False
    # They are there, but do nothing: https://github.com/cockroachdb/cockroach/issues/13546
    ADVISORY_LOCKS = False
    # A lookup join goes through the index: https://www.cockroachlabs.com/docs/stable/joins#lookup-joins
    SQL = SqlDialect()
    # A window took 0.7 to 1.2 s, joins 0.13 to 0.49 s: docs/measurements/plans.md. SEEK was not measured.
    INDEXED_NEWEST = Newest.JOIN
    # https://www.cockroachlabs.com/docs/stable/cluster-settings
    DURABILITY = Durability(
        {"kv.raft_log.disable_synchronization_unsafe": Needed(("false", "f"), _BY_SYSTEM)},
        count_places=_count_majority,
    )
    SETTINGS = ("copy_from_atomic_enabled", "default_int_size", "serial_normalization")
    FACTS: ClassVar = {
        "zone_configuration": "SELECT raw_config_sql FROM [SHOW ZONE CONFIGURATION FROM RANGE default]",
        "kv.raft_log.disable_synchronization_unsafe": (
            "SHOW CLUSTER SETTING kv.raft_log.disable_synchronization_unsafe"
        ),
    }

    # A range may hold several tables, so its size says little of one. By index, `span_stats` is of the
    # index's share of the range, in one copy: https://github.com/cockroachdb/cockroach/pull/103128. The table
    # itself is its index 1. `crdb_internal` tells the same, but new versions keep it from sessions:
    # https://www.cockroachlabs.com/docs/v26.3/crdb-internal#access-control
    _PARTS: ClassVar[str] = (
        "(SELECT index_id, index_name, cardinality(replicas) AS copies,"
        " (span_stats->>'key_bytes')::INT8 + (span_stats->>'val_bytes')::INT8 AS size"
        " FROM [SHOW RANGES FROM TABLE {name} WITH INDEXES, DETAILS]) AS parts"
    )
    STORAGE = (
        "SELECT sum(size * copies), coalesce(sum(size * copies) FILTER (WHERE index_id > 1), 0), max(copies)"
        f" FROM {_PARTS}"
    )
    INDEX_SIZES = (
        f"SELECT index_name, sum(size * copies) FROM {_PARTS} WHERE index_id > 1 GROUP BY 1"
    )
    STORED = (
        "SHOW RANGES WITH INDEXES, DETAILS: the table's keys and values of all versions and replicas,"
        " before Pebble compresses them; with indexes"
    )
    # https://www.cockroachlabs.com/docs/stable/show-ranges#required-privileges
    STORAGE_RIGHT = (
        "the tables' owner may ask, whoever has the privilege ZONECONFIG (GRANT ZONECONFIG ON TABLE"
        " … TO …), and the role admin"
    )
    ALLOCATION = Allocation(unit_bytes=MIB, cause="CockroachDB's sizes of ranges may be estimates")
    COMPACTION = None
    # https://www.cockroachlabs.com/docs/stable/row-level-ttl
    NO_PARTITIONS = "its row-level TTL is a job of the server, run at most once a minute"

    # Sessions are known in the whole cluster, pg_stat_activity is empty.
    BACKEND = "SHOW session_id"
    # https://www.cockroachlabs.com/docs/stable/cancel-session: a user's own need no privilege. CANCEL SESSION
    # would fail as long as the session's node is dead, since it calls that node. Only nodes that answer list
    # their sessions. What a dead node had begun needs no wait of ours: whoever then looks for its events
    # waits until it is committed, or aborted for lack of heartbeats:
    # https://www.cockroachlabs.com/docs/stable/architecture/transaction-layer#transaction-conflicts
    END = (
        "CANCEL SESSIONS IF EXISTS SELECT session_id FROM [SHOW CLUSTER SESSIONS] WHERE session_id = %s",
        "SELECT 1 FROM [SHOW CLUSTER SESSIONS] WHERE session_id = %s",
    )


class YugabyteDB(Dialect):
    """https://docs.yugabyte.com/stable/api/ysql/"""

    name = DialectName.YUGABYTEDB
    PRODUCT = "YugabyteDB"
    # WITH (COLOCATION), see `table_suffix`: https://docs.yugabyte.com/stable/additional-features/colocation/
    OLDEST = "2.18"
    MOST_ROW_BYTES = None
    SQL = YugabyteSql()
    # How its planner takes a join has not been measured.
    PLAIN_NEWEST = None
    # By default it is off, and each second, or each MB, is synced:
    # https://docs.yugabyte.com/stable/reference/configuration/yb-tserver/#durable-wal-write
    DURABILITY = Durability(
        unknown="YugabyteDB's servers don't show durable_wal_write",
        count_places=lambda settings: None,
    )
    SETTINGS = (
        "yb_enable_upsert_mode", "yb_disable_transactional_writes", "yb_enable_expression_pushdown",
        "yb_effective_transaction_isolation_level", "ysql_session_max_batch_size",
    )  # fmt: skip
    FACTS: ClassVar = {"tablet_servers": "SELECT count(*) FROM yb_servers()"}
    # https://dev.to/yugabyte/yugabytedb-in-database-visible-object-sizes-1clg
    STORAGE = (
        "SELECT pg_table_size({text}::regclass) + coalesce(sum(pg_table_size(indexrelid)), 0),"
        " coalesce(sum(pg_table_size(indexrelid)), 0), 1"
        " FROM pg_index WHERE indrelid = {text}::regclass AND NOT indisprimary"
    )
    INDEX_SIZES = (
        "SELECT c.relname, pg_table_size(c.oid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
        " WHERE indrelid = {text}::regclass AND NOT indisprimary"
    )
    STORED = (
        "pg_table_size: SST files and write-ahead log of the tablets' leaders, so one copy; a"
        " colocated table has no size of its own"
    )
    # https://docs.yugabyte.com/stable/reference/configuration/yb-tserver/#log-segment-size-mb
    ALLOCATION = Allocation(
        unit_bytes=64 * MIB, cause="YugabyteDB's write-ahead log grows by 64 MiB at a time"
    )
    COMPACTION = None
    # It has no CONCURRENTLY: https://docs.yugabyte.com/stable/explore/ysql-language-features/advanced-features/partitions/
    DETACH = None

    # Its node as well, since pg_stat_activity only has the processes of one node.
    BACKEND = (
        "SELECT pid, backend_start::text, host(inet_server_addr()), inet_server_port()"
        " FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    # A transaction without heartbeats ends after 5 s (10 periods of 500 ms):
    # https://docs.yugabyte.com/stable/architecture/transactions/transactional-io-path/
    UNREACHABLE_S: ClassVar[float] = 10.0
    """How long after its connection was lost a backend on a node that can't be reached has ended."""

    def table_suffix(self, tablets: int | None, colocation: bool | None) -> str:
        # https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/ddl_create_table/
        if tablets is not None and colocation:
            raise OptionError("a colocated table has no tablets of its own: leave tablets out")
        suffix = "" if colocation is None else f" WITH (COLOCATION = {str(colocation).lower()})"
        return suffix + ("" if tablets is None else f" SPLIT INTO {tablets} TABLETS")

    def is_gone(
        self,
        connection: ServerConnection,
        backend: Any,
        lost_for_s: float,
        connect_to: Callable[[str, int], ServerConnection],
    ) -> bool:
        *process, host, port = backend
        here = connection.ask("SELECT host(inet_server_addr()), inet_server_port()")
        if here == [(host, port)]:
            return super().is_gone(connection, process, lost_for_s, connect_to)
        try:
            there = connect_to(host, port)
        except OSError:
            return lost_for_s > self.UNREACHABLE_S
        with closing(there):
            return super().is_gone(there, process, lost_for_s, connect_to)

    def find_passing_error(self, text: str) -> Retryable | None:
        """A DDL statement elsewhere (another table will do) makes a statement fail once.

        Before 2024.2 it has the code XX000, which says nothing:
        https://github.com/yugabyte/yugabyte-db/releases/tag/2024.2.2.0-b34
        """
        text = text.lower()
        if "schema version mismatch" in text:
            return Retryable("schema_version_mismatch", text)
        if "catalog version mismatch" in text or (
            "catalog snapshot used for this transaction has been invalidated" in text
        ):
            return Retryable("catalog_version_mismatch", text)
        return None


DIALECTS: Mapping[DialectName, Dialect] = {
    dialect.name: dialect for dialect in (Dialect(), CockroachDB(), YugabyteDB())
}


def dialect_of(version: str) -> DialectName | None:
    """The dialect of the server whose `version()` this is; None if it is none of these."""
    if version.startswith("CockroachDB"):
        return DialectName.COCKROACHDB
    if "-YB-" in version:
        return DialectName.YUGABYTEDB
    return DialectName.POSTGRESQL if version.startswith("PostgreSQL") else None
