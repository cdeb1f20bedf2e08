"""One reader's ways to ask: a worker's whole path, and the thinnest clients that can ask the same.

Each is a context manager on connections of its own, and yields what asks so many questions. The thinnest
clients send requests that were made beforehand, a few in turn, and read no more of an answer than where it
ends and that it is a success. RuntimeError if it isn't.
"""

from __future__ import annotations

import re
import resource
import select
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice, repeat
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from psycopg import pq

from cli.embedded import find_programs
from simulator.contract import Go, StoredEvents
from simulator.modules._base.http import HttpRequest
from simulator.modules._base.http_asking import AnyHttpAsker
from simulator.modules.asking import Asker
from simulator.modules.base import AnyModule
from simulator.modules.postgres.lines import Question
from simulator.worker import garbage_collection_paused
from simulator.worker.measure import Recorder
from simulator.worker.questions import Questions
from simulator.worker.reading import QueryRunner
from simulator.worker.schedule import ClosedLoop
from simulator.workloads.base import Workload

from .support import scratch_folder

_SAMPLES, _SCRIPTS = 16, 4
"""Questions that a thinnest client asks in turn: so many devices and times. pgbench prepares each script on
each of its connections, within its time."""


class Asked(NamedTuple):
    """What became of some questions."""

    rows: int = 0
    """0: nobody counted."""
    wall_s: float | None = None
    cpu_s: float | None = None
    """None: as the caller's clocks say."""


Asking = Callable[[int], Callable[[], Asked]]
"""Prepares to ask so many questions, a multiple of those in flight; what asks them."""


@dataclass(frozen=True)
class Reader:
    """What a reader asks, and whom."""

    module: AnyModule
    workload: Workload
    events: int
    """Stored."""
    query: str
    in_flight: int
    readers: int
    number: int
    """Which of them it is."""


Way = Callable[[Reader], AbstractContextManager[Asking]]


@contextmanager
def _open(reader: Reader) -> Iterator[tuple[Asker, Questions]]:
    """Its asker, not connected yet, and its questions."""
    module = reader.module
    module.open()
    asker = module.asker(reader.in_flight)
    stored = [StoredEvents(worker=0, first=0, count=reader.events)]
    go = Go(go=True, stored=stored)
    try:
        yield asker, Questions(module, asker, reader.workload, go, reader.number)
    finally:
        asker.close()
        module.close()


@contextmanager
def ours(reader: Reader) -> Iterator[Asking]:
    """A worker's whole path: questions drawn and encoded, asked, measured."""
    with _open(reader) as (asker, questions), questions.feed(), garbage_collection_paused():
        asker.open()

        def prepare(count: int) -> Callable[[], Asked]:
            schedule = ClosedLoop()
            recorder = Recorder(schedule)
            turns = repeat(reader.query, count)
            runner = QueryRunner(questions, asker, turns, recorder, schedule)

            def ask() -> Asked:
                recorder.begin(perf_counter())
                runner.run_queries()
                recorder.end()
                [asked] = runner.asked.values()
                if asked.errors:
                    raise RuntimeError(f"{asked.errors} of {count} failed: {asked.error}")
                return Asked(asked.rows)

            return ask

        yield prepare


def _sample(reader: Reader) -> list[Any]:
    """Some of its requests."""
    with _open(reader) as (_, questions):
        return [questions.make(reader.query) for _ in range(_SAMPLES)]


# --- PostgreSQL -----------------------------------------------------------------------------------


