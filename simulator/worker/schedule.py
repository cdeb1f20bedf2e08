"""When requests are due. The clock is an argument."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any

from ..contract import Arrivals, CatchUp, FleetPause, Load, RateStage, Role, find_mean_rate
from ..histograms import LatencyRecorder

if TYPE_CHECKING:
    from numpy import floating
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]
    FindDue = Callable[[int, int], FloatArray]
    """(number of the first request, how many) -> when they are due, in s since the common start."""

_PR_SET_TIMERSLACK = 29
"""https://github.com/torvalds/linux/blob/master/include/uapi/linux/prctl.h"""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
"""The system call's number; few C libraries have a function for it."""
_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""https://man7.org/linux/man-pages/man2/sched_setattr.2.html: size, policy, flags, nice, priority, runtime,
deadline, period."""
_SHARP_SLICE_NS, _USUAL_SLICE_NS = 100_000, 3_000_000
"""The shortest slice that Linux grants, and the usual one."""

_LONGEST_SLEEP_S = 0.5
"""How often a wait of minutes checks whether the schedule is over."""

# Gaps drawn at once. For a single one numpy would cost as much as a whole request; drawing this many takes
# some 40 µs, in which no request can leave.
_DRAWN_AT_ONCE = 4096

# The same for a recording, whose requests may have a thousand events each.
_FOUND_AT_ONCE = 64

# The same for requests that were never sent; there may be millions.
_LEFT_AT_ONCE = 1 << 18


class Pace:
    """Maps times at the mean rate to times at which each stage has its own rate.

    A Poisson process at a constant rate becomes one at each stage's rate; even gaps stay even within a stage.
    The total number of due requests doesn't change.
    """

    def __init__(self, stages: Sequence[RateStage]) -> None:
        import numpy as np

        mean = find_mean_rate(stages)
        even = (stage.duration_s * stage.rate_per_s / mean for stage in stages)
        self._clock_s = np.array([0.0, *accumulate(stage.duration_s for stage in stages)])
        self._even_s = np.array([0.0, *accumulate(even)])

    def stretch(self, even_s: FloatArray) -> FloatArray:
        """Times at the mean rate -> times by the clock, both since the start; inf after the last stage."""
        import numpy as np

        clock_s: FloatArray = np.interp(even_s, self._even_s, self._clock_s, right=np.inf)
        return clock_s

    def find_even_s(self, clock_s: float) -> float:
        """The time at the mean rate by which as much is due as at `clock_s` by the clock."""
        import numpy as np

        return float(np.interp(clock_s, self._clock_s, self._even_s))


@dataclass
class _Return:
    """What happened to the requests sent between a pause and the next one."""

    begins: float
    ends: float
    until: float
    """When the next pause begins."""
    held: int = 0
    emptied: float | None = None
    """When the backlog of due requests was empty."""
    last_answer: float = -inf
    """When the last of the requests sent until then was answered."""
    lateness_s: float = 0.0
    burst: LatencyRecorder = field(default_factory=LatencyRecorder)
    after: LatencyRecorder = field(default_factory=LatencyRecorder)


class Pauses:
    """When nothing is sent, and how that is made up for. Times are `time.perf_counter`'s.

    Requests that were due in a pause, or before it and not sent in time, are sent in order once the pause is
    over. Response times don't include the time for which they were held back: from the database's view, the
    devices send them when the fleet is back.
    """

    def __init__(self, pauses: Sequence[FleetPause]) -> None:
        """`pauses`: in order, without overlap."""
        self._pauses = pauses
        self._start = 0.0
        self._returns: list[_Return] = []
        self._begins: list[float] = []

    def begin(self, start: float) -> None:
        """Set the common start."""
        self._start = start
        self._begins = [start + pause.begins_s for pause in self._pauses]
        self._returns = [
            _Return(begins, begins + pause.length_s, until)
            for pause, begins, until in zip(
                self._pauses, self._begins, [*self._begins[1:], inf], strict=True
            )
        ]

    def find_opening(self, at: float) -> float:
        """When a request meant for `at` can be sent: later, if the fleet is cut off then."""
        before = self._find_last(at)
        return at if before is None else max(at, before.ends)

    def _find_last(self, at: float) -> _Return | None:
        """The last pause that has begun by `at`."""
        place = bisect_right(self._begins, at)
        return self._returns[place - 1] if place else None

    def measure_held_s(self, due: float, sent: float) -> float:
        """How long a request due and sent at these times was held back."""
        return sum(
            max(0.0, min(sent, pause.ends) - max(due, pause.begins)) for pause in self._returns
        )

    def measure_waiting_s(self, due: FloatArray, until: float) -> FloatArray:
        """How long requests due at these times have waited for the database, until `until`."""
        import numpy as np

        waited_s: FloatArray = until - due
        for pause in self._returns:
            ended = min(until, pause.ends)
            waited_s -= np.maximum(0.0, ended - np.maximum(due, pause.begins))
        return waited_s

    def take_turn(self, due: float, now: float) -> None:
        """Note that all requests before the one due at `due` have been sent by now."""
        last = self._find_last(due)
        if last is not None and last.emptied is None and due > now and due >= last.ends:
            last.emptied = max(now, last.ends)

    def record(
        self, due: float, sent: float, answered: float, response_s: float, events: int
    ) -> None:
        """Note a request that was answered."""
        last = self._find_last(sent)
        if last is None:
            return
        if due < last.ends:
            last.held += events
        elif last.emptied is not None and due >= last.emptied:
            last.after.record(response_s)
            return
        last.burst.record(response_s)
        last.lateness_s = max(last.lateness_s, answered - due)
        last.last_answer = max(last.last_answer, answered)

    def result(self, all_sent: bool) -> list[CatchUp]:
        """The outcome of each pause, for the collector. `all_sent`: nothing that was due is left."""
        return [
            CatchUp(
                begins_s=pause.begins_s,
                ends_s=pause.ends_s,
                held=own.held,
                after_s=max(0.0, own.last_answer - own.ends)
                if own.emptied is not None or (all_sent and own.until == inf)
                else None,
                lateness_s=own.lateness_s,
                burst=own.burst.finish(),
                later=own.after.finish(),
            )
            for pause, own in zip(self._pauses, self._returns, strict=True)
        ]


class Schedule(ABC):
    """Says when each request is due. Times are `time.perf_counter`'s."""

    begins: float = 0.0
    """The common start."""
    measured_from: float = 0.0
    """When the window opens: after the warm-up."""
    ends: float = inf
    """The time from which nothing more is sent."""
    is_open: bool = False
    """Whether requests are due by the clock (open loop), not upon the previous answer."""
    stage_ends_s: Sequence[float] = ()
    """When each stage of a changing rate ends, since the start."""
    pauses: Pauses | None = None
    """Times in which due requests are held back."""

    def __init__(self, warm_up_s: float = 0.0, duration_s: float | None = None) -> None:
        self._warm_up_s = warm_up_s
        self._duration_s = inf if duration_s is None else duration_s

    def begin(self, start: float) -> None:
        """Set the common start."""
        self.begins = start
        self.measured_from = start + self._warm_up_s
        self.ends = start + self._duration_s

    def end_early(self, at: float) -> None:
        """End the schedule at `at`, if it doesn't end before. May be called in another thread."""
        self.ends = min(self.ends, at)

    def _measure_length_s(self, until: float = inf) -> float:
        """The time from the common start to the end, or to `until`. `ends - begins` is rounded: whether a
        request due at the very end still counts would depend on the clock's value at the start."""
        return min(self._duration_s, until - self.begins, self.ends - self.begins)

    def await_due(self, due: float) -> None:
        """Sleep until `due` or the end of the schedule, which may be brought forward meanwhile."""
        while (left_s := min(due, self.ends) - time.perf_counter()) > 0:
            time.sleep(min(left_s, _LONGEST_SLEEP_S))

    @abstractmethod
    def next_due(self, now: float) -> float:
        """When the next request is due. Not after `now`: at once. `ends` or later: there is none."""

    def find_opening(self, due: float, now: float) -> float:
        """When a request due at `due` can be sent, if not before `now`."""
        return due if self.pauses is None else self.pauses.find_opening(max(due, now))

    def count_due(self, until: float) -> int | None:
        """How many requests of an open loop are due by `until`; None for a closed loop. May be called in
        another thread. For Poisson arrivals far ahead of `next_due` it is the mean number."""
        return None

    def count_reported(self) -> int:
        """How many due times of an open loop `next_due` has returned."""
        return 0

    def list_due(self, until: float) -> Iterator[FloatArray]:
        """The due times of all requests of an open loop up to `until`, in order, some at a time, whether or
        not `next_due` has returned them."""
        return iter(())

    def remaining(self) -> Iterator[FloatArray]:
        """The due times up to the end that `next_due` has not returned yet, in order, some at a time. Only
        for an open loop with an end, which is over afterwards."""
        return iter(())


