"""Sends queries over its own connections, one to each node, with many statements in flight on each.

A query's parameters are encoded before it is due; with the server's id of the prepared statement, they become
an EXECUTE. A device's statement goes to a node that has its partition. All pages of an answer are received,
with the driver's default page size; their headers have the number of rows. Rows are decoded only for checks,
or where a `Plan` needs them for its next step, which counts in the query's time.

Formats: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from cassandra import RequestValidationException
from cassandra.protocol import ErrorMessage, ExecuteMessage, PreparedQueryNotFound, ProtocolHandler

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries
from ...workloads.schema import ColumnType
from ..kit.series import Row
from ..own_statements import find_own_statement
from ..sending import (
    Asker,
    Completion,
    Received,
    Request,
    Rows,
    explain_length,
    most_answer_bytes,
)
from .encoding import CONSISTENCY_CODES, Prepared, begin_execute
from .pool import PooledChannel
from .queries import Plan, Selection, Statement, Steps
from .server import AT_ONCE, ERRORS, ClusterSession, is_late
from .wire import RESULT, Connection, Node, Reply

if TYPE_CHECKING:
    from . import Cassandra

# Section 4.1.4.
_WITH_VALUES, _WITHOUT_COLUMNS, _WITH_PAGE_SIZE, _WITH_STATE = 0x01, 0x02, 0x04, 0x08
_ASKING = _WITH_VALUES | _WITHOUT_COLUMNS | _WITH_PAGE_SIZE
_PAGE_ROWS = 5000
"""As the driver's `default_fetch_size`."""

_INT, _SHORT = struct.Struct("!i"), struct.Struct("!H")
_PAGE_SIZE = _INT.pack(_PAGE_ROWS)
_VALUES: dict[ColumnType, Callable[[Any], bytes]] = {
    ColumnType.TEXT: str.encode,
    ColumnType.TIMESTAMP_MS: struct.Struct("!q").pack,
    ColumnType.INT64: struct.Struct("!q").pack,
    ColumnType.INT32: _INT.pack,
    ColumnType.FLOAT32: struct.Struct("!f").pack,
    ColumnType.FLOAT64: struct.Struct("!d").pack,
}

# Section 4.2.5.2, and 2.2 for what can stand before it.
_HEAD = struct.Struct("!3i")
"""Kind of a result, flags, number of columns."""
_ROWS = 2
_MORE, _NO_COLUMNS, _CHANGED = 0x02, 0x04, 0x08
_TRACED, _PAYLOAD, _WARNED = 0x02, 0x04, 0x08


class Execution(NamedTuple):
    """One execution of a statement, ready to send except for the statement's id."""

    partition: bytes | None
    """The key of the partition that it reads; None: several."""
    values: bytes


class PreparedQuestion:
    """A prepared statement."""

    def __init__(
        self, prepared: Prepared, values: int, consistency: str, protocol_version: int
    ) -> None:
        """`values`: the number of its parameters."""
        self.prepared = prepared
        self.version = protocol_version
        code = _SHORT.pack(CONSISTENCY_CODES[consistency])
        self._first, self._next = (
            begin_execute(prepared, code, flags, values, protocol_version)
            for flags in (_ASKING, _ASKING | _WITH_STATE)
        )

    def execute(self, values: bytes, following: bytes | None = None) -> bytes:
        """The body of an EXECUTE for the first page, or for the page `following`."""
        if following is None:
            return b"".join((self._first, values, _PAGE_SIZE))
        return b"".join((self._next, values, _PAGE_SIZE, _INT.pack(len(following)), following))


class Answer(NamedTuple):
    """The raw answer to a statement."""

    statement: PreparedQuestion
    pages: Sequence[Reply]


def encode_executions(statement: Statement, parameters: Sequence[Row]) -> list[Execution]:
    """One execution of a statement for each row of `parameters`."""
    packed = [_pack(statement, values) for values in parameters]
    # The first parameter of a partition's statement is its key.
    of_partition = statement.kinds[:1] == (ColumnType.TEXT,)
    return [Execution(values[0] if of_partition else None, _join(values)) for values in packed]


def encode_block(selection: Selection, bounds: BoundQueries) -> Iterator[list[Execution]]:
    """The executions of a block's queries about devices, which differ from the first, `selection`, only in
    devices and windows."""
    assert bounds.devices is not None
    windows: Iterator[bytes] = iter([b""] * len(bounds))
    behind = 1
    if bounds.start_ms is not None and bounds.end_ms is not None:
        pack = _VALUES[ColumnType.TIMESTAMP_MS]
        starts = map(pack, bounds.start_ms.tolist())
        ends = map(pack, (bounds.end_ms - 1).tolist())
        windows, behind = map(_join, zip(starts, ends, strict=True)), 3
    limits = _join(_pack(selection.statement, selection.parameters[0])[behind:])
    return (
        [Execution(name, _join([name]) + window + limits) for name in names]
        for names, window in zip(bounds.devices.tolist(), windows, strict=True)
    )


