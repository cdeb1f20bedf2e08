"""CQL's binary protocol for requests that are measured: what a client costs is a part of every figure.

The driver takes 35 to 200 µs of CPU for a request, as it makes a dozen objects for each, and has a
thread of its own read the answers. Here a request is one system call, and who waits for answers reads
them. Only writing goes by this: the driver knows the cluster, asks queries, logs in and reads errors.

Formats: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    UnresolvableContactPoints,
)
from cassandra.auth import Authenticator
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import (
    AuthChallengeMessage,
    AuthenticateMessage,
    AuthResponseMessage,
    ErrorMessage,
    OptionsMessage,
    PreparedQueryNotFound,
    PrepareMessage,
    ProtocolHandler,
    StartupMessage,
)
from cassandra.segment import compute_crc24

from ...errors import one_line
from ..base import Outcome
from ..shared.http import SOCKET_OPTIONS
from .encoding import Prepared

_HEADER = struct.Struct("!BBhBi")
"""Version, flags, number of the request ("stream"), operation, length of the body."""
_RESULT = 0x08
_MAX_NUMBER = 0x7FFF

_SEGMENTS_SINCE = 5
_SEGMENT_HEADER_BYTES, _CHECKSUM_BYTES = 6, 4
_MAX_SEGMENT = 0x1FFFF
_SELF_CONTAINED = 0x20000
# Section 2.2: a segment's checksum begins with that of these bytes.
_CHECKSUM_INITIAL = zlib.crc32(b"\xfa\x2d\x55\xca")

_PIECE = 1 << 16
"""Bytes read at once."""

RECONNECT_INTERVAL_S = 0.2

ERRORS = (
    DriverException,
    NoHostAvailable,
    ConnectionException,
    UnresolvableContactPoints,
    ErrorMessage,
    OSError,
)
"""All that the driver raises for what a server or a network does."""

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Node = Hashable
"""A node's address, as the driver has it."""


# --- one connection -------------------------------------------------------------------------------


class UnderWay(NamedTuple):
    """A request that is not answered yet."""

    request: object
    """The caller's."""
    events: int
    sent_s: float


