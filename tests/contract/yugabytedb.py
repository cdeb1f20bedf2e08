"""YugabyteDB, and a stand-in for it: PostgreSQL behind two proxies. They act as nodes of a cluster, each of
which sees its own processes only, and know the documented grammar of YugabyteDB's tables.

What the stand-in can't show: tablets, distributed transactions, what the planner makes of the
queries, speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.modules.base import Job
from simulator.testing.server import Fault, FaultHandle

from ..helpers import eventually
from .postgres import PostgresUnderTest, ask, helper
from .postgres_proxy import Proxy, proxy_to


class YugabyteUnderTest(PostgresUnderTest):
    """A database of its own in a YugabyteDB cluster."""

    OPTIONS = {"dialect": "yugabytedb"}  # noqa: RUF012
    DROP_DATABASE = "DROP DATABASE {}"
    FAULTS = PostgresUnderTest.CONNECTION_FAULTS

    def size_on_disk(self, table: str) -> int | None:
        """It counts differently from PostgreSQL: a table is its own primary index."""
        return None


# --- the stand-in ---------------------------------------------------------------------------------

# https://docs.yugabyte.com/stable/api/ysql/the-sql-language/statements/ddl_create_table/
_SUFFIX = re.compile(
    rb"\)( WITH \(COLOCATION = (?:true|false)\))?( SPLIT INTO [1-9][0-9]* TABLETS)?$"
)
_KEY = re.compile(rb"PRIMARY KEY \(([^()]*|\([^()]*\) HASH(?:, [^()]*)?)\)", re.IGNORECASE)
_KEY_COLUMN = re.compile(rb'("?\w+"?)( HASH| ASC| DESC)?', re.IGNORECASE)
# Otherwise the first column is hashed: …/statements/ddl_create_index/
_INDEX = re.compile(
    rb'CREATE INDEX IF NOT EXISTS "\w+" ON "\w+" \((?:[^,]+ (?:ASC|DESC)(?:, )?)+\)'
)


class Refused(Exception):
    """The stand-in does not understand a statement."""


def translated(statement: bytes) -> bytes:
    """The statement that PostgreSQL gets instead."""
    if statement == b"SELECT version()":
        return b"SELECT 'PostgreSQL 15.12-YB-2025.1.0.0-b0 on a stand-in'"
    if statement == b"SELECT count(*) FROM yb_servers()":
        return b"SELECT 2"
    if statement.startswith(b"CREATE INDEX") and not _INDEX.fullmatch(statement):
        raise Refused
    if statement.startswith(b"CREATE TABLE"):
        match = _SUFFIX.search(statement)
        if not match or (match[1] and b"true" in match[1] and match[2]):
            raise Refused
        statement = statement[: match.start() + 1]
        if b" TABLETS" in statement or b"COLOCATION" in statement:
            raise Refused
        return _KEY.sub(lambda key: _plain_key(key[1]), statement)
    return statement


def _plain_key(columns: bytes) -> bytes:
    """A primary key without HASH, ASC and DESC: hashed columns must come first."""
    if columns.startswith(b"("):
        hashed, _, ranged = columns[1:].partition(b") HASH")
        parts = [part + b" HASH" for part in hashed.split(b", ")]
        parts += [part for part in ranged.split(b", ") if part]
    else:
        parts = columns.split(b", ")
    names, ranges = [], False
    for number, part in enumerate(parts):
        match = _KEY_COLUMN.fullmatch(part)
        if not match:
            raise Refused
        order = (match[2] or (b" HASH" if number == 0 else b" ASC")).upper()
        if order == b" HASH" and ranges:
            raise Refused
        ranges = ranges or order != b" HASH"
        names.append(match[1])
    return b"PRIMARY KEY (" + b", ".join(names) + b")"


class _Node:
    """One node: a proxy that sees the processes of its own connections."""

    def __init__(self, dsn: str) -> None:
        self.failure: bytes | None = None
        """What the next INSERT, COPY or CREATE TABLE fails with."""
        self.statements: list[bytes] = []
        self.proxy = Proxy(dsn, self._translated)

    def _translated(self, statement: bytes) -> bytes:
        self.statements.append(statement.partition(b" VALUES ")[0])
        if self.failure and statement.startswith((b"INSERT", b"COPY", b"CREATE TABLE")):
            message, self.failure = self.failure, None
            return _raising(message, b"XX000")
        try:
            statement = translated(statement)
        except Refused:
            return _raising(b"no statement of YugabyteDB", b"42601")
        if statement.startswith((b"INSERT", b"COPY")):
            return statement
        port = self.proxy.dsn.rpartition("port=")[2].split()[0].encode()
        own = ", ".join(map(str, self.proxy.backends)).encode()
        return (
            statement.replace(b"inet_server_addr()", b"inet '127.0.0.1'")
            .replace(b"inet_server_port()", port + b"::int")
            .replace(
                b"FROM pg_stat_activity",
                b"FROM (SELECT * FROM pg_stat_activity WHERE pid IN (%b)) AS own" % own,
            )
        )


def _raising(message: bytes, code: bytes) -> bytes:
    return b"DO $$ BEGIN RAISE EXCEPTION '%b' USING ERRCODE = '%b'; END $$" % (message, code)


class YugabyteStandIn(PostgresUnderTest):
    """PostgreSQL behind two proxies that stand for two nodes."""

    OPTIONS = {"dialect": "yugabytedb"}  # noqa: RUF012
    nodes: tuple[_Node, _Node]
    size_on_disk = YugabyteUnderTest.size_on_disk

    @classmethod
    @contextmanager
    def started(cls, module: str, dsn: str, data: Path | None) -> Iterator[PostgresUnderTest]:
        with super().started(module, dsn, data) as adapter:
            assert isinstance(adapter, cls)
            adapter.nodes = (_Node(adapter.dsn), _Node(adapter.dsn))
            adapter.reach_by(adapter.nodes[0].proxy.dsn)
            yield adapter
            for node in adapter.nodes:
                node.proxy.close()

    @contextmanager
    def failing(self, message: bytes) -> Iterator[FaultHandle]:
        """The next request fails because of DDL elsewhere."""

        def trigger() -> None:
            self.nodes[0].failure = message

        yield FaultHandle(trigger)
        assert self.nodes[0].failure is None

    @contextmanager
    def cut_over(self, job: Job) -> Iterator[FaultHandle]:
        """The client is cut off in mid-request and gets to the other node, which can't see the process
        that is still at work on the request."""
        holder = self.another_connection()
        with proxy_to(self.dsn) as proxy, helper() as start:

            def trigger() -> None:
                ask(holder, "BEGIN")
                self.lock_tables(holder, job)
                start(cut)

            def cut() -> None:
                first = eventually(lambda: self.waiting(job.run_id), "waiting request")
                proxy.redirect(self.nodes[1].proxy.dsn)
                proxy.cut()
                eventually(lambda: self.waiting(job.run_id, but=first), "request sent again")
                ask(holder, "COMMIT")

            # A COPY would wait before it has the events, and store none once its client is gone.
            mode = {"insert_mode": "values_lists"} if job.load.batch else {}
            yield FaultHandle(trigger, {"connection_string": proxy.dsn, **mode})
        holder.close()

    FAULTS = (
        *PostgresUnderTest.FAULTS,
        Fault(
            "schema version mismatch", {"schema_version_mismatch": 1},
            lambda server, job: server.failing(
                b"Query error: schema version mismatch for table 0000: expected 2, got 1"
            ),
        ),
        Fault(
            "catalog version mismatch", {"catalog_version_mismatch": 1},
            lambda server, job: server.failing(
                b"The catalog snapshot used for this transaction has been invalidated: "
                b"expected: 2, got: 1: MISMATCHED_SCHEMA"
            ),
        ),
        Fault("cut over to another node", {"connection_lost": 1}, cut_over),
    )  # fmt: skip