def _pack(statement: Statement, values: Row) -> list[bytes]:
    return [_VALUES[kind](value) for kind, value in zip(statement.kinds, values, strict=True)]


def _join(packed: Iterable[bytes]) -> bytes:
    return b"".join([_INT.pack(len(value)) + value for value in packed])


def read_page(reply: Reply) -> tuple[int, bytes | None]:
    """The number of a page's rows, and the state for the next page, if there is one, from the page's header;
    SimulatorError if it isn't a page with rows."""
    flags, body = reply
    try:
        at = _skip(flags, body) if flags & (_TRACED | _PAYLOAD | _WARNED) else 0
        kind, flags, _ = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        following = None
        if flags & _MORE:
            (size,) = _INT.unpack_from(body, at)
            at += _INT.size
            following = body[at : at + size]
            at += size
        if flags & _CHANGED:
            at += _SHORT.size + _SHORT.unpack_from(body, at)[0]
        (rows,) = _INT.unpack_from(body, at)
    except struct.error as error:
        raise SimulatorError("Cassandra's answer ends too early") from error
    if kind != _ROWS or not flags & _NO_COLUMNS:
        raise SimulatorError("Cassandra's answer lacks the rows of the prepared statement")
    return rows, following


def _skip(flags: int, body: bytes) -> int:
    """Where the result begins, after a trace id, warnings and custom payloads."""
    at = 16 if flags & _TRACED else 0
    for flag in (_WARNED, _PAYLOAD):
        if flags & flag:
            (count,) = _SHORT.unpack_from(body, at)
            at += _SHORT.size
            for _ in range(count):
                at += _SHORT.size + _SHORT.unpack_from(body, at)[0]
                if flag == _PAYLOAD:
                    at += _INT.size + max(0, _INT.unpack_from(body, at)[0])
    return at


def read_rows(answer: Answer) -> list[Row]:
    """The rows of an answer; SimulatorError if it isn't in the expected form."""
    rows: list[Row] = []
    columns = list(answer.statement.prepared.columns)
    try:
        for page in answer.pages:
            message = ProtocolHandler.decode_message(
                answer.statement.version, {}, 0, page.flags, RESULT, page.body, None, columns
            )
            rows += message.parsed_rows
    except (*ERRORS, EOFError, ValueError, TypeError, LookupError) as error:
        raise SimulatorError(f"Cassandra's answer can't be read: {one_line(error)}") from error
    return rows


_EXECUTE: int = ExecuteMessage.opcode


class Executions(NamedTuple):
    """One execution of a query."""

    question: Statement | Plan
    executions: Sequence[Execution]


@dataclass(slots=True, eq=False)
class _Question:
    """A query in flight."""

    request: Request
    steps: Steps | None = None
    text: str = ""
    prepared: PreparedQuestion | None = None
    may_be_late: bool = False
    executions: Sequence[Execution] = ()
    sent: int = 0
    under_way: int = 0
    parts: list[list[Reply] | None] = field(default_factory=list)
    """The pages of each execution that have arrived; None: the server timed out."""
    rows: int = 0
    bytes: int = 0
    is_over: bool = False


class _Sent(NamedTuple):
    """An EXECUTE in flight."""

    question: _Question
    number: int
    following: bytes | None = None
    """The page that it requests; None: the first."""
    is_again: bool = False
    """Whether the node had forgotten the statement."""


