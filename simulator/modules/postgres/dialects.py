"""Differences between PostgreSQL and its relatives, apart from speed.

A target declares its server by the option `dialect`, since payloads must be known where no server can be
asked. The collector compares the option with the server's version.
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
    """Raft acknowledges an event once most replicas have it."""
    copies = re.search(r"num_replicas = (\d+)", str(settings.get("zone_configuration")))
    return int(copies[1]) // 2 + 1 if copies else None


NEWEST = {"newest-per-device": Newest.WINDOW}
"""Not with DISTINCT ON, which sorts all events where no index serves it."""

MOST_ROW_BYTES = 8160
"""A row fits on one page of 8 kB, except for long texts, which are stored elsewhere: `MaxHeapTupleSize` in
https://github.com/postgres/postgres/blob/master/src/include/access/htup_details.h"""

MOST_IN_ARRAY = 100
"""The most devices in an array. Without an index, each event is compared with each of them."""


class PostgresSql(SqlDialect):
    """SQL that suits PostgreSQL and its planner."""

    # Most databases sort by a locale. With the columns' own order, indexes serve the query, and it takes no
    # extra time.
    COLLATION = ' COLLATE "C"'

    def device(self, schema: Schema) -> str:
        # Values from a document have the database's order.
        name = super().device(schema)
        return f"({name}){self.COLLATION}" if schema.device_path and self.COLLATION else name

    def among(self, column: str, statement: str, count: int | None) -> str:
        # An array is found first, and then an index on device and time can be scanned for it: for a join, the
        # planner doesn't know which devices it will find. With the index, means of ten of 1,000 devices took
        # 30 ms instead of 117.
        if count is not None and 1 < count <= MOST_IN_ARRAY:
            return f"{column} = ANY (ARRAY({statement}))"
        return super().among(column, statement, count)


class YugabyteSql(PostgresSql):
    """All its databases sort by bytes."""

    COLLATION = ""


class DialectName(StrEnum):
    """Values of the option `dialect`."""

    POSTGRESQL = "postgresql"
    COCKROACHDB = "cockroachdb"
    YUGABYTEDB = "yugabytedb"


