"""Has several questions under way in one thread, by a connection for each: threads would take turns with the
interpreter's lock, which costs more than most questions."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from ..asking import Received, SplitAsker
from ..base import AnyModule
from ..sending import Outcome, Poll


class PolledAsker(SplitAsker):
    """Waits for all connections at once. `submit` registers one with `_poll`, and what ends a question adds
    its outcome to `_found`."""

    def __init__(self, module: AnyModule, in_flight: int, timeout_s: float) -> None:
        """`timeout_s`: how long an answer may take."""
        super().__init__(module, in_flight)
        self._timeout_s = timeout_s
        self._poll = Poll()
        self._found: list[Outcome[Received]] = []
        self._late_at_s = 0.0
        """When to look for late answers next."""

    @abstractmethod
    def list_asked(self) -> Iterable[tuple[int, float]]:
        """The descriptors of connections by which an answer is to come, and when its question was sent."""

    @abstractmethod
    def take(self, descriptor: int) -> None:
        """Read what has come by a connection."""

    @abstractmethod
    def end_late(self, descriptor: int) -> None:
        """Wait no longer for what is to come by a connection."""

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[Received]]:
        until_s = math.inf if timeout_s is None else time.perf_counter() + timeout_s
        while not self._found:
            now_s = time.perf_counter()
            if now_s >= until_s:
                break
            if now_s >= self._late_at_s:
                self._end_all_late(now_s)
                continue
            for descriptor, _ in self._poll.wait(min(until_s, self._late_at_s) - now_s):
                self.take(descriptor)
        outcomes, self._found = self._found, []
        return outcomes

    def _end_all_late(self, now_s: float) -> None:
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        for descriptor, sent_s in list(self.list_asked()):
            if sent_s + self._timeout_s <= now_s:
                self.end_late(descriptor)

    def stop_submitting(self) -> None:
        """What is under way is cut off by `close`."""
