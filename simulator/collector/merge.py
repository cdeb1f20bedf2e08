"""From what the workers measured to one run's figures and its verdict. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..contract import (
    GAP_S,
    Client,
    InsertRun,
    LatencyMs,
    Load,
    Offered,
    Queryable,
    QueryRun,
    Role,
    Verification,
    WorkerInsert,
    WorkerOffer,
    WorkerQueries,
    WorkerSpan,
    WorkerTimeline,
)
from ..histograms import encode_histogram, latency_ms, merge_histograms
from .offered import find_own_delay, judge_offer

MIN_OVERLAP = 0.8
"""Below this, the workers did not load the database together, and the run is invalid. Of two workers
one was then at work for less than 90 % of the window on average; of many that end at about the same
time all are together for 88 to 99 % of it, even on a busy machine (runs of 1 to 13 s)."""

BOUND_CPU_SHARE = 0.8
BOUND_CPU_SHARE_ONE_IN_FLIGHT = 0.5
BOUND_THROTTLED_SHARE = 0.1
BOUND_CEILING_SHARE = 0.5
"""From these on, the figure is the client's, not the database's. With one request in flight the database
waits while the client works, so half of the time is enough. A CPU limit that cuts in in a tenth of its
periods can have cost a tenth of the time."""

MAX_CLOCK_OFFSET_SHARE = 0.05
MIN_CLOCK_OFFSET_S = 0.25
"""How late a worker may have started against the collector's clock: a share of the window, but at
least what a busy machine takes to deliver a message."""


def merge_inserts(
    inserts: Mapping[int, WorkerInsert],
    nodes: Mapping[int, str],
    clock_offsets_s: Mapping[int, float],
    load: Load,
    fill_level: int,
    stored: int | None,
) -> InsertRun:
    """One run from what each of its writers measured.

    `nodes`: where each worker ran; `load`: the group's; `fill_level`: events in the database before;
    `stored`: those counted afterwards, None if the module stores nothing.
    """
    parts = {
        worker: _by_collectors_clock(part, clock_offsets_s.get(worker, 0.0))
        for worker, part in sorted(inserts.items())
    }
    events = sum(part.events for part in parts.values())
    measured = sum(_measured(part) for part in parts.values())
    window, overlap = span_of([(part.start_s, part.end_s) for part in parts.values()])
    mean_duration = sum(part.end_s - part.start_s for part in parts.values()) / len(parts)
    histogram = merge_histograms(part.histogram for part in parts.values())
    errors: Counter[str] = Counter()
    seconds: Counter[int] = Counter()
    for part in parts.values():
        errors.update(part.errors)
        seconds.update(dict(part.timeline))
    expected = fill_level + events
    verification = Verification(
        expected=expected, stored=stored, ok=stored is None or stored == expected
    )
    reasons = []
    planned = load.workers * load.events
    if load.duration_s is None and events < planned:
        reasons.append(f"{planned - events} of {planned} events were not acknowledged")
    if not verification.ok:
        reasons.append(f"the database holds {stored} events, {expected} were expected")
    if window <= 0 or not measured:
        offers = [part.offer for part in parts.values() if part.offer]
        reasons.append(explain_nothing(load, window, offers))
    else:
        reasons += _find_apart(overlap, load)
    offsets = {worker: clock_offsets_s.get(worker, 0.0) for worker in parts}
    reasons += find_late_starts(offsets, window)
    offered = judge_offer(
        [part.offer for part in parts.values() if part.offer],
        load,
        max(part.in_flight for part in parts.values()),
        measured,
        seconds,
        (min(part.start_s for part in parts.values()), max(p.end_s for p in parts.values())),
    )
    return InsertRun(
        workers=len(parts),
        run=1,
        fill_level=fill_level,
        valid=not reasons,
        invalid_reasons=reasons,
        events=events,
        window_s=window,
        inserts_per_s=measured / window if window > 0 and measured else None,
        inserts_per_s_mean_duration=measured / mean_duration if mean_duration > 0 else None,
        overlap=overlap,
        warm_up_s=load.warm_up_s,
        latency_ms=latency_ms(histogram),
        histogram=encode_histogram(histogram),
        **merge_service([part.service for part in parts.values()]),
        offered=offered,
        client=client_cost(list(parts.values()), offered, latency_ms(histogram)),
        retries=sum(part.retries for part in parts.values()),
        errors=dict(sorted(errors.items())),
        verification=verification,
        timeline=sorted(seconds.items()),
        gaps=_find_common([part.gaps for part in parts.values()]),
        slowest_worker=_slowest(parts),
        per_worker=[
            WorkerSpan(
                worker=worker,
                node=nodes[worker],
                start_s=part.start_s,
                end_s=part.end_s,
                events=part.events,
                measured=part.measured,
                cpu_s=part.cpu_s,
                clock_offset_s=clock_offsets_s.get(worker, 0.0),
            )
            for worker, part in parts.items()
        ],
    )


def _find_common(
    gaps: Sequence[Sequence[tuple[float, float]]],
) -> list[tuple[float, float]]:
    """What all workers' gaps have in common, where that is long enough to be a gap."""
    common = list(gaps[0])
    for others in gaps[1:]:
        common = [
            (max(began, other), min(ended, end))
            for began, ended in common
            for other, end in others
            if max(began, other) < min(ended, end)
        ]
    return [(began, ended) for began, ended in common if ended - began >= GAP_S]


