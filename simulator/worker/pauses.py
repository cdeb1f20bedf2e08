"""Times in which the fleet of devices is cut off: what is due then is held back, and sent once it is back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from ..contract import FleetPause, WorkerPause
from ..histograms import LatencyRecorder, encode_histogram

if TYPE_CHECKING:
    from numpy import floating
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]


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

    def result(self, all_sent: bool) -> list[WorkerPause]:
        """What became of each pause, for the collector. `all_sent`: nothing that was due is left."""
        return [self._describe(pause, all_sent) for pause in self._returns]

    def _describe(self, pause: _Return, all_sent: bool) -> WorkerPause:
        is_done = pause.emptied is not None or (all_sent and pause.until == inf)
        return WorkerPause(
            held=pause.held,
            caught_up_s=max(pause.ends, pause.last_answer) - self._start if is_done else None,
            lateness_s=pause.lateness_s,
            burst=encode_histogram(pause.burst.finish()),
            after=encode_histogram(pause.after.finish()),
        )
