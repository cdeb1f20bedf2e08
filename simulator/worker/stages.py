"""Stages of a rate, and times in which the fleet of devices is cut off: when requests are due and sent then,
and what became of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any

from ..contract import CatchUp, FleetPause, RateStage, StageResult, find_mean_rate
from ..histograms import LatencyRecorder

if TYPE_CHECKING:
    from numpy import bool_, floating
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]
    BoolArray = NDArray[bool_]


class Pace:
    """Stretches and shortens the time of a schedule at the mean rate such that each stage has its own rate.

    A Poisson process at a constant rate becomes one at the rate of each stage, and what was even stays even
    within each stage. In all, as many requests are due as before.
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
        """The time at the mean rate by which as much is due as by this time of the clock."""
        import numpy as np

        return float(np.interp(clock_s, self._clock_s, self._even_s))


class StageRecorder:
    """What became of the requests that were due in each stage. Times count from the common start."""

    def __init__(self, ends_s: Sequence[float]) -> None:
        """`ends_s`: when each stage ends."""
        self._ends_s = list(ends_s)
        # One more for what comes after the last stage.
        self._due, self._achieved, self._all_due, self._all_done = (
            [0] * (len(self._ends_s) + 1) for _ in range(4)
        )
        self._latency = [LatencyRecorder() for _ in self._all_due]

    def record(
        self, due_s: float, answered_s: float, events: int, response_s: float | None
    ) -> None:
        """Count a request that was answered; `response_s`: None if it was due before the window."""
        due_in, done_in = bisect_right(self._ends_s, due_s), bisect_right(self._ends_s, answered_s)
        self._all_due[due_in] += events
        self._all_done[done_in] += events
        if response_s is not None:
            self._due[due_in] += events
            self._latency[due_in].record(response_s)

    def achieve(self, answered_s: float, events: int) -> None:
        """Count what was answered in the window, whenever it was due."""
        self._achieved[bisect_right(self._ends_s, answered_s)] += events

    def add_due(self, due_s: FloatArray, events: FloatArray, counts: BoolArray) -> None:
        """Add requests that were due at these times, with these numbers of events, and weren't answered;
        `counts`: whether each was due in the window."""
        import numpy as np

        places = np.searchsorted(self._ends_s, due_s, side="right")
        for place in np.unique(places).tolist():
            own = places == place
            self._all_due[place] += int(events[own].sum())
            self._due[place] += int(events[own & counts].sum())

    def add_waiting(self, due_s: FloatArray, waited_s: FloatArray) -> None:
        """Add requests of the window that were due at these times, and how long each has waited until now."""
        import numpy as np

        places = np.searchsorted(self._ends_s, due_s, side="right")
        for place in np.unique(places).tolist():
            self._latency[place].record_many(waited_s[places == place])

    def forget_due(self) -> None:
        """Forget what was due, as it is added anew."""
        self._all_due, self._due = ([0] * len(self._all_due) for _ in range(2))

    def result(self) -> list[StageResult]:
        """What became of each stage, for the collector."""
        due, done = accumulate(self._all_due), accumulate(self._all_done)
        return [
            StageResult(
                due=self._due[place],
                achieved=self._achieved[place],
                backlog=max(0, all_due - all_done),
                histogram=self._latency[place].finish(),
            )
            for place, (all_due, all_done) in enumerate(zip(due, done, strict=True))
            if place < len(self._ends_s)
        ]


@dataclass
class _Return:
    """What became of the requests that were sent after a pause, until the next one."""

    begins: float
    ends: float
    until: float
    """When the next pause begins."""
    held: int = 0
    emptied: float | None = None
    """When nothing that was due was left to send."""
    last_answer: float = -inf
    """When the last answer came to what was sent until then."""
    lateness_s: float = 0.0
    burst: LatencyRecorder = field(default_factory=LatencyRecorder)
    after: LatencyRecorder = field(default_factory=LatencyRecorder)


class Pauses:
    """When nothing is sent, and how that is made up for. Times are `time.perf_counter`'s.

    What was due in a pause, or before it and could not be sent in time, is sent in its order once the pause
    is over. The time that it was held back is in no response time: for the database, the devices send it when
    the fleet is back.
    """

    def __init__(self, pauses: Sequence[FleetPause]) -> None:
        """`pauses`: in order, and apart."""
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
        """When a request that is to be sent then can be sent: later if the fleet is cut off then."""
        before = self._find_last(at)
        return at if before is None else max(at, before.ends)

    def _find_last(self, at: float) -> _Return | None:
        """The last pause that has begun by then."""
        place = bisect_right(self._begins, at)
        return self._returns[place - 1] if place else None

    def measure_held_s(self, due: float, sent: float) -> float:
        """How long a request that was due and sent at these times was held back."""
        return sum(
            max(0.0, min(sent, pause.ends) - max(due, pause.begins)) for pause in self._returns
        )

    def measure_waiting_s(self, due: FloatArray, until: float) -> FloatArray:
        """How long requests that were due at these times have waited for the database, until `until`."""
        import numpy as np

        waited_s: FloatArray = until - due
        for pause in self._returns:
            ended = min(until, pause.ends)
            waited_s -= np.maximum(0.0, ended - np.maximum(due, pause.begins))
        return waited_s

    def take_turn(self, due: float, now: float) -> None:
        """Note that all requests before one that is due then have been sent by now."""
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
        """What became of each pause, for the collector. `all_sent`: nothing that was due is left."""
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
