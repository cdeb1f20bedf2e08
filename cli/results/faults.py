"""What faults did to a run: how long nothing was acknowledged, and when the rate was back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from statistics import median

from simulator.contract import GAP_S, CatchUp, GroupResult, Mark, Outage, RunResult
from simulator.errors import one_line
from simulator.units import format_count, format_digits

from .model import GroupRun

BEFORE_S = 10
"""Seconds before a mark whose median rate is the one to be reached again."""
BACK = 0.9
"""The share of it that counts as back."""
_STEADY_S = 3
"""Seconds whose median must be."""
LATEST_S = 60.0
"""Seconds after a mark until which an outage that begins is put down to it: failure detectors and leases of
databases take up to half a minute."""

_LONGEST_NAME = 60
"""Characters of a command in a sentence; all of it stands in the result."""


def find_outages(run: RunResult) -> list[Outage]:
    """One for each mark of the run, in their order; none without writers."""
    writers = run.writers
    if writers is None:
        return []
    return [_find_outage(place, GroupRun(run, writers)) for place in range(len(run.marks))]


def _find_outage(place: int, one: GroupRun) -> Outage:
    """What happened from a mark to the next, and what later is put down to it."""
    mark = one.run.marks[place]
    gaps = [gap for gap in _list_gaps_after(place, one) if gap[0] <= mark.at_s + LATEST_S]
    longest = max(gaps, key=lambda gap: gap[1] - max(gap[0], mark.at_s), default=None)
    if longest is None:
        recovery_s = _find_recovery(mark, mark, None, one)
        return Outage(gap_s=0.0, gap_began_s=mark.at_s, recovered_after_s=recovery_s)
    began, ended = max(longest[0], mark.at_s), longest[1]
    cause = _find_cause(longest, one)
    first = min(mark, one.run.marks[cause], key=_when)
    return Outage(
        gap_s=ended - began,
        gap_began_s=began,
        recovered_after_s=_find_recovery(mark, first, ended, one),
        shared_with=None if cause == place else cause,
    )


def _list_gaps_after(place: int, one: GroupRun) -> list[tuple[float, float]]:
    """Those before the next mark, and later ones of which this mark is the last before them."""
    at_s = one.run.marks[place].at_s
    until_s = _find_next_mark(one, at_s)
    return [
        gap
        for gap in one.group.gaps
        if gap[1] > at_s and (gap[0] < until_s or _find_cause(gap, one) == place)
    ]


def _find_next_mark(one: GroupRun, after_s: float) -> float:
    return min((mark.at_s for mark in one.run.marks if mark.at_s > after_s), default=inf)


def _find_cause(gap: tuple[float, float], one: GroupRun) -> int:
    """The place of the mark to which a gap is put down, of those before its end.

    It is the last before the gap began. A gap begins with the last acknowledgement, and what comes less
    than `GAP_S` after that may still be why no other followed. What failed is the cause only if nothing
    else is.
    """
    began, ended = gap
    before = [place for place, mark in enumerate(one.run.marks) if mark.at_s < ended]
    places = [place for place in before if one.run.marks[place].ok] or before

    def rank(place: int) -> tuple[bool, bool, float]:
        passed_s = began - one.run.marks[place].at_s
        return abs(passed_s) > GAP_S, passed_s < 0, abs(passed_s)

    return min(places, key=rank)


def _find_recovery(
    mark: Mark, first_mark: Mark, gap_ended_s: float | None, one: GroupRun
) -> float | None:
    """Seconds from the mark until the rate was back to what it was before the first of those that share a
    gap; 0 if it was never away.

    It was away if nothing was acknowledged for a while, or if the median of the seconds after the mark is
    too low: a single second that is says nothing where requests arrive by chance.
    """
    seconds = dict(one.group.timeline)
    first = int(mark.at_s)
    begin, last = _find_course(mark, gap_ended_s, one)
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


def _find_course(mark: Mark, gap_ended_s: float | None, one: GroupRun) -> tuple[int, int]:
    """The seconds in which the rate could come back: the first, and the one behind the last."""
    begin = int(mark.at_s) + 1 if gap_ended_s is None else int(gap_ended_s)
    # What comes too soon after it to see anything of the rate is no end. The last second isn't a whole one.
    until_s = _find_next_mark(one, begin + _STEADY_S)
    own_s = one.run.step_s
    last = max((second + own_s - 1 for second, _ in one.group.timeline), default=0)
    return begin, int(min(last, until_s))


def _list_rates(seconds: Mapping[int, int], begin: int, end: int) -> list[int]:
    return [seconds.get(second, 0) for second in range(begin, end)]


def describe_outages(one: GroupRun) -> list[str]:
    """A sentence for each mark of a run of writers."""
    return [_describe(place, outage, one) for place, outage in enumerate(one.group.outages)]


def find_catch_up(mark: Mark, writers: GroupResult) -> CatchUp | None:
    """How it was made up for that the fleet was cut off, if that is what was done."""
    return next((one for one in writers.catch_ups if one.begins_s == mark.at_s), None)


def _describe_catch_up(mark: Mark, found: CatchUp, group: GroupResult) -> str:
    held = format_count(found.held, "event")
    text = f"After {name_mark(mark)} at {mark.at_s:.1f} s {held} that had been held back came at once; "
    if found.after_s is None:
        text += "they were not worked off before the run was over, or the fleet cut off again"
    else:
        text += f"after {format_digits(found.after_s)} s they were worked off"
    for latency, when in ((found.burst_ms, "meanwhile"), (found.later_ms, "afterwards")):
        if latency is not None and latency.p99 is not None:
            text += f", {when} p99 was {format_digits(latency.p99)} ms"
    if found.held:
        text += f"; the latest was stored {found.lateness_s:.1f} s after it was due"
    return f"{text}; {_describe_loss(group)}."


def _describe(place: int, outage: Outage, one: GroupRun) -> str:
    mark = one.run.marks[place]
    if (catch_up := find_catch_up(mark, one.group)) is not None:
        return _describe_catch_up(mark, catch_up, one.group)
    what = name_mark(mark)
    text = f"After {what} at {mark.at_s:.1f} s "
    if not mark.ok:
        text = f"After {what} at {mark.at_s:.1f} s, which failed, "
    if outage.gap_s:
        text += f"nothing was acknowledged for {outage.gap_s:.1f} s"
        delay_s = outage.gap_began_s - mark.at_s
        if delay_s > GAP_S:
            text += f", from {delay_s:.1f} s after it on"
        if outage.shared_with is not None:
            other = one.run.marks[outage.shared_with]
            text += f" (shared with {name_mark(other)} at {other.at_s:.1f} s)"
    else:
        text += "events went on being acknowledged"
    if outage.recovered_after_s is None:
        text += _explain_no_recovery(mark, outage, one)
    elif outage.recovered_after_s:
        text += f"; after {outage.recovered_after_s:.1f} s the rate was back"
    late = [gap for gap in _list_gaps_after(place, one) if gap[0] > mark.at_s + LATEST_S]
    if late:
        began, ended = max(late, key=lambda gap: gap[1] - gap[0])
        text += (
            f"; an outage of {ended - began:.1f} s that began {began - mark.at_s:.1f} s after it is not put"
            " down to it"
        )
    return f"{text}; {_describe_loss(one.group)}."


def _explain_no_recovery(mark: Mark, outage: Outage, one: GroupRun) -> str:
    first = (
        mark
        if outage.shared_with is None
        else min(mark, one.run.marks[outage.shared_with], key=_when)
    )
    if int(first.at_s) == 0:
        return "; what the rate was before is not known, so early in the run"
    over_s = one.group.warm_up_s + (one.group.window_s or inf)
    gap_ended_s = outage.gap_began_s + outage.gap_s if outage.gap_s else None
    if gap_ended_s is not None and gap_ended_s > over_s + GAP_S:
        return "; the run was over before the rate was back"
    begin, last = _find_course(mark, gap_ended_s, one)
    # Without an acknowledgement after the gap there is no doubt.
    came_back = gap_ended_s is None or any(
        second + one.run.step_s > begin for second, _ in one.group.timeline
    )
    if last - begin < _STEADY_S and came_back:
        return "; too little of the run was left to see whether the rate came back"
    return "; the rate did not come back to 90 % of what it was before"


def _when(mark: Mark) -> float:
    return mark.at_s


def name_mark(mark: Mark) -> str:
    """What was done, without when it was to be; of a long command its beginning."""
    name = one_line(mark.action.partition(" ")[2])
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"


def _describe_loss(group: GroupResult) -> str:
    found, looked_up = group.verification, group.lookup
    if looked_up is not None and (looked_up.missing or looked_up.doubled):
        counts = ((looked_up.missing, "missing"), (looked_up.doubled, "stored twice"))
        return " and ".join(_count_events(count, what) for count, what in counts if count)
    if found is None or found.stored is None:
        return "what was lost is not known"
    if found.stored < found.expected:
        return _count_events(found.expected - found.stored, "missing")
    if found.stored > found.expected:
        return _count_events(found.stored - found.expected, "stored twice")
    if looked_up is None or looked_up.events is None:
        why = f" ({looked_up.reason})" if looked_up and looked_up.reason else ""
        return (
            f"as many events are stored as were acknowledged, but they were not looked up one by one{why}, so"
            " one lost and another stored twice would not show"
        )
    if (looked_up.per_group or 1) > 1:
        return f"nothing was lost or stored twice, as counted by {looked_up.per_group:,} events of a device"
    return "nothing was lost or stored twice"


def _count_events(count: int, what: str) -> str:
    return f"{format_count(count, 'event is', 'events are')} {what}"
