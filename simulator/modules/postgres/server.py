"""A connection to PostgreSQL or a relative: how it is made, what its errors mean, what the server tells
of itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import CONNECTION_LOST, connection_lost, missing_table
from ..base import Job
from ..waiting import limit_wait
from .dialects import Connection, Dialect, dialect_of
from .options import ServerOptions, server_name
from .watchdog import Watchdog

Fetched = TypeVar("Fetched")

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_SERIALIZATION_FAILURE = "40001"
_DEADLOCK = "40P01"
_CONNECTION_LOST = {"40003", "57P01", "57P02", "57P03"}
_CONNECTION_EXCEPTION_CLASS = "08"
_LOCK_NOT_AVAILABLE = "55P03"
_UNDEFINED_TABLE = "42P01"
UNDEFINED_COLUMN = "42703"
_TOO_MANY_CONNECTIONS = "53300"
_DISK_FULL = "53100"
# There is no such statement, or there is one already.
_PREPARED_STATEMENT_LOST = {"26000", "42P05"}
_NO_SUCH_FUNCTION = {"0A000", "42883"}

# Any 64-bit number will do, as long as all runs use the same: "iotbench" in ASCII.
_LOCK_KEY = 0x696F7462656E6368

_SETTINGS = (
    "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level",
    "wal_compression", "synchronous_standby_names", "default_transaction_isolation",
    "shared_buffers", "effective_cache_size", "work_mem", "max_wal_size", "checkpoint_timeout",
    "max_connections", "max_parallel_workers_per_gather", "jit", "autovacuum",
)  # fmt: skip

# How long to wait for a table that another session has locked, before saying so.
_LOCK_TIMEOUT = "30s"

_RECONNECT_S = (2, 2, 4)
_FEWEST_S = 2
"""libpq takes no shorter limit."""


class ConnectLimits:
    """How long each attempt to connect may take: as long as the connection string says, but less for the
    first ones after a connection was lost.

    What goes to a Kubernetes service while the pod behind it is replaced can go to where that was, for good
    (conntrack keeps the way of each connection by its ports). A new attempt finds the new pod.
    """

    def __init__(self) -> None:
        self._left_s: Sequence[int] = ()

    def shorten(self) -> None:
        """A connection was lost: begin with the shortest limit."""
        self._left_s = _RECONNECT_S

    @contextmanager
    def attempt(self) -> Iterator[int | None]:
        """One attempt, and its limit in libpq's whole seconds, of which 2 is the fewest; None: as the
        connection string says. The next has a longer limit only if this one was waited for."""
        limit_s = self._left_s[0] if self._left_s else None
        left_s = limit_wait(math.inf)
        if left_s < (limit_s or math.inf):
            limit_s = max(_FEWEST_S, round(left_s))
        began_s = time.monotonic()
        try:
            yield limit_s
        finally:
            # A refusal takes no time, and the next attempt can be swallowed all the same.
            # Before version 17 libpq rounds times down to whole seconds, so that 2 can be little more than 1.
            if limit_s is not None and time.monotonic() - began_s >= limit_s / 2:
                self._left_s = self._left_s[1:]


class Session:
    """The connection for everything but writing: made when it is needed, and again where it was lost."""

    def __init__(self, options: ServerOptions, job: Job, dialect: Dialect) -> None:
        self._dsn = options.dsn
        self._job = job
        self._dialect = dialect
        self._max_retries = options.max_retries
        self._watchdog = Watchdog(options.query_timeout_s)
        self._connection: Connection | None = None
        self._limits = ConnectLimits()

    def open(self) -> None:
        """Connect; SimulatorError if it is another kind of server than the dialect says."""
        with self._limits.attempt() as limit_s:
            connection = connect(self._dsn, self._job.run_id, limit_s)
        self._connection = connection
        self._watchdog.watch(connection)
        try:
            with self._watchdog.limit(), connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = %s", [_LOCK_TIMEOUT])
                cursor.execute("SELECT version()")
                (version,) = cursor.fetchone() or ("",)
        except psycopg2.Error as error:
            raise self._translate(error) from error
        self._check_dialect(version)

    def _check_dialect(self, version: str) -> None:
        found = dialect_of(version)
        if found not in (None, self._dialect.name):
            self.close()
            raise SimulatorError(
                f"the server at {server_name(self._dsn)} is no {self._dialect.name}"
                f" ({version.partition(' on ')[0]}): set dialect={found}"
            )

    def close(self) -> None:
        """Disconnect; no error if that was lost already."""
        self._watchdog.release()
        if self._connection is not None:
            with suppress(psycopg2.Error):
                self._connection.close()
            self._connection = None

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        return self._execute(statement, values, lambda cursor: cursor.fetchall())

    def ask_types(self, statement: str) -> list[int]:
        """The types of the columns of a statement's answer, by their OIDs; errors as `ask`."""
        return self._execute(
            statement, (), lambda cursor: [column.type_code for column in cursor.description or ()]
        )

    def _execute(
        self, statement: str, values: Sequence[Any], fetch: Callable[[Any], list[Fetched]]
    ) -> list[Fetched]:
        """What is fetched of a statement's answer; nothing if it has none."""
        if self._connection is None or self._connection.closed:
            self.open()
        assert self._connection is not None
        try:
            with self._watchdog.limit(), self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return fetch(cursor) if cursor.description else []
        except psycopg2.Error as error:
            raise self._translate(error) from error

    def execute(self, statement: str) -> None:
        """A statement that may be repeated, as a cluster refuses DDL while it is busy with other DDL."""
        for attempt in range(self._max_retries):
            try:
                self.ask(statement)
            except Retryable as error:
                if error.kind == CONNECTION_LOST:
                    raise
                time.sleep(error.backoff_s * 2**attempt)
            else:
                return
        self.ask(statement)

    def _translate(self, error: psycopg2.Error) -> Retryable | SimulatorError:
        if (complaint := self._watchdog.complaint) is not None:
            self._limits.shorten()
            return connection_lost(complaint)
        assert self._connection is not None
        is_lost = is_lost_connection(self._connection, error)
        if is_lost:
            self.close()
            self._limits.shorten()
        return translate(error.pgcode or "", error, is_lost, self._dialect, self._job)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold an advisory lock, which ends with the connection at the latest. Not every relative has
        them."""
        if not self._dialect.ADVISORY_LOCKS:
            yield
            return
        try:
            free = self.ask("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY])[0][0]
        except SimulatorError as error:
            if code_of(error) in _NO_SUCH_FUNCTION:
                yield
                return
            raise
        if not free:
            raise SimulatorError(
                f"another run is using the database at {server_name(self._dsn)}:"
                " wait for it to end, or use another database"
            )
        try:
            yield
        finally:
            # The server may take a moment to notice the connection's end; the next run may not.
            if self._connection is not None and not self._connection.closed:
                with (
                    suppress(psycopg2.Error),
                    self._watchdog.limit(),
                    self._connection.cursor() as cursor,
                ):
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])


def is_lost_connection(connection: Connection, error: psycopg2.Error) -> bool:
    """Whether nothing more can be asked by it. A server that was killed hangs up without a word: psycopg2
    calls that an error without a code, and the connection not closed, until it is used once more."""
    unspecific = type(error) in (psycopg2.OperationalError, psycopg2.DatabaseError)
    said_nothing = unspecific and error.pgcode is None
    return bool(connection.closed) or said_nothing


def describe(session: Session, dialect: Dialect) -> dict[str, Any]:
    """The server's version, and those of its settings that change a result."""
    rows = session.ask(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
        [[*_SETTINGS, *dialect.SETTINGS]],
    )
    settings = dict(sorted(rows))
    for name, statement in dialect.FACTS.items():
        with suppress(SimulatorError):
            settings[name] = str(session.ask(statement)[0][0])
    return {"version": session.ask("SELECT version()")[0][0], "settings": settings}


