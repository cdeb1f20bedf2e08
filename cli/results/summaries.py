"""What the runs of a result come to: of writers for each worker count, of readers for each query; and what an
event takes on disk. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.contract import (
    ANY_ALLOCATION,
    Allocation,
    GroupResult,
    Level,
    QueryResult,
    Role,
    RunResult,
    Storage,
    estimate_events,
    measure_growth,
)
from simulator.histograms import has_percentile, merge_histograms, values_at

from .asking import count_bytes, count_rows, find_mean
from .model import GroupRun, InsertSummary, QuerySummary, Result, list_groups
from .statistics import find_percentile, summarize, summarize_times

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram


def summarize_inserts(runs: Sequence[RunResult], by_fill_level: bool) -> list[InsertSummary]:
    """One entry per worker count or fill level that has valid runs, in order of appearance."""
    found: dict[tuple[int, int | None], list[float]] = {}
    for one in list_groups(runs, Role.WRITE):
        if one.group.valid and one.group.rate_per_s is not None:
            key = (one.group.workers, one.run.fill_level if by_fill_level else None)
            found.setdefault(key, []).append(one.group.rate_per_s)
    return [
        InsertSummary(workers=workers, fill_level=level, **vars(summarize(values)))
        for (workers, level), values in found.items()
    ]


def list_valid(runs: Sequence[GroupRun]) -> list[GroupResult]:
    """What the valid ones measured."""
    return [one.group for one in runs if one.group.valid]


def find_slowest(groups: Sequence[GroupResult]) -> GroupResult | None:
    """The one with the highest p99; None without any that has latencies."""
    timed = [one for one in groups if one.latency_ms]
    return max(timed, key=lambda one: one.latency_ms.tail if one.latency_ms else 0.0, default=None)


def find_offered_rate(runs: Sequence[GroupRun]) -> float | None:
    """What was due per second, the mean of the valid runs; of runs that gave no figure, of all."""
    counted = [one.group for one in runs if one.group.valid] or [one.group for one in runs]
    offers = [(group.offered, group.window_s) for group in counted]
    rates = [
        offered.due / (offered.due_s or window_s)
        for offered, window_s in offers
        if offered and window_s
    ]
    return sum(rates) / len(rates) if rates else None


def list_counted(result: Result, entry: InsertSummary) -> list[GroupResult]:
    """The valid runs that a summary is of."""
    own = [one for one in result.writers if entry.fill_level in (None, one.run.fill_level)]
    return [group for group in list_valid(own) if group.workers == entry.workers]


def choose_slowest(result: Result, entry: InsertSummary) -> GroupResult | None:
    """Of these the one with the highest p99, as in the tables."""
    return find_slowest(list_counted(result, entry))


# --- queries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Executions:
    """The executions of one query that were answered, in seconds."""

    cold: Sequence[float]
    """The first of each worker."""
    warm: Mapping[int, Sequence[float]]
    """Worker -> its others."""
    rows: int
    """Of the longest answer."""

    @property
    def counted(self) -> list[float]:
        """The executions that figures are made of: all but the first ones, unless there are no others."""
        return [duration for own in self.warm.values() for duration in own] or list(self.cold)

    @property
    def samples(self) -> list[float]:
        """The executions as independent samples. Workers that ask at once disturb each other, so each
        worker's mean counts once; with a single worker, each execution counts."""
        if len(self.warm) > 1:
            return [sum(own) / len(own) for own in self.warm.values()]
        return self.counted


def list_queries(asked: Sequence[QueryResult]) -> list[str]:
    """The queries that were asked, in order of appearance."""
    return list(dict.fromkeys(one.query for one in asked))


def group_executions(asked: Sequence[QueryResult]) -> dict[str, Executions]:
    """The executions of each query that was answered, where they were kept, in order of appearance."""
    found = {}
    for name in list_queries(asked):
        own = [each for one in asked if one.query == name for each in one.each]
        firsts: dict[int, int] = {}
        for each in own:
            firsts[each.worker] = min(each.run, firsts.get(each.worker, each.run))
        cold: list[float] = []
        warm: dict[int, list[float]] = {}
        for each in own:
            if each.duration_s is None:
                continue
            if each.run == firsts[each.worker]:
                cold.append(each.duration_s)
            else:
                warm.setdefault(each.worker, []).append(each.duration_s)
        if cold or warm:
            rows = max(each.rows or 0 for each in own if each.duration_s is not None)
            found[name] = Executions(cold, warm, rows)
    return found


