"""CockroachDB, and a stand-in for it: PostgreSQL behind a proxy that refuses what CockroachDB refuses, and
reads differently what CockroachDB reads differently.

What the stand-in can't show: retries inside the server, ranges and leases, what CockroachDB makes of
the statements that both know, speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..helpers import eventually
from .postgres import PostgresUnderTest, quoted
from .postgres_proxy import proxy_to

_SESSIONS = "SELECT session_id FROM [SHOW CLUSTER SESSIONS] WHERE application_name = %s"


class CockroachUnderTest(PostgresUnderTest):
    """A database of its own in a CockroachDB cluster."""

    OPTIONS = {"dialect": "cockroachdb"}  # noqa: RUF012
    DROP_DATABASE = "DROP DATABASE {} CASCADE"
    unfit = "its COPY doesn't unescape JSON columns"
    locks = False
    extensible = False
    FAULTS = PostgresUnderTest.CONNECTION_FAULTS

    def columns(self, table: str) -> dict[str, str]:
        return dict(
            self.ask(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = 'public' AND table_name = %s AND is_hidden = 'NO'"
                " ORDER BY ordinal_position",
                table,
            )
        )

    def indices(self, table: str) -> set[str]:
        rows = self.ask(f"SELECT DISTINCT index_name FROM [SHOW INDEXES FROM {quoted(table)}]")
        return {row[0] for row in rows} - {f"{table}_pkey"}

    def clear(self) -> None:
        for table in self.tables():
            self.ask(f"DROP TABLE {quoted(table)} CASCADE")

    def connections(self, run_id: str) -> set[str]:
        return {row[0] for row in self.ask(_SESSIONS, f"iot-benchmark {run_id}")}

    def kill_connections(self, run_id: str) -> int:
        sessions = self.connections(run_id)
        for session in sessions:
            self.ask("CANCEL SESSION IF EXISTS %s", session)
        eventually(lambda: not self.connections(run_id), "end of the sessions")
        return len(sessions)


# --- the stand-in ---------------------------------------------------------------------------------

_ACTIVITY = b"FROM pg_stat_activity WHERE pid || '-' || backend_start ="

_READ_AS = (
    # https://www.cockroachlabs.com/docs/stable/show-sessions, …/cancel-session
    (
        rb"SHOW session_id",
        rb"SELECT pid || '-' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    ),
    (
        rb"CANCEL SESSIONS IF EXISTS SELECT \w+ FROM \[SHOW CLUSTER SESSIONS\] WHERE session_id = (.+)",
        rb"SELECT pg_terminate_backend(pid) " + _ACTIVITY + rb" \1",
    ),
    (
        rb"SELECT 1 FROM \[SHOW CLUSTER SESSIONS\] WHERE session_id = ('[^']+')",
        rb"SELECT 1 " + _ACTIVITY + rb" \1",
    ),
    # https://www.cockroachlabs.com/docs/stable/show-zone-configurations
    (
        rb"SELECT raw_config_sql FROM \[SHOW ZONE CONFIGURATION FROM RANGE default\]",
        rb"SELECT 'ALTER RANGE default CONFIGURE ZONE USING num_replicas = 3'",
    ),
    # https://www.cockroachlabs.com/docs/stable/show-cluster-setting
    (rb"SHOW CLUSTER SETTING kv\.raft_log\.disable_synchronization_unsafe", rb"SELECT false"),
    # The grammar of 22.1: https://www.cockroachlabs.com/docs/v22.1/copy-from
    (rb'(COPY "\w+" \([^)]*\) FROM STDIN(?: WITH BINARY)?)', rb"\1"),
)
# https://www.cockroachlabs.com/docs/stable/show-ranges. Its figures are those of
# https://github.com/cockroachdb/cockroach/issues/108766, of one of three replicas: the table, and an index.
_RANGES = re.compile(rb'\[SHOW RANGES FROM TABLE "\w+" WITH (INDEXES, )?DETAILS\]')
RANGE_BYTES, KEY_BYTES, VALUE_BYTES, INDEX_BYTES = 2 * 52_081_746, 25_000_000, 27_081_746, 1_000_000
"""Of a range, and of what a table has in it."""
_SPANS = b", ".join(
    b"""(%d, '%b', %d, '{"key_bytes": %d, "val_bytes": %d}'::jsonb, '{1,2,3}'::int[])""" % row
    for row in (
        (1, b"events_pkey", RANGE_BYTES, KEY_BYTES, VALUE_BYTES),
        (2, b"events_device_ts", RANGE_BYTES, INDEX_BYTES, 0),
    )
)
_PARTS = b"(VALUES %b) AS parts (index_id, index_name, range_size, span_stats, replicas)" % _SPANS
_KNOWN = re.compile(
    rb"\s*(SELECT|WITH RECURSIVE|INSERT INTO|BEGIN$|COMMIT$|ROLLBACK$|CREATE TABLE IF NOT EXISTS"
    rb"|COMMENT ON TABLE|DROP TABLE IF EXISTS"
    rb"|CREATE INDEX IF NOT EXISTS|DROP INDEX IF EXISTS|ANALYZE|SET lock_timeout = )"
)
# pg_stat_activity is empty and its functions aren't there; division of integers makes a decimal.
_UNKNOWN = re.compile(rb"pg_stat_activity|pg_terminate_backend|advisory|\w / \w")


def refuse(reason: bytes, code: bytes) -> bytes:
    """A statement that is refused."""
    return (
        b"DO $$ BEGIN RAISE EXCEPTION '%%', $stand_in$%b$stand_in$ USING ERRCODE = '%b'; END $$"
        % (reason, code)
    )


def translated(statement: bytes) -> bytes:
    """The statement that PostgreSQL gets instead."""
    for pattern, replacement in _READ_AS:
        if match := re.fullmatch(pattern, statement):
            return match.expand(replacement)
    if statement.startswith(b"CANCEL SESSION "):
        return refuse(b"failed to dial into the session's node", b"XX000")
    statement = _RANGES.sub(_PARTS, statement)
    own = not statement.startswith(b"INSERT")
    if not _KNOWN.match(statement) or (own and _UNKNOWN.search(statement)):
        return refuse(b"no statement of CockroachDB: " + statement[:200], b"42601")
    if statement.startswith(b"CREATE TABLE"):
        # https://www.cockroachlabs.com/docs/stable/int
        return statement.replace(b" integer", b" bigint").replace(b" serial", b" bigserial")
    return statement


class CockroachStandIn(PostgresUnderTest):
    """PostgreSQL behind a proxy that knows the statements of CockroachDB."""

    OPTIONS = {"dialect": "cockroachdb"}  # noqa: RUF012
    unfit = CockroachUnderTest.unfit
    locks = False
    extensible = False
    tells_size = False

    def __init__(self, module: str, dsn: str, data: Path | None) -> None:
        super().__init__(module, dsn, data)
        self.statements: list[bytes] = []
        """All statements so far, without the values of INSERTs."""
        self.version = "CockroachDB CCL v25.4.0 (stand-in)"
        """What it says it is."""
        self.refused: bytes | None = None
        """A part of the statements that the user may not send."""

    @classmethod
    @contextmanager
    def started(cls, module: str, dsn: str, data: Path | None) -> Iterator[PostgresUnderTest]:
        with super().started(module, dsn, data) as adapter:
            assert isinstance(adapter, cls)

            def noted(statement: bytes) -> bytes:
                adapter.statements.append(statement.partition(b" VALUES ")[0])
                if statement == b"SELECT version()":
                    return b"SELECT '%b'" % adapter.version.encode()
                if adapter.refused and adapter.refused in statement:
                    return refuse(
                        b"only users with the ZONECONFIG privilege or the admin role", b"42501"
                    )
                return translated(statement)

            with proxy_to(adapter.dsn, noted) as proxy:
                adapter.reach_by(proxy.dsn)
                yield adapter