def connect(dsn: str, run_id: str, limit_s: int | None = None) -> Connection:
    """An autocommit connection; SimulatorError with the server's name and a remedy if refused. `limit_s`: as
    `list_parameters`."""
    try:
        return connect_plainly(dsn, run_id, limit_s)
    except psycopg2.Error as error:
        raise SimulatorError(explain_refusal(dsn, str(error).strip())) from error


def connect_plainly(dsn: str, run_id: str, limit_s: int | None = None) -> Connection:
    """The same, refused by psycopg2's own errors."""
    connection: Connection = psycopg2.connect(**list_parameters(dsn, run_id, limit_s))
    connection.autocommit = True
    return connection


def list_parameters(dsn: str, run_id: str, limit_s: int | None = None) -> dict[str, Any]:
    """What a connection is made with, by libpq's names. `limit_s`: the longest that connecting to a host may
    take, if the connection string allows more."""
    defaults = {
        "connect_timeout": "10",
        "application_name": f"iot-benchmark {run_id}",
        # A vanished server is noticed within about 25 s, not after the kernel's two hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        # Nor is one that vanished while it was being sent to, for which there are no keepalives.
        "tcp_user_timeout": "25000",
    }
    parameters = defaults | psycopg2.extensions.parse_dsn(dsn)
    # Less than 1 is no limit: https://www.postgresql.org/docs/current/libpq-connect.html
    if limit_s and not 0 < int(parameters["connect_timeout"]) < limit_s:
        parameters["connect_timeout"] = str(limit_s)
    return parameters


