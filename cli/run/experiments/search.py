"""Which rate to try next, and what the verdicts so far say. Pure: runs are made elsewhere.

Rates are tried by bisection on a logarithmic scale, between the highest that holds and the lowest that
doesn't. A verdict near the limit depends on chance, and the database's speed may change meanwhile. So the
bracket is where it contradicts the fewest verdicts, whichever came first; once it is narrow enough, both ends
are repeated in turn until each of their verdicts is sure. One that turns out otherwise moves the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from simulator.units import format_count

from .limits import plan_requests

FIRST_SHARE = 0.7
"""The first rate, as a share of what a closed loop reaches: response times grow well before that."""
LOWEST_SHARE = 1 / 1024
"""The lowest rate that is tried, if it has requests enough."""
HIGHEST_SHARE = 16.0
"""The highest rate that is tried. An open loop of the same workers hardly gets beyond 1; a database
that grows faster may."""
_GROWTH = 1.3

STEADY_SHARE = 0.8
"""The test decides between rates that hold in this share of runs, and rates that miss in as many."""
ERROR_SHARE = 0.05
"""How often the test may be wrong about one of them."""


@dataclass(frozen=True)
class RateTrial:
    """The verdict of one run."""

    rate_per_s: float
    holds: bool


@dataclass(frozen=True)
class Goal:
    """What is searched for, and where."""

    closed_loop_per_s: float
    """What the same workers reach without a rate."""
    lowest_per_s: float
    precision: float = 0.05
    max_steps: int = 24


@dataclass(frozen=True)
class Interval:
    """Where the capacity is, by the verdicts so far."""

    low: float | None
    """The highest rate that holds; None: none does."""
    high: float | None
    """The lowest rate above it that doesn't; None: all hold."""
    sure: bool
    """Narrow enough, with verdicts at both ends that are sure."""
    because: str | None = None
    """Why it isn't sure."""


def find_lowest(
    closed_loop_per_s: float, events_per_request: int, window_s: float, needed: int
) -> float:
    """The lowest rate to try, in events per second: one at which a window has the requests `needed`."""
    planned = plan_requests(needed)
    return max(closed_loop_per_s * LOWEST_SHARE, planned * events_per_request / window_s)


def judge(holds: int, misses: int) -> bool | None:
    """Whether a rate holds, after so many runs that held and that didn't; None: not sure yet.

    Wald's sequential probability ratio test (Annals of Mathematical Statistics 16, 1945) between the
    hypotheses that it holds in 80 % of runs and in 20 %, with at most 5 % of wrong verdicts on either. So
    the verdict is sure when one side leads by three.
    """
    each = math.log(STEADY_SHARE / (1 - STEADY_SHARE))
    enough = math.log((1 - ERROR_SHARE) / ERROR_SHARE)
    evidence = (holds - misses) * each
    return None if abs(evidence) < enough else evidence > 0


@dataclass(frozen=True)
class _Level:
    """All verdicts on one rate."""

    rate: float
    holds: int
    misses: int

    @property
    def score(self) -> int:
        return self.holds - self.misses

    @property
    def runs(self) -> int:
        return self.holds + self.misses

    @property
    def sure(self) -> bool:
        return judge(self.holds, self.misses) is not None


_Bracket = tuple[_Level | None, _Level | None]
"""The levels next to the limit: below it and above it."""


def _list_levels(tried: Sequence[RateTrial]) -> list[_Level]:
    """All rates that were tried, the lowest first."""
    levels = []
    for rate in sorted({trial.rate_per_s for trial in tried}):
        verdicts = [trial.holds for trial in tried if trial.rate_per_s == rate]
        levels.append(_Level(rate, sum(verdicts), len(verdicts) - sum(verdicts)))
    return levels


