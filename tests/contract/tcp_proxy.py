"""What proxies that read a protocol have in common: connections from one end to the other, each message of
which may have a fate."""

from __future__ import annotations

import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import BinaryIO, Generic, Self, TypeVar


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Clients, until the listener is shut down."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        yield client


class Line(ABC):
    """One connection: of a client to the proxy, and of the proxy to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.is_over = threading.Event()
        self._client, self._server = client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        """Forward in both directions until one of them ends."""
        for pump in (self._requests, self._answers):
            threading.Thread(target=self._pumped, args=[pump], daemon=True).start()

    def close(self) -> None:
        """Cut it on both sides."""
        self.is_over.set()
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pumped(self, pump: Callable[[], None]) -> None:
        with suppress(OSError, EOFError):
            pump()
        self.close()

    @abstractmethod
    def _requests(self) -> None:
        """Forward what the client sends."""

    @abstractmethod
    def _answers(self) -> None:
        """Forward what the server sends."""


FateT = TypeVar("FateT", bound=str)
LineT = TypeVar("LineT", bound=Line)


class Proxy(ABC, Generic[FateT, LineT]):
    """Listens on a port of its own and forwards to the server; it ends with its `with` block."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: to speak TLS with clients."""
        self._target = (host, port)
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[LineT] = []
        self.fate: FateT | None = None
        """What happens to the next message that can have one; None again afterwards."""
        threading.Thread(target=self._accept, daemon=True).start()

    @abstractmethod
    def _connect(self, client: socket.socket, server: socket.socket) -> LineT:
        """A new connection."""

    def take_fate(self) -> FateT | None:
        """The fate of a message that comes now; later ones have none."""
        fate, self.fate = self.fate, None
        return fate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # close() alone would not wake the thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        for client in accept_all(self._listener):
            end = client
            try:
                if self._tls:
                    end = self._tls.wrap_socket(client, server_side=True)
                line = self._connect(end, socket.create_connection(self._target))
            except OSError:
                end.close()
                continue
            self._lines.append(line)
            line.start()


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Exactly this many bytes; EOFError if there are fewer."""
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
