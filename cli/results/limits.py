"""What became of a run's limits, as result.json has it; and what they are about."""

from __future__ import annotations

from enum import StrEnum
from math import ceil

from pydantic import BaseModel

from simulator.contract import (
    Bounded,
    GroupResult,
    LatencyMs,
    Measure,
    QueryResult,
    RunLimit,
)


class Outcome(StrEnum):
    """What became of a limit, or of all limits of a run."""

    KEPT = "kept"
    MISSED = "missed"
    UNDECIDED = "undecided"
    """The run has too few requests, or isn't valid: that is not kept."""


class LimitVerdict(Bounded, BaseModel):
    """One limit in one run."""

    limit: RunLimit
    outcome: Outcome
    figure: float | None = None
    """What the limit is about, in milliseconds or as a share; None if it isn't known."""
    reason: str | None = None
    """Why it can't be decided, or is missed though the figure isn't known."""


class RunVerdict(Bounded, BaseModel):
    """All limits in one run."""

    outcome: Outcome
    """`kept` if each is, and the run is valid and kept up with its rate."""
    reasons: list[str] = []
    """Why they aren't kept, or why that isn't known."""
    limits: list[LimitVerdict]

    @property
    def holds(self) -> bool | None:
        """Whether all limits are kept; None: undecided."""
        return None if self.outcome is Outcome.UNDECIDED else self.outcome is Outcome.KEPT

    @property
    def summary(self) -> str:
        """`p99=100ms missed; error_share=0.1% kept`."""
        return "; ".join(f"{verdict.limit} {verdict.outcome}" for verdict in self.limits)


def sum_up(outcomes: list[Outcome]) -> Outcome:
    """The outcome of several together: kept if all are, missed if one is."""
    worst = (Outcome.MISSED, Outcome.UNDECIDED)
    return next((outcome for outcome in worst if outcome in outcomes), Outcome.KEPT)


# --- what limits are about. Pure. -------------------------------------------------------------------


def measure(
    limit: RunLimit, writers: GroupResult | None, readers: GroupResult | None, per_request: int
) -> float | None:
    """A run's figure that a limit is about, in milliseconds or as a share; None if it isn't known."""
    if limit.query is None:
        if writers is None:
            return None
        if limit.measure is Measure.ERROR_SHARE:
            if writers.count is None:
                return None
            errors = sum(writers.errors.values())
            attempts = ceil(writers.count / per_request) + errors  # of the whole run
            return errors / attempts if attempts else None
        # In a closed loop a request is due when it is sent.
        service = writers.service_ms or writers.latency_ms
        return _find_percentile(limit.measure, writers.latency_ms, service)
    query = find_query(limit.query, readers)
    if query is None:
        return None
    if limit.measure is Measure.ERROR_SHARE:
        attempts = query.executions + query.errors
        return query.errors / attempts if attempts else None
    return _find_percentile(limit.measure, query.latency_ms, query.service_ms or query.latency_ms)


def find_query(name: str, readers: GroupResult | None) -> QueryResult | None:
    """What readers measured of a query; None if they didn't ask it."""
    return (
        next((query for query in readers.queries if query.query == name), None) if readers else None
    )


def _find_percentile(
    measure: Measure, response: LatencyMs | None, service: LatencyMs | None
) -> float | None:
    if measure is Measure.SERVICE_P99:
        return None if service is None else service.p99
    percentile: float | None = getattr(response, measure, None)
    return percentile
