"""Summarizes the runs of a result: writers by worker count, readers by query; and computes bytes per event.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pydantic import BaseModel

from simulator.contract import (
    ANY_ALLOCATION,
    Allocation,
    Bounded,
    GroupResult,
    Level,
    QueryResult,
    Role,
    RunResult,
    Storage,
    estimate_events,
    measure_growth,
)
from simulator.histograms import Histogram, has_percentile, merge_histograms

from .statistics import find_percentile, summarize, summarize_times


class InsertSummary(Bounded, BaseModel):
    """The valid runs of one worker count (with `--steps`: of one fill level), in events per second."""

    workers: int
    fill_level: int | None = None
    """With `--steps` only."""
    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    cv: float | None
    stable: bool | None


class QuerySummary(Bounded, BaseModel):
    """The answered executions of one query, in seconds: without each worker's first, unless there are no
    others."""

    query: str
    runs: int
    """Number of executions."""
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    """Of the mean. Concurrent workers disturb each other, so all executions of a worker are one sample; with
    a single worker, each execution is one."""
    p95: float
    rows: int
    """Of the longest answer."""
    cold: float | None = None
    """Mean of the first executions, one per worker; None if none was answered."""
    p90: float | None = None
    p99: float | None = None
    """None for fewer than 100 executions, like p99.9 for fewer than 1,000."""
    p99_9: float | None = None
    rows_min: int | None = None
    """Of the shortest answer."""
    rows_mean: float | None = None
    bytes_mean: float | None = None
    """Of an answer as received; None if unknown."""
    per_s: float | None = None
    """Answered executions, including first ones, ÷ the length of the runs' windows."""
    errors: int = 0
    """Executions without an answer."""


@dataclass(frozen=True)
class GroupRun:
    """A group of workers in a run, with the run: the subject of tables and rules."""

    run: RunResult
    group: GroupResult
    alone: bool = False
    """Whether the run is one of `mixed --baseline` with one group at a time."""


def list_groups(runs: Iterable[RunResult], role: Role, alone: bool = False) -> list[GroupRun]:
    """The group with this role in each run that has one."""
    return [GroupRun(run, group, alone) for run in runs if (group := run.group(role)) is not None]


def summarize_inserts(runs: Sequence[RunResult], by_fill_level: bool) -> list[InsertSummary]:
    """One entry per worker count or fill level that has valid runs, in order of appearance."""
    rates: dict[tuple[int, int | None], list[float]] = {}
    for group_run in list_groups(runs, Role.WRITE):
        if group_run.group.valid and group_run.group.rate_per_s is not None:
            key = (group_run.group.workers, group_run.run.fill_level if by_fill_level else None)
            rates.setdefault(key, []).append(group_run.group.rate_per_s)
    return [
        InsertSummary(workers=workers, fill_level=level, **vars(summarize(values)))
        for (workers, level), values in rates.items()
    ]


def list_valid(runs: Sequence[GroupRun]) -> list[GroupResult]:
    """The valid runs' groups."""
    return [group_run.group for group_run in runs if group_run.group.valid]


def find_slowest(groups: Sequence[GroupResult]) -> GroupResult | None:
    """The group with the highest p99; None if none has latencies."""
    timed = [group for group in groups if group.latency_ms]
    return max(
        timed, key=lambda group: group.latency_ms.tail if group.latency_ms else 0.0, default=None
    )


def find_offered_rate(runs: Sequence[GroupRun]) -> float | None:
    """Events due per second: the mean of the valid runs, or of all runs if none is valid."""
    counted = [group_run.group for group_run in runs if group_run.group.valid] or [
        group_run.group for group_run in runs
    ]
    offers = [(group.offered, group.window_s) for group in counted]
    rates = [
        offered.due / (offered.due_s or window_s)
        for offered, window_s in offers
        if offered and window_s
    ]
    return sum(rates) / len(rates) if rates else None


