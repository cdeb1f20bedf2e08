"""Asks questions, each prepared once on each connection; several in flight by as many connections.

Without TLS, the messages go beside libpq, which makes the connection and prepares: a question and its answer
are a system call each, and an answer is taken in by its end alone, whatever its length. Over TLS they go by
libpq.
"""

from __future__ import annotations

import math
import re
import select
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQueries
from .._base.errors import CONNECTION_LOST
from .._base.sql_queries import Template, make_template
from ..asking import Asker, Received, Rows, explain_length, most_answer_bytes
from ..sending import TIMEOUTS, Outcome, Poll, find_arrival, limit_waits, receive_stamped
from .connection import Connection, Connector, ServerError, lost, no_answer, translate
from .pipeline import read_error

if TYPE_CHECKING:
    from . import Postgres

_INT8_OID = 20
_HEADER = struct.Struct("!cI")
"""Kind, and length of what follows together with the length's own four bytes."""
_LENGTH, _SHORT, _INT8 = struct.Struct("!i"), struct.Struct("!h"), struct.Struct("!q")
_SYNC = _HEADER.pack(b"S", 4)
_EXECUTE = _HEADER.pack(b"E", 9) + b"\0" + _LENGTH.pack(0) + _SYNC
"""All rows of the portal without a name."""
_ALL_BINARY = _SHORT.pack(1) + _SHORT.pack(pq.Format.BINARY)
"""How many formats a Bind names for the columns of the answer, and the only one."""
_MOST_BYTES = 1 << 18
"""Read at once."""
_READY = (b"Z\0\0\0\x05I", b"Z\0\0\0\x05T", b"Z\0\0\0\x05E")
_COMPLETE = re.compile(rb"C\0\0\0.SELECT (\d+)\0Z\0\0\0\x05[ITE]\Z", re.DOTALL)
"""How an answer ends. Within rows of text values these bytes can't be, wherever a read ends: texts have no
zeros, and as a row's length and number of columns they would be more than the 1 GB that a row can have.
Binary numbers that spell this are none that anybody stores."""
_TAIL_BYTES = 48


class Prepared(NamedTuple):
    """A statement that each connection prepares once."""

    name: bytes
    text: bytes
    types: tuple[int, ...]
    """Of its parameters, by OIDs; 0: as the server infers it."""
    results: pq.Format = pq.Format.TEXT
    """What its answers' values are to be."""


class Question(NamedTuple):
    """A request."""

    statement: Prepared | None
    """None: by the simple protocol, `message` has its text."""
    message: bytes
    """Without TLS."""
    values: Sequence[bytes]
    """Over TLS: the parameters."""


class Line(ABC):
    """A connection by which one question is under way at a time. Raises OSError when it is lost or an answer
    takes too long, `ServerError` for what the server refuses."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.descriptor = connection.descriptor
        self.columns: dict[Prepared, Sequence[int]] = {}
        """The statements that are prepared, and the types of their answers' columns."""

    def prepare(self, statement: Prepared) -> Sequence[int]:
        """Prepare a statement, unless it is; the types of its answers' columns."""
        if statement not in self.columns:
            self.connection.prepare(statement.name, statement.text, statement.types)
            self.columns[statement] = self.connection.describe(statement.name)
        return self.columns[statement]

    @abstractmethod
    def send(self, question: Question) -> None:
        """Send it, whole."""

    def finish(self) -> Received:
        """Wait for the answer."""
        while True:
            self.wait()
            if received := self.receive():
                return received

    @abstractmethod
    def wait(self) -> None:
        """Wait until there is something to receive, if `receive` doesn't."""

    @abstractmethod
    def receive(self) -> Received | None:
        """Read what has come; the answer, if that was the rest of it."""


