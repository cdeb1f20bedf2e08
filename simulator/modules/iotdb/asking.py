"""Asks questions by sessions, one for each in flight, as a session has one statement at a time.

A statement is a call's bytes before it is due. Of an answer all blocks are received, whose heads have the
number of rows; rows are decoded to be checked, or as far as a `Computation` of the tree needs them to go on,
which is in the question's time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...errors import SimulatorError
from ...workloads.drawing import BoundQueries, BoundQuery
from .._base.row_order import Row
from .._base.sql_queries import Template, make_template
from ..asking import Asker, Received, Rows
from ..sending import note_arrival
from .answers import Answer
from .connection import Connection, Question, ServerError
from .server import ERRORS, Connector
from .thrift import ThriftError
from .tree_queries import Computation, Selection

if TYPE_CHECKING:
    from . import Iotdb
    from .models import Statement


class Request(NamedTuple):
    """A question."""

    question: Question | None
    """None: the statements follow from what is asked."""
    query: Selection | Computation | None
    """None: the rows are the answer's, as they are."""


class AnswerWithRows(Protocol):
    """An answer that has rows."""

    rows: int
    bytes: int

    def read(self) -> list[Row]:
        """The rows. Raises ThriftError if they are none."""


class Session(Protocol):
    """A `Connection`, as far as asking needs it."""

    @property
    def is_open(self) -> bool:
        """Whether it was neither closed nor cut."""

    def fetch(self, question: Question, timeout_s: float) -> AnswerWithRows:
        """As `Connection.fetch`."""

    def close(self) -> None:
        """End it; no error if that was lost already."""

    def cut(self) -> None:
        """Close it after an error, without a word."""


class Collected(NamedTuple):
    """What a statement found, as it came."""

    answer: Answer
    selection: Selection | None


class IotdbAsker(Asker):
    """Asks what `Iotdb.compile` gives."""

    module: Iotdb

    def __init__(self, module: Iotdb, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._connector = self.make_connector()
        self._timeout_s = module.options.query_timeout_s
        self._templates: dict[str, tuple[Template, Selection | None]] = {}
        self._idle: deque[Session] = deque()
        """Sessions that nobody uses. Threads may take and add some without a lock."""
        self._lost: deque[None] = deque()
        """One for each session that is to be made again."""

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Request]:
        name = bounds.query.name
        if name not in self._templates:
            first = self.module.make_statement(bounds[0])
            if isinstance(first, Computation):
                return super().encode(bounds)
            template = make_template(bounds, self._write, self.module.query_dialect)
            self._templates[name] = template, first if isinstance(first, Selection) else None
        template, selection = self._templates[name]
        dialect = self.module.query_dialect
        filled = template.fill(bounds, dialect.text, dialect.instant)
        return [Request(Question(statement), selection) for statement in filled]

    def _write(self, bound: BoundQuery) -> str:
        """The statement of a question that has one."""
        compiled = self.module.make_statement(bound)
        assert not isinstance(compiled, Computation)
        return compiled if isinstance(compiled, str) else compiled.text

    def encode_statement(self, statement: Statement) -> Request:
        if isinstance(statement, str):
            return Request(Question(statement), None)
        if isinstance(statement, Selection):
            return Request(Question(statement.text), statement)
        return Request(None, statement)

    # --- sessions

    def make_connector(self) -> Connector[Session]:
        """What makes the sessions."""
        return Connector(self.module.options, self.module.job, Connection)

    def open(self) -> None:
        self._idle.append(self._connector.connect_first())
        while len(self._idle) < self.max_in_flight:
            self._idle.append(self._connector.connect())

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def recover(self) -> None:
        while self._lost:
            self._idle.append(self._connector.connect())
            self._lost.pop()

    def _take(self) -> Session:
        """A session, which belongs to this thread until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            session = self._connector.connect()
            with suppress(IndexError):
                self._lost.pop()
            return session

    # --- asking

    def send(self, request: Request) -> Received:
        session = self._take()
        try:
            if isinstance(request.query, Computation):
                return self._compute(session, request.query)
            assert request.question is not None
            return self.collect(self._fetch(session, request.question), request.query)
        finally:
            if session.is_open:
                self._idle.append(session)
            else:
                self._lost.append(None)

    def collect(self, answer: Any, selection: Selection | None) -> Received:
        """What a statement has found."""
        if selection is not None:
            selection.expect(answer.rows)
        rows = answer.rows if selection is None else selection.count(answer)
        return Received(rows, answer.bytes, Collected(answer, selection))

    def _compute(self, session: Session, computation: Computation) -> Received:
        steps, size = computation.begin(), 0
        try:
            statement = next(steps)
            while True:
                answer = self._fetch(session, Question(statement))
                size += answer.bytes
                statement = steps.send(_read(answer))
        except StopIteration as end:
            note_arrival()
            return Received(len(end.value), size, end.value)

    def _fetch(self, session: Session, question: Question) -> AnswerWithRows:
        try:
            return session.fetch(question, self._timeout_s)
        except ERRORS as error:
            if not isinstance(error, ServerError):
                session.cut()
            raise self._connector.interpret(error) from error
        except SimulatorError:
            # The rest of what is too long would be the next one's answer.
            session.cut()
            raise

    def decode(self, received: Received) -> Rows:
        data: Collected | Rows = received.data
        if not isinstance(data, Collected):
            return data
        rows = _read(data.answer)
        return rows if data.selection is None else data.selection.read(rows)


def _read(answer: AnswerWithRows) -> list[Row]:
    try:
        return answer.read()
    except ThriftError as error:
        raise SimulatorError(f"IoTDB gave an unreadable answer: {error}") from error
