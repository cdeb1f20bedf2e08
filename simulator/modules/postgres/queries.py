"""Sends queries, each prepared once on each connection; each query in flight has its own connection."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from psycopg import pq
from psycopg.adapt import Transformer

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from ..base import AnyModule
from ..kit.libpq import Connection, Connector, ServerError, no_answer
from ..kit.libpq_lines import (
    INT8_OID,
    LibpqLine,
    Line,
    MessageLine,
    Prepared,
    Question,
    make_binder,
    make_text_question,
    read_rows,
)
from ..kit.multiplexer import Multiplexer
from ..kit.sql_queries import make_template
from ..sending import Asker, Completion, Received, Request, Rows
from .dialects import Dialect
from .encoding import ServerOptions
from .server import is_lost, translate


class PostgresAsker(Multiplexer, Asker):
    """Sends the queries of `Postgres.compile`."""

    RESULTS: ClassVar[pq.Format] = pq.Format.TEXT
    """The format of values in answers to prepared statements."""

    def __init__(
        self,
        module: AnyModule,
        in_flight: int,
        options: ServerOptions,
        dialect: Dialect,
        plans_anew: Callable[[BoundQueries], bool] = lambda _: False,
    ) -> None:
        """`module`: compiles the statements; `options`, `dialect`: of the server; `plans_anew`: whether a
        query is sent as text each time."""
        Multiplexer.__init__(self, options.query_timeout_s)
        Asker.__init__(self, module, in_flight)
        self._plans_anew = plans_anew
        self._dialect = dialect
        self._is_prepared = options.prepared_statements
        self._connector = Connector(options.dsn, module.job.run_id, dialect.SESSION)
        self._statements: dict[str, Prepared] = {}
        self._makers: dict[str, Callable[..., Question]] = {}
        """For each query, the function that makes a request from an execution's parameters."""
        self._lines: list[Line] = []
        self._idle: deque[Line] = deque()
        """Idle connections."""
        self._asked: dict[int, tuple[Line, Request]] = {}
        """Descriptor -> the connection and its query in flight."""

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question]:
        name = bounds.query.name
        if name not in self._makers:
            self._makers[name] = self._choose_maker(bounds)
        make, parameters = self._makers[name], bounds.list_parameters()
        return map(make, *parameters) if parameters else [make()] * len(bounds)

    def _choose_maker(self, bounds: BoundQueries) -> Callable[..., Question]:
        dialect = self._dialect.SQL
        template = make_template(bounds, self.module.make_statement, dialect)
        if self._plans_anew(bounds) or not self._is_prepared:
            return lambda *values: make_text_question(
                template.join(lambda place: self._write(values[place]))
            )
        used = sorted(set(template.places))
        numbers = {place: f"${number}" for number, place in enumerate(used, 1)}
        text = template.join(numbers.__getitem__)
        types = tuple(0 if place < template.devices else INT8_OID for place in used)
        statement = self._name(text, types)
        return make_binder(statement, used, template.devices)

    def _write(self, value: Any) -> str:
        dialect = self._dialect.SQL
        return dialect.text(value.decode()) if isinstance(value, bytes) else dialect.instant(value)

    def encode_statement(self, statement: str) -> Question:
        if self._is_prepared:
            return make_binder(self._name(statement, ()), (), 0)()
        return make_text_question(statement)

    def _name(self, text: str, types: tuple[int, ...]) -> Prepared:
        """The name of a statement, which is prepared from now on."""
        statements = self._statements
        if text not in statements:
            statements[text] = Prepared(
                b"ask%d" % len(statements), text.encode(), types, self.RESULTS
            )
        return statements[text]

    # --- connections

    def open(self) -> None:
        self._connect_all()

    def recover(self, request: Request) -> bool:
        self._connect_all()
        return False

    def _connect_all(self) -> None:
        while len(self._lines) < self.max_in_flight:
            line = self._connect()
            self._lines.append(line)
            self._idle.append(line)

    def _connect(self) -> Line:
        stamped = self.module.job.stamps_arrivals
        connection = self._connector.connect(
            lambda parameters: Connection(parameters, self._timeout_s, stamped=stamped)
        )
        is_encrypted = connection.is_encrypted
        # Over TLS, receiving doesn't wait.
        self.blocks = self.max_in_flight == 1 and not is_encrypted
        line = LibpqLine(connection) if is_encrypted else MessageLine(connection, self._timeout_s)
        for statement in self._statements.values():
            try:
                line.prepare(statement)
            except ServerError:
                # The query with this statement gets the error.
                continue
            except OSError as error:
                raise self._explain(error) from error
        return line

    def close(self) -> None:
        for line in self._lines:
            self.forget(line.descriptor)
            line.connection.close(cut=line.descriptor in self._asked)
        self._lines = []
        self._idle.clear()
        self._asked.clear()

    def _explain(self, error: OSError | ServerError) -> Retryable | SimulatorError:
        return translate(error, self._dialect, self.module.job)

    # --- asking

    @property
    def is_busy(self) -> bool:
        return bool(self._asked)

    def submit(self, request: Request) -> None:
        if not self._idle:
            try:
                self._connect_all()
            except (Retryable, SimulatorError) as error:
                self.found.append(Completion(request, 0, time.perf_counter(), error))
                return
        line = self._idle.popleft()
        self._asked[line.descriptor] = line, request
        try:
            line.send(request.data)
        except (OSError, ServerError) as error:
            self._fail(line, request, error)
        else:
            self.watch(line.descriptor)

    def serve(self, descriptor: int, events: int) -> None:
        asked = self._asked.get(descriptor)
        if asked is None:
            # On an idle connection, all that a server can report is its end.
            self._lose(next(line for line in self._idle if line.descriptor == descriptor))
            return
        line, request = asked
        try:
            received = line.receive()
        except (OSError, ServerError, SimulatorError) as error:
            self._fail(line, request, error)
            return
        if received is not None:
            del self._asked[descriptor]
            self._idle.append(line)
            self.found.append(Completion(request, received.rows, line.arrived_s, None, received))

    def end_late(self, now_s: float) -> None:
        for line, request in list(self._asked.values()):
            if request.sent_s + self._timeout_s <= now_s:
                self._fail(line, request, no_answer(self._timeout_s))

    def _fail(self, line: Line, request: Request, error: Exception) -> None:
        """A query has failed; the connection may be lost as well."""
        del self._asked[line.descriptor]
        if isinstance(error, OSError | ServerError):
            error = self._explain(error)
            is_over = is_lost(error)
        else:
            is_over = True
        if is_over:
            self._lose(line)
        else:
            self._idle.append(line)
        self.found.append(Completion(request, 0, time.perf_counter(), error))

    def _lose(self, line: Line) -> None:
        self.forget(line.descriptor)
        if line in self._idle:
            self._idle.remove(line)
        line.connection.close(cut=True)
        self._lines.remove(line)
        self._connector.shorten()

    # --- answers

    def decode(self, received: Received) -> Rows:
        types, data = received.data
        if isinstance(data, list):
            return read_rows(types, b"".join(data), self.RESULTS)
        decoder = Transformer()
        decoder.set_pgresult(data)
        return decoder.load_rows(0, received.rows, tuple)