# --- queries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Executions:
    """The answered executions of one query, in seconds."""

    cold: Sequence[float]
    """The first one of each worker."""
    warm: Mapping[int, Sequence[float]]
    """Worker -> its other executions."""
    rows: int
    """Of the longest answer."""

    @property
    def counted(self) -> list[float]:
        """The executions that count: all but the first ones, unless there are no others."""
        return [time_s for times_s in self.warm.values() for time_s in times_s] or list(self.cold)

    @property
    def samples(self) -> list[float]:
        """The executions as independent samples. Concurrent workers disturb each other, so each worker's mean
        counts once; with a single worker, each execution counts."""
        if len(self.warm) > 1:
            return [sum(times_s) / len(times_s) for times_s in self.warm.values()]
        return self.counted


def list_queries(queries: Sequence[QueryResult]) -> list[str]:
    """The queries that ran, in order of appearance."""
    return list(dict.fromkeys(query.query for query in queries))


def group_executions(queries: Sequence[QueryResult]) -> dict[str, Executions]:
    """The executions of each answered query, where kept, in order of appearance."""
    by_query = {}
    for name in list_queries(queries):
        executions = [
            execution for query in queries if query.query == name for execution in query.each
        ]
        firsts: dict[int, int] = {}
        for execution in executions:
            firsts[execution.worker] = min(
                execution.run, firsts.get(execution.worker, execution.run)
            )
        cold: list[float] = []
        warm: dict[int, list[float]] = {}
        for execution in executions:
            if execution.duration_s is None:
                continue
            if execution.run == firsts[execution.worker]:
                cold.append(execution.duration_s)
            else:
                warm.setdefault(execution.worker, []).append(execution.duration_s)
        if cold or warm:
            rows = max(
                execution.rows or 0 for execution in executions if execution.duration_s is not None
            )
            by_query[name] = Executions(cold, warm, rows)
    return by_query


def collect_query_samples(queries: Sequence[QueryResult], query: str) -> list[float]:
    """The mean times of one query in seconds, as independent samples: one per run or, in a single run, one
    per reader. Executions of one reader, and concurrent readers, disturb each other."""
    means = [result.warm_s for result in queries if result.query == query and result.warm_s]
    if len(means) == 1:
        return means[0]
    return [sum(times_s) / len(times_s) for times_s in means]


def summarize_queries(runs: Sequence[RunResult]) -> list[QuerySummary]:
    """One entry per answered query, over all runs. In an open loop, times are response times: from when a
    query was due."""
    groups = [group_run.group for group_run in list_groups(runs, Role.READ)]
    queries = [query for group in groups for query in group.queries]
    executions = group_executions(queries)
    summaries = []
    for name in list_queries(queries):
        own = [query for query in queries if query.query == name]
        if name in executions:
            summary = _summarize_executions(name, executions[name])
        else:
            histogram = merge_histograms(query.histogram for query in own if query.histogram)
            if not histogram.count:
                continue
            summary = _summarize_histogram(name, histogram, own)
        summaries.append(summary.model_copy(update=_sum_up_answers(own, groups)))
    return summaries


def _sum_up_answers(own: Sequence[QueryResult], groups: Sequence[GroupResult]) -> dict[str, Any]:
    """The number and size of answers, however the times were kept."""
    windows = [
        group.window_s
        for group in groups
        if any(query.query == own[0].query for query in group.queries)
    ]
    measured = [window for window in windows if window]
    answered = sum(query.executions for query in own)
    return {
        "rows_min": min(
            (query.rows_min for query in own if query.rows_min is not None), default=None
        ),
        "rows_mean": find_mean(own, count_rows),
        "bytes_mean": find_mean(own, count_bytes),
        "per_s": answered / sum(measured) if measured and len(measured) == len(windows) else None,
        "errors": sum(query.errors for query in own),
    }


def _summarize_executions(name: str, executions: Executions) -> QuerySummary:
    counted = executions.counted
    whole, independent = summarize(counted), summarize_times(executions.samples)
    percentiles = {
        percent: find_percentile(counted, percent)
        for percent in (90.0, 99.0, 99.9)
        if has_percentile(percent, len(counted))
    }
    return QuerySummary(
        query=name,
        runs=whole.runs,
        min=whole.min,
        max=whole.max,
        avg=independent.avg,
        median=whole.median,
        ci95=independent.ci95,
        p95=find_percentile(counted, 95),
        rows=executions.rows,
        cold=sum(executions.cold) / len(executions.cold) if executions.cold else None,
        p90=percentiles.get(90.0),
        p99=percentiles.get(99.0),
        p99_9=percentiles.get(99.9),
    )


