"""What a worker measures, and a result keeps: each model adds up over the workers of a group.

Events are acknowledged, queries answered: of readers, read the one for the other. Times count from the common
start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

from pydantic import Field

from ..histograms import Histogram, merge_histograms
from .message import Count, Instant, Message, Seconds
from .resources import Stall

MIN_ACHIEVED = 0.99
"""The share of what was due that a database acknowledges if it isn't saturated; of the rest, what may be
under way or within chance is no sign of that."""
LEAST_OWN_DELAY_MS = 1.0
"""A request that leaves later than this by the client's own doing shows the client's speed."""
GAP_S = 0.5
"""A time without an acknowledged event is kept from this length on."""


class LatencyMs(Message):
    """Percentiles of the requests' latency over all workers, in milliseconds."""

    p50: float
    p90: float
    p99: float | None = None
    """None of fewer than 100 requests, as is p99.9 of fewer than 1,000: see `simulator.histograms`."""
    p99_9: float | None = None
    max: float

    @classmethod
    def of(cls, histogram: Histogram | None) -> LatencyMs | None:
        """Those of a histogram; None if nothing was recorded."""
        if histogram is None or not histogram.count:
            return None
        p50, p90, p99, p99_9, most = histogram.percentiles_ms([50.0, 90.0, 99.0, 99.9, 100.0])
        assert p50 is not None and p90 is not None and most is not None
        return cls(p50=p50, p90=p90, p99=p99, p99_9=p99_9, max=most)

    @property
    def tail(self) -> float:
        """By which the slowest of several runs is chosen: p99, or the maximum where there is none."""
        return self.max if self.p99 is None else self.p99