class MessageLine(Line):
    """Messages beside libpq: https://www.postgresql.org/docs/current/protocol-flow.html"""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        super().__init__(connection)
        self._socket = connection.socket
        self._stamped = connection.stamped
        self._timeout_s = timeout_s
        self._buffer = memoryview(bytearray(_MOST_BYTES))
        self._chunks: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._types: Sequence[int] | None = None
        # A call that blocks is one; libpq's own, for statements to prepare, stay within their limits as well.
        limit_waits(self._socket, timeout_s)

    def send(self, question: Question) -> None:
        statement = question.statement
        self._types = None
        if statement is not None:
            self._types = self.columns.get(statement)
            if self._types is None:
                self._types = self.prepare(statement)
        self._socket.sendall(question.message)

    def wait(self) -> None:
        """Receiving waits."""

    def receive(self) -> Received | None:
        buffer = self._buffer
        try:
            read = receive_stamped(self._socket, buffer) if self._stamped else None
            size = self._socket.recv_into(buffer) if read is None else read
        except TIMEOUTS as error:
            raise no_answer(self._timeout_s) from error
        if not size:
            raise lost("the server closed the connection")
        chunk = bytes(buffer[:size])
        if not self._chunks and (
            complete := _COMPLETE.search(chunk, size - _TAIL_BYTES if size > _TAIL_BYTES else 0)
        ):
            # Most answers come as a whole.
            return Received(int(complete[1]), size, (self._types, [chunk]))
        self._chunks.append(chunk)
        self._size += size
        tail = chunk[-_TAIL_BYTES:]
        if len(self._chunks) > 1:
            tail = (self._tail + tail)[-_TAIL_BYTES:]
        self._tail = tail
        if not tail.endswith(_READY):
            if self._size > most_answer_bytes():
                raise explain_length(self._size)
            return None
        if complete := _COMPLETE.search(tail):
            return self._finish(int(complete[1]))
        return self._look_closer()

    def _finish(self, rows: int) -> Received:
        found = Received(rows, self._size, (self._types, self._chunks))
        self._chunks, self._size, self._tail = [], 0, b""
        return found

    def _look_closer(self) -> Received | None:
        """What ends as an answer does, but not as one with rows: an error, or the middle of a row."""
        rows, error, is_over = 0, None, False
        for kind, body in walk(b"".join(self._chunks)):
            rows += kind == b"D"
            is_over = kind == b"Z"
            if kind == b"E":
                error = error or read_error(body)
        if not is_over:
            return None
        found = self._finish(rows)
        if error is not None:
            raise error
        return found


class LibpqLine(Line):
    """By libpq, over TLS."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        super().__init__(connection)
        self._timeout_s = timeout_s

    def send(self, question: Question) -> None:
        pg, statement = self.connection.pg, question.statement
        try:
            if statement is None:
                # Without the header and the end, which libpq adds.
                pg.send_query(question.message[_HEADER.size : -1])
            else:
                self.prepare(statement)
                formats = [int(pq.Format.BINARY)] * len(question.values)
                pg.send_query_prepared(statement.name, question.values, formats, statement.results)
            pg.flush()
        except psycopg.Error as error:
            raise lost(error) from error

    def wait(self) -> None:
        self.connection.wait(self._timeout_s)

    def receive(self) -> Received | None:
        self.connection.read()
        if self.connection.pg.is_busy():
            return None
        result = self.connection.finish()
        # libpq doesn't say how long an answer was.
        types = [result.ftype(column) for column in range(result.nfields)]
        return Received(result.ntuples, 0, (types, result))


def walk(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The messages of an answer: kind and body. One that isn't whole is left out."""
    at = 0
    while at + _HEADER.size <= len(data):
        kind, length = _HEADER.unpack_from(data, at)
        if at + 1 + length > len(data):
            return
        yield kind, data[at + _HEADER.size : at + 1 + length]
        at += 1 + length


def make_binder(
    statement: Prepared, places: Sequence[int], devices: int
) -> Callable[..., Question]:
    """What makes a question of an execution's parameters, of which the statement has those at `places`: names
    as texts, which are the first so many, and times as numbers of 64 bits."""
    count = _SHORT.pack(len(places))
    formats = b"".join(_SHORT.pack(place >= devices) for place in places)
    begin = b"\0" + statement.name + b"\0" + count + formats + count
    # Without the description of the columns, which the connection keeps; all of them are to be the same.
    end = _SHORT.pack(0) if statement.results is pq.Format.TEXT else _ALL_BINARY

    def bind(*parameters: Any) -> Question:
        values = [
            parameters[place] if place < devices else _INT8.pack(parameters[place])
            for place in places
        ]
        body = begin + b"".join([_LENGTH.pack(len(value)) + value for value in values]) + end
        message = _HEADER.pack(b"B", len(body) + 4) + body + _EXECUTE
        return Question(statement, message, values)

    return bind


