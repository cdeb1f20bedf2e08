"""Answers count from when they arrived, as the kernel says, and not from when they were read."""

from __future__ import annotations

import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from queue import SimpleQueue

import pytest

from simulator.modules.cassandra.wire import Connection, Pending
from simulator.modules.kit.http import HttpPool
from simulator.modules.kit.http_connection import HttpRequest
from simulator.modules.kit.libpq import Connection as PgConnection
from simulator.modules.kit.libpq_pipeline import make_pipeline
from simulator.modules.sending import BlockingChannel, Request, Writer
from simulator.modules.waiting import Receiver, note_answer, stamp_arrivals
from simulator.worker.loop import InsertLoop
from simulator.worker.measure import Recorder
from simulator.worker.schedule import OpenLoop
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder, eventually
from .postgres_login import let_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what arrives")

LATE_S = 0.2
"""How much later an answer is read than it arrives."""

Pair = tuple[socket.socket, socket.socket]


@contextmanager
def connect() -> Iterator[Pair]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(scope="module", autouse=True)
def _stamping() -> Iterator[None]:
    """The kernel begins to stamp some time after it is first asked to, and stamps as long as anybody asks."""
    with connect() as (ours, theirs):
        stamp_arrivals(ours)

        receiver = Receiver(ours, stamped=True)

        def is_stamped() -> bool:
            theirs.sendall(b"answer")
            read = time.perf_counter()
            time.sleep(0.001)
            receiver.receive(bytearray(100))
            return receiver.arrived_s < read + 0.001

        eventually(is_stamped, "the kernel stamps what arrives")
        yield


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends of a TCP connection."""
    with connect() as ends:
        yield ends


def read_late(
    theirs: socket.socket,
    answer: bytes,
    read: Callable[[], object],
    find_arrival: Callable[[], float],
) -> None:
    """Check that an answer that is read late counts from when it arrived."""
    sent = time.perf_counter()
    theirs.sendall(answer)
    time.sleep(LATE_S)
    began_to_read = time.perf_counter()
    read()
    assert sent <= find_arrival() <= began_to_read - LATE_S / 2


def test_what_is_read_late_has_come_when_it_came(pair: Pair) -> None:
    ours, theirs = pair
    assert stamp_arrivals(ours)
    receiver = Receiver(ours, stamped=True)
    read_late(
        theirs, b"answer", lambda: receiver.receive(bytearray(100)), lambda: receiver.arrived_s
    )


@pytest.mark.parametrize("step_s", [0.05, -0.05, 3600.0])
def test_a_wall_clock_that_is_set_while_an_answer_waits_changes_no_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    """As NTP does; the kernel has stamped the answer by the clock as it was."""
    ours, theirs = pair
    stamp_arrivals(ours)
    buffer, read_ns, receiver = bytearray(100), time.time_ns, Receiver(ours, stamped=True)
    theirs.sendall(b"earlier answer")
    receiver.receive(buffer)
    theirs.sendall(b"answer")
    began_to_read = time.perf_counter()
    monkeypatch.setattr("time.time_ns", lambda: read_ns() + round(step_s * 1e9))
    receiver.receive(buffer)
    assert receiver.arrived_s >= began_to_read
    # From now on stamps are by the clock as it is.
    monkeypatch.setattr("time.time_ns", read_ns)
    assert [receiver.receive(buffer) for _ in range(2) if theirs.send(b"x")] == [1, 1]
    read_late(theirs, b"answer", lambda: receiver.receive(buffer), lambda: receiver.arrived_s)


def test_without_a_stamp_an_answer_has_come_when_it_was_read(pair: Pair) -> None:
    ours, theirs = pair
    receiver = Receiver(ours)
    theirs.sendall(b"answer")
    before = time.perf_counter()
    receiver.receive(bytearray(100))
    assert before <= receiver.arrived_s <= time.perf_counter()


def test_a_connection_to_postgresql_is_stamped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, let_in(listener) as clients:
        host, port = listener.getsockname()
        parameters = {"host": host, "port": port, "user": "x", "sslmode": "disable"}
        with closing(PgConnection(parameters, 10, stamped=True)) as connection:
            pipeline = make_pipeline(connection, is_query=False)
            read_late(clients.get(), b"N\0\0\0\x05\0", pipeline.receive, lambda: pipeline.arrived_s)


def test_a_connection_to_cassandra_is_stamped(pair: Pair) -> None:
    ours, theirs = pair
    connection = Connection(ours, 4, "node")
    connection.stop_blocking(stamped=True)
    connection.send(0x0A, b"body", Pending("request", time.perf_counter(), math.inf))
    answer = b"\x84\0\0\0\x08\0\0\0\x04\0\0\0\1"
    read_late(theirs, answer, connection.receive, lambda: connection.heard_s)


def test_a_connection_by_http_is_stamped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.recv(1000)
                stream.sendall(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with closing(HttpPool([url], 80, {}, 10, stamped=True)) as pool:
            began = time.perf_counter()
            connection = pool.begin(HttpRequest("GET", "/"))
            pool.finish(connection)
            read = time.perf_counter()
        assert began < connection.sent_s < connection.arrived_s < read
        thread.join()


class LateReader(Writer, BlockingChannel):
    """Takes long to make a request, gets its answer at once, and reads it late. Each request in flight has a
    connection of its own: the kernel has one stamp for two answers that lie in a socket."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        super().__init__(NumberEncoder())
        self.max_in_flight = len(pairs)
        self._free: SimpleQueue[Pair] = SimpleQueue()
        self.took_s: list[float] = []
        """From right before a request left until its answer was there, if a busy machine paused between."""
        for pair in pairs:
            assert stamp_arrivals(pair[0])
            self._free.put(pair)

    def open(self) -> None:
        """Connected already."""

    def close(self) -> None:
        self.end_threads()

    def send(self, payload: Request) -> int:
        ours, theirs = self._free.get(timeout=60)
        time.sleep(LATE_S)
        began = time.perf_counter()
        theirs.sendall(b"answer")
        self.took_s.append(time.perf_counter() - began)
        time.sleep(LATE_S)
        receiver = Receiver(ours, stamped=True)
        receiver.receive(bytearray(100))
        note_answer(began, receiver.arrived_s)
        self._free.put((ours, theirs))
        return payload.events


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_open_loop_leaves_out_how_late_an_answer_is_read(in_flight: int) -> None:
    with ExitStack() as stack:
        writer = LateReader([stack.enter_context(connect()) for _ in range(in_flight)])
        check_times(writer)


def check_times(writer: LateReader) -> None:
    schedule = OpenLoop(gap_s=2 * LATE_S)
    recorder = Recorder(schedule)
    recorder.begin(time.perf_counter())
    block = Temperature().block(0, 0, 3)
    payloads = writer.encoder.encode(block)
    with closing(writer):
        InsertLoop(writer, recorder, 0, lambda: None, schedule).run(payloads)
    recorder.end()
    measured = recorder.result()
    service = measured.service_histogram
    assert service is not None
    assert service.count == 3
    assert service.range_us()[1] < (max(writer.took_s) + LATE_S / 2) * 1e6
    # Making a request is the client's delay, which devices do feel.
    assert LATE_S * 1e6 * 0.999 <= measured.histogram.range_us()[0] < 2 * LATE_S * 1e6
