"""How long a command's runs still take. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import Load, Phase, Role, Status


def seconds_left(status: Status) -> float | None:
    """How long the phase still takes: to the end of the duration, or at the rate of the last seconds; None
    while that is unknown."""
    if status.elapsed_s is not None and status.duration_s is not None:
        return max(0.0, status.duration_s - status.elapsed_s)
    left = []
    for group in status.groups:
        if not group.rate_per_s or not group.total:
            return None
        left.append(max(0.0, (group.total - group.done) / group.rate_per_s))
    return max(left, default=None)


class Forecast:
    """Follows the runs of a plan, and says how long all that are left take.

    A run lasts as long as its duration says or its events take, at the pace of the run before; what is
    before (tables, prefill, the start of workers) and after it (counting) as long as in the runs so far.
    """

    def __init__(self, plan: Sequence[Load]) -> None:
        """`plan`: for each run, the load that says how long it goes on."""
        self._plan = plan
        self._ended = 0
        self._began: float | None = None
        """The run under way, then its measured part, then that part's end."""
        self._started: float | None = None
        self._stopped: float | None = None
        self._before_s: list[float] = []
        """Of each run that ended, the time before its measured part, and that after it."""
        self._after_s: list[float] = []
        self._unit_s: float | None = None
        """How long an event, or an execution of each query, took: of all workers together."""

    @property
    def runs(self) -> int:
        """All of the plan."""
        return len(self._plan)

    def expect(self, loads: Sequence[Load]) -> None:
        """The runs that are still to come are these, whatever the plan said."""
        self._plan = [*self._plan[: self._ended], *loads]

    def begin(self, now: float) -> None:
        """The next run begins, unless it has already."""
        if self._began is None:
            self._began = now

    def follow(self, status: Status, now: float) -> None:
        """Take note of where the run is."""
        if status.phase is Phase.RUN and self._started is None:
            self._started = now
        elif status.phase is not Phase.RUN and self._started is not None and self._stopped is None:
            self._stopped = now

    def end(self, now: float) -> None:
        """The run under way has ended."""
        if self._began is None:
            return
        stopped = now if self._stopped is None else self._stopped
        # A run that was too short to be seen at work.
        started = stopped if self._started is None else self._started
        self._before_s.append(started - self._began)
        self._after_s.append(now - stopped)
        load = self._plan[self._ended]
        if load.duration_s is None:
            self._unit_s = (stopped - started) / _count_units(load)
        self._ended += 1
        self._began = self._started = self._stopped = None

    def seconds_left(self, status: Status, now: float) -> float | None:
        """How long the run under way and those after it take; None while that is unknown, and of the
        last one, of which `seconds_left` says it."""
        if self._began is None or self._ended + 1 >= len(self._plan):
            return None
        before_s = _mean(self._before_s, (self._started or now) - self._began)
        after_s = _mean(self._after_s, 0.0)
        left_s = seconds_left(status)
        unit_s = self._unit_s
        load = self._plan[self._ended]
        if self._stopped is not None:
            current_s: float | None = max(0.0, after_s - (now - self._stopped))
        elif self._started is not None:
            current_s = None if left_s is None else left_s + after_s
            if load.duration_s is None and left_s is not None:
                unit_s = (now - self._started + left_s) / _count_units(load)
        else:
            to_come_s = max(0.0, before_s - (now - self._began))
            if status.phase is Phase.PREFILL and left_s is not None:
                to_come_s = left_s
            own_s = _find_length(load, unit_s)
            current_s = None if own_s is None else to_come_s + own_s + after_s
        coming = [_find_length(load, unit_s) for load in self._plan[self._ended + 1 :]]
        known = [one for one in coming if one is not None]
        if current_s is None or len(known) < len(coming):
            return None
        return current_s + sum(known) + len(known) * (before_s + after_s)


def _find_length(load: Load, unit_s: float | None) -> float | None:
    """How long the measured part of a run lasts, as far as it is known."""
    if load.duration_s is not None:
        return load.duration_s
    return None if unit_s is None else unit_s * _count_units(load)


def _count_units(load: Load) -> int:
    return load.workers * (load.events if load.role is Role.WRITE else load.runs)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
