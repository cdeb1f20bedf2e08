"""Finds before a campaign runs what it can't decide: percentiles with too few requests, too few repetitions,
a load that no step offers. Pure, except for the file's line in errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from pathlib import Path

from simulator.contract import Arrivals, Load, Measure, RunLimit
from simulator.units import format_amount, format_duration

from ...plan.request import Request
from ...plan.requests import CapacityRequest
from ...results.decision import Scale, Unit
from ...results.judging_load import covers
from ...results.loads import ALMOST, MOST_RATE, Question
from ...results.scaling import find_too_far, format_least
from ...system.errors import ConfigError
from ..experiments.search import plan_requests
from .definition import REPEATS_OF_VERDICT
from .plan import Job, Turn
from .reading import locate_key

WARM_UP = 6
"""By default, the first sixth of a run is warm-up."""


@dataclass(frozen=True)
class _Shortage:
    """A step with too few requests for a percentile."""

    job: Job
    limit: RunLimit
    rate_per_s: float
    """Of requests."""
    window_s: float
    enough_s: float
    """The shortest sufficient window."""

    @property
    def expected(self) -> float:
        """How many requests it has, on average."""
        return self.rate_per_s * self.window_s

    def describe(self) -> str:
        """What is too few, and the smallest remedy."""
        search = isinstance(self.job.request, CapacityRequest)
        each, key = ("step of the search", "step-duration") if search else ("run", "duration")
        word = "executions" if self.limit.query else "requests"
        least = self.limit.measure.least_requests
        chance = " on average, by chance fewer" if self.expected >= least else ""
        lower = _find_lower(self.limit.measure, self.expected)
        other = f"require {lower}" if lower else ""
        if self.limit.query and self.window_s and not lower:
            # It must be enough after rounding.
            enough_per_s = 1.05 * self.rate_per_s * self.enough_s / self.window_s
            other = f"ask {enough_per_s:.2g} times a second"
        shown = f"{self.expected:,.0f}" if self.expected >= 10 else f"{self.expected:.2g}"
        return (
            f"{self.limit.measure} needs {least:,} {word} in each {each} of step {self.job.step}, and"
            f" {self.rate_per_s:g}/s for {format_duration(round(self.window_s))} are"
            f" {shown}{chance}: give {key} {format_duration(self._find_length())}"
            + (f", or {other}" if other else "")
        )

    def _find_length(self) -> int:
        """The shortest run with that window: its warm-up stays, or is a sixth."""
        load = self.job.request.load
        is_share = abs((load.duration_s or 0.0) / WARM_UP - load.warm_up_s) < 1
        length_s = self.enough_s * WARM_UP / (WARM_UP - 1) if is_share else 0.0
        return ceil(length_s or self.enough_s + load.warm_up_s)


def check_decidable(question: Question, repeats: int, turns: Sequence[Turn], file: Path) -> None:
    """ConfigError, with the line and the smallest remedy, for what can't be decided whatever is measured."""
    if repeats < 2:
        raise ConfigError(
            f"{locate_key(file, 'repeats')}one repetition decides no requirement: give repeats:"
            f" {REPEATS_OF_VERDICT}, or at least 2"
        )
    limits = question.needed.list_limits()
    for turn in turns:
        offers = [job for job in turn if _offers_load(question, job.request)]
        searches = [job for job in turn if _searches(question, job.request)]
        if not offers and (limits or not searches):
            raise ConfigError(
                f"{file}: no step of {turn[0].candidate} offers the required load, so nothing can be"
                f" decided: {_describe_load(question)}; add such a step, or leave `steps` out"
            )
        shortages = [
            shortage
            for job in [*offers, *searches]
            for limit in limits
            for shortage in _find_shortages(question, job, limit)
        ]
        if shortages:
            worst = max(shortages, key=lambda shortage: shortage.enough_s)
            limit = worst.limit
            part = ("queries", limit.query) if limit.query else ("insert",)
            where = locate_key(file, "requirements", *part, limit.measure)
            raise ConfigError(where + worst.describe())


def describe_reach(question: Question) -> str | None:
    """Why nothing can be shown to keep its limits on so short a history, with a remedy; None if it can."""
    if question.kept is None:
        return None
    if not question.history:  # its number of events is known later
        kept, least = format_amount(question.kept), format_least(question.kept)
        return (
            f"{kept} events are stored at full retention, which needs a history of at least {least}"
        )
    too_far = find_too_far(Scale(events=question.history, kept=question.kept))
    return too_far and f"what keeps its limits stays undecided: it is measured {too_far}"


def _describe_load(question: Question) -> str:
    """`1,600 events/s in batches of 50 with range 2 times a second beside them`."""
    needed = question.needed
    batch = f" in batches of {needed.insert.batch:,}" if needed.insert.batch else ""
    beside = [f"{name} {limits.rate:g} times a second" for name, limits in needed.queries.items()]
    queries = f" with {', '.join(beside)} beside them" if beside else ""
    return f"{Unit.EVENTS_PER_S.show(question.rate_per_s)}{batch}{queries}"


def _offers_load(question: Question, request: Request) -> bool:
    """Whether a job's runs count for the load, as `results.loads` has it."""
    rate = request.load.rate_per_s
    if request.command not in ("insert", "mixed") or request.disturb or request.load.stages:
        return False
    if rate is None or request.data.retention_s is not None:
        return False
    return ALMOST <= rate / question.rate_per_s <= MOST_RATE and _has_work(question, request)


def _searches(question: Question, request: Request) -> bool:
    """Whether a job is a search within the required limits."""
    if not isinstance(request, CapacityRequest) or not _has_work(question, request):
        return False
    return covers(request.limits, question.needed)


def _has_work(question: Question, request: Request) -> bool:
    """Whether a job's requests have the required size and run with the required queries."""
    needed = question.needed
    if needed.insert.batch not in (None, request.load.events_per_request):
        return False
    return all(
        request.readers is not None and _find_rate(request.readers, name) >= ALMOST * limits.rate
        for name, limits in needed.queries.items()
    )


def _find_rate(readers: Load, query: str) -> float:
    """Executions of a query per second; 0 without a rate."""
    weights = readers.weights or dict.fromkeys(readers.queries or (), 1.0)
    share = weights.get(query, 0.0) / (fsum(weights.values()) or 1.0)
    return share * (readers.rate_per_s or 0.0)


def _find_shortages(question: Question, job: Job, limit: RunLimit) -> Iterator[_Shortage]:
    load, readers = job.request.load, job.request.readers
    if limit.query is None:
        # A search must be able to show that the required load holds.
        rate = min(load.rate_per_s or question.rate_per_s, question.rate_per_s)
        rate /= load.events_per_request
    else:
        assert readers is not None
        rate = _find_rate(readers, limit.query)
    length_s = load.duration_s
    if length_s is None:
        length_s = load.workers * load.events / (load.rate_per_s or question.rate_per_s)
    least = limit.measure.least_requests
    alone = limit.query is None or len((readers and readers.weights) or [0]) == 1
    even = load.arrivals is Arrivals.EVEN and alone
    needed = least if even else plan_requests(least)
    window_s = max(0.0, length_s - load.warm_up_s)
    if rate * window_s < needed:
        yield _Shortage(job, limit, rate, window_s, needed / rate)


def _find_lower(measure: Measure, expected: float) -> Measure | None:
    """The highest percentile below this one for which this many requests are enough."""
    lower = [
        other
        for other in (Measure.P50, Measure.P90, Measure.P99)
        if (other.percent or 0.0) < (measure.percent or 0.0)
        and plan_requests(other.least_requests) <= expected
    ]
    return lower[-1] if lower else None
