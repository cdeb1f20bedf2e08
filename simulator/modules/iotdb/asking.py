"""Asks questions by sessions, one for each in flight, as a session has one statement at a time.

A statement is a call's bytes before it is due. Of an answer all blocks are received, whose heads have the
number of rows; rows are decoded to be checked, or as far as a `Computation` of the tree needs them to go on,
which is in the question's time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import SimulatorError
from ...workloads.drawing import BoundQueries, BoundQuery
from .._base.row_order import Row
from .._base.sql_queries import Template, make_template
from ..asking import Asker, Received, Rows
from ..sending import note_arrival
from .answers import Answer
from .connection import Connection, Question, ServerError
from .server import ERRORS, Sessions
from .thrift import ThriftError
from .tree_queries import Computation, Selection

if TYPE_CHECKING:
    from . import Iotdb
    from .models import Statement
    from .official import OfficialAnswer, OfficialSession

    Session: TypeAlias = Connection | OfficialSession


class IotdbAsker(Asker):
    """Asks what `Iotdb.compile` gives."""

    module: Iotdb

    def __init__(self, module: Iotdb, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._sessions = self.make_sessions()
        self._idle = self._sessions.idle
        self._timeout_s = module.options.query_timeout_s
        self._templates: dict[str, tuple[Template, Selection | None]] = {}
        self._lost: deque[None] = deque()
        """One for each session that is to be made again."""

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question | Computation]:
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
        return [Question(statement, selection) for statement in filled]

    def _write(self, bound: BoundQuery) -> str:
        """The statement of a question that has one."""
        compiled = self.module.make_statement(bound)
        assert not isinstance(compiled, Computation)
        return compiled if isinstance(compiled, str) else compiled.text

    def encode_statement(self, statement: Statement) -> Question | Computation:
        if isinstance(statement, Selection):
            return Question(statement.text, statement)
        return Question(statement) if isinstance(statement, str) else statement

    # --- sessions

    def make_sessions(self) -> Sessions[Any]:
        """The sessions to be used: each like a `Connection`."""
        return Sessions(self.module.options, self.module.job, Connection)

    def open(self) -> None:
        self._sessions.open(self.max_in_flight)

    def close(self) -> None:
        self._sessions.close()

    def recover(self) -> None:
        while self._lost:
            self._idle.append(self._sessions.connect())
            self._lost.pop()

    def _take(self) -> Session:
        """A session, which belongs to this thread until it is given back."""
        try:
            session: Session = self._idle.pop()
        except IndexError:
            session = self._sessions.connect()
            with suppress(IndexError):
                self._lost.pop()
        return session

    # --- asking

    def send(self, request: Question | Computation) -> Received:
        session = self._take()
        try:
            if isinstance(request, Computation):
                return self._compute(session, request)
            return self.collect(self._fetch(session, request), request.selection)
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
        return Received(rows, answer.bytes, (answer, selection))

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

    def _fetch(self, session: Session, question: Question) -> Answer | OfficialAnswer:
        try:
            return session.fetch(question, self._timeout_s)
        except ERRORS as error:
            if not isinstance(error, ServerError):
                session.cut()
            raise self._sessions.interpret(error) from error
        except SimulatorError:
            # The rest of what is too long would be the next one's answer.
            session.cut()
            raise

    def decode(self, received: Received) -> Rows:
        data: tuple[Answer, Selection | None] | list[Row] = received.data
        if isinstance(data, list):
            return data
        answer, selection = data
        rows = _read(answer)
        return rows if selection is None else selection.read(rows)


def _read(answer: Answer | OfficialAnswer) -> list[Row]:
    try:
        return answer.read()
    except ThriftError as error:
        raise SimulatorError(f"IoTDB gave an unreadable answer: {error}") from error
