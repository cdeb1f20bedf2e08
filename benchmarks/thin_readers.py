"""The thinnest clients that can ask what a reader asks.

They send requests that were made beforehand, thousands in turn, and read no more of an answer than where it
ends and that it is a success. RuntimeError if it isn't. Where an answer takes several requests, one after the
other, so it does here.
"""

from __future__ import annotations

import http.client
import re
import resource
import select
import socket
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle, islice
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from psycopg import pq

from simulator.modules.cassandra.asking import (
    CassandraAsker,
    Executions,
    PreparedQuestion,
    read_page,
)
from simulator.modules.cassandra.queries import Statement
from simulator.modules.cassandra.server import AT_ONCE
from simulator.modules.cassandra.wire import Reply
from simulator.modules.iotdb import IotdbOptions
from simulator.modules.iotdb.connection import Question as IotdbQuestion
from simulator.modules.iotdb.thrift import Answer as IotdbAnswer
from simulator.modules.iotdb.thrift import read_answer
from simulator.modules.kit.http_connection import HttpRequest
from simulator.modules.kit.http_database import HttpAsker
from simulator.modules.kit.libpq_lines import Question, pack_values
from simulator.worker.questions import Questions

from .readers import Asked, Asking, Reader, open_asker
from .support import open_service
from .thinnest import CassandraSocket, IotdbSession, open_iotdb

_SAMPLES = 4_096
"""Questions that a thinnest client asks in turn: so many devices and times. What a server was asked a moment
ago it has in its caches, so that few samples would be answered faster than ours, which are drawn anew."""
_SCRIPTS = 4
"""The same for pgbench, which prepares each on each of its connections, within its time."""
_FOLLOWED = 16
"""The same where a question takes requests that follow from answers."""

_QuestionT = TypeVar("_QuestionT")


def _sample(reader: Reader) -> list[Any]:
    """Some requests of a reader."""
    with open_asker(reader) as (_, questions):
        return _make_samples(questions, reader.query)


def _make_samples(questions: Questions, query: str) -> list[Any]:
    first, second = questions.make(query), questions.make(query)
    if first == second:
        return [first]
    return [first, second, *(questions.make(query) for _ in range(_SAMPLES - 2))]


class _Line(ABC, Generic[_QuestionT]):
    """A connection on which one question is under way at a time."""

    stream: socket.socket

    @abstractmethod
    def send(self, question: _QuestionT) -> None:
        """Begin to ask it."""

    @abstractmethod
    def receive(self) -> bool:
        """Read what has come; whether that was the rest of the answer."""


@contextmanager
def _ask_by_lines(
    lines: Sequence[_Line[_QuestionT]], questions: Sequence[_QuestionT]
) -> Iterator[Asking]:
    """Ask one after the other on the only line, or at once on several in one thread."""
    repeated = cycle(questions)

    def ask(count: int) -> Asked:
        if len(lines) > 1:
            _ask_at_once(lines, islice(repeated, count))
            return Asked()
        [line] = lines
        for question in islice(repeated, count):
            line.send(question)
            while not line.receive():
                pass
        return Asked()

    yield lambda count: partial(ask, count)


def _ask_at_once(lines: Sequence[_Line[_QuestionT]], questions: Iterable[_QuestionT]) -> None:
    """Each line has a question under way, as long as there are some."""
    waiting = iter(questions)
    poll = select.poll()
    busy = {}
    for line, question in zip(lines, waiting, strict=False):
        line.send(question)
        busy[line.stream.fileno()] = line
        poll.register(line.stream, select.POLLIN)
    while busy:
        for descriptor, _ in poll.poll():
            line = busy[descriptor]
            if not line.receive():
                continue
            following = next(waiting, None)
            if following is None:
                del busy[descriptor]
                poll.unregister(descriptor)
            else:
                line.send(following)


# --- PostgreSQL -----------------------------------------------------------------------------------


@contextmanager
def libpq(reader: Reader) -> Iterator[Asking]:
    """libpq's own functions, as psycopg binds them: exec_prepared, with one in flight; nothing else. Values
    come as our asker has them."""
    dsn = reader.module.options.connection_string
    samples: list[Question] = _sample(reader)
    statement = samples[0].statement
    assert statement is not None
    connection = pq.PGconn.connect(dsn.encode())
    if connection.status != pq.ConnStatus.OK:
        raise RuntimeError(connection.error_message.decode())
    connection.prepare(b"thin", statement.text, statement.types)
    formats = [int(pq.Format.BINARY)] * len(samples[0].values)
    repeated = cycle([pack_values(sample) for sample in samples])

    def ask(count: int) -> Asked:
        rows = 0
        for values in islice(repeated, count):
            result = connection.exec_prepared(b"thin", values, formats, statement.results)
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise RuntimeError(connection.error_message.decode())
            rows += result.ntuples
        return Asked(rows)

    try:
        yield lambda count: partial(ask, count)
    finally:
        connection.finish()


