"""Merges the figures of a group's workers, and judges them. Pure: no I/O, no clock."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from ..contract import (
    LEAST_JUDGED_S,
    GroupResult,
    Load,
    Queryable,
    QueryResult,
    Role,
    Stall,
    Verification,
    WorkerFigures,
    WorkerSpan,
    WorkerTimeline,
)
from .barrier import name_workers
from .verdicts import judge_offer, judge_stalls, measure_client

MIN_OVERLAP = 0.8
"""Below this share, the writers did not load the database together, and the run is invalid. With two workers,
one was then active for less than 90 % of the window on average; of many that end at about the same time, all
are active together for 88 to 99 %, even on a busy machine (runs of 1 to 13 s)."""

_MOST_NAMED = 3
"""How many columns a reason names."""

MOST_EXECUTIONS = 20_000
"""Up to this many executions of a group's queries are kept one by one, in 3 MB of `result.json`. If there are
more, only the histograms and each reader's means are kept."""

MAX_CLOCK_OFFSET_SHARE = 0.05
MIN_CLOCK_OFFSET_S = 0.25
"""How late a worker may have started by the collector's clock: a share of the window, but at least the time
that a busy machine takes to deliver a message."""


def merge_group(
    load: Load,
    figures: Mapping[int, WorkerFigures],
    nodes: Mapping[int, str],
    clock_offsets_s: Mapping[int, float],
    verification: Verification | None = None,
    varying: Collection[str] | None = (),
    stalls: Sequence[Stall] = (),
    duration_option: str = "--duration",
    is_level: bool = False,
) -> GroupResult:
    """The result of a group from what each of its workers measured.

    `load`: the group's. `nodes`: where each worker ran. `verification`: whether what writers stored was
    found, if it was counted. `varying`: readers' queries whose answers may differ in length, as each
    execution has its own parameters; None: all, as data are written meanwhile. `stalls`: the collector's.
    `duration_option`: the option that makes runs longer. `is_level`: whether the run fills tables to a level.
    """
    offsets_s = {worker: clock_offsets_s.get(worker, 0.0) for worker in sorted(figures)}
    # By the collector's clock, with the upper bound of how late the worker started.
    parts = {}
    for worker, late_s in offsets_s.items():
        part = figures[worker]
        times = {"start_s": part.start_s + late_s, "end_s": part.end_s + late_s}
        parts[worker] = part.model_copy(update=times)
    every = list(parts.values())
    measured = sum(part.measured for part in every)
    # From the first start to the last end, and the share of that time in which all were active.
    span = min(part.start_s for part in every), max(part.end_s for part in every)
    window_s = span[1] - span[0]
    together_s = min(part.end_s for part in every) - max(part.start_s for part in every)
    overlap = max(0.0, together_s) / window_s if window_s > 0 else 0.0
    group = GroupResult.merge(
        every,
        role=load.role,
        workers=len(parts),
        count=sum(part.count for part in every),
        window_s=window_s,
        rate_per_s=measured / window_s if window_s > 0 and measured else None,
        overlap=overlap,
        warm_up_s=load.warm_up_s,
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
    due = group.offered.due if group.offered else 0
    judge_offer(group, load, max(part.in_flight for part in every), measured, span)
    if load.role is Role.WRITE:
        mean_duration_s = sum(part.end_s - part.start_s for part in every) / len(every)
        if mean_duration_s > 0:
            group.rate_per_s_mean_duration = measured / mean_duration_s
        group.catch_ups = [pause for pause in group.catch_ups if pause.begins_s < span[1]]
        # By each worker's events per second of its own time.
        rates = {
            worker: part.measured / span_s if (span_s := part.end_s - part.start_s) > 0 else 0.0
            for worker, part in parts.items()
        }
        slowest = min(rates, key=rates.__getitem__)
        group.slowest_worker = WorkerTimeline(worker=slowest, timeline=parts[slowest].timeline)
        group.invalid_reasons = _find_lost(group, load)
    else:
        group.gaps = []
        if sum(len(query.each) for query in group.queries) > MOST_EXECUTIONS:
            for query in group.queries:
                query.each = []
        group.invalid_reasons = _find_failures(group.queries, varying, load)
    group.client = measure_client(every, load, group.offered, group.latency_ms)
    # Including a stall of a worker whose own window hadn't begun.
    cut = [stall.cut(0.0, *span) for stall in stalls]
    cut += [
        stall.cut(offsets_s[worker], *span)
        for worker, part in parts.items()
        for stall in part.stalls
    ]
    group.stalls = sorted((stall for stall in cut if stall), key=lambda stall: stall.begins_s)
    judge_stalls(group, load)
    if _ends_by_executions(load) and (len(parts) < 2 or window_s < MIN_CLOCK_OFFSET_S):
        # In a shorter time there is no telling who queried together: a worker's message may be this late.
        group.overlap = None
    judged = 1.0 if is_level else overlap
    group.invalid_reasons += _find_faults(load, window_s, judged, measured, due, duration_option)
    allowed_s = max(MIN_CLOCK_OFFSET_S, MAX_CLOCK_OFFSET_SHARE * window_s)
    late = {worker: late_s for worker, late_s in offsets_s.items() if late_s > allowed_s}
    if late and (load.role is Role.WRITE or window_s >= LEAST_JUDGED_S):
        group.invalid_reasons.append(
            f"{name_workers(list(late))} started up to {max(late.values()):.2f} s late"
        )
    return group


def _ends_by_executions(load: Load) -> bool:
    """Whether readers run each query a number of times, rather than for a time."""
    return load.role is Role.READ and load.duration_s is None


def _find_faults(
    load: Load, window_s: float, overlap: float, measured: int, due: int, duration_option: str
) -> list[str]:
    """Why there is no rate, or only that of workers that didn't run together. `due`: of all workers, in an
    open loop."""
    if _ends_by_executions(load):
        return []
    if measured and window_s > 0:
        if load.role is Role.READ or overlap >= MIN_OVERLAP:
            return []
        # Rounded down, so that a value below the limit never looks sufficient.
        shown = math.floor(overlap * 1000) / 1000
        remedy = f"use a longer {duration_option}"
        if load.duration_s is None:
            remedy = "use --duration, which ends all workers at once, or a higher --num-inserts"
        needed = f"at least {MIN_OVERLAP:.0%} is needed"
        return [f"the workers overlapped in only {shown:.1%} of the window ({needed}): {remedy}"]
    reason = f"no answer came within the window of {window_s:.3g} s: use a longer run"
    if load.warm_up_s and (window_s <= 0 or load.duration_s is None):
        reason = f"the run ended within its warm-up of {load.warm_up_s:g} s: use a longer run"
    elif load.rate_per_s is not None and not due:
        singular, plural = ("event", "events") if load.role is Role.WRITE else ("query", "queries")
        unit = singular if load.rate_per_s == 1 else plural
        each_s = load.events_per_request / load.rate_per_s
        reason = (
            f"no request was due in the window of {window_s:.3g} s, since there is one every"
            f" {each_s:.3g} s at {load.rate_per_s:g} {unit} per second: use a longer"
            f" {duration_option}{', a smaller --batch' if load.batch else ''} or a higher rate"
        )
    elif load.duration_s is None:
        reason = "no window"
    return [f"nothing was measured: {reason}"]


# --- writers --------------------------------------------------------------------------------------


def _find_lost(group: GroupResult, load: Load) -> list[str]:
    """Why a run is invalid: events weren't acknowledged, or were acknowledged but aren't there."""
    reasons = []
    planned = load.total_events
    if load.duration_s is None and group.count is not None and group.count < planned:
        reasons.append(f"{planned - group.count} of {planned} events were not acknowledged")
    verification = group.verification
    if verification is None or verification.ok:
        return reasons
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
    return [*reasons, f"{text}: {', '.join(columns)}" if columns else text]


def queryable(group: GroupResult, lag_s: float) -> Queryable | None:
    """The rate at which a run's events became visible to queries, the last of them `lag_s` after the
    window."""
    if not (group.count and group.window_s and group.verification and group.verification.ok):
        return None
    measured = (group.rate_per_s or 0.0) * group.window_s
    return Queryable(lag_s=lag_s, events_per_s=measured / (group.window_s + lag_s))


# --- readers --------------------------------------------------------------------------------------


def _find_failures(
    queries: Sequence[QueryResult], varying: Collection[str] | None, load: Load
) -> list[str]:
    """What makes the run invalid: failures, and answers of different lengths."""
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
            # A database that goes away fails them all with the same long message.
            named = (f"{query.query} ({often})" for query, often in zip(alike, times, strict=True))
            reasons.append(f"queries {', '.join(named)} failed: {error}")
    return reasons + [
        f"query {query.query} returned {query.rows_min} to {query.rows_max} rows: the data changed"
        " during the run"
        for query in queries
        if query.rows_min != query.rows_max and varying is not None and query.query not in varying
    ]