def _add_up(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """All requests of these; None if there are none to add."""
    known = [histogram for histogram in histograms if histogram is not None]
    return merge_histograms(known) if known else None


class Timed(Message):
    """How long requests took. Percentiles are those of the histogram, added once the workers' are merged."""

    latency_ms: LatencyMs | None = None
    """From the instant a request was due in an open loop (response time), from the one it was sent in a
    closed loop."""
    histogram: Histogram | None = None
    """Of each request of the window, in µs: base64 of a compressed HDR histogram (V2). With those that were
    due and never sent."""
    service_ms: LatencyMs | None = None
    """Of an open loop: from the instant a request was sent."""
    service_histogram: Histogram | None = None


def _merge_times(parts: Sequence[Timed]) -> dict[str, Any]:
    latency = _add_up(part.histogram for part in parts)
    service = _add_up(part.service_histogram for part in parts)
    return {
        "latency_ms": LatencyMs.of(latency),
        "histogram": latency,
        "service_ms": LatencyMs.of(service),
        "service_histogram": service,
    }


class Offered(Message):
    """An open loop: what was due in the window, and what became of it. A worker says what was due, unsent and
    failed, and how late it was; the collector judges it."""

    rate_per_s: float = 0.0
    """What was asked for."""
    due: Count
    """In the window, by the schedule. Of a run that is ended by its number of events: what the rate comes to
    in the window, and no more than there were."""
    due_s: float | None = None
    """Seconds in which the rate comes to that, of a run that is ended by its number of events; the window
    goes on until all are done."""
    achieved: Count = 0
    """Acknowledged within the window, whenever it was due."""
    unsent: Count = 0
    """Due, but not sent until the run's end: all places in flight were taken. Their response times
    count with the time that they had waited till then."""
    failed: Count = 0
    """Due, and given up: a query that the database didn't answer."""
    backlog_max: int = 0
    """The most that was due and not acknowledged yet, at the end of a second."""
    backlog_growth: int = 0
    """By how much that grew in the last half of the window."""
    backlog: list[tuple[int, int]] = Field(default_factory=list)
    """(second since the common start, due and not acknowledged at its end). Of each `step_s` of the run, the
    second at whose end it was most."""
    due_timeline: list[tuple[Count, Count]] = Field(default_factory=list)
    """(second since the common start, due in it): of a worker. A result has the backlog."""
    saturated: bool = False
    """The database didn't keep up: a true result, and not an error."""
    reason: str | None = None
    """By which sign."""
    own_delay_p99_ms: float | None = None
    """How late requests left though a place in flight was free: the client's own delay."""
    own_delay: Histogram | None = None
    """That of each request, as in `histogram`."""

    @classmethod
    def merge(cls, parts: Sequence[Offered]) -> Self:
        """What was due of all workers together."""
        seconds = Counter[int]()
        for part in parts:
            seconds.update(dict(part.due_timeline))
        own_delay = _add_up(part.own_delay for part in parts)
        late = LatencyMs.of(own_delay)
        return cls(
            due=sum(part.due for part in parts),
            unsent=sum(part.unsent for part in parts),
            failed=sum(part.failed for part in parts),
            due_timeline=sorted(seconds.items()),
            own_delay=own_delay,
            own_delay_p99_ms=late and late.p99,
        )


class StageResult(Message):
    """A stage of a rate that changes, as far as it is in the window. A worker counts what was due and done in
    it; the collector adds the rest."""

    rate_per_s: float = 0.0
    """What was asked for."""
    begins_s: float = 0.0
    """Since the common start, as far as it is in the window."""
    duration_s: float = 0.0
    due: Count
    achieved: Count
    """Acknowledged in the stage and the window, whenever it was due."""
    backlog: Count
    """Due and not acknowledged at its end."""
    saturated: bool = False
    """The database didn't keep up with what was due in it."""
    latency_ms: LatencyMs | None = None
    """Response times of what was due in it."""
    histogram: Histogram | None = None

    @classmethod
    def merge(cls, parts: Sequence[StageResult]) -> Self:
        """The stage as all workers kept to it."""
        histogram = _add_up(part.histogram for part in parts)
        return cls(
            due=sum(part.due for part in parts),
            achieved=sum(part.achieved for part in parts),
            backlog=sum(part.backlog for part in parts),
            latency_ms=LatencyMs.of(histogram),
            histogram=histogram,
        )


class CatchUp(Message):
    """How a time in which the fleet was cut off was made up for."""

    begins_s: float
    ends_s: float
    """From when to when it was cut off, since the common start."""
    held: Count
    """Events that were due by then, and sent once it was back."""
    after_s: float | None = None
    """From when it was back until these, and what became due before that was done, had been acknowledged;
    None: not before the run's end."""
    lateness_s: Seconds
    """The longest time of these from when it was due at its device to its acknowledgement."""
    burst_ms: LatencyMs | None = None
    """Their response times, from when the fleet was back."""
    burst: Histogram | None = None
    later_ms: LatencyMs | None = None
    """Those of all that was due afterwards, until the next such time."""
    later: Histogram | None = None

    @classmethod
    def merge(cls, parts: Sequence[CatchUp]) -> Self:
        """The same of all workers: the last of them decides."""
        after_s = [part.after_s for part in parts if part.after_s is not None]
        burst, later = _add_up(part.burst for part in parts), _add_up(part.later for part in parts)
        return cls(
            begins_s=parts[0].begins_s,
            ends_s=parts[0].ends_s,
            held=sum(part.held for part in parts),
            after_s=max(after_s) if len(after_s) == len(parts) else None,
            lateness_s=max(part.lateness_s for part in parts),
            burst_ms=LatencyMs.of(burst),
            burst=burst,
            later_ms=LatencyMs.of(later),
            later=later,
        )


class Execution(Message):
    """One execution of a query by one reader; `error` instead of the figures if it failed."""

    run: Count
    worker: Count
    duration_s: float | None
    rows: int | None
    bytes: int | None = None
    """Of the answer as it was received, if known."""
    error: str | None = None


class QueryResult(Timed):
    """One query of a reader, or of a group: what was due (in a closed loop: asked) in the window, or of a run
    that is ended by its number of executions, all of them."""

    query: str
    executions: Count
    """Answered."""
    errors: Count = 0
    error: str | None = None
    """What the first that failed said."""
    rows: Count | None = None
    bytes: Count | None = None
    """Of all answers that `executions` counts, together; None if that isn't known."""
    rows_min: Count | None = None
    rows_max: Count | None = None
    """Of a single answer, even in the warm-up."""
    cold_s: Seconds | None = None
    """Mean of each reader's first execution, which may be in the warm-up."""
    warm_s: list[Seconds] = Field(default_factory=list)
    """Each reader's mean over its others: the independent samples."""
    each: list[Execution] = Field(default_factory=list)
    """Of a run that is ended by its number of executions: every one, if the group has 20,000 at most."""

    @classmethod
    def merge(cls, parts: Sequence[QueryResult]) -> Self:
        """One query of several readers."""
        cold = [part.cold_s for part in parts if part.cold_s is not None]
        answered = [part for part in parts if part.executions]
        least = [part.rows_min for part in parts if part.rows_min is not None]
        most = [part.rows_max for part in parts if part.rows_max is not None]
        # No answer is without any bytes.
        is_known = all(part.bytes for part in answered)
        return cls(
            query=parts[0].query,
            executions=sum(part.executions for part in parts),
            errors=sum(part.errors for part in parts),
            error=next((part.error for part in parts if part.error), None),
            rows=sum(part.rows or 0 for part in parts),
            bytes=sum(part.bytes or 0 for part in parts) if is_known else None,
            rows_min=min(least, default=None),
            rows_max=max(most, default=None),
            cold_s=sum(cold) / len(cold) if cold else None,
            warm_s=[mean_s for part in parts for mean_s in part.warm_s],
            each=[execution for part in parts for execution in part.each],
            **_merge_times(parts),
        )


class Measured(Timed):
    """What workers measured, each by itself or all of a group together."""

    offered: Offered | None = None
    """Of an open loop."""
    stages: list[StageResult] = Field(default_factory=list)
    """Of a rate that changes: those that the run came to."""
    stalls: list[Stall] = Field(default_factory=list)
    """When the collector or a worker of this group stood still in the window. Of more than 1,000, the
    longest. What a worker reports has those before and after the window, too."""
    retries: Count = 0
    errors: dict[str, Count] = Field(default_factory=dict)
    """Errors met by kind, those that a retry cured included."""
    timeline: list[tuple[Count, Count]] = Field(default_factory=list)
    """(second since the common start, events acknowledged or queries answered from it on for the run's
    `step_s`) of all workers together."""
    # Of writers.
    gaps: list[tuple[Instant, Instant]] = Field(default_factory=list)
    """From when to when, since the common start, nothing was acknowledged to any worker, where that took
    half a second or more. Of more than 1,000, the longest."""
    catch_ups: list[CatchUp] = Field(default_factory=list)
    """One for each time in which the fleet was cut off."""
    # Of readers.
    queries: list[QueryResult] = Field(default_factory=list)

    @classmethod
    def merge(cls, parts: Sequence[Measured], **own: Any) -> Self:
        """What all workers measured together; `own`: the fields that aren't sums. Stalls aren't merged: each
        worker's clock is late by its own."""
        seconds, errors = Counter[int](), Counter[str]()
        queries: dict[str, list[QueryResult]] = {}
        for part in parts:
            seconds.update(dict(part.timeline))
            errors.update(part.errors)
            for query in part.queries:
                queries.setdefault(query.query, []).append(query)
        gaps: Sequence[tuple[float, float]] = parts[0].gaps
        for part in parts[1:]:
            gaps = list(_overlap(gaps, part.gaps))
        offers = [part.offered for part in parts if part.offered]
        # One of each worker, at the same place.
        stages = zip(*(part.stages for part in parts if part.stages), strict=True)
        catch_ups = zip(*(part.catch_ups for part in parts if part.catch_ups), strict=True)
        return cls(
            offered=Offered.merge(offers) if offers else None,
            stages=[StageResult.merge(own) for own in stages],
            retries=sum(part.retries for part in parts),
            errors=dict(sorted(errors.items())),
            timeline=sorted(seconds.items()),
            gaps=[(began, ended) for began, ended in gaps if ended - began >= GAP_S],
            catch_ups=[CatchUp.merge(own) for own in catch_ups],
            queries=[QueryResult.merge(own) for own in queries.values()],
            **_merge_times(parts),
            **own,
        )


def _overlap(
    first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """What two series of gaps have in common. Both are in order; those of a day are too many to compare each
    with each."""
    place = number = 0
    while place < len(first) and number < len(second):
        began = max(first[place][0], second[number][0])
        ended = min(first[place][1], second[number][1])
        if began < ended:
            yield began, ended
        if first[place][1] < second[number][1]:
            place += 1
        else:
            number += 1


class WorkerFigures(Measured):
    """What one worker measured."""

    histogram: Histogram
    start_s: Instant
    """Of its window: after the warm-up."""
    end_s: Instant
    count: Count
    """Events that were acknowledged, or queries that were answered, warm-up and all."""
    measured: Count
    """Of these, within the window: they count for the rate."""
    cpu_s: Seconds
    """CPU of the whole process in [start_s, end_s]."""
    seconds: list[tuple[Count, Histogram]] = Field(default_factory=list)
    """Of a run with a retention: (second since the common start, latencies of the requests of it); a second
    may be there several times."""
    in_flight: Count = 1
    """Requests that could be under way at once."""
    throttled_share: Seconds | None = None
    """Share of the container's scheduling periods that its CPU limit cut short, if known."""
    generate_s: Seconds = 0.0
    encode_s: Seconds = 0.0
    """CPU spent generating events, or drawing queries, and encoding requests of them, for the window. The
    first are made before it opens, so that this is no part of `cpu_s`."""
    # Of writers.
    ceiling_per_s: float = Field(0.0, ge=0)
    """Events per CPU second that generating and encoding alone would reach in this worker."""
    # Of readers.
    pause_s: Seconds = 0.0
    """Of a closed loop: the time in the window from an answer to the next question, over the places in
    flight together. With one, the database waited so long for this client."""


class WorkerSpan(Message):
    """One worker's share of a run."""

    worker: int
    node: str
    start_s: float
    """Of its window: after the warm-up."""
    end_s: float
    count: int
    """Events that were acknowledged, or queries that were answered."""
    measured: int
    """Of these, within the window."""
    cpu_s: float
    clock_offset_s: float
    """Upper bound of how late this worker started against the collector's clock; its times, which
    count from the collector's start, have it added."""


class WorkerTimeline(Message):
    """What one worker stored over time."""

    worker: int
    timeline: list[tuple[int, int]]
    """(second, events acknowledged from it on for the run's `step_s`)."""


class MinuteLatency(Message):
    """The requests of the window that were answered in a minute. Minutes add up by their histograms."""

    begins_s: int
    """Since the common start."""
    length_s: int = 60
    """More in runs of more than a day."""
    requests: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    """As of the group, at most 1 % off; None of too few requests."""
    histogram: Histogram
    """As of the group, with two significant digits."""
