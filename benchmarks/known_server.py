"""A server in a process of its own that takes as long for each request as it is told, and keeps when it did
what: the truth, by which the client's figures are judged.

It speaks as much HTTP as InfluxDB's module needs, and stores nothing. One thread serves all connections,
each request for itself: however many are under way, none waits for another. On Linux the kernel
says when a request arrived; elsewhere it's when the server came to read it.
"""

from __future__ import annotations

import heapq
import multiprocessing
import re
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from simulator.worker.schedule import sharpen_sleep


class Service(StrEnum):
    """How long requests take."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    BIMODAL = "bimodal"
    STALLS = "stalls"


MEAN_MS = 2.0
"""The mean of `CONSTANT`, `EXPONENTIAL`, and `STALLS` when it doesn't stall."""

FAST_MS, SLOW_MS, SLOW_SHARE = 1.0, 20.0, 0.05
"""The times of `BIMODAL`, and how many requests are slow."""


@dataclass(frozen=True)
class Behaviour:
    """What a server does from `begins` (`time.perf_counter`) on."""

    service: Service
    begins: float
    stall_s: float
    stall_every_s: float
    """`STALLS` answers nothing in the last `stall_s` of each `stall_every_s`."""

    def answer_at(self, arrived: float, random: Random) -> float:
        """When to answer a request."""
        if self.service is Service.EXPONENTIAL:
            return arrived + random.expovariate(1000 / MEAN_MS)
        if self.service is Service.BIMODAL:
            return arrived + (SLOW_MS if random.random() < SLOW_SHARE else FAST_MS) / 1000
        at = arrived + MEAN_MS / 1000
        if self.service is Service.STALLS:
            phase = (at - self.begins) % self.stall_every_s
            if phase >= self.stall_every_s - self.stall_s:
                return at + self.stall_every_s - phase
        return at


Served = tuple[float, float]
"""When a request arrived and when it was answered, by `time.perf_counter`."""

Log = Mapping[tuple[int, int], Served]
"""By the numbers of worker and event."""


class KnownServer:
    """The server as the benchmark sees it."""

    def __init__(self, url: str, control: Any) -> None:
        self.url = url
        self._control = control

    def behave(self, behaviour: Behaviour) -> None:
        """Behave so from now on, and keep a new log."""
        self._control.send(behaviour)
        self._control.recv()

    def log(self) -> Log:
        """What has been served since `behave`."""
        self._control.send(None)
        log: Log = self._control.recv()
        return log


@contextmanager
def start_known_server() -> Iterator[KnownServer]:
    """The server; ended with the context."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_serve, args=[theirs], daemon=True)
    process.start()
    try:
        yield KnownServer(f"http://127.0.0.1:{ours.recv()}", ours)
    finally:
        process.terminate()
        process.join()


_SO_TIMESTAMPNS = 35
"""Lets the kernel say when what is read came: https://docs.kernel.org/networking/timestamping.html"""
_TIMESPEC = struct.Struct("qq")

# Worker and number of an event of the workload `temperature` in line protocol.
_EVENT = re.compile(rb"device_id=w(\d+)d\d+ sequence_number=(\d+)i")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STORED = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
_BUCKETS = b'{"buckets":[{"id":"1","name":"iot-benchmark","retentionRules":[]}]}'
_OTHER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BUCKETS),
    _BUCKETS,
)


def _serve(control: Any) -> None:
    sharpen_sleep()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        control.send(listener.getsockname()[1])
        _Server(listener, control).run()


class _Server:
    def __init__(self, listener: socket.socket, control: Any) -> None:
        self._listener = listener
        self._control = control
        self._behaviour = Behaviour(Service.CONSTANT, 0.0, 0.0, 1.0)
        self._random = Random(0)
        self._unread: dict[socket.socket, bytes] = {}
        self._under_way: list[tuple[float, float, int, int, socket.socket]] = []
        """When to answer, when it arrived, worker, event, connection: a heap."""
        self._log: dict[tuple[int, int], Served] = {}

    def run(self) -> None:
        while True:
            # Waits in µs, unlike poll and epoll, which round up to ms.
            wait_s = None
            if self._under_way:
                wait_s = max(0.0, self._under_way[0][0] - time.perf_counter())
            ready, _, _ = select.select(
                [self._listener, self._control, *self._unread], (), (), wait_s
            )
            now = time.perf_counter()
            while self._under_way and self._under_way[0][0] <= now:
                self._answer()
                now = time.perf_counter()
            for source in ready:
                if source is self._listener:
                    client, _ = self._listener.accept()
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if sys.platform == "linux":
                        client.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                    self._unread[client] = b""
                elif source is self._control:
                    self._obey()
                else:
                    self._read(source)

    def _answer(self) -> None:
        _, arrived, worker, event, client = heapq.heappop(self._under_way)
        self._log[worker, event] = (arrived, time.perf_counter())
        client.sendall(_STORED)

    def _obey(self) -> None:
        behaviour = self._control.recv()
        if behaviour is None:
            self._control.send(self._log)
            return
        self._behaviour, self._log = behaviour, {}
        self._control.send(None)

    def _read(self, client: socket.socket) -> None:
        try:
            received, more, _, _ = client.recvmsg(1 << 16, socket.CMSG_SPACE(_TIMESPEC.size))
        except OSError:
            received, more = b"", []
        arrived = time.perf_counter()
        for _, kind, stamp in more:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack(stamp)
                # The kernel's stamps are by the time of day.
                arrived -= (time.time_ns() - seconds * 10**9 - nanoseconds) / 1e9
        if not received:
            del self._unread[client]
            client.close()
            return
        request = self._unread[client] + received
        head, separator, body = request.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not separator or (length and len(body) < int(length[1])):
            self._unread[client] = request
            return
        self._unread[client] = b""
        event = _EVENT.search(body)
        if event is None:
            client.sendall(_OTHER)
            return
        at = self._behaviour.answer_at(arrived, self._random)
        heapq.heappush(self._under_way, (at, arrived, int(event[1]), int(event[2]), client))
