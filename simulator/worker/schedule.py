"""When requests are due."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Schedule(ABC):
    """Says of one request after the other when it is due."""

    @abstractmethod
    def next_due(self, now: float) -> float:
        """When the next request is due, by `time.perf_counter`; not after `now`: at once."""


class AtOnce(Schedule):
    """A closed loop: each request is due when there is a place for it."""

    def next_due(self, now: float) -> float:
        return now


AT_ONCE = AtOnce()
