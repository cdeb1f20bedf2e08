"""Requests on a connection: several at once, each a transaction, answered in order.

libpq connects. Without TLS, requests and answers bypass it (`MessagePipeline`), since it is slowest where a
benchmark is fastest:

* For a COPY, it waits for the server's answer before it sends the data, and for the end of one COPY before it
  begins the next. With 1 ms between client and server, this reduced the rate to 0.54 with batches of 100
  events, 0.7 with 1,000 and 0.85 with 10,000.
* A list of values is a simple query, which its pipeline mode doesn't support: parsed in the extended
  protocol, the rate fell to 0.6 to 0.7.
* Prepared INSERTs take a call per event: in a transaction 2.2 to 2.6 µs of CPU. Messages built in bulk take
  0.5 to 0.65.

Over TLS only libpq can send: INSERTs in its pipeline mode (`StatementPipeline`), COPYs and lists of values
one after another (`QueryQueue`).
"""

from __future__ import annotations

import re
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

import psycopg
from psycopg import pq

from ...encoding.postgres_rows import HEADER, ValueCutter
from ..sending import Completion, Request
from ..waiting import TIMEOUTS, Receiver
from .libpq import Connection, ServerError, lost, make_error, no_answer, read_error

Insert = tuple[bytes, Any]
"""A statement as text and None; a COPY and its data; nothing and the messages of prepared INSERTs up to a
synchronisation (`bind_rows`)."""


Inserts = tuple[Sequence[Insert], bool]
"""A payload's data, stored as a whole or not at all, and whether it is wrapped in BEGIN and COMMIT; the
COMMIT is always sent, since it rolls back after a failure."""


_COMMAND_OK, _TUPLES_OK, _COPY_IN = (
    int(pq.ExecStatus.COMMAND_OK), int(pq.ExecStatus.TUPLES_OK), int(pq.ExecStatus.COPY_IN),
)  # fmt: skip
_SYNC, _ABORTED = int(pq.ExecStatus.PIPELINE_SYNC), int(pq.ExecStatus.PIPELINE_ABORTED)


class Pipeline(ABC):
    """Several requests in flight, whose data are `Inserts`. For one thread; sending and receiving never wait,
    except after `wait_up_to`."""

    def __init__(self, connection: Connection) -> None:
        self.under_way: deque[Request] = deque()
        """Requests without an answer yet, oldest first."""
        self._connection = connection
        self._pg = connection.pg
        self.descriptor = connection.descriptor
        """For poll."""
        self.is_full = False
        """Whether the server accepts no more for the moment: call `flush` once it does."""
        self._rows = 0
        self._error: ServerError | OSError | None = None
        """The first error of the request being answered."""
        self.arrived_s = 0.0
        """When the last bytes arrived."""

    def wait_up_to(self, timeout_s: float) -> bool:
        """Let `receive` wait this long from now on, and raise OSError if nothing arrives. False if it
        can't."""
        return False

    def submit(self, request: Request) -> None:
        """Send a request, as far as there is room; `is_full` is set if there wasn't enough.

        `receive` reports a lost connection: the server may have sent the reason.
        """
        self.under_way.append(request)
        try:
            self._send(request.data)
        except psycopg.OperationalError:
            self.is_full = False

    @abstractmethod
    def _send(self, data: Inserts) -> None: ...

    def flush(self) -> None:
        """Send the rest, as far as there is room."""
        try:
            self.is_full = self._pg.flush() == 1
        except psycopg.OperationalError:
            # Nothing receives it any longer.
            self.is_full = False

    def receive(self) -> list[Completion]:
        """How the requests ended whose answers have arrived. An error is the request's first: a
        `ServerError`, or OSError if the outcome is unknown. Raises OSError if the connection is lost."""
        self._connection.read()
        self.arrived_s = time.perf_counter()
        ended: list[Completion] = []
        try:
            self._take(ended)
        except (OSError, psycopg.OperationalError) as error:
            # The error recurs after the answers that arrived before.
            if not ended:
                raise lost(error) from error
        return ended

    @abstractmethod
    def _take(self, ended: list[Completion]) -> None:
        """Add the requests whose answers have arrived."""

    def _note(self, result: pq.abc.PGresult) -> None:
        """Record a result of the request being answered."""
        status = result.status
        if status == _COMMAND_OK:
            self._rows += result.command_tuples or 0
        elif status not in (_ABORTED, _TUPLES_OK):
            self._error = self._error or make_error(result)

    def _complete(self) -> Completion:
        """Remove the oldest request, which is answered now."""
        rows, error = self._rows, self._error
        self._rows, self._error = 0, None
        return Completion(self.under_way.popleft(), rows, self.arrived_s, error)