class ClosedLoop(Schedule):
    """Each request is due when a place is free for it, the first ones at the start."""

    def next_due(self, now: float) -> float:
        # In the hot path of single inserts: `max` would cost 0.1 µs.
        return now if now > self.begins else self.begins  # noqa: FURB136


class OpenLoop(Schedule):
    """Requests are due at times of their own, whatever happens to earlier ones.

    `gap_s` is the mean time from one of this worker's requests to its next. Even: the first request is due
    after `lag_s`, so that the workers of a group interleave. Poisson: the gaps are exponential and follow
    from the seed; there is nothing to interleave, since the independent processes of many workers add up to
    one process at the summed rate. With `stages` all of this holds in a time of its own, which passes at the
    rate of each stage.
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
        stages: Sequence[RateStage] = (),
        pauses: Sequence[FleetPause] = (),
        find_due_s: FindDue | None = None,
    ) -> None:
        """`find_due_s`: for recorded arrivals."""
        super().__init__(warm_up_s, duration_s)
        self._find_due_s = find_due_s
        self.pauses = Pauses(pauses) if pauses else None
        self._stages = stages
        self._pace = Pace(stages) if stages else None
        self.stage_ends_s = list(accumulate(stage.duration_s for stage in stages))
        self._gap_s = gap_s
        self._lag_s = lag_s
        self._arrivals, self._seed = arrivals, seed
        self._even = arrivals is Arrivals.EVEN
        self._computed = self._even and not stages
        """Whether times are computed one by one, rather than drawn."""
        self._drawn_even = 0
        self._asked = 0
        """How many due times `next_due` has returned."""
        if arrivals is Arrivals.POISSON:
            import numpy as np

            self._random = np.random.default_rng(seed)
        self._drawn: tuple[int, list[float]] = (0, [])
        """A request's number, and the due times from that request on, counted from the common start."""
        self._last_drawn_s = 0.0

    def begin(self, start: float) -> None:
        super().begin(start)
        if self.pauses is not None:
            self.pauses.begin(start)

    def next_due(self, now: float) -> float:
        due = self._find_due()
        if self.pauses is not None:
            self.pauses.take_turn(due, now)
        return due

    def _find_due(self) -> float:
        number = self._asked
        self._asked += 1
        if self._computed:
            return self.begins + self._lag_s + number * self._gap_s
        first, drawn = self._drawn
        if number - first >= len(drawn):
            first += len(drawn)
            drawn = self._draw(_DRAWN_AT_ONCE).tolist()
            self._drawn = first, drawn
        return self.begins + drawn[number - first]

    def count_due(self, until: float) -> int | None:
        after_s = self._measure_length_s(until)
        if self._even:
            return max(0, int((self._find_even_s(after_s) - self._lag_s) // self._gap_s) + 1)
        first, drawn = self._drawn
        last_s = drawn[-1] if drawn else 0.0
        if after_s > last_s:
            more_s = self._find_even_s(after_s) - self._find_even_s(last_s)
            return first + len(drawn) + int(more_s / self._gap_s)
        return first + bisect_right(drawn, after_s)

    def _find_even_s(self, clock_s: float) -> float:
        """The time at a constant rate; for a changing rate, the time at the mean rate by which as much is
        due."""
        return clock_s if self._pace is None else self._pace.find_even_s(clock_s)

    def count_reported(self) -> int:
        return self._asked

    def list_due(self, until: float) -> Iterator[FloatArray]:
        shorter = OpenLoop(
            self._gap_s, self._lag_s, self._arrivals, self._seed,
            duration_s=self._measure_length_s(until), stages=self._stages,
            find_due_s=self._find_due_s,
        )  # fmt: skip
        shorter.begin(self.begins)
        return shorter.remaining()

    def remaining(self) -> Iterator[FloatArray]:
        import numpy as np

        after_s = self._measure_length_s()
        if self._computed:
            number = self._asked
            while self._lag_s + number * self._gap_s < after_s:
                due = self._lag_s + self._gap_s * np.arange(number, number + _LEFT_AT_ONCE)
                yield self.begins + due[due < after_s]
                number += _LEFT_AT_ONCE
            return
        first, drawn = self._drawn
        due = np.array(drawn[self._asked - first :])
        while True:
            yield self.begins + due[due < after_s]
            if len(due) and due[-1] >= after_s:
                return
            due = self._draw(_LEFT_AT_ONCE)

    def _draw(self, count: int) -> FloatArray:
        """The due times of the next requests, counted from the common start."""
        if self._find_due_s is not None:
            due = self._find_due_s(self._drawn_even, _FOUND_AT_ONCE)
            self._drawn_even += len(due)
        else:
            due = self._draw_even(count) if self._even else self._draw_poisson(count)
        return due if self._pace is None else self._pace.stretch(due)

    def _draw_even(self, count: int) -> FloatArray:
        import numpy as np

        first = self._drawn_even
        self._drawn_even += count
        return self._lag_s + self._gap_s * np.arange(first, first + count)

    def _draw_poisson(self, count: int) -> FloatArray:
        gaps = self._random.exponential(self._gap_s, count)
        gaps[0] += self._last_drawn_s
        due: FloatArray = gaps.cumsum()
        self._last_drawn_s = float(due[-1])
        return due


def make_schedule(
    load: Load, worker: int, seed: int, find_due_s: FindDue | None = None
) -> Schedule:
    """The schedule of worker `worker` of a group (its first is 0) with this load. `find_due_s`: for recorded
    arrivals, when a recording's requests are due.

    A request is a batch of events or a query; `load.rate_per_s` counts events or queries.
    """
    if load.rate_per_s is None:
        return ClosedLoop(load.warm_up_s, load.duration_s)
    gap_s = load.events_per_request * load.workers / load.rate_per_s
    lag_s = gap_s * worker / load.workers
    role = 0 if load.role is Role.WRITE else 1
    return OpenLoop(
        gap_s,
        lag_s,
        load.arrivals,
        (seed, role, worker),
        load.warm_up_s,
        load.duration_s,
        load.stages,
        load.pauses,
        find_due_s,
    )


def sharpen_sleep() -> None:
    """Let this thread and those it starts later wake as soon as a sleep is over, even while others compute.
    By default Linux wakes them up to 50 µs later to save power
    (https://man7.org/linux/man-pages/man2/PR_SET_TIMERSLACK.2const.html). Elsewhere this does nothing."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        _set_slice(_SHARP_SLICE_NS)


def lower_priority() -> None:
    """Let threads with sharp sleep interrupt this one, though one of them has started it."""
    if sys.platform == "linux":
        _set_slice(_USUAL_SLICE_NS)


def _set_slice(slice_ns: int) -> None:
    """Ask for time slices of this length. On Linux 6.12 and later a thread that wakes interrupts one with a
    longer slice, and both get the same share of time; earlier versions ignore it
    (https://docs.kernel.org/scheduler/sched-eevdf.html). Threads with another policy are left alone."""
    if _SCHED_SETATTR is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
        ctypes.CDLL(None).syscall(_SCHED_SETATTR, 0, attributes, 0)
