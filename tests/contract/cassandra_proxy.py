"""A proxy between the driver and a node that knows the protocol well enough to spoil one request.

Version 5, uncompressed: after the handshake, messages travel in segments with checksums.
https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Iterator
from typing import BinaryIO, Literal

from cassandra.segment import SegmentCodec

from . import tcp_proxy
from .tcp_proxy import read_exactly

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


class Proxy(tcp_proxy.Proxy[Fate, "_Line"]):
    """A proxy to a node. Requests that write can have a fate."""

    def _connect(self, client: socket.socket, server: socket.socket) -> _Line:
        return _Line(self, client, server)


class _Line(tcp_proxy.Line):
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        super().__init__(client, server)
        self._proxy = proxy
        self._lock = threading.Lock()
        """Held to write to the client: the server's answers and our own errors go there."""
        self._fated: dict[int, Fate] = {}
        """Stream id of a request -> what happens to its answer."""

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
        """Forward messages that aren't in segments yet, up to the last of them."""
        while True:
            header = read_exactly(stream, _HEADER.size)
            _, _, _, operation, length = _HEADER.unpack(header)
            to.sendall(header + read_exactly(stream, length))
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
        header = read_exactly(stream, _SEGMENT_HEADER_BYTES)
        length = int.from_bytes(header[:3], "little") & 0x1FFFF
        rest = read_exactly(stream, length + _CHECKSUM_BYTES)
        _, _, stream_id, operation, _ = _HEADER.unpack_from(rest)
        yield header + rest, (stream_id, operation)
