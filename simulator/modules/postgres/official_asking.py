"""Asks by psycopg2 or psycopg 3, as their documentation has it: `client=official`, `client=psycopg3`.

`cursor.execute` with parameters for a statement's `%s`, and `fetchall`, which makes a tuple of Python values
of each row. Each statement is a transaction of its own (autocommit). Several in flight are as many threads,
each with a connection.

https://www.psycopg.org/docs/usage.html#passing-parameters-to-sql-queries
https://www.psycopg.org/psycopg3/docs/basic/params.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import psycopg
import psycopg2

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from .._base.errors import CONNECTION_LOST
from .._base.sql_queries import Template, make_template
from ..asking import Asker, Received, Rows
from .connection import Connector, ServerError, translate
from .official import DriverConnection

if TYPE_CHECKING:
    from . import Postgres


class Question(NamedTuple):
    """What a cursor executes."""

    text: str
    values: Sequence[Any] | None
    """A value for each `%s` of the text. None: the text has none, and a `%` in it is just a `%`."""


class DriverAsker(Asker):
    """Asks what `Postgres.compile` gives, by a driver."""

    DRIVER: ClassVar[Any]
    """The driver's module."""
    module: Postgres

    def __init__(self, module: Postgres, in_flight: int) -> None:
        super().__init__(module, in_flight)
        options = module.options
        self._timeout_s = options.query_timeout_s
        self._connector = Connector(options.dsn, module.job.run_id)
        self._templates: dict[str, tuple[Template, str]] = {}
        self._connections: set[DriverConnection] = set()
        self._free: SimpleQueue[DriverConnection | None] = SimpleQueue()
        """A connection for each question that may be asked now; None: it was lost."""

    # --- requests

    def encode(self, bounds: BoundQueries) -> Sequence[Question]:
        name = bounds.query.name
        if name not in self._templates:
            template = make_template(bounds, self.module.make_statement, self.module.dialect.SQL)
            parts = [part.replace("%", "%%") for part in template.parts]
            self._templates[name] = template, "%s".join(parts)
        template, text = self._templates[name]
        if not template.places:
            return [Question("".join(template.parts), None)] * len(bounds)
        parameters = bounds.list_parameters()
        names = [[name.decode() for name in column] for column in parameters[: template.devices]]
        executions = zip(*names, *parameters[template.devices :], strict=True)
        places = template.places
        return [Question(text, [values[place] for place in places]) for values in executions]

    def encode_statement(self, statement: str) -> Question:
        return Question(statement, None)

    # --- connections

    def open(self) -> None:
        for _ in range(self.max_in_flight):
            self._free.put(self._connect())

    def _connect(self) -> DriverConnection:
        connection = self._connector.connect(self._make)
        self._connections.add(connection)
        return connection

    def _make(self, parameters: Mapping[str, Any]) -> DriverConnection:
        try:
            driver = self.DRIVER.connect(**parameters)
        except self.DRIVER.Error as error:
            raise ConnectionRefusedError(str(error)) from error
        driver.autocommit = True
        self.prepare(driver)
        return DriverConnection(driver, self.DRIVER.Error, self._timeout_s)

    def prepare(self, driver: Any) -> None:
        """Set a new connection up as the module's options say."""

    def close(self) -> None:
        idle = set()
        while not self._free.empty():
            idle.add(self._free.get())
        for connection in list(self._connections):
            connection.close(cut=connection not in idle)
        self._connections.clear()

    def recover(self) -> None:
        # The others are under way, and come back by themselves.
        for _ in range(self._free.qsize()):
            connection = self._free.get()
            try:
                connection = connection or self._connect()
            finally:
                self._free.put(connection)

    # --- asking

    def send(self, request: Question) -> Received:
        connection = self._free.get()
        try:
            connection = connection or self._connect()
            with connection.limit(self._timeout_s), connection.driver.cursor() as cursor:
                cursor.execute(request.text, request.values)
                rows = cursor.fetchall()
        except (OSError, ServerError) as error:
            meaning = translate(error, self.module.dialect, self.module.job)
            if connection is not None and _is_loss(meaning):
                self._lose(connection)
                connection = None
            raise meaning from error
        finally:
            self._free.put(connection)
        return Received(len(rows), 0, rows)

    def _lose(self, connection: DriverConnection) -> None:
        connection.close()
        # `close` may have cut it off.
        self._connections.discard(connection)
        self._connector.shorten()

    def decode(self, received: Received) -> Rows:
        rows: Rows = received.data
        return rows


def _is_loss(meaning: Retryable | SimulatorError) -> bool:
    return isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST


class Psycopg2Asker(DriverAsker):
    """psycopg2, which writes the parameters into the statement."""

    DRIVER: ClassVar = psycopg2


class Psycopg3Asker(DriverAsker):
    """psycopg 3, which sends the parameters apart, and prepares what it has executed five times."""

    DRIVER: ClassVar = psycopg

    def prepare(self, driver: Any) -> None:
        if not self.module.options.prepared_statements:
            driver.prepare_threshold = None
