"""Connections to Cassandra, without a server: the other end is the test's, with the driver's codec."""

from __future__ import annotations

import io
import math
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import trustme
from cassandra import OperationTimedOut, WriteTimeout
from cassandra.segment import Segment, SegmentCodec

from simulator.modules.cassandra import wire
from simulator.modules.cassandra.pool import ConnectionPool
from simulator.modules.cassandra.wire import Connection, Node, Pending, Reply
from simulator.modules.kit import http_connection
from simulator.modules.sending import Completion, Request

from ..helpers import eventually, make_room_later, swallowing

_HEADER = struct.Struct("!BBhBi")
_EXECUTE, _RESULT, _ERROR, _EVENT = 0x0A, 0x08, 0x00, 0x0C
_VOID = b"\0\0\0\1"
_WRITE_TIMEOUT = struct.pack("!iH4sHiiH6s", 0x1100, 4, b"late", 6, 0, 1, 6, b"SIMPLE")
VERSIONS = [3, 4, 5]


class Server:
    """The other end of a connection."""

    def __init__(self, version: int, node: Node = "node") -> None:
        ours, self.socket = socket.socketpair()
        self.socket.settimeout(10)
        self.version = version
        self.connection = Connection(ours, version, node)
        self.connection.use_segments()
        self.connection.stop_blocking()
        self._stream = self.socket.makefile("rb")

    def close(self) -> None:
        self.connection.close()
        self._stream.close()
        self.socket.close()

    def request(self) -> tuple[int, int, bytes]:
        """Number, operation and body of the next request."""
        self._alone: list[bool] = []
        data = self._read(_HEADER.size)
        version, _, number, operation, size = _HEADER.unpack(data[: _HEADER.size])
        assert version == self.version
        data += self._read(_HEADER.size + size - len(data))
        # A segment that holds whole messages only says so, one that holds a part of one does not.
        assert self._alone in ([], [True], [False] * max(2, len(self._alone)))
        return number, operation, data[_HEADER.size :]

    def _read(self, size: int) -> bytes:
        """Read at least this many bytes; in version 5, whole segments."""
        if self.version < 5:
            return self._stream.read(size)
        data = b""
        while len(data) < size:
            header = SegmentCodec().decode_header(self._stream)
            segment = SegmentCodec().decode(self._stream, header)
            data += segment.payload
            self._alone.append(segment.is_self_contained)
        return data

    def answered(self, number: int, operation: int = _RESULT, body: bytes = _VOID) -> bytes:
        """An answer, as it is sent."""
        frame = _HEADER.pack(self.version | 0x80, 0, number, operation, len(body)) + body
        if self.version < 5:
            return frame
        segments = io.BytesIO()
        SegmentCodec().encode(segments, frame)
        return segments.getvalue()

    def answer(self, number: int, operation: int = _RESULT, body: bytes = _VOID) -> None:
        self.socket.sendall(self.answered(number, operation, body))


