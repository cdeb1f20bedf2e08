"""Connections through libpq, as bound by psycopg, to any server with PostgreSQL's protocol: addresses,
opening, statements, closing.

Only connecting waits inside libpq: otherwise the socket is polled, so that each wait has a limit. Events
(`libpq_pipeline`) and measured queries (`libpq_lines`) are sent in other ways.
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Protocol, TypeVar

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import AfterValidator, Field

from ...errors import SimulatorError, one_line
from ..waiting import limit_wait, stamp_arrivals
from .sql_queries import quote_text

# The buffer size of a Unix socket, as far as the kernel allows: the default is too small for a batch of 1,000
# wide rows, and each further piece of a request costs a wait. TCP adapts its own.
_UNIX_SEND_BYTES = 1 << 22


# --- connection strings -----------------------------------------------------------------------------

_SECRET_KEYS = ("password", "sslpassword")


def parse_dsn(dsn: str) -> dict[str, str]:
    """The parts of a connection string or URL, by libpq's names; psycopg's ProgrammingError if it is
    invalid."""
    return {name: str(value) for name, value in conninfo_to_dict(dsn).items()}


def _check_dsn(dsn: str) -> str:
    try:
        parts = parse_dsn(dsn)
    except psycopg.ProgrammingError:
        # libpq may quote the string itself, including the password: only the kind of error is kept.
        raise ValueError("is not a libpq connection string or URL") from None
    if "://" in dsn and "@" in parts.get("dbname", ""):
        # It would be taken for the end of the address, and the rest of the password for a database.
        raise ValueError("contains a `/` in its password: write it as %2F")
    return dsn


ConnectionString = Annotated[str, Field(min_length=1), AfterValidator(_check_dsn)]
"""A libpq connection string or URL."""


def public_dsn(dsn: str) -> str:
    """The connection string with its password starred out."""
    parts = parse_dsn(dsn)
    for secret in _SECRET_KEYS:
        if secret in parts:
            parts[secret] = "***"
    return make_conninfo("", **parts)


def list_secrets(dsn: str) -> list[str]:
    """The passwords in a connection string."""
    parts = parse_dsn(dsn)
    return list(dict.fromkeys(parts[key] for key in _SECRET_KEYS if key in parts))


def server_name(dsn: str) -> str:
    """host:port of a connection string, for messages."""
    parts = parse_dsn(dsn)
    return f"{parts.get('host', 'the local socket')}:{parts.get('port', '5432')}"


# --- errors -----------------------------------------------------------------------------------------


class ServerError(Exception):
    """An error from the server."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        """https://www.postgresql.org/docs/current/errcodes-appendix.html"""


_TOLD = (
    ("", pq.DiagnosticField.MESSAGE_PRIMARY),
    ("DETAIL: ", pq.DiagnosticField.MESSAGE_DETAIL),
    ("HINT: ", pq.DiagnosticField.MESSAGE_HINT),
)


def _compose_error(read: Callable[[pq.DiagnosticField], bytes | None]) -> ServerError:
    """The error with these fields: https://www.postgresql.org/docs/current/protocol-error-fields.html"""
    fields = [(name, read(field)) for name, field in _TOLD]
    text = "\n".join(name + octets.decode(errors="replace") for name, octets in fields if octets)
    code = read(pq.DiagnosticField.SQLSTATE) or b""
    return ServerError(code.decode(), text or "an error without a message")


def make_error(result: pq.abc.PGresult) -> ServerError | ConnectionResetError:
    """The error of a failed request's result: the server's, or libpq's for a lost connection."""
    if result.error_field(pq.DiagnosticField.SQLSTATE) is None:
        return lost(result.get_error_message())
    return _compose_error(result.error_field)


def read_error(body: bytes) -> ServerError:
    """The error in an ErrorResponse."""
    fields = {part[0]: part[1:] for part in body.split(b"\0") if part}
    return _compose_error(fields.get)


def lost(reason: object) -> ConnectionResetError:
    """The error for a lost connection. libpq's guesses on further lines are left out, since they aren't
    sentences of ours."""
    return ConnectionResetError(str(reason).partition("\n\tThis probably means")[0].strip())


def no_answer(timeout_s: float) -> TimeoutError:
    """The error for an answer that takes too long."""
    return TimeoutError(f"no answer within {timeout_s:g} s")


def fill(statement: str, values: Sequence[Any]) -> str:
    """The statement with these constants for its `%s`: not every statement of a dialect accepts
    parameters."""
    return statement % tuple(map(write_constant, values)) if values else statement


