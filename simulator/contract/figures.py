"""What a worker measures and a result stores: each model adds up over the workers of a group.

For readers, read “queries answered” for “events acknowledged”. Times count from the common start.
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
"""The share of what was due that an unsaturated database acknowledges; a shortfall that may be in flight or
due to chance doesn't count."""
LEAST_OWN_DELAY_MS = 1.0
"""A request sent later than this because of the client shows the client's speed."""
GAP_S = 0.5
"""A time without an acknowledged event is recorded from this length."""


class LatencyMs(Message):
    """Percentiles of the requests' latency over all workers, in milliseconds."""

    p50: float
    p90: float
    p99: float | None = None
    """None for fewer than 100 requests, like p99.9 for fewer than 1,000: see `simulator.histograms`."""
    p99_9: float | None = None
    max: float

    @classmethod
    def of(cls, histogram: Histogram | None) -> LatencyMs | None:
        """The percentiles of a histogram; None if nothing was recorded."""
        if histogram is None or not histogram.count:
            return None
        p50, p90, p99, p99_9, most = histogram.percentiles_ms([50.0, 90.0, 99.0, 99.9, 100.0])
        assert p50 is not None and p90 is not None and most is not None
        return cls(p50=p50, p90=p90, p99=p99, p99_9=p99_9, max=most)

    @property
    def tail(self) -> float:
        """The value that picks the slowest of several runs: p99, or else the maximum."""
        return self.max if self.p99 is None else self.p99


def _add_up(histograms: Iterable[Histogram | None]) -> Histogram | None:
    """All requests of these; None if there are none to add."""
    known = [histogram for histogram in histograms if histogram is not None]
    return merge_histograms(known) if known else None


class Timed(Message):
    """How long requests took. Percentiles come from the histogram, once the workers' are merged."""

    latency_ms: LatencyMs | None = None
    """From when a request was due in an open loop (response time), or sent in a closed loop."""
    histogram: Histogram | None = None
    """For the requests of the window, in µs: base64 of a compressed HDR histogram (V2). Includes requests
    that were due but never sent."""
    service_ms: LatencyMs | None = None
    """In an open loop: from when a request was sent."""
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
    """An open loop: what was due in the window, and the outcome. A worker reports what was due, unsent and
    failed, and how late it was; the collector judges it."""

    rate_per_s: float = 0.0
    """The requested rate."""
    due: Count
    """In the window, by the schedule. For a run ended by its number of events: what the rate amounts to in
    the window, but no more than there were."""
    due_s: float | None = None
    """Seconds in which the rate amounts to that, for a run ended by its number of events; the window lasts
    until all are done."""
    achieved: Count = 0
    """Acknowledged within the window, whenever it was due."""
    unsent: Count = 0
    """Due, but not sent by the end of the run, since the in-flight limit was reached. Their response times
    count with the time they had waited."""
    failed: Count = 0
    """Due, but failed: queries that the database didn't answer."""
    backlog_max: int = 0
    """The most that was due but not acknowledged at the end of any second."""
    backlog_growth: int = 0
    """Growth of that in the second half of the window."""
    backlog: list[tuple[int, int]] = Field(default_factory=list)
    """(second since the common start, due but not acknowledged at its end). For each `step_s` of the run, the
    second with the most."""
    due_timeline: list[tuple[Count, Count]] = Field(default_factory=list)
    """(second since the common start, due in it), for a worker. A result has the backlog instead."""
    saturated: bool = False
    """The database fell behind: a valid result, not an error."""
    reason: str | None = None
    """The evidence."""
    own_delay_p99_ms: float | None = None
    """How late requests were sent although the in-flight limit was not reached: the client's own delay."""
    own_delay: Histogram | None = None
    """The delays of all requests, as in `histogram`."""

    @classmethod
    def merge(cls, parts: Sequence[Offered]) -> Self:
        """The sum over all workers."""
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
    """A stage of a changing rate, as far as it lies in the window. A worker counts what was due and done in
    it; the collector adds the rest."""

    rate_per_s: float = 0.0
    """The requested rate."""
    begins_s: float = 0.0
    """Since the common start, as far as it lies in the window."""
    duration_s: float = 0.0
    due: Count
    achieved: Count
    """Acknowledged in the stage and the window, whenever it was due."""
    backlog: Count
    """Due but not acknowledged at its end."""
    saturated: bool = False
    """The database fell behind with what was due in it."""
    latency_ms: LatencyMs | None = None
    """Response times of what was due in it."""
    histogram: Histogram | None = None

    @classmethod
    def merge(cls, parts: Sequence[StageResult]) -> Self:
        """The stage summed over all workers."""
        histogram = _add_up(part.histogram for part in parts)
        return cls(
            due=sum(part.due for part in parts),
            achieved=sum(part.achieved for part in parts),
            backlog=sum(part.backlog for part in parts),
            latency_ms=LatencyMs.of(histogram),
            histogram=histogram,
        )


class CatchUp(Message):
    """How the backlog was cleared after the fleet was cut off."""

    begins_s: float
    ends_s: float
    """Beginning and end of the cut-off, since the common start."""
    held: Count
    """Events that were due by then, and sent once it was back."""
    after_s: float | None = None
    """Time from its return until these events, and those that became due meanwhile, were acknowledged; None:
    not before the end of the run."""
    lateness_s: Seconds
    """The longest time among these from when an event was due at its device to its acknowledgement."""
    burst_ms: LatencyMs | None = None
    """Their response times, from when the fleet was back."""
    burst: Histogram | None = None
    later_ms: LatencyMs | None = None
    """The response times of all that was due afterwards, until the next cut-off."""
    later: Histogram | None = None

    @classmethod
    def merge(cls, parts: Sequence[CatchUp]) -> Self:
        """The same over all workers: the last one decides."""
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
    """Of the answer as received, if known."""
    error: str | None = None


