"""How to look into PostgreSQL, and how to make it fail: for real, by a second connection or a proxy."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import pytest

from simulator.modules.base import Job
from simulator.testing.server import Fault, FaultHandle, Refusal, ServerUnderTest
from simulator.workloads.schema import ColumnType, Schema, Tags

from ..helpers import eventually
from .lost import ANSWER_LOST, REQUEST_LOST
from .postgres_proxy import Fate, proxy_to

_GUARDED = "guarded"
"""A role that must give a password."""


def quoted(name: str) -> str:
    """An SQL identifier. Not by the function of the code under test, which may be wrong."""
    return '"' + name.replace('"', '""') + '"'


def with_options(dsn: str, **changes: str) -> str:
    """A connection string with changes."""
    return psycopg2.extensions.make_dsn(dsn, **changes)


def connected(dsn: str) -> psycopg2.extensions.connection:
    """An autocommit connection."""
    connection = psycopg2.connect(dsn)
    connection.autocommit = True
    return connection


def ask(connection: psycopg2.extensions.connection, statement: str, *values: Any) -> list[Any]:
    """All rows of a statement's answer."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


class PostgresUnderTest(ServerUnderTest):
    """A database of its own on a PostgreSQL server."""

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "bigint",
        ColumnType.INT64: "bigint",
        ColumnType.INT32: "integer",
        ColumnType.FLOAT32: "real",
        ColumnType.FLOAT64: "double precision",
        ColumnType.BOOL: "boolean",
        ColumnType.TEXT: "character varying",
        ColumnType.JSON: "jsonb",
    }

    OPTIONS: ClassVar[Mapping[str, Any]] = {}
    """The target's options besides the connection string."""
    DROP_DATABASE: ClassVar = "DROP DATABASE {} WITH (FORCE)"

    def __init__(self, module: str, dsn: str, data: Path | None) -> None:
        super().__init__(module, {"connection_string": dsn, **self.OPTIONS})
        self.dsn = dsn
        """How the module connects."""
        self._direct = dsn
        """How this object connects."""
        self.connection = connected(dsn)
        self.data = data
        """The server's data folder if it is a server of this machine and ours alone."""
        self._silent = socket.create_server(("127.0.0.1", 0))
        """Takes connections and never answers."""
        self._closed = socket.socket()
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))
        if data:
            self._ask_for_a_password(data)

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
        self._silent.close()
        self._closed.close()

    def reach_by(self, dsn: str) -> None:
        """Let the module connect another way than this object does, by a proxy."""
        self.dsn = dsn
        self.options["connection_string"] = dsn

    @classmethod
    @contextmanager
    def started(cls, module: str, dsn: str, data: Path | None) -> Iterator[PostgresUnderTest]:
        """A new database on the server `dsn`, dropped at the end: others may be using the rest."""
        name = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        administration = connected(dsn)
        ask(administration, f"CREATE DATABASE {name}")
        try:
            adapter = cls(module, with_options(dsn, dbname=name), data)
            yield adapter
            adapter.close()
        finally:
            ask(administration, cls.DROP_DATABASE.format(name))
            administration.close()

    def another_connection(self) -> psycopg2.extensions.connection:
        """A connection that gets in the way of the module's."""
        return connected(self._direct)

    def ask(self, statement: str, *values: Any) -> list[Any]:
        return ask(self.connection, statement, *values)

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        columns = ", ".join(quoted(column.name) for column in schema.columns)
        joined = f" JOIN {quoted(schema.table + '_tags')} USING (tags_id)"
        tags = joined if schema.tags is Tags.TABLE else ""
        return self.ask(f"SELECT {columns} FROM {quoted(table)}{tags}")

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [str(row[0]) for row in self.ask(f"SELECT id FROM {quoted(table)}")]

    def size_on_disk(self, table: str) -> int | None:
        """All forks of the table, of its TOAST table and of the indexes of both."""
        statement = """
            WITH relations AS (
                SELECT oid FROM pg_class WHERE oid = %s::regclass
                UNION SELECT reltoastrelid FROM pg_class WHERE oid = %s::regclass),
            files AS (
                SELECT oid FROM relations
                UNION SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT oid FROM relations))
            SELECT sum(pg_relation_size(oid, fork))
            FROM files, unnest(ARRAY['main', 'fsm', 'vm', 'init']) AS fork WHERE oid <> 0"""
        [[size]] = self.ask(statement, quoted(table), quoted(table))
        return int(size)

    def tables(self) -> set[str]:
        return {
            row[0]
            for row in self.ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        }

    def columns(self, table: str) -> dict[str, str]:
        return dict(
            self.ask(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
                table,
            )
        )

    def indices(self, table: str) -> set[str]:
        return {
            row[0]
            for row in self.ask(
                "SELECT relname FROM pg_index JOIN pg_class ON indexrelid = pg_class.oid"
                " WHERE indrelid = to_regclass(%s) AND NOT indisprimary",
                quoted(table),
            )
        }

    def clear(self) -> None:
        for table in self.tables():
            self.ask(f"DROP TABLE IF EXISTS {quoted(table)} CASCADE")  # partitions go with theirs
        for extension in self.extensions("installed"):
            self.ask(f"DROP EXTENSION {quoted(extension)} CASCADE")

    def make_neighbour(self, name: str) -> object:
        self.ask(f"CREATE TABLE {quoted(name)} (serial_number int PRIMARY KEY, note text)")
        self.ask(f"INSERT INTO {quoted(name)} VALUES (7, 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.ask(f"SELECT serial_number, note FROM {quoted(name)}")

    def extensions(self, which: Literal["available", "installed"]) -> list[str]:
        statements = {
            "available": "SELECT name FROM pg_available_extensions ORDER BY name",
            "installed": "SELECT extname FROM pg_extension ORDER BY extname",
        }
        # Every database has plpgsql.
        return [row[0] for row in self.ask(statements[which]) if row[0] != "plpgsql"]

    def connections(self, run_id: str) -> set[str]:
        rows = self.ask(
            "SELECT pid || ' ' || backend_start FROM pg_stat_activity WHERE application_name = %s",
            f"iot-benchmark {run_id}",
        )
        return {row[0] for row in rows}

    def kill_connections(self, run_id: str) -> int:
        # The second argument waits for their end.
        return len(
            self.ask(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE application_name = %s",
                f"iot-benchmark {run_id}",
            )
        )

    def waiting(self, run_id: str, but: int = 0) -> int | None:
        """The backend of that run that waits for a lock, other than `but`."""
        rows = self.ask(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = %s AND wait_event_type = 'Lock' AND pid <> %s",
            f"iot-benchmark {run_id}",
            but,
        )
        return rows[0][0] if rows else None

    def lock_tables(self, holder: Any, job: Job) -> None:
        """Lock them against writing, but not against reading, in the open transaction."""
        names = ", ".join(map(quoted, job.table_names))
        ask(holder, f"LOCK TABLE {names} IN SHARE MODE")

    # --- not getting in ---------------------------------------------------------------------------

    def refusals(self) -> Sequence[Refusal]:
        dsn = with_options(self.dsn, connect_timeout="2")
        secret = "the-wrong-passw0rd"
        ports = [endpoint.getsockname()[1] for endpoint in (self._closed, self._silent)]
        refusals = [
            Refusal(
                {
                    "connection_string": with_options(
                        dsn, host="127.0.0.1", port=str(port), password=secret
                    )
                },
                f"127.0.0.1:{port}",
                "check that the server runs",
                secret,
            )
            for port in ports
        ]
        here = psycopg2.extensions.parse_dsn(self.dsn)
        name = f"{here['host']}:{here.get('port', '5432')}"
        # The right password, if there is one, must not be shown either.
        right = here.get("password", secret)
        nowhere = with_options(dsn, dbname="no_such_database", password=right)
        if not _lets_in(nowhere):
            refusals.append(Refusal({"connection_string": nowhere}, name, "check dbname", right))
        user = _GUARDED if self.data else here.get("user", "postgres")
        wrong = with_options(dsn, user=user, password=secret)
        if not _lets_in(wrong):
            refusals.append(Refusal({"connection_string": wrong}, name, "check user", secret))
        return refusals

    def _ask_for_a_password(self, data: Path) -> None:
        """Don't let `guarded` in without a password, and the others as before."""
        if not self.ask("SELECT 1 FROM pg_roles WHERE rolname = %s", _GUARDED):
            self.ask(f"CREATE ROLE {_GUARDED} LOGIN PASSWORD 'the-right-passw0rd'")
            rules = data / "pg_hba.conf"
            rules.write_text(f"local all {_GUARDED} scram-sha-256\n{rules.read_text()}")
            self.ask("SELECT pg_reload_conf()")
        nobody = with_options(self.dsn, user=_GUARDED, password="none")
        eventually(lambda: not _lets_in(nobody), "reload of pg_hba.conf")

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def killed(self, job: Job) -> Iterator[FaultHandle]:
        """The writer's backends are ended before the request is sent."""

        def trigger() -> None:
            assert self.kill_connections(job.run_id) == (job.load.in_flight or 1)

        yield FaultHandle(trigger)

    @contextmanager
    def fated(self, fate: Fate, **options: Any) -> Iterator[FaultHandle]:
        """The proxy does something to the request that commits."""
        with proxy_to(self.dsn) as proxy:

            def trigger() -> None:
                proxy.fate = fate

            yield FaultHandle(trigger, {"connection_string": proxy.dsn, **options})
            assert proxy.fate is None, "no request met its fate"

    @contextmanager
    def stalled(self, job: Job) -> Iterator[FaultHandle]:
        """Nothing passes the proxy any more, neither by this connection nor by the next."""
        with proxy_to(self.dsn) as proxy:

            def trigger() -> None:
                proxy.fate = "hold request"
                proxy.silent = 1

            dsn = with_options(proxy.dsn, connect_timeout="2")
            yield FaultHandle(trigger, {"connection_string": dsn, "request_timeout_s": 1.0})
            assert proxy.fate is None and not proxy.silent

    @contextmanager
    def away(self, job: Job) -> Iterator[FaultHandle]:
        """The connection is cut, and there is no server for two more attempts."""
        with proxy_to(self.dsn) as proxy:

            def trigger() -> None:
                proxy.refusals = 2
                proxy.cut()

            yield FaultHandle(trigger, {"connection_string": proxy.dsn})
            assert not proxy.refusals

    @contextmanager
    def cut_in_mid_request(self, job: Job) -> Iterator[FaultHandle]:
        """The client is cut off while the server is still at work on the request.

        The old backend waits for a lock. It must be ended before the events are looked up:
        otherwise it would get the lock, and store the events, after that.
        """
        holder = self.another_connection()
        with proxy_to(self.dsn) as proxy, helper() as start:

            def trigger() -> None:
                ask(holder, "BEGIN")
                self.lock_tables(holder, job)
                start(cut)

            def cut() -> None:
                first = eventually(lambda: self.waiting(job.run_id), "waiting request")
                proxy.cut()
                eventually(lambda: self.waiting(job.run_id, but=first), "request sent again")
                ask(holder, "COMMIT")

            yield FaultHandle(trigger, {"connection_string": proxy.dsn})
        holder.close()

    @contextmanager
    def frozen(self, job: Job) -> Iterator[FaultHandle]:
        """The client is cut off, and the old backend can't be ended for the time of two attempts.

        What it will do when it runs on can't be known, so nothing may be sent again until then.
        """
        if self.data is None:
            pytest.skip("the server's processes must be this machine's")
        frozen: list[int] = []
        stored: list[int] = []
        with proxy_to(self.dsn) as proxy, pytest.MonkeyPatch.context() as patch:
            patch.setattr("simulator.modules.postgres.writer._BACKEND_END_S", 0.1)

            def trigger() -> None:
                rows = self.ask(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = %s",
                    f"iot-benchmark {job.run_id}",
                )
                frozen.append(rows[0][0])
                os.kill(frozen[0], signal.SIGSTOP)
                proxy.cut()

            def abort() -> None:
                stored.append(self._stored(job))
                if len(stored) == 3:
                    pid = frozen.pop()
                    os.kill(pid, signal.SIGCONT)
                    # It was told to end meanwhile.
                    statement = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)"
                    eventually(lambda: self.ask(statement, pid)[0][0], "end of the backend")

            try:
                yield FaultHandle(trigger, {"connection_string": proxy.dsn}, abort)
            finally:
                for pid in frozen:
                    os.kill(pid, signal.SIGCONT)
            assert len(set(stored)) == 1, f"sent while the old connection lived: {stored}"

    def _stored(self, job: Job) -> int:
        return sum(
            self.ask(f"SELECT count(*) FROM {quoted(name)}")[0][0] for name in job.table_names
        )

    @contextmanager
    def _conflicting(self, job: Job) -> Iterator[psycopg2.extensions.connection]:
        """Each request changes two more rows, over which it can conflict with the connection here."""
        self.ask("CREATE TABLE conflict (id int PRIMARY KEY, n int)")
        self.ask("INSERT INTO conflict VALUES (1, 0), (2, 0)")
        self.ask(
            "CREATE OR REPLACE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " UPDATE conflict SET n = n + 1 WHERE id = 1;"
            " UPDATE conflict SET n = n + 1 WHERE id = 2;"
            " RETURN NULL; END $$"
        )
        for name in job.table_names:
            self.ask(
                f"CREATE TRIGGER conflict AFTER INSERT ON {quoted(name)}"
                " FOR EACH STATEMENT EXECUTE FUNCTION conflict()"
            )
        other = self.another_connection()
        # In a deadlock, this one must not be the one that gives way.
        with suppress(psycopg2.errors.InsufficientPrivilege):
            ask(other, "SET deadlock_timeout = '1min'")
        try:
            yield other
        finally:
            other.close()
            self.ask("DROP FUNCTION conflict CASCADE")
            self.ask("DROP TABLE conflict")

    @contextmanager
    def unserializable(self, job: Job) -> Iterator[FaultHandle]:
        """Another transaction changes a row that the request wants to change, and commits first."""
        with self._conflicting(job) as other, helper() as start:

            def trigger() -> None:
                ask(other, "BEGIN")
                ask(other, "UPDATE conflict SET n = 0 WHERE id = 1")
                start(commit)

            def commit() -> None:
                eventually(lambda: self.waiting(job.run_id), "waiting request")
                ask(other, "COMMIT")

            isolation = with_options(
                self.dsn, options="-c default_transaction_isolation=serializable"
            )
            yield FaultHandle(trigger, {"connection_string": isolation})

    @contextmanager
    def deadlocked(self, job: Job) -> Iterator[FaultHandle]:
        """Another transaction changes the same rows in the opposite order.

        The server ends the one that has waited for `deadlock_timeout` first: the request.
        """
        with self._conflicting(job) as other, helper() as start:
            over = threading.Event()

            def trigger() -> None:
                ask(other, "BEGIN")
                ask(other, "UPDATE conflict SET n = 0 WHERE id = 2")
                start(cross)

            def cross() -> None:
                eventually(lambda: self.waiting(job.run_id), "waiting request")
                ask(other, "UPDATE conflict SET n = 0 WHERE id = 1")
                ask(other, "COMMIT")
                over.set()

            # A retry that comes before the other transaction has gone on meets it once more.
            yield FaultHandle(trigger, abort=lambda: over.wait(20))

    CONNECTION_FAULTS = (
        Fault("killed", {"connection_lost": 1}, killed, thorough=True),
        ANSWER_LOST,
        REQUEST_LOST,
        Fault(
            "answer doubtful", {"connection_lost": 1},
            lambda server, job: server.fated("doubtful answer"),
        ),
        Fault(
            "no answer in time", {"connection_lost": 1},
            lambda server, job: server.fated("hold answer", request_timeout_s=1.0),
        ),
        Fault("away for a while", {"connection_lost": 3}, away, once=True),
    )  # fmt: skip
    """Faults that need no locks, triggers or processes of the server."""
    FAULTS: ClassVar[Sequence[Fault]] = (
        *CONNECTION_FAULTS,
        Fault("proxy stalls", {"connection_lost": 2}, stalled, once=True),
        Fault("cut in mid-request", {"connection_lost": 1}, cut_in_mid_request),
        Fault("old connection lives on", {"connection_lost": 3}, frozen, once=True),
        Fault("not serializable", {"serialization_failure": 1}, unserializable),
        Fault("deadlock", {"deadlock_detected": 1}, deadlocked),
    )  # fmt: skip


def _lets_in(dsn: str) -> bool:
    with suppress(psycopg2.Error):
        connected(dsn).close()
        return True
    return False


@contextmanager
def helper() -> Iterator[Callable[[Callable[[], None]], object]]:
    """Runs a function in a thread during the test; what it raises fails the test."""
    started: list[Future[None]] = []
    with ThreadPoolExecutor(1) as thread:
        yield lambda function: started.append(thread.submit(function))
    for future in started:
        future.result()
