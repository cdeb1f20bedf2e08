"""Asks questions by connections of its own, one to each node, with many statements under way on each.

A question's parameters are bytes before it is due; with the id that the server gave the prepared statement,
they are an EXECUTE. A device's statement goes to a node that has its partition. Of an answer, all pages are
received, of as many rows as the driver asks for by default; their heads have the number of rows. Rows are
decoded to be checked, or as far as a `Plan` needs them to go on, which is in the question's time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from cassandra import RequestValidationException
from cassandra.protocol import ErrorMessage, ExecuteMessage, PreparedQueryNotFound

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from ..asking import Asker, Received, Rows, explain_length, most_answer_bytes
from ..own_statements import find_own_statement
from ..sending import Outcome, note_arrival
from .encoding import Prepared
from .executions import (
    Answer,
    Execution,
    PreparedQuestion,
    encode_block,
    encode_executions,
    read_page,
    read_rows,
)
from .pool import ConnectionPool
from .server import AT_ONCE, ERRORS, RECONNECT_S, is_late
from .statements import Parts, Plan, Selection, Statement, Steps
from .wire import Connection, Node, Reply

if TYPE_CHECKING:
    from . import Cassandra

_EXECUTE: int = ExecuteMessage.opcode


class Request(NamedTuple):
    """A question."""

    question: Statement | Plan
    executions: Sequence[Execution]
    """The executions of a statement."""


@dataclass(slots=True, eq=False)
class _Question:
    """A question that is under way."""

    token: object
    steps: Steps | None = None
    """The steps of a plan."""
    text: str = ""
    """The statement that is being asked."""
    prepared: PreparedQuestion | None = None
    may_be_late: bool = False
    executions: Sequence[Execution] = ()
    sent: int = 0
    """How many executions have been sent."""
    under_way: int = 0
    parts: list[list[Reply] | None] = field(default_factory=list)
    """The pages of each execution, as far as they have come; None: it took the server too long."""
    rows: int = 0
    bytes: int = 0
    is_over: bool = False


class _Sent(NamedTuple):
    """An EXECUTE that is under way."""

    question: _Question
    number: int
    """The number of the execution."""
    following: bytes | None = None
    """Which page it asks for; None: the first."""
    is_again: bool = False
    """Whether the node had forgotten the statement."""


class CassandraAsker(Asker):
    """Asks what `Cassandra.compile` gives. It uses what the module's session knows of the cluster."""

    module: Cassandra
    _pool: ConnectionPool | None = None

    def __init__(self, module: Cassandra, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._expected: dict[str, None] = {}
        """Statements that will be asked."""
        self._statements: dict[str, PreparedQuestion] = {}
        self._found: list[Outcome[Received]] = []

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Request]:
        first = self.module.make_statement(bounds[0])
        is_own = find_own_statement(type(self.module), bounds.query) is not None
        if is_own or isinstance(first, Plan) or bounds.devices is None or not first.parameters:
            return super().encode(bounds)
        statement = self._expect(first.statement)
        return [Request(statement, executions) for executions in encode_block(first, bounds)]

    def encode_statement(self, statement: Selection | Plan) -> Request:
        if isinstance(statement, Plan):
            return Request(statement, ())
        executions = encode_executions(statement.statement, statement.parameters)
        return Request(self._expect(statement.statement), executions)

    def _expect(self, statement: Statement) -> Statement:
        """Note a statement that will be asked."""
        self._expected[statement.text] = None
        return statement

    # --- connections

    def open(self) -> None:
        self._pool = ConnectionPool(
            self.module.connection.topology,
            self._connect,
            self.module.options.query_timeout,
            lambda error: error,
        )
        try:
            for text in self._expected:
                # Whoever asks a refused statement gets the error.
                with suppress(RequestValidationException, ErrorMessage):
                    self._prepare(text)
            self._pool.open()
        except ERRORS as error:
            raise self.module.connection.refuse(error) from error

    def _connect(self, node: Node) -> Connection:
        """A connection to a node, which has the statements prepared. Works in any thread."""
        names = {text: statement.prepared for text, statement in dict(self._statements).items()}
        return self.module.connection.connect(node, list(names), names)

    def _prepare(self, text: str, again: bool = False) -> PreparedQuestion:
        """A prepared statement. Raises `ERRORS`; Retryable if no node answers."""
        statement = self._statements.get(text)
        if statement is None or again:
            self._statements.pop(text, None)
            session = self.module.session
            prepared = session.prepare(text, again)
            names = prepared.query_id, prepared.result_metadata_id or b""
            statement = PreparedQuestion(
                Prepared(*names, prepared.result_metadata or ()),
                len(prepared.column_metadata or ()),
                self.module.options.consistency_level,
                session.version,
            )
            self._statements[text] = statement
        return statement

    def _translate(self, error: Exception) -> Retryable | SimulatorError:
        return self.module.connection.translate(error)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @property
    def pool(self) -> ConnectionPool:
        """The connections of an open asker."""
        assert self._pool is not None
        return self._pool

    def recover(self) -> None:
        try:
            self.pool.await_connection(RECONNECT_S)
        except ERRORS as error:
            raise self._translate(error) from error

    # --- asking

    def send(self, request: Request) -> Received:
        executions = request.executions
        text = request.question.text if isinstance(request.question, Statement) else ""
        statement = self._statements.get(text)
        if statement is None or len(executions) != 1:
            self.submit(request, None)
        elif received := self._send_alone(_Question(None, None, text, statement), executions):
            return received
        while not (ended := self.outcomes(None)):
            continue
        result = ended[0].result
        if isinstance(result, BaseException):
            raise result
        return result

    def _send_alone(self, question: _Question, executions: Sequence[Execution]) -> Received | None:
        """Ask one execution while nothing else is under way. Returns its answer if that has one page, as most
        have; None: `outcomes` tells how it goes on."""
        assert question.prepared is not None
        question.executions, question.sent, question.parts = executions, 1, [[]]
        sent = _Sent(question, 0)
        self._send(sent)
        outcome = None
        while outcome is None:
            # Other outcomes are of questions that are over.
            outcomes = self.pool.outcomes(None)
            outcome = next((outcome for outcome in outcomes if outcome.request is sent), None)
        result: Any = outcome.result
        if isinstance(result, Reply) and len(result.body) <= most_answer_bytes():
            rows, following = read_page(result)
            if following is None:
                return Received(rows, len(result.body), Answer(question.prepared, [result]))
        self._take(sent, result, outcome.answered_s)
        return None

    def submit(self, request: Request, token: object) -> None:
        question = _Question(token)
        if isinstance(request.question, Statement):
            self._ask(question, request.question.text, request.executions)
        else:
            question.steps = self.module.begin(request.question)
            self._go_on(question, None)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[Received]]:
        until_s = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        while not self._found:
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                break
            for outcome in self.pool.outcomes(None if left_s == math.inf else left_s):
                sent: _Sent = outcome.request
                if not sent.question.is_over:
                    result: Any = outcome.result
                    self._take(sent, result, outcome.answered_s)
        outcomes, self._found = self._found, []
        return outcomes

    def stop_submitting(self) -> None:
        """What is under way is cut off by `close`."""

    def _go_on(self, question: _Question, parts: Parts | None) -> None:
        """Let the client do its part with these answers, and ask what follows."""
        assert question.steps is not None
        try:
            step = next(question.steps) if parts is None else question.steps.send(parts)
        except StopIteration as end:
            note_arrival()
            self._end(question, Received(len(end.value), question.bytes, end.value))
        except (Retryable, SimulatorError) as error:
            self._end(question, error)
        else:
            question.may_be_late = step.may_be_late
            executions = encode_executions(step.statement, step.parameters)
            self._ask(question, step.statement.text, executions)

    def _ask(self, question: _Question, text: str, executions: Sequence[Execution]) -> None:
        question.text, question.executions, question.sent = text, executions, 0
        question.parts = [[] for _ in executions]
        if not self._name(question):
            return
        self._send_more(question)
        if not executions:
            self._end(question, self._collect(question))

    def _name(self, question: _Question, again: bool = False) -> bool:
        """Have the question's statement prepared. False if it can't be, which ends the question."""
        try:
            question.prepared = self._prepare(question.text, again)
        except ERRORS as error:
            self._end(question, self._translate(error))
        except Retryable as error:
            self._end(question, error)
        return not question.is_over

    def _send_more(self, question: _Question) -> None:
        """Send as many executions as may be under way."""
        while question.sent < len(question.executions) and question.under_way < AT_ONCE:
            self._send(_Sent(question, question.sent))
            question.sent += 1

    def _send(self, sent: _Sent) -> None:
        """Ask for a page of an execution."""
        question = sent.question
        assert question.prepared is not None
        question.under_way += 1
        partition, values = question.executions[sent.number]
        body = question.prepared.execute(values, sent.following)
        self.pool.submit(partition, _EXECUTE, body, sent, None)

    def _take(self, sent: _Sent, result: Reply | Exception, answered_s: float) -> None:
        """Take in the answer to one execution."""
        question, number, _, is_again = sent
        question.under_way -= 1
        if isinstance(result, PreparedQueryNotFound) and not is_again:
            # The node has forgotten it, as all of a table that was altered. It has not been executed.
            if self._name(question, again=True):
                self._send(sent._replace(is_again=True))
            return
        if isinstance(result, Exception):
            if not (question.may_be_late and is_late(result)):
                self._end(question, self._translate(result), answered_s)
                return
            question.parts[number] = None
        else:
            try:
                rows, following = read_page(result)
            except SimulatorError as error:
                self._end(question, error, answered_s)
                return
            question.rows += rows
            question.bytes += len(result.body)
            part = question.parts[number]
            assert part is not None
            part.append(result)
            if question.bytes > most_answer_bytes():
                self._end(question, explain_length(question.bytes), answered_s)
                return
            if following is not None:
                self._send(_Sent(question, number, following))
                return
        if question.sent < len(question.executions):
            self._send_more(question)
        elif not question.under_way:
            self._finish(question, answered_s)

    def _finish(self, question: _Question, answered_s: float) -> None:
        """Go on when all of a statement's executions are answered."""
        if question.steps is None:
            self._end(question, self._collect(question), answered_s)
            return
        assert question.prepared is not None
        try:
            parts = [
                None if pages is None else read_rows(Answer(question.prepared, pages))
                for pages in question.parts
            ]
        except SimulatorError as error:
            self._end(question, error)
            return
        self._go_on(question, parts)

    def _collect(self, question: _Question) -> Received:
        assert question.prepared is not None
        pages = list(chain.from_iterable(pages or () for pages in question.parts))
        return Received(question.rows, question.bytes, Answer(question.prepared, pages))

    def _end(
        self,
        question: _Question,
        result: Received | Retryable | SimulatorError,
        answered_s: float | None = None,
    ) -> None:
        question.is_over = True
        at_s = time.perf_counter() if answered_s is None else answered_s
        self._found.append(Outcome(question.token, at_s, result))

    def decode(self, received: Received) -> Rows:
        data: Answer | Rows = received.data
        return read_rows(data) if isinstance(data, Answer) else data
