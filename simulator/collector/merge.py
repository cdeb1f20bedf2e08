"""From what the workers of a group measured to its figures and its verdict. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..contract import (
    GAP_S,
    LEAST_JUDGED_S,
    CatchUp,
    GroupResult,
    LatencyMs,
    Load,
    Queryable,
    QueryResult,
    Role,
    Stall,
    Verification,
    WorkerFigures,
    WorkerOffer,
    WorkerQuery,
    WorkerSpan,
    WorkerTimeline,
)
from ..histograms import encode_histogram, latency_ms, merge_histograms
from .barrier import name_workers
from .verdicts import (
    count_measured,
    judge_offer,
    judge_stages,
    judge_stalls,
    measure_client,
    merge_stages,
)

MIN_OVERLAP = 0.8
"""Below this, the writers did not load the database together, and the run is invalid. Of two workers
one was then at work for less than 90 % of the window on average; of many that end at about the same
time all are together for 88 to 99 % of it, even on a busy machine (runs of 1 to 13 s)."""

_MOST_NAMED = 3
"""Columns that a reason names."""

MOST_EXECUTIONS = 20_000
"""Up to this many executions of a group's queries are kept one by one, in 3 MB of `result.json`. Of more
there are the histograms, and each reader's means."""

MAX_CLOCK_OFFSET_SHARE = 0.05
MIN_CLOCK_OFFSET_S = 0.25
"""How late a worker may have started against the collector's clock: a share of the window, but at
least what a busy machine takes to deliver a message."""


def merge_group(
    load: Load,
    figures: Mapping[int, WorkerFigures],
    nodes: Mapping[int, str],
    clock_offsets_s: Mapping[int, float],
    verification: Verification | None = None,
    varying: Collection[str] | None = (),
    stalls: Sequence[Stall] = (),
) -> GroupResult:
    """The result of a group from what each of its workers measured.

    `load`: the group's; `nodes`: where each worker ran; `verification`: whether what writers stored was
    found, if it was counted; `varying`: readers' queries whose answers may differ in length, as each
    execution has parameters of its own; None: all, as data are written meanwhile; `stalls`: the collector's.
    """
    offsets_s = {worker: clock_offsets_s.get(worker, 0.0) for worker in sorted(figures)}
    parts = {
        worker: _by_collectors_clock(figures[worker], late_s)
        for worker, late_s in offsets_s.items()
    }
    every = list(parts.values())
    measured = sum(map(count_measured, every))
    window_s, overlap = span_of([(part.start_s, part.end_s) for part in every])
    latency = _merge_latency(part.histogram for part in every)
    service = _merge_latency(part.service for part in every)
    seconds, errors = Counter[int](), Counter[str]()
    for part in every:
        seconds.update(dict(part.timeline))
        errors.update(part.errors)
    offers = [part.offer for part in every if part.offer]
    span = min(part.start_s for part in every), max(part.end_s for part in every)
    in_flight = max(part.in_flight for part in every)
    offered = judge_offer(offers, load, in_flight, measured, seconds, span)
    stages = merge_stages(every, load, in_flight, span[1])
    judge_stages(offered, stages, load)
    group = GroupResult(
        role=load.role,
        workers=len(parts),
        count=sum(part.count for part in every),
        window_s=window_s,
        rate_per_s=measured / window_s if window_s > 0 and measured else None,
        overlap=overlap,
        warm_up_s=load.warm_up_s,
        latency_ms=latency[0],
        histogram=latency[1],
        service_ms=service[0],
        service_histogram=service[1],
        offered=offered,
        stages=stages,
        retries=sum(part.retries for part in every),
        errors=dict(sorted(errors.items())),
        timeline=sorted(seconds.items()),
        per_worker=[
            WorkerSpan(
                worker=worker,
                node=nodes[worker],
                start_s=part.start_s,
                end_s=part.end_s,
                count=part.count,
                measured=part.measured,
                cpu_s=part.cpu_s,
                clock_offset_s=offsets_s[worker],
            )
            for worker, part in parts.items()
        ],
        verification=verification,
    )
    if load.role is Role.WRITE:
        mean_duration_s = sum(part.end_s - part.start_s for part in every) / len(every)
        if mean_duration_s > 0:
            group.rate_per_s_mean_duration = measured / mean_duration_s
        group.gaps = _find_common([part.gaps for part in every])
        group.catch_ups = list(_merge_pauses(every, load, span[1]))
        group.slowest_worker = _find_slowest(parts)
        group.invalid_reasons = _find_lost(group, load)
    else:
        group.queries = _merge_queries(query for part in every for query in part.queries)
        group.invalid_reasons = _find_failures(group.queries, varying, load)
    group.client = measure_client(every, load, offered, group.latency_ms)
    group.stalls = _cut_stalls(parts, offsets_s, stalls, span)
    judge_stalls(group, load)
    if _ends_by_executions(load):
        if len(parts) < 2 or window_s < MIN_CLOCK_OFFSET_S:
            # In a shorter time nobody can tell who asked together: a worker's message may be that late.
            group.overlap = None
    elif group.rate_per_s is None:
        group.invalid_reasons.append(explain_nothing(load, window_s, offers))
    elif load.role is Role.WRITE:
        group.invalid_reasons += _find_apart(overlap, load)
    if load.role is Role.WRITE or window_s >= LEAST_JUDGED_S:
        group.invalid_reasons += find_late_starts(offsets_s, window_s)
    return group


