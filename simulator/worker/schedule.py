"""When requests are due. Pure: the clock is an argument."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from math import ceil, inf

from ..contract import Arrivals, Load, Role

# Gaps drawn at once: numpy's cost for one would be as much as a request's.
_DRAWN_AT_ONCE = 4096


class Schedule(ABC):
    """Says of one request after the other when it is due. Times are `time.perf_counter`'s."""

    begins: float = 0.0
    """The common start."""
    measured_from: float = 0.0
    """When the window opens: after the warm-up."""
    ends: float = inf
    """When nothing is sent any more."""
    is_open: bool = False
    """Whether requests are due by the clock (an open loop) and not by the answer before."""

    def __init__(self, warm_up_s: float = 0.0, duration_s: float | None = None) -> None:
        self._warm_up_s = warm_up_s
        self._duration_s = inf if duration_s is None else duration_s

    def begin(self, start: float) -> None:
        """Set the common start."""
        self.begins = start
        self.measured_from = start + self._warm_up_s
        self.ends = start + self._duration_s

    @abstractmethod
    def next_due(self, now: float) -> float:
        """When the next request is due; not after `now`: at once. `ends` or later: there is none."""

    def count_due(self, until: float) -> int:
        """Requests that are due before `until`, which isn't before what `next_due` last told; 0 of a
        closed loop, in which nothing is due by the clock."""
        return 0


class ClosedLoop(Schedule):
    """Each request is due when there is a place for it."""

    def next_due(self, now: float) -> float:
        return now


class OpenLoop(Schedule):
    """Requests are due at times of their own, whatever became of those before.

    `gap_s` is the mean time from one of this worker's requests to its next. Even: the first is due
    after `lag_s`, by which the workers of a group interleave. Poisson: the gaps are exponential and
    follow from the seed, and as many workers' independent processes make one of their summed rate, there
    is nothing to interleave.
    """

    is_open = True

    def __init__(
        self,
        gap_s: float,
        lag_s: float = 0.0,
        arrivals: Arrivals = Arrivals.EVEN,
        seed: tuple[int, ...] = (),
        warm_up_s: float = 0.0,
        duration_s: float | None = None,
    ) -> None:
        super().__init__(warm_up_s, duration_s)
        self._gap_s = gap_s
        self._lag_s = lag_s
        self._even = arrivals is Arrivals.EVEN
        self._asked = 0
        """Requests that `next_due` has told the time of."""
        if not self._even:
            import numpy as np

            self._random = np.random.default_rng(seed)
        self._drawn: list[float] = []
        """Due times from request `_drawn_from` on, counted from the common start."""
        self._drawn_from = 0
        self._last_drawn_s = 0.0

    def next_due(self, now: float) -> float:
        number = self._asked
        self._asked += 1
        if self._even:
            return self.begins + self._lag_s + number * self._gap_s
        if number - self._drawn_from >= len(self._drawn):
            self._drawn_from += len(self._drawn)
            self._drawn = self._draw()
        return self.begins + self._drawn[number - self._drawn_from]

    def count_due(self, until: float) -> int:
        after_s = until - self.begins
        if self._even:
            return max(0, ceil((after_s - self._lag_s) / self._gap_s))
        while not self._drawn or self._drawn[-1] < after_s:
            self._drawn += self._draw()
        return self._drawn_from + bisect_left(self._drawn, after_s)

    def _draw(self) -> list[float]:
        """The due times of the next requests."""
        gaps = self._random.exponential(self._gap_s, _DRAWN_AT_ONCE)
        gaps[0] += self._last_drawn_s
        due: list[float] = gaps.cumsum().tolist()
        self._last_drawn_s = due[-1]
        return due


def make_schedule(load: Load, worker: int, seed: int) -> Schedule:
    """The schedule of worker number `worker` of a group (0: its first) with this load.

    A request is a batch of events or a query; `load.rate_per_s` counts events or queries.
    """
    if load.rate_per_s is None:
        return ClosedLoop(load.warm_up_s, load.duration_s)
    gap_s = load.events_per_request * load.workers / load.rate_per_s
    lag_s = gap_s * worker / load.workers
    role = 0 if load.role is Role.WRITE else 1
    return OpenLoop(
        gap_s, lag_s, load.arrivals, (seed, role, worker), load.warm_up_s, load.duration_s
    )
