"""A proxy between the driver and a node that knows the protocol well enough to spoil one request.

Version 5, uncompressed: after the handshake, messages travel in segments with checksums.
https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Literal

from cassandra.segment import SegmentCodec

Fate = Literal["drop request", "drop answer", "swallow answer", "write timeout", "overloaded"]
"""What happens to the next request that writes:

* drop request: the server never sees it, and the connection is cut;
* drop answer: the server writes, its answer never arrives, and the connection is cut;
* swallow answer: the server writes, its answer never arrives, and the connection stays;
* write timeout: the server writes, but the answer says that it did not do so in time;
* overloaded: the server never sees it, and the answer says that there is too much to do.
"""

_STARTUP, _READY, _AUTHENTICATE, _ERROR, _EXECUTE, _BATCH = 0x01, 0x02, 0x03, 0x00, 0x0A, 0x0D
_HEADER = struct.Struct("!BBhBi")
_SEGMENT_HEADER_BYTES, _CHECKSUM_BYTES = 6, 4
_OVERLOADED, _WRITE_TIMEOUT = 0x1001, 0x1100


def _text(value: str) -> bytes:
    return struct.pack("!H", len(value)) + value.encode()


_BODIES = {
    "overloaded": struct.pack("!i", _OVERLOADED) + _text("too much to do"),
    # Consistency LOCAL_QUORUM, 0 of 1 answers received.
    "write timeout": struct.pack("!i", _WRITE_TIMEOUT)
    + _text("too slow")
    + struct.pack("!Hii", 6, 0, 1)
    + _text("SIMPLE"),
}


class Proxy:
    """Listens on a port of its own and forwards to the node."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[_Line] = []
        self.fate: Fate | None = None
        """What happens to the next request that writes; None again afterwards."""
        threading.Thread(target=self._accept, daemon=True).start()

    def take_fate(self) -> Fate | None:
        """The fate of a request that writes now; later ones have none."""
        fate, self.fate = self.fate, None
        return fate

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
                self._lines.append(_Line(self, client, socket.create_connection(self._target)))
            except OSError:
                return


class _Line:
    """One connection."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        """Held to write to the client: the server's answers and our own errors go there."""
        self._fated: dict[int, Fate] = {}
        """Stream id of a request -> what happens to its answer."""
        for pump in (self._requests, self._answers):
            threading.Thread(target=self._pumped, args=[pump], daemon=True).start()

    def close(self) -> None:
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
            self._forward_handshake(stream, self._server, _STARTUP)
            for raw, (stream_id, operation) in _segments(stream):
                fate = self._proxy.take_fate() if operation in (_EXECUTE, _BATCH) else None
                if fate == "drop request":
                    return
                if fate == "overloaded":
                    self._answer(stream_id, fate)
                    continue
                if fate:
                    self._fated[stream_id] = fate
                self._server.sendall(raw)

    def _answers(self) -> None:
        with self._server.makefile("rb") as stream:
            self._forward_handshake(stream, self._client, _READY)
            for raw, (stream_id, _) in _segments(stream):
                fate = self._fated.pop(stream_id, None)
                if fate == "drop answer":
                    return
                if fate == "write timeout":
                    self._answer(stream_id, fate)
                elif fate is None:
                    with self._lock:
                        self._client.sendall(raw)

    def _forward_handshake(self, stream: BinaryIO, to: socket.socket, last: int) -> None:
        """Forward messages that are in no segments yet, up to the last such."""
        while True:
            header = _exactly(stream, _HEADER.size)
            _, _, _, operation, length = _HEADER.unpack(header)
            to.sendall(header + _exactly(stream, length))
            if operation == last:
                return

    def _answer(self, stream_id: int, error: str) -> None:
        body = _BODIES[error]
        segment = io.BytesIO()
        SegmentCodec().encode(segment, _HEADER.pack(0x85, 0, stream_id, _ERROR, len(body)) + body)
        with self._lock:
            self._client.sendall(segment.getvalue())


def _segments(stream: BinaryIO) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Each segment's bytes, with stream id and operation of the message in it.

    The driver puts one message into a segment, and the tests send none that needs several; a node
    may put several answers into one only if several are asked for at once.
    """
    while True:
        header = _exactly(stream, _SEGMENT_HEADER_BYTES)
        length = int.from_bytes(header[:3], "little") & 0x1FFFF
        rest = _exactly(stream, length + _CHECKSUM_BYTES)
        _, _, stream_id, operation, _ = _HEADER.unpack_from(rest)
        yield header + rest, (stream_id, operation)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    """A proxy to that node."""
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