def _measured(part: WorkerInsert) -> int:
    """Events that count for the rate."""
    return part.events if part.measured is None else part.measured


def explain_nothing(load: Load, window_s: float, offers: Sequence[WorkerOffer]) -> str:
    """Why there is no rate. `offers`: of an open loop's workers."""
    if load.warm_up_s and (window_s <= 0 or load.duration_s is None):
        return (
            f"nothing was measured: the run ended within its warm-up of {load.warm_up_s:g} s; let it"
            " take longer"
        )
    if load.rate_per_s is not None and not any(offer.due for offer in offers):
        one, more = ("event", "events") if load.role is Role.WRITE else ("query", "queries")
        unit = one if load.rate_per_s == 1 else more
        each_s = load.events_per_request / load.rate_per_s
        return (
            f"nothing was measured: no request was due in the window of {window_s:.3g} s, as at"
            f" {load.rate_per_s:g} {unit} per second there is one every {each_s:.3g} s: give a longer"
            f" --duration{', a smaller --batch' if load.batch else ''} or a higher rate"
        )
    if load.duration_s is None:
        return "nothing was measured: no window"
    return (
        f"nothing was measured: no answer came within the window of {window_s:.3g} s; let it take"
        " longer"
    )


def merge_service(encoded: Sequence[str | None]) -> dict[str, Any]:
    """The fields of the service times, which only an open loop has."""
    found = [one for one in encoded if one is not None]
    if not found:
        return {}
    merged = merge_histograms(found)
    return {"service_ms": latency_ms(merged), "service_histogram": encode_histogram(merged)}


def _by_collectors_clock(part: WorkerInsert, offset_s: float) -> WorkerInsert:
    """The worker's times from the collector's start on, by the bound of how late it started."""
    times = {"start_s": part.start_s + offset_s, "end_s": part.end_s + offset_s}
    return part.model_copy(update=times)