def read_rows(
    types: Sequence[int] | None, data: bytes, results: pq.Format = pq.Format.TEXT
) -> Rows:
    """The rows of an answer's messages. `types`: of its columns; None: the answer says which; `results`: what
    its values are."""
    decoder = Transformer()
    loads: list[Callable[[bytes], Any]] = []
    rows = []
    for kind, body in walk(data):
        if kind == b"T":
            types = list(_read_types(body))
        elif kind == b"D":
            if not loads:
                assert types is not None
                loads = [decoder.get_loader(one, results).load for one in types]
            rows.append(tuple(_read_values(body, loads)))
    return rows


def _read_types(body: bytes) -> Iterator[int]:
    """Of a RowDescription."""
    at = _SHORT.size
    for _ in range(_SHORT.unpack_from(body)[0]):
        at = body.index(b"\0", at) + 1
        yield _LENGTH.unpack_from(body, at + 6)[0]
        at += 18


def _read_values(body: bytes, loads: Sequence[Callable[[bytes], Any]]) -> Iterator[Any]:
    """Of a DataRow."""
    at = _SHORT.size
    for load in loads:
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if length < 0:
            yield None
            continue
        yield load(body[at : at + length])
        at += length


def _make_text(statement: str) -> Question:
    """By the simple protocol."""
    text = statement.encode()
    return Question(None, _HEADER.pack(b"Q", len(text) + 5) + text + b"\0", ())