class CassandraAsker(PooledChannel, Asker):
    """Sends the queries of `Cassandra.compile`. It uses the module session's knowledge of the cluster."""

    module: Cassandra

    def __init__(self, module: Cassandra, in_flight: int = 1) -> None:
        super().__init__(module, in_flight)
        self._expected: dict[str, None] = {}
        self._statements: dict[str, PreparedQuestion] = {}

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Executions]:
        first = self.module.make_statement(bounds[0])
        is_own = find_own_statement(self.module.own_names, bounds.query) is not None
        if is_own or isinstance(first, Plan) or bounds.devices is None or not first.parameters:
            return super().encode(bounds)
        statement = self._expect(first.statement)
        return (Executions(statement, executions) for executions in encode_block(first, bounds))

    def encode_statement(self, statement: Selection | Plan) -> Executions:
        if isinstance(statement, Plan):
            return Executions(statement, ())
        executions = encode_executions(statement.statement, statement.parameters)
        return Executions(self._expect(statement.statement), executions)

    def _expect(self, statement: Statement) -> Statement:
        self._expected[statement.text] = None
        return statement

    # --- connections

    @property
    def session(self) -> ClusterSession:
        return self.module.connection

    def open(self) -> None:
        session = self.session
        try:
            for text in self._expected:
                # A query whose statement is refused gets the error.
                with suppress(RequestValidationException, ErrorMessage):
                    self._prepare(text)
        except ERRORS as error:
            raise session.refuse(error) from error
        self.connect_pool(session.topology, self._connect, self.module.options.query_timeout)

    def _connect(self, node: Node) -> Connection:
        """A connection to a node on which the statements are prepared. Works in any thread."""
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

    # --- asking

    def submit(self, request: Request) -> None:
        asked: Executions = request.data
        if isinstance(asked.question, Statement):
            statement = self._statements.get(asked.question.text)
            if statement is not None and len(asked.executions) == 1:
                # Most have one page, so nothing else is needed.
                partition, values = asked.executions[0]
                self.pool.send(partition, _EXECUTE, statement.execute(values), request)
                return
            self._ask(_Question(request), asked.question.text, asked.executions)
        else:
            self._go_on(_Question(request, self.module.begin(asked.question)))

    def end(self, request: Request | _Sent, answer: Reply | Exception, arrived_s: float) -> bool:
        if isinstance(request, _Sent):
            if not request.question.is_over:
                self._take(request, answer, arrived_s)
            return False
        asked: Executions = request.data
        assert isinstance(asked.question, Statement)
        text = asked.question.text
        prepared = self._statements[text]
        if isinstance(answer, Reply) and len(answer.body) <= most_answer_bytes():
            with suppress(SimulatorError):
                rows, following = read_page(answer)
                if following is None:
                    received = Received(rows, len(answer.body), Answer(prepared, [answer]))
                    self.pool.found.append(Completion(request, rows, arrived_s, None, received))
                    return False
        question = _Question(request, None, text, prepared, False, asked.executions, 1, 1, [[]])
        self._take(_Sent(question, 0), answer, arrived_s)
        return False

    def _go_on(self, question: _Question, answered_s: float | None = None) -> None:
        """End a query whose statement is answered. For a plan, let the client process the answers (there are
        none at the start) and send the next statements."""
        if question.steps is None:
            self._end(question, self._collect(question), answered_s)
            return
        parts: Any = None
        try:
            if question.prepared is not None:
                parts = [
                    None if pages is None else read_rows(Answer(question.prepared, pages))
                    for pages in question.parts
                ]
            step = question.steps.send(parts)
        except StopIteration as end:
            # Ended only now: the client's part counts in the query's time.
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
        """Have the query's statement prepared. False if that fails, which ends the query."""
        try:
            question.prepared = self._prepare(question.text, again)
        except ERRORS as error:
            self._end(question, self.module.connection.translate(error))
        except Retryable as error:
            self._end(question, error)
        return not question.is_over

    def _send_more(self, question: _Question) -> None:
        while question.sent < len(question.executions) and question.under_way < AT_ONCE:
            self._send(_Sent(question, question.sent))
            question.sent += 1

    def _send(self, sent: _Sent) -> None:
        question = sent.question
        assert question.prepared is not None
        question.under_way += 1
        partition, values = question.executions[sent.number]
        body = question.prepared.execute(values, sent.following)
        self.pool.send(partition, _EXECUTE, body, sent)

    def _take(self, sent: _Sent, result: Reply | Exception, answered_s: float) -> None:
        question, number, _, is_again = sent
        question.under_way -= 1
        if isinstance(result, PreparedQueryNotFound) and not is_again:
            # The node has forgotten it, as it forgets all statements on an altered table. It wasn't executed.
            if self._name(question, again=True):
                self._send(sent._replace(is_again=True))
            return
        if isinstance(result, Exception):
            if not (question.may_be_late and is_late(result)):
                self._end(question, self.module.connection.translate(result), answered_s)
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
            self._go_on(question, answered_s)

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
        if isinstance(result, Received):
            completion = Completion(question.request, result.rows, at_s, None, result)
        else:
            completion = Completion(question.request, 0, at_s, result)
        self.pool.found.append(completion)

    def decode(self, received: Received) -> Rows:
        data: Answer | Rows = received.data
        return read_rows(data) if isinstance(data, Answer) else data
