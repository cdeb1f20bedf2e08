"""Limits as a user writes them, and whether a run keeps them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from simulator.contract import GroupResult, LatencyMs, Load, Offered, QueryResult, RunResult
from simulator.errors import OptionError, did_you_mean
from simulator.histograms import LEAST_REQUESTS
from simulator.units import parse_duration_ms, parse_share

from ..results.capacity import CapacityLimit, Measure

_SYNTAX = re.compile(r"(?:query:(?P<query>[^:=]+):)?(?P<measure>[^:=]+)=(?P<value>.*)")


def parse_limit(text: str) -> CapacityLimit:
    """`p99=100ms`, `error_share=0.1%`, `query:NAME:p99=2s`; OptionError says how to write it."""
    found = _SYNTAX.fullmatch(text.strip())
    if not found:
        raise OptionError(
            f"{text!r}: write a limit as in p99=100ms, error_share=0.1% or query:NAME:p99=2s"
        )
    name = found["measure"].strip()
    known = [str(measure) for measure in Measure]
    if name not in known:
        raise OptionError(
            f"{text!r}: there is no {name!r}{did_you_mean(name, known)} (there are: {', '.join(known)})"
        )
    measure = Measure(name)
    query = found["query"].strip() if found["query"] else None
    parse = _parse_time if measure.is_time else _parse_share
    return CapacityLimit(measure=measure, query=query, at_most=parse(text, found["value"].strip()))


def _parse_time(text: str, value: str) -> float:
    found = parse_duration_ms(value)
    if found is None or found <= 0:
        name = text.partition("=")[0].strip()
        raise OptionError(
            f"{text!r}: write a time above 0 with its unit, as in {name}=100ms or {name}=2s"
        )
    return found


def _parse_share(text: str, value: str) -> float:
    share = parse_share(value)
    if share is None or share > 1:
        raise OptionError(f"{text!r}: write a share as in error_share=0.1% or error_share=0.001")
    return share


def check_limits(
    limits: Sequence[CapacityLimit], asked: Collection[str] | None, readers: Load | None = None
) -> None:
    """OptionError if a limit is given twice, is about a query that no reader asks, or about a percentile of
    fewer executions than it needs. `asked`: the readers' queries; None: there are no readers."""
    names = [limit.name for limit in limits]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"--limit {name} is given more than once: give the lower one")
    for limit in limits:
        if limit.query is None:
            continue
        if asked is None:
            raise OptionError(f"--limit {limit} is about a query: say by --readers who asks it")
        if limit.query not in asked:
            raise OptionError(
                f"--limit {limit}: the readers don't ask {limit.query}"
                f"{did_you_mean(limit.query, asked)} (they ask: {', '.join(asked)})"
            )
        if readers is not None and readers.rate_per_s is not None:
            _check_executions(limit, limit.query, asked, readers)


def _check_executions(
    limit: CapacityLimit, query: str, asked: Collection[str], readers: Load
) -> None:
    weights = readers.weights or dict.fromkeys(asked, 1.0)
    share = weights.get(query, 0.0) / sum(weights.values())
    window_s = (readers.duration_s or 0.0) - readers.warm_up_s
    expected = (readers.rate_per_s or 0.0) * window_s * share
    if expected < (needed := _count_for(limit.measure)):
        raise OptionError(
            f"--limit {limit}: in the {window_s:g} s that a step measures it is asked {expected:,.0f} times,"
            f" and this percentile needs {needed:,}: give a longer --step-duration or a higher --query-rate"
        )


@dataclass(frozen=True)
class Verdict:
    """Whether a run holds its rate within all limits."""

    holds: bool | None
    """None: too few requests to tell."""
    reasons: Sequence[str]
    """Why it doesn't, or why that isn't known, a few words each."""
    figures: Mapping[str, float]
    """What each limit is about, by its name, as far as it is known."""
    client_bound: bool
    """It shows the client's speed, whatever it holds."""


def count_needed(limits: Sequence[CapacityLimit]) -> int:
    """The requests without which there is no verdict on a run's inserts."""
    own = [limit.measure for limit in limits if limit.query is None]
    return max([LEAST_REQUESTS[99.0], *(_count_for(measure) for measure in own)])


def _count_for(measure: Measure) -> int:
    """The requests without which this figure isn't known."""
    return LEAST_REQUESTS.get(_PERCENTS.get(measure, 0.0), 1)


