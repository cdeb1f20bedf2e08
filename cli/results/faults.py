"""The effect of faults on a run: how long nothing was acknowledged, and when the rate recovered. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from statistics import median

from simulator.contract import GAP_S, CatchUp, GroupResult, Mark, Outage, RunResult
from simulator.errors import one_line
from simulator.units import format_count, format_digits

from .model import GroupRun

BEFORE_S = 10
"""Seconds before a mark; their median is the rate to return to."""
BACK = 0.9
"""The share of that rate that counts as recovered."""
_STEADY_S = 3
"""Seconds whose median rate must have recovered."""
LATEST_S = 60.0
"""An outage that begins within this many seconds after a mark is attributed to it: failure detectors and
leases of databases take up to half a minute."""

_LONGEST_NAME = 60
"""Characters of a command in a sentence; the result has all of it."""


def find_outages(run: RunResult) -> list[Outage]:
    """An outage for each mark of the run, in order; none without writers."""
    writers = run.writers
    if writers is None:
        return []
    group_run = GroupRun(run, writers)
    return [_find_outage(place, mark, group_run) for place, mark in enumerate(run.marks)]


def _find_outage(place: int, mark: Mark, group_run: GroupRun) -> Outage:
    """What happened from a mark to the next, and later gaps attributed to it."""
    gaps = [gap for gap in _list_gaps_after(place, group_run) if gap[0] <= mark.at_s + LATEST_S]
    longest = max(gaps, key=lambda gap: gap[1] - max(gap[0], mark.at_s), default=None)
    if longest is None:
        recovery_s = _find_recovery(mark, mark, None, group_run)
        return Outage(gap_s=0.0, gap_began_s=mark.at_s, recovered_after_s=recovery_s)
    began, ended = max(longest[0], mark.at_s), longest[1]
    cause = _find_cause(longest, group_run)
    first = min(mark, group_run.run.marks[cause], key=_when)
    return Outage(
        gap_s=ended - began,
        gap_began_s=began,
        recovered_after_s=_find_recovery(mark, first, ended, group_run),
        shared_with=None if cause == place else cause,
    )


def _list_gaps_after(place: int, group_run: GroupRun) -> list[tuple[float, float]]:
    """The gaps before the next mark, and later ones attributed to this mark."""
    at_s = group_run.run.marks[place].at_s
    until_s = _find_next_mark(group_run, at_s)
    return [
        gap
        for gap in group_run.group.gaps
        if gap[1] > at_s and (gap[0] < until_s or _find_cause(gap, group_run) == place)
    ]


def _find_next_mark(group_run: GroupRun, after_s: float) -> float:
    return min((mark.at_s for mark in group_run.run.marks if mark.at_s > after_s), default=inf)


def _find_cause(gap: tuple[float, float], group_run: GroupRun) -> int:
    """Index of the mark that a gap is attributed to, among those before its end: the last mark before the gap
    began. A gap begins with the last acknowledgement, and a mark less than `GAP_S` later may still be its
    cause. A failed mark is the cause only if no other can be.
    """
    began, ended = gap
    before = [place for place, mark in enumerate(group_run.run.marks) if mark.at_s < ended]
    places = [place for place in before if group_run.run.marks[place].ok] or before

    def rank(place: int) -> tuple[bool, bool, float]:
        passed_s = began - group_run.run.marks[place].at_s
        return abs(passed_s) > GAP_S, passed_s < 0, abs(passed_s)

    return min(places, key=rank)


def _find_recovery(
    mark: Mark, first_mark: Mark, gap_ended_s: float | None, group_run: GroupRun
) -> float | None:
    """Seconds from the mark until the rate returned to its level before the first of the marks that share a
    gap; 0 if it never dropped. It dropped if nothing was acknowledged for a while, or if the median of the
    seconds after the mark is too low: with random arrivals, a single slow second means nothing.
    """
    seconds = dict(group_run.group.timeline)
    first = int(mark.at_s)
    begin, last = _find_course(mark, gap_ended_s, group_run)
    earlier = int(first_mark.at_s)
    before = _list_rates(seconds, max(0, earlier - BEFORE_S), earlier)
    after = _list_rates(seconds, first + 1, min(first + 1 + BEFORE_S, last))
    if not before or not after:
        return None
    enough = BACK * median(before)
    if gap_ended_s is None and median(after) >= enough:
        return 0.0
    for second in range(begin, last):
        if median(_list_rates(seconds, second, min(second + _STEADY_S, last))) >= enough:
            return max(second, gap_ended_s or 0.0) - mark.at_s
    return None


def _find_course(mark: Mark, gap_ended_s: float | None, group_run: GroupRun) -> tuple[int, int]:
    """The seconds in which the rate could recover: the first, and the one after the last."""
    begin = int(mark.at_s) + 1 if gap_ended_s is None else int(gap_ended_s)
    # A mark too soon to observe the rate before it doesn't count as the end. The last second is incomplete.
    until_s = _find_next_mark(group_run, begin + _STEADY_S)
    own_s = group_run.run.step_s
    last = max((second + own_s - 1 for second, _ in group_run.group.timeline), default=0)
    return begin, int(min(last, until_s))


def _list_rates(seconds: Mapping[int, int], begin: int, end: int) -> list[int]:
    return [seconds.get(second, 0) for second in range(begin, end)]


def describe_outages(group_run: GroupRun) -> list[str]:
    """A sentence for each mark in a run of writers."""
    return [
        _describe(place, outage, group_run) for place, outage in enumerate(group_run.group.outages)
    ]


def find_catch_up(mark: Mark, writers: GroupResult) -> CatchUp | None:
    """How the fleet caught up after it was cut off, if that is what the mark did."""
    return next(
        (catch_up for catch_up in writers.catch_ups if catch_up.begins_s == mark.at_s), None
    )


def _describe_catch_up(mark: Mark, catch_up: CatchUp, group: GroupResult) -> str:
    held = format_count(catch_up.held, "event")
    text = f"After {name_mark(mark)} at {mark.at_s:.1f} s {held} that had been held back arrived at once; "
    if catch_up.after_s is None:
        text += "the backlog was not cleared before the run ended, or the fleet was cut off again"
    else:
        text += f"the backlog was cleared after {format_digits(catch_up.after_s)} s"
    for latency, when in ((catch_up.burst_ms, "meanwhile"), (catch_up.later_ms, "afterwards")):
        if latency is not None and latency.p99 is not None:
            text += f", {when} p99 was {format_digits(latency.p99)} ms"
    if catch_up.held:
        text += f"; the latest was stored {catch_up.lateness_s:.1f} s after it was due"
    return f"{text}; {_describe_loss(group)}."


def _describe(place: int, outage: Outage, group_run: GroupRun) -> str:
    mark = group_run.run.marks[place]
    if (catch_up := find_catch_up(mark, group_run.group)) is not None:
        return _describe_catch_up(mark, catch_up, group_run.group)
    name = name_mark(mark)
    text = f"After {name} at {mark.at_s:.1f} s "
    if not mark.ok:
        text = f"After {name} at {mark.at_s:.1f} s, which failed, "
    if outage.gap_s:
        text += f"nothing was acknowledged for {outage.gap_s:.1f} s"
        delay_s = outage.gap_began_s - mark.at_s
        if delay_s > GAP_S:
            text += f", starting {delay_s:.1f} s after it"
        if outage.shared_with is not None:
            other = group_run.run.marks[outage.shared_with]
            text += f" (shared with {name_mark(other)} at {other.at_s:.1f} s)"
    else:
        text += "events were acknowledged throughout"
    if outage.recovered_after_s is None:
        text += _explain_no_recovery(mark, outage, group_run)
    elif outage.recovered_after_s:
        text += f"; the rate recovered after {outage.recovered_after_s:.1f} s"
    late = [gap for gap in _list_gaps_after(place, group_run) if gap[0] > mark.at_s + LATEST_S]
    if late:
        began, ended = max(late, key=lambda gap: gap[1] - gap[0])
        text += (
            f"; an outage of {ended - began:.1f} s that began {began - mark.at_s:.1f} s after it is not"
            " attributed to it"
        )
    return f"{text}; {_describe_loss(group_run.group)}."


def _explain_no_recovery(mark: Mark, outage: Outage, group_run: GroupRun) -> str:
    first = (
        mark
        if outage.shared_with is None
        else min(mark, group_run.run.marks[outage.shared_with], key=_when)
    )
    if int(first.at_s) == 0:
        return "; too early in the run to know the rate before it"
    over_s = group_run.group.warm_up_s + (group_run.group.window_s or inf)
    gap_ended_s = outage.gap_began_s + outage.gap_s if outage.gap_s else None
    if gap_ended_s is not None and gap_ended_s > over_s + GAP_S:
        return "; the run ended before the rate recovered"
    begin, last = _find_course(mark, gap_ended_s, group_run)
    # Without an acknowledgement after the gap, the answer is certain.
    came_back = gap_ended_s is None or any(
        second + group_run.run.step_s > begin for second, _ in group_run.group.timeline
    )
    if last - begin < _STEADY_S and came_back:
        return "; too little of the run was left to see whether the rate recovered"
    return "; the rate did not return to 90 % of its level before"


def _when(mark: Mark) -> float:
    return mark.at_s


def name_mark(mark: Mark) -> str:
    """What was done, without its scheduled time; only the beginning of a long command."""
    name = one_line(mark.action.partition(" ")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"


def _describe_loss(group: GroupResult) -> str:
    verification, looked_up = group.verification, group.lookup
    if looked_up is not None and (looked_up.missing or looked_up.doubled):
        missing = "missing"
        if looked_up.incomplete:
            missing += f" ({looked_up.incomplete:,} of them in part)"
        counts = ((looked_up.missing, missing), (looked_up.doubled, "stored twice"))
        return " and ".join(_count_events(count, fate) for count, fate in counts if count)
    if verification is None or verification.stored is None:
        return "events lost: unknown"
    if verification.stored < verification.expected:
        return _count_events(verification.expected - verification.stored, "missing")
    if verification.stored > verification.expected:
        return _count_events(verification.stored - verification.expected, "stored twice")
    if looked_up is None or looked_up.events is None:
        why = f" ({looked_up.reason})" if looked_up and looked_up.reason else ""
        return (
            f"the number of stored events is right, but they were not looked up one by one{why}, so a lost"
            " event and a duplicate would cancel out"
        )
    if (looked_up.per_group or 1) > 1:
        return (
            "nothing was lost or stored twice, as counted in groups of"
            f" {looked_up.per_group:,} events of a device"
        )
    return "nothing was lost or stored twice"


def _count_events(count: int, fate: str) -> str:
    return f"{format_count(count, 'event is', 'events are')} {fate}"
