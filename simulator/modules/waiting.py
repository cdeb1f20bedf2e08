"""How long a thread waits for an answer, and when the kernel received it."""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

# --- waiting --------------------------------------------------------------------------------------
#
# A call's time limit, many connections at once, and a thread's current request.
#
# With `settimeout`, Python makes at least two system calls: it polls the socket, then sends or receives as
# far as there is room. Each time, the thread releases the interpreter's lock and must get it back. A blocking
# call is one system call, and the kernel can end its wait as well (SO_RCVTIMEO, SO_SNDTIMEO:
# https://man7.org/linux/man-pages/man7/socket.7.html).

TIMEOUTS = (TimeoutError, BlockingIOError)
"""Errors of a call that has waited too long: by Python's clock, and by the kernel's."""

_TIMEVAL = struct.Struct("ll")
_MILLION = 1_000_000


def limit_waits(stream: socket.socket, timeout_s: float) -> None:
    """End each call on the socket after this time: it then raises one of `TIMEOUTS`."""
    # OpenSSL would try again when the kernel gives up.
    if isinstance(stream, ssl.SSLSocket):
        stream.settimeout(timeout_s)
        return
    stream.settimeout(None)
    # For the kernel, zero means no limit.
    limit = _TIMEVAL.pack(*divmod(max(1, round(timeout_s * _MILLION)), _MILLION))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


# Waiting for many connections at once, to the µs.

_SELECTABLE = 1024
"""Descriptors below this can be passed to select (FD_SETSIZE)."""


class Poll:
    """As `select.poll`, but without waits that end up to a millisecond late, which would delay the next
    request of an open loop."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._events: dict[int, int] = {}

    def register(self, descriptor: int, events: int) -> None:
        """Wait for these events of a connection from now on, and no longer for others."""
        if self._events.get(descriptor) != events:
            self._poll.register(descriptor, events)
            self._events[descriptor] = events

    def unregister(self, descriptor: int) -> None:
        """Stop waiting for a connection, before it is closed."""
        if self._events.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """The connections with events, as from `select.poll`. None after that time, or up to 1 ms earlier:
        the caller checks the clock."""
        if timeout_s >= 0.001:
            # The rest is waited for next time.
            return self._poll.poll(math.floor(min(timeout_s, 3600.0) * 1000))
        if timeout_s > 0 and max(self._events, default=0) < _SELECTABLE:
            writing = [at for at, events in self._events.items() if events & select.POLLOUT]
            select.select(list(self._events), writing, (), timeout_s)
            return self._poll.poll(0)
        return self._poll.poll(max(0.0, timeout_s * 1000))


# The current request of a thread that waits in calls.
#
# Channels that poll use `Request` and `Completion` for the times at which a request is given up, was sent and
# was answered. A vendor's client, a look-up and reconnecting block in calls without an argument for this, so
# it is kept per thread.

SHORTEST_TRY_S = 1.0
"""The least time for an attempt, even if less is left: patience is exceeded by this much at most."""


class _Work(threading.local):
    """A request's work."""

    deadline_s = math.inf
    """When to give it up (`--patience`), by `time.perf_counter`."""
    sent_s = 0.0
    """When it was first sent, and when its last answer arrived; 0 if unknown."""
    arrived_s = 0.0


_work = _Work()


@contextmanager
def at_work(deadline_s: float) -> Iterator[_Work]:
    """This thread's work within the block is for one request, and given up then; inf: never."""
    _work.deadline_s, _work.sent_s, _work.arrived_s = deadline_s, 0.0, 0.0
    try:
        yield _work
    finally:
        _work.deadline_s = math.inf


def note_answer(sent_s: float, arrived_s: float) -> None:
    """This thread's request was sent and answered at these times: work before and after was the
    client's own."""
    _work.sent_s, _work.arrived_s = _work.sent_s or sent_s, arrived_s


def limit_wait(timeout_s: float, deadline_s: float | None = None) -> float:
    """The time limit for one answer: `timeout_s`, or less if the deadline is near. An attempt gets half of
    the remaining time, so that one without an answer leaves time for another, on another connection or
    node. `deadline_s`: None: that of this thread's current request."""
    at_s = _work.deadline_s if deadline_s is None else deadline_s
    if at_s == math.inf:
        return timeout_s
    # Rounded, so that sockets that already have this limit aren't changed.
    half_s = round((at_s - time.perf_counter()) / 2, 1)
    return min(timeout_s, max(SHORTEST_TRY_S, half_s))


