"""What is measured: inserts and queries, with a session for each request in flight, since a session has one
request at a time.

A query is encoded as a call before it is due. All blocks of its answer are received; their headers have the
number of rows. Rows are decoded only for checks, or where a `Computation` of the tree needs them for its next
step, which counts in the query's time.
"""

from __future__ import annotations

import select
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries, BoundQuery
from ..kit.multiplexer import Multiplexer
from ..kit.series import Row
from ..kit.sql_queries import Template, make_template, quote_text
from ..own_statements import Literals
from ..sending import Asker, Channel, Completion, Received, Request, Rows, Writer
from ..waiting import limit_wait
from .connection import Connection, Question, Steps
from .queries import Computation, Selection
from .schema import Model, quote
from .server import ERRORS, Server
from .thrift import Answer, ThriftError

if TYPE_CHECKING:
    from . import Iotdb


_UnderWay = tuple[Connection, Request, Steps[int | Received], float]
"""A request in flight on a session, its remaining steps, and when it was sent."""


class SessionChannel(Multiplexer, Channel):
    """Sends requests over sessions."""

    _server: Server | None = None

    def __init__(self, module: Iotdb, in_flight: int, timeout_s: float) -> None:
        """`timeout_s`: for an answer."""
        Multiplexer.__init__(self, timeout_s)
        self.max_in_flight = in_flight
        self.blocks = in_flight == 1
        self._connect = module.connect
        self._under_way: dict[int, _UnderWay] = {}
        """By the session's descriptor."""

    @abstractmethod
    def begin(self, request: Request, session: Connection) -> Steps[int | Received]:
        """The steps of a request, and its result: events that are stored, or what was received."""

    @property
    def server(self) -> Server:
        """The data nodes, of an open channel."""
        assert self._server is not None
        return self._server

    def open(self) -> None:
        self._server = self._connect()
        self._server.fill(self.max_in_flight)

    def close(self) -> None:
        self.finish()
        self.end_late(inf)
        if self._server is not None:
            self._server.close()
            self._server = None

    def recover(self, request: Request) -> bool:
        self.server.restore()
        return False

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    def submit(self, request: Request) -> None:
        now_s = time.perf_counter()
        try:
            session = self.server.take()
        except (Retryable, SimulatorError) as error:
            self.found.append(Completion(request, 0, now_s, error))
            return
        session.limit(limit_wait(self._timeout_s, request.deadline_s))
        session.waits = self.blocks
        self._go_on((session, request, self.begin(request, session), now_s), deque([None]))

    def serve(self, descriptor: int, events: int) -> None:
        under_way = self._under_way[descriptor]
        session = under_way[0]
        try:
            if events & select.POLLOUT:
                session.flush()
            if events & ~select.POLLOUT:
                session.receive()
        except (OSError, ThriftError) as error:
            self._end(under_way, error)
        else:
            self._go_on(under_way, session.frames)

    def _go_on(self, under_way: _UnderWay, frames: deque[Any]) -> None:
        """Send what follows these frames; None: send the first message."""
        session, _, steps, _ = under_way
        try:
            while frames:
                session.send(steps.send(frames.popleft()))
        except StopIteration as end:
            self._end(under_way, end.value)
        except (*ERRORS, SimulatorError) as error:
            self._end(under_way, error)
        else:
            self._under_way[session.descriptor] = under_way
            self.watch(session.descriptor, session.is_full)

    def end_late(self, now_s: float) -> None:
        for under_way in list(self._under_way.values()):
            if under_way[0].late_s <= now_s:
                self._end(under_way, TimeoutError())

    def _end(self, under_way: _UnderWay, result: int | Received | Exception) -> None:
        session, request, _, sent_s = under_way
        # It may be closed, and its descriptor reused.
        self.forget(session.descriptor)
        self._under_way.pop(session.descriptor, None)
        at_s, server = session.arrived_s, self.server
        if isinstance(result, Exception):
            server.give_back(session, result)
            error = server.interpret(result) if isinstance(result, ERRORS) else result
            ended = Completion(request, 0, time.perf_counter(), error, None, sent_s)
        else:
            server.give_back(session)
            if isinstance(result, int):
                ended = Completion(request, result, at_s, None, None, sent_s)
            else:
                ended = Completion(request, result.rows, at_s, None, result, sent_s)
        self.found.append(ended)


class IotdbWriter(SessionChannel, Writer):
    """Sends an encoder's payloads. Rows are overwritten by equal rows, so a request with an unknown outcome
    is sent again."""

    def __init__(self, module: Iotdb) -> None:
        options, job = module.options, module.job
        Writer.__init__(self, module.encoder(options, job))
        SessionChannel.__init__(
            self, module, options.in_flight(job.load), options.request_timeout_s
        )

    def begin(self, request: Request, session: Connection) -> Steps[int | Received]:
        return session.insert(request.data, request.events)


class IotdbAsker(SessionChannel, Asker):
    """Sends the queries of `Iotdb.compile`."""

    module: Iotdb

    def __init__(self, module: Iotdb, in_flight: int = 1) -> None:
        Asker.__init__(self, module, in_flight)
        SessionChannel.__init__(self, module, in_flight, module.options.query_timeout_s)
        self._templates: dict[str, tuple[Template, Selection | None]] = {}
        self._literals = Literals(quote if module.options.model is Model.TREE else quote_text, str)

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question | Computation]:
        name = bounds.query.name
        if name not in self._templates:
            first = self.module.make_statement(bounds[0])
            if isinstance(first, Computation):
                return super().encode(bounds)
            template = make_template(bounds, self._write, self._literals)
            self._templates[name] = template, first if isinstance(first, Selection) else None
        template, selection = self._templates[name]
        filled = template.fill(bounds, self._literals.text, self._literals.instant)
        return (Question(statement, selection) for statement in filled)

    def _write(self, bound: BoundQuery) -> str:
        return self.module.describe_statement(self.module.make_statement(bound))

    def encode_statement(self, statement: str | Selection | Computation) -> Question | Computation:
        if isinstance(statement, Selection):
            return Question(statement.text, statement)
        return Question(statement) if isinstance(statement, str) else statement

    # --- asking

    def begin(self, request: Request, session: Connection) -> Steps[int | Received]:
        asked: Question | Computation = request.data
        if isinstance(asked, Computation):
            return self._compute(asked, session)
        return self._ask(asked, session)

    def _ask(self, question: Question, session: Connection) -> Steps[int | Received]:
        selection = question.selection
        answer = yield from session.fetch(question, self._timeout_s)
        rows = answer.rows if selection is None else selection.count(answer)
        return Received(rows, answer.bytes, (answer, selection))

    def _compute(self, computation: Computation, session: Connection) -> Steps[int | Received]:
        size, steps = 0, computation.begin()
        try:
            statement = next(steps)
            while True:
                answer = yield from session.fetch(Question(statement), self._timeout_s)
                size += answer.bytes
                statement = steps.send(answer.read())
        except StopIteration as end:
            rows: list[Row] = end.value
        return Received(len(rows), size, rows)

    def decode(self, received: Received) -> Rows:
        data: tuple[Answer, Selection | None] | list[Row] = received.data
        if isinstance(data, list):
            return data
        answer, selection = data
        rows = answer.read()
        return rows if selection is None else selection.read(rows)
