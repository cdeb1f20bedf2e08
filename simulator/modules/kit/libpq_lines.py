"""A connection with one query in flight at a time, and its messages.

Without TLS, messages bypass libpq, which only connects and prepares: a query and its answer are a system call
each, and only the end of an answer is checked, whatever its length. Over TLS, libpq sends and receives.
"""

from __future__ import annotations

import re
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

from ...encoding.postgres_rows import HEADER, SYNC
from ..sending import Received, Rows, explain_length, most_answer_bytes
from ..waiting import TIMEOUTS, Receiver, limit_waits
from .libpq import Connection, list_types, lost, no_answer, read_error

INT8_OID = 20
_LENGTH, _SHORT, _INT8 = struct.Struct("!i"), struct.Struct("!h"), struct.Struct("!q")
_EXECUTE = HEADER.pack(b"E", 9) + b"\0" + _LENGTH.pack(0) + SYNC
"""All rows of the unnamed portal."""
_ALL_BINARY = _SHORT.pack(1) + _SHORT.pack(pq.Format.BINARY)
"""The number of a Bind's formats for the columns of the answer, and the only one."""
_MOST_BYTES = 1 << 18
"""Bytes to read at once."""
_CHECKED = 64
"""The number of queries between checks that the connection is silent."""
_READY = (b"Z\0\0\0\x05I", b"Z\0\0\0\x05T", b"Z\0\0\0\x05E")
_COMPLETE = re.compile(rb"C\0\0\0.SELECT (\d+)\0Z\0\0\0\x05[ITE]\Z", re.DOTALL)
"""The end of an answer. Rows of text values can't contain these bytes, wherever a read ends: texts have no
zeros, and as a row's length and number of columns they would exceed a row's limit of 1 GB. Binary numbers
with these bytes don't occur in practice."""
_TAIL_BYTES = 48
_FEW_ROWS = {b"C\0\0\0\x0dSELECT %d\0Z\0\0\0\x05I" % rows: rows for rows in range(10)}
"""The same for most answers."""
_FEW_BYTES = 20


class Prepared(NamedTuple):
    """A statement that each connection prepares once."""

    name: bytes
    text: bytes
    types: tuple[int, ...]
    """The types of its parameters, by OIDs; 0: inferred by the server."""
    results: pq.Format = pq.Format.TEXT
    """The format of its answers' values."""


class Question(NamedTuple):
    """A request."""

    statement: Prepared | None
    """None: with the simple protocol, `message` has its text."""
    message: bytes
    """The bytes to send without TLS."""
    values: Sequence[bytes | int]
    """The parameters: names, and times."""


def make_text_question(statement: str) -> Question:
    """A query in the simple protocol."""
    text = statement.encode()
    return Question(None, HEADER.pack(b"Q", len(text) + 5) + text + b"\0", ())


class Line(ABC):
    """A connection with one query in flight at a time. Raises OSError when it is lost or an answer takes too
    long, `ServerError` if the server refuses a statement."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.descriptor = connection.descriptor
        self.columns: dict[bytes, Sequence[int]] = {}
        """The names of the prepared statements, and the types of their answers' columns."""

    def prepare(self, statement: Prepared) -> Sequence[int]:
        """Prepare a statement, unless it is already; returns the types of its answers' columns."""
        name = statement.name
        if name not in self.columns:
            self.connection.prepare(name, statement.text, statement.types)
            self.columns[name] = self.connection.describe(name)
        return self.columns[name]

    arrived_s: float = 0.0
    """When the last bytes arrived."""

    @abstractmethod
    def send(self, question: Question) -> None:
        """Send a whole query."""

    @abstractmethod
    def receive(self) -> Received | None:
        """Read what has arrived; returns the answer once it is complete."""


class MessageLine(Line):
    """Messages that bypass libpq: https://www.postgresql.org/docs/current/protocol-flow.html"""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        super().__init__(connection)
        self._socket = connection.socket
        self._receiver = Receiver(connection.socket, connection.stamped)
        self._timeout_s = timeout_s
        self._buffer = memoryview(bytearray(_MOST_BYTES))
        self._chunks: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._types: Sequence[int] | None = None
        self._sent = 0
        # A blocking call is one system call; libpq's own calls, which prepare statements, keep their limits,
        # too.
        limit_waits(self._socket, timeout_s)

    def send(self, question: Question) -> None:
        statement = question.statement
        self._types = None
        if statement is not None:
            self._types = self.columns.get(statement.name)
            if self._types is None:
                self._types = self.prepare(statement)
        self._sent += 1
        if self._sent % _CHECKED == 2:
            self._check_silence()
        self._socket.sendall(question.message)

    def _check_silence(self) -> None:
        """Make sure that no answer is left over, which would be taken for the next one."""
        with suppress(BlockingIOError):
            begin = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            # Notices and changes of settings may arrive at any time.
            if begin in (b"N", b"S", b"A"):
                return
            raise lost("the server sent an answer that nobody asked for, or closed the connection")

    def receive(self) -> Received | None:
        """Waits if nothing has arrived."""
        buffer = self._buffer
        try:
            size = self._receiver.receive(buffer)
            self.arrived_s = self._receiver.arrived_s
        except TIMEOUTS as error:
            raise no_answer(self._timeout_s) from error
        if not size:
            raise lost("the server closed the connection")
        chunk = bytes(buffer[:size])
        if not self._chunks:
            # Most answers arrive in one piece.
            rows = _FEW_ROWS.get(chunk[-_FEW_BYTES:])
            if rows is not None:
                return Received(rows, size, (self._types, [chunk]))
            if complete := _COMPLETE.search(chunk, max(0, size - _TAIL_BYTES)):
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
        return self._parse_whole()

    def _finish(self, rows: int) -> Received:
        received = Received(rows, self._size, (self._types, self._chunks))
        self._chunks, self._size, self._tail = [], 0, b""
        return received

    def _parse_whole(self) -> Received | None:
        """Parse bytes that end like an answer, but not like one with rows: an error, or the middle of a
        row."""
        rows, error, is_over = 0, None, False
        for kind, body in walk(b"".join(self._chunks)):
            rows += kind == b"D"
            is_over = kind == b"Z"
            if kind == b"E":
                error = error or read_error(body)
        if not is_over:
            return None
        received = self._finish(rows)
        if error is not None:
            raise error
        return received