def _ends_by_executions(load: Load) -> bool:
    """Whether readers ask each query a number of times, and not until a time is over."""
    return load.role is Role.READ and load.duration_s is None


# --- what all workers have ------------------------------------------------------------------------


def _by_collectors_clock(part: WorkerFigures, offset_s: float) -> WorkerFigures:
    """The figures with times since the collector's start, by the bound of how late the worker started."""
    times = {"start_s": part.start_s + offset_s, "end_s": part.end_s + offset_s}
    return part.model_copy(update=times)


def _cut_stalls(
    parts: Mapping[int, WorkerFigures],
    offsets_s: Mapping[int, float],
    own: Iterable[Stall],
    span: tuple[float, float],
) -> list[Stall]:
    """When workers, and the collector (`own`), stood still in the group's window: also a worker whose own
    window hadn't begun."""
    cut = [stall.cut(0.0, *span) for stall in own]
    for worker, part in parts.items():
        cut += [stall.cut(offsets_s[worker], *span) for stall in part.stalls]
    return sorted((stall for stall in cut if stall), key=lambda stall: stall.begins_s)


def span_of(spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The window from the first start to the last end of all workers, in seconds, and the share of it
    in which all of them were active."""
    window = max(end for _, end in spans) - min(start for start, _ in spans)
    together = min(end for _, end in spans) - max(start for start, _ in spans)
    return window, max(0.0, together) / window if window > 0 else 0.0


def _merge_latency(encoded: Iterable[str | None]) -> tuple[LatencyMs | None, str | None]:
    """Percentiles and histogram of all workers; None if no worker has one."""
    histograms = [histogram for histogram in encoded if histogram is not None]
    if not histograms:
        return None, None
    merged = merge_histograms(histograms)
    return latency_ms(merged), encode_histogram(merged)


def explain_nothing(load: Load, window_s: float, offers: Sequence[WorkerOffer]) -> str:
    """Why there is no rate. `offers`: of an open loop's workers."""
    if load.warm_up_s and (window_s <= 0 or load.duration_s is None):
        return (
            f"nothing was measured: the run ended within its warm-up of {load.warm_up_s:g} s: use"
            " a longer run"
        )
    if load.rate_per_s is not None and not any(offer.due for offer in offers):
        singular, plural = ("event", "events") if load.role is Role.WRITE else ("query", "queries")
        unit = singular if load.rate_per_s == 1 else plural
        each_s = load.events_per_request / load.rate_per_s
        return (
            f"nothing was measured: no request was due in the window of {window_s:.3g} s, since"
            f" there is one every {each_s:.3g} s at {load.rate_per_s:g} {unit} per second: use a"
            f" longer --duration{', a smaller --batch' if load.batch else ''} or a higher rate"
        )
    if load.duration_s is None:
        return "nothing was measured: no window"
    return (
        f"nothing was measured: no answer came within the window of {window_s:.3g} s: use a longer"
        " run"
    )


def find_late_starts(clock_offsets_s: Mapping[int, float], window_s: float) -> list[str]:
    """Which workers started too late for the run to be one: a single reason for all."""
    allowed = max(MIN_CLOCK_OFFSET_S, MAX_CLOCK_OFFSET_SHARE * window_s)
    late = {worker: late_s for worker, late_s in clock_offsets_s.items() if late_s > allowed}
    if not late:
        return []
    return [f"{name_workers(list(late))} started up to {max(late.values()):.2f} s late"]


# --- writers --------------------------------------------------------------------------------------


def _find_lost(group: GroupResult, load: Load) -> list[str]:
    """Why a run is invalid: events weren't acknowledged, or were and aren't there."""
    reasons = []
    planned = load.workers * load.events
    if load.duration_s is None and group.count is not None and group.count < planned:
        reasons.append(f"{planned - group.count} of {planned} events were not acknowledged")
    verification = group.verification
    if verification is not None and not verification.ok:
        reasons.append(_describe_count(verification))
    return reasons


def _describe_count(verification: Verification) -> str:
    """What the database holds instead of the expected events."""
    held = f"{verification.stored} events"
    if verification.partial:
        held = f"{verification.stored} whole events and {verification.partial} incomplete ones"
    text = f"the database holds {held}, {verification.expected} were expected"
    columns = [
        f"column {name} has {found} values instead of {due}"
        for name, (found, due) in verification.columns.items()
    ]
    if len(columns) > _MOST_NAMED:
        columns[_MOST_NAMED:] = [f"{len(columns) - _MOST_NAMED} more columns are wrong"]
    return f"{text}: {', '.join(columns)}" if columns else text


def _find_apart(overlap: float, load: Load) -> list[str]:
    """Why a run is invalid: its writers did not work together for long enough."""
    if overlap >= MIN_OVERLAP:
        return []
    # Rounded down, so that what falls short never reads as enough.
    shown = math.floor(overlap * 1000) / 1000
    needed = f"at least {MIN_OVERLAP:.0%} is needed"
    remedy = "use a longer --duration"
    if load.duration_s is None:
        remedy = "use --duration, which ends all workers at once, or a higher --num-inserts"
    return [f"the workers overlapped in only {shown:.1%} of the window ({needed}): {remedy}"]


def _find_common(gaps: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """What all workers' gaps have in common, where that is long enough to be a gap."""
    common = list(gaps[0])
    for worker_gaps in gaps[1:]:
        common = list(_overlap(common, worker_gaps))
    return [(began, ended) for began, ended in common if ended - began >= GAP_S]


def _overlap(
    first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """What two series of gaps have in common. Both are in order; those of a day are too many to compare each
    with each."""
    place = number = 0
    while place < len(first) and number < len(second):
        began, ended = (
            max(first[place][0], second[number][0]),
            min(first[place][1], second[number][1]),
        )
        if began < ended:
            yield began, ended
        if first[place][1] < second[number][1]:
            place += 1
        else:
            number += 1


def _merge_pauses(every: Sequence[WorkerFigures], load: Load, end_s: float) -> Iterator[CatchUp]:
    """How each time in which the fleet was cut off was made up for, if it began before the run's end."""
    for number, pause in enumerate(load.pauses):
        worker_pauses = [part.pauses[number] for part in every if part.pauses]
        if not worker_pauses or pause.begins_s >= end_s:
            continue
        done_s = [
            worker_pause.caught_up_s
            for worker_pause in worker_pauses
            if worker_pause.caught_up_s is not None
        ]
        yield CatchUp(
            begins_s=pause.begins_s,
            ends_s=pause.ends_s,
            held=sum(worker_pause.held for worker_pause in worker_pauses),
            after_s=max(done_s) - pause.ends_s if len(done_s) == len(worker_pauses) else None,
            lateness_s=max(worker_pause.lateness_s for worker_pause in worker_pauses),
            burst_ms=_merge_latency(worker_pause.burst for worker_pause in worker_pauses)[0],
            later_ms=_merge_latency(worker_pause.after for worker_pause in worker_pauses)[0],
        )


def _find_slowest(parts: Mapping[int, WorkerFigures]) -> WorkerTimeline:
    """The timeline of the worker with the fewest events per second of its own time."""

    def rate(worker: int) -> float:
        part = parts[worker]
        span = part.end_s - part.start_s
        return count_measured(part) / span if span > 0 else 0.0

    slowest = min(parts, key=rate)
    return WorkerTimeline(worker=slowest, timeline=parts[slowest].timeline)


def queryable(group: GroupResult, lag_s: float) -> Queryable | None:
    """The rate at which a run's events could be queried, the last of them `lag_s` after the window."""
    if not (group.count and group.window_s and group.verification and group.verification.ok):
        return None
    measured = (group.rate_per_s or 0.0) * group.window_s
    return Queryable(lag_s=lag_s, events_per_s=measured / (group.window_s + lag_s))


# --- readers --------------------------------------------------------------------------------------


def _merge_queries(queries: Iterable[WorkerQuery]) -> list[QueryResult]:
    """Each query, merged over all readers."""
    by_name: dict[str, list[WorkerQuery]] = {}
    for query in queries:
        by_name.setdefault(query.query, []).append(query)
    keeps_each = (
        sum(len(part.each) for parts in by_name.values() for part in parts) <= MOST_EXECUTIONS
    )
    return [_merge_query(name, parts, keeps_each) for name, parts in by_name.items()]


def _merge_query(name: str, parts: Sequence[WorkerQuery], keeps_each: bool) -> QueryResult:
    """`keeps_each`: with each execution, where that was measured."""
    latency, histogram = _merge_latency(part.histogram for part in parts)
    cold = [part.cold_s for part in parts if part.cold_s is not None]
    return QueryResult(
        query=name,
        executions=sum(part.executions for part in parts),
        errors=sum(part.errors for part in parts),
        error=next((part.error for part in parts if part.error), None),
        rows=sum(part.rows for part in parts),
        bytes=_add_bytes(parts),
        rows_min=min((part.rows_min for part in parts if part.rows_min is not None), default=None),
        rows_max=max((part.rows_max for part in parts if part.rows_max is not None), default=None),
        cold_s=sum(cold) / len(cold) if cold else None,
        warm_s=[part.warm_s / part.warm for part in parts if part.warm],
        latency_ms=latency,
        histogram=histogram,
        service_ms=_merge_latency(part.service for part in parts)[0],
        each=[execution for part in parts for execution in part.each] if keeps_each else [],
    )


def _add_bytes(parts: Sequence[WorkerQuery]) -> int | None:
    """The bytes of all readers' answers; None if a reader couldn't tell: no answer is without any."""
    is_known = all(part.bytes for part in parts if part.executions)
    return sum(part.bytes for part in parts) if is_known else None


def _find_failures(
    queries: Sequence[QueryResult], varying: Collection[str] | None, load: Load
) -> list[str]:
    """What makes the run invalid: failures, and answers of different length."""
    failed: dict[str | None, list[QueryResult]] = {}
    for query in queries:
        if query.errors:
            failed.setdefault(query.error, []).append(query)
    reasons = []
    for error, alike in failed.items():
        times = [f"{query.errors} times" if query.errors > 1 else "once" for query in alike]
        if _ends_by_executions(load):
            reasons += [f"query {query.query} failed: {error}" for query in alike]
        elif len(alike) == 1:
            reasons.append(f"query {alike[0].query} failed {times[0]}: {error}")
        else:
            # A database that goes away fails them all, in the same long words.
            named = (f"{query.query} ({often})" for query, often in zip(alike, times, strict=True))
            reasons.append(f"queries {', '.join(named)} failed: {error}")
    return reasons + [
        f"query {query.query} returned {query.rows_min} to {query.rows_max} rows: the data changed"
        " during the run"
        for query in queries
        if query.rows_min != query.rows_max and varying is not None and query.query not in varying
    ]