class PostgresAsker(Asker):
    """Asks what `Postgres.compile` gives."""

    RESULTS: ClassVar[pq.Format] = pq.Format.TEXT
    """What values of answers to prepared statements are to be."""
    PLANS_ANEW: ClassVar[bool] = True
    """Whether a window of all devices is asked about by its text. PostgreSQL has, after five executions of a
    prepared statement, one plan for windows of any length, and takes them for 0.5 % of the events: it sorted
    500,000 where it needed but a hash. A plan of its own takes 0.1 ms."""
    module: Postgres
    is_split: ClassVar[bool] = True

    def __init__(self, module: Postgres, in_flight: int) -> None:
        super().__init__(module, in_flight)
        options = module.options
        self._is_prepared = options.prepared_statements
        self._timeout_s = options.query_timeout_s
        self._connector = Connector(options.dsn, module.job.run_id)
        self._statements: dict[str, Prepared] = {}
        self._templates: dict[str, tuple[Template, Callable[..., Question]]] = {}
        self._lines: list[Line] = []
        self._idle: deque[Line] = deque()
        """Those by which nothing is under way."""
        self._poll = Poll()
        self._asked: dict[int, tuple[Line, object, float]] = {}
        """Descriptor -> what is under way there, the caller's name for it, and when it was sent."""
        self._found: list[Outcome[Received]] = []
        self._late_at_s = 0.0
        """When to look for late answers next."""

    # --- requests

    def encode(self, bounds: BoundQueries) -> Iterable[Question]:
        name = bounds.query.name
        if name not in self._templates:
            self._templates[name] = self._make_template(bounds)
        _, make = self._templates[name]
        names = () if bounds.devices is None else bounds.devices.T.tolist()
        times = [one.tolist() for one in (bounds.start_ms, bounds.end_ms) if one is not None]
        columns = [*names, *times]
        if not columns:
            return [make()] * len(bounds)
        return map(make, *columns)

    def _make_template(self, bounds: BoundQueries) -> tuple[Template, Callable[..., Question]]:
        dialect = self.module.dialect.SQL
        template = make_template(bounds, self.module.compile, dialect)
        is_long = self.PLANS_ANEW and bounds.query.window is not None and bounds.devices is None
        if is_long or not self._is_prepared:
            return template, lambda *values: _make_text(
                template.join(lambda place: self._write(template, values[place]))
            )
        used = sorted(set(template.places))
        numbers = {place: f"${number}" for number, place in enumerate(used, 1)}
        text = template.join(numbers.__getitem__)
        types = tuple(0 if place < template.devices else _INT8_OID for place in used)
        statement = self._name(text, types)
        return template, make_binder(statement, used, template.devices)

    def _write(self, template: Template, value: Any) -> str:
        dialect = self.module.dialect.SQL
        return dialect.text(value.decode()) if isinstance(value, bytes) else dialect.instant(value)

    def encode_statement(self, statement: str) -> Question:
        if self._is_prepared:
            return make_binder(self._name(statement, ()), (), 0)()
        return _make_text(statement)

    def _name(self, text: str, types: tuple[int, ...]) -> Prepared:
        """A statement that is prepared from now on."""
        known = self._statements
        if text not in known:
            known[text] = Prepared(b"ask%d" % len(known), text.encode(), types, self.RESULTS)
        return known[text]

    # --- connections

    def open(self) -> None:
        self.recover()

    def _connect(self) -> Line:
        stamped = self.module.job.stamps_arrivals
        made = self._connector.connect(
            lambda parameters: Connection(parameters, self._timeout_s, stamped=stamped)
        )
        kind = LibpqLine if made.is_encrypted else MessageLine
        line = kind(made, self._timeout_s)
        for statement in self._statements.values():
            try:
                line.prepare(statement)
            except ServerError:
                # Whoever asks it is told.
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
        return translate(error, self.module.dialect, self.module.job)

    def _fail(self, line: Line, error: Exception) -> Retryable | SimulatorError:
        """What an error means that came by a connection, which may be lost by it."""
        if isinstance(error, SimulatorError):
            self._lose(line)
            return error
        assert isinstance(error, OSError | ServerError)
        meaning = self._explain(error)
        if isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST:
            self._lose(line)
        return meaning

    # --- asking

    def send(self, request: Question) -> Received:
        self.begin(request)
        return self.finish()

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

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[Received]]:
        until_s = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        while not self._found:
            now_s = time.perf_counter()
            if now_s >= until_s:
                break
            if now_s >= self._late_at_s:
                self._give_up_late(now_s)
                continue
            for descriptor, _ in self._poll.wait(min(until_s, self._late_at_s) - now_s):
                self._take(descriptor)
        found, self._found = self._found, []
        return found

    def _take(self, descriptor: int) -> None:
        """What has come by a connection."""
        asked = self._asked.get(descriptor)
        if asked is None:
            # To one that is idle a server has nothing to say but that it hangs up.
            self._lose(next(line for line in self._idle if line.descriptor == descriptor))
            return
        try:
            result = asked[0].receive()
        except (OSError, ServerError, SimulatorError) as error:
            self._end(*asked, error)
        else:
            if result is not None:
                self._end(*asked, result)

    def _end(self, line: Line, token: object, sent_s: float, result: Received | Exception) -> None:
        """The question by this connection is over."""
        del self._asked[line.descriptor]
        self._idle.append(line)
        if isinstance(result, Exception):
            failure = self._fail(line, result)
            self._found.append(Outcome(token, time.perf_counter(), failure))
        else:
            self._found.append(Outcome(token, find_arrival(sent_s), result))

    def _give_up_late(self, now_s: float) -> None:
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        for line, token, sent_s in list(self._asked.values()):
            if sent_s + self._timeout_s <= now_s:
                self._end(line, token, sent_s, no_answer(self._timeout_s))

    def stop_submitting(self) -> None:
        """What is under way is cut off by `close`."""

    # --- answers

    def decode(self, received: Received) -> Rows:
        types, data = received.data
        if isinstance(data, list):
            return read_rows(types, b"".join(data), self.RESULTS)
        decoder = Transformer()
        decoder.set_pgresult(data)
        return decoder.load_rows(0, received.rows, tuple)
