"""One HTTP/1.1 connection, for requests that are measured: what a client costs is a part of every figure.

For a bulk request of 1,000 events, urllib3 takes about five times the CPU of what is here: it makes a
dozen objects per request, and reads an answer's header by an e-mail parser. Here a request is one
system call, and answers are read by llhttp (https://github.com/MagicStack/httptools), which is not asked
for headers: few answers' are looked at. What is left out is what these servers do not use: redirects,
cookies, compressed answers, answers that end with the connection.
"""

from __future__ import annotations

import gzip
import re
import select
import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from httptools import HttpParserError, HttpResponseParser

from ...errors import one_line
from ..sending import explain_length, most_answer_bytes
from ..waiting import (
    TIMEOUTS,
    Receiver,
    limit_waits,
    note_arrival,
    note_sending,
    stamp_arrivals,
)

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
_MOST_KNOWN = 64
"""Heads of answers that a connection remembers."""
_COPIED = 1 << 14
"""A body up to this size is copied behind its header: that takes less than to send from two places."""
_END_BYTES = 1 << 14
"""How much is kept of an answer that isn't whole."""
_HEAD_END = b"\r\n\r\n"
_LEAST_FINAL = 200
"""Answers of a lower status come before another."""
_INTERIM = re.compile(rb"HTTP/1\.\d 1\d\d")


class NoAnswer(Exception):
    """A request was not answered; the text says why, in one line."""


class ConnectionLost(NoAnswer):
    """There is no connection, or none any more: the server may have the request."""

    def __init__(self, text: str, end: bytes = b"") -> None:
        """`end`: the last part of an answer's body that came."""
        super().__init__(text)
        self.end = end


class NotConnected(ConnectionLost):
    """No connection could be made: the server has nothing of the request."""


class AnswerTimeout(NoAnswer):
    """Nothing came in time: the server may have the request."""


class TlsRefused(NoAnswer):
    """One end does not speak TLS, or does not trust the other: nothing was sent."""


class HandshakeCut(TlsRefused):
    """The server ended the connection in the handshake: it doesn't speak TLS, or it has just ended."""


class HttpRequest(NamedTuple):
    """A request, ready to be sent."""

    method: str
    target: str
    """Path and query, behind the path of the server's URL."""
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    """Besides those of all requests. Where many requests have the same ones, best the same object."""


