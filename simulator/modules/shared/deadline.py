"""When the request that a thread is at work on is given up (`--patience`).

Whoever waits for a server asks here how long it may. A try gets half of the time that is left, so that one
whose answer never comes leaves time for another, on another connection or node.
"""

from __future__ import annotations

import math
import threading
import time

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
