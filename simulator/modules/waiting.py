"""How long a thread waits for sockets: a call's time limit, many connections at once, and the deadline of the
request that it is at work on.

With `settimeout`, Python makes two system calls or more out of each: it asks whether the socket is ready and
then sends or receives what there is room for. Each time the thread gives up the interpreter's lock and has to
get it back. A call that blocks is one, and the kernel can end its wait as well (SO_RCVTIMEO, SO_SNDTIMEO:
https://man7.org/linux/man-pages/man7/socket.7.html).
"""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import threading
import time

TIMEOUTS = (TimeoutError, BlockingIOError)
"""What a call raises that has waited too long: by Python's clock, and by the kernel's."""

_TIMEVAL = struct.Struct("ll")
_MILLION = 1_000_000


def limit_waits(stream: socket.socket, timeout_s: float) -> None:
    """End each call on the socket after so long: it then raises one of `TIMEOUTS`."""
    # OpenSSL would try again when the kernel gives up.
    if isinstance(stream, ssl.SSLSocket):
        stream.settimeout(timeout_s)
        return
    stream.settimeout(None)
    # The kernel takes zero for no limit.
    limit = _TIMEVAL.pack(*divmod(max(1, round(timeout_s * _MILLION)), _MILLION))
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


# Waiting for many connections at once, to the µs.

_SELECTABLE = 1024
"""Descriptors below this one can be given to select (FD_SETSIZE)."""


class Poll:
    """As `select.poll`, but a wait doesn't end up to a millisecond late, by which the next request of an open
    loop would leave late."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._events: dict[int, int] = {}

    def register(self, descriptor: int, events: int) -> None:
        """Wait for these events of a connection from now on, and no longer for others."""
        self._poll.register(descriptor, events)
        self._events[descriptor] = events

    def unregister(self, descriptor: int) -> None:
        """Wait for nothing of it any more."""
        self._poll.unregister(descriptor)
        del self._events[descriptor]

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """The connections that have something, and what, as `select.poll` tells. None after that time or
        up to 1 ms earlier: the caller looks at the clock."""
        if timeout_s >= 0.001:
            # The rest is waited for next time.
            return self._poll.poll(math.floor(min(timeout_s, 3600.0) * 1000))
        if timeout_s > 0 and max(self._events, default=0) < _SELECTABLE:
            writing = [at for at, events in self._events.items() if events & select.POLLOUT]
            select.select(list(self._events), writing, (), timeout_s)
            return self._poll.poll(0)
        return self._poll.poll(max(0.0, timeout_s * 1000))


# When the request that a thread is at work on is given up (`--patience`).
#
# Whoever waits for a server asks here how long it may. A try gets half of the time that is left, so that one
# whose answer never comes leaves time for another, on another connection or node.

SHORTEST_TRY_S = 1.0
"""A try gets this much even if less is left: patience is overrun by so much at most."""


class _Own(threading.local):
    at_s = math.inf


_own = _Own()


def set_deadline(at_s: float) -> None:
    """What this thread does from now on is given up then, by `time.perf_counter`; inf: never."""
    _own.at_s = at_s


def read_deadline() -> float:
    """When this thread's request is given up, by `time.perf_counter`."""
    return _own.at_s


def limit_wait(timeout_s: float) -> float:
    """How long this thread may wait for one answer: `timeout_s`, or less if the deadline is near."""
    at_s = _own.at_s
    if at_s == math.inf:
        return timeout_s
    # Rounded, so that sockets whose limit is that already needn't be told.
    half_s = round((at_s - time.perf_counter()) / 2, 1)
    return min(timeout_s, max(SHORTEST_TRY_S, half_s))
