"""Many connections polled in one thread, whatever they speak: threads would take turns with the interpreter's
lock, which costs more than most requests.

A protocol says when an answer is complete (`serve`), and when it is late (`end_late`).
"""

from __future__ import annotations

import select
import time
from abc import ABC, abstractmethod

from ..sending import LAST_ANSWERS_S, Completion
from ..waiting import Poll

_MOST_APART_S = 1.0
"""How often late answers are looked for, at least."""


class Multiplexer(ABC):
    """Watches the connections by which requests are under way. What ends a request adds its completion to
    `found`, at any time."""

    blocks: bool = False
    """Whether one request at most is under way, and `serve` waits for its answer: one system call less."""

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s`: how long an answer may take."""
        self.found: list[Completion] = []
        self._events = Poll()
        self._only: int | None = None
        """The connection that `serve` waits for."""
        self._timeout_s = timeout_s
        self._apart_s = min(_MOST_APART_S, timeout_s / 4)
        self._late_at_s = 0.0
        """When to look for late answers next."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether requests are under way."""

    @abstractmethod
    def serve(self, descriptor: int, events: int) -> None:
        """Read what has come by a connection, and send what it has room for; `events`: as poll tells."""

    @abstractmethod
    def end_late(self, now_s: float) -> None:
        """Wait no longer for answers that are late by now."""

    def watch(self, descriptor: int, is_full: bool = False) -> None:
        """A request is under way by a connection: wait for what comes, and for room to send if it
        `is_full`."""
        if self.blocks and not is_full:
            self._only = descriptor
        else:
            self._only = None
            self._events.register(descriptor, select.POLLIN | (select.POLLOUT if is_full else 0))

    def forget(self, descriptor: int) -> None:
        """Wait for nothing of a connection any more."""
        if self._only == descriptor:
            self._only = None
        self._events.unregister(descriptor)

    def poll(self, timeout_s: float) -> list[Completion]:
        """As `Channel.poll`."""
        if self._only is not None:
            while not self.found and self._only is not None:
                self.serve(self._only, select.POLLIN)
                if not self.found:
                    # An answer that comes byte by byte.
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
        """Send and receive what can be; wait until something can, `timeout_s` at most. Then give up what is
        late: if this process was stopped meanwhile, the answers may be there."""
        events = self._events.wait(max(0.0, timeout_s))
        for descriptor, event in events:
            self.serve(descriptor, event)
        now_s = time.perf_counter()
        if now_s >= self._late_at_s + (self._apart_s if events else 0.0):
            self._late_at_s = now_s + self._apart_s
            self.end_late(now_s)

    def finish(self) -> None:
        """Wait for all that is under way, `LAST_ANSWERS_S` at most."""
        until_s = time.perf_counter() + min(LAST_ANSWERS_S, self._timeout_s)
        while self.is_busy and (left_s := until_s - time.perf_counter()) > 0:
            self.serve_all(left_s)