class QueryResult(Timed):
    """One query of a reader, or of a group: the executions due (in a closed loop: sent) in the window; or all
    of them, for a run ended by its number of executions."""

    query: str
    executions: Count
    """Answered."""
    errors: Count = 0
    error: str | None = None
    """The message of the first failure."""
    rows: Count | None = None
    bytes: Count | None = None
    """Over all answers counted in `executions`; None if unknown."""
    rows_min: Count | None = None
    rows_max: Count | None = None
    """Of a single answer, including the warm-up."""
    cold_s: Seconds | None = None
    """Mean of each reader's first execution, which may be in the warm-up."""
    warm_s: list[Seconds] = Field(default_factory=list)
    """Each reader's mean over its others: the independent samples."""
    each: list[Execution] = Field(default_factory=list)
    """For a run ended by its number of executions: each one, if the group has at most 20,000."""

    @classmethod
    def merge(cls, parts: Sequence[QueryResult]) -> Self:
        """One query of several readers."""
        cold = [part.cold_s for part in parts if part.cold_s is not None]
        answered = [part for part in parts if part.executions]
        least = [part.rows_min for part in parts if part.rows_min is not None]
        most = [part.rows_max for part in parts if part.rows_max is not None]
        # Every answer has some bytes.
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
    """The measurements of one worker, or of a whole group."""

    offered: Offered | None = None
    """For an open loop."""
    stages: list[StageResult] = Field(default_factory=list)
    """For a changing rate: the stages that the run reached."""
    stalls: list[Stall] = Field(default_factory=list)
    """When the collector or a worker of this group stalled in the window. Of more than 1,000, the longest. A
    worker's report also has those before and after the window."""
    retries: Count = 0
    errors: dict[str, Count] = Field(default_factory=dict)
    """Errors by kind, including those cured by a retry."""
    timeline: list[tuple[Count, Count]] = Field(default_factory=list)
    """(second since the common start, events acknowledged or queries answered from it on for the run's
    `step_s`) of all workers together."""
    # Only for writers.
    gaps: list[tuple[Instant, Instant]] = Field(default_factory=list)
    """Beginning and end, since the common start, of periods of at least half a second without an
    acknowledgement to any worker. Of more than 1,000, the longest."""
    catch_ups: list[CatchUp] = Field(default_factory=list)
    """One for each time the fleet was cut off."""
    # Only for readers.
    queries: list[QueryResult] = Field(default_factory=list)

    @classmethod
    def merge(cls, parts: Sequence[Measured], **own: Any) -> Self:
        """The merged measurements of all workers; `own`: the fields that aren't sums. Stalls aren't merged:
        each worker's clock has its own offset."""
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
        # One stage of each worker, at the same position.
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
    """The intersection of two series of gaps, both in order; a day has too many to compare each pair."""
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
    """One worker's measurements."""

    histogram: Histogram
    start_s: Instant
    """Start of its window, after the warm-up."""
    end_s: Instant
    count: Count
    """Events acknowledged, or queries answered, including the warm-up."""
    measured: Count
    """Of these, within the window: they count for the rate."""
    cpu_s: Seconds
    """CPU of the whole process in [start_s, end_s]."""
    seconds: list[tuple[Count, Histogram]] = Field(default_factory=list)
    """For a run with a retention: (second since the common start, latencies of its requests); a second may
    appear several times."""
    in_flight: Count = 1
    """Requests that could be in flight at once."""
    throttled_share: Seconds | None = None
    """Share of the container's scheduling periods in which its CPU limit took effect, if known."""
    generate_s: Seconds = 0.0
    encode_s: Seconds = 0.0
    """CPU spent on generating events, or drawing queries, and on encoding requests, for the window. The first
    ones are made before it opens, so this isn't part of `cpu_s`."""
    # Only for writers.
    ceiling_per_s: float = Field(0.0, ge=0)
    """Events per CPU second that this worker could generate and encode without sending."""
    # Only for readers.
    pause_s: Seconds = 0.0
    """For a closed loop: the time in the window from an answer to the next query, summed over everything in
    flight. With one in flight, the database waited this long for the client."""


class WorkerSpan(Message):
    """One worker's part of a run."""

    worker: int
    node: str
    start_s: float
    """Start of its window, after the warm-up."""
    end_s: float
    count: int
    """Events acknowledged, or queries answered."""
    measured: int
    """Of these, within the window."""
    cpu_s: float
    clock_offset_s: float
    """Upper bound on how late this worker started by the collector's clock; already added to its times, which
    count from the collector's start."""


class WorkerTimeline(Message):
    """One worker's acknowledged events over time."""

    worker: int
    timeline: list[tuple[int, int]]
    """(second, events acknowledged in the `step_s` from then)."""


class MinuteLatency(Message):
    """The requests of the window answered in a minute. Minutes add up by their histograms."""

    begins_s: int
    """Since the common start."""
    length_s: int = 60
    """Longer in runs of more than a day."""
    requests: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    """As for the group, within 1 %; None for too few requests."""
    histogram: Histogram
    """As for the group, with two significant digits."""
