"""A proxy between psycopg2 and PostgreSQL that knows the protocol well enough to cut it anywhere, or
to let PostgreSQL stand in for a relative whose statements it does not know.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import psycopg2.extensions

from .tcp_proxy import accept_all

Fate = Literal["drop request", "drop answer", "doubtful answer", "hold request", "hold answer"]
"""What happens to the request that commits next:

* drop request: the server never sees it, and the connection is cut;
* drop answer: the server commits, its answer never arrives, and the connection is cut;
* doubtful answer: the server commits, but the answer is an error that says that nobody knows, and
  the connection lives on (CockroachDB's "result is ambiguous", 40003);
* hold request: the server never sees it, and the client never hears of it, though the connection lives;
* hold answer: the server commits, and the client never hears of it, though the connection lives.
"""

_COMMAND_COMPLETE, _READY, _BACKEND_KEY = b"C", b"Z", b"K"
_QUERY, _COPY_DONE, _PARSE, _BIND, _EXECUTE, _SYNC = b"Q", b"c", b"P", b"B", b"E", b"S"


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


_DOUBT = _message(
    b"E", b"SERROR\0VERROR\0C40003\0Mresult is ambiguous: connection to a node was lost\0\0"
)


class Proxy:
    """Listens on a port of its own and forwards to the server."""

    def __init__(self, dsn: str, translated: Callable[[bytes], bytes] = bytes) -> None:
        """`translated`: gives the statement that the server gets instead of one."""
        self._given = psycopg2.extensions.parse_dsn(dsn)
        self.translated = translated
        self.backends: set[int] = set()
        """Process ids of the servers' ends."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: list[_Line] = []
        self.fate: Fate | None = None
        """What happens to the next request that commits; None again afterwards."""
        self.silent = 0
        """How many more connections are accepted, and never get an answer."""
        self._silenced: list[socket.socket] = []
        self.refusals = 0
        """How many more connections are refused."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def dsn(self) -> str:
        """The server's connection string by way of the proxy, unencrypted so that it can read."""
        port = self._listener.getsockname()[1]
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        here = {"host": "127.0.0.1", "port": port} | plain
        return str(psycopg2.extensions.make_dsn(**(self._given | here)))

    def redirect(self, dsn: str) -> None:
        """Forward new connections to another server."""
        self._given = psycopg2.extensions.parse_dsn(dsn)

    def cut(self) -> None:
        """Cut the clients off. The server does not notice: its end of the lines stays open."""
        for line in self._lines:
            line.cut()

    def list_open(self) -> list[int]:
        """The numbers of the connections that are open."""
        return [number for number, line in enumerate(self._lines) if line.is_open]

    def close(self) -> None:
        """Stop listening and close all connections."""
        # close() alone would not wake the thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            line.close()
        for client in self._silenced:
            client.close()

    def take_fate(self) -> Fate | None:
        """The fate of a request that commits now; later ones have none."""
        fate, self.fate = self.fate, None
        return fate

    def _accept(self) -> None:
        for client in accept_all(self._listener):
            if self.refusals:
                self.refusals -= 1
                client.close()
            elif self.silent:
                self.silent -= 1
                self._silenced.append(client)
            else:
                line = _Line(self, client, self._connected())
                # Before the client can do anything on it, and then ask who is connected.
                self._lines.append(line)
                line.start()

    def _connected(self) -> socket.socket:
        host, port = self._given.get("host", "localhost"), self._given.get("port", "5432")
        if not host.startswith("/"):
            return socket.create_connection((host, int(port)))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server


class _Line:
    """One client's connection."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        # Small messages in either direction must not wait for each other's acknowledgement.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server.family != socket.AF_UNIX:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.is_open = True
        self._in_transaction = False
        """As of the last message that was read, whether or not the server has got so far."""
        self._executed = False
        """Whether something was executed that the next Sync commits."""
        self._bound = b""
        """The statement that is executed next."""
        self._prepared: dict[bytes, tuple[bytes, bytes]] = {}
        """Name -> statement, and what the server was asked to prepare instead."""
        self._asked = 1
        """How many ReadyForQuery messages will come; the first comes unasked."""
        self._fate: Fate | None = None
        self._fate_at = 0
        """The number of the ReadyForQuery that ends the struck request's answer."""
        self._answered = 0

    def start(self) -> None:
        """Forward what either end sends."""
        for pump in (self._requests, self._answers):
            threading.Thread(target=self._pumped, args=[pump], daemon=True).start()

    def cut(self) -> None:
        self.is_open = False
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        self._client.close()

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _pumped(self, pump: object) -> None:
        assert callable(pump)
        # Whichever end goes away: a cut line stays open on the server's side.
        with suppress(OSError, EOFError):
            pump()

    def _requests(self) -> None:
        with self._client.makefile("rb") as stream:
            # The first message has no kind.
            size = _exactly(stream.read(4), 4)
            self._server.sendall(size + stream.read(struct.unpack("!I", size)[0] - 4))
            for kind, body in _messages(stream.read):
                self._asked += kind in (_QUERY, _SYNC)
                if self._commits(kind, body) and self._fate is None:
                    self._fate_at = self._asked
                    self._fate = self._proxy.take_fate()
                if self._fate == "drop request":
                    self.cut()
                    return
                if self._fate != "hold request":
                    self._server.sendall(self._understood(kind, body))
        # The client has gone in good order.
        self.close()

    def _understood(self, kind: bytes, body: bytes) -> bytes:
        """The message that the server gets."""
        if kind == _QUERY:
            return _message(kind, self._proxy.translated(body[:-1]) + b"\0")
        if kind == _PARSE:
            name, statement, types = body.split(b"\0", 2)
            translated = self._proxy.translated(statement)
            self._prepared[name] = statement, translated
            return _message(kind, b"\0".join((name, translated, types)))
        # A statement without a name has just been prepared.
        if kind == _BIND and (name := body.split(b"\0", 2)[1]):
            statement, before = self._prepared[name]
            translated = self._proxy.translated(statement)
            if translated != before:
                # It means something else this time.
                parse = _message(_PARSE, b"\0" + translated + bytes(3))
                return parse + _message(_BIND, bytes(8))
        return _message(kind, body)

    def _commits(self, kind: bytes, body: bytes) -> bool:
        """Whether a message is the last of a request that writes and then commits."""
        if kind == _PARSE:
            name, statement, _ = body.split(b"\0", 2)
            self._prepared[name] = statement, b""
        elif kind == _BIND:
            self._bound, _ = self._prepared[body.split(b"\0", 2)[1]]
        elif kind == _EXECUTE:
            if self._bound.startswith((b"BEGIN", b"COMMIT", b"ROLLBACK")):
                self._in_transaction = self._bound.startswith(b"BEGIN")
            self._executed |= self._bound.startswith((b"INSERT", b"COMMIT"))
        elif kind == _SYNC:
            executed, self._executed = self._executed, False
            return executed and not self._in_transaction
        elif kind == _COPY_DONE:
            return not self._in_transaction
        elif kind == _QUERY:
            if body.startswith((b"BEGIN", b"COMMIT", b"ROLLBACK")):
                self._in_transaction = body.startswith(b"BEGIN")
                return body.startswith(b"COMMIT")
            return body.startswith(b"INSERT") and not self._in_transaction
        return False

    def _answers(self) -> None:
        try:
            self._forward_answers()
        finally:
            self.cut()

    def _forward_answers(self) -> None:
        with self._server.makefile("rb") as stream:
            for kind, body in _messages(stream.read):
                if kind == _BACKEND_KEY:
                    self._proxy.backends.add(struct.unpack("!I", body[:4])[0])
                struck = self._fate is not None and self._answered + 1 >= self._fate_at
                self._answered += kind == _READY
                if struck and (self._fate == "hold answer" or kind == _COMMAND_COMPLETE):
                    continue
                if struck and kind == _READY:
                    fate, self._fate = self._fate, None
                    if fate == "drop answer":
                        return
                    self._client.sendall(_DOUBT)
                self._client.sendall(_message(kind, body))


def _messages(read: object) -> Iterator[tuple[bytes, bytes]]:
    assert callable(read)
    while True:
        head = read(5)
        if not head:
            return
        size = struct.unpack("!I", _exactly(head, 5)[1:])[0] - 4
        yield head[:1], _exactly(read(size), size)


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise EOFError
    return data


@contextmanager
def proxy_to(dsn: str, translated: Callable[[bytes], bytes] = bytes) -> Iterator[Proxy]:
    """A proxy to that server."""
    proxy = Proxy(dsn, translated)
    try:
        yield proxy
    finally:
        proxy.close()