def write_constant(value: Any) -> str:
    """A number, a text or a list of texts in a statement."""
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(write_constant, value))}]::text[]"
    return str(value) if isinstance(value, int | float) else quote_text(str(value))


# --- a connection -----------------------------------------------------------------------------------


def list_types(result: pq.abc.PGresult) -> list[int]:
    """The types of a result's columns, by their OIDs."""
    return [result.ftype(column) for column in range(result.nfields)]


class Connection:
    """A connection through libpq, for one thread. Raises OSError when it is lost or an answer takes too long:
    it must be closed then; `ServerError` if the server refuses a statement."""

    def __init__(
        self, parameters: Mapping[str, Any], timeout_s: float, *, stamped: bool = False
    ) -> None:
        """Connect; OSError if the connection is refused. `parameters`: libpq's; `timeout_s`: for an answer;
        `stamped`: the kernel timestamps answers, if it can."""
        try:
            # libpq's own call would hold the interpreter's lock meanwhile.
            self._made = psycopg.connect(autocommit=True, **parameters)
        except psycopg.Error as error:
            raise ConnectionRefusedError(str(error).removeprefix("connection failed: ")) from error
        self.pg = self._made.pgconn
        self.socket = socket.socket(fileno=os.dup(self.pg.socket))
        """The same socket as libpq's, with a descriptor of its own."""
        if self.socket.family == socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_SEND_BYTES)
        self.descriptor = self.socket.fileno()
        """For poll."""
        self._timeout_s = timeout_s
        self.stamped = stamped and stamp_arrivals(self.socket)
        self._poll = select.poll()

    @property
    def is_encrypted(self) -> bool:
        """Whether only libpq can read and write here. A login with GSSAPI may have encrypted it, too."""
        return bool(self.pg.ssl_in_use or self.pg.used_gssapi)

    def close(self, *, cut: bool = False) -> None:
        """Close the connection. `cut`: a request is in flight; the server must not take a Terminate message
        for the rest of it."""
        if cut:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._made.close()

    def read(self) -> None:
        """Read what has arrived, without waiting."""
        try:
            self.pg.consume_input()
        except psycopg.Error as error:
            raise lost(error) from error

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer, if it has any. `values`: constants for its `%s`."""
        result = self._request(self.pg.send_query, fill(statement, values).encode())
        decoder = Transformer()
        decoder.set_pgresult(result)
        return decoder.load_rows(0, result.ntuples, tuple)

    def prepare(self, name: bytes, statement: bytes, types: Sequence[int]) -> None:
        """Prepare a statement whose parameters have these types (OIDs)."""
        self._request(self.pg.send_prepare, name, statement, types)

    def describe(self, name: bytes) -> list[int]:
        """The types of the columns of a prepared statement's answer, by their OIDs."""
        return list_types(self._request(self.pg.send_describe_prepared, name))

    def _request(self, send: Callable[..., None], *values: Any) -> pq.abc.PGresult:
        """Send with a function of libpq, and wait for the result."""
        try:
            send(*values)
        except psycopg.Error as error:
            # It only refuses to send on a lost connection.
            raise lost(error) from error
        return self.finish()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to read, or room for unsent data."""
        events = select.POLLIN | (select.POLLOUT if self.pg.flush() else 0)
        self._poll.register(self.descriptor, events)
        if timeout_s <= 0 or not self._poll.poll(timeout_s * 1000):
            raise no_answer(self._timeout_s)

    def finish(self) -> pq.abc.PGresult:
        """The result of the statement in flight; raises its errors."""
        until_s = time.monotonic() + limit_wait(self._timeout_s)
        last: pq.abc.PGresult | None = None
        while True:
            while self.pg.is_busy():
                self.wait(until_s - time.monotonic())
                self.read()
            result = self.pg.get_result()
            if result is None:
                break
            last = result
        if last is None:
            raise lost(self.pg.get_error_message())
        if last.status == pq.ExecStatus.FATAL_ERROR:
            raise make_error(last)
        return last


# --- connecting -------------------------------------------------------------------------------------

_RECONNECT_S = (2, 2, 4)
_FEWEST_S = 2
"""libpq has no shorter limit."""


class Asked(Protocol):
    """A connection for statements: `Connection`, or a driver's."""

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer. Raises OSError or `ServerError`."""

    def close(self) -> None:
        """Close the connection."""


ConnectionT = TypeVar("ConnectionT", bound=Asked)


class Connector:
    """Connects and reconnects. The time limit for an attempt is that of the connection string, but shorter
    for the first ones after a connection was lost.

    While the pod behind a Kubernetes service is being replaced, packets may go to the old pod for good
    (conntrack keeps the route of each connection by its ports). A new attempt finds the new pod.
    """

    def __init__(self, dsn: str, run_id: str, settings: Mapping[str, str]) -> None:
        """`settings`: of each session, by names in lower case."""
        self._dsn = dsn
        self._run_id = run_id
        wanted = ", ".join(
            f"({quote_text(name)}, {quote_text(value)})" for name, value in settings.items()
        )
        self._set = wanted and (
            "SELECT set_config(wanted.name, value, false)"
            f" FROM (VALUES {wanted}) AS wanted (name, value)"
            " JOIN pg_settings ON lower(pg_settings.name) = wanted.name"
        )
        """Sets those that the server knows: an older one, or a relative, lacks some. Not with connection
        parameters, which PgBouncer refuses."""
        self._left_s: Sequence[int] = ()

    def shorten(self) -> None:
        """A connection was lost: start with the shortest limit."""
        self._left_s = _RECONNECT_S

    def connect(self, make: Callable[[Mapping[str, Any]], ConnectionT]) -> ConnectionT:
        """The result of `make` for libpq's parameters, with the session's settings; SimulatorError with the
        server's name and a remedy if that fails."""
        # The next limit is longer only if this one was used up.
        limit_s = self._left_s[0] if self._left_s else None
        left_s = limit_wait(math.inf)
        if left_s < (limit_s or math.inf):
            limit_s = max(_FEWEST_S, round(left_s))
        began_s = time.monotonic()
        try:
            return self._begin(make(list_parameters(self._dsn, self._run_id, limit_s)))
        except (OSError, ServerError) as error:
            raise SimulatorError(explain_refusal(self._dsn, str(error).strip())) from error
        finally:
            # A refusal takes no time, but the next attempt may hang. Times may be rounded down to whole
            # seconds, so that 2 can be little more than 1.
            if limit_s is not None and time.monotonic() - began_s >= limit_s / 2:
                self._left_s = self._left_s[1:]

    def connect_to(self, host: str, port: int) -> Connection:
        """A connection to another node of a cluster; OSError if there is none."""
        node = {"host": host, "port": port, "connect_timeout": "3"}
        return self._begin(Connection(list_parameters(self._dsn, self._run_id) | node, _NODE_S))

    def _begin(self, connection: ConnectionT) -> ConnectionT:
        """Set a new session's settings. Raises OSError or `ServerError`."""
        try:
            if self._set:
                connection.ask(self._set)
        except (OSError, ServerError):
            connection.close()
            raise
        return connection