def make_pipeline(connection: Connection, is_query: bool) -> Pipeline:
    """The pipeline for requests. `is_query`: they are COPYs or lists of values, not INSERTs of one event."""
    if not connection.is_encrypted:
        return MessagePipeline(connection)
    return (QueryQueue if is_query else StatementPipeline)(connection)


class StatementPipeline(Pipeline):
    """Statements in libpq's pipeline mode: https://www.postgresql.org/docs/current/libpq-pipeline-mode.html"""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._pg.enter_pipeline_mode()
        self._syncs: deque[int] = deque()
        """How many synchronisations answer each request."""
        self._cutter = ValueCutter()
        self._formats: list[int] = []
        """The format of each value: binary."""

    def _send(self, data: Inserts) -> None:
        pg = self._pg
        inserts, in_transaction = data
        self._syncs.append(1 + in_transaction)
        if in_transaction:
            pg.send_query_params(b"BEGIN", None)
        send, formats = pg.send_query_prepared, self._formats
        for statement, messages in inserts:
            if messages is None:
                pg.send_query_params(statement, None)
                continue
            for name, values in self._cutter.cut(messages):
                if not formats:
                    formats = self._formats = [int(pq.Format.BINARY)] * len(values)
                send(name, values, formats)
        pg.pipeline_sync()
        if in_transaction:
            # After the synchronisation: it is executed (and rolls back) even if the statements before have
            # failed.
            pg.send_query_params(b"COMMIT", None)
            pg.pipeline_sync()
        self.is_full = pg.flush() == 1

    def _take(self, ended: list[Completion]) -> None:
        # The rows are counted here and not in `_note`: a call per event would be noticeable.
        pg, syncs, rows = self._pg, self._syncs, self._rows
        is_busy, get_result = pg.is_busy, pg.get_result
        while syncs and not is_busy():
            result = get_result()
            if result is None:
                raise lost(pg.get_error_message())
            status = result.status
            if status == _SYNC:
                syncs[0] -= 1
                if not syncs[0]:
                    syncs.popleft()
                    self._rows, rows = rows, 0
                    ended.append(self._complete())
                continue
            if status == _COMMAND_OK:
                rows += result.command_tuples or 0
            else:
                self._note(result)
            # A statement has one result, and nothing after it.
            get_result()
        self._rows = rows


# --- COPYs and lists of values over TLS ------------------------------------------------------------


def _list_statements(request: Inserts) -> Sequence[Insert]:
    """The statements of a request, each with the data of a COPY, and those of its transaction."""
    inserts, in_transaction = request
    return [(b"BEGIN", None), *inserts, (b"COMMIT", None)] if in_transaction else inserts


