"""Whether a run keeps its limits. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
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

from ...plan.planning import check_workload
from ...results.limits import LimitVerdict, Outcome, RunVerdict, find_query, measure
from .session import Session


def check_limits(
    limits: Sequence[RunLimit], queries: Collection[str] | None, readers: Load | None = None
) -> None:
    """OptionError if a limit is given twice, is about a query that no reader asks, or about a percentile of
    fewer executions than it needs. `queries`: the readers' queries; None: there are no readers; `readers`:
    their load in each step of a search."""
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
                f"--limit {limit}: the readers don't ask {limit.query}"
                f"{did_you_mean(limit.query, queries)} (they ask: {', '.join(queries)})"
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
    """The queries that these readers ask; OptionError if the module can't."""
    job = check_workload(readers, data, session.module)
    return list(session.module(session.assume_options(), job).choose_queries())


def spread_limits(limits: Sequence[RunLimit], queries: Sequence[str]) -> list[RunLimit]:
    """The limits of a command that only asks: one that names no query is about each query without its own."""
    named = [limit for limit in limits if limit.query is not None]
    spread = [
        limit.model_copy(update={"query": query})
        for limit in limits
        if limit.query is None
        for query in queries
    ]
    own = {limit.name for limit in named}
    return [*named, *(limit for limit in spread if limit.name not in own)]


@dataclass(frozen=True)
class Verdict:
    """Whether a run holds its rate within all limits."""

    holds: bool | None
    """None: too few requests to tell."""
    reasons: Sequence[str]
    """Why it doesn't, or why that isn't known, a few words each."""
    limits: Sequence[LimitVerdict]
    client_bound: bool
    """Whether it shows the client's speed, whatever it holds."""
    invalid: bool = False

    @property
    def figures(self) -> dict[str, float]:
        """Name of a limit -> the figure that it is about, if that is known."""
        return {
            verdict.limit.name: verdict.figure
            for verdict in self.limits
            if verdict.figure is not None
        }


def count_needed(limits: Sequence[RunLimit]) -> int:
    """How many requests a verdict on a run's inserts needs."""
    own = [limit.measure for limit in limits if limit.query is None]
    return max([LEAST_REQUESTS[99.0], *(measure.least_requests for measure in own)])


CHANCE_DEVIATIONS = 3
"""The number of requests that are due varies by chance, by its square root: with this many times that on top,
there are hardly ever too few."""


def plan_requests(needed: int) -> float:
    """How many requests to plan, so that by chance there are hardly ever fewer than needed."""
    return needed + CHANCE_DEVIATIONS * sqrt(needed)


def judge_run(
    run: RunResult, limits: Sequence[RunLimit], per_request: int, needed: int | None = None
) -> Verdict:
    """A rate holds if its run is valid, and all groups are not saturated and within all limits.
    `per_request`: events in each request; `needed`: how many requests of writers any verdict needs; None: as
    many as the limits on inserts need, if there are such."""
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
        # How many were due, or in a closed loop answered.
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
    bound = _is_client_bound(run, verdicts)
    if few and not invalid:
        return Verdict(None, [few], verdicts, bound)
    if invalid or reasons or missed:
        return Verdict(False, [*invalid, *missed, *reasons], verdicts, bound, bool(invalid))
    return Verdict(None if unknown else True, unknown, verdicts, bound)


def _is_client_bound(run: RunResult, verdicts: Sequence[LimitVerdict]) -> bool:
    """Whether the client of a group was the limit: of a group that missed something, if one did. A late
    writer is no reason why an answer takes long."""
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
    """`few`: why so few requests decide nothing."""
    writers, readers = run.writers, run.readers
    figure = measure(limit, writers, readers, per_request)
    if run.aborted is not None and run.aborted.limit == str(limit):
        # Whatever the figure from so few requests is.
        reason = str(run.aborted)
        return LimitVerdict(limit=limit, outcome=Outcome.MISSED, figure=figure, reason=reason)
    if few is not None:
        return LimitVerdict(limit=limit, outcome=Outcome.UNDECIDED, figure=figure, reason=few)
    if figure is not None:
        outcome = Outcome.KEPT if figure <= limit.at_most else Outcome.MISSED
        return LimitVerdict(limit=limit, outcome=outcome, figure=figure)
    if not run.groups[0].valid:
        # Of a run that gave no figures at all the reason has been given.
        early = None if run.failures else "the run ended too early to tell"
        return LimitVerdict(limit=limit, outcome=Outcome.UNDECIDED, reason=early)
    broken, why = _judge_unknown(limit, writers, readers)
    outcome = Outcome.MISSED if broken else Outcome.UNDECIDED
    return LimitVerdict(limit=limit, outcome=outcome, reason=why)


def _judge_unknown(
    limit: RunLimit, writers: GroupResult | None, readers: GroupResult | None
) -> tuple[bool, str]:
    """Whether a limit on a figure that isn't known is broken all the same, and what to say. A lower
    percentile above the limit breaks it, too."""
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
    """What became of a run's limits, as its result keeps it. A run that isn't valid decides nothing."""
    verdict = judge_run(run, limits, per_request)
    judged, reasons = list(verdict.limits), list(verdict.reasons)
    if verdict.invalid:
        judged = [limit.model_copy(update={"outcome": Outcome.UNDECIDED}) for limit in judged]
        return RunVerdict(outcome=Outcome.UNDECIDED, reasons=reasons, limits=judged)
    outcomes = {None: Outcome.UNDECIDED, True: Outcome.KEPT, False: Outcome.MISSED}
    return RunVerdict(outcome=outcomes[verdict.holds], reasons=reasons, limits=judged)


def _describe_offer(offered: Offered) -> str:
    share = offered.achieved / offered.due if offered.due else 0.0
    if share < MIN_ACHIEVED:
        return f"achieved {share:.0%} of what was due"
    return f"the backlog grew by {offered.backlog_growth:,}"
