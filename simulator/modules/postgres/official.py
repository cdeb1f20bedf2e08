"""psycopg2 and psycopg 3, as in their documentation: `client=official`, `client=psycopg3`.

Inserts are one call per request, each in its own transaction, with the drivers' defaults. A lost connection
is handled as on the lean path: its backend is ended, and the request in doubt is looked up.

Queries use `cursor.execute` with parameters for a statement's `%s`, and `fetchall`, which makes a tuple of
Python values of each row. Each statement is its own transaction (autocommit). Each query in flight has a
thread with a connection.

https://www.psycopg.org/docs/extras.html#fast-execution-helpers
https://www.psycopg.org/docs/cursor.html#cursor.copy_expert
https://www.psycopg.org/docs/usage.html#passing-parameters-to-sql-queries
https://www.psycopg.org/psycopg3/docs/basic/copy.html
https://www.psycopg.org/psycopg3/docs/basic/params.html
"""

from __future__ import annotations

import io
import math
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import psycopg2
from psycopg2.extras import execute_values

from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from ...workloads.schema import EventBlock
from ..kit.libpq import Connector, ServerError, fill, lost, no_answer
from ..kit.module import ConnectedModule
from ..kit.official import ClientAsker, Rows, RowsEncoder, sent_columns
from ..kit.sql_queries import Template, make_template
from ..options import InsertMode
from ..sending import Completion, Request
from ..sending import Rows as Answers
from ..waiting import limit_wait
from .dialects import Dialect
from .encoding import ServerOptions
from .server import translate
from .writer import PostgresWriter

if TYPE_CHECKING:
    from . import Postgres

DRIVERS: Mapping[str, Any] = {"official": psycopg2, "psycopg3": psycopg}
"""Value of the option `client` -> the driver's module."""

_LONGEST_PAUSE_S = 1.0

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
"""https://www.postgresql.org/docs/current/sql-copy.html, "Text Format"."""


class DriverConnection:
    """A driver's connection, with the interface of `Connection`.

    libpq waits for an answer as long as the connection lives, and a stalling proxy keeps it alive. So a
    thread shuts the connection's socket down when a request has taken too long, and the waiting call ends
    with an error, as for any lost connection.
    """

    def __init__(self, module: Any, parameters: Mapping[str, Any], limit_s: float) -> None:
        """Connect; OSError if the connection is refused. `module`: the driver's; `parameters`: libpq's;
        `limit_s`: for a statement."""
        try:
            self.driver = module.connect(**parameters)
            status = module is psycopg2 and self.driver.get_parameter_status(
                "standard_conforming_strings"
            )
            if status == "off":
                # It continues to write texts in the way that was right when it connected.
                self.driver.close()
                standard = f"{parameters['options']} -c standard_conforming_strings=on"
                self.driver = module.connect(**{**parameters, "options": standard})
        except module.Error as error:
            raise ConnectionRefusedError(str(error)) from error
        self.driver.autocommit = True
        self._error: type[Exception] = module.Error
        self._limit_s = self._waits_s = limit_s
        self._due_s = math.inf
        """The deadline of the request in flight."""
        self._is_cut = False
        self._lock = threading.Lock()
        """A descriptor may be reused once its connection is closed."""
        self._is_over = threading.Event()
        threading.Thread(None, self._watch, "watchdog", daemon=True).start()

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self.limit(limit_wait(self._limit_s)), self.driver.cursor() as cursor:
            cursor.execute(fill(statement, values))
            return cursor.fetchall() if cursor.description else []

    def close(self, *, cut: bool = False) -> None:
        """Close the connection. `cut`: another thread waits for an answer, for which closing would wait as
        well."""
        with self._lock:
            self._is_over.set()
            if cut:
                self._shut_down()
        with suppress(self._error):
            self.driver.close()

    @contextmanager
    def limit(self, timeout_s: float) -> Iterator[None]:
        """Limits a request's time; OSError or `ServerError` for the driver's errors."""
        self._waits_s = timeout_s
        self._due_s = time.monotonic() + timeout_s
        try:
            yield
        except self._error as error:
            raise self._explain(error) from error
        finally:
            self._due_s = math.inf

    def _explain(self, error: Any) -> OSError | ServerError:
        if self._is_cut:
            return no_answer(self._waits_s)
        code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        # A killed server closes the connection without a message: psycopg2 reports this as an error without a
        # code, and the connection as open until it is used again.
        is_unspecific = type(error).__name__ in ("OperationalError", "DatabaseError")
        if self.driver.closed or (is_unspecific and code is None):
            return lost(error)
        return ServerError(code or "", str(error))

    def _watch(self) -> None:
        while not self._is_over.wait(min(_LONGEST_PAUSE_S, self._limit_s / 4)):
            with self._lock:
                if time.monotonic() < self._due_s or self._is_over.is_set():
                    continue
                self._is_cut, self._due_s = True, math.inf
                self._shut_down()

    def _shut_down(self) -> None:
        """End the wait for the server."""
        # libpq owns the connection's own descriptor.
        with (
            suppress(OSError, self._error),
            socket.socket(fileno=os.dup(self.driver.fileno())) as stream,
        ):
            stream.shutdown(socket.SHUT_RDWR)


