"""What marks did to a run: how long nothing was acknowledged, and when the rate was back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from statistics import median

from simulator.contract import InsertRun, Mark, Outage

BEFORE_S = 10
"""Seconds before a mark whose median rate is the one to be reached again."""
BACK = 0.9
"""The share of it that counts as back."""
_STEADY_S = 3
"""Seconds whose median must be."""


def find_outages(run: InsertRun) -> list[Outage]:
    """One for each mark of the run, in their order."""
    ends = [*(mark.at_s for mark in run.marks[1:]), inf]
    return [_find_outage(mark, end, run) for mark, end in zip(run.marks, ends, strict=False)]


def _find_outage(mark: Mark, until_s: float, run: InsertRun) -> Outage:
    """What happened from a mark to the next."""
    gaps = [
        (max(began, mark.at_s), ended)
        for began, ended in run.gaps
        if ended > mark.at_s and began < until_s
    ]
    began, ended = max(gaps, key=lambda gap: gap[1] - gap[0], default=(mark.at_s, mark.at_s))
    return Outage(
        gap_s=ended - began,
        gap_began_s=began,
        recovered_after_s=_find_recovery(mark, until_s, ended if gaps else None, run),
    )


def _find_recovery(
    mark: Mark, until_s: float, gap_ended_s: float | None, run: InsertRun
) -> float | None:
    """Seconds from the mark until the rate was back; 0 if it was never away.

    It was away if nothing was acknowledged for a while, or if the median of the seconds after the mark is
    too low: a single second that is says nothing where requests arrive by chance.
    """
    seconds = dict(run.timeline)
    first = int(mark.at_s)
    # The last second is not a whole one.
    last = min(max(seconds, default=0), until_s)
    before = _list_rates(seconds, max(0, first - BEFORE_S), first)
    after = _list_rates(seconds, first + 1, int(min(first + 1 + BEFORE_S, last)))
    if not before or not after:
        return None
    enough = BACK * median(before)
    if gap_ended_s is None and median(after) >= enough:
        return 0.0
    begin = first + 1 if gap_ended_s is None else int(gap_ended_s)
    for second in range(begin, int(last)):
        if median(_list_rates(seconds, second, int(min(second + _STEADY_S, last)))) >= enough:
            return max(second, gap_ended_s or 0.0) - mark.at_s
    return None


def _list_rates(seconds: Mapping[int, int], begin: int, end: int) -> list[int]:
    return [seconds.get(second, 0) for second in range(begin, end)]


def describe_outages(run: InsertRun) -> list[str]:
    """A sentence for each mark."""
    return [
        _describe(mark, outage, run) for mark, outage in zip(run.marks, run.outages, strict=False)
    ]


def _describe(mark: Mark, outage: Outage, run: InsertRun) -> str:
    what = mark.action.partition(" ")[2]
    text = f"After {what} at {mark.at_s:.1f} s "
    if not mark.ok:
        text = f"After {what} at {mark.at_s:.1f} s, which failed ({mark.said}), "
    if outage.gap_s:
        text += f"nothing was acknowledged for {outage.gap_s:.1f} s"
    else:
        text += "events went on being acknowledged"
    if outage.recovered_after_s is None:
        text += "; the rate did not come back to 90 % of what it was before"
    elif outage.recovered_after_s:
        text += f"; after {outage.recovered_after_s:.1f} s the rate was back"
    return f"{text}; {_describe_loss(run)}."


def _describe_loss(run: InsertRun) -> str:
    found = run.verification
    if found is None or found.stored is None:
        return "what was lost is not known"
    if found.stored < found.expected:
        return f"{found.expected - found.stored:,} events are missing"
    if found.stored > found.expected:
        return f"{found.stored - found.expected:,} events are stored twice"
    return "nothing was lost or stored twice"
