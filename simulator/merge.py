"""From what the workers measured to one run's figures and its verdict. Pure: no I/O, no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from .contract import (
    Client,
    InsertRun,
    Queryable,
    QueryRun,
    Verification,
    WorkerInsert,
    WorkerResult,
    WorkerSpan,
    WorkerTimeline,
)
from .measure import encode_histogram, latency_ms, merge_histograms

MIN_OVERLAP = 0.9
"""Below this, the workers did not load the database together, and the run is invalid."""

BOUND_CPU_SHARE = 0.8
BOUND_THROTTLED_SHARE = 0.01
BOUND_CEILING_SHARE = 0.5
"""From these on, the figure is the client's, not the database's."""

MAX_CLOCK_OFFSET_SHARE = 0.05
MIN_CLOCK_OFFSET_S = 0.25
"""How late a worker may have started against the collector's clock: a share of the window, but at
least what a busy machine takes to deliver a message."""


def merge_inserts(
    results: Mapping[int, WorkerResult],
    clock_offsets_s: Mapping[int, float],
    workers: int,
    num_inserts: int,
    fill_level: int,
    stored: int | None,
    countable: bool,
) -> InsertRun:
    """One run from all workers' results.

    `fill_level`: events in the database before; `stored`: those counted afterwards; `countable`:
    the module stores something that can be counted. Raises KeyError if a result is missing.
    """
    parts = {worker: _inserted(results[worker]) for worker in range(workers)}
    events = sum(part.events for part in parts.values())
    start = min(part.start_s for part in parts.values())
    end = max(part.end_s for part in parts.values())
    window = end - start
    mean_duration = sum(part.end_s - part.start_s for part in parts.values()) / workers
    overlap = mean_duration / window if window > 0 else 0.0
    histogram = merge_histograms(part.histogram for part in parts.values())
    errors: Counter[str] = Counter()
    seconds: Counter[int] = Counter()
    for part in parts.values():
        errors.update(part.errors)
        seconds.update(dict(part.timeline))
    expected = fill_level + events
    verification = Verification(
        expected=expected, stored=stored, ok=stored == expected or not countable
    )
    reasons = []
    lost = workers * num_inserts - events
    if lost:
        reasons.append(f"{lost} of {workers * num_inserts} events were not acknowledged")
    if not verification.ok:
        reasons.append(f"the database holds {stored} events, {expected} were expected")
    if window <= 0:
        reasons.append("nothing was measured: no window")
    elif overlap < MIN_OVERLAP:
        reasons.append(
            f"the workers overlapped only {overlap:.0%} (at least {MIN_OVERLAP:.0%} is needed):"
            " use more --num-inserts"
        )
    reasons += _late_starts(clock_offsets_s, window)
    return InsertRun(
        workers=workers,
        run=1,
        fill_level=fill_level,
        valid=not reasons,
        invalid_reasons=reasons,
        events=events,
        window_s=window,
        inserts_per_s=events / window if window > 0 else None,
        inserts_per_s_mean_duration=events / mean_duration if mean_duration > 0 else None,
        overlap=overlap,
        latency_ms=latency_ms(histogram),
        histogram=encode_histogram(histogram),
        client=client_cost(list(parts.values()), window),
        retries=sum(part.retries for part in parts.values()),
        errors=dict(sorted(errors.items())),
        verification=verification,
        timeline=sorted(seconds.items()),
        slowest_worker=_slowest(parts),
        per_worker=[
            WorkerSpan(
                worker=worker,
                node=results[worker].node,
                start_s=part.start_s,
                end_s=part.end_s,
                events=part.events,
                cpu_s=part.cpu_s,
                clock_offset_s=clock_offsets_s.get(worker, 0.0),
            )
            for worker, part in parts.items()
        ],
    )


def _slowest(parts: Mapping[int, WorkerInsert]) -> WorkerTimeline:
    """The timeline of the worker with the fewest events per second of its own time."""

    def rate(worker: int) -> float:
        part = parts[worker]
        span = part.end_s - part.start_s
        return part.events / span if span > 0 else 0.0

    slowest = min(parts, key=rate)
    return WorkerTimeline(worker=slowest, timeline=parts[slowest].timeline)


def queryable(run: InsertRun, lag_s: float) -> Queryable | None:
    """The rate at which a run's events could be queried, the last of them `lag_s` after the window."""
    if not (run.events and run.window_s and run.verification and run.verification.ok):
        return None
    return Queryable(lag_s=lag_s, events_per_s=run.events / (run.window_s + lag_s))


def _inserted(result: WorkerResult) -> WorkerInsert:
    if result.insert is None:
        raise KeyError(result.worker)
    return result.insert


def _late_starts(clock_offsets_s: Mapping[int, float], window_s: float) -> list[str]:
    allowed = max(MIN_CLOCK_OFFSET_S, MAX_CLOCK_OFFSET_SHARE * window_s)
    return [
        f"worker {worker} started up to {offset:.2f} s late"
        for worker, offset in sorted(clock_offsets_s.items())
        if offset > allowed
    ]


def client_cost(parts: Sequence[WorkerInsert], window_s: float) -> Client:
    """What generating load cost, and whether that was the bottleneck.

    The shares are those of the worker that had the least left: one saturated worker is enough to
    hold a run back, and an average would hide it.
    """
    cpu = sum(part.cpu_s for part in parts)
    spans = [part.end_s - part.start_s for part in parts]
    busiest = max((p.cpu_s / s for p, s in zip(parts, spans, strict=True) if s > 0), default=0.0)
    ceiling_share = max(
        (
            part.events / span / part.ceiling_per_s
            for part, span in zip(parts, spans, strict=True)
            if span > 0 and part.ceiling_per_s > 0
        ),
        default=0.0,
    )
    throttled = [part.throttled_share for part in parts if part.throttled_share is not None]
    worst_throttled = max(throttled, default=None)
    reason = None
    if busiest >= BOUND_CPU_SHARE:
        reason = f"a worker's CPU was busy {busiest:.0%} of the time"
    elif worst_throttled is not None and worst_throttled > BOUND_THROTTLED_SHARE:
        reason = f"a worker's CPU limit cut in in {worst_throttled:.0%} of the periods"
    elif ceiling_share >= 1:
        # Of a tiny run neither figure is exact: such shares as 430 % came of it.
        reason = "a worker ran as fast as building payloads alone allows"
    elif ceiling_share >= BOUND_CEILING_SHARE:
        reason = f"a worker ran at {ceiling_share:.0%} of what building payloads alone allows"
    return Client(
        cpu_s=cpu,
        cpu_share=cpu / (len(parts) * window_s) if window_s > 0 else 0.0,
        generate_s=sum(part.generate_s for part in parts),
        encode_s=sum(part.encode_s for part in parts),
        ceiling_share=ceiling_share,
        throttled_share=worst_throttled,
        bound=reason is not None,
        bound_reason=reason,
    )


def merge_queries(
    results: Mapping[int, WorkerResult], workers: int
) -> tuple[list[QueryRun], list[str]]:
    """All executions, and what makes them invalid: failures, and answers of different length."""
    runs = [run for worker in range(workers) for run in results[worker].queries or []]
    reasons = []
    for name in dict.fromkeys(run.query for run in runs):
        failed = [run for run in runs if run.query == name and run.error]
        if failed:
            reasons.append(f"query {name} failed: {failed[0].error}")
        rows = {run.rows for run in runs if run.query == name and run.rows is not None}
        if len(rows) > 1:
            reasons.append(
                f"query {name} gave {min(rows)} to {max(rows)} rows: the data changed meanwhile"
            )
    return runs, reasons
