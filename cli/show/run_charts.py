"""What happened in each second of a run, and how long its requests took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.contract import GroupResult, LatencyMs, Mark, MinuteLatency, Resources
from simulator.histograms import Histogram, merge_histograms

from ..results.faults import describe_outages, name_mark
from ..results.figures import PERCENTILES
from ..results.model import GroupRun
from ..results.summaries import list_queries, list_valid
from .chart import Chart, NamedResult, choose_examples, choose_slowest, describe_places
from .tables import format_ms
from .vega import (
    HEIGHT,
    Row,
    draw_area,
    draw_label,
    draw_limit,
    draw_lines,
    draw_mark,
    draw_points,
    draw_series,
    make_axis,
    make_spec,
    needs_log,
)


def draw_over_time(results: Sequence[NamedResult]) -> Chart | None:
    """Events acknowledged in each second by all workers, and by the slowest."""
    alone = len(results) == 1
    examples = [pair for named in results for pair in choose_examples(named, alone)]
    return draw_timelines(examples, f"the slowest valid run {describe_places(results)}")


def draw_timelines(examples: Sequence[tuple[str, GroupRun]], which: str) -> Chart | None:
    """The same for these runs, each under its name. `which`: what they are, in words."""
    rows: list[Row] = []
    warm_ups: set[float] = set()
    disturbed: list[GroupRun] = []
    for name, run in examples:
        group = run.group
        rows += _make_timeline(
            name,
            "all",
            _cut_partial(group.timeline, find_end(group), run.run.step_s),
            run.run.step_s,
        )
        if slowest := group.slowest_worker:
            alone = _cut_partial(slowest.timeline, find_end(group, slowest.worker), run.run.step_s)
            rows += _make_timeline(
                name, "slowest", alone, run.run.step_s, f"worker {slowest.worker}"
            )
        if run.run.marks:
            disturbed.append(run)
        if run.run.resources:
            rows += _make_use(name, run.run.resources)
        rows += _make_minutes(name, group.minutes)
        if group.offered:
            rows += _make_backlog(name, group.offered.backlog)
        if group.warm_up_s:
            warm_ups.add(group.warm_up_s)
    if not rows:
        return None
    panels = []
    texts = {
        "all": "All workers: events/s",
        "slowest": "Slowest worker: events/s",
        "p99": "p99 by the minute: ms",
        "backlog": "Backlog: events",
        "database": "Database: CPUs in use",
    }
    for part, text in texts.items():
        own = [row for row in rows if row["part"] == part]
        if own:
            whole = {"format": "d", "tickMinStep": 1}
            x = make_axis("second", "Seconds since the common start", axis=whole)
            y = make_axis("events", text)
            panel = [area for run in disturbed for area in _draw_gaps(run.group)]
            panel += draw_series(x, y, rows, size=24)
            panel += [draw_limit("x", warm_up) for warm_up in sorted(warm_ups)]
            marks = sorted(
                (mark for run in disturbed for mark in run.run.marks), key=lambda mark: mark.at_s
            )
            panel += [draw_mark(mark.at_s, mark.action) for mark in marks]
            if part == "all":
                panel += _draw_labels(marks, max(row["second"] for row in rows))
            height = HEIGHT if part == "all" else HEIGHT // 2
            panels.append(make_spec(own, panel, height))
    return Chart(
        "time",
        "Throughput over time",
        f"Events acknowledged in each second (of long runs: mean of several) of {which};"
        " a last second that isn't whole is left out. The slowest worker is the one with the fewest"
        " events per second."
        + (_DATABASE_NOTE if any(row["part"] == "database" for row in rows) else "")
        + (_MINUTES_NOTE if any(row["part"] == "p99" for row in rows) else "")
        + (_BACKLOG_NOTE if any(row["part"] == "backlog" for row in rows) else "")
        + (_MARKS_NOTE if disturbed else "")
        + (
            " No other figure includes what is before the dashed line (warm-up)."
            if warm_ups
            else ""
        )
        + "".join(f" {text}" for run in disturbed for text in describe_outages(run)),
        {"vconcat": panels},
    )


_DATABASE_NOTE = " The database's CPU is the mean between two looks at its processes or pods."
_MARKS_NOTE = (
    " Each solid line is a disturbance of the database; grey is the longest time after it in which"
    " nothing was acknowledged."
)
_MINUTES_NOTE = " p99 is of the requests answered in each minute, or in several of a long run."
_BACKLOG_NOTE = " The backlog is what was due and not acknowledged at the end of a second."


_MOST_LABELS = 4
"""That many marks have their texts below each other before the next is at the top again."""


def _draw_labels(marks: Sequence[Mark], last: float) -> list[Row]:
    """The text of each mark, beside its line. `last`: where the x-axis ends."""
    return [
        draw_label(mark.at_s, name_mark(mark), place % _MOST_LABELS, mark.at_s > last / 2)
        for place, mark in enumerate(marks)
    ]


def _draw_gaps(group: GroupResult) -> list[Row]:
    """An area for each outage; one that several marks share is drawn once."""
    return [
        draw_area(
            outage.gap_began_s,
            outage.gap_began_s + outage.gap_s,
            f"nothing was acknowledged for {outage.gap_s:.1f} s",
        )
        for outage in group.outages
        if outage.gap_s and outage.shared_with is None
    ]


MOST_POINTS = 300
"""The most points in a line over time; a longer run is drawn in steps of several seconds."""


def find_end(group: GroupResult, worker: int | None = None) -> float | None:
    """When the last worker ended, or only `worker`, in seconds since the common start; None if not known."""
    ends = [span.end_s for span in group.per_worker if worker in (None, span.worker)]
    return max(ends, default=None)


def _cut_partial(
    timeline: Sequence[tuple[int, int]], end_s: float | None, step_s: int
) -> Sequence[tuple[int, int]]:
    """The timeline without its last step if the run ended in it: it would look like a drop. A single step
    stays."""
    if len(timeline) < 2 or end_s is None:
        return timeline
    used_s = end_s - timeline[-1][0]
    return timeline[:-1] if 0 <= used_s < step_s - _MISSING_S else timeline


_MISSING_S = 0.02
"""A step that lacks no more than this is whole."""


def _make_timeline(
    name: str,
    part: str,
    timeline: Sequence[tuple[int, int]],
    own_s: int,
    workers: str = "all workers",
) -> list[Row]:
    """A row for each step, which has one or several of the timeline's `own_s`. The timeline leaves out those
    in which nothing was acknowledged."""
    events = dict(timeline)
    first, last = min(events, default=0), max(events, default=-own_s) + own_s - 1
    step = max(1, math.ceil((last - first + 1) / own_s / MOST_POINTS)) * own_s
    rows = []
    for begin in range(first, last + 1, step):
        seconds = range(begin, min(begin + step, last + 1))
        stored = sum(events.get(second, 0) for second in seconds)
        span = f"second {begin}" if len(seconds) == 1 else f"seconds {begin} to {seconds[-1]}"
        text = f"{name}, {workers}\n{span}: {stored:,} events"
        rate = stored / len(seconds)
        rows.append({"series": name, "part": part, "second": begin, "events": rate, "text": text})
    return rows


def _make_minutes(name: str, minutes: Sequence[MinuteLatency]) -> list[Row]:
    """A row for each minute, or in a long run for several: their histograms add up."""
    step = max(1, math.ceil(len(minutes) / MOST_POINTS))
    rows = []
    for begin in range(0, len(minutes), step):
        part = minutes[begin : begin + step]
        (p99_ms,) = merge_histograms([minute.histogram for minute in part]).percentiles_ms([99])
        if p99_ms is None:
            continue
        at_s, end_s = part[0].begins_s, part[-1].begins_s + part[-1].length_s
        requests = sum(minute.requests for minute in part)
        text = f"{name}\nseconds {at_s} to {end_s - 1}: p99 {format_ms(p99_ms)} ms of {requests:,} requests"
        rows.append({"series": name, "part": "p99", "second": at_s, "events": p99_ms, "text": text})
    return rows


def _make_backlog(name: str, backlog: Sequence[tuple[int, int]]) -> list[Row]:
    """A row for each step: the most that was waiting at the end of one of its seconds."""
    step = max(1, math.ceil(len(backlog) / MOST_POINTS))
    rows = []
    for begin in range(0, len(backlog), step):
        second, waiting = max(backlog[begin : begin + step], key=lambda entry: entry[1])
        text = f"{name}\nend of second {second}: {waiting:,} events due and not acknowledged"
        rows.append(
            {"series": name, "part": "backlog", "second": second, "events": waiting, "text": text}
        )
    return rows


def _make_use(name: str, used: Resources) -> list[Row]:
    """A row for each step: the mean of its seconds."""
    step = max(1, math.ceil(len(used.timeline) / MOST_POINTS))
    rows = []
    for begin in range(0, len(used.timeline), step):
        part = used.timeline[begin : begin + step]
        second = part[0][0]
        cpus = sum(cpus for _, cpus, _ in part) / len(part)
        memory = max(memory for _, _, memory in part) / 1e6
        text = f"{name}\nfrom second {second}: {cpus:,.2f} CPUs, {memory:,.0f} MB of memory"
        rows.append(
            {"series": name, "part": "database", "second": second, "events": cpus, "text": text}
        )
    return rows


_PERCENTS = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}

MOST_QUERIES = 7
"""Queries in one figure: with more, curves can't be told apart."""

