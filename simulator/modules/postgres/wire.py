"""Requests on a connection that libpq has made: it knows how to log in, and this how to send in bulk.

Per single insert, libpq's own functions (called by ctypes) took 12 µs of CPU, and bytes that lie ready,
written to the connection's socket, 8 µs: no more than pgbench. What is built in bulk costs nothing for
each value, may be followed by other requests before it is answered (a COPY, too), and of a transaction
all goes at once: 0.7 µs for each insert, which was 11 µs with psycopg2. So libpq connects, and sends
nothing once its connection is taken over here, except to say goodbye.

Over TLS the same bytes go by the library that libpq itself has encrypted the connection with.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Protocol

from ...errors import SimulatorError
from ..arrival import receive_stamped, stamp_arrivals
from .dialects import Connection
from .protocol import Answer, AnswerReader

_PIECE = 1 << 14
"""Bytes read at once, and the most that TLS has in one record."""

# Bytes that a Unix socket is to have room for, as far as the kernel allows: by default it has less than a
# batch of 1,000 wide rows needs, and each further piece of a request costs a wait. TCP finds its own size.
_UNIX_SEND_BYTES = 1 << 22

# https://docs.openssl.org/3.0/man3/SSL_get_error/
_WANT_READ, _WANT_WRITE, _SYSCALL, _ZERO_RETURN = 2, 3, 5, 6


class Wire:
    """A connection by which requests may be under way. For one thread; sending and receiving never wait."""

    def __init__(self, connection: Connection, stamped: bool) -> None:
        """Take a connection over; `stamped`: the kernel is to say when answers arrive, if it can.

        SimulatorError if it is encrypted in a way that isn't known here.
        """
        self._transport = _find_transport(connection, stamped)
        self._send, self._receive = self._transport.send, self._transport.receive
        self._reader = AnswerReader()
        self._unsent: deque[memoryview] = deque()
        self.under_way: deque[Any] = deque()
        """What `submit` was told of the requests that are not answered yet, the oldest first."""
        self.descriptor = self._transport.fileno()
        """For poll."""
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def close(self) -> None:
        """Hang up. What is under way is cut off: the server must not take a goodbye for the rest of it."""
        self._transport.close(cut=bool(self.under_way))

    @property
    def is_full(self) -> bool:
        """Whether the server takes no more for the moment: `flush` when it does."""
        return bool(self._unsent)

    def submit(self, data: bytes, ready: int, request: object) -> None:
        """Send a request that is answered by so many ReadyForQuery, as far as there is room.

        That the connection is lost is for `receive` to say: the server may have said why.
        """
        self._reader.expect(ready)
        self.under_way.append(request)
        sent = 0
        if not self._unsent:
            with suppress(OSError):
                sent = self._send(data)
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self.flush()

    def flush(self) -> None:
        """Send what there is room for."""
        try:
            while self._unsent:
                data = self._unsent[0]
                sent = self._send(data)
                if sent < len(data):
                    self._unsent[0] = data[sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError:
            # Nobody takes it any more.
            self._unsent.clear()

    def receive(self) -> list[tuple[Any, Answer]]:
        """The requests whose answers have come. Raises OSError if the connection is lost."""
        try:
            data = self._receive()
        except BlockingIOError:
            return []
        if not data:
            raise ConnectionResetError(self._reader.error or "the server closed the connection")
        answers = self._reader.read(data)
        return [(self.under_way.popleft(), answer) for answer in answers]

    def ask(self, data: bytes, ready: int, timeout_s: float) -> Answer:
        """A request while no other is under way: send it and wait. Raises OSError if the connection is lost
        or the answer takes too long."""
        self.submit(data, ready, None)
        if self._unsent:
            return self._ask_at_length(timeout_s)
        wait_ms = timeout_s * 1000
        until_s = time.perf_counter() + timeout_s
        while self._poll.poll(wait_ms):
            for _, answer in self.receive():
                return answer
            wait_ms = max(0.0, (until_s - time.perf_counter()) * 1000)
        raise no_answer(timeout_s)

    def _ask_at_length(self, timeout_s: float) -> Answer:
        """The same for a request that there was no room for: the server may answer parts of it before it
        takes the rest."""
        until_s = time.perf_counter() + timeout_s
        try:
            while (left_s := until_s - time.perf_counter()) > 0:
                events = select.POLLIN | (select.POLLOUT if self._unsent else 0)
                self._poll.modify(self.descriptor, events)
                for _, event in self._poll.poll(left_s * 1000):
                    if event & select.POLLOUT:
                        self.flush()
                    if event & ~select.POLLOUT:
                        for _, answer in self.receive():
                            return answer
        finally:
            self._poll.modify(self.descriptor, select.POLLIN)
        raise no_answer(timeout_s)


def no_answer(timeout_s: float) -> TimeoutError:
    """The answer to a request takes too long."""
    return TimeoutError(f"no answer within {timeout_s:g} s")


# --- by which way -----------------------------------------------------------------------------------


class _Transport(Protocol):
    """What bytes go by. Both ways raise BlockingIOError if they would have to wait."""

    def fileno(self) -> int: ...

    def send(self, data: bytes | memoryview, /) -> int:
        """Send some; how many bytes."""

    def receive(self) -> bytes:
        """What has come; nothing if no more will."""

    def close(self, *, cut: bool) -> None: ...


class _Plain:
    """The socket itself. libpq has told it not to block."""

    def __init__(self, connection: Connection, stamped: bool) -> None:
        # libpq will close its own descriptor.
        self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        if self._socket.family == socket.AF_UNIX:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_SEND_BYTES)
        self.fileno = self._socket.fileno
        self.send = self._socket.send
        self.receive: Callable[[], bytes] = partial(self._socket.recv, _PIECE)
        if stamped and stamp_arrivals(self._socket):
            self._buffer = memoryview(bytearray(_PIECE))
            self.receive = self._receive_stamped

    def _receive_stamped(self) -> bytes:
        return bytes(self._buffer[: receive_stamped(self._socket, self._buffer)])

    def close(self, *, cut: bool) -> None:
        if cut:
            _cut(self._socket)
        self._socket.close()


def _cut(stream: socket.socket) -> None:
    with suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)


class _Tls:
    """OpenSSL's connection, as libpq has made it: https://www.postgresql.org/docs/current/libpq-status.html
    (PQsslStruct)."""

    def __init__(self, connection: Connection, library: ctypes.CDLL, ssl: int) -> None:
        self._connection = connection
        """Kept: it owns the others."""
        self._library = library
        self._ssl = ssl
        self._buffer = ctypes.create_string_buffer(_PIECE)

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, data: bytes | memoryview, /) -> int:
        # What could not be written must be tried again as it was, so it is never more than a record.
        piece = bytes(data[:_PIECE])
        self._library.ERR_clear_error()
        sent: int = self._library.SSL_write(self._ssl, piece, len(piece))
        if sent <= 0:
            self._raise(sent)
        return sent

    def receive(self) -> bytes:
        # All that there is: of what the library has read from the socket, poll knows nothing.
        parts: list[bytes] = []
        while True:
            self._library.ERR_clear_error()
            size = self._library.SSL_read(self._ssl, self._buffer, _PIECE)
            if size > 0:
                parts.append(ctypes.string_at(self._buffer, size))
                continue
            try:
                self._raise(size)
            except EOFError:
                return b"".join(parts)
            except OSError:
                # It will come again, after what has come before.
                if parts:
                    return b"".join(parts)
                raise

    def _raise(self, result: int) -> None:
        """Raise what a call without success means."""
        code = self._library.SSL_get_error(self._ssl, result)
        if code in (_WANT_READ, _WANT_WRITE):
            raise BlockingIOError
        if code in (_SYSCALL, _ZERO_RETURN):
            raise EOFError
        raise ConnectionResetError("the TLS connection is broken")

    def close(self, *, cut: bool) -> None:
        if cut and not self._connection.closed:
            with socket.socket(fileno=os.dup(self._connection.fileno())) as stream:
                _cut(stream)


@lru_cache(1)
def _find_library() -> ctypes.CDLL:
    """What psycopg2 is linked with, libpq and OpenSSL among it: a library's symbols are looked for in those
    that it needs, too."""
    from psycopg2 import _psycopg

    library = ctypes.CDLL(_psycopg.__file__)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("PQgssEncInUse", number, [pointer]),
        ("PQsslStruct", pointer, [pointer, text]),
        ("SSL_write", number, [pointer, text, number]),
        ("SSL_read", number, [pointer, pointer, number]),
        ("SSL_get_error", number, [pointer, number]),
        ("ERR_clear_error", None, []),
    ):
        # A libpq that was built without one of these has no such connections.
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    return library


def _find_transport(connection: Connection, stamped: bool) -> _Transport:
    library = _find_library()
    if connection.info.ssl_in_use:
        ssl = None
        if hasattr(library, "PQsslStruct") and hasattr(library, "SSL_write"):
            ssl = library.PQsslStruct(connection.pgconn_ptr, b"OpenSSL")
        if not ssl:
            raise SimulatorError(
                "psycopg2 has TLS from a library that inserts can't be sent by: install the package"
                " psycopg2-binary, or set sslmode=disable in connection_string"
            )
        return _Tls(connection, library, ssl)
    if hasattr(library, "PQgssEncInUse") and library.PQgssEncInUse(connection.pgconn_ptr):
        raise SimulatorError(
            "inserts can't be sent over a connection that GSSAPI encrypts: set gssencmode=disable in"
            " connection_string, and sslmode=require if it must be encrypted"
        )
    return _Plain(connection, stamped)