_PERCENTS = {Measure.P99: 99.0, Measure.SERVICE_P99: 99.0, Measure.P99_9: 99.9}


def judge_run(run: RunResult, limits: Sequence[CapacityLimit], per_request: int) -> Verdict:
    """A rate holds if its run is valid, and all groups are not saturated and within all limits.
    `per_request`: events in each request."""
    writers, readers = run.writers, run.readers
    assert writers is not None
    groups = [(writers, "")] + ([] if readers is None else [(readers, "readers ")])
    bound = any(group.client is not None and group.client.bound for group, _ in groups)
    invalid = [
        f"{who}invalid: {'; '.join(group.invalid_reasons)}"
        for group, who in groups
        if not group.valid
    ]
    reasons = [
        f"{who}saturated: {_describe_offer(group.offered)}"
        for group, who in groups
        if group.valid and group.offered is not None and group.offered.saturated
    ]
    figures: dict[str, float] = {}
    unknown: list[str] = []
    for limit in limits:
        found = measure(limit, writers, readers, per_request)
        if found is not None:
            figures[limit.name] = found
            if found > limit.at_most:
                reasons.append(f"{limit.name} {limit.show(found)}")
        elif writers.valid:
            # Of a run that gave no figures at all this has been said.
            broken, why = _judge_unknown(limit, writers, readers)
            (reasons if broken else unknown).append(why)
    requests = writers.offered.due / per_request if writers.offered and writers.valid else inf
    if not invalid and requests < count_needed(limits):
        few = f"too few requests: {requests:,.0f}, and {count_needed(limits):,} are needed"
        return Verdict(None, [few], figures, bound)
    if invalid or reasons:
        return Verdict(False, [*invalid, *reasons], figures, bound)
    return Verdict(None if unknown else True, unknown, figures, bound)


def _judge_unknown(
    limit: CapacityLimit, writers: GroupResult, readers: GroupResult | None
) -> tuple[bool, str]:
    """Of a limit on a figure that isn't known: whether it is broken all the same, and what is to be said. A
    lower percentile above the limit breaks it, too."""
    latency, who = writers.latency_ms, ""
    if limit.query is not None:
        asked = _find_query(limit.query, readers)
        latency, who = (asked.latency_ms if asked else None), f"query:{limit.query}:"
    if latency is None or not limit.measure.is_time:
        return True, f"{limit.name} is not known"
    if latency.p90 > limit.at_most and limit.measure is not Measure.SERVICE_P99:
        return True, f"{who}p90 {limit.show(latency.p90)}"
    needed = _count_for(limit.measure)
    return False, f"{limit.name} is not known of fewer than {needed:,} requests"


def _describe_offer(offered: Offered) -> str:
    share = offered.achieved / offered.due if offered.due else 0.0
    if share < 0.99:
        return f"{share:.0%} of what was due was done"
    return f"the backlog grew by {offered.backlog_growth:,}"


def measure(
    limit: CapacityLimit, writers: GroupResult, readers: GroupResult | None, per_request: int
) -> float | None:
    """What a limit is about, of one run, in milliseconds or as a share; None if it isn't known."""
    if limit.query is None:
        if limit.measure is Measure.ERROR_SHARE:
            return _find_error_share(writers, per_request)
        return _find_percentile(limit.measure, writers.latency_ms, writers.service_ms)
    asked = _find_query(limit.query, readers)
    if asked is None:
        return None
    if limit.measure is Measure.ERROR_SHARE:
        attempts = asked.executions + asked.errors
        return asked.errors / attempts if attempts else None
    # In a closed loop a query is due when it is sent.
    return _find_percentile(limit.measure, asked.latency_ms, asked.service_ms or asked.latency_ms)


def _find_query(name: str, readers: GroupResult | None) -> QueryResult | None:
    return next((one for one in readers.queries if one.query == name), None) if readers else None


def _find_percentile(
    measure: Measure, response: LatencyMs | None, service: LatencyMs | None
) -> float | None:
    if measure is Measure.SERVICE_P99:
        return None if service is None else service.p99
    found: float | None = getattr(response, measure, None)
    return found


def _find_error_share(writers: GroupResult, per_request: int) -> float | None:
    """Errors ÷ attempts, of the whole run; None of a run that stored nothing."""
    if writers.count is None:
        return None
    errors = sum(writers.errors.values())
    attempts = ceil(writers.count / per_request) + errors
    return errors / attempts if attempts else None