# --- inserts ---------------------------------------------------------------------------------------


class LinesEncoder(RowsEncoder):
    """A payload's data: rows as lines of a COPY, built value by value, as in an application."""

    def list_values(self, block: EventBlock) -> Sequence[str]:
        return ["\t".join(map(_write_value, row)) + "\n" for row in super().list_values(block)]


def _write_value(value: object) -> str:
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    return "\\N" if value is None else str(value)


class DriverWriter(PostgresWriter):
    """Inserts with a driver: psycopg2's `copy_expert`, `execute_values`, `executemany` and `execute`, or
    psycopg 3's `copy` with `write_row`, `executemany` and `execute`."""

    def __init__(self, module: Postgres) -> None:
        options, job = module.options, module.job
        self._driver = DRIVERS[options.client]
        self._mode = module.mode
        copies_text = self._driver is psycopg2 and self._mode is InsertMode.COPY
        encoder = (LinesEncoder if copies_text else RowsEncoder)(job)
        super().__init__(encoder, options, job, module.dialect)
        sent = sent_columns(job)
        columns = ", ".join(map(quote_name, sent))
        insert = "INSERT INTO {table} ({columns}) VALUES "
        form = {
            InsertMode.COPY: "COPY {table} ({columns}) FROM STDIN",
            InsertMode.VALUES_LISTS: insert + "%s",
        }.get(self._mode, f"{insert}({', '.join(['%s'] * len(sent))})")
        names = [(quote_name(table), columns) for table in job.table_names]
        if self._mode is not InsertMode.COPY:
            # Statements with values are formatted by the drivers.
            names = [(table.replace("%", "%%"), own.replace("%", "%%")) for table, own in names]
        self._statements = [form.format(table=table, columns=own) for table, own in names]

    def connect(self, parameters: Mapping[str, Any]) -> DriverConnection:
        return DriverConnection(self._driver, parameters, self._timeout_s)

    def begin(self, connection: DriverConnection) -> DriverSender:
        # The drivers' default; single inserts are committed one by one.
        connection.driver.autocommit = self._mode is InsertMode.SINGLE
        return DriverSender(connection, self.insert)

    def insert(self, driver: Any, parts: Sequence[Rows]) -> None:
        """All parts in one transaction."""
        with driver.cursor() as cursor:
            for part in parts:
                self._insert(cursor, self._statements[part.table], part.values)
        if self._mode is not InsertMode.SINGLE:
            driver.commit()

    def _insert(self, cursor: Any, statement: str, rows: Sequence[Any]) -> None:
        """One part, with the driver's documented method."""
        if self._mode is InsertMode.VALUES_LISTS:
            execute_values(cursor, statement, rows)
        elif self._mode is InsertMode.TRANSACTION:
            cursor.executemany(statement, rows)
        elif self._mode is InsertMode.SINGLE:
            cursor.execute(statement, rows[0])
        elif self._driver is psycopg2:
            cursor.copy_expert(statement, io.StringIO("".join(rows)))
        else:
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)