class QueryQueue(Pipeline):
    """COPYs and lists of values through libpq, one after another."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._statements: deque[tuple[bytes, Any, bool]] = deque()
        """Each with its data, and whether it is the last of its request. The first is in flight."""

    def _send(self, data: Inserts) -> None:
        is_idle = not self._statements
        *others, last = _list_statements(data)
        self._statements += [(*statement, False) for statement in others]
        self._statements.append((*last, True))
        if is_idle:
            self._pg.send_query(self._statements[0][0])
            self.flush()

    def _take(self, ended: list[Completion]) -> None:
        pg = self._pg
        while self._statements and not pg.is_busy():
            _, data, is_last = self._statements[0]
            result = pg.get_result()
            if result is not None and result.status == _COPY_IN:
                pg.put_copy_data(data)
                pg.put_copy_end()
            elif result is not None:
                self._note(result)
            else:
                self._statements.popleft()
                if self._statements:
                    pg.send_query(self._statements[0][0])
                if is_last:
                    ended.append(self._complete())
            self.flush()


# --- bypassing libpq --------------------------------------------------------------------------------

# https://www.postgresql.org/docs/current/protocol-message-formats.html
_COPY_DONE = HEADER.pack(b"c", 4)
_STORED = b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 1\0"
"""BindComplete and CommandComplete of an INSERT with one row."""
_STORED_ALL = re.compile(b"(?:%b)+" % re.escape(_STORED))
_ONE_STORED = _STORED + b"Z\0\0\0\x05I"
"""The answer to a single insert."""
_MOST_PIECES = 512
"""How many pieces to send at once; the kernel takes 1,024."""
_MOST_BYTES = 1 << 14
"""Bytes to read at once."""
_NOW = socket.MSG_DONTWAIT
"""Sending never waits: the server may want its answers to be read before it takes the rest."""


def _make_messages(statement: bytes, data: bytes | None) -> list[bytes]:
    """A statement, and the data of a COPY without waiting for the server's request: if it refuses the
    statement, it skips the data. Data that is in messages already is unchanged."""
    if not statement and data is not None:
        return [data]
    query = HEADER.pack(b"Q", len(statement) + 5) + statement + b"\0"
    if data is None:
        return [query]
    return [query + HEADER.pack(b"d", len(data) + 4), data, _COPY_DONE]


class MessagePipeline(Pipeline):
    """All requests, each in one round trip, bypassing libpq, which only logs in and closes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._socket = connection.socket
        self._unsent: deque[bytes | memoryview] = deque()
        self._receiver = Receiver(connection.socket, connection.stamped)
        self._waits_s: float | None = None
        self._left = 0
        """How many ReadyForQuery are still to come for the oldest request; 0: none came yet."""
        self._rest = b""
        """The beginning of a message."""

    def wait_up_to(self, timeout_s: float) -> bool:
        if timeout_s != self._waits_s:
            self._receiver.limit(timeout_s)
            self._waits_s = timeout_s
        return True

    def _send(self, data: Inserts) -> None:
        inserts, in_transaction = data
        unsent = self._unsent
        if in_transaction:
            for statement in _list_statements(data):
                unsent += _make_messages(*statement)
        else:
            unsent += _make_messages(*inserts[0])
        self.flush()

    def flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                if len(unsent) == 1:
                    sent = self._socket.send(unsent[0], _NOW)
                else:
                    sent = self._socket.sendmsg(islice(unsent, _MOST_PIECES), (), _NOW)
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = memoryview(unsent[0])[sent:]
        except BlockingIOError:
            pass
        except OSError:
            # Nothing receives it any longer.
            unsent.clear()
        self.is_full = bool(unsent)

    def receive(self) -> list[Completion]:
        receiver = self._receiver
        try:
            data = receiver.read(_MOST_BYTES)
        except TIMEOUTS as error:
            if self._waits_s is not None:
                raise no_answer(self._waits_s) from error
            return []
        self.arrived_s = receiver.arrived_s
        is_begun = self._rest or self._left or self._rows or self._error
        if data == _ONE_STORED and not is_begun and self.under_way:
            return [Completion(self.under_way.popleft(), 1, receiver.arrived_s)]
        if not data:
            raise lost(self._error or "the server closed the connection")
        self._rest += data
        ended: list[Completion] = []
        self._take(ended)
        return ended

    def _take(self, ended: list[Completion]) -> None:
        data, at = self._rest, 0
        while True:
            # A transaction has as many of these as it has events.
            if stored := _STORED_ALL.match(data, at):
                self._rows += (stored.end() - at) // len(_STORED)
                at = stored.end()
            if len(data) - at < HEADER.size:
                break
            kind, length = HEADER.unpack_from(data, at)
            if len(data) - at <= length:
                break
            body = data[at + HEADER.size : at + 1 + length]
            at += 1 + length
            if kind == b"C":
                words = body[:-1].split()
                self._rows += int(words[-1]) if words[0] in (b"COPY", b"INSERT") else 0
            elif kind == b"E":
                self._error = self._error or read_error(body)
            elif kind == b"Z":
                self._end_statement(body, ended)
        self._rest = data[at:]

    def _end_statement(self, status: bytes, ended: list[Completion]) -> None:
        """One of the oldest request's statements has ended."""
        if not self.under_way:
            # Notices and changes of settings may arrive at any time, and don't end like this.
            raise lost("the server sent an answer that nobody asked for")
        self._left = (self._left or len(_list_statements(self.under_way[0].data))) - 1
        if not self._left:
            if status != b"I":
                self._error = lost("the transaction has not ended")
            ended.append(self._complete())
