"""One HTTP/1.1 connection for measured requests: the client's CPU time is part of every figure.

For a bulk request of 1,000 events, urllib3 takes about five times the CPU of this code: it creates a dozen
objects per request, and reads an answer's headers with an e-mail parser. Here, a request is one system call,
and so is an answer that arrives at once (`http_answer`).
"""

from __future__ import annotations

import gzip
import select
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import one_line
from ..waiting import (
    TIMEOUTS,
    Receiver,
    limit_waits,
    note_answer,
    stamp_arrivals,
)
from .http_answer import Answer, AnswerReader, ConnectionLost, NoAnswer

SOCKET_OPTIONS = [
    # Nagle's algorithm holds back the end of a request until the server has confirmed the part before, which
    # the server in turn delays: up to 40 ms per batch (RFC 896, RFC 1122).
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # Otherwise a load balancer on the way forgets a connection that is idle for some minutes.
    # https://learn.microsoft.com/azure/load-balancer/load-balancer-tcp-idle-timeout
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
if hasattr(socket, "TCP_KEEPIDLE"):
    SOCKET_OPTIONS.append((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60))

_FIRST_CONNECT_S = 1.0
"""Time limit for the first attempt to connect; it doubles for each further one.

While the pod behind a Kubernetes service is being replaced, packets may go to the old pod for good:
https://www.kernel.org/doc/html/latest/networking/nf_conntrack-sysctl.html keeps the route of each connection
by its ports. So a new attempt uses a new socket. A second is enough for any working route, as for the
kernel's first retransmission.
"""

_PIECE = 1 << 18
"""Bytes to read at once."""
_COPIED = 1 << 14
"""A body up to this size is copied after its headers, which is faster than sending from two places."""


class NotConnected(ConnectionLost):
    """No connection: the server has nothing of the request."""


class AnswerTimeout(NoAnswer):
    """No answer in time: the server may have the request."""


class TlsRefused(NoAnswer):
    """One end doesn't use TLS, or doesn't trust the other: nothing was sent."""


class HandshakeCut(TlsRefused):
    """The server closed the connection during the handshake: it doesn't use TLS, or it is shutting down."""


class HttpRequest(NamedTuple):
    """A request, ready to be sent."""

    method: str
    target: str
    """Path and query, after the path of the server's URL."""
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    """Besides those of all requests. Requests with equal headers should share the object."""


def connect(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float, stamped: bool = False
) -> Connection:
    """A new connection, over TLS if there is a context for it. `stamped`: the kernel timestamps answers, if
    it can. Raises as `open_stream`."""
    stream = open_stream(host, port, tls, timeout_s)
    return Connection(stream, stamped and tls is None and stamp_arrivals(stream))


def open_stream(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> socket.socket:
    """A new connection's socket, over TLS if there is a context for it.

    Raises NotConnected, or TlsRefused: in either case the server has nothing of a request. A server that
    closes the connection during the handshake is shutting down, or doesn't use TLS (`HandshakeCut`).
    """
    try:
        stream = connect_socket(host, port, timeout_s)
    except OSError as error:
        raise NotConnected(one_line(error)) from error
    for option in SOCKET_OPTIONS:
        stream.setsockopt(*option)
    if tls is None:
        return stream
    try:
        return tls.wrap_socket(stream, server_hostname=host)
    except ssl.SSLEOFError as error:
        stream.close()
        raise HandshakeCut(one_line(error)) from error
    except ssl.SSLError as error:
        stream.close()
        raise TlsRefused(one_line(error)) from error
    except OSError as error:
        stream.close()
        raise NotConnected(f"in the TLS handshake: {one_line(error)}") from error


def connect_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket, after several attempts within the time limit, which also applies to its calls;
    OSError if all fail."""
    deadline = time.monotonic() + timeout_s
    limit_s, left_s = _FIRST_CONNECT_S, timeout_s
    while True:
        try:
            stream = socket.create_connection((host, port), min(limit_s, left_s))
        except TimeoutError:
            limit_s *= 2
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise
        else:
            stream.settimeout(timeout_s)
            return stream


class Connection:
    """One connection, with at most one request in flight."""

    def __init__(self, stream: socket.socket, stamped: bool = False) -> None:
        self.owner: Any = None
        """The node in the pool that it belongs to."""
        self.descriptor = stream.fileno()
        self._stream = stream
        self._stamped = stamped
        self._receiver = Receiver(stream, stamped)
        self._tls = stream if isinstance(stream, ssl.SSLSocket) else None
        events = select.poll()
        events.register(stream, select.POLLIN)
        self.find_events = events.poll
        """With a timeout of 0, tells at once whether the server has sent something. Without a request, that
        can only be the end of the connection, or an answer that nothing waits for."""
        self._timeout_s: float | None = None
        self._reader = AnswerReader()
        self.sent_s = 0.0
        """When the last request was sent."""
        self._refused: OSError | None = None
        """The error if the server closed the connection before it had read the whole request."""

    @property
    def arrived_s(self) -> float:
        """When the last bytes arrived."""
        return self._receiver.arrived_s

    def close(self) -> None:
        self._stream.close()

    def begin(self, head: bytes, body: bytes, timeout_s: float) -> None:
        """Send a request, whose answer `receive` reads; `timeout_s` applies to each of the two."""
        if timeout_s != self._timeout_s:
            limit_waits(self._stream, timeout_s)
            self._timeout_s = timeout_s
        self.sent_s = time.perf_counter()
        try:
            if self._tls is not None or len(body) <= _COPIED:
                self._stream.sendall(head + body)
            else:
                self._send_apart(head, body)
        except (BrokenPipeError, ConnectionResetError) as error:
            # The server may have sent the reason.
            self._refused = error
        except OSError as error:
            raise self._explain(error) from error

    def _send_apart(self, head: bytes, body: bytes) -> None:
        sent = self._stream.sendmsg([head, body])
        if sent < len(head):
            self._stream.sendall(head[sent:])
            sent = len(head)
        if sent < len(head) + len(body):
            self._stream.sendall(memoryview(body)[sent - len(head) :])

    def receive(self) -> Answer | None:
        """Wait for something to read, and read it. Returns the answer once it is complete. SimulatorError if
        it is too large for memory."""
        try:
            came = self._receiver.read(_PIECE)
            if self._stamped:
                note_answer(self.sent_s, self._receiver.arrived_s)
            if not came:
                raise self._reader.explain_end()
            answer = self._reader.take(came)
            while answer is None and self._tls is not None and self._tls.pending():
                # Poll doesn't see what is already decrypted.
                answer = self._reader.take(self._receiver.read(_PIECE))
        except (OSError, NoAnswer) as error:
            if isinstance(error, NoAnswer) and self._refused is None:
                raise
            raise self._explain(error) from error
        return answer

    @property
    def keeps_alive(self) -> bool:
        """Whether the server accepts another request after the last one."""
        return self._reader.keeps_alive and self._refused is None

    def explain_delay(self) -> AnswerTimeout:
        """The error for an answer that didn't arrive in time."""
        return AnswerTimeout(f"no answer within {self._timeout_s:g} s")

    def _explain(self, error: Exception) -> NoAnswer:
        if self._refused is not None:
            return ConnectionLost(one_line(self._refused))
        if isinstance(error, TIMEOUTS):
            return self.explain_delay()
        return ConnectionLost(one_line(error))


# Compressed requests.

# Level 9, gzip's default, takes seven times the CPU of level 1 to save a sixth.
_LEVEL = 1


def compress(body: bytes) -> bytes:
    """The body as gzip; equal bodies give equal results."""
    return gzip.compress(body, _LEVEL, mtime=0)