class DriverSender:
    """Sends requests with a driver, one at a time."""

    is_full: bool = False

    def __init__(
        self, connection: DriverConnection, insert: Callable[[Any, Sequence[Rows]], None]
    ) -> None:
        self.descriptor: int = connection.driver.fileno()
        self.under_way: deque[Request] = deque()
        self._connection = connection
        self._insert = insert
        self._waits_s = math.inf
        self._ended: Completion | OSError | None = None

    def wait_up_to(self, timeout_s: float) -> bool:
        self._waits_s = timeout_s
        return True

    def submit(self, request: Request) -> None:
        """Returns when the request is answered."""
        self.under_way.append(request)
        try:
            error = self._store(request.data)
        except OSError as lost_by:
            self._ended = lost_by
        else:
            stored = request.events if error is None else 0
            self._ended = Completion(request, stored, time.perf_counter(), error)

    def _store(self, data: Sequence[Rows]) -> ServerError | None:
        connection = self._connection
        try:
            with connection.limit(self._waits_s):
                self._insert(connection.driver, data)
        except ServerError as error:
            with connection.limit(self._waits_s):
                connection.driver.rollback()
            return error
        return None

    def flush(self) -> None:
        """A driver sends everything at once."""

    def receive(self) -> list[Completion]:
        ended, self._ended = self._ended, None
        assert ended is not None
        if isinstance(ended, OSError):
            raise ended
        self.under_way.popleft()
        return [ended]


# --- queries ----------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A statement for a cursor."""

    text: str
    values: Sequence[Any] | None
    """A value for each `%s` of the text. None: the text has none, and a `%` in it is just a `%`."""


class DriverAsker(ClientAsker[Any]):
    """Sends the queries of `Postgres.compile` with a driver: psycopg2, which writes the parameters into the
    statement, or psycopg 3, which sends them separately, and prepares statements after five executions."""

    def __init__(
        self,
        module: ConnectedModule[Any, Any],
        in_flight: int,
        options: ServerOptions | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        """`module`: compiles the statements; `options`, `dialect`: of the server, if they aren't the module's
        own."""
        super().__init__(module, in_flight)
        self._options: ServerOptions = options or module.options
        self._dialect: Dialect = dialect or self._options.find_dialect()
        self._timeout_s = self._options.query_timeout_s
        self._connector = Connector(self._options.dsn, module.job.run_id, self._dialect.SESSION)
        self._templates: dict[str, tuple[Template, str]] = {}
        self._connections: set[DriverConnection] = set()

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question]:
        name = bounds.query.name
        if name not in self._templates:
            template = make_template(bounds, self.module.make_statement, self._dialect.SQL)
            parts = [part.replace("%", "%%") for part in template.parts]
            self._templates[name] = template, "%s".join(parts)
        template, text = self._templates[name]
        if not template.places:
            return [Question("".join(template.parts), None)] * len(bounds)
        parameters = bounds.list_parameters()
        names = [[name.decode() for name in column] for column in parameters[: template.devices]]
        executions = zip(*names, *parameters[template.devices :], strict=True)
        places = template.places
        return (Question(text, [values[place] for place in places]) for values in executions)

    def encode_statement(self, statement: str) -> Question:
        return Question(statement, None)

    # --- connections

    def open(self) -> None:
        # Without the module's own connection: this one checks the login.
        self._connect_all()

    def recover(self, request: Request) -> bool:
        self._connect_all()
        return False

    def _connect_all(self) -> None:
        while len(self._connections) < self.max_in_flight:
            self._idle.append(self.make_client())

    def make_client(self) -> DriverConnection:
        options = self._options
        driver = DRIVERS[options.client]
        connection = self._connector.connect(
            lambda parameters: DriverConnection(driver, parameters, self._timeout_s)
        )
        if driver is psycopg and not options.prepared_statements:
            connection.driver.prepare_threshold = None
        self._connections.add(connection)
        return connection

    def close(self) -> None:
        self.end_threads()
        for connection in list(self._connections):
            connection.close(cut=connection not in self._idle)
        self._connections.clear()
        self._idle.clear()

    def close_client(self, client: DriverConnection) -> None:
        client.close()
        # `close` may have cut it off.
        self._connections.discard(client)
        self._connector.shorten()

    # --- asking

    def execute(self, client: DriverConnection, statement: Question) -> Answers:
        with client.limit(self._timeout_s), client.driver.cursor() as cursor:
            cursor.execute(statement.text, statement.values)
            rows: Answers = cursor.fetchall()
            return rows

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        if isinstance(error, OSError | ServerError):
            return translate(error, self._dialect, self.module.job)
        return None