_STEPS = 8
"""Points of the curve for each halving of the share of requests that are slower."""


@dataclass(frozen=True)
class Timed:
    """The subject of a curve."""

    name: str
    latency_ms: LatencyMs
    histograms: Sequence[Histogram]
    """Merged; none if only the percentiles are known."""


def draw_latencies(results: Sequence[NamedResult]) -> Chart | None:
    """The distribution of the requests' latency: a curve over the percentiles where each run has its
    histogram, otherwise the percentiles that it has."""
    chosen = [pair for named in results for pair in choose_slowest(named, alone=len(results) == 1)]
    note = (
        f"Of the run with the highest p99 {describe_places(results)}, retries included. A request is a whole"
        " batch."
    )
    if any(run.group.offered for named in results for run in named.result.writers):
        note += " At a given rate (open loop) it counts from when the request was due: the response time."
    timed = [
        Timed(name, run.group.latency_ms, [run.group.histogram] if run.group.histogram else [])
        for name, run in chosen
        if run.group.latency_ms
    ]
    return draw_curves("latency", "Latency of a request", "the requests", note, timed)


def draw_query_latencies(results: Sequence[NamedResult]) -> Chart | None:
    """The same for each query, for readers whose runs were ended by the clock."""
    timed = []
    for named in results:
        if named.result.by_number:
            continue
        queries = [query for group in list_valid(named.result.readers) for query in group.queries]
        for name in list_queries(queries):
            histograms = [
                query.histogram for query in queries if query.query == name and query.histogram
            ]
            latency = LatencyMs.of(merge_histograms(histograms))
            if latency is not None:
                series = name if len(results) == 1 else f"{name}, {named.name}"
                timed.append(Timed(series, latency, histograms))
    timed.sort(key=lambda subject: -subject.latency_ms.tail)
    note = "All valid runs together."
    if len(timed) > MOST_QUERIES:
        note += f" The {MOST_QUERIES} with the highest p99 of {len(timed)}."
    if any(run.group.offered for named in results for run in named.result.readers):
        note += " At a given rate it counts from when the query was due: the response time."
    return draw_curves(
        "query-latency", "How long queries took", "the queries", note, timed[:MOST_QUERIES]
    )


