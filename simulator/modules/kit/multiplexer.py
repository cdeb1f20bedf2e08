"""Many connections polled in one thread, in any protocol: threads would compete for the interpreter's lock,
which costs more than most requests.

A protocol says when an answer is complete (`serve`), and when it is late (`end_late`).
"""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod

from ..sending import LAST_ANSWERS_S, Completion
from ..waiting import Poll

_MOST_APART_S = 1.0
"""The longest time between checks for late answers."""


class Multiplexer(ABC):
    """Watches the connections of requests in flight. Whatever ends a request adds its completion to `found`,
    at any time."""

    blocks: bool = False
    """Whether at most one request is in flight, and `serve` waits for its answer: one system call less."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: for an answer."""
        self.found: list[Completion] = []
        self._events = Poll()
        self._only: int | None = None
        """The connection that `serve` waits for."""
        self._timeout_s = timeout_s
        self._apart_s = min(_MOST_APART_S, timeout_s / 4)
        self._late_at_s = 0.0
        """When to check for late answers next."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether requests are in flight."""

    @abstractmethod
    def serve(self, descriptor: int, events: int) -> None:
        """Read what has arrived on a connection, and send as far as there is room; `events`: from poll."""

    @abstractmethod
    def end_late(self, now_s: float) -> None:
        """Give up answers that are late by now."""

    def watch(self, descriptor: int, is_full: bool = False) -> None:
        """A request is in flight on a connection: wait for data, and for room to send if it `is_full`."""
        if self.blocks and not is_full:
            self._only = descriptor
        else:
            self._only = None
            self._events.register(descriptor, select.POLLIN | (select.POLLOUT if is_full else 0))

    def forget(self, descriptor: int) -> None:
        """Stop waiting for a connection."""
        if self._only == descriptor:
            self._only = None
        self._events.unregister(descriptor)

    def poll(self, timeout_s: float) -> list[Completion]:
        """As `Channel.poll`."""
        if self._only is not None:
            while not self.found and self._only is not None:
                self.serve(self._only, select.POLLIN)
                if not self.found:
                    # An answer that arrives byte by byte.
                    self.end_late(time.perf_counter())
            self._only = None
        elif not self.found:
            self._await_any(time.perf_counter() + timeout_s)
        found, self.found = self.found, []
        return found

    def _await_any(self, until_s: float) -> None:
        while not self.found and (now_s := time.perf_counter()) < until_s:
            self.serve_all(min(until_s, self._late_at_s) - now_s)

    def serve_all(self, timeout_s: float) -> None:
        """Send and receive what is possible; wait at most `timeout_s` until something is. Then give up what
        is late: if this process was stopped meanwhile, the answers may have arrived."""
        events = self._events.wait(max(0.0, timeout_s))
        for descriptor, event in events:
            self.serve(descriptor, event)
        now_s = time.perf_counter()
        if now_s >= self._late_at_s + (self._apart_s if events else 0.0):
            self._late_at_s = now_s + self._apart_s
            self.end_late(now_s)

    def finish(self) -> None:
        """Wait for everything in flight, at most `LAST_ANSWERS_S`."""
        until_s = time.perf_counter() + min(LAST_ANSWERS_S, self._timeout_s)
        while self.is_busy and (left_s := until_s - time.perf_counter()) > 0:
            self.serve_all(left_s)
