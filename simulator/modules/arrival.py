"""When a request went out, and when its answer arrived at this machine, as the kernel says.

Python hears of an answer when its thread has been woken and has got the interpreter's lock: 0.1 ms later
on an idle machine, and milliseconds later where threads wait for each other. None of that is the
database's. So in an open loop, whose latencies are what a device would feel, the kernel's time stamp of
the answer counts: https://docs.kernel.org/networking/timestamping.html (SO_TIMESTAMPNS). A closed loop
doesn't ask for it: there the client's delay is a part of the rate, and so of what a latency means.

Over TLS, and elsewhere than on Linux, there are no such stamps; then an answer has come when it was read.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from contextlib import suppress

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_SPACE = socket.CMSG_SPACE(_TIMESPEC.size) if hasattr(socket, "CMSG_SPACE") else 0
_KNOWN = sys.platform == "linux" and sys.maxsize > 2**32


class _Latest(threading.local):
    """What a thread has last sent by a stamped socket, and read from one."""

    sent_s = 0.0
    arrived_s = 0.0


_latest = _Latest()


def stamp_arrivals(stream: socket.socket) -> bool:
    """Have the kernel stamp what arrives here; False if it can't."""
    if not _KNOWN:
        return False
    with suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        return True
    return False


def receive_stamped(stream: socket.socket, buffer: bytearray | memoryview, flags: int = 0) -> int:
    """`recv_into` of a stamped socket."""
    size, more, _, _ = stream.recvmsg_into([buffer], _SPACE, flags)
    for _, kind, stamp in more:
        if kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(stamp)
            # The kernel's stamps are by the time of day.
            ago_s = (time.time_ns() - seconds * 1_000_000_000 - nanoseconds) / 1e9
            _latest.arrived_s = time.perf_counter() - max(0.0, ago_s)
    return size


def note_sending() -> None:
    """A request goes out now: what was done to make it was the client's own work."""
    _latest.sent_s = time.perf_counter()


def find_sending(began_s: float) -> float:
    """When this thread sent the request that it began to make then; that time itself if nobody noted it."""
    return max(began_s, _latest.sent_s)


def find_arrival(sent_s: float) -> float:
    """When the answer came that this thread has just read, to what was sent then; now if the kernel didn't
    say. By `time.perf_counter`."""
    arrived_s = _latest.arrived_s
    return arrived_s if arrived_s >= sent_s else time.perf_counter()
