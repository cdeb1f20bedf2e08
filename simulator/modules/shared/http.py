"""HTTP/1.1 for requests that are measured: what a client costs is a part of every figure.

For a bulk request of 1,000 events, urllib3 takes about five times the CPU of what is here: it makes a
dozen objects per request, and reads an answer's header by an e-mail parser. Here a request is one
system call, and answers are read by llhttp (https://github.com/MagicStack/httptools). What is left out
is what these servers do not use: redirects, cookies, compressed answers, answers that end with the
connection.
"""

from __future__ import annotations

import base64
import itertools
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from httptools import HttpParserError, HttpResponseParser

from ...errors import Retryable, SimulatorError, one_line

CONNECT_TIMEOUT_S = 5.0
"""Also for the answer to a question that needs no data."""

_DOWN_S = 1.0
"""So long a node that can't be reached is left out, if there are others."""

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

_PIECE = 1 << 16
"""Bytes read at once."""


class NoAnswer(Exception):
    """A request was not answered; the text says why, in one line."""


class ConnectionLost(NoAnswer):
    """There is no connection, or none any more: the server may have the request."""


class NotConnected(ConnectionLost):
    """No connection could be made: the server has nothing of the request."""


class AnswerTimeout(NoAnswer):
    """Nothing came in time: the server may have the request."""


class TlsRefused(NoAnswer):
    """One end does not speak TLS, or does not trust the other: nothing was sent."""


def translated(
    error: NoAnswer, system: str, server: str, remedy: str
) -> Retryable | SimulatorError:
    """What it means for a run; `remedy`: the options that say whom to trust."""
    if isinstance(error, TlsRefused):
        return SimulatorError(
            f"no TLS with {system} at {server}: {error}; check that endpoint says https where the"
            f" server does, and {remedy}"
        )
    kind = "timeout" if isinstance(error, AnswerTimeout) else "connection_lost"
    return Retryable(kind, f"{server}: {error}")


def scheme_port(url: str) -> int:
    """The port that a URL means which names none."""
    return 443 if urlsplit(url).scheme == "https" else 80


def basic_auth(user: str, password: str) -> str:
    """The value of the header `authorization`: https://www.rfc-editor.org/rfc/rfc7617"""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Answer:
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


def parsed(body: bytes) -> Any:
    """An answer's JSON; the text if it is none (a proxy's error page)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")


class HttpPool:
    """Connections to the nodes of a server, which are asked in turn; as many as threads need at once."""

    def __init__(
        self,
        urls: Sequence[str],
        default_port: int,
        headers: Mapping[str, str],
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects to nothing yet. `headers`: of each request; `timeout_s`: how long to wait for a
        server to take a request or to answer; `tls`: for the https:// among `urls`.

        Raises SimulatorError if a header holds a line break, as a secret does that was read from a
        file with one, or what is not ASCII.
        """
        self._nodes = [_Node(url, default_port, tls) for url in urls]
        self._turn = itertools.cycle(self._nodes)
        self._headers = _lines(headers)
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close all connections that nobody uses."""
        for node in self._nodes:
            while connection := node.take():
                connection.close()

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request, sent once, and its answer, whatever that says. NoAnswer if there is none."""
        timeout_s = timeout_s or self._timeout_s
        node = self._next()
        connection = node.connected(min(timeout_s, CONNECT_TIMEOUT_S))
        head = (
            f"{method} {node.path}{target} HTTP/1.1\r\nhost: {node.authority}\r\n"
            f"{self._headers}{_lines(headers) if headers else ''}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            answer = connection.exchange(head.encode(), body, timeout_s)
        except BaseException:
            connection.close()
            raise
        if connection.reusable():
            node.idle.append(connection)
        else:
            connection.close()
        return answer

    def _next(self) -> _Node:
        """The node whose turn it is; one that is down only if all are."""
        now = time.monotonic()
        for _ in self._nodes:
            node = next(self._turn)
            if node.down_until <= now:
                break
        return node


def _lines(headers: Mapping[str, str]) -> str:
    for name, value in headers.items():
        if "\r" in value or "\n" in value or not value.isascii():
            raise SimulatorError(f"what is sent as {name} must be ASCII without a line break")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class _Node:
    """One server's address and the connections to it that nobody uses."""

    def __init__(self, url: str, default_port: int, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host = parts.hostname
        self._port = parts.port or default_port
        self._tls = tls if parts.scheme == "https" else None
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.authority = f"{host}:{self._port}"
        self.path = parts.path.rstrip("/")
        self.idle: list[_Connection] = []
        self.down_until = 0.0
        self._reached = False

    def take(self) -> _Connection | None:
        """An idle connection, which is its taker's from now on."""
        try:
            # Not asked for before: another thread may take the last one meanwhile.
            return self.idle.pop()
        except IndexError:
            return None

    def connected(self, timeout_s: float) -> _Connection:
        """A connection that is open as far as one can tell: an idle one, or a new one."""
        while connection := self.take():
            if not connection.ended():
                return connection
            connection.close()
        try:
            found = self._connect(timeout_s)
        except NoAnswer:
            self.down_until = time.monotonic() + _DOWN_S
            raise
        self.down_until = 0.0
        self._reached = True
        return found

    def _connect(self, timeout_s: float) -> _Connection:
        try:
            stream = socket.create_connection((self._host, self._port), timeout_s)
        except OSError as error:
            raise NotConnected(one_line(error)) from error
        for option in SOCKET_OPTIONS:
            stream.setsockopt(*option)
        if self._tls is None:
            return _Connection(stream)
        try:
            return _Connection(self._tls.wrap_socket(stream, server_hostname=self._host))
        except ssl.SSLError as error:
            stream.close()
            # A server that was talked to and hangs up now is one that ends.
            if isinstance(error, ssl.SSLEOFError) and self._reached:
                raise NotConnected(one_line(error)) from error
            raise TlsRefused(one_line(error)) from error
        except OSError as error:
            stream.close()
            raise NotConnected(f"in the TLS handshake: {one_line(error)}") from error


class _Connection:
    """One connection, with one request under way at most; also the parser's way to tell what it found."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
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

    def ended(self) -> bool:
        """Whether the server has hung up: it has nothing else to say where it wasn't asked."""
        return bool(self._events.poll(0))

    def reusable(self) -> bool:
        """Whether the server takes another request after the last one."""
        return self._keeps_alive

    def exchange(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Send a request and await its answer."""
        if timeout_s != self._timeout_s:
            self._stream.settimeout(timeout_s)
            self._timeout_s = timeout_s
        self._headers, self._body, self._answer = [], [], None
        try:
            try:
                self._send(head, body)
            except (BrokenPipeError, ConnectionResetError) as error:
                return self._refused_early(error)
            return self._receive()
        except TimeoutError as error:
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

    def _refused_early(self, error: OSError) -> Answer:
        """What a server has answered that hung up before it had read the whole request."""
        try:
            answer = self._receive()
        except (OSError, NoAnswer):
            raise ConnectionLost(one_line(error)) from error
        self._keeps_alive = False
        return answer

    def _receive(self) -> Answer:
        while self._answer is None:
            size = self._stream.recv_into(self._buffer)
            if not size:
                raise ConnectionLost("the server hung up without an answer")
            try:
                self._parser.feed_data(self._buffer[:size])
            except HttpParserError as error:
                raise ConnectionLost(f"the answer is not HTTP: {one_line(error)}") from error
        return self._answer

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
