"""Asks questions, each prepared once on each connection; several in flight by as many connections."""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

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
from ..kit.sql_queries import make_template
from ..sending import Outcome, PolledAsker, Received, Rows
from ..waiting import find_arrival
from .dialects import Dialect
from .encoding import ServerOptions
from .server import is_lost, translate

if TYPE_CHECKING:
    pass


class PostgresAsker(PolledAsker):
    """Asks what `Postgres.compile` gives."""

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
        """`module`: makes the statements; `options`, `dialect`: how to connect, and to what; `plans_anew`:
        whether a query is asked by its text each time."""
        super().__init__(module, in_flight, options.query_timeout_s)
        self._plans_anew = plans_anew
        self._dialect = dialect
        self._is_prepared = options.prepared_statements
        self._connector = Connector(options.dsn, module.job.run_id, dialect.SESSION)
        self._statements: dict[str, Prepared] = {}
        self._makers: dict[str, Callable[..., Question]] = {}
        """What makes a question of an execution's parameters, for each query."""
        self._lines: list[Line] = []
        self._idle: deque[Line] = deque()
        """Lines by which nothing is under way."""
        self._asked: dict[int, tuple[Line, object, float]] = {}
        """Descriptor -> what is under way there, the caller's name for it, and when it was sent."""

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
        """A statement that is prepared from now on."""
        statements = self._statements
        if text not in statements:
            statements[text] = Prepared(
                b"ask%d" % len(statements), text.encode(), types, self.RESULTS
            )
        return statements[text]

    # --- connections

    def open(self) -> None:
        self.recover()

    def _connect(self) -> Line:
        stamped = self.module.job.stamps_arrivals
        connection = self._connector.connect(
            lambda parameters: Connection(parameters, self._timeout_s, stamped=stamped)
        )
        kind = LibpqLine if connection.is_encrypted else MessageLine
        line = kind(connection, self._timeout_s)
        for statement in self._statements.values():
            try:
                line.prepare(statement)
            except ServerError:
                # Whoever asks this statement is told.
                continue
            except OSError as error:
                raise self._explain(error) from error
        return line

    def close(self) -> None:
        for line in self._lines:
            line.connection.close(cut=line.descriptor in self._asked)
        self._lines = []
        self._idle.clear()
        self._asked.clear()

    def recover(self) -> None:
        while len(self._lines) < self.max_in_flight:
            line = self._connect()
            self._lines.append(line)
            self._idle.append(line)
            if self.max_in_flight > 1:
                self._poll.register(line.descriptor, select.POLLIN)

    def _lose(self, line: Line) -> None:
        if self.max_in_flight > 1:
            self._poll.unregister(line.descriptor)
        if line in self._idle:
            self._idle.remove(line)
        line.connection.close(cut=True)
        self._lines.remove(line)
        self._connector.shorten()

    def _explain(self, error: OSError | ServerError) -> Retryable | SimulatorError:
        return translate(error, self._dialect, self.module.job)

    def _fail(self, line: Line, error: Exception) -> Retryable | SimulatorError:
        """What an error that came by a connection means; the connection may be lost by it."""
        if isinstance(error, SimulatorError):
            self._lose(line)
            return error
        assert isinstance(error, OSError | ServerError)
        meaning = self._explain(error)
        if is_lost(meaning):
            self._lose(line)
        return meaning

    # --- asking

    def begin(self, request: Question) -> None:
        if not self._lines:
            self.recover()
        line = self._lines[0]
        try:
            line.send(request)
        except (OSError, ServerError) as error:
            raise self._fail(line, error) from error

    def finish(self) -> Received:
        line = self._lines[0]
        try:
            return line.finish()
        except (OSError, ServerError, SimulatorError) as error:
            raise self._fail(line, error) from error

    def submit(self, request: Question, token: object) -> None:
        sent_s = time.perf_counter()
        if not self._idle:
            try:
                self.recover()
            except (Retryable, SimulatorError) as error:
                self._found.append(Outcome(token, sent_s, error))
                return
        line = self._idle.popleft()
        self._asked[line.descriptor] = line, token, sent_s
        try:
            line.send(request)
        except (OSError, ServerError) as error:
            self._end(line, token, sent_s, error)

    def list_asked(self) -> Iterable[tuple[int, float]]:
        return ((descriptor, sent_s) for descriptor, (_, _, sent_s) in self._asked.items())

    def take(self, descriptor: int) -> None:
        pending = self._asked.get(descriptor)
        if pending is None:
            # By an idle line, a server has nothing to say but that it hangs up.
            self._lose(next(line for line in self._idle if line.descriptor == descriptor))
            return
        try:
            result = pending[0].receive()
        except (OSError, ServerError, SimulatorError) as error:
            self._end(*pending, error)
        else:
            if result is not None:
                self._end(*pending, result)

    def _end(self, line: Line, token: object, sent_s: float, result: Received | Exception) -> None:
        """The question by this connection is over."""
        del self._asked[line.descriptor]
        self._idle.append(line)
        if isinstance(result, Exception):
            failure = self._fail(line, result)
            self._found.append(Outcome(token, time.perf_counter(), failure))
        else:
            self._found.append(Outcome(token, find_arrival(sent_s), result))

    def end_late(self, descriptor: int) -> None:
        self._end(*self._asked[descriptor], no_answer(self._timeout_s))

    # --- answers

    def decode(self, received: Received) -> Rows:
        types, data = received.data
        if isinstance(data, list):
            return read_rows(types, b"".join(data), self.RESULTS)
        decoder = Transformer()
        decoder.set_pgresult(data)
        return decoder.load_rows(0, received.rows, tuple)