@contextmanager
def pgbench(reader: Reader) -> Iterator[Asking]:
    """pgbench -M prepared: a script for each sample, a client for each question in flight, a thread for each
    reader. It asks for all readers; connecting isn't in its time."""
    samples: list[Question] = _sample(reader)
    clients = reader.in_flight * reader.readers
    words = ["-M", "prepared", "-c", str(clients), "-j", str(reader.readers)]
    with open_service(reader.module.options.connection_string) as service:
        for number, sample in enumerate(samples[: _SCRIPTS if samples[0].values else 1]):
            assert sample.statement is not None
            values = zip(pack_values(sample), sample.statement.types, strict=True)
            for place, (value, kind) in enumerate(values, 1):
                text = str(struct.unpack("!q", value)[0]) if kind else value.decode()
                words += ["-D", f"v{number}_{place}={text}"]
            script = re.sub(rb"\$(\d+)", b":v%d_\\1" % number, sample.statement.text)
            (service.folder / str(number)).write_bytes(script + b";\n")
            words += ["-f", str(service.folder / str(number))]

        def ask(count: int) -> Asked:
            transactions = count // reader.in_flight
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            rate_per_s = service.run_pgbench("tps", *words, "-t", transactions)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return Asked(0, transactions * clients / rate_per_s, cpu_s)

        yield lambda count: partial(ask, count)


# --- HTTP -----------------------------------------------------------------------------------------

_PIECE = 1 << 18
_HEAD_END, _CHUNKED_END = b"\r\n\r\n", b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _HttpLine(_Line[Sequence[bytes]]):
    """A raw socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.stream = socket.create_connection(address)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.settimeout(None)
        self._buffer = memoryview(bytearray(_PIECE))
        self._left: int | None = None
        """Bytes to come; None for an answer in chunks, or before its header."""
        self._head = b""
        self._tail = b""
        self._following: deque[bytes] = deque()
        """What is still to be sent of a question."""

    def send(self, question: Sequence[bytes]) -> None:
        self._following.extend(question)
        self._send_next()

    def _send_next(self) -> None:
        self._left, self._head, self._tail = None, b"", b""
        self.stream.sendall(self._following.popleft())

    def receive(self) -> bool:
        if not self._receive():
            return False
        if self._following:
            self._send_next()
            return False
        return True

    def _receive(self) -> bool:
        """Read what has come; whether that was the rest of a request's answer."""
        size = self.stream.recv_into(self._buffer)
        if not size:
            raise RuntimeError("the server closed the connection")
        if self._left is not None:
            self._left -= size
            return self._left <= 0
        if self._tail:
            self._tail = (self._tail + bytes(self._buffer[max(0, size - 8) : size]))[-8:]
            return self._tail.endswith(_CHUNKED_END)
        self._head += bytes(self._buffer[:size])
        at = self._head.find(_HEAD_END)
        if at < 0:
            return False
        if self._head[9:12] not in (b"200", b"204"):
            raise RuntimeError(f"the server answered {self._head[:300]!r}")
        if length := _LENGTH.search(self._head, 0, at + 2):
            self._left = int(length[1]) - (len(self._head) - at - len(_HEAD_END))
            return self._left <= 0
        self._tail = self._head[-8:]
        return self._tail.endswith(_CHUNKED_END)


class _Requests(NamedTuple):
    """What is sent to one server."""

    host: str
    port: int
    headers: Mapping[str, str]
    """The headers of all requests."""
    samples: Sequence[Sequence[HttpRequest]]
    """The requests of each question, one after the other."""


def _make_requests(reader: Reader) -> _Requests:
    with open_asker(reader) as (asker, questions):
        assert isinstance(asker, HttpAsker)
        asker.open()
        url = urlsplit(reader.module.options.endpoint[0])
        samples = _make_samples(questions, reader.query)
        if len(_list_requests(asker, samples[0])) == 1:
            requests = [[next(asker.converse(sample))] for sample in samples]
        else:
            requests = [_list_requests(asker, sample) for sample in samples[:_FOLLOWED]]
        return _Requests(url.hostname or "", url.port or 80, asker.database.headers, requests)


@contextmanager
def http_client(reader: Reader) -> Iterator[Asking]:
    """Python's own `http.client`, with one request under way, as somebody would write it who wants no more
    than the answer's bytes."""
    host, port, headers, samples = _make_requests(reader)
    questions = [
        [(request, {**headers, **(request.headers or {})}) for request in sample]
        for sample in samples
    ]
    with closing(http.client.HTTPConnection(host, port)) as connection:
        repeated = cycle(questions)

        def ask(count: int) -> Asked:
            for question in islice(repeated, count):
                for request, own in question:
                    connection.request(request.method, request.target, request.body, own)
                    answer = connection.getresponse()
                    body = answer.read()
                    if answer.status not in (200, 204):
                        raise RuntimeError(f"the server answered {answer.status}: {body[:300]!r}")
            return Asked()

        yield lambda count: partial(ask, count)


@contextmanager
def http_socket(reader: Reader) -> Iterator[Asking]:
    """Raw sockets, one for each question in flight, in one thread."""
    host, port, headers, samples = _make_requests(reader)
    questions = [
        [_write(request, f"{host}:{port}", headers) for request in sample] for sample in samples
    ]
    with ExitStack() as stack:
        lines = [_HttpLine((host, port)) for _ in range(reader.in_flight)]
        for line in lines:
            stack.enter_context(closing(line.stream))
        yield stack.enter_context(_ask_by_lines(lines, questions))


