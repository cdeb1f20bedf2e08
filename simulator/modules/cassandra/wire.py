"""CQL's binary protocol for measured requests: the client's CPU time is part of every figure.

The driver takes 35 to 200 µs of CPU for a request: it creates a dozen objects, and reads answers in a
separate thread. Here, a request is one system call, and the waiting thread reads the answers. The driver
follows the cluster, logs in, and decodes errors and rows.

Formats: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import socket
import ssl
import struct
import zlib
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from cassandra import AuthenticationFailed
from cassandra.auth import Authenticator
from cassandra.protocol import (
    AuthChallengeMessage,
    AuthenticateMessage,
    AuthResponseMessage,
    ErrorMessage,
    OptionsMessage,
    PrepareMessage,
    ProtocolHandler,
    StartupMessage,
)
from cassandra.segment import compute_crc24

from ..kit.http_connection import SOCKET_OPTIONS, connect_socket
from ..waiting import Receiver, stamp_arrivals
from .encoding import Prepared

_HEADER = struct.Struct("!BBhBi")
"""Version, flags, number of the request ("stream"), operation, length of the body."""
RESULT = 0x08
_MAX_NUMBER = 0x7FFF

_SEGMENTS_SINCE = 5
_SEGMENT_HEADER_BYTES, _CHECKSUM_BYTES = 6, 4
_MAX_SEGMENT = 0x1FFFF
_SELF_CONTAINED = 0x20000
# Section 2.2: a segment's checksum starts from these bytes.
_CHECKSUM_INITIAL = zlib.crc32(b"\xfa\x2d\x55\xca")

_PIECE = 1 << 18
"""Bytes to read at once."""

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Node = Hashable
"""A node's address, in the driver's form."""


class Pending(NamedTuple):
    """A request without an answer yet."""

    request: Any
    sent_s: float
    late_s: float
    """When to stop waiting for its answer."""


class Reply(NamedTuple):
    """A raw RESULT."""

    flags: int
    body: bytes


class Connection:
    """A connection to a node that carries many requests at the same time. For one thread at a time. It blocks
    during set-up (`ask`), and never after `stop_blocking`."""

    def __init__(self, stream: socket.socket, version: int, node: Node) -> None:
        self.node = node
        self.descriptor = stream.fileno()
        """For poll."""
        self._stream = stream
        self._receiver = Receiver(stream)
        self._is_tls = isinstance(stream, ssl.SSLSocket)
        self._version = version
        self._segmented = False
        self._incoming = b""
        """The beginning of a segment."""
        self._parts: list[bytes] = []
        """The beginning of a frame."""
        self._have = 0
        """Its length."""
        self._wanted = _HEADER.size
        """The length at which more can be read."""
        self._unsent: deque[memoryview] = deque()
        self._free: list[int] = []
        self._numbers = iter(range(_MAX_NUMBER + 1))
        self.pending: dict[int, Pending] = {}
        """Number of a request -> the request, oldest first."""
        self.heard_s = 0.0
        """When the node last sent anything, by `time.perf_counter`."""

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    # --- setting up

    def ask(self, message: Any) -> Any:
        """The answer to a message of the driver's. Raises the server's error, or OSError."""
        frame = ProtocolHandler.encode_message(message, 0, self._version, None, False)
        self._stream.sendall(_pack_segments(frame, b"") if self._segmented else frame)
        while True:
            for flags, number, operation, body in self._read_frames():
                answer = self._decode(flags, number, operation, body)
                if isinstance(answer, Exception):
                    raise answer
                return answer

    def use_segments(self) -> None:
        """Use segments from the answer to STARTUP on, if the protocol version has them."""
        self._segmented = self._version >= _SEGMENTS_SINCE

    def stop_blocking(self, stamped: bool = False) -> None:
        """From here on, nothing waits for the node. `stamped`: the kernel timestamps answers, if it can."""
        self._stream.settimeout(0)
        is_stamped = stamped and not self._is_tls and stamp_arrivals(self._stream)
        self._receiver = Receiver(self._stream, is_stamped)

    # --- requests

    @property
    def full(self) -> bool:
        """Whether the node accepts no more for the moment: call `flush` once it does."""
        return bool(self._unsent)

    def send(self, operation: int, body: bytes, request: Pending) -> None:
        """Send a request, as far as there is room. OSError if the connection is lost."""
        number = self._free.pop() if self._free else next(self._numbers, None)
        if number is None:
            raise ConnectionResetError("too many requests got no answer")
        head = _HEADER.pack(self._version, 0, number, operation, len(body))
        data = _pack_segments(head, body) if self._segmented else head + body
        self.pending[number] = request
        try:
            sent = 0 if self._unsent else self._stream.send(data)
        except _WOULD_BLOCK:
            sent = 0
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])

    def flush(self) -> None:
        """Send the rest, as far as there is room. OSError if the connection is lost."""
        with suppress(*_WOULD_BLOCK):
            while self._unsent:
                # After a partial write, TLS requires the same data again.
                data = self._unsent[0]
                sent = self._stream.send(data)
                if sent < len(data):
                    self._unsent[0] = data[sent:]
                else:
                    self._unsent.popleft()

    def receive(self) -> list[tuple[Pending, Reply | Exception]]:
        """The requests whose answers have arrived, each with its answer or an error. OSError if the
        connection is lost."""
        answers: list[tuple[Pending, Reply | Exception]] = []
        try:
            # Over TLS, poll doesn't see what the library has already read, so everything is read here.
            while not answers or self._is_tls:
                for flags, number, operation, body in self._read_frames():
                    self._free.append(number)
                    # None: it was given up.
                    if (request := self.pending.pop(number, None)) is None:
                        continue
                    answer: Any = Reply(flags, body)
                    if operation != RESULT:
                        answer = self._decode(flags, number, operation, body)
                        if not isinstance(answer, Exception):
                            answer = ConnectionResetError(
                                f"the node sent {answer.name}, which was not requested"
                            )
                    answers.append((request, answer))
        except _WOULD_BLOCK:
            pass
        except OSError:
            # The error recurs after the answers so far have been handled.
            if not answers:
                raise
        return answers

    def give_up(self, now_s: float) -> Iterator[Pending]:
        """The requests that are past their deadline, whose answers are no longer awaited."""
        for number in [
            number for number, pending in self.pending.items() if pending.late_s <= now_s
        ]:
            yield self.pending.pop(number)

    # --- reading

    def _read_frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Flags, number, operation and body of each complete message. Reads once."""
        data = self._receiver.read(_PIECE)
        self.heard_s = self._receiver.arrived_s
        if not data:
            raise ConnectionResetError("the node closed the connection")
        if self._segmented:
            data = self._unpack(data)
        if self._parts:
            # Joined once, however many parts a large answer has.
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._wanted:
                return
            data = b"".join(self._parts)
        at, self._wanted = 0, _HEADER.size
        while len(data) - at >= _HEADER.size:
            _, flags, number, operation, length = _HEADER.unpack_from(data, at)
            begin = at + _HEADER.size
            if len(data) < begin + length:
                self._wanted = _HEADER.size + length
                break
            at = begin + length
            yield flags, number, operation, data[begin:at]
        self._have = len(data) - at
        self._parts = [data[at:]] if self._have else []

    def _unpack(self, data: bytes) -> bytes:
        if self._incoming:
            data = self._incoming + data
        at, parts = 0, []
        while len(data) - at >= _SEGMENT_HEADER_BYTES:
            begin = at + _SEGMENT_HEADER_BYTES
            header = int.from_bytes(data[at : at + 3], "little")
            if data[at:begin] != _segment_header(header):
                raise ConnectionResetError("what the node sent is damaged")
            end = begin + (header & _MAX_SEGMENT)
            if len(data) < end + _CHECKSUM_BYTES:
                break
            at = end + _CHECKSUM_BYTES
            payload = data[begin:end]
            if data[end:at] != _checksum(payload):
                raise ConnectionResetError("what the node sent is damaged")
            parts.append(payload)
        self._incoming = data[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _decode(self, flags: int, number: int, operation: int, body: bytes) -> Any:
        """A message in the driver's form; for an error, the driver's exception."""
        answer = ProtocolHandler.decode_message(
            self._version, {}, number, flags, operation, body, None, None
        )
        is_converted = isinstance(answer, ErrorMessage) and hasattr(answer, "to_exception")
        return answer.to_exception() if is_converted else answer


def _pack_segments(head: bytes, body: bytes) -> bytes:
    size = len(head) + len(body)
    if size <= _MAX_SEGMENT:
        checksum = zlib.crc32(body, zlib.crc32(head, _CHECKSUM_INITIAL)).to_bytes(4, "little")
        return b"".join((_segment_header(size | _SELF_CONTAINED), head, body, checksum))
    frame = memoryview(head + body)
    parts: list[bytes | memoryview] = []
    for start in range(0, size, _MAX_SEGMENT):
        payload = frame[start : start + _MAX_SEGMENT]
        parts += [_segment_header(len(payload)), payload, _checksum(payload)]
    return b"".join(parts)


# The driver computes it bit by bit; requests of one kind have few different lengths.
@lru_cache(1024)
def _segment_header(header: int) -> bytes:
    checksum: int = compute_crc24(header, 3)
    return header.to_bytes(3, "little") + checksum.to_bytes(3, "little")


def _checksum(payload: bytes | memoryview) -> bytes:
    return zlib.crc32(payload, _CHECKSUM_INITIAL).to_bytes(_CHECKSUM_BYTES, "little")


def connect(
    node: Node,
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    version: int,
    timeout_s: float,
    name: str,
    authenticator: Authenticator | None,
    statements: Sequence[str],
    stamped: bool,
) -> tuple[Connection, list[Prepared]]:
    """A connection to the node at `address`, and its ids of the prepared `statements`. `name`: by which
    administrators recognise it (`system_views.clients`); `timeout_s`: for each step; `stamped`: the kernel
    timestamps answers, if it can. Raises the driver's errors: AuthenticationFailed, InvalidRequest,
    OSError, …"""
    stream = connect_socket(*address, timeout_s)
    try:
        for option in SOCKET_OPTIONS:
            stream.setsockopt(*option)
        if tls is not None:
            stream = tls.wrap_socket(stream, server_hostname=address[0])
        connection = Connection(stream, version, node)
        supported = connection.ask(OptionsMessage())
        startup = StartupMessage(supported.cql_versions[0], {"APPLICATION_NAME": name})
        answer = connection.ask(startup)
        connection.use_segments()
        if isinstance(answer, AuthenticateMessage):
            if authenticator is None:
                raise AuthenticationFailed("the node requires a username and a password")
            authenticator.server_authenticator_class = answer.authenticator
            response = authenticator.initial_response()
            try:
                while True:
                    answer = connection.ask(AuthResponseMessage(response or b""))
                    if not isinstance(answer, AuthChallengeMessage):
                        break
                    response = authenticator.evaluate_challenge(answer.challenge)
            except ErrorMessage as error:
                raise AuthenticationFailed(error.summary_msg()) from error
        prepared = [connection.ask(PrepareMessage(statement)) for statement in statements]
        connection.stop_blocking(stamped)
    except BaseException:
        stream.close()
        raise
    return connection, [
        Prepared(result.query_id, result.result_metadata_id or b"", result.column_metadata or ())
        for result in prepared
    ]
