"""A run's status in words."""

from __future__ import annotations

from datetime import datetime, timedelta

from simulator.contract import QUIET_S, GroupStatus, Phase, Role, Status
from simulator.units import format_count, format_span

from .forecast import seconds_left

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
    """Whether the run goes on, but what it does is not measured yet."""
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
    """How much of the phase is over, by the clock or by the group that is behind; None while unknown."""
    if status.elapsed_s is not None and status.duration_s is not None:
        return min(1.0, status.elapsed_s / status.duration_s)
    return min((min(1.0, g.done / g.total) for g in status.groups if g.total), default=None)


def describe_extent(status: Status) -> list[str]:
    """How much of its time is over, of a run that the clock ends: `12 of 60 s`."""
    if status.elapsed_s is None or status.duration_s is None:
        return []
    over_s = min(status.elapsed_s, status.duration_s)
    if status.duration_s < 600:
        return [f"{over_s:.0f} of {status.duration_s:g} s"]
    over, all_of_it = (f"{s // 60:.0f}:{s % 60:02.0f}" for s in (int(over_s), status.duration_s))
    return [f"{over} of {all_of_it} min"]


def describe_groups(status: Status) -> list[list[str]]:
    """Of each group that is at work, what it has done."""
    checking = status.phase is Phase.CHECK
    groups = [
        _describe_group(group, "events generated" if checking else _UNITS[group.role])
        for group in status.groups
    ]
    if len(groups) > 1:
        for group, said in zip(status.groups, groups, strict=True):
            said[:1] = [f"{_NAMES[group.role]}: {said[0] if said else 'nothing yet'}"]
    return groups


def _describe_group(group: GroupStatus, unit: str) -> list[str]:
    said = []
    if group.total:
        said.append(f"{group.done:,} of {group.total:,} {unit}")
    if group.rate_per_s is not None:
        said.append(f"{_format_figure(group.rate_per_s)} {unit}/s")
    if group.p99_ms is not None:
        said.append(f"p99 so far {_format_figure(group.p99_ms)} ms")
    if group.backlog is not None:
        said.append(f"backlog {group.backlog:,}")
    if group.retries:
        said.append(format_count(group.retries, "retry", "retries"))
    return said


def describe_left(
    status: Status, runs: int, all_left_s: float | None, at_most: bool = False
) -> list[str]:
    """How long the phase still takes, and all `runs` of the command. `at_most`: it may need fewer."""
    left_s = seconds_left(status)
    said = [] if left_s is None else [f"{format_span(left_s)} left"]
    if all_left_s is not None and at_most:
        said.append(f"all: {format_span(all_left_s)} left at most")
    elif all_left_s is not None:
        said.append(f"all {runs} runs: {format_span(all_left_s)} left")
    return said


def describe_quiet(status: Status) -> list[str]:
    """Since when nothing has come back from the database, if that is long."""
    if status.quiet_s < QUIET_S:
        return []
    since = datetime.now().astimezone() - timedelta(seconds=status.quiet_s)
    return [f"nothing has come back for {status.quiet_s:.0f} s, since {since:%H:%M:%S}"]


def _format_figure(value: float) -> str:
    """Two digits at least."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