def collect_query_samples(asked: Sequence[QueryResult], query: str) -> list[float]:
    """The mean times of one query in seconds that stand for independent measurements: one of each run, or
    of a single run one of each reader. Executions of one reader, and readers that ask at once,
    disturb each other."""
    means = [one.warm_s for one in asked if one.query == query and one.warm_s]
    if len(means) == 1:
        return means[0]
    return [sum(each) / len(each) for each in means]


def summarize_queries(runs: Sequence[RunResult]) -> list[QuerySummary]:
    """One entry per query that was answered, over all runs. In an open loop times are response times:
    from when a query was due."""
    groups = [one.group for one in list_groups(runs, Role.READ)]
    asked = [query for group in groups for query in group.queries]
    executions = group_executions(asked)
    found = []
    for name in list_queries(asked):
        own = [one for one in asked if one.query == name]
        if name in executions:
            summary = _summarize_executions(name, executions[name])
        else:
            histogram = merge_histograms(one.histogram for one in own if one.histogram)
            if not histogram.get_total_count():
                continue
            summary = _summarize_histogram(name, histogram, own)
        found.append(summary.model_copy(update=_sum_up_answers(own, groups)))
    return found


def _sum_up_answers(own: Sequence[QueryResult], groups: Sequence[GroupResult]) -> dict[str, Any]:
    """How many answers there were, and how large, by whatever the times were kept."""
    windows = [
        group.window_s
        for group in groups
        if any(query.query == own[0].query for query in group.queries)
    ]
    known = [window for window in windows if window]
    answered = sum(one.executions for one in own)
    return {
        "rows_min": min((one.rows_min for one in own if one.rows_min is not None), default=None),
        "rows_mean": find_mean(own, count_rows),
        "bytes_mean": find_mean(own, count_bytes),
        "per_s": answered / sum(known) if known and len(known) == len(windows) else None,
        "errors": sum(one.errors for one in own),
    }


def _summarize_executions(name: str, executions: Executions) -> QuerySummary:
    counted = executions.counted
    whole, independent = summarize(counted), summarize_times(executions.samples)
    known = {
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
        p90=known.get(90.0),
        p99=known.get(99.0),
        p99_9=known.get(99.9),
    )


def _summarize_histogram(
    name: str, histogram: HdrHistogram, own: Sequence[QueryResult]
) -> QuerySummary:
    cold = [one.cold_s for one in own if one.cold_s is not None]
    means = summarize_times(collect_query_samples(own, name) or cold)
    count, slowest_us = histogram.get_total_count(), histogram.get_max_value()
    percents = (50.0, 90.0, 95.0, 99.0, 99.9)
    values = values_at(histogram, percents)
    known = {
        # Of those that the histogram doesn't tell apart it gives the highest.
        percent: min(value, slowest_us) / 1e6
        for percent, value in zip(percents, values, strict=True)
        if has_percentile(percent, count)
    }
    return QuerySummary(
        query=name,
        runs=count,
        min=histogram.get_min_value() / 1e6,
        max=slowest_us / 1e6,
        avg=means.avg,
        median=known[50.0],
        ci95=means.ci95,
        p95=known[95.0],
        rows=max((one.rows_max for one in own if one.rows_max is not None), default=0),
        cold=sum(cold) / len(cold) if cold else None,
        p90=known[90.0],
        p99=known.get(99.0),
        p99_9=known.get(99.9),
    )


def find_unanswered(asked: Sequence[QueryResult]) -> tuple[list[str], list[str]]:
    """Queries that were never answered: those that failed, and those for which there was no time."""
    answered = {one.query for one in asked if one.executions or one.rows_max is not None}
    failed = {one.query for one in asked if one.errors}
    left = [query for query in list_queries(asked) if query not in answered]
    return [one for one in left if one in failed], [one for one in left if one not in failed]


# --- bytes per event --------------------------------------------------------------------------------


DAY_S = 86_400


@dataclass(frozen=True)
class EventSize:
    """What an event takes on disk, all copies together, or why that isn't known."""

    bytes_per_event: float | None = None
    index_bytes: float | None = None
    """Of it, where indexes are kept apart."""
    compacted_bytes: float | None = None
    """What is left of it by compaction, where that was asked for."""
    reason: str | None = None
    """None, too, if the database tells no size, which has a reason of its own."""

    @property
    def lasting_bytes(self) -> float | None:
        """What counts for days: what compaction leaves, if that is known."""
        return self.bytes_per_event if self.compacted_bytes is None else self.compacted_bytes


