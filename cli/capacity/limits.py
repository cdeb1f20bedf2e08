"""Limits as a user writes them, and whether a run keeps them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from simulator.contract import InsertRun, LatencyMs, Offered, ReadRun
from simulator.errors import OptionError, did_you_mean

from ..results.capacity import CapacityLimit, Measure

_TIMES_MS = {"us": 0.001, "µs": 0.001, "ms": 1.0, "s": 1000.0, "m": 60_000.0}
_SYNTAX = re.compile(r"(?:query:(?P<query>[^:=]+):)?(?P<measure>[^:=]+)=(?P<value>.*)")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*(\S*)")


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
    found = _QUANTITY.fullmatch(value)
    if not found or found[2] not in _TIMES_MS or float(found[1]) == 0:
        name = text.partition("=")[0].strip()
        raise OptionError(
            f"{text!r}: write a time above 0 with its unit, as in {name}=100ms or {name}=2s"
        )
    return float(found[1]) * _TIMES_MS[found[2]]


def _parse_share(text: str, value: str) -> float:
    found = _QUANTITY.fullmatch(value)
    share = float(found[1]) * (0.01 if found[2] == "%" else 1) if found else 2.0
    if not found or found[2] not in ("", "%") or share > 1:
        raise OptionError(f"{text!r}: write a share as in error_share=0.1% or error_share=0.001")
    return share


def check_limits(limits: Sequence[CapacityLimit], asked: Collection[str] | None) -> None:
    """OptionError if a limit is given twice, or is about a query that no reader asks. `asked`: the readers'
    queries; None: there are no readers."""
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


@dataclass(frozen=True)
class Verdict:
    """Whether a run holds its rate within all limits."""

    reasons: Sequence[str]
    """Why it doesn't, a few words each."""
    figures: Mapping[str, float]
    """What each limit is about, by its name, as far as it is known."""
    client_bound: bool
    """It shows the client's speed, whatever it holds."""

    @property
    def holds(self) -> bool:
        """Whether there is nothing against it."""
        return not self.reasons


def judge_run(
    run: InsertRun, read: ReadRun | None, limits: Sequence[CapacityLimit], per_request: int
) -> Verdict:
    """A rate holds if its run, and that of the readers beside it, is valid, not saturated and within all
    limits. `per_request`: events in each request."""
    groups: list[tuple[str, InsertRun | ReadRun]] = [("", run)]
    if read is not None:
        groups.append(("readers ", read))
    reasons = []
    for who, one in groups:
        if not one.valid:
            reasons.append(f"{who}invalid: {'; '.join(one.invalid_reasons)}")
        elif one.offered is not None and one.offered.saturated:
            reasons.append(f"{who}saturated: {_describe_offer(one.offered)}")
    figures = {}
    for limit in limits:
        found = measure(limit, run, read, per_request)
        if found is not None:
            figures[limit.name] = found
            if found > limit.at_most:
                reasons.append(f"{limit.name} {limit.show(found)}")
        elif run.valid:
            # Of a run that gave no figures at all this has been said.
            reasons.append(f"{limit.name} is not known")
    bound = any(one.client is not None and one.client.bound for _, one in groups)
    return Verdict(reasons, figures, bound)


def _describe_offer(offered: Offered) -> str:
    share = offered.achieved / offered.due if offered.due else 0.0
    if share < 0.99:
        return f"{share:.0%} of what was due was done"
    return f"the backlog grew by {offered.backlog_growth:,}"


def measure(
    limit: CapacityLimit, run: InsertRun, read: ReadRun | None, per_request: int
) -> float | None:
    """What a limit is about, of one run, in milliseconds or as a share; None if it isn't known."""
    if limit.query is None:
        if limit.measure is Measure.ERROR_SHARE:
            return _find_error_share(run, per_request)
        return _find_percentile(limit.measure, run.latency_ms, run.service_ms)
    asked = next((one for one in read.queries if one.query == limit.query), None) if read else None
    if asked is None:
        return None
    if limit.measure is Measure.ERROR_SHARE:
        attempts = asked.executions + asked.errors
        return asked.errors / attempts if attempts else None
    # In a closed loop a query is due when it is sent.
    return _find_percentile(limit.measure, asked.latency_ms, asked.service_ms or asked.latency_ms)


def _find_percentile(
    measure: Measure, response: LatencyMs | None, service: LatencyMs | None
) -> float | None:
    if measure is Measure.SERVICE_P99:
        return None if service is None else service.p99
    return None if response is None else float(getattr(response, measure))


def _find_error_share(run: InsertRun, per_request: int) -> float | None:
    """Errors ÷ attempts, of the whole run; None of a run that stored nothing."""
    if run.events is None:
        return None
    errors = sum(run.errors.values())
    attempts = ceil(run.events / per_request) + errors
    return errors / attempts if attempts else None
