"""Whether a run keeps its limits, which rate to try next, and what the verdicts so far mean. Pure: runs are
made elsewhere.

Rates are tried by bisection on a logarithmic scale, between the highest that holds and the lowest that
doesn't. A verdict near the limit depends on chance, and the database's speed may change meanwhile. So the
bracket is where it contradicts the fewest verdicts, in whatever order they came. Once it is narrow enough,
both ends are repeated in turn until their verdicts are certain. A verdict that changes moves the bracket.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

from simulator.contract import (
    MIN_ACHIEVED,
    DataSet,
    GroupResult,
    Load,
    Measure,
    Offered,
    RunLimit,
    RunResult,
)
from simulator.errors import OptionError, did_you_mean
from simulator.histograms import LEAST_REQUESTS
from simulator.units import format_count

from ...plan.planning import check_workload
from ...results.answers import LimitVerdict, Outcome, RunVerdict, find_query, measure
from .session import Session


def check_limits(
    limits: Sequence[RunLimit], queries: Collection[str] | None, readers: Load | None = None
) -> None:
    """OptionError if a limit is given twice, is about a query that no reader runs, or about a percentile that
    needs more executions. `queries`: the readers' queries, or None without readers; `readers`: their load in
    each step of a search."""
    names = [limit.name for limit in limits]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"--limit {name} is given more than once: give the lower one")
    for limit in limits:
        if limit.query is None:
            continue
        if queries is None:
            raise OptionError(f"--limit {limit} is for a query: give --readers to run it")
        if limit.query not in queries:
            raise OptionError(
                f"--limit {limit}: the readers don't run {limit.query}"
                f"{did_you_mean(limit.query, queries)} (they run: {', '.join(queries)})"
            )
        if readers is not None and readers.rate_per_s is not None:
            weights = readers.weights or dict.fromkeys(queries, 1.0)
            share = weights.get(limit.query, 0.0) / sum(weights.values())
            window_s = (readers.duration_s or 0.0) - readers.warm_up_s
            expected = (readers.rate_per_s or 0.0) * window_s * share
            if expected < (needed := limit.measure.least_requests):
                raise OptionError(
                    f"--limit {limit}: in the {window_s:g} s that a step measures it runs"
                    f" {expected:,.0f} times, and this percentile needs {needed:,}: give a longer"
                    " --step-duration or a higher --query-rate"
                )


def find_asked(session: Session, readers: Load, data: DataSet) -> list[str]:
    """The queries that these readers run. OptionError if the module can't."""
    job = check_workload(readers, data, session.module)
    return list(session.module(session.assume_options(), job).choose_queries())


def spread_limits(limits: Sequence[RunLimit], queries: Sequence[str]) -> list[RunLimit]:
    """The limits of a command that only queries. A limit that names no query applies to each query without
    its own."""
    named = [limit for limit in limits if limit.query is not None]
    spread = [
        limit.model_copy(update={"query": query})
        for limit in limits
        if limit.query is None
        for query in queries
    ]
    own = {limit.name for limit in named}
    return [*named, *(limit for limit in spread if limit.name not in own)]


def count_needed(limits: Sequence[RunLimit]) -> int:
    """How many requests a verdict on a run's inserts needs."""
    own = [limit.measure for limit in limits if limit.query is None]
    return max([LEAST_REQUESTS[99.0], *(measure.least_requests for measure in own)])


CHANCE_DEVIATIONS = 3
"""The number of due requests varies by chance, by about its square root. With this many square roots on top,
there are hardly ever too few."""


def plan_requests(needed: int) -> float:
    """How many requests to plan so that hardly ever fewer than `needed` are due."""
    return needed + CHANCE_DEVIATIONS * sqrt(needed)


