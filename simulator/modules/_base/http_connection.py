"""One HTTP/1.1 connection, for requests that are measured: what a client costs is a part of every figure.

For a bulk request of 1,000 events, urllib3 takes about five times the CPU of what is here: it makes a
dozen objects per request, and reads an answer's header by an e-mail parser. Here a request is one
system call, and answers are read by llhttp (https://github.com/MagicStack/httptools). What is left out
is what these servers do not use: redirects, cookies, compressed answers, answers that end with the
connection.
"""

from __future__ import annotations

import gzip
import select
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpResponseParser

from ...errors import SimulatorError, one_line
from ..asking import explain_length, most_answer_bytes
from ..sending import TIMEOUTS, limit_waits, note_sending, receive_stamped, stamp_arrivals

SOCKET_OPTIONS = [
    # Nagle's algorithm holds back the end of a request until the server has confirmed what came before,
    # which it puts off in its turn: up to 40 ms for each batch (RFC 896, RFC 1122).
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    # Or a load balancer on the way forgets a connection that is idle for some minutes.
    # https://learn.microsoft.com/azure/load-balancer/load-balancer-tcp-idle-timeout
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
if hasattr(socket, "TCP_KEEPIDLE"):
    SOCKET_OPTIONS.append((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60))

_FIRST_CONNECT_S = 1.0
"""Limit of the first attempt to connect; that of each further one is twice as long.

What goes to a Kubernetes service while the pod behind it is replaced can go to where that was, for good:
https://www.kernel.org/doc/html/latest/networking/nf_conntrack-sysctl.html keeps the way of each connection
by its ports. So a new attempt has a new socket. A second is enough for any way that isn't lost, as the
kernel's own first repetition is.
"""

_PIECE = 1 << 18
"""Bytes read at once."""
_END_BYTES = 1 << 14
"""How much is kept of an answer that isn't whole."""


class NoAnswer(Exception):
    """A request was not answered; the text says why, in one line."""


class ConnectionLost(NoAnswer):
    """There is no connection, or none any more: the server may have the request."""

    def __init__(self, text: str, end: bytes = b"") -> None:
        """`end`: the last that came of an answer's body."""
        super().__init__(text)
        self.end = end


class NotConnected(ConnectionLost):
    """No connection could be made: the server has nothing of the request."""


class AnswerTimeout(NoAnswer):
    """Nothing came in time: the server may have the request."""


class TlsRefused(NoAnswer):
    """One end does not speak TLS, or does not trust the other: nothing was sent."""


class HungUpInTls(TlsRefused):
    """The server ended the connection in the handshake: it doesn't speak TLS, or it has just ended."""


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    headers: Sequence[tuple[bytes, bytes]]

    def header(self, name: str) -> str | None:
        """The first header of that name, however it is written."""
        wanted = name.lower().encode()
        for found, value in self.headers:
            if found.lower() == wanted:
                return value.decode("latin-1")
        return None


def connect(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float, stamped: bool = False
) -> Connection:
    """A new connection, over TLS if there is a context for it. `stamped`: the kernel is to say when answers
    arrive, if it can. Raises as `open_stream`."""
    stream = open_stream(host, port, tls, timeout_s)
    return Connection(stream, stamped and tls is None and stamp_arrivals(stream))


def open_stream(
    host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float
) -> socket.socket:
    """A new connection's socket, over TLS if there is a context for it.

    Raises NotConnected, or TlsRefused: in either case the server has nothing of a request. A server
    that hangs up in the handshake is one that ends, or one that doesn't speak TLS (`HungUpInTls`).
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
        raise HungUpInTls(one_line(error)) from error
    except ssl.SSLError as error:
        stream.close()
        raise TlsRefused(one_line(error)) from error
    except OSError as error:
        stream.close()
        raise NotConnected(f"in the TLS handshake: {one_line(error)}") from error


def connect_socket(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected socket, by several attempts within the limit, which is then that of its calls; OSError if
    none came through."""
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
    """One connection, with one request under way at most; also the parser's way to tell what it found."""

    def __init__(self, stream: socket.socket, stamped: bool = False) -> None:
        self._stream = stream
        self._stamped = stamped
        self._is_tls = isinstance(stream, ssl.SSLSocket)
        self._events = select.poll()
        self._events.register(stream, select.POLLIN)
        self._timeout_s: float | None = None
        self._buffer = memoryview(bytearray(_PIECE))
        self._parser = HttpResponseParser(self)
        self._answer: Answer | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._keeps_alive = False

    def close(self) -> None:
        self._stream.close()

    def has_ended(self) -> bool:
        """Whether the server has hung up. Without a request, it can have nothing else to say."""
        return bool(self._events.poll(0))

    def reusable(self) -> bool:
        """Whether the server takes another request after the last one."""
        return self._keeps_alive

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Send a request and await its answer. SimulatorError if that is longer than memory allows."""
        if timeout_s != self._timeout_s:
            limit_waits(self._stream, timeout_s)
            self._timeout_s = timeout_s
        self._headers, self._body, self._answer = [], [], None
        if self._stamped:
            note_sending()
        try:
            try:
                self._send(head, body)
            except (BrokenPipeError, ConnectionResetError) as error:
                return self._read_refusal(error)
            return self._receive()
        except TIMEOUTS as error:
            raise AnswerTimeout(f"no answer within {timeout_s:g} s") from error
        except OSError as error:
            raise ConnectionLost(one_line(error)) from error

    def _send(self, head: bytes, body: bytes) -> None:
        if self._is_tls:
            self._stream.sendall(head + body)
            return
        sent = self._stream.sendmsg([head, body])
        if sent < len(head):
            self._stream.sendall(head[sent:])
            sent = len(head)
        if sent < len(head) + len(body):
            self._stream.sendall(memoryview(body)[sent - len(head) :])

    def _read_refusal(self, error: OSError) -> Answer:
        """The answer of a server that hung up before it had read the whole request."""
        try:
            answer = self._receive()
        except (OSError, NoAnswer):
            raise ConnectionLost(one_line(error)) from error
        self._keeps_alive = False
        return answer

    def _receive(self) -> Answer:
        received, most = 0, most_answer_bytes()
        while self._answer is None:
            if self._stamped:
                size = receive_stamped(self._stream, self._buffer)
            else:
                size = self._stream.recv_into(self._buffer)
            if not size:
                raise self._explain_end()
            received += size
            if received > most:
                raise explain_length(received)
            try:
                self._parser.feed_data(self._buffer[:size])
            except HttpParserError as error:
                raise ConnectionLost(f"the answer is not HTTP: {one_line(error)}") from error
        return self._answer

    def _explain_end(self) -> ConnectionLost:
        if not self._body:
            return ConnectionLost("the server hung up without an answer")
        # What a server says of an error in the middle of an answer comes last.
        end = b"".join(self._body[-2:])[-_END_BYTES:]
        return ConnectionLost("the server hung up in the middle of its answer", end)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._keeps_alive = self._parser.should_keep_alive()
            self._answer = Answer(status, b"".join(self._body), self._headers)
        self._headers, self._body = [], []


# Whom to trust with TLS.


def make_tls_context(ca_certs: str | None, verify_certs: bool = True) -> ssl.SSLContext:
    """A client's context that checks certificates and host names, unless told not to.

    `ca_certs`: the authorities to trust, instead of the system's: the path of a PEM file, or its text
    (in a pod there may be no place for a file). Raises SimulatorError if it can't be used.
    """
    try:
        if ca_certs is not None and "-----BEGIN" in ca_certs:
            context = ssl.create_default_context(cadata=ca_certs)
        else:
            context = ssl.create_default_context(cafile=ca_certs)
    except OSError as error:  # ssl.SSLError is one
        raise SimulatorError(
            f"ca_certs can't be used: {error}; give the path of a PEM file, or its text"
        ) from error
    if not verify_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def make_tls_context_for(
    urls: Iterable[str], ca_certs: str | None, verify_certs: bool = True
) -> ssl.SSLContext | None:
    """A context as `make_tls_context` makes it if one of the URLs says https, otherwise None."""
    if any(urlsplit(url).scheme == "https" for url in urls):
        return make_tls_context(ca_certs, verify_certs)
    return None


# Compressed requests.

# Level 9, gzip's default, takes seven times the CPU of level 1 for a sixth less.
_LEVEL = 1


def compress(body: bytes) -> bytes:
    """The body as gzip, the same for the same body."""
    return gzip.compress(body, _LEVEL, mtime=0)
