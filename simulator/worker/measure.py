"""Clocks and timelines: what a worker measures of itself and of its requests."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..contract import GAP_S, Offered, StageResult, WorkerFigures
from ..histograms import COARSE, Histogram, LatencyRecorder
from .schedule import ClosedLoop, Schedule

if TYPE_CHECKING:
    from numpy import bool_, floating
    from numpy.typing import NDArray

    FloatArray = NDArray[floating[Any]]
    BoolArray = NDArray[bool_]


_AT_ONCE = 4096
"""The most requests counted at once: with numpy, a hundred cost little more than one."""


class Recorder:
    """Collects one worker's requests. Begins at `begin()`. Its window opens after the schedule's warm-up and
    closes with the schedule, or with the last answer if the schedule has no end.

    The timeline has all requests. The rate counts what was acknowledged within the window. The histograms
    have the requests that were due within it (closed loop: sent), whenever they were answered: those that a
    stall delays beyond the end matter most.

    `record` is in the hot path of closed loops: it only stores its arguments, which are counted later, many
    at once.
    """

    def __init__(
        self,
        schedule: Schedule | None = None,
        open_window: Callable[[], None] = lambda: None,
        by_second: bool = False,
    ) -> None:
        """`open_window` is called in another thread when the warm-up is over. `by_second`: also keep
        latencies second by second."""
        self._schedule = schedule or ClosedLoop()
        self._open_window = open_window
        self._pending: list[tuple[float, float, int]] = []
        """Requests of a closed loop that aren't counted yet."""
        self._events = 0
        self.measured = 0
        """Events acknowledged within the window."""
        self.retries = 0
        self.errors: Counter[str] = Counter()
        self._seconds: Counter[int] = Counter()
        self._origin = 0.0
        self._from, self._to = 0.0, inf
        self._begin = self._last = 0.0
        self._gaps: list[tuple[float, float]] = []
        self._cpu_begin = 0.0
        self._cpu_end: float | None = None
        self._throttling_begin: tuple[int, int] | None = None
        self._timers: list[threading.Timer] = []
        """Signal the window's opening and end, whatever the worker waits for."""
        self._latency = LatencyRecorder()
        """Response times in an open loop, service times in a closed one."""
        self._service = LatencyRecorder(1 / 3)
        self._own_delay = LatencyRecorder(2 / 3)
        self._due_seconds: Counter[int] = Counter()
        self._due = self._unsent = self._failed = 0
        ends_s = self._schedule.stage_ends_s
        self._stages = StageRecorder(ends_s) if ends_s else None
        self._by_second = SecondRecorder() if by_second else None
        # Do the one-time work now rather than while requests are sent.
        _ = self.latency_so_far().text

    def begin(self, origin: float) -> None:
        """Start. `origin`: the common start by `time.perf_counter`."""
        schedule = self._schedule
        schedule.begin(origin)
        self._origin = origin
        self._from, self._to = schedule.measured_from, schedule.ends
        self._begin = self._last = time.perf_counter()
        self._read_begin()
        for at, notify in ((self._from, self._enter_window), (self._to, self._leave_window)):
            if origin < at < inf:
                timer = threading.Timer(max(0.0, at - time.perf_counter()), notify)
                timer.daemon = True
                timer.start()
                self._timers.append(timer)

    def end_early(self, at: float) -> None:
        """Close the window and end the schedule at `at`, if they don't end before. Called in another
        thread."""
        self._schedule.end_early(at)
        self._to = min(self._to, at)

    def _read_begin(self) -> None:
        self._throttling_begin = throttled_periods()
        self._cpu_begin = time.process_time()

    def _enter_window(self) -> None:
        self._read_begin()
        self._open_window()

    def _leave_window(self) -> None:
        self._cpu_end = time.process_time()

    def record(self, sent: float, answered: float, events: int) -> None:
        """Record a request of a closed loop, by the `perf_counter` times of its submission and its answer."""
        self._pending.append((sent, answered, events))
        if len(self._pending) >= _AT_ONCE:
            self.settle()

    @property
    def events(self) -> int:
        """Events acknowledged so far. May be called in another thread; the number may then be slightly too
        high."""
        return self._events + sum(events for _, _, events in list(self._pending))

    def settle(self) -> None:
        """Count what `record` has stored."""
        import numpy as np

        if not self._pending:
            return
        sent, answered, events = map(np.array, zip(*self._pending, strict=True))
        in_window = sent >= self._from
        latencies = (answered - sent)[in_window]
        self._latency.record_many(latencies)
        if self._by_second is not None:
            for at, latency in zip(sent[in_window] - self._origin, latencies, strict=True):
                self._by_second.record(float(at), float(latency))
        seconds = (answered - self._origin).astype(int)
        for second in np.unique(seconds).tolist():
            self._seconds[second] += int(events[seconds == second].sum())
        self.measured += int(events[(self._from <= answered) & (answered <= self._to)].sum())
        before = np.maximum.accumulate(np.append(self._last, answered))
        for at in np.flatnonzero(answered - before[:-1] >= GAP_S).tolist():
            gap = before[at] - self._origin, answered[at] - self._origin
            self._gaps.append((float(gap[0]), float(gap[1])))
        self._last = float(before[-1])
        self._events += int(events.sum())
        self._pending = []

    def record_due(
        self, due: float, free: float, sent: float, answered: float, events: int
    ) -> None:
        """Record a request of an open loop, by when it was due and when it had a `free` place in flight. If
        it was held back because the fleet was cut off, it counts as having arrived that much later."""
        self._due_seconds[int(due - self._origin)] += events
        pauses = self._schedule.pauses
        arrived = due if pauses is None else due + pauses.measure_held_s(due, sent)
        response_s = answered - arrived
        if due >= self._from:
            self._due += events
            self._latency.record(response_s)
            self._service.record(answered - sent)
            self._own_delay.record(sent - max(arrived, free))
            if self._by_second is not None:
                self._by_second.record(due - self._origin, response_s)
        if pauses is not None:
            pauses.record(due, sent, answered, response_s, events)
        if self._stages is not None:
            since_s = answered - self._origin
            counted_s = response_s if due >= self._from else None
            self._stages.record(due - self._origin, since_s, events, counted_s)
            if self._from <= answered <= self._to:
                self._stages.achieve(since_s, events)
        self._count(answered, events)

    def record_failed(self, due: float, ended: float) -> None:
        """Record a query that was due at `due` and failed. The timeline of due requests leaves it out, since
        nothing waits for it any longer."""
        self._last = max(self._last, ended)
        if due >= self._from:
            self._due += 1
            self._failed += 1

    def _count(self, answered: float, events: int) -> None:
        self._seconds[int(answered - self._origin)] += events
        self._events += events
        if self._from <= answered <= self._to:
            self.measured += events
        if answered - self._last >= GAP_S:
            self._gaps.append((self._last - self._origin, answered - self._origin))
        # Answers may not be recorded in the order of their arrival.
        self._last = max(self._last, answered)

    def leave_unsent(self, due: float, events: int) -> None:
        """Record that the schedule is over: the request due at `due` and all later ones were never sent. They
        have waited until now, so they count with the shortest time they can have taken."""
        import numpy as np

        for times in (np.array([due]), *self._schedule.remaining()):
            seconds, counts = np.unique((times - self._origin).astype(int), return_counts=True)
            for second, count in zip(seconds.tolist(), counts.tolist(), strict=True):
                self._due_seconds[second] += count * events
            if self._stages is not None:
                sizes = np.full(len(times), events)
                self._stages.add_due(times - self._origin, sizes, times >= self._from)
            waiting = times[times >= self._from]
            self._due += len(waiting) * events
            self._unsent += len(waiting) * events
            self._record_waiting(waiting)

    def _record_waiting(self, times: FloatArray) -> None:
        """Record that requests due at these times waited until the window's end."""
        pauses = self._schedule.pauses
        waited_s = self._to - times if pauses is None else pauses.measure_waiting_s(times, self._to)
        self._latency.record_many(waited_s)
        if self._stages is not None:
            self._stages.add_waiting(times - self._origin, waited_s)

    def give_up(self, events_per_request: int, most: int | None = None) -> None:
        """Close the window now, before the schedule is over. In an open loop everything due by then counts,
        `most` events at most: what was acknowledged had been due, but says nothing about the rest."""
        self._to = min(self._to, time.perf_counter())
        self.end()
        if self._schedule.is_open:
            self._count_due(events_per_request, most)

    def _count_due(self, events_per_request: int, most: int | None) -> None:
        import numpy as np

        were_left, reported = self._unsent > 0, self._schedule.count_reported()
        self._due_seconds.clear()
        self._due = number = 0
        if self._stages is not None:
            self._stages.forget_due()
        for times in self._schedule.list_due(self._to):
            numbers = np.arange(number, number + len(times))
            number += len(times)
            events = np.full(len(times), events_per_request)
            if most is not None:
                events = np.clip(most - numbers * events_per_request, 0, events_per_request)
            in_second = np.bincount((times - self._origin).astype(int), events)
            for second in np.flatnonzero(in_second).tolist():
                self._due_seconds[second] += int(in_second[second])
            in_window = times >= self._from
            if self._stages is not None:
                self._stages.add_due(times - self._origin, events, in_window)
            self._due += int(events[in_window].sum())
            if not were_left:
                unsent = in_window & (numbers >= reported) & (events > 0)
                self._unsent += int(events[unsent].sum())
                self._record_waiting(times[unsent])

    def end(self) -> None:
        """Close the window."""
        self.settle()
        for timer in self._timers:
            timer.cancel()
            timer.join()
        if self._cpu_end is None:
            self._cpu_end = time.process_time()

    def elapsed_s(self) -> float:
        """Seconds since the common start."""
        return time.perf_counter() - self._origin

    def latency_so_far(self) -> Histogram:
        """Latencies of the window's requests answered so far. May be called in another thread."""
        coarse = self._latency.coarsen()
        waiting = [answered - sent for sent, answered, _ in self._pending if sent >= self._from]
        if waiting:
            coarse.add(waiting)
        return coarse

    def backlog(self, events_per_request: int, most: int | None = None) -> int | None:
        """Events of an open loop, `most` in all, that are due and not acknowledged; None for a closed loop.
        May be called in another thread."""
        due = self._schedule.count_due(time.perf_counter())
        if due is None:
            return None
        events = due * events_per_request
        return max(0, (events if most is None else min(events, most)) - self.events)

    def result(self, **more: Any) -> WorkerFigures:
        """What was measured, for the collector. `more`: fields that only writers or only readers have."""
        assert self._cpu_end is not None
        schedule, pauses, gaps = self._schedule, self._schedule.pauses, self._gaps
        start = max(self._begin, self._from)
        end = max(start, self._last if self._to == inf else self._to)
        if self._to < inf and self._to - self._last >= GAP_S:
            # The gap that the end of the run cut off.
            gaps = [*gaps, (self._last - self._origin, self._to - self._origin)]
        offered = None
        if schedule.is_open:
            offered = Offered(
                due=self._due,
                unsent=self._unsent,
                failed=self._failed,
                due_timeline=sorted(self._due_seconds.items()),
                own_delay=self._own_delay.finish(),
            )
        return WorkerFigures(
            start_s=start - self._origin,
            end_s=end - self._origin,
            count=self.events,
            measured=self.measured,
            cpu_s=max(0.0, self._cpu_end - self._cpu_begin),
            histogram=self._latency.finish(),
            service_histogram=self._service.finish() if schedule.is_open else None,
            offered=offered,
            stages=self._stages.result() if self._stages is not None else [],
            catch_ups=pauses.result(not self._unsent) if pauses is not None else [],
            timeline=sorted(self._seconds.items()),
            seconds=self._by_second.result() if self._by_second is not None else [],
            gaps=gaps,
            retries=self.retries,
            errors=dict(self.errors),
            throttled_share=throttled_share(self._throttling_begin, throttled_periods()),
            **more,
        )