class Line:
    """A connection to a node, by which many requests may be under way. For one thread at a time.

    While it is being set up it blocks (`ask`), from `ready` on it never does.
    """

    def __init__(self, stream: socket.socket, version: int) -> None:
        """`version`: of the protocol."""
        self._stream = stream
        self._is_tls = isinstance(stream, ssl.SSLSocket)
        self._version = version
        self._segmented = False
        self._buffer = bytearray(_PIECE)
        self._incoming = b""
        """The beginning of a segment."""
        self._frame = b""
        """The beginning of a frame."""
        self._unsent: deque[memoryview] = deque()
        self._free: list[int] = []
        self._numbers = iter(range(_MAX_NUMBER + 1))
        self._given_up: set[int] = set()
        """Requests whose answer nobody waits for any more."""
        self.under_way: dict[int, UnderWay] = {}
        """Number of a request -> what it is, the oldest first."""
        self.heard_s = 0.0
        """When the node last sent anything, by `time.perf_counter`."""

    def fileno(self) -> int:
        """For poll."""
        return self._stream.fileno()

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed on this side."""
        return self._stream.fileno() >= 0

    def close(self) -> None:
        """Hang up."""
        self._stream.close()

    # --- setting up

    def ask(self, message: Any) -> Any:
        """A message of the driver's, and the answer to it. Raises what the server says, or OSError."""
        frame = ProtocolHandler.encode_message(message, 0, self._version, None, False)
        self._stream.sendall(_segments(frame, b"") if self._segmented else frame)
        while True:
            for flags, number, operation, body in self._frames():
                answer = self._decoded(flags, number, operation, body)
                if isinstance(answer, ErrorMessage):
                    raise _as_exception(answer)
                return answer

    def use_segments(self) -> None:
        """From the answer to STARTUP on, if the version has them."""
        self._segmented = self._version >= _SEGMENTS_SINCE

    def ready(self) -> None:
        """From here on nothing blocks."""
        self._stream.settimeout(0)

    # --- requests

    @property
    def full(self) -> bool:
        """Whether the node takes no more for the moment: `flush` when it does."""
        return bool(self._unsent)

    def send(self, operation: int, body: bytes, request: UnderWay) -> None:
        """Send a request as far as there is room. OSError if the connection is lost."""
        number = self._free.pop() if self._free else next(self._numbers, None)
        if number is None:
            raise ConnectionResetError("too many requests were never answered")
        head = _HEADER.pack(self._version, 0, number, operation, len(body))
        data = _segments(head, body) if self._segmented else head + body
        self.under_way[number] = request
        try:
            sent = 0 if self._unsent else self._stream.send(data)
        except _WOULD_BLOCK:
            sent = 0
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])

    def flush(self) -> None:
        """Send what there is room for. OSError if the connection is lost."""
        with suppress(*_WOULD_BLOCK):
            while self._unsent:
                # TLS wants to be given the same again after it could not send it.
                data = self._unsent[0]
                sent = self._stream.send(data)
                if sent < len(data):
                    self._unsent[0] = data[sent:]
                else:
                    self._unsent.popleft()

    def receive(self) -> list[tuple[UnderWay, Exception | None]]:
        """The requests whose answers have come, and what is wrong with each.

        Raises OSError if the connection is lost.
        """
        found: list[tuple[UnderWay, Exception | None]] = []
        try:
            # Of TLS, poll only sees what the library has not read yet.
            while not found or self._is_tls:
                for flags, number, operation, body in self._frames():
                    request = self.under_way.pop(number, None)
                    if request is None:
                        self._given_up.discard(number)
                    else:
                        found.append((request, self._error(flags, number, operation, body)))
                    self._free.append(number)
        except _WOULD_BLOCK:
            pass
        except OSError:
            # It will come again, after what has been answered before.
            if not found:
                raise
        return found

    def late(self, before_s: float) -> Iterator[UnderWay]:
        """Give up, and tell, the requests that were sent before that."""
        while self.under_way:
            number = next(iter(self.under_way))
            if self.under_way[number].sent_s > before_s:
                return
            self._given_up.add(number)
            yield self.under_way.pop(number)

    # --- reading

    def _frames(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Flags, number, operation and body of each message that is complete by now. Reads once."""
        size = self._stream.recv_into(self._buffer)
        if not size:
            raise ConnectionResetError("the node closed the connection")
        self.heard_s = time.perf_counter()
        data = bytes(memoryview(self._buffer)[:size])
        data = self._frame + (self._payloads(data) if self._segmented else data)
        at = 0
        while len(data) - at >= _HEADER.size:
            _, flags, number, operation, length = _HEADER.unpack_from(data, at)
            begin = at + _HEADER.size
            if len(data) < begin + length:
                break
            at = begin + length
            yield flags, number, operation, data[begin:at]
        self._frame = data[at:]

    def _payloads(self, data: bytes) -> bytes:
        """What the segments hold that are complete by now."""
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
        return b"".join(parts)

    def _error(self, flags: int, number: int, operation: int, body: bytes) -> Exception | None:
        if operation == _RESULT:
            return None
        answer = self._decoded(flags, number, operation, body)
        if isinstance(answer, ErrorMessage):
            return _as_exception(answer)
        return ConnectionResetError(f"the node sent {answer.name}, which nobody asked for")

    def _decoded(self, flags: int, number: int, operation: int, body: bytes) -> Any:
        return ProtocolHandler.decode_message(
            self._version, {}, number, flags, operation, body, None, None
        )


def _as_exception(answer: ErrorMessage) -> Exception:
    """What the driver raises for it."""
    found: Exception = answer.to_exception() if hasattr(answer, "to_exception") else answer
    return found


def _segments(head: bytes, body: bytes) -> bytes:
    """A frame as segments, each with its checksums."""
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


# The driver computes it bit by bit; requests of one kind have few lengths.
@lru_cache(1024)
def _segment_header(header: int) -> bytes:
    """Length and flag, with their checksum."""
    checksum: int = compute_crc24(header, 3)
    return header.to_bytes(3, "little") + checksum.to_bytes(3, "little")


def _checksum(payload: bytes | memoryview) -> bytes:
    return zlib.crc32(payload, _CHECKSUM_INITIAL).to_bytes(_CHECKSUM_BYTES, "little")


def connected(
    address: tuple[str, int],
    tls: ssl.SSLContext | None,
    version: int,
    timeout_s: float,
    name: str,
    authenticator: Authenticator | None,
    statements: Sequence[str],
) -> tuple[Line, list[Prepared]]:
    """A line to the node at `address`, and what it calls the prepared `statements`.

    `name`: by which an administrator knows it (`system_views.clients`); `timeout_s`: for each step.
    Raises what the driver does: AuthenticationFailed, InvalidRequest, OSError, …
    """
    stream = socket.create_connection(address, timeout_s)
    try:
        for option in SOCKET_OPTIONS:
            stream.setsockopt(*option)
        if tls is not None:
            stream = tls.wrap_socket(stream, server_hostname=address[0])
        line = Line(stream, version)
        supported = line.ask(OptionsMessage())
        answer = line.ask(StartupMessage(supported.cql_versions[0], {"APPLICATION_NAME": name}))
        line.use_segments()
        if isinstance(answer, AuthenticateMessage):
            _log_in(line, authenticator, answer)
        prepared = [line.ask(PrepareMessage(statement)) for statement in statements]
        line.ready()
    except BaseException:
        stream.close()
        raise
    return line, [Prepared(p.query_id, p.result_metadata_id or b"") for p in prepared]


def _log_in(line: Line, authenticator: Authenticator | None, question: AuthenticateMessage) -> None:
    if authenticator is None:
        raise AuthenticationFailed("the node asks for a username and a password")
    authenticator.server_authenticator_class = question.authenticator
    response = authenticator.initial_response()
    try:
        while True:
            answer = line.ask(AuthResponseMessage(response or b""))
            if not isinstance(answer, AuthChallengeMessage):
                return
            response = authenticator.evaluate_challenge(answer.challenge)
    except ErrorMessage as error:
        raise AuthenticationFailed(error.summary_msg()) from error


# --- a cluster ------------------------------------------------------------------------------------


class Topology(Protocol):
    """What is known of a cluster at the moment."""

    def nodes(self) -> Sequence[Node]:
        """Those to connect to."""

    def replicas(self, partition: bytes) -> Sequence[Node]:
        """Those that have a partition, the one to ask first at first; may name others, too."""

    @property
    def version(self) -> int:
        """Another one whenever nodes came or went."""


class Lines:
    """Lines to the nodes of a cluster. Each request goes to a node that has its partition, if one is
    connected, otherwise to any. A line that is lost is made again, in the background.

    For one thread; only connecting is done by others.
    """

    def __init__(
        self,
        topology: Topology,
        connect: Callable[[Node], Line],
        timeout_s: float,
        meaning: Callable[[Exception], Exception],
    ) -> None:
        """`connect`: raises what the driver does; `timeout_s`: for an answer; `meaning`: of an error
        for whoever sent the request."""
        self._topology = topology
        self._connect = connect
        self._timeout_s = timeout_s
        self._meaning = meaning
        self._version = topology.version
        self._wanted: frozenset[Node] = frozenset()
        self._by_node: dict[Node, Line] = {}
        self._by_descriptor: dict[int, tuple[Node, Line]] = {}
        self._by_partition: dict[bytes, Line] = {}
        """What `_choose` found, until a line comes or goes."""
        self._turn = itertools.count()
        self._poll = select.poll()
        self._ended: list[Outcome] = []
        self._late_at_s = 0.0
        """When to look for late answers next."""
        self._lock = threading.Lock()
        self._joining: deque[tuple[Node, Line]] = deque()
        """Lines that were made in the background."""
        self._joined = threading.Event()
        self._failure: Exception = ConnectionResetError("no node is known")
        """Why the last attempt to connect failed."""
        self._closed = threading.Event()

    def open(self) -> None:
        """Connect to all nodes. Raises what the last said if none could be connected to."""
        self._wanted = frozenset(self._topology.nodes())
        if self._wanted:
            with ThreadPoolExecutor(len(self._wanted), "connect") as threads:
                list(threads.map(self._attempt, self._wanted))
        self._take_joining()
        if not self._by_node:
            raise self._failure
        for node in self._wanted - self._by_node.keys():
            self._reconnect(node)

    def close(self) -> None:
        """Disconnect from all."""
        with self._lock:
            self._closed.set()
        self._take_joining()
        for line in self._by_node.values():
            line.close()

    # --- requests

    def submit(
        self, partition: bytes, operation: int, body: bytes, request: object, events: int
    ) -> None:
        """Send a request; `outcomes` tells how it ended. Waits until its node has taken it."""
        if self._joining or self._topology.version != self._version:
            self._refresh()
        line = self._by_partition.get(partition) or self._choose(partition)
        if line is None:
            self._end(request, self._failure)
            return
        try:
            line.send(operation, body, UnderWay(request, events, time.perf_counter()))
        except OSError as error:
            self._lose(line, error)
            return
        if line.full:
            self._poll.modify(line, select.POLLIN | select.POLLOUT)
            while line.full and line.is_open:
                self._serve(None)

    def outcomes(self, timeout_s: float | None) -> list[Outcome]:
        """As `Writer.outcomes`."""
        until_s = None if timeout_s is None else time.perf_counter() + timeout_s
        while not self._ended:
            left_s = None if until_s is None else until_s - time.perf_counter()
            if left_s is not None and left_s <= 0:
                break
            self._serve(left_s)
        found, self._ended = self._ended, []
        return found

    def finish(self) -> None:
        """Wait for all answers, as long as one may be waited for."""
        until_s = time.perf_counter() + self._timeout_s
        while any(line.under_way for line in self._by_node.values()):
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                break
            self._serve(left_s)

    def await_line(self, timeout_s: float) -> None:
        """Wait until a node is connected. Raises what `meaning` says if none is in time, or if one
        refuses what is to be sent."""
        until_s = time.perf_counter() + timeout_s
        while True:
            self._joined.clear()
            self._refresh()
            if self._by_node:
                return
            left_s = until_s - time.perf_counter()
            if left_s <= 0 or isinstance(self._failure, InvalidRequest):
                raise self._meaning(self._failure)
            self._joined.wait(min(left_s, RECONNECT_INTERVAL_S))

    def _choose(self, partition: bytes) -> Line | None:
        for node in self._topology.replicas(partition):
            if node in self._by_node:
                line = self._by_node[node]
                break
        else:
            lines = list(self._by_node.values())
            if not lines:
                return None
            line = lines[next(self._turn) % len(lines)]
        self._by_partition[partition] = line
        return line

    def _serve(self, timeout_s: float | None) -> None:
        """Send and receive what can be; wait until something can, but not longer than that."""
        wait_s = self._late_at_s - time.perf_counter()
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        for descriptor, event in self._poll.poll(max(0.0, wait_s * 1000)):
            _, line = self._by_descriptor[descriptor]
            try:
                if event & select.POLLOUT:
                    line.flush()
                    if not line.full:
                        self._poll.modify(line, select.POLLIN)
                if event & ~select.POLLOUT:
                    self._take(line)
            except OSError as error:
                self._lose(line, error)
        now_s = time.perf_counter()
        if now_s >= self._late_at_s:
            self._give_up_late(now_s)

    def _take(self, line: Line) -> None:
        """The answers that have come."""
        fatal: Exception | None = None
        answers = line.receive()
        answered_s = line.heard_s
        for under_way, error in answers:
            if error is None:
                self._ended.append(Outcome(under_way.request, answered_s, under_way.events))
            else:
                self._end(under_way.request, error)
                if isinstance(error, (PreparedQueryNotFound, OSError)):
                    fatal = error
        if fatal is not None:
            # Statements are prepared when a line is made.
            self._lose(line, fatal)

    def _give_up_late(self, now_s: float) -> None:
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        reason = f"no answer within {self._timeout_s:g} s"
        for node, line in list(self._by_node.items()):
            error = OperationTimedOut({str(node): reason}, node)
            sent_s = 0.0
            for under_way in line.late(now_s - self._timeout_s):
                sent_s = under_way.sent_s
                self._end(under_way.request, error)
            if sent_s > line.heard_s:
                self._lose(line, ConnectionResetError("the node says nothing any more"))

    def _end(self, request: object, error: Exception) -> None:
        self._ended.append(Outcome(request, time.perf_counter(), self._meaning(error)))

    # --- lines

    def _refresh(self) -> None:
        """Take over what the background has made, and what is new of the cluster."""
        version = self._topology.version
        if version != self._version:
            self._version = version
            wanted = frozenset(self._topology.nodes())
            new, self._wanted = wanted - self._wanted, wanted
            for node in new:
                self._reconnect(node)
            self._by_partition.clear()
        self._take_joining()

    def _take_joining(self) -> None:
        while self._joining:
            node, line = self._joining.popleft()
            if node in self._by_node:
                line.close()
                continue
            self._by_node[node] = line
            self._by_descriptor[line.fileno()] = node, line
            self._poll.register(line, select.POLLIN)
            self._by_partition.clear()

    def _lose(self, line: Line, error: Exception) -> None:
        """The requests by this line fail, and it is made again."""
        node, _ = self._by_descriptor.pop(line.fileno())
        del self._by_node[node]
        self._by_partition.clear()
        self._poll.unregister(line)
        line.close()
        error = self._failure = _naming(node, error)
        for under_way in line.under_way.values():
            self._end(under_way.request, error)
        if node in self._wanted:
            self._reconnect(node)

    def _reconnect(self, node: Node) -> None:
        threading.Thread(
            target=self._keep_trying, args=[node], name="reconnect", daemon=True
        ).start()

    def _keep_trying(self, node: Node) -> None:
        while node in self._wanted and not self._attempt(node):
            if self._closed.wait(RECONNECT_INTERVAL_S):
                return

    def _attempt(self, node: Node) -> bool:
        """Connect once, in any thread."""
        try:
            line = self._connect(node)
        except ERRORS as error:
            self._failure = _naming(node, error)
            self._joined.set()
            return False
        with self._lock:
            if self._closed.is_set():
                line.close()
            else:
                self._joining.append((node, line))
                self._joined.set()
        return True


def _naming(node: Node, error: Exception) -> Exception:
    """The error, with the node's name; the driver's have it already."""
    if isinstance(error, OSError):
        return ConnectionError(f"{node}: {one_line(error)}")
    return error
