"""A run's status in words, and the time left for the command's runs. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from simulator.contract import QUIET_S, GroupStatus, Load, Phase, Role, Status
from simulator.units import format_count, format_span


def seconds_left(status: Status) -> float | None:
    """The time left in the phase: to the end of the duration, or at the rate of the last seconds; None while
    unknown."""
    if status.elapsed_s is not None and status.duration_s is not None:
        return max(0.0, status.duration_s - status.elapsed_s)
    spans_s = []
    for group in status.groups:
        if not group.rate_per_s or not group.total:
            return None
        spans_s.append(max(0.0, (group.total - group.done) / group.rate_per_s))
    return max(spans_s, default=None)


class Forecast:
    """Follows the runs of a plan, and estimates the time left. A run lasts as long as its duration, or as its
    events take at the pace of the previous run; what comes before (tables, prefill, starting workers) and
    after (counting) takes as long as in the runs so far.
    """

    def __init__(self, plan: Sequence[Load], fills_once: bool = False) -> None:
        """`plan`: the load of each run, which says how long it lasts; `fills_once`: the first run's prefill
        is kept for the others."""
        self._plan = plan
        self._fills_once = fills_once
        self._ended = 0
        self._began: float | None = None
        """When the current run began, when its measured part began, and when that ended."""
        self._started: float | None = None
        self._stopped: float | None = None
        self._before_s: list[float] = []
        """For each run that ended, the time before its measured part and the time after it."""
        self._after_s: list[float] = []
        self._unit_s: float | None = None
        """How long an event, or an execution of each query, took, over all workers."""

    @property
    def runs(self) -> int:
        """The number of runs in the plan."""
        return len(self._plan)

    def expect(self, loads: Sequence[Load]) -> None:
        """Replace the remaining runs of the plan."""
        self._plan = [*self._plan[: self._ended], *loads]

    def begin(self, now: float) -> None:
        """The next run begins, unless it has already."""
        if self._began is None:
            self._began = now

    def follow(self, status: Status, now: float) -> None:
        """Take note of where the run is."""
        if status.phase is Phase.PREFILL and self._fills_once and self._began is not None:
            self._began = now  # what precedes the other runs begins after it
        if status.phase is Phase.RUN and self._started is None:
            self._started = now
        elif status.phase is not Phase.RUN and self._started is not None and self._stopped is None:
            self._stopped = now

    def end(self, now: float) -> None:
        """The current run has ended."""
        if self._began is None:
            return
        stopped = now if self._stopped is None else self._stopped
        # The run may have been too short to be observed.
        started = stopped if self._started is None else self._started
        self._before_s.append(started - self._began)
        self._after_s.append(now - stopped)
        load = self._plan[self._ended]
        if load.duration_s is None:
            self._unit_s = (stopped - started) / _count_units(load)
        self._ended += 1
        self._began = self._started = self._stopped = None

    def seconds_left(self, status: Status, now: float) -> float | None:
        """The time left for the current run and those after it; None while unknown, and for the last run, for
        which `seconds_left` is enough."""
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
        lengths_s = [length_s for length_s in coming if length_s is not None]
        if current_s is None or len(lengths_s) < len(coming):
            return None
        return current_s + sum(lengths_s) + len(lengths_s) * (before_s + after_s)


def _find_length(load: Load, unit_s: float | None) -> float | None:
    """The length of a run's measured part, as far as known."""
    if load.duration_s is not None:
        return load.duration_s
    return None if unit_s is None else unit_s * _count_units(load)


def _count_units(load: Load) -> int:
    return load.total_events if load.role is Role.WRITE else load.workers * load.runs


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


_WORDS = {
    Phase.START: "starting",
    Phase.PREPARE: "preparing the database",
    Phase.PREFILL: "prefilling",
    Phase.BARRIER: "waiting for workers",
    Phase.INDEX: "building the indexes",
    Phase.RUN: "running",
    Phase.VERIFY: "counting",
    Phase.CHECK: "checking answers",
    Phase.CLEAN_UP: "cleaning up",
    Phase.DONE: "done",
    Phase.FAILED: "failed",
}

