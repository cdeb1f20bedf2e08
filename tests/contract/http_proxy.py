"""A proxy in front of HTTP servers: it knows requests well enough to lose, refuse or delay one, ends TLS,
and asks for credentials."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BufferedReader
from itertools import count
from typing import Literal
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Refuse:
    """The server never sees the request, and this is the answer."""

    status: int
    body: object
    """Sent as JSON if it isn't bytes."""
    headers: Mapping[str, str] = field(default_factory=dict)


UNAUTHORIZED = Refuse(401, {})

Fate = (
    Literal["drop request", "cut while it works", "drop answer", "hold answer", "give up"] | Refuse
)
"""What happens to a request, beside `Refuse`:

* drop request: the server never sees it, and the connection is cut;
* cut while it works: the connection is cut as soon as the server has the request;
* drop answer: the server answers, but the answer is lost, and the connection is cut;
* hold answer: the server answers, but the client never hears of it, though the connection lives;
* give up: the server answers, but the client is told 504, as by a gateway that lost patience.
"""

_GAVE_UP = Refuse(504, "upstream request timeout")


@dataclass(frozen=True)
class HttpRequest:
    """A request as the client sent it."""

    method: str
    target: str
    headers: http.client.HTTPMessage
    body: bytes


@dataclass
class HttpProxy:
    """Listens on a port of its own for each server and forwards to it."""

    urls: Sequence[str]
    writes: Callable[[HttpRequest], bool] = lambda request: True
    """Which requests may meet `fate`, and are delayed."""
    tls: ssl.SSLContext | None = None
    """To speak TLS with clients."""
    authorization: str | None = None
    """What the header must be; others are answered by `denial`."""
    denial: Refuse = UNAUTHORIZED
    fate: Fate | None = None
    """What happens to the next request that writes; None again afterwards."""
    instead: Callable[[HttpRequest], Refuse | None] = lambda request: None
    """An answer in the server's place to what it doesn't know; None: the server is asked."""
    defaults: str = ""
    """Parameters in front of those of each request's URL, so that the request's own prevail."""
    refused_connections: int = 0
    """How many more connections are closed at once."""
    delay_s: float = 0.0
    """How much longer each request that writes takes."""
    hold_s: float = 0.0
    """How long the next request that writes takes; 0 again once it has been held."""
    write_times: list[float] = field(default_factory=list)
    """When each request that writes came in."""
    endpoints: list[str] = field(default_factory=list, init=False)
    """The URLs of the servers by way of the proxy."""
    _listeners: list[socket.socket] = field(default_factory=list)
    _lines: list[_Line] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        scheme = "https" if self.tls else "http"
        for url in self.urls:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            self.endpoints.append(f"{scheme}://localhost:{listener.getsockname()[1]}")
            threading.Thread(target=self._accept, args=[listener, url], daemon=True).start()

    def lines(self, header: str, beginning: str) -> list[_Line]:
        """The open connections whose last request had such a header."""
        with self._lock:
            lines = list(self._lines)
        return [
            line for line in lines if line.last(header).startswith(beginning) and line.is_open()
        ]

    def cut(self, lines: Sequence[_Line] | None = None) -> int:
        """Cut clients off (all by default) and return their number. The servers do not notice."""
        with self._lock:
            cut = list(self._lines if lines is None else lines)
        for line in cut:
            line.close()
        return len(cut)

    def close(self) -> None:
        """Stop listening and cut all clients off."""
        self.stop_listening()
        self.cut()

    def stop_listening(self) -> None:
        """Refuse new connections from now on; open ones stay."""
        for listener in self._listeners:
            # close() alone would not wake the thread that waits in accept().
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def wait_and_take_fate(self, request: HttpRequest) -> Fate | None:
        """Hold a request for as long as it is to take, and return its fate. Later requests have none."""
        if not self.writes(request):
            return None
        with self._lock:
            self.write_times.append(time.monotonic())
            fate, self.fate = self.fate, None
            hold_s, self.hold_s = self.hold_s, 0.0
        time.sleep(hold_s or self.delay_s)
        return fate

    def forget(self, line: _Line) -> None:
        with self._lock, suppress(ValueError):
            self._lines.remove(line)

    def _accept(self, listener: socket.socket, url: str) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                refused = self.refused_connections > 0
                self.refused_connections -= refused
                line = _Line(self, client, url, next(self._numbers))
                if not refused:
                    self._lines.append(line)
            if refused:
                client.close()
            else:
                threading.Thread(target=line.serve, daemon=True).start()