class SecondRecorder:
    """The latencies of the requests of each second since the common start. For runs in which something
    happens to the database now and then: percentiles of the whole run would hide it. One thread records.

    Seconds that are over are packed into some hundred bytes each, so a day's run fits in memory.
    """

    def __init__(self) -> None:
        self._pending: dict[int, list[float]] = {}
        self._newest = -1
        self._seconds: list[tuple[int, Histogram]] = []

    def record(self, at_s: float, latency_s: float) -> None:
        """Record a request that was sent (open loop: due) at `at_s`. In the hot path."""
        second = max(0, int(at_s))
        if second > self._newest:
            # Some 0.1 ms, once a second.
            self._newest = second
            self._keep()
        self._pending.setdefault(second, []).append(latency_s)

    def _keep(self) -> None:
        self._seconds += [
            (second, Histogram.of(own, COARSE).packed()) for second, own in self._pending.items()
        ]
        self._pending.clear()

    def result(self) -> list[tuple[int, Histogram]]:
        """Seconds with their latencies. A second may appear several times if some of its answers were
        late."""
        self._keep()
        return self._seconds


class StageRecorder:
    """What happened to the requests that were due in each stage. Times count from the common start."""

    def __init__(self, ends_s: Sequence[float]) -> None:
        """`ends_s`: the end of each stage."""
        self._ends_s = list(ends_s)
        # One more, for what comes after the last stage.
        self._due, self._achieved, self._all_due, self._all_done = (
            [0] * (len(self._ends_s) + 1) for _ in range(4)
        )
        self._latency = [LatencyRecorder() for _ in self._all_due]

    def record(
        self, due_s: float, answered_s: float, events: int, response_s: float | None
    ) -> None:
        """Count an answered request. `response_s`: None if it was due before the window."""
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
        """Add requests that were due at these times, with these numbers of events, and weren't answered.
        `counts`: whether each was due in the window."""
        import numpy as np

        places = np.searchsorted(self._ends_s, due_s, side="right")
        for place in np.unique(places).tolist():
            own = places == place
            self._all_due[place] += int(events[own].sum())
            self._due[place] += int(events[own & counts].sum())

    def add_waiting(self, due_s: FloatArray, waited_s: FloatArray) -> None:
        """Add requests of the window that were due at these times, and how long each has waited so far."""
        import numpy as np

        places = np.searchsorted(self._ends_s, due_s, side="right")
        for place in np.unique(places).tolist():
            self._latency[place].record_many(waited_s[places == place])

    def forget_due(self) -> None:
        """Forget what was due; it is about to be added again."""
        self._all_due, self._due = ([0] * len(self._all_due) for _ in range(2))

    def result(self) -> list[StageResult]:
        """The figures of each stage, for the collector."""
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


# cgroup v2, then v1 as a container sees it.
_CPU_STAT_FILES = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


def throttled_periods(files: Iterable[Path] = _CPU_STAT_FILES) -> tuple[int, int] | None:
    """(periods, throttled periods) of this container's CPU limit; None without a limit.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    for path in files:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        values = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
        if "nr_periods" in values and "nr_throttled" in values:
            return values["nr_periods"], values["nr_throttled"]
    return None


def throttled_share(begin: tuple[int, int] | None, end: tuple[int, int] | None) -> float | None:
    """Share of the periods between two readings that were throttled; None if not known."""
    if begin is None or end is None:
        return None
    periods = end[0] - begin[0]
    return (end[1] - begin[1]) / periods if periods > 0 else None