class _Headers:
    """An answer's headers, split when they are asked for."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        """`text`: what came, at least up to their end; answers of status 1xx may come before."""
        self._text = text

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        head, _, rest = self._text.partition(_HEAD_END)
        while _INTERIM.match(head):
            head, _, rest = rest.partition(_HEAD_END)
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            yield name, value.strip()


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    headers: Iterable[tuple[bytes, bytes]]

    def header(self, name: str) -> str | None:
        """The first header of that name, however it is written."""
        lowered = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == lowered:
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
    that hangs up in the handshake is one that ends, or one that doesn't speak TLS (`HandshakeCut`).
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
    """A connected socket, made by several attempts within the limit, which its calls have then, too; OSError
    if none came through."""
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
        self.owner: Any = None
        """The node that the pool has it from."""
        self.descriptor = stream.fileno()
        self._stream = stream
        self._stamped = stamped
        self._receiver = Receiver(stream, stamped)
        self._tls = stream if isinstance(stream, ssl.SSLSocket) else None
        events = select.poll()
        events.register(stream, select.POLLIN)
        self._find_events = events.poll
        self._timeout_s: float | None = None
        self._bytes = bytearray(_PIECE)
        self._buffer = memoryview(self._bytes)
        self._fresh = True
        """Whether nothing of an answer has come yet."""
        self._known: dict[bytes, tuple[int, int, _Headers]] = {}
        """Head of a recent answer that came at once -> status, length of the body, and headers."""
        self._body: list[bytes] = []
        # Called by the parser, which then calls nothing of Python's.
        self.on_body = self._body.append
        self._parser = HttpResponseParser(self)
        self._head = b""
        self._head_is_whole = False
        self._received = 0
        self._is_complete = False
        self.keeps_alive = False
        """Whether the server takes another request after the last one."""
        self.sent_s = 0.0
        """When the last request went out."""
        self._refused: OSError | None = None
        """The error if the server hung up before it had read the whole request."""

    @property
    def arrived_s(self) -> float:
        """When the last of what was received came."""
        return self._receiver.arrived_s

    def close(self) -> None:
        self._stream.close()

    def has_ended(self) -> bool:
        """Whether the server has hung up. Without a request, it can have nothing else to say."""
        return bool(self._find_events(0))

    def begin(self, head: bytes, body: bytes, timeout_s: float) -> None:
        """Send a request, whose answer `receive` is to read; each of the two ends after `timeout_s`."""
        if timeout_s != self._timeout_s:
            limit_waits(self._stream, timeout_s)
            self._timeout_s = timeout_s
        self._fresh = True
        self._refused = None
        self.sent_s = time.perf_counter()
        if self._stamped:
            note_sending(self.sent_s)
        try:
            if self._tls is not None or len(body) <= _COPIED:
                self._stream.sendall(head + body)
            else:
                self._send_apart(head, body)
        except (BrokenPipeError, ConnectionResetError) as error:
            # The server may have said why.
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
        """Wait for something to read, and read it: the answer, if that was the rest of it. SimulatorError if
        it is longer than memory allows."""
        try:
            size = self._receiver.receive(self._buffer)
            if self._stamped:
                note_arrival(self._receiver.arrived_s)
            if not size:
                raise self._explain_end()
            if self._fresh:
                # Most heads are the same as those of answers before, but for the time of day.
                begin = self._bytes.find(_HEAD_END, 0, size) + len(_HEAD_END)
                if summary := self._known.get(bytes(self._buffer[:begin])):
                    status, length, headers = summary
                    if begin + length == size and self._refused is None:
                        return Answer(status, bytes(self._buffer[begin:size]), headers)
                self._fresh = False
                self._head, self._head_is_whole, self._received = b"", False, 0
                self._is_complete = False
                self._body.clear()
            answer = self._parse(size)
            while answer is None and self._tls is not None and self._tls.pending():
                # Nothing else tells of what is decrypted.
                answer = self._parse(self._receiver.receive(self._buffer))
        except (OSError, NoAnswer) as error:
            if isinstance(error, NoAnswer) and self._refused is None:
                raise
            raise self._explain(error) from error
        if answer is not None and self._refused is not None:
            self.keeps_alive = False
        return answer

    def _parse(self, size: int) -> Answer | None:
        """Go on with this many bytes that have come."""
        came = self._buffer[:size]
        at_once = not self._received
        self._received += size
        if self._received > most_answer_bytes():
            raise explain_length(self._received)
        if not self._head_is_whole:
            self._head += came
            self._head_is_whole = _HEAD_END in self._head
        try:
            self._parser.feed_data(came)
        except HttpParserError as error:
            raise ConnectionLost(f"the answer is not HTTP: {one_line(error)}") from error
        if not self._is_complete:
            return None
        body = b"".join(self._body)
        status = self._parser.get_status_code()
        if at_once and self.keeps_alive and len(body) <= _COPIED and self._head.endswith(body):
            self._remember(self._head[: size - len(body)], status, len(body))
        return Answer(status, body, _Headers(self._head))

    def _remember(self, head: bytes, status: int, length: int) -> None:
        """Remember the head of an answer, if its body is what came behind it."""
        if head.endswith(_HEAD_END) and head.count(_HEAD_END) == 1:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[head] = status, length, _Headers(head)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < _LEAST_FINAL:
            self._head_is_whole = False
            return
        self.keeps_alive = self._parser.should_keep_alive()
        self._is_complete = True

    def explain_delay(self) -> AnswerTimeout:
        """The error that nothing came in time."""
        return AnswerTimeout(f"no answer within {self._timeout_s:g} s")

    def _explain(self, error: Exception) -> NoAnswer:
        if self._refused is not None:
            return ConnectionLost(one_line(self._refused))
        if isinstance(error, TIMEOUTS):
            return self.explain_delay()
        return ConnectionLost(one_line(error))

    def _explain_end(self) -> ConnectionLost:
        if self._fresh or not self._body:
            return ConnectionLost("the server closed the connection without an answer")
        # What a server says of an error in the middle of an answer comes last.
        end = b"".join(self._body[-2:])[-_END_BYTES:]
        return ConnectionLost("the server closed the connection during its answer", end)


# Compressed requests.

# Level 9, gzip's default, takes seven times the CPU of level 1 for a sixth less.
_LEVEL = 1


def compress(body: bytes) -> bytes:
    """The body as gzip, the same for the same body."""
    return gzip.compress(body, _LEVEL, mtime=0)
