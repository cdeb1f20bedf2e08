"""Stages of a rate, in a worker: when requests are due, and what became of those of each stage."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ..contract import RateStage, WorkerStage, find_mean_rate
from ..histograms import LatencyRecorder, encode_histogram

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

    def result(self) -> list[WorkerStage]:
        """What became of each stage, for the collector."""
        due, done = accumulate(self._all_due), accumulate(self._all_done)
        return [
            WorkerStage(
                due=self._due[place],
                achieved=self._achieved[place],
                backlog=max(0, all_due - all_done),
                histogram=encode_histogram(self._latency[place].finish()),
            )
            for place, (all_due, all_done) in enumerate(zip(due, done, strict=True))
            if place < len(self._ends_s)
        ]