def draw_curves(kind: str, title: str, of: str, note: str, timed: Sequence[Timed]) -> Chart | None:
    """A curve over the percentiles for each, or where one has no histogram the percentiles that all have."""
    if not timed:
        return None
    rows = [row for subject in timed for row in _list_percentiles(subject)]
    log = needs_log([row["ms"] for row in rows])
    y = make_axis("ms", "Latency, ms", log=log)
    curve = [row for subject in timed for row in _trace(subject)]
    if {row["series"] for row in curve} != {subject.name for subject in timed}:
        x: Row = {"field": "percentile", "type": "ordinal", "title": f"Percentile of {of}",
                  "sort": list(PERCENTILES.values()), "axis": {"labelAngle": 0}}  # fmt: skip
        return Chart(kind, title, note, make_spec(rows, draw_series(x, y, rows)))
    ends = {row["series"]: row["rank"] for row in curve}
    for row in rows:
        # The slowest of n requests is slower than all but one in n.
        row["rank"] = ends[row["series"]] if row["percentile"] == "max" else row["rank"]
    x = make_axis(
        "rank", f"Percentile of {of}, %",
        axis={"values": _list_ticks(max(ends.values())), "labelExpr": _AS_PERCENT},
    )  # fmt: skip
    x["scale"] = {"type": "log", "nice": False}
    line = draw_lines(x, y, rows) | {"data": {"values": curve}}
    note += " The curve runs to the slowest request; the axis stretches its tail."
    return Chart(kind, title, note, make_spec(rows, [line, draw_points(x, y, rows)]))


_AS_PERCENT = "format(100 - 100 / datum.value, '.8~r')"
"""A rank of 1,000, where one request in 1,000 is slower, is written as 99.9 %."""


def _list_ticks(end: float) -> list[float]:
    """Ticks for 50, 90, 99, 99.9 and so on, as ranks: one request in so many is slower."""
    ticks = [1.0, 2.0]
    while 10 * ticks[-1] <= end * 1.0001 or ticks[-1] == 2.0:
        ticks.append(10.0 if ticks[-1] == 2.0 else 10 * ticks[-1])
    return ticks


def _list_percentiles(timed: Timed) -> list[Row]:
    """A row for each percentile that the tables show, too."""
    name, rows = timed.name, []
    for field, percentile in PERCENTILES.items():
        value = getattr(timed.latency_ms, field)
        if value is None:
            continue
        text = f"{name}\n{percentile}: {format_ms(value)} ms"
        rank = 1 / (1 - _PERCENTS.get(field, 0) / 100)
        rows.append(
            {"series": name, "percentile": percentile, "rank": rank, "ms": value, "text": text}
        )
    return rows


def _trace(timed: Timed) -> list[Row]:
    """The curve from the fastest request to the slowest; nothing without a histogram."""
    if not timed.histograms:
        return []
    histogram = merge_histograms(timed.histograms)
    count = histogram.count
    ranks, rank = [], 1.0
    while rank < count:
        ranks.append(rank)
        rank *= 2 ** (1 / _STEPS)
    # The last of all is the slowest; a handful of requests has no longer tail than its number.
    ranks.append(float(max(1, count)))
    percents = [100 - 100 / rank for rank in ranks[:-1]] + [100.0]
    return [
        {"series": timed.name, "rank": rank, "ms": us / 1000}
        for rank, us in zip(ranks, histogram.values_us(percents), strict=True)
    ]