class Dialect:
    """PostgreSQL, and the base of its relatives."""

    name: ClassVar[DialectName] = DialectName.POSTGRESQL
    PRODUCT: ClassVar[str] = "PostgreSQL"
    # `DETACH`: https://www.postgresql.org/docs/14/sql-altertable.html. `gen_random_uuid` came with 13.
    OLDEST: ClassVar[str] = "14"
    """The oldest supported version."""
    BATCH_MODE: ClassVar[InsertMode] = InsertMode.COPY
    """How to send batches if no option sets it."""
    MOST_ROW_BYTES: ClassVar[int | None] = MOST_ROW_BYTES
    """The most bytes of a row; None: as many as its columns allow."""
    COPY_IS_ATOMIC: ClassVar[bool] = True
    """Whether a COPY without BEGIN is stored as a whole or not at all."""
    COPY_UNESCAPES_JSON: ClassVar[bool] = True
    """Whether a COPY of texts unescapes a JSON column's values, like all others."""
    ADVISORY_LOCKS: ClassVar[bool] = True
    IS_REPEATABLE: ClassVar[bool] = False
    """Whether a request that is already stored may be sent again: the database drops existing events."""
    SESSION: ClassVar[Mapping[str, str]] = {
        # How to read texts.
        "extra_float_digits": "3",
        "datestyle": "ISO, MDY",
        "intervalstyle": "postgres",
        "bytea_output": "hex",
        "timezone": "UTC",
        "quote_all_identifiers": "off",
        # How to send texts.
        "standard_conforming_strings": "on",
        # The target's own options set the limits for statements and connections.
        "statement_timeout": "0",
        "lock_timeout": "0",
        "transaction_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
    """Settings for each session, as far as the server knows them, whatever the server, the database or the
    role sets: docs/reference/databases.md."""
    SQL: SqlDialect = PostgresSql()
    """The SQL for queries."""
    INDEXED_NEWEST: ClassVar[Newest | None] = Newest.SEEK
    """How to select each device's newest event where an index serves it; None: as in `NEWEST`."""
    PLAIN_NEWEST: ClassVar[Newest | None] = Newest.JOIN
    """How to select it without an index; None: with DISTINCT ON, except for `NEWEST`."""
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
    """The durability of an acknowledgement."""
    SETTINGS: ClassVar[Sequence[str]] = ()
    """Settings for `server_info` besides those of PostgreSQL."""
    FACTS: ClassVar[Mapping[str, str]] = {}
    """Name -> statement whose answer `server_info` adds, if the user may run it."""

    STORAGE: ClassVar[str] = (
        "SELECT pg_total_relation_size({text}::regclass), pg_indexes_size({text}::regclass), 1"
    )
    """The statement for a table's total bytes, the bytes of its indexes, and the number of copies included:
    `{name}` is the table's name, `{text}` the same as a text."""
    INDEX_SIZES: ClassVar[str] = (
        "SELECT c.relname, coalesce((SELECT sum(pg_table_size(relid)) FROM pg_partition_tree(c.oid)),"
        " pg_table_size(c.oid)) FROM pg_index JOIN pg_class c ON c.oid = indexrelid"
        " WHERE indrelid = {text}::regclass"
    )
    """The statement for the bytes of each of a table's indexes, in all copies."""
    STORED: ClassVar[str] = (
        "pg_total_relation_size: the table's files with TOAST and indexes, on the server that was asked;"
        " without the write-ahead log, and without standbys"
    )
    """The source of these figures, and what they leave out."""
    STORAGE_RIGHT: ClassVar[str] = ""
    """The remedy if the user may not read them."""
    ALLOCATION: ClassVar[Allocation] = Allocation(
        unit_bytes=64 * 8192, cause="PostgreSQL's files grow by up to 64 pages, 512 KiB, at a time"
    )
    """MAX_BUFFERS_TO_EXTEND_BY in src/backend/access/heap/hio.c."""
    COMPACTION: ClassVar[str | None] = "VACUUM (ANALYZE)"
    """The beginning of a statement for a table's nightly maintenance."""

    BACKEND: ClassVar[str | None] = (
        "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    """Selects the identity of a connection's server process; None if there is none."""
    END: ClassVar[Sequence[str]] = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s",
    )
    """Statements that end this process, with the values from `BACKEND`; the answer to the last is empty once
    it has ended."""

    NO_PARTITIONS: ClassVar[str | None] = None
    """Why tables can't have partitions by time that could be dropped; None: they can."""
    DETACH: ClassVar[str | None] = "ALTER TABLE {table} DETACH PARTITION {partition} CONCURRENTLY"
    """Detaches a partition from its table without making others wait, before it is dropped; None: it is
    dropped at once."""

    def table_suffix(self, tablets: int | None, colocation: bool | None) -> str:
        """What follows the columns in CREATE TABLE; OptionError if the dialect doesn't support it."""
        if tablets is not None or colocation is not None:
            raise OptionError("options tablets and colocation need dialect=yugabytedb")
        return ""

    def find_version(self, text: str) -> str:
        """The product's version in the answer to `version()`."""
        return text.rpartition("-YB-")[2]

    def backend(self, connection: ServerConnection) -> Any:
        """The identity of this connection's server process, from `BACKEND`; None if there is none."""
        rows = connection.ask(self.BACKEND) if self.BACKEND else []
        return rows[0] if rows else None

    def is_gone(
        self,
        connection: ServerConnection,
        backend: Any,
        lost_for_s: float,
        connect_to: Callable[[str, int], ServerConnection],
    ) -> bool:
        """End a lost connection's `backend`; returns whether it has ended, so that it can no longer commit
        anything. `connect_to(host, port)` connects to another node of a cluster, or raises OSError."""
        *others, last = self.END
        for statement in others:
            connection.ask(statement, backend)
        return not connection.ask(last, backend)

    def find_passing_error(self, text: str) -> Retryable | None:
        """The error in this text, if it is temporary and leaves nothing behind in this dialect."""
        return None


class CockroachDB(Dialect):
    """https://www.cockroachlabs.com/docs/stable/postgresql-compatibility"""

    name = DialectName.COCKROACHDB
    PRODUCT = "CockroachDB"
    # Sizes: see STORAGE. https://www.cockroachlabs.com/docs/v23.2/show-ranges
    OLDEST = "23.2"
    MOST_ROW_BYTES = None
    # As the reference measured. With some versions and settings, COPY is faster: it can be chosen.
    BATCH_MODE = InsertMode.VALUES_LISTS
    # Before 22.2, and with copy_from_atomic_enabled off, every 100 rows are a transaction:
    # https://www.cockroachlabs.com/docs/v22.1/copy-from
    COPY_IS_ATOMIC = False
    # For the types that are unescaped, see readTextTuple in
    # https://github.com/cockroachdb/cockroach/blob/master/pkg/sql/copy_from.go
    COPY_UNESCAPES_JSON = False
    # They exist, but have no effect: https://github.com/cockroachdb/cockroach/issues/13546
    ADVISORY_LOCKS = False
    # A lookup join uses the index: https://www.cockroachlabs.com/docs/stable/joins#lookup-joins
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

    # A range may hold several tables, so its size says little about one. For an index, `span_stats` reports
    # its share of the range, in one copy: https://github.com/cockroachdb/cockroach/pull/103128. The table
    # itself is its index 1. `crdb_internal` reports the same, but new versions hide it from sessions:
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

    # Sessions are listed for the whole cluster; pg_stat_activity is empty.
    BACKEND = "SHOW session_id"
    # https://www.cockroachlabs.com/docs/stable/cancel-session: a user's own sessions need no privilege.
    # CANCEL SESSION would fail while the session's node is dead, since it calls that node. Only nodes that
    # answer list their sessions. Requests from a dead node need no wait of ours: a later look-up of their
    # events waits until they are committed, or aborted for lack of heartbeats:
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
    # Joins haven't been measured with its planner.
    PLAIN_NEWEST = None
    # By default it is off, and the log is synced every second, or every MB:
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

    # Including its node, since pg_stat_activity lists only the processes of one node.
    BACKEND = (
        "SELECT pid, backend_start::text, host(inet_server_addr()), inet_server_port()"
        " FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    )
    # A transaction without heartbeats ends after 5 s (10 periods of 500 ms):
    # https://docs.yugabyte.com/stable/architecture/transactions/transactional-io-path/
    UNREACHABLE_S: ClassVar[float] = 10.0
    """The time after which a lost backend on an unreachable node has ended."""

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
        """A DDL statement, even on another table, makes a statement fail once.

        Before 2024.2, the error has the unspecific code XX000:
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
    """The dialect of the server with this `version()`; None if it is none of these."""
    if version.startswith("CockroachDB"):
        return DialectName.COCKROACHDB
    if "-YB-" in version:
        return DialectName.YUGABYTEDB
    return DialectName.POSTGRESQL if version.startswith("PostgreSQL") else None