_UNITS = {Role.WRITE: "events", Role.FILL: "events", Role.READ: "queries"}
_NAMES = {Role.WRITE: "writers", Role.FILL: "prefill", Role.READ: "readers"}


def is_warming_up(status: Status) -> bool:
    """Whether the run has started but is not measured yet."""
    return status.elapsed_s is not None and status.elapsed_s < status.warm_up_s


def describe_phase(status: Status) -> str:
    """The phase, with what it waits for."""
    if is_warming_up(status):
        return "warming up"
    text = _WORDS[status.phase]
    if status.phase is Phase.BARRIER and status.waiting_for:
        numbers = ", ".join(map(str, status.waiting_for))
        text = f"waiting for worker{'s' if len(status.waiting_for) > 1 else ''} {numbers}"
    return text


def find_share(status: Status) -> float | None:
    """The share of the phase that is over, by the clock or by the slowest group; None while unknown."""
    if status.elapsed_s is not None and status.duration_s is not None:
        return min(1.0, status.elapsed_s / status.duration_s)
    return min((min(1.0, g.done / g.total) for g in status.groups if g.total), default=None)


def describe_extent(status: Status) -> list[str]:
    """The time that has passed, for a run with a duration: `12 of 60 s`."""
    if status.elapsed_s is None or status.duration_s is None:
        return []
    over_s = min(status.elapsed_s, status.duration_s)
    if status.duration_s < 600:
        return [f"{over_s:.0f} of {status.duration_s:g} s"]
    over, all_of_it = (f"{s // 60:.0f}:{s % 60:02.0f}" for s in (int(over_s), status.duration_s))
    return [f"{over} of {all_of_it} min"]


def describe_groups(status: Status) -> list[list[str]]:
    """What each active group has done."""
    checking = status.phase is Phase.CHECK
    groups = [
        _describe_group(group, "events generated" if checking else _UNITS[group.role])
        for group in status.groups
    ]
    if len(groups) > 1:
        for group, parts in zip(status.groups, groups, strict=True):
            parts[:1] = [f"{_NAMES[group.role]}: {parts[0] if parts else 'nothing yet'}"]
    return groups


def _describe_group(group: GroupStatus, unit: str) -> list[str]:
    parts = []
    if group.total:
        parts.append(f"{group.done:,} of {group.total:,} {unit}")
    if group.rate_per_s is not None:
        parts.append(f"{_format_figure(group.rate_per_s)} {unit}/s")
    if group.p99_ms is not None:
        parts.append(f"p99 so far {_format_figure(group.p99_ms)} ms")
    if group.backlog is not None:
        parts.append(f"backlog {group.backlog:,}")
    if group.retries:
        parts.append(format_count(group.retries, "retry", "retries"))
    return parts


def describe_left(
    status: Status, runs: int, all_left_s: float | None, at_most: bool = False
) -> list[str]:
    """The time left in the phase, and for all `runs` of the command. `at_most`: it may need fewer."""
    left_s = seconds_left(status)
    parts = [] if left_s is None else [f"{format_span(left_s)} left"]
    if all_left_s is not None and at_most:
        parts.append(f"all: {format_span(all_left_s)} left at most")
    elif all_left_s is not None:
        parts.append(f"all {runs} runs: {format_span(all_left_s)} left")
    return parts


def describe_quiet(status: Status) -> list[str]:
    """How long nothing has come back from the database, if that is long."""
    if status.quiet_s < QUIET_S:
        return []
    since = datetime.now().astimezone() - timedelta(seconds=status.quiet_s)
    return [f"no answer for {status.quiet_s:.0f} s, since {since:%H:%M:%S}"]


def _format_figure(value: float) -> str:
    """At least two digits."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