class _Line:
    """One client's connection."""

    def __init__(self, proxy: HttpProxy, client: socket.socket, url: str, number: int) -> None:
        self._proxy, self._client = proxy, client
        self.number = number
        """No other connection of the proxy has it, unlike an id() or a port, now or later."""
        # Answers are small: they must not wait for more.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._server = http.client.HTTPConnection(parts.hostname, parts.port or 80)
        self._headers = http.client.HTTPMessage()

    def last(self, header: str) -> str:
        """A header of the last request."""
        return self._headers.get(header, "")

    def is_open(self) -> bool:
        """Whether the client has not closed it; the thread that serves it may not have noticed yet."""
        try:
            # Below TLS, if there is any.
            return socket.socket.recv(self._client, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Cut the client off."""
        self._proxy.forget(self)
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def serve(self) -> None:
        """Pass requests on until either end goes away."""
        with suppress(OSError, http.client.HTTPException):
            if self._proxy.tls:
                self._client = self._proxy.tls.wrap_socket(self._client, server_side=True)
            with self._client.makefile("rb") as incoming:
                while (request := self._read(incoming)) and self._pass_on(request):
                    pass
        self.close()
        self._server.close()

    def _read(self, incoming: BufferedReader) -> HttpRequest | None:
        if not incoming.peek(1)[:1].isalpha():
            return None  # the end, or TLS where there is none
        match incoming.readline().decode("latin-1").split(" "):
            case [method, target, "HTTP/1.1\r\n"]:
                self._headers = http.client.parse_headers(incoming)
                if self._headers.get("transfer-encoding") == "chunked":
                    return HttpRequest(method, target, self._headers, _read_chunks(incoming))
                body = incoming.read(int(self._headers.get("content-length", 0)))
                return HttpRequest(method, target, self._headers, body)
        return None

    def _pass_on(self, request: HttpRequest) -> bool:
        """Answer a request; False if the connection is to end."""
        proxy = self._proxy
        if proxy.authorization not in (None, request.headers.get("authorization")):
            return self._refuse(proxy.denial)
        fate = proxy.wait_and_take_fate(request)
        if fate == "drop request":
            return False
        if isinstance(fate, Refuse):
            return self._refuse(fate)
        instead = proxy.instead(request)
        if instead is not None:
            return self._refuse(instead)
        path, _, parameters = request.target.partition("?")
        target = f"{path}?{proxy.defaults}&{parameters}" if proxy.defaults else request.target
        self._server.request(
            request.method, target, request.body or None, _kept(request.headers.items())
        )
        if fate == "cut while it works":
            self.close()
        answer = self._server.getresponse()
        content = answer.read()
        if fate in ("drop answer", "cut while it works"):
            return False
        if fate == "hold answer":
            return True
        if fate == "give up":
            return self._refuse(_GAVE_UP)
        headers = _kept(answer.getheaders())
        return self._send(answer.status, headers, content, request.method != "HEAD")

    def _refuse(self, refuse: Refuse) -> bool:
        if isinstance(refuse.body, bytes):
            return self._send(refuse.status, refuse.headers, refuse.body)
        headers = {"content-type": "application/json", **refuse.headers}
        return self._send(refuse.status, headers, json.dumps(refuse.body).encode())

    def _send(
        self, status: int, headers: Mapping[str, str], content: bytes, with_body: bool = True
    ) -> bool:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if status != HTTPStatus.NO_CONTENT:
            lines.append(f"content-length: {len(content)}")
        lines += ["", ""]
        self._client.sendall("\r\n".join(lines).encode() + (content if with_body else b""))
        return True


def _read_chunks(incoming: BufferedReader) -> bytes:
    """A body whose length was not known before: https://www.rfc-editor.org/rfc/rfc9112#section-7.1"""
    chunks = []
    while size := int(incoming.readline(), 16):
        chunks.append(incoming.read(size))
        incoming.readline()
    incoming.readline()
    return b"".join(chunks)


def _kept(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The headers that are not about the one connection."""
    return {name: value for name, value in headers if name.lower() not in _HOP_BY_HOP}


@contextmanager
def http_proxy(proxy: HttpProxy) -> Iterator[HttpProxy]:
    """The proxy, for a while."""
    try:
        yield proxy
    finally:
        proxy.close()