def judge_run(
    run: RunResult, limits: Sequence[RunLimit], per_request: int, needed: int | None = None
) -> RunVerdict:
    """A rate holds if its run is valid, and all groups are unsaturated and within all limits. `per_request`:
    events in each request; `needed`: how many requests of writers any verdict needs; None: as many as the
    limits on inserts need, if there are any."""
    writers = run.writers
    first = writers or run.readers
    groups = [(group, "" if group is first else "readers ") for group in run.groups]
    invalid = [
        f"{prefix}invalid: {'; '.join(failures)}"
        for group, prefix in groups
        if (failures := [text for text in group.invalid_reasons if text in run.failures])
    ]
    reasons = [
        f"{prefix}saturated: {_describe_offer(group.offered)}"
        for group, prefix in groups
        if group.valid and group.offered is not None and group.offered.saturated
    ]
    if needed is None:
        needed = count_needed(limits) if any(limit.query is None for limit in limits) else 0
    requests = inf
    if writers and writers.valid:
        # How many were due or, in a closed loop, answered.
        events = writers.offered.due if writers.offered else writers.count or 0
        requests = events / per_request
    few = None
    if requests < needed:
        few = f"too few requests: {requests:,.0f}, and {needed:,} are needed"
    verdicts = [
        _judge_limit(limit, run, per_request, few if limit.query is None else None)
        for limit in limits
    ]
    missed = [
        verdict.reason or verdict.limit.name
        if verdict.reason is not None or verdict.figure is None
        else f"{verdict.limit.name} {verdict.limit.show(verdict.figure)}"
        for verdict in verdicts
        if verdict.outcome is Outcome.MISSED
    ]
    unknown = [
        verdict.reason
        for verdict in verdicts
        if verdict.outcome is Outcome.UNDECIDED and verdict.reason
    ]
    if few and not invalid:
        return RunVerdict(outcome=Outcome.UNDECIDED, reasons=[few], limits=verdicts)
    if broken := [*invalid, *missed, *reasons]:
        return RunVerdict(outcome=Outcome.MISSED, reasons=broken, limits=verdicts)
    outcome = Outcome.UNDECIDED if unknown else Outcome.KEPT
    return RunVerdict(outcome=outcome, reasons=unknown, limits=verdicts)


def is_client_bound(run: RunResult, verdicts: Sequence[LimitVerdict]) -> bool:
    """Whether the client of a group was the limit: of a group that missed something, if there is one. A late
    writer is no reason for slow answers to queries."""
    of_query = {
        verdict.limit.query is not None for verdict in verdicts if verdict.outcome is Outcome.MISSED
    }
    missed = [
        group
        for group in run.groups
        if not group.valid
        or (group.offered is not None and group.offered.saturated)
        or (group is run.readers) in of_query
    ]
    return any(group.client is not None and group.client.bound for group in missed or run.groups)


def _judge_limit(
    limit: RunLimit, run: RunResult, per_request: int, few: str | None
) -> LimitVerdict:
    """`few`: why there are too few requests to decide anything."""
    writers, readers = run.writers, run.readers
    figure = measure(limit, writers, readers, per_request)
    if run.aborted is not None and run.aborted.limit == str(limit):
        # This holds whatever the figure from so few requests is.
        reason = str(run.aborted)
        return LimitVerdict(limit=limit, outcome=Outcome.MISSED, figure=figure, reason=reason)
    if few is not None:
        return LimitVerdict(limit=limit, outcome=Outcome.UNDECIDED, figure=figure, reason=few)
    if figure is not None:
        outcome = Outcome.KEPT if figure <= limit.at_most else Outcome.MISSED
        return LimitVerdict(limit=limit, outcome=outcome, figure=figure)
    if not run.groups[0].valid:
        # If a run gave no figures at all, the reason is given already.
        early = None if run.failures else "the run ended too early to tell"
        return LimitVerdict(limit=limit, outcome=Outcome.UNDECIDED, reason=early)
    broken, why = _judge_unknown(limit, writers, readers)
    outcome = Outcome.MISSED if broken else Outcome.UNDECIDED
    return LimitVerdict(limit=limit, outcome=outcome, reason=why)


def _judge_unknown(
    limit: RunLimit, writers: GroupResult | None, readers: GroupResult | None
) -> tuple[bool, str]:
    """Whether a limit on an unknown figure is missed anyway, and why. A lower percentile above the limit
    means that it is missed."""
    latency, prefix = (writers.latency_ms if writers else None), ""
    if limit.query is not None:
        query = find_query(limit.query, readers)
        latency, prefix = (query.latency_ms if query else None), f"query:{limit.query}:"
    if latency is None or not limit.measure.is_time:
        return True, f"{limit.name} is not known"
    if latency.p90 > limit.at_most and limit.measure is not Measure.SERVICE_P99:
        return True, f"{prefix}p90 {limit.show(latency.p90)}"
    needed = limit.measure.least_requests
    return False, f"{limit.name} needs at least {needed:,} requests"


def conclude(run: RunResult, limits: Sequence[RunLimit], per_request: int) -> RunVerdict:
    """The verdicts on a run's limits, as its result keeps them. An invalid run decides nothing."""
    verdict = judge_run(run, limits, per_request)
    if not run.failures:
        return verdict
    undecided = {"outcome": Outcome.UNDECIDED}
    limit_verdicts = [limit.model_copy(update=undecided) for limit in verdict.limits]
    return verdict.model_copy(update=undecided | {"limits": limit_verdicts})


