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
    (rb"SELECT version\(\)", rb"SELECT 'CockroachDB CCL v25.4.0 (stand-in)'"),
    # https://www.cockroachlabs.com/docs/stable/show-sessions, …/cancel-session
    (
        rb"SHOW session_id",
        rb"SELECT pid || '-' || backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    ),
    (
        rb"CANCEL SESSION IF EXISTS ('[^']+')",
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
    # The grammar of 22.1: https://www.cockroachlabs.com/docs/v22.1/copy-from
    (rb'(COPY "\w+" \([^)]*\) FROM STDIN(?: WITH BINARY)?)', rb"\1"),
)
_KNOWN = re.compile(
    rb"\s*(SELECT|WITH RECURSIVE|INSERT INTO|BEGIN$|COMMIT$|ROLLBACK$|CREATE TABLE IF NOT EXISTS"
    rb"|DROP TABLE IF EXISTS|CREATE INDEX IF NOT EXISTS|DROP INDEX IF EXISTS|ANALYZE|SET lock_timeout = )"
)
# pg_stat_activity is empty and its functions aren't there; division of integers makes a decimal.
_UNKNOWN = re.compile(rb"pg_stat_activity|pg_terminate_backend|advisory|\w / \w")


def translated(statement: bytes) -> bytes:
    """The statement that PostgreSQL gets instead."""
    for pattern, replacement in _READ_AS:
        if match := re.fullmatch(pattern, statement):
            return match.expand(replacement)
    own = not statement.startswith(b"INSERT")
    if not _KNOWN.match(statement) or (own and _UNKNOWN.search(statement)):
        return (
            b"DO $$ BEGIN RAISE EXCEPTION 'no statement of CockroachDB: %',"
            b" $stand_in$" + statement[:200] + b"$stand_in$ USING ERRCODE = '42601'; END $$"
        )
    if statement.startswith(b"CREATE TABLE"):
        # https://www.cockroachlabs.com/docs/stable/int
        return statement.replace(b" integer", b" bigint").replace(b" serial", b" bigserial")
    return statement


class CockroachStandIn(PostgresUnderTest):
    """PostgreSQL behind a proxy that knows the statements of CockroachDB."""

    OPTIONS = {"dialect": "cockroachdb"}  # noqa: RUF012
    locks = False
    extensible = False
    tells_size = False

    def __init__(self, module: str, dsn: str, data: Path | None) -> None:
        super().__init__(module, dsn, data)
        self.statements: list[bytes] = []
        """All statements so far, without the values of INSERTs."""

    @classmethod
    @contextmanager
    def started(cls, module: str, dsn: str, data: Path | None) -> Iterator[PostgresUnderTest]:
        with super().started(module, dsn, data) as adapter:
            assert isinstance(adapter, cls)

            def noted(statement: bytes) -> bytes:
                adapter.statements.append(statement.partition(b" VALUES ")[0])
                return translated(statement)

            with proxy_to(adapter.dsn, noted) as proxy:
                adapter.reach_by(proxy.dsn)
                yield adapter