_NODE_S = 10.0
"""The time limit for another node's answer."""


def list_parameters(dsn: str, run_id: str, limit_s: int | None = None) -> dict[str, Any]:
    """Connection parameters, by libpq's names. `limit_s`: the longest time for connecting to a host, if the
    connection string allows more."""
    defaults = {
        "connect_timeout": "10",
        "application_name": f"iot-benchmark {run_id}",
        # A vanished server is noticed within about 25 s, not after the kernel's two hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        # The same for one that vanished during sending, to which keepalives don't apply.
        "tcp_user_timeout": "25000",
        # A result would not show PGOPTIONS from the user's shell, and a pod doesn't have it.
        "options": "",
    }
    # Everything is UTF-8, whatever the database, the role or PGCLIENTENCODING sets.
    parameters: dict[str, Any] = defaults | parse_dsn(dsn) | {"client_encoding": "UTF8"}
    # Less than 1 means no limit: https://www.postgresql.org/docs/current/libpq-connect.html
    if limit_s and not 0 < int(parameters["connect_timeout"]) < limit_s:
        parameters["connect_timeout"] = str(limit_s)
    return parameters


def explain_refusal(dsn: str, reason: str) -> str:
    """One line for a failed connection: libpq's message for its first attempt, and a remedy."""
    reason = one_line(reason.splitlines()[0])
    if "password" in reason or "authentication" in reason:
        remedy = "check user and password in connection_string"
    elif "pg_hba.conf" in reason:
        remedy = "allow this host and user in pg_hba.conf, or change user or sslmode"
    elif "too many" in reason or "remaining connection slots" in reason:
        remedy = "use fewer --workers (or connections), or raise the server's max_connections"
    elif "does not exist" in reason:
        remedy = "check dbname and user in connection_string"
    else:
        remedy = "check that the server runs and that connection_string names it"
    return f"can't connect to the database at {server_name(dsn)}: {reason}; {remedy}"