def _summarize_histogram(
    name: str, histogram: Histogram, own: Sequence[QueryResult]
) -> QuerySummary:
    cold = [query.cold_s for query in own if query.cold_s is not None]
    means = summarize_times(collect_query_samples(own, name) or cold)
    count = histogram.count
    fastest_us, slowest_us = histogram.range_us()
    percents = (50.0, 90.0, 95.0, 99.0, 99.9)
    percentiles = {
        percent: value / 1e6
        for percent, value in zip(percents, histogram.values_us(percents), strict=True)
        if has_percentile(percent, count)
    }
    return QuerySummary(
        query=name,
        runs=count,
        min=fastest_us / 1e6,
        max=slowest_us / 1e6,
        avg=means.avg,
        median=percentiles[50.0],
        ci95=means.ci95,
        p95=percentiles[95.0],
        rows=max((query.rows_max for query in own if query.rows_max is not None), default=0),
        cold=sum(cold) / len(cold) if cold else None,
        p90=percentiles[90.0],
        p99=percentiles.get(99.0),
        p99_9=percentiles.get(99.9),
    )


def find_unanswered(queries: Sequence[QueryResult]) -> tuple[list[str], list[str]]:
    """Queries that were never answered: those that failed, and those for which there was no time."""
    answered = {
        result.query for result in queries if result.executions or result.rows_max is not None
    }
    failed = {result.query for result in queries if result.errors}
    unanswered = [query for query in list_queries(queries) if query not in answered]
    return [query for query in unanswered if query in failed], [
        query for query in unanswered if query not in failed
    ]


# --- bytes per event --------------------------------------------------------------------------------


DAY_S = 86_400


@dataclass(frozen=True)
class EventSize:
    """Bytes per event on disk, all copies, or why that is unknown."""

    bytes_per_event: float | None = None
    index_bytes: float | None = None
    """The indexes' share of it, if measured separately."""
    compacted_bytes: float | None = None
    """What compaction leaves of it, if requested."""
    reason: str | None = None
    """Also None if the database reports no size, which has its own reason."""

    @property
    def lasting_bytes(self) -> float | None:
        """What counts in the long run: the size after compaction, if known."""
        return self.bytes_per_event if self.compacted_bytes is None else self.compacted_bytes


def list_event_sizes(runs: Sequence[GroupRun]) -> list[EventSize]:
    """Bytes per event of each run: from the growth between a point during the run, or the end of the run it
    continues, and its own end."""
    befores = [None, *runs[:-1]] if runs else []
    return [weigh(group_run, before) for before, group_run in zip(befores, runs, strict=True)]


def weigh_valid(runs: Sequence[GroupRun]) -> list[EventSize]:
    """Bytes per event in the valid runs, where known."""
    weights = zip(runs, list_event_sizes(runs), strict=True)
    return [
        size
        for group_run, size in weights
        if group_run.group.valid and size.bytes_per_event is not None
    ]


def weigh_each(runs: Sequence[GroupRun]) -> EventSize:
    """The mean bytes per event of the runs that show it; else why none does, from the run with the most
    events."""
    weights = list_event_sizes(runs)
    sizes = [weight.lasting_bytes for weight in weights if weight.lasting_bytes is not None]
    if sizes:
        return EventSize(sum(sizes) / len(sizes))
    reasons = [
        (group_run.group.count or 0, weight.reason)
        for weight, group_run in zip(weights, runs, strict=True)
        if weight.reason
    ]
    return EventSize(reason=max(reasons)[1] if reasons else None)


def weigh_together(runs: Sequence[GroupRun]) -> EventSize:
    """Bytes per event over runs of one kind, each on new tables: their mean or, if none shows enough growth,
    from the difference between runs with fewer and with more events."""
    weight = weigh_each(runs)
    if weight.bytes_per_event is not None:
        return weight
    sizes = [
        group_run.group.storage
        for group_run in runs
        if group_run.group.storage and not group_run.group.storage.shared
    ]
    allocation = max(
        (_find_allocation(storage) for storage in sizes), key=attrgetter("unit_bytes"), default=None
    )
    if allocation is None:
        return weight
    size = measure_growth(_list_levels(sizes), allocation)
    return weight if size is None else EventSize(size)


