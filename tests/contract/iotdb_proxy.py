"""A proxy between the module and IoTDB that knows frames of Thrift well enough to spoil one tablet."""

from __future__ import annotations

import itertools
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Literal

Fate = Literal["drop request", "drop answer", "swallow answer", "rejected", "stored but refused"]
"""What happens to the next tablet:

* drop request: the server never sees it, and the connection is cut;
* drop answer: the server stores it, its answer never arrives, and the connection is cut;
* swallow answer: the server stores it, its answer never arrives, and the connection stays;
* rejected: the server never sees it, and the answer says that it has no memory for it;
* stored but refused: the server stores it, but the answer says that a node didn't answer in time.
"""

_RUN = re.compile(rb"iot-benchmark (\w+)")
_TABLET = b"insertTablet"
_CODES: dict[str, int] = {"rejected": 606, "stored but refused": 712}


def _refuse(code: int) -> bytes:
    """A frame that answers a tablet with this status: message of type REPLY, result 0, a TSStatus."""
    text = b"says the proxy"
    status = (
        struct.pack("!bhi", 8, 1, code) + struct.pack("!bhi", 11, 2, len(text)) + text + b"\x00"
    )
    result = struct.pack("!bh", 12, 0) + status + b"\x00"
    message = struct.pack("!Ii", 0x80010002, len(_TABLET)) + _TABLET + bytes(4) + result
    return struct.pack("!i", len(message)) + message


class Proxy:
    """Listens on a port of its own and forwards to the server."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._numbers = itertools.count()
        self._lines: list[_Line] = []
        self.fate: Fate | None = None
        """What happens to the next tablet; None again afterwards."""
        threading.Thread(target=self._accept, daemon=True).start()

    def take_fate(self) -> Fate | None:
        """The fate of a tablet that comes now; later ones have none."""
        fate, self.fate = self.fate, None
        return fate

    def lines(self, run_id: str) -> dict[int, _Line]:
        """That run's connections."""
        return {
            line.number: line
            for line in list(self._lines)
            if line.run_id == run_id and not line.is_over.is_set()
        }

    def close(self) -> None:
        """End it all."""
        # close() alone would not wake the thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._lines.append(_Line(self, next(self._numbers), client, server))


class _Line:
    """One connection."""

    def __init__(
        self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket
    ) -> None:
        self.number = number
        self.run_id = ""
        self.is_over = threading.Event()
        self._proxy, self._client, self._server = proxy, client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fates: deque[Fate | None] = deque()
        """What happens to the answers that are still to come."""
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

    def _requests(self) -> None:
        with self._client.makefile("rb") as stream:
            for frame in _frames(stream):
                if not self.run_id and (found := _RUN.search(frame)):
                    self.run_id = found[1].decode()
                fate = self._proxy.take_fate() if frame[12:24] == _TABLET else None
                if fate == "drop request":
                    return
                if fate == "rejected":
                    self._client.sendall(_refuse(_CODES[fate]))
                else:
                    self._fates.append(fate)
                    self._server.sendall(frame)

    def _answers(self) -> None:
        with self._server.makefile("rb") as stream:
            for frame in _frames(stream):
                fate = self._fates.popleft()
                if fate == "drop answer":
                    return
                if fate == "stored but refused":
                    self._client.sendall(_refuse(_CODES[fate]))
                elif fate != "swallow answer":
                    self._client.sendall(frame)


def _frames(stream: BinaryIO) -> Iterator[bytes]:
    """Each frame with its length."""
    while True:
        head = _exactly(stream, 4)
        yield head + _exactly(stream, int.from_bytes(head, "big"))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """A proxy to that server."""
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