def _find_bracket(tried: Sequence[RateTrial]) -> _Bracket:
    """The adjacent rates between which a limit contradicts the fewest verdicts: under the hypotheses of
    `judge`, the most likely place. If there are several, the lowest."""
    levels = _list_levels(tried)
    scores = [level.score for level in levels]
    places = range(len(levels) + 1)
    best = max(places, key=lambda place: sum(scores[:place]) - sum(scores[place:]))
    return levels[best - 1] if best else None, levels[best] if best < len(levels) else None


def choose_next(goal: Goal, tried: Sequence[RateTrial]) -> float | None:
    """The rate of the next step, in events per second; None: the search is over."""
    if len(tried) >= goal.max_steps:
        return None
    if not tried:
        return _round(goal, FIRST_SHARE * goal.closed_loop_per_s)
    low, high = bracket = _find_bracket(tried)
    if high is not None and high.score == 0:
        return high.rate
    if (further := _widen(goal, tried, bracket)) is not None:
        return further
    if low and high and high.rate > low.rate * (1 + goal.precision):
        return _round(goal, math.sqrt(low.rate * high.rate))
    unsure = [level for level in bracket if level is not None and not level.sure]
    if not unsure:
        return None
    return min(unsure, key=lambda level: (level.runs, level.rate)).rate


def expect_steps(precision: float, max_steps: int) -> int:
    """How many steps a search takes on average, wherever the capacity is, if chance never contradicts it."""
    goal, shares = Goal(1e6, 1.0, precision, max_steps), [0.1 * number for number in range(2, 11)]
    counts = []
    for share in shares:
        tried: list[RateTrial] = []
        while (rate := choose_next(goal, tried)) is not None:
            tried.append(RateTrial(rate, rate <= share * goal.closed_loop_per_s))
        counts.append(len(tried))
    return round(sum(counts) / len(counts))


def _widen(goal: Goal, tried: Sequence[RateTrial], bracket: _Bracket) -> float | None:
    """A rate beyond all that were tried, if the limit is there: further each time."""
    low, high = bracket
    if low is None:
        assert high is not None
        far = max(1.0, tried[0].rate_per_s / high.rate)
        lowest = _round(goal, goal.lowest_per_s)
        further = max(lowest, _round(goal, high.rate / (2 * far)))
        return further if further < high.rate else None
    if high is None:
        closed_loop = _round(goal, goal.closed_loop_per_s)
        if low.rate < closed_loop:
            return closed_loop
        far = low.rate / closed_loop
        highest = _round(goal, HIGHEST_SHARE * goal.closed_loop_per_s)
        further = min(highest, _round(goal, low.rate * _GROWTH * far))
        return further if further > low.rate else None
    return None


def _round(goal: Goal, rate: float) -> float:
    """A rate of few digits, much finer than the precision."""
    digits = max(1, 1 + math.ceil(-math.log10(goal.precision / 4)))
    return float(f"{rate:.{digits}g}")


def find_interval(goal: Goal, tried: Sequence[RateTrial]) -> Interval:
    """Where the capacity is, by the verdicts so far. As long as it isn't sure, its ends are the nearest
    rates up to which all hold, and from which on none does."""
    if not tried:
        return Interval(None, None, sure=False, because="no rate was tried")
    if choose_next(replace(goal, max_steps=10**9), tried) is None:
        low, high = (None if level is None else level.rate for level in _find_bracket(tried))
        return Interval(low, high, sure=True)
    levels = _list_levels(tried)
    low = high = None
    for level in levels:
        if level.score <= 0:
            break
        low = level.rate
    for level in reversed(levels):
        if level.score >= 0:
            break
        high = level.rate
    runs = format_count(len(tried), "step was", "steps were")
    return Interval(low, high, sure=False, because=f"{runs} not enough to be sure")


def find_contradicting(tried: Sequence[RateTrial], interval: Interval) -> list[int]:
    """Places of the verdicts that don't agree with the interval, in order."""
    return [
        place
        for place, trial in enumerate(tried)
        if (trial.holds and interval.high is not None and trial.rate_per_s >= interval.high)
        or (not trial.holds and interval.low is not None and trial.rate_per_s <= interval.low)
    ]