# --- the kernel's time stamps ----------------------------------------------------------------------
#
# When a request was sent, and when its answer arrived at this machine, according to the kernel.
#
# Python notices an answer once its thread is awake and holds the interpreter's lock: 0.1 ms later on an idle
# machine, and milliseconds later where threads wait for each other. None of that is the database's time. So
# in an open loop, whose latencies are those of a device, the kernel's timestamp of the answer counts:
# https://docs.kernel.org/networking/timestamping.html (SO_TIMESTAMPNS). A closed loop doesn't use it: there,
# the client's delay is part of the rate, and so of a latency.
#
# Over TLS, and on systems other than Linux, there are no such timestamps; an answer then arrives when it is
# read.

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_SPACE = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_CLOCK_JITTER_S, _MOST_SLEW = 0.001, 0.001
"""A wall clock that gains or loses more against `time.perf_counter` was set; the kernel slews it by at most
0.0005 (adjtimex(2))."""
_KNOWN = sys.platform == "linux" and sys.maxsize > 2**32


def stamp_arrivals(stream: socket.socket) -> bool:
    """Have the kernel timestamp what arrives on this socket; False if it can't."""
    if not _KNOWN:
        return False
    with suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        return True
    return False


class Receiver:
    """Reads a socket, and records when the last data arrived."""

    def __init__(self, stream: socket.socket, stamped: bool = False) -> None:
        """`stamped`: the kernel timestamps what arrives (`stamp_arrivals`)."""
        self._stream = stream
        self._stamped = stamped
        self.arrived_s = 0.0
        """By `time.perf_counter`: from the kernel, or when it was read."""
        self._ahead_s = math.nan
        self._compared_s = 0.0
        """How far the wall clock was ahead of `time.perf_counter`, and when."""
        self._poll: select.poll | None = None
        self._wait_ms = 0

    def limit(self, timeout_s: float) -> None:
        """Set the time limit for `read`, after which one of `TIMEOUTS` is raised."""
        limit_waits(self._stream, timeout_s)
        # A thread that waits in recv on a local socket is also woken when the server reads what it was sent:
        # twice per request, which took 5 µs of an insert. A thread that polls isn't (unix_write_space in
        # https://github.com/torvalds/linux/blob/master/net/unix/af_unix.c). Queries are answered so soon that
        # the first wake only keeps the CPU awake: readers that polled asked 0.8 to 0.9 as many.
        if self._stream.family == socket.AF_UNIX:
            self._poll, self._wait_ms = select.poll(), max(1, round(timeout_s * 1000))
            self._poll.register(self._stream, select.POLLIN)

    def receive(self, buffer: bytearray | memoryview) -> int:
        """As `recv_into`."""
        if not self._stamped:
            size = self._stream.recv_into(buffer)
            self.arrived_s = time.perf_counter()
            return size
        size, more, _, _ = self._stream.recvmsg_into([buffer], _SPACE)
        self._note(more)
        return size

    def read(self, size: int) -> bytes:
        """As `recv`."""
        if self._poll is not None and not self._poll.poll(self._wait_ms):
            raise TimeoutError
        if not self._stamped:
            came = self._stream.recv(size)
            self.arrived_s = time.perf_counter()
            return came
        came, more, _, _ = self._stream.recvmsg(size, _SPACE)
        self._note(more)
        return came

    def _note(self, more: Iterable[tuple[int, int, bytes]]) -> None:
        wall_ns = self._read_wall_clock()
        self.arrived_s = self._compared_s
        for _, kind, stamp in more:
            if kind == _SO_TIMESTAMPNS and wall_ns is not None:
                seconds, nanoseconds = _TIMESPEC.unpack(stamp)
                ago_s = (wall_ns - seconds * 1_000_000_000 - nanoseconds) / 1e9
                self.arrived_s -= max(0.0, ago_s)

    def _read_wall_clock(self) -> int | None:
        """The time of day in ns, as in the kernel's timestamps; None if it may have been set since the last
        reading: then a timestamp is unusable."""
        # This thread may be interrupted between its two clocks, but hardly twice.
        for _ in range(2):
            wall_ns, now_s = time.time_ns(), time.perf_counter()
            ahead_s = wall_ns / 1e9 - now_s
            slewed_s = _MOST_SLEW * (now_s - self._compared_s)
            if not abs(ahead_s - self._ahead_s) > _CLOCK_JITTER_S + slewed_s:
                break
        else:
            wall_ns = 0
        self._ahead_s, self._compared_s = ahead_s, now_s
        return wall_ns or None
