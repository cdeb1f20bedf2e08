"""A proxy between an HTTP client and its server that can lose, refuse or encrypt.

It knows each connection by a header of what came over it (`User-Agent`, unless another is named),
which is how an adapter tells a run's connections from all others.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class DropRequest:
    """The server never sees the request, and the connection is cut."""


@dataclass(frozen=True)
class DropAnswer:
    """The server answers, but the answer never arrives, and the connection is cut."""


@dataclass(frozen=True)
class Refuse:
    """The proxy answers in the server's place."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


Fate = DropRequest | DropAnswer | Refuse
"""What happens to the next request that writes."""


class HttpProxy(ThreadingHTTPServer):
    """Listens on a port of its own of 127.0.0.1 and forwards to the server at `url`."""

    daemon_threads = True

    def __init__(
        self,
        url: str,
        writes: Callable[[str, str], bool],
        certificate: Path | None = None,
        agent_header: str = "User-Agent",
    ) -> None:
        """`writes(method, path)`: whether a request is one that can meet a fate; `certificate`: a PEM
        file with certificate and key, to speak TLS with the client."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(url)
        self.writes = writes
        self.agent_header = agent_header
        self.fate: Fate | None = None
        self.refusals = 0
        """So many connections more are closed as soon as they are made."""
        self.delay_s = 0.0
        """How long each request that writes takes more."""
        self.hold_s = 0.0
        """How long the next request that writes takes; 0 again once it has been held."""
        self.write_times: list[float] = []
        """When each request that writes came in."""
        self._connections: dict[socket.socket, tuple[str, int]] = {}
        self._numbers = count()
        self._lock = threading.Lock()
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=[0.02], daemon=True).start()

    def close(self) -> None:
        """End it all."""
        self.shutdown()
        self.server_close()
        self.cut(self.connections())

    def connections(self, agent: str | None = None) -> dict[socket.socket, int]:
        """Open connections, of all clients or of one, and a number that no other will ever have."""
        with self._lock:
            known = list(self._connections.items())
        return {
            found: number
            for found, (name, number) in known
            if agent in (None, name) and _is_open(found)
        }

    def cut(self, connections: Iterable[socket.socket]) -> None:
        """Close connections while nothing is under way on them."""
        for connection in list(connections):
            self.forget(connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def note(self, connection: socket.socket, agent: str) -> None:
        with self._lock:
            known = self._connections.get(connection)
            self._connections[connection] = agent, known[1] if known else next(self._numbers)

    def forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)

    def take_fate(self) -> Fate | None:
        """The fate of a request that writes now; later ones have none."""
        self.write_times.append(time.monotonic())
        fate, self.fate = self.fate, None
        return fate

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or trusts no certificate of ours, is what tests are about."""


def _is_open(connection: socket.socket) -> bool:
    """Whether the client has not closed it; the thread that serves it may not have noticed yet."""
    try:
        # Below TLS, if there is any.
        return socket.socket.recv(connection, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpProxy

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        upstream = self.server.upstream
        self._upstream = http.client.HTTPConnection(upstream.hostname or "", upstream.port)

    def finish(self) -> None:
        self.server.forget(self.connection)
        self._upstream.close()
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is overridden
        """Nobody reads it."""

    def _handled(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.note(self.connection, self.headers.get(self.server.agent_header, ""))
        fate = None
        if self.server.writes(self.command, self.path):
            fate = self.server.take_fate()
            hold_s, self.server.hold_s = self.server.hold_s, 0.0
            time.sleep(hold_s or self.server.delay_s)
        if isinstance(fate, DropRequest):
            self.close_connection = True
        elif isinstance(fate, Refuse):
            self._answer(fate.status, list(fate.headers.items()), fate.body)
        else:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            self._upstream.request(self.command, self.path, body, headers)
            answer = self._upstream.getresponse()
            content = answer.read()
            if isinstance(fate, DropAnswer):
                self.close_connection = True
            else:
                self._answer(answer.status, answer.getheaders(), content)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _handled  # noqa: N815


@contextmanager
def proxy_to(
    url: str, writes: Callable[[str, str], bool], certificate: Path | None = None
) -> Iterator[HttpProxy]:
    """A proxy to that server."""
    proxy = HttpProxy(url, writes, certificate)
    try:
        yield proxy
    finally:
        proxy.close()
