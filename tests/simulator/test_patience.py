"""`--patience` ends a run in time, also on a server that takes connections and says nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing

import pytest

from simulator.contract import Load
from simulator.errors import GaveUp, Retryable
from simulator.modules.base import Job
from simulator.modules.cassandra.pool import ConnectionPool
from simulator.modules.cassandra.wire import Connection, Reply
from simulator.modules.kit.http import HttpPool
from simulator.modules.kit.http_answer import NoAnswer
from simulator.modules.kit.module import connection_lost
from simulator.modules.options import InsertMode, parse_options
from simulator.modules.postgres.dialects import Dialect
from simulator.modules.postgres.encoding import CopyFormat, PostgresEncoder, PostgresOptions
from simulator.modules.postgres.writer import PostgresWriter
from simulator.modules.sending import LAST_ANSWERS_S, Completion, Request, Writer
from simulator.modules.waiting import SHORTEST_TRY_S, at_work, limit_wait
from simulator.testing.events import insert
from simulator.workloads.temperature import Temperature

from .postgres_login import let_in
from .writing import FakeWriter

PATIENCE_S = 1.5
LATE_S = 10.0
"""How long after its patience a run may end."""

MakeWriter = Callable[[int], Writer]


@pytest.fixture
def silent() -> Iterator[str]:
    """Host and port of a server that the kernel takes connections for, and that never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class HttpWriter(FakeWriter):
    """Sends as the modules that speak HTTP do."""

    def __init__(self, pool: HttpPool, max_in_flight: int) -> None:
        super().__init__(len, max_in_flight)
        self._pool = pool

    def send(self, payload: Request) -> int:
        try:
            return len(self._pool.request("POST", "/", b"events").body)
        except NoAnswer as error:
            raise connection_lost(error) from error


class OneNode:
    """The topology of a cluster of one node."""

    version = 0

    def nodes(self) -> Sequence[str]:
        return ["node"]

    def replicas(self, partition: bytes) -> Sequence[str]:
        return ["node"]


class CassandraPoolWriter(FakeWriter):
    """Like Cassandra's writer, with requests that need no statements."""

    def __init__(self, pool: ConnectionPool, max_in_flight: int) -> None:
        super().__init__(len, max_in_flight)
        self._pool = pool

    def submit(self, request: Request) -> None:
        self._pool.send(b"partition", 0x0A, b"body", request, request.deadline_s)

    def poll(self, timeout_s: float) -> Sequence[Completion]:
        return self._pool.poll(timeout_s)

    def recover(self, request: Request) -> bool:
        self._pool.await_connection(2.0)
        return False


def connect_to(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as exits:
        yield exits


def make_http(address: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> MakeWriter:
    pool = stack.enter_context(closing(HttpPool([f"http://{address}"], 80, {}, 60)))
    return lambda in_flight: HttpWriter(pool, in_flight)


def make_postgres(address: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> MakeWriter:
    """Another server takes its first connections, and falls silent as well."""
    friendly = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    stack.enter_context(let_in(friendly, 3))
    monkeypatch.setattr(Dialect, "backend", lambda *_: None)
    monkeypatch.setattr(Dialect, "SESSION", {})
    host, _, port = address.partition(":")
    # libpq tries one host after the other.
    dsn = f"host={host},{host} port={friendly.getsockname()[1]},{port} dbname=x sslmode=disable"

    def make(in_flight: int) -> Writer:
        options = parse_options(PostgresOptions, {"connection_string": dsn}, str)
        job = Job(Temperature.schema, Load(in_flight=in_flight))
        encoder = PostgresEncoder(job, InsertMode.SINGLE, CopyFormat.TEXT, prepared=False)
        writer = PostgresWriter(encoder, options, job, options.find_dialect())
        writer.open()
        stack.callback(writer.close)
        return writer

    return make


def make_cassandra(address: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> MakeWriter:
    def connect(node: object) -> Connection:
        connection = Connection(connect_to(address), 4, node)
        connection.stop_blocking()
        return connection

    def make(in_flight: int) -> Writer:
        def end(request: Request, answer: Reply | Exception, arrived_s: float) -> bool:
            assert isinstance(answer, Exception)
            pool.found.append(Completion(request, 0, arrived_s, connection_lost(answer)))
            return False

        pool = ConnectionPool(OneNode(), connect, 60, end)
        pool.open()
        stack.callback(pool.close)
        return CassandraPoolWriter(pool, in_flight)

    return make


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("make", [make_http, make_postgres, make_cassandra])
def test_a_silent_server_ends_the_run_in_time(
    silent: str,
    stack: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., MakeWriter],
    in_flight: int,
) -> None:
    """Though each try would wait a minute."""
    writer = make(silent, stack, monkeypatch)(in_flight)
    began = time.monotonic()
    with pytest.raises(GaveUp, match=r"gave up after 1\.5 s"):
        insert(writer, Temperature(), 10, patience_s=PATIENCE_S)
    assert PATIENCE_S <= time.monotonic() - began < PATIENCE_S + LATE_S


def test_what_a_server_asks_to_wait_is_no_longer_than_patience() -> None:
    def refuse(numbers: list[int]) -> int:
        raise Retryable("busy", "come back in an hour", at_least_s=3600)

    for in_flight in (1, 2):
        began = time.monotonic()
        with pytest.raises(GaveUp):
            insert(FakeWriter(refuse, in_flight), Temperature(), 4, patience_s=0.1)
        assert time.monotonic() - began < LATE_S


def test_a_request_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.modules.sending.LAST_ANSWERS_S", 0.1)
    over = threading.Event()

    def answer(numbers: list[int]) -> int:
        if 0 in numbers:
            over.wait(60)
        raise Retryable("busy", "later", 0.0001)

    began = time.monotonic()
    with pytest.raises(GaveUp):
        insert(FakeWriter(answer, 2), Temperature(), 4, patience_s=0.1)
    over.set()
    assert time.monotonic() - began < LATE_S
    assert LAST_ANSWERS_S < LATE_S


def test_a_try_leaves_time_for_another() -> None:
    assert limit_wait(60) == 60
    assert limit_wait(60, time.perf_counter() + 200) == 60
    until = time.perf_counter() + 30
    wait_s = limit_wait(60, until)
    assert (until - time.perf_counter()) / 2 <= wait_s <= 15
    assert limit_wait(2, until) == 2
    assert limit_wait(60, time.perf_counter() - 30) == SHORTEST_TRY_S
    with at_work(time.perf_counter() - 30):
        assert limit_wait(60) == SHORTEST_TRY_S
    assert limit_wait(60) == 60