def _list_requests(asker: HttpAsker[Any], question: Any) -> list[HttpRequest]:
    """The requests that a question takes, which are the same each time it is asked."""
    conversation = asker.converse(question)
    requests = [next(conversation)]
    while True:
        try:
            answer = asker.database.finish(asker.database.begin(requests[-1]))
            requests.append(conversation.send(answer.body))
        except StopIteration:
            return requests


def _write(request: HttpRequest, host: str, headers: Mapping[str, str]) -> bytes:
    lines = {
        "host": host,
        **headers,
        **(request.headers or {}),
        "content-length": len(request.body),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{request.method} {request.target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


# --- Cassandra ------------------------------------------------------------------------------------


class _Execution(NamedTuple):
    known: PreparedQuestion
    values: bytes


class _Open:
    """A question that is under way."""

    def __init__(self, executions: Iterable[_Execution]) -> None:
        self.waiting = iter(executions)
        self.under_way = 0


@contextmanager
def cassandra_socket(reader: Reader) -> Iterator[Asking]:
    """A raw socket: EXECUTE messages in frames and segments with checksums, each on its stream; only the head
    of an answer is read. A question of several partitions has as many under way at once as our asker."""
    options = reader.module.options
    with open_asker(reader) as (asker, questions):
        assert isinstance(asker, CassandraAsker)
        requests: list[Executions] = _make_samples(questions, reader.query)
        asker.open()
        samples = []
        for request in requests:
            # What a plan asks follows from answers: that is no thin client's.
            assert isinstance(request.question, Statement)
            statement = asker._prepare(request.question.text)
            samples.append(
                [_Execution(statement, execution.values) for execution in request.executions]
            )
        with CassandraSocket((options.contact_points[0], options.port)) as connection:
            repeated = cycle(samples)
            yield lambda count: partial(
                _ask_cassandra, connection, islice(repeated, count), reader.in_flight
            )


def _ask_cassandra(
    connection: CassandraSocket, questions: Iterator[Sequence[_Execution]], in_flight: int
) -> Asked:
    rows = 0
    free = list(range(in_flight * AT_ONCE))
    streams: dict[int, tuple[_Open, _Execution]] = {}

    def send_more(question: _Open) -> None:
        while question.under_way < AT_ONCE and (execution := next(question.waiting, None)):
            stream = free.pop()
            streams[stream] = question, execution
            question.under_way += 1
            connection.execute(stream, execution.known.execute(execution.values))

    for executions in islice(questions, in_flight):
        send_more(_Open(executions))
    while streams:
        for stream, flags, body in connection.read_results():
            found, state = read_page(Reply(flags, body))
            rows += found
            question, execution = streams[stream]
            if state is not None:
                connection.execute(stream, execution.known.execute(execution.values, state))
                continue
            del streams[stream]
            free.append(stream)
            question.under_way -= 1
            send_more(question)
            if not question.under_way and (following := next(questions, None)) is not None:
                send_more(_Open(following))
    return Asked(rows)


# --- IoTDB ----------------------------------------------------------------------------------------

_SHORT = 1 << 12
"""An answer up to this size has no further part. Of longer ones that must be read: what is left open keeps
its memory, and IoTDB (2.0.1-beta) lets the next ones wait for it until a minute is over."""


class _IotdbLine(_Line[IotdbQuestion]):
    """A session's socket."""

    def __init__(self, session: IotdbSession) -> None:
        self.stream = session.socket
        self._session = session
        self._came = bytearray()

    def send(self, question: IotdbQuestion) -> None:
        self._question = question
        self.stream.sendall(self._session.frame_question(question))

    def receive(self) -> bool:
        self._came += self.stream.recv(1 << 18)
        if len(self._came) < 4 or len(self._came) < 4 + int.from_bytes(self._came[:4], "big"):
            return False
        frame, self._came = self._came, bytearray()
        if len(frame) <= _SHORT:
            return True
        fields = read_answer(bytes(frame[4:]))
        # The answer to a statement, or one more part of it: field 7 of the former is no bool.
        if fields.get(14) or fields.get(7) is True:
            if 14 in fields:
                self._number = IotdbAnswer(fields, len(frame)).number
            self.stream.sendall(self._session.frame_more(self._question, self._number))
            return False
        return True


@contextmanager
def iotdb_socket(reader: Reader) -> Iterator[Asking]:
    """Raw sockets on which sessions were opened, one for each question in flight: calls of Thrift as frames;
    only long answers are decoded, to see whether there is more."""
    options: IotdbOptions = reader.module.options
    questions = [request for request in _sample(reader) if isinstance(request, IotdbQuestion)]
    with ExitStack() as stack:
        sessions = [stack.enter_context(open_iotdb(options)) for _ in range(reader.in_flight)]
        yield stack.enter_context(_ask_by_lines(list(map(_IotdbLine, sessions)), questions))
