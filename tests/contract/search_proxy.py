"""A proxy in front of HTTP servers: it knows requests well enough to lose, refuse or delay one, ends TLS,
and asks for credentials."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BufferedReader
from itertools import count
from typing import Literal
from urllib.parse import urlsplit

Fate = Literal[
    "drop request", "cut while it works", "drop answer", "hold answer", "refuse", "give up"
]
"""What happens to a request:

* drop request: the server never sees it, and the connection is cut;
* cut while it works: the connection is cut as soon as the server has the request;
* drop answer: the server answers, but the answer is lost, and the connection is cut;
* hold answer: the server answers, but the client never hears of it, though the connection lives;
* refuse: the server never sees it, and the answer is `refusal`;
* give up: the server answers, but the client is told 504, as by a gateway that lost patience.
"""


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
    fated: Callable[[HttpRequest], bool] = lambda request: True
    """Which requests may meet `fate`."""
    refusal: tuple[int, object] = (429, {})
    """Status and JSON body of a refused request."""
    tls: ssl.SSLContext | None = None
    authorization: str | None = None
    """What the header must be; others are answered by `denial`."""
    denial: tuple[int, object] = (401, {})
    fate: Fate | None = None
    """Of the next request that may meet it; None again once it has."""
    refused_connections: int = 0
    """So many connections more are closed at once."""
    _listeners: list[socket.socket] = field(default_factory=list)
    _lines: list[_Line] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for url in self.urls:
            listener = socket.create_server(("127.0.0.1", 0))
            self._listeners.append(listener)
            threading.Thread(target=self._accept, args=[listener, url], daemon=True).start()

    @property
    def endpoints(self) -> list[str]:
        """The URLs of the servers by way of the proxy."""
        scheme = "https" if self.tls else "http"
        ports = [listener.getsockname()[1] for listener in self._listeners]
        return [f"{scheme}://localhost:{port}" for port in ports]

    def lines(self, header: str, beginning: str) -> list[_Line]:
        """The open connections whose last request had such a header."""
        with self._lock:
            return [line for line in self._lines if line.last(header).startswith(beginning)]

    def cut(self, lines: Sequence[_Line] | None = None) -> int:
        """Cut clients off (all, if not said which); their number. The servers do not notice."""
        with self._lock:
            cut = list(self._lines if lines is None else lines)
        for line in cut:
            line.close()
        return len(cut)

    def close(self) -> None:
        """End it all."""
        for listener in self._listeners:
            # close() alone would not wake the thread that waits in accept().
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def take_fate(self, request: HttpRequest) -> Fate | None:
        """The fate of a request that comes now; later ones have none."""
        with self._lock:
            if self.fate is None or not self.fated(request):
                return None
            fate, self.fate = self.fate, None
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
        line = incoming.readline().decode("latin-1")
        method, target, _ = line.split(" ")
        self._headers = http.client.parse_headers(incoming)
        body = incoming.read(int(self._headers.get("content-length", 0)))
        return HttpRequest(method, target, self._headers, body)

    def _pass_on(self, request: HttpRequest) -> bool:
        """Answer a request; False if the connection is to end."""
        proxy = self._proxy
        if proxy.authorization not in (None, request.headers.get("authorization")):
            return self._answer(*proxy.denial)
        fate = proxy.take_fate(request)
        if fate == "drop request":
            return False
        if fate == "refuse":
            return self._answer(*proxy.refusal)
        self._server.request(
            request.method, request.target, request.body or None, dict(request.headers.items())
        )
        if fate == "cut while it works":
            self.close()
        found = self._server.getresponse()
        content = found.read()
        if fate in ("drop answer", "cut while it works"):
            return False
        if fate == "hold answer":
            return True
        if fate == "give up":
            return self._answer(504, "upstream request timeout")
        kept = ("content-type", "x-elastic-product", "location")
        headers = {name: value for name, value in found.getheaders() if name.lower() in kept}
        return self._send(found.status, headers, content, request.method != "HEAD")

    def _answer(self, status: int, body: object) -> bool:
        return self._send(
            status, {"content-type": "application/json"}, json.dumps(body).encode(), True
        )

    def _send(self, status: int, headers: dict[str, str], content: bytes, with_body: bool) -> bool:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(content)}", "", ""]
        self._client.sendall("\r\n".join(lines).encode() + (content if with_body else b""))
        return True


@contextmanager
def http_proxy(proxy: HttpProxy) -> Iterator[HttpProxy]:
    """The proxy, for a while."""
    try:
        yield proxy
    finally:
        proxy.close()