class LibpqLine(Line):
    """Messages through libpq, over TLS."""

    def send(self, question: Question) -> None:
        pg, statement = self.connection.pg, question.statement
        try:
            if statement is None:
                # Without the header and the end, which libpq adds.
                pg.send_query(question.message[HEADER.size : -1])
            else:
                self.prepare(statement)
                values = pack_values(question)
                formats = [int(pq.Format.BINARY)] * len(values)
                pg.send_query_prepared(statement.name, values, formats, statement.results)
            pg.flush()
        except psycopg.Error as error:
            raise lost(error) from error

    def receive(self) -> Received | None:
        self.connection.read()
        self.arrived_s = time.perf_counter()
        if self.connection.pg.is_busy():
            return None
        result = self.connection.finish()
        # libpq doesn't report an answer's length.
        return Received(result.ntuples, 0, (list_types(result), result))


def pack_values(question: Question) -> list[bytes]:
    """A query's parameters in the protocol's form."""
    return [_INT8.pack(value) if isinstance(value, int) else value for value in question.values]


def walk(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The messages of an answer: kind and body. An incomplete one is left out."""
    at = 0
    while at + HEADER.size <= len(data):
        kind, length = HEADER.unpack_from(data, at)
        if at + 1 + length > len(data):
            return
        yield kind, data[at + HEADER.size : at + 1 + length]
        at += 1 + length


def make_binder(
    statement: Prepared, places: Sequence[int], devices: int
) -> Callable[..., Question]:
    """A function that makes a query from an execution's parameters, of which the statement has those at
    `places`. The first `devices` are names, which are sent as texts; the others are times, sent as 64-bit
    numbers."""
    named = sum(place < devices for place in places)
    pick: Callable[[Sequence[Any]], Sequence[Any]] = (
        itemgetter(*places) if len(places) > 1 else lambda values: [values[at] for at in places]
    )
    count = _SHORT.pack(len(places))
    formats = b"".join(_SHORT.pack(place >= devices) for place in places)
    begin = b"\0" + statement.name + b"\0" + count + formats + count
    # Without the description of the columns, which the connection keeps; all columns have the same format.
    end = _SHORT.pack(0) if statement.results is pq.Format.TEXT else _ALL_BINARY
    numbers = struct.Struct("!" + "iq" * (len(places) - named))
    sizes_and_numbers = [_INT8.size] * (2 * (len(places) - named))
    rest, end = len(begin) + numbers.size + len(end) + 4, end + _EXECUTE

    def bind(*parameters: Any) -> Question:
        values = pick(parameters)
        names = b"".join([_LENGTH.pack(len(name)) + name for name in values[:named]])
        sized = sizes_and_numbers.copy()
        sized[1::2] = values[named:]
        head = HEADER.pack(b"B", rest + len(names))
        message = b"".join((head, begin, names, numbers.pack(*sized), end))
        return Question(statement, message, values)

    return bind


def read_rows(
    types: Sequence[int] | None, data: bytes, results: pq.Format = pq.Format.TEXT
) -> Rows:
    """The rows in an answer's messages. `types`: of its columns; None: from the answer; `results`: the format
    of its values."""
    decoder = Transformer()
    loads: list[Callable[[bytes], Any]] = []
    rows = []
    for kind, body in walk(data):
        if kind == b"T":
            types = list(_read_types(body))
        elif kind == b"D":
            if not loads:
                assert types is not None
                loads = [decoder.get_loader(oid, results).load for oid in types]
            rows.append(tuple(_read_values(body, loads)))
    return rows


def _read_types(body: bytes) -> Iterator[int]:
    """The types in a RowDescription."""
    at = _SHORT.size
    for _ in range(_SHORT.unpack_from(body)[0]):
        at = body.index(b"\0", at) + 1
        yield _LENGTH.unpack_from(body, at + 6)[0]
        at += 18


def _read_values(body: bytes, loads: Sequence[Callable[[bytes], Any]]) -> Iterator[Any]:
    """The values in a DataRow."""
    at = _SHORT.size
    for load in loads:
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if length < 0:
            yield None
            continue
        yield load(body[at : at + length])
        at += length