def _describe_offer(offered: Offered) -> str:
    share = offered.achieved / offered.due if offered.due else 0.0
    if share < MIN_ACHIEVED:
        return f"achieved {share:.0%} of what was due"
    return f"the backlog grew by {offered.backlog_growth:,}"


FIRST_SHARE = 0.7
"""The first rate, as a share of what a closed loop reaches: response times rise well before that."""
LOWEST_SHARE = 1 / 1024
"""The lowest rate to try, if it has enough requests."""
HIGHEST_SHARE = 16.0
"""The highest rate to try. An open loop of the same workers hardly exceeds 1; a database that becomes faster
may."""
_GROWTH = 1.3

STEADY_SHARE = 0.8
"""The test distinguishes rates that hold in this share of runs from rates that miss in as many."""
ERROR_SHARE = 0.05
"""How often the test may be wrong about either."""


@dataclass(frozen=True)
class RateTrial:
    """The verdict of one run."""

    rate_per_s: float
    holds: bool


@dataclass(frozen=True)
class Goal:
    """What to search for, and where."""

    closed_loop_per_s: float
    """What the same workers reach in a closed loop."""
    lowest_per_s: float
    precision: float = 0.05
    max_steps: int = 24


@dataclass(frozen=True)
class Interval:
    """Where the capacity is, according to the verdicts so far."""

    low: float | None
    """The highest rate that holds; None: none does."""
    high: float | None
    """The lowest rate above it that doesn't hold; None: all hold."""
    sure: bool
    """Whether it is narrow enough, with certain verdicts at both ends."""
    because: str | None = None
    """Why it isn't certain."""


def find_lowest(
    closed_loop_per_s: float, events_per_request: int, window_s: float, needed: int
) -> float:
    """The lowest rate to try, in events per second: a window at this rate has the `needed` requests."""
    planned = plan_requests(needed)
    return max(closed_loop_per_s * LOWEST_SHARE, planned * events_per_request / window_s)


def judge(holds: int, misses: int) -> bool | None:
    """Whether a rate holds, after this many runs that held and that missed; None: not certain yet.

    Wald's sequential probability ratio test (Annals of Mathematical Statistics 16, 1945) between the
    hypotheses that it holds in 80 % of runs and in 20 %, with at most 5 % of wrong verdicts on either. This
    means that a verdict is certain once one side leads by three.
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
"""The levels on either side of the limit: below it and above it."""


def _list_levels(tried: Sequence[RateTrial]) -> list[_Level]:
    """All rates that were tried, in ascending order."""
    levels = []
    for rate in sorted({trial.rate_per_s for trial in tried}):
        verdicts = [trial.holds for trial in tried if trial.rate_per_s == rate]
        levels.append(_Level(rate, sum(verdicts), len(verdicts) - sum(verdicts)))
    return levels


def _find_bracket(tried: Sequence[RateTrial]) -> _Bracket:
    """The adjacent rates between which a limit contradicts the fewest verdicts: the most likely place under
    the hypotheses of `judge`. The lowest such place if there are several."""
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
    """How many steps a search takes on average over all possible capacities, if chance never contradicts
    it."""
    goal, shares = Goal(1e6, 1.0, precision, max_steps), [0.1 * number for number in range(2, 11)]
    counts = []
    for share in shares:
        tried: list[RateTrial] = []
        while (rate := choose_next(goal, tried)) is not None:
            tried.append(RateTrial(rate, rate <= share * goal.closed_loop_per_s))
        counts.append(len(tried))
    return round(sum(counts) / len(counts))


def _widen(goal: Goal, tried: Sequence[RateTrial], bracket: _Bracket) -> float | None:
    """A rate beyond all tried ones if the limit is there, further each time."""
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
    """A rate with few digits, much finer than the precision."""
    digits = max(1, 1 + math.ceil(-math.log10(goal.precision / 4)))
    return float(f"{rate:.{digits}g}")


def find_interval(goal: Goal, tried: Sequence[RateTrial]) -> Interval:
    """Where the capacity is, according to the verdicts so far. Until that is certain, its ends are the
    nearest rates up to which all hold and from which on none does."""
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
    """Indexes of the verdicts that contradict the interval, in order."""
    return [
        place
        for place, trial in enumerate(tried)
        if (trial.holds and interval.high is not None and trial.rate_per_s >= interval.high)
        or (not trial.holds and interval.low is not None and trial.rate_per_s <= interval.low)
    ]