@contextmanager
def libpq(reader: Reader) -> Iterator[Asking]:
    """libpq's own functions, as psycopg binds them: exec_prepared, with one in flight; nothing else."""
    dsn = reader.module.options.connection_string
    samples: list[Question] = _sample(reader)
    statement = samples[0].statement
    assert statement is not None
    connection = pq.PGconn.connect(dsn.encode())
    if connection.status != pq.ConnStatus.OK:
        raise RuntimeError(connection.error_message.decode())
    connection.prepare(b"thin", statement.text, statement.types)
    formats = [int(pq.Format.BINARY)] * len(samples[0].values)
    given = cycle([sample.values for sample in samples])

    def ask(count: int) -> Asked:
        rows = 0
        for values in islice(given, count):
            result = connection.exec_prepared(b"thin", values, formats)
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
    dsn = reader.module.options.connection_string
    samples: list[Question] = _sample(reader)
    command = [str(find_programs() / "pgbench"), "-n", "-M", "prepared"]
    command += ["-c", str(reader.readers * reader.in_flight), "-j", str(reader.readers)]
    with scratch_folder() as folder:
        for number, sample in enumerate(samples[: _SCRIPTS if samples[0].values else 1]):
            assert sample.statement is not None
            values = zip(sample.values, sample.statement.types, strict=True)
            for place, (value, kind) in enumerate(values, 1):
                text = str(struct.unpack("!q", value)[0]) if kind else value.decode()
                command += ["-D", f"v{number}_{place}={text}"]
            script = re.sub(rb"\$(\d+)", b":v%d_\\1" % number, sample.statement.text)
            (folder / str(number)).write_bytes(script + b";\n")
            command += ["-f", str(folder / str(number))]

        def ask(count: int) -> Asked:
            each, of = count // reader.in_flight, reader.in_flight * reader.readers
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            command_line = [*command, "-t", str(each), dsn]
            told = subprocess.run(command_line, capture_output=True, text=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = re.search(r"^tps = ([\d.]+)", told.stdout, re.MULTILINE)
            if not found:
                raise RuntimeError(f"pgbench tells no rate: {told.stdout}")
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return Asked(0, each * of / float(found[1]), cpu_s)

        yield lambda count: partial(ask, count)


# --- HTTP -----------------------------------------------------------------------------------------

_PIECE = 1 << 18
_HEAD_END, _CHUNKED_END = b"\r\n\r\n", b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class _Socket:
    """A connection by which one request is under way."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.stream = socket.create_connection(address)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream.settimeout(None)
        self._buffer = memoryview(bytearray(_PIECE))
        self._left: int | None = None
        """Bytes to come; None: of an answer in chunks, or before its header."""
        self._head = b""
        self._tail = b""

    def send(self, request: bytes) -> None:
        self._left, self._head, self._tail = None, b"", b""
        self.stream.sendall(request)

    def receive(self) -> bool:
        """Read what has come; whether that was the rest."""
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


@contextmanager
def http_socket(reader: Reader) -> Iterator[Asking]:
    """Raw sockets, one for each question in flight, in one thread."""
    with _open(reader) as (asker, questions):
        requests: list[HttpRequest] = [questions.make(reader.query) for _ in range(_SAMPLES)]
        assert isinstance(asker, AnyHttpAsker)
        asker.open()
        url = urlsplit(reader.module.options.endpoint[0])
        made = cycle([_write(request, url.netloc, asker.database.headers) for request in requests])
    with ExitStack() as stack:
        sockets = [_Socket((url.hostname or "", url.port or 80)) for _ in range(reader.in_flight)]
        for one in sockets:
            stack.enter_context(closing(one.stream))

        def ask(count: int) -> Asked:
            if len(sockets) > 1:
                _ask_at_once(sockets, list(islice(made, count)))
                return Asked()
            [one] = sockets
            for request in islice(made, count):
                one.send(request)
                while not one.receive():
                    pass
            return Asked()

        yield lambda count: partial(ask, count)


def _write(request: HttpRequest, host: str, headers: Mapping[str, str]) -> bytes:
    lines = {
        "host": host,
        **headers,
        **(request.headers or {}),
        "content-length": len(request.body),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{request.method} {request.target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def _ask_at_once(sockets: Sequence[_Socket], requests: Sequence[bytes]) -> None:
    """Each socket has a request under way, as long as there are some."""
    waiting = iter(requests)
    poll = select.poll()
    busy = {}
    for one, request in zip(sockets, waiting, strict=False):
        one.send(request)
        busy[one.stream.fileno()] = one
        poll.register(one.stream, select.POLLIN)
    while busy:
        for descriptor, _ in poll.poll():
            one = busy[descriptor]
            if not one.receive():
                continue
            following = next(waiting, None)
            if following is None:
                del busy[descriptor]
                poll.unregister(descriptor)
            else:
                one.send(following)