def explain_refusal(dsn: str, reason: str) -> str:
    """One line for a failed connection: what libpq says of its first attempt, and a remedy."""
    reason = one_line(reason.splitlines()[0])
    if "password" in reason or "authentication" in reason:
        remedy = "check user and password in connection_string"
    elif "pg_hba.conf" in reason:
        remedy = "let this host and user in by pg_hba.conf, or change user or sslmode"
    elif "too many" in reason or "remaining connection slots" in reason:
        remedy = "use fewer --workers (or connections), or raise the server's max_connections"
    elif "does not exist" in reason:
        remedy = "check dbname and user in connection_string"
    else:
        remedy = "check that the server runs and that connection_string names it"
    return f"can't connect to the database at {server_name(dsn)}: {reason}; {remedy}"


def code_of(error: SimulatorError) -> str | None:
    """PostgreSQL's code of the error behind one of ours."""
    cause = error.__cause__
    return cause.pgcode if isinstance(cause, psycopg2.Error) else None


def translate(
    code: str, said: object, is_lost: bool, dialect: Dialect, job: Job
) -> Retryable | SimulatorError:
    """What an error means: worth another try, or the end of the run. `is_lost`: the connection is."""
    # What libpq guesses on further lines is no sentence in ours.
    text = one_line(str(said).partition("\n\tThis probably means")[0])
    if passing := dialect.find_passing_error(text):
        return passing
    if code == _SERIALIZATION_FAILURE:
        return Retryable("serialization_failure", text, backoff_s=0.01)
    if code == _DEADLOCK:
        return Retryable("deadlock_detected", text, backoff_s=0.01)
    if is_lost or code in _CONNECTION_LOST or code.startswith(_CONNECTION_EXCEPTION_CLASS):
        return connection_lost(text)
    if code == _DISK_FULL:
        return SimulatorError(f"the database has no disk space left: {text}")
    if code == _TOO_MANY_CONNECTIONS:
        return SimulatorError(
            f"{text}; use fewer --workers (or connections), or raise max_connections"
        )
    if code == _LOCK_NOT_AVAILABLE:
        return SimulatorError(
            f"another session has locked the tables: {text}; end it and try again"
        )
    if code == _UNDEFINED_TABLE:
        return missing_table(text, job)
    if code in _PREPARED_STATEMENT_LOST:
        return SimulatorError(
            f"{text}; a proxy on the way doesn't keep prepared statements: set prepared_statements=false"
        )
    return SimulatorError(f"the database refused a statement ({code}): {text}")
