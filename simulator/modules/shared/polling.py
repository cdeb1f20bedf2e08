"""Waiting for many connections at once, to the µs."""

from __future__ import annotations

import math
import select

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