def find_bytes_per_day(
    runs: Sequence[RunResult], at_answer: Iterable[int], rate_per_s: float
) -> float | None:
    """Bytes on disk per day at a rate: from the steps at that rate, or from all steps if those show too
    little growth."""
    numbers = set(at_answer)
    writers = list_groups(runs, Role.WRITE)
    size = weigh_together(
        [group_run for group_run in writers if group_run.run.run in numbers]
    ).bytes_per_event
    if size is None:
        size = weigh_together(writers).bytes_per_event
    return None if size is None else size * rate_per_s * DAY_S


def weigh(group_run: GroupRun, before: GroupRun | None) -> EventSize:
    """Bytes per event of a run, which may continue the previous run's data."""
    storage, compacted = group_run.group.storage, group_run.group.storage_compacted
    if storage is None or storage.reason or storage.find_level() is None:
        return EventSize()
    sizes = [group_run.group.storage_during, storage]
    earlier = before.group.storage if before else None
    if earlier is not None and group_run.run.fill_level == earlier.events:
        sizes.append(earlier)
    levels = _list_levels(sizes)
    size = measure_growth(levels, _find_allocation(storage))
    if size is None:
        return EventSize(reason=_explain(group_run.group.storage_during, storage, levels))
    return EventSize(
        size,
        index_bytes=_share(size, storage.index_bytes, storage),
        compacted_bytes=_share(size, compacted.total_bytes if compacted else None, storage),
    )


def _share(size: float, part: int | None, storage: Storage) -> float | None:
    return None if part is None or not storage.total_bytes else size * part / storage.total_bytes


def _list_levels(sizes: Iterable[Storage | None]) -> list[Level]:
    levels = [storage.find_level() for storage in sizes if storage is not None]
    return [level for level in levels if level is not None]


def _find_allocation(storage: Storage) -> Allocation:
    return storage.allocation or ANY_ALLOCATION


def _explain(during: Storage | None, storage: Storage, levels: Sequence[Level]) -> str:
    """Why growth says nothing, and how many events would be needed."""
    allocation = _find_allocation(storage)
    if len(levels) < 2 and during is not None and during.reason:
        return f"one fill level is not enough: {during.reason}; --steps gives more levels"
    events = estimate_events(storage, allocation) or 0
    if len(levels) < 2 and (storage.events or 0) >= events:
        return (
            "one fill level is not enough: no size was measured during the run (too short a run, or an"
            " older version); --steps gives more levels"
        )
    # The estimate was too low if this many events weren't enough.
    needed = max(events, 2 * (storage.events or 0))
    return f"needs about {float(f'{needed:.2g}'):,.0f} events or more: {allocation.cause}"


# --- answers ----------------------------------------------------------------------------------------


def count_rows(queries: Iterable[QueryResult]) -> int | None:
    """The rows of all answers together; None if unknown. Without counts, they are known only if each
    execution was kept, or if all have the same number."""
    total = 0
    for query in queries:
        if query.rows is not None:
            total += query.rows
        elif query.each:
            total += sum(execution.rows or 0 for execution in query.each)
        elif query.rows_min == query.rows_max:
            total += query.executions * (query.rows_max or 0)
        else:
            return None
    return total


def count_bytes(queries: Iterable[QueryResult]) -> int | None:
    """The bytes of all answers together; None if unknown."""
    sizes = [query.bytes for query in queries if query.executions or query.bytes]
    measured = [size for size in sizes if size is not None]
    return sum(measured) if measured and len(measured) == len(sizes) else None


Count = Callable[[Iterable[QueryResult]], int | None]


def find_mean(queries: Sequence[QueryResult], count: Count) -> float | None:
    """The mean rows or bytes of an answer; None if unknown, or if nothing was answered."""
    total, answered = count(queries), sum(query.executions for query in queries)
    return total / answered if total is not None and answered else None