def span_of(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The window from the first start to the last end of all workers, in seconds, and the share of it
    in which all of them were active."""
    window = max(end for _, end in spans) - min(start for start, _ in spans)
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    return window, max(0.0, together) / window if window > 0 else 0.0


def _find_apart(overlap: float, load: Load) -> list[str]:
    """What makes a run invalid whose writers did not work together for long enough."""
    if overlap >= MIN_OVERLAP:
        return []
    # Rounded down, so that what falls short never reads as enough.
    shown = math.floor(overlap * 1000) / 1000
    needed = f"at least {MIN_OVERLAP:.0%} is needed"
    remedy = "use a longer --duration"
    if load.duration_s is None:
        remedy = "use --duration, which ends all of them at once, or more --num-inserts"
    return [f"the workers overlapped in only {shown:.1%} of the window ({needed}): {remedy}"]


def _slowest(parts: Mapping[int, WorkerInsert]) -> WorkerTimeline:
    """The timeline of the worker with the fewest events per second of its own time."""

    def rate(worker: int) -> float:
        part = parts[worker]
        span = part.end_s - part.start_s
        return _measured(part) / span if span > 0 else 0.0

    slowest = min(parts, key=rate)
    return WorkerTimeline(worker=slowest, timeline=parts[slowest].timeline)


def queryable(run: InsertRun, lag_s: float) -> Queryable | None:
    """The rate at which a run's events could be queried, the last of them `lag_s` after the window."""
    if not (run.events and run.window_s and run.verification and run.verification.ok):
        return None
    measured = (run.inserts_per_s or 0.0) * run.window_s
    return Queryable(lag_s=lag_s, events_per_s=measured / (run.window_s + lag_s))


def find_late_starts(clock_offsets_s: Mapping[int, float], window_s: float) -> list[str]:
    """Which workers started too late for the run to be one."""
    allowed = max(MIN_CLOCK_OFFSET_S, MAX_CLOCK_OFFSET_SHARE * window_s)
    return [
        f"worker {worker} started up to {offset:.2f} s late"
        for worker, offset in sorted(clock_offsets_s.items())
        if offset > allowed
    ]


def client_cost(
    parts: Sequence[WorkerInsert],
    offered: Offered | None = None,
    latency: LatencyMs | None = None,
) -> Client:
    """What generating load cost, and whether that was the bottleneck; `offered`: of an open loop.

    The shares are those of the worker that had the least left: one saturated worker is enough to
    hold a run back, and an average would hide it.
    """
    cpu = sum(part.cpu_s for part in parts)
    spans = [part.end_s - part.start_s for part in parts]
    busiest = max((p.cpu_s / s for p, s in zip(parts, spans, strict=True) if s > 0), default=0.0)
    ceiling_share = max(
        (
            _measured(part) / span / part.ceiling_per_s
            for part, span in zip(parts, spans, strict=True)
            if span > 0 and part.ceiling_per_s > 0
        ),
        default=0.0,
    )
    throttled = [part.throttled_share for part in parts if part.throttled_share is not None]
    worst_throttled = max(throttled, default=None)
    reason = None
    in_flight = max(part.in_flight for part in parts)
    # Behind its schedule, a worker sends as soon as it can: as in a closed loop.
    at_leisure = offered is not None and not offered.saturated
    one_at_a_time = in_flight == 1 and not at_leisure and busiest >= BOUND_CPU_SHARE_ONE_IN_FLIGHT
    if offered and (late := find_own_delay(offered, latency)):
        reason = late
    elif busiest >= BOUND_CPU_SHARE or one_at_a_time:
        reason = f"a worker's CPU was busy {busiest:.0%} of the time"
        if busiest < BOUND_CPU_SHARE:
            reason += ", while the database waited for its next request"
    elif worst_throttled is not None and worst_throttled >= BOUND_THROTTLED_SHARE:
        reason = f"a worker was stopped by its CPU limit in {worst_throttled:.0%} of the periods"
    elif at_leisure:
        # What it sends is given, however fast it could be.
        pass
    elif ceiling_share >= 1:
        # Neither figure of a tiny run is exact, so their ratio can be as much as 430 %.
        reason = "a worker ran as fast as building payloads alone allows"
    elif ceiling_share >= BOUND_CEILING_SHARE:
        reason = f"a worker ran at {ceiling_share:.0%} of what building payloads alone allows"
    return Client(
        cpu_s=cpu,
        cpu_share=busiest,
        generate_s=sum(part.generate_s for part in parts),
        encode_s=sum(part.encode_s for part in parts),
        ceiling_share=ceiling_share,
        throttled_share=worst_throttled,
        in_flight=in_flight,
        bound=reason is not None,
        bound_reason=reason,
    )


def merge_queries(
    asked: Mapping[int, WorkerQueries],
    clock_offsets_s: Mapping[int, float],
    drawn: Collection[str] = (),
) -> tuple[list[QueryRun], list[str], float | None]:
    """All executions; what makes them invalid: failures, and answers of different length but to queries
    whose parameters are `drawn`; and the share of the time in which all readers asked. None if that can't
    be said."""
    runs = [run for _, part in sorted(asked.items()) for run in part.executions]
    reasons = []
    for name in dict.fromkeys(run.query for run in runs):
        failed = [run for run in runs if run.query == name and run.error]
        if failed:
            reasons.append(f"query {name} failed: {failed[0].error}")
        rows = {run.rows for run in runs if run.query == name and run.rows is not None}
        if len(rows) > 1 and name not in drawn:
            reasons.append(
                f"query {name} gave {min(rows)} to {max(rows)} rows: the data changed meanwhile"
            )
    if len(asked) < 2:
        return runs, reasons, None
    window, overlap = _span_of_readers(asked, clock_offsets_s)
    # In a shorter time nobody can tell: that late a worker's message may be.
    return runs, reasons, overlap if window >= MIN_CLOCK_OFFSET_S else None


def find_query_rate(
    asked: Mapping[int, WorkerQueries], clock_offsets_s: Mapping[int, float]
) -> float | None:
    """Queries per second that were answered; None if none were."""
    answered = sum(run.error is None for part in asked.values() for run in part.executions)
    window = _span_of_readers(asked, clock_offsets_s)[0] if asked else 0.0
    return answered / window if answered and window > 0 else None


def _span_of_readers(
    asked: Mapping[int, WorkerQueries], clock_offsets_s: Mapping[int, float]
) -> tuple[float, float]:
    offsets = {worker: clock_offsets_s.get(worker, 0.0) for worker in asked}
    return span_of([(p.start_s + offsets[w], p.end_s + offsets[w]) for w, p in asked.items()])
