"""A proxy between the module and IoTDB that knows frames of Thrift well enough to spoil one insert."""

from __future__ import annotations

import re
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import BinaryIO, Literal

from . import tcp_proxy
from .tcp_proxy import read_exactly

Fate = Literal["drop request", "drop answer", "swallow answer", "rejected", "stored but refused"]
"""What happens to the next insert:

* drop request: the server never sees it, and the connection is cut;
* drop answer: the server stores it, its answer never arrives, and the connection is cut;
* swallow answer: the server stores it, its answer never arrives, and the connection stays;
* rejected: the server never sees it, and the answer says that it has no memory for it;
* stored but refused: the server stores it, but the answer says that a node didn't answer in time.
"""

_RUN = re.compile(rb"iot-benchmark (\w+)")
_INSERTS = (b"insertTablet", b"insertRecord")
"""Beginnings of the calls' names, all of one length."""
_CODES: dict[str, int] = {"rejected": 606, "stored but refused": 712}


def _refuse(code: int) -> bytes:
    """A frame that answers an insert with this status: message of type REPLY, result 0, a TSStatus."""
    text = b"says the proxy"
    status = (
        struct.pack("!bhi", 8, 1, code) + struct.pack("!bhi", 11, 2, len(text)) + text + b"\x00"
    )
    result = struct.pack("!bh", 12, 0) + status + b"\x00"
    message = struct.pack("!Ii", 0x80010002, len(_INSERTS[0])) + _INSERTS[0] + bytes(4) + result
    return struct.pack("!i", len(message)) + message


class Proxy(tcp_proxy.Proxy[Fate, "_Line"]):
    """A proxy to a server. Inserts can have a fate."""

    def _connect(self, client: socket.socket, server: socket.socket) -> _Line:
        return _Line(self, len(self._lines), client, server)

    def lines(self, run_id: str) -> dict[int, _Line]:
        """That run's connections."""
        return {
            line.number: line
            for line in list(self._lines)
            if line.run_id == run_id and not line.is_over.is_set()
        }


class _Line(tcp_proxy.Line):
    def __init__(
        self, proxy: Proxy, number: int, client: socket.socket, server: socket.socket
    ) -> None:
        super().__init__(client, server)
        self.number = number
        self.run_id = ""
        self._proxy = proxy
        self._fates: deque[Fate | None] = deque()
        """What happens to the answers that are still to come."""

    def _requests(self) -> None:
        with self._client.makefile("rb") as stream:
            for frame in _frames(stream):
                if not self.run_id and (match := _RUN.search(frame)):
                    self.run_id = match[1].decode()
                fate = self._proxy.take_fate() if frame[12:24] in _INSERTS else None
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
        head = read_exactly(stream, 4)
        yield head + read_exactly(stream, int.from_bytes(head, "big"))