@pytest.fixture(params=VERSIONS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    peer = Server(request.param)
    yield peer
    peer.close()


def asked(name: str, sent_s: float = 0.0) -> Pending:
    return Pending(name, sent_s, sent_s + 1)


def received(connection: Connection) -> list[tuple[object, type | None]]:
    return [
        (pending.request, type(answer) if isinstance(answer, Exception) else None)
        for pending, answer in connection.receive()
    ]


def test_requests_arrive_and_their_answers_in_any_order(server: Server) -> None:
    for name in ("one", "two", "three"):
        server.connection.send(_EXECUTE, name.encode(), asked(name))
    numbers = {}
    for _ in range(3):
        number, operation, body = server.request()
        assert operation == _EXECUTE
        numbers[body.decode()] = number
    assert len(set(numbers.values())) == 3
    server.answer(numbers["two"])
    assert received(server.connection) == [("two", None)]
    server.socket.sendall(
        server.answered(numbers["three"], _ERROR, _WRITE_TIMEOUT) + server.answered(numbers["one"])
    )
    assert received(server.connection) == [("three", WriteTimeout), ("one", None)]
    assert received(server.connection) == []
    assert not server.connection.pending


def test_numbers_are_used_again(server: Server) -> None:
    seen = set()
    for _ in range(100):
        server.connection.send(_EXECUTE, b"", asked("x"))
        number, _, _ = server.request()
        seen.add(number)
        server.answer(number)
        assert received(server.connection) == [("x", None)]
    assert len(seen) == 1


def test_answers_in_pieces(server: Server) -> None:
    for name in ("one", "two"):
        server.connection.send(_EXECUTE, b"", asked(name))
    data = b"".join(server.answered(server.request()[0]) for _ in range(2))
    answers = []
    for at in range(len(data)):
        server.socket.sendall(data[at : at + 1])
        answers += received(server.connection)
        assert len(answers) == (at >= len(data) // 2 - 1) + (at == len(data) - 1)
    assert answers == [("one", None), ("two", None)]


@pytest.mark.parametrize("extra", [-10, -9, -8, 0, 1, 300_000])
def test_large_requests(server: Server, extra: int) -> None:
    """Larger than a segment, than a socket's buffer, and at the limit."""
    body = bytes(range(256)) * 2000
    body = body[: Segment.MAX_PAYLOAD_LENGTH + extra]
    connection = server.connection
    connection.send(_EXECUTE, body, asked("large"))
    connection.send(_EXECUTE, b"small", asked("small"))
    socket_full = connection.full
    server.socket.setblocking(False)
    data = b""
    while True:
        try:
            data += server.socket.recv(1 << 20)
        except BlockingIOError:
            if not connection.full:
                break
            connection.flush()
    server._stream = io.BufferedReader(io.BytesIO(data))
    assert server.request()[2] == body
    assert server.request()[2] == b"small"
    assert socket_full == (extra == 300_000)


def test_a_node_that_hangs_up(server: Server) -> None:
    server.connection.send(_EXECUTE, b"", asked("x"))
    server.socket.close()
    server._stream.close()
    with pytest.raises(ConnectionError):
        server.connection.receive()


def test_answers_before_the_end_count() -> None:
    """Over TLS, all that there is must be read at once: the end together with what came before it."""
    authority = trustme.CA()
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("node.example").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(context.wrap_socket, theirs, server_side=True)
        connection = Connection(
            trusting.wrap_socket(ours, server_hostname="node.example"), 4, "node"
        )
        node = accepted.result()
    connection.stop_blocking()
    for name in ("one", "two", "three"):
        connection.send(_EXECUTE, b"", asked(name))
    for number in (0, 1):
        node.sendall(_HEADER.pack(0x84, 0, number, _RESULT, len(_VOID)) + _VOID)
    node.close()
    assert received(connection) == [("one", None), ("two", None)]
    with pytest.raises(ConnectionError):
        connection.receive()
    assert [pending.request for pending in connection.pending.values()] == ["three"]
    connection.close()


@pytest.mark.parametrize("at", [0, 4, 8, -1])
def test_what_is_damaged_is_not_believed(at: int) -> None:
    """Damage in the length, its checksum, the answer and its checksum."""
    server = Server(5)
    server.connection.send(_EXECUTE, b"", asked("x"))
    data = bytearray(server.answered(server.request()[0]))
    data[at] ^= 1
    server.socket.sendall(data)
    with pytest.raises(ConnectionError, match="damaged"):
        server.connection.receive()
    server.close()


def test_what_nobody_asked_for_is_an_error(server: Server) -> None:
    server.connection.send(_EXECUTE, b"", asked("x"))
    number, _, _ = server.request()
    event = b"".join(struct.pack("!H", len(t)) + t for t in (b"STATUS_CHANGE", b"UP"))
    server.answer(number, _EVENT, event + b"\x04\x7f\0\0\1\0\0\x23\x52")
    assert received(server.connection) == [("x", ConnectionResetError)]


def test_late_answers_are_nobodys(server: Server) -> None:
    connection = server.connection
    for second, name in enumerate(("first", "second", "third")):
        connection.send(_EXECUTE, b"", asked(name, second))
    first, second, third = (server.request()[0] for _ in range(3))
    assert [pending.request for pending in connection.give_up(2)] == ["first", "second"]
    assert list(connection.give_up(2)) == []
    # A number is not used again as long as its answer may come.
    connection.send(_EXECUTE, b"", asked("fourth", 4))
    fourth = server.request()[0]
    assert fourth not in (first, second, third)
    for number in (second, third, first, fourth):
        server.answer(number)
    assert received(connection) == [("third", None), ("fourth", None)]
    connection.send(_EXECUTE, b"", asked("fifth", 5))
    assert server.request()[0] in (first, second, third, fourth)


# --- connecting -----------------------------------------------------------------------------------


def test_what_is_swallowed_is_tried_again_by_a_new_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    # Less than the second after which the kernel repeats what a socket has sent.
    monkeypatch.setattr(http_connection, "_FIRST_CONNECT_S", 0.1)
    with swallowing() as listener:
        tried = make_room_later(listener, monkeypatch, hang_up=True)
        with pytest.raises(OSError, match=r"closed|reset"):
            wire.connect("node", listener.getsockname(), None, 4, 10.0, "test", None, [], False)
    # One socket alone would come through as well, after seconds.
    assert len(tried) > 1


# --- pools ----------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Fake nodes; a partition's letters name its replicas."""

    up: set[str]
    version: int = 0
    servers: dict[str, Server] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    members: Sequence[str] = "abc"

    def nodes(self) -> Sequence[Node]:
        return list(self.members)

    def replicas(self, partition: bytes) -> Sequence[Node]:
        return list(partition.decode())

    def connect(self, node: Node) -> Connection:
        assert isinstance(node, str)
        self.attempts.append(node)
        if node not in self.up:
            raise ConnectionRefusedError(f"{node} is down")
        self.servers[node] = Server(4, node)
        return self.servers[node].connection


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    fake = Cluster(set("abc"))
    yield fake
    for server in fake.servers.values():
        server.close()


@pytest.fixture
def pool_to(cluster: Cluster) -> Iterator[Callable[..., ConnectionPool]]:
    pools: list[ConnectionPool] = []

    def make(timeout_s: float = 10.0) -> ConnectionPool:
        def end(name: str, answer: Reply | Exception, arrived_s: float) -> bool:
            error = answer if isinstance(answer, Exception) else None
            pool.found.append(Completion(Request(None, query=name), 1, arrived_s, error))
            return False

        pool = ConnectionPool(cluster, cluster.connect, timeout_s, end)
        pools.append(pool)
        pool.open()
        return pool

    yield make
    for pool in pools:
        pool.close()


def who_gets(cluster: Cluster, pool: ConnectionPool, partition: str) -> str:
    """The node that a request for the partition goes to; it is answered."""
    pool.send(partition.encode(), _EXECUTE, partition.encode(), partition)
    for name, server in cluster.servers.items():
        if server.connection.pending:
            number, _, body = server.request()
            assert body == partition.encode()
            server.answer(number)
            assert ended(pool) == [(partition, None)]
            return name
    raise AssertionError("no node got it")


def ended(pool: ConnectionPool, timeout_s: float = 10) -> list[tuple[str, type | None]]:
    """The requests that end next, and their errors' types."""
    return [
        (completion.request.query, type(completion.error) if completion.error else None)
        for completion in pool.poll(timeout_s)
    ]


def lose(cluster: Cluster, node: str, pool: ConnectionPool) -> list[tuple[str, type | None]]:
    """The node goes down with what is under way to it."""
    cluster.up.discard(node)
    server = cluster.servers.pop(node)
    server.socket.close()
    server._stream.close()
    return ended(pool, 0.2)


def test_a_request_goes_to_the_first_replica(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    pool = pool_to()
    assert [who_gets(cluster, pool, partition) for partition in ("ab", "ba", "c")] == [
        "a",
        "b",
        "c",
    ]
    assert [who_gets(cluster, pool, partition) for partition in ("ab", "ba", "c")] == [
        "a",
        "b",
        "c",
    ]


def test_others_take_over_until_it_is_back(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    pool = pool_to()
    pool.send(b"ab", _EXECUTE, b"", "under way")
    assert lose(cluster, "a", pool) == [("under way", ConnectionError)]
    assert who_gets(cluster, pool, "ab") == "b"
    # If both replicas are gone, any node will do, but not always the same one.
    assert {who_gets(cluster, pool, "z" * n) for n in range(1, 5)} == {"b", "c"}
    pool.await_connection(0)
    cluster.up.add("a")
    eventually(lambda: "a" in cluster.servers, "connection to a")
    eventually(lambda: who_gets(cluster, pool, "ab") == "a", "request to a")


def test_a_node_that_is_down_at_first_joins_later(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    cluster.up = {"b"}
    pool = pool_to()
    assert who_gets(cluster, pool, "ab") == "b"
    cluster.up.add("a")
    eventually(lambda: who_gets(cluster, pool, "ab") == "a", "request to a")


def test_nodes_come_and_go(cluster: Cluster, pool_to: Callable[..., ConnectionPool]) -> None:
    pool = pool_to()
    cluster.members, cluster.up = "abd", set("abd")
    cluster.version += 1
    eventually(lambda: who_gets(cluster, pool, "da") == "d", "request to d")
    attempts = cluster.attempts.count("c")
    lose(cluster, "c", pool)
    assert who_gets(cluster, pool, "ca") == "a"
    assert cluster.attempts.count("c") == attempts, "a node that is gone was tried again"


def test_without_a_node_requests_fail_and_one_is_waited_for(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    cluster.members = "a"
    pool = pool_to()
    lose(cluster, "a", pool)
    pool.send(b"ab", _EXECUTE, b"", "x")
    assert ended(pool) == [("x", ConnectionError)]
    with pytest.raises(ConnectionError, match="a: a is down"):
        pool.await_connection(0.5)
    cluster.up.add("a")
    pool.await_connection(10)
    assert who_gets(cluster, pool, "a") == "a"


def test_no_node_at_all(cluster: Cluster, pool_to: Callable[..., ConnectionPool]) -> None:
    cluster.up = set()
    with pytest.raises(ConnectionError, match="is down"):
        pool_to()


def test_requests_to_others_do_not_wait_for_a_node_that_takes_nothing(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    pool = pool_to(timeout_s=60)
    large = bytes(2_000_000)
    for name in ("first", "second"):
        pool.send(b"a", _EXECUTE, large, name)
    assert cluster.servers["a"].connection.full
    pool.send(b"b", _EXECUTE, b"small", "other")
    slow, other = cluster.servers["a"], cluster.servers["b"]
    other.answer(other.request()[0])
    assert ended(pool) == [("other", None)]
    # It goes on, and gets all that was for it.

    def answer() -> None:
        for _ in range(2):
            number, _, body = slow.request()
            assert body == large
            slow.answer(number)

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(answer)
        others: list[tuple[str, type | None]] = []
        while len(others) < 2:
            others += ended(pool)
        reading.result()
    assert others == [("first", None), ("second", None)]


def test_a_request_without_an_answer_fails_and_its_connection_with_it(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    pool = pool_to(timeout_s=0.3)
    began = time.monotonic()
    pool.send(b"a", _EXECUTE, b"", "x")
    assert ended(pool, math.inf) == [("x", OperationTimedOut)]
    assert 0.3 <= time.monotonic() - began < 60
    # It said nothing at all meanwhile: another takes over at once.
    assert cluster.attempts.count("a") == 2 or who_gets(cluster, pool, "ab") == "b"


def test_a_node_that_answers_others_is_kept(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    # A busy machine answers the others within it.
    pool = pool_to(timeout_s=0.8)
    server = cluster.servers["a"]
    pool.send(b"a", _EXECUTE, b"", "never")
    server.request()
    answered: list[tuple[str, type | None]] = []
    while not any(name == "never" for name, _ in answered):
        pool.send(b"a", _EXECUTE, b"", "at once")
        server.answer(server.request()[0])
        answered += ended(pool)
    assert answered.pop() == ("never", OperationTimedOut)
    assert set(answered) == {("at once", None)}
    assert cluster.attempts.count("a") == 1
    assert who_gets(cluster, pool, "a") == "a"


def test_a_poll_waits_only_so_long(
    cluster: Cluster, pool_to: Callable[..., ConnectionPool]
) -> None:
    pool = pool_to()
    pool.send(b"a", _EXECUTE, b"", "x")
    began = time.monotonic()
    assert ended(pool, 0.2) == []
    assert 0.2 <= time.monotonic() - began < 60
    # Nothing is left under way when it is over, if it ends in time.
    cluster.servers["a"].answer(cluster.servers["a"].request()[0])
    pool.finish()
    assert ended(pool, 0) == [("x", None)]