def list_event_sizes(runs: Sequence[GroupRun]) -> list[EventSize]:
    """For each run what its events take: by the growth from amid the run, or from the end of the run whose
    data it goes on with, to its own end."""
    befores = [None, *runs[:-1]] if runs else []
    return [weigh(one, before) for before, one in zip(befores, runs, strict=True)]


def weigh_valid(runs: Sequence[GroupRun]) -> list[EventSize]:
    """What an event takes on disk in the valid ones, as far as that is known."""
    weights = zip(runs, list_event_sizes(runs), strict=True)
    return [size for one, size in weights if one.group.valid and size.bytes_per_event is not None]


def weigh_each(runs: Sequence[GroupRun]) -> EventSize:
    """The mean of what an event takes in the runs that show it; else why none does: in that with the most
    events."""
    weights = list_event_sizes(runs)
    found = [one.lasting_bytes for one in weights if one.lasting_bytes is not None]
    if found:
        return EventSize(sum(found) / len(found))
    reasons = [
        (one.group.count or 0, weight.reason)
        for weight, one in zip(weights, runs, strict=True)
        if weight.reason
    ]
    return EventSize(reason=max(reasons)[1] if reasons else None)


def weigh_together(runs: Sequence[GroupRun]) -> EventSize:
    """What an event takes in runs of one kind, each on new tables: as in each of them; where none shows
    enough growth, by what lies between those with fewer and those with more events."""
    each = weigh_each(runs)
    if each.bytes_per_event is not None:
        return each
    sizes = [
        one.group.storage for one in runs if one.group.storage and not one.group.storage.shared
    ]
    allocation = max((_find_allocation(one) for one in sizes), key=_get_unit, default=None)
    if allocation is None:
        return each
    size = measure_growth(_list_levels(sizes), allocation)
    return each if size is None else EventSize(size)


def find_bytes_per_day(
    runs: Sequence[RunResult], at_answer: Iterable[int], rate_per_s: float
) -> float | None:
    """What a rate takes in a day: by the steps at it, or by all where those show too little growth."""
    numbers = set(at_answer)
    writers = list_groups(runs, Role.WRITE)
    size = weigh_together([one for one in writers if one.run.run in numbers]).bytes_per_event
    if size is None:
        size = weigh_together(writers).bytes_per_event
    return None if size is None else size * rate_per_s * DAY_S


def weigh(one: GroupRun, before: GroupRun | None) -> EventSize:
    """What the events of a run take, which may go on with the data of the run before."""
    storage, compacted = one.group.storage, one.group.storage_compacted
    if storage is None or storage.reason or storage.find_level() is None:
        return EventSize()
    sizes = [one.group.storage_during, storage]
    earlier = before.group.storage if before else None
    if earlier is not None and one.run.fill_level == earlier.events:
        sizes.append(earlier)
    levels = _list_levels(sizes)
    size = measure_growth(levels, _find_allocation(storage))
    if size is None:
        return EventSize(reason=_explain(one.group.storage_during, storage, levels))
    return EventSize(
        size,
        index_bytes=_share(size, storage.index_bytes, storage),
        compacted_bytes=_share(size, compacted.total_bytes if compacted else None, storage),
    )


def _share(size: float, part: int | None, storage: Storage) -> float | None:
    return None if part is None or not storage.total_bytes else size * part / storage.total_bytes


def _list_levels(sizes: Iterable[Storage | None]) -> list[Level]:
    found = [one.find_level() for one in sizes if one is not None]
    return [level for level in found if level is not None]


def _find_allocation(storage: Storage) -> Allocation:
    return storage.allocation or ANY_ALLOCATION


def _get_unit(allocation: Allocation) -> int:
    return allocation.unit_bytes


def _explain(during: Storage | None, storage: Storage, levels: Sequence[Level]) -> str:
    """Why growth tells nothing, and how much more does."""
    allocation = _find_allocation(storage)
    if len(levels) < 2 and during is not None and during.reason:
        return f"not known from one fill level: {during.reason}; --steps gives more levels"
    events = estimate_events(storage, allocation) or 0
    if len(levels) < 2 and (storage.events or 0) >= events:
        return (
            "not known from one fill level: no size was taken during the run (too short a run, or an older"
            " version); --steps gives more levels"
        )
    # The estimate was too low if so many didn't do.
    wanted = max(events, 2 * (storage.events or 0))
    return f"not known below about {float(f'{wanted:.2g}'):,.0f} events: {allocation.cause}"
