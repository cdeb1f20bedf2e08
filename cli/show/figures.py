"""Figures of stored results, as Vega-Lite specifications (https://vega.github.io/vega-lite/docs/).

They show what is stored and compute nothing but where to draw it. Each mark carries its exact figures
as a text (`description`), which a page shows on hover and a screen reader reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from simulator.contract import InsertRun

from ..results.model import InsertSummary, Result
from ..results.place import format_workers
from ..results.statistics import count_events_per_cost
from .theme import INK, MUTED, PAPER, PHASES
from .vega import (
    HEIGHT,
    Row,
    draw_intervals,
    draw_lines,
    draw_points,
    list_series,
    make_axis,
    make_mark,
    make_spec,
    needs_log,
)

MOST_TICKS = 12
"""With up to this many fill levels, each has its own tick."""


@dataclass(frozen=True)
class Named:
    """A result under the name that it has in a figure."""

    name: str
    result: Result


@dataclass(frozen=True)
class Figure:
    """One figure; `spec` has no title of its own."""

    kind: str
    title: str
    note: str
    """What is shown, in a sentence."""
    spec: dict[str, Any]


def draw_by_workers(results: Sequence[Named]) -> Figure | None:
    """Inserts per second by worker count, with the interval of each mean."""
    rows: list[Row] = []
    for named in results:
        if not named.result.by_fill_level:
            rows += [_make_row(named, entry) for entry in named.result.insert_summary]
    if not rows:
        return None
    counts = sorted({row["workers"] for row in rows})
    x = make_axis(
        "workers", "Number of workers", axis={"values": counts, "format": "d"}, zero=False
    )
    return Figure(
        "workers",
        "Throughput by number of workers",
        "Mean over the valid runs of each worker count, with its 95 % interval (Student's t) where"
        " there are two runs or more.",
        make_spec(
            rows,
            [
                draw_intervals(x, make_axis("low", RATE), "high", rows),
                draw_lines(x, make_axis("rate", RATE), rows),
                draw_points(x, make_axis("rate", RATE), rows),
            ],
        ),
    )


def draw_by_fill_level(results: Sequence[Named]) -> Figure | None:
    """Inserts per second by what was stored before."""
    rows: list[Row] = []
    for named in results:
        if named.result.by_fill_level:
            rows += [_make_row(named, entry) for entry in named.result.insert_summary]
    if not rows:
        return None
    levels = sorted({row["level"] for row in rows})
    ticks: Row = {"format": "~s"} | ({"values": levels} if len(levels) <= MOST_TICKS else {})
    x = make_axis("level", "Events in the database before the run", axis=ticks)
    return Figure(
        "fill-level",
        "Throughput by fill level",
        "One run at each level: how much it would vary from run to run is not known.",
        make_spec(
            rows,
            [
                draw_lines(x, make_axis("rate", RATE), rows),
                draw_points(x, make_axis("rate", RATE), rows),
            ],
        ),
    )


def draw_over_time(results: Sequence[Named]) -> Figure | None:
    """Events acknowledged in each second by all workers, and by the slowest."""
    rows: list[Row] = []
    warm_ups: set[float] = set()
    for named in results:
        for name, run in _choose_examples(named, alone=len(results) == 1):
            rows += _make_timeline(name, "all", run.timeline)
            if run.slowest_worker:
                slowest = run.slowest_worker
                rows += _make_timeline(
                    name, "slowest", slowest.timeline, f"worker {slowest.worker}"
                )
            if run.offered:
                rows += _make_backlog(name, run.offered.backlog)
            if run.warm_up_s:
                warm_ups.add(run.warm_up_s)
    if not rows:
        return None
    panels = []
    texts = {
        "all": "All workers: events/s",
        "slowest": "Slowest worker: events/s",
        "backlog": "Backlog: events",
    }
    for part, text in texts.items():
        own = [row for row in rows if row["part"] == part]
        if own:
            whole = {"format": "d", "tickMinStep": 1}
            x = make_axis("second", "Seconds since the common start", axis=whole)
            y = make_axis("events", text)
            panel = [draw_lines(x, y, rows), draw_points(x, y, rows, size=24)]
            panel += [_draw_limit("x", warm_up) for warm_up in sorted(warm_ups)]
            height = HEIGHT if part == "all" else HEIGHT // 2
            panels.append(make_spec(own, panel, height))
    return Figure(
        "time",
        "Throughput over time",
        "Events acknowledged in each second (of long runs: mean of several) of the slowest valid run"
        f" {_describe_places(results)};"
        " the first and the last second are not whole. The slowest worker is the one with the fewest"
        " events per second."
        + (_BACKLOG_NOTE if any(row["part"] == "backlog" for row in rows) else "")
        + (" What is before the dashed line (warm-up) is in no other figure." if warm_ups else ""),
        {"vconcat": panels},
    )


_BACKLOG_NOTE = " The backlog is what was due and not acknowledged at the end of a second."


def _draw_limit(axis: str, value: float) -> Row:
    """A dashed line across, at a value of one axis."""
    return {
        "data": {"values": [{"limit": value}]},
        "mark": {"type": "rule", "stroke": MUTED, "strokeDash": [4, 4], "aria": False},
        "encoding": {axis: {"field": "limit", "type": "quantitative"}},
    }


PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}


def draw_latencies(results: Sequence[Named]) -> Figure | None:
    """Percentiles of the requests' latency."""
    rows: list[Row] = []
    for named in results:
        for name, run in _choose_slowest(named, alone=len(results) == 1):
            assert run.latency_ms is not None
            for field, percentile in PERCENTILES.items():
                value = getattr(run.latency_ms, field)
                text = f"{name}\n{percentile}: {value:,.3f} ms"
                rows.append({"series": name, "percentile": percentile, "ms": value, "text": text})
    if not rows:
        return None
    order = list(PERCENTILES.values())
    x = {"field": "percentile", "type": "ordinal", "title": "Percentile of the requests",
         "sort": order, "axis": {"labelAngle": 0}}  # fmt: skip
    y = make_axis("ms", "Latency, ms", log=needs_log([row["ms"] for row in rows]))
    return Figure(
        "latency",
        "Latency of a request",
        f"Of the run with the highest p99 {_describe_places(results)}, retries included. A request is a whole"
        " batch."
        + (
            " At a given rate (open loop) it counts from when the request was due: the response time."
            if any(run.offered for named in results for run in named.result.insert_runs)
            else ""
        ),
        make_spec(rows, [draw_lines(x, y, rows), draw_points(x, y, rows)]),
    )


def draw_queries(results: Sequence[Named]) -> Figure | None:
    """Query times by database."""
    rows: list[Row] = []
    for named in results:
        for entry in named.result.query_summary:
            text = (
                f"{named.name}\n{entry.query}: mean {_format_seconds(entry.avg)} s\n"
                f"{_format_seconds(entry.min)} to {_format_seconds(entry.max)} s in"
                f" {_count_executions(entry.runs)}"
            )
            if entry.cold is not None:
                text += f"\nthe first time {_format_seconds(entry.cold)} s"
            rows.append(
                {"series": named.name, "query": entry.query, "mean": entry.avg, "low": entry.min,
                 "high": entry.max, "text": text}
            )  # fmt: skip
    if not rows:
        return None
    names = list(dict.fromkeys(row["query"] for row in rows))
    series = list_series(rows)
    log = needs_log([float(row[end]) for row in rows for end in ("low", "high")])
    y = {
        "field": "query",
        "type": "nominal",
        "title": "Query",
        "sort": names,
        "axis": {"grid": True},
    }
    aside = {"yOffset": {"field": "series", "sort": series}} if len(series) > 1 else {}
    x = make_axis("low", "Seconds", log=log)
    bars = make_mark("rule", rows, x=x, y=y, x2={"field": "high"}, text=True, strokeWidth=2)
    points = draw_points(make_axis("mean", "Seconds", log=log), y, rows)
    for layer in (bars, points):
        layer["encoding"] |= aside
    height = max(160, len(names) * (24 + 14 * len(series)))
    return Figure(
        "queries",
        "Query times",
        "Mean of the executions after each worker's first, and the range from the fastest to the slowest"
        + (" (logarithmic axis)." if log else "."),
        make_spec(rows, [bars, points], height=height),
    )


MOST_BARS = 30


def draw_phases(results: Sequence[Named]) -> Figure | None:
    """How long each phase of each run took."""
    bars: list[tuple[str, Mapping[str, float]]] = []
    for named in results:
        prefix = "" if len(results) == 1 else f"{named.name}, "
        if named.result.phases_s:
            bars.append((f"{prefix}all queries", named.result.phases_s))
        own = [
            (f"{prefix}{_describe_run(named.result, run)}", run.phases_s)
            for run in named.result.insert_runs
            if run.phases_s
        ]
        if len(own) * len(results) > MOST_BARS:
            firsts = {
                (run.workers, run.run == 1): run for run in reversed(named.result.insert_runs)
            }
            shown = [run for run in firsts.values() if run.run == 1 and run.phases_s]
            own = [
                (f"{prefix}{_describe_run(named.result, run)}", run.phases_s)
                for run in sorted(shown, key=lambda run: run.workers)
            ]
        bars += own
    rows = [
        {"run": name, "phase": phase.replace("_", " "), "order": number, "seconds": taken[phase],
         "text": f"{name}\n{phase.replace('_', ' ')}: {taken[phase]:,.3f} s"}
        for name, taken in bars
        for number, phase in enumerate(PHASES)
        if phase in taken
    ]  # fmt: skip
    if not rows:
        return None
    shown_phases = [phase for phase in PHASES if any(phase in taken for _, taken in bars)]
    color = {
        "field": "phase",
        "type": "nominal",
        "scale": {
            "domain": [phase.replace("_", " ") for phase in shown_phases],
            "range": [PHASES[phase] for phase in shown_phases],
        },
        "legend": {"direction": "horizontal", "columns": len(shown_phases)},
    }
    bar = {
        "mark": {"type": "bar", "stroke": PAPER, "strokeWidth": 1},
        "encoding": {
            "y": {
                "field": "run",
                "type": "nominal",
                "title": "Run",
                "axis": {"labelLimit": 420},
                "sort": [b[0] for b in bars],
            },
            "x": make_axis("seconds", "Seconds"),
            "color": color,
            "order": {"field": "order"},
            "description": {"field": "text"},
        },
    }
    return Figure(
        "phases",
        "Phases of a run",
        "From starting collector and workers to removing them. The measured window is within the"
        " phase run.",
        make_spec(rows, [bar], height=max(80, 20 * len(bars))),
    )


def draw_client_share(results: Sequence[Named]) -> Figure | None:
    """How busy the load generator itself was."""
    rows: list[Row] = []
    for named in results:
        counts = dict.fromkeys(run.workers for run in named.result.insert_runs)
        for workers in counts:
            own = [
                r for r in named.result.insert_runs if r.workers == workers and r.valid and r.client
            ]
            if own:
                run = max(own, key=lambda run: run.client.cpu_share if run.client else 0.0)
                assert run.client is not None
                bound = f"\nclient-bound: {run.client.bound_reason}" if run.client.bound else ""
                share = 100 * run.client.cpu_share
                text = f"{named.name}\n{_describe_run(named.result, run)}: {share:.2f} %{bound}"
                rows.append(
                    {"series": named.name, "workers": workers, "share": share, "text": text}
                )
    if not rows:
        return None
    counts_shown = sorted({row["workers"] for row in rows})
    x = make_axis(
        "workers", "Number of workers", axis={"values": counts_shown, "format": "d"}, zero=False
    )
    y = make_axis("share", "Client CPU, % of a core per worker")
    word = {
        "data": {"values": [{"limit": 80}]},
        "mark": {"type": "text", "text": "client-bound from here on", "align": "left", "x": 4,
                 "dy": -7, "fill": INK, "aria": False},
        "encoding": {"y": {"field": "limit", "type": "quantitative"}},
    }  # fmt: skip
    return Figure(
        "client",
        "What the client cost",
        "CPU time of the workers ÷ (workers × window), of the busiest run at each worker count. A"
        " client that is busy itself measures itself.",
        make_spec(
            rows, [_draw_limit("y", 80), word, draw_lines(x, y, rows), draw_points(x, y, rows)]
        ),
    )


KINDS: dict[str, Callable[[Sequence[Named]], Figure | None]] = {
    "workers": draw_by_workers,
    "fill-level": draw_by_fill_level,
    "queries": draw_queries,
    "time": draw_over_time,
    "latency": draw_latencies,
    "client": draw_client_share,
    "phases": draw_phases,
}
"""All kinds of figure, the most telling first."""


def draw_all(results: Sequence[Named]) -> list[Figure]:
    """Every figure that these results have data for."""
    return [figure for draw in KINDS.values() if (figure := draw(results)) is not None]


SUBTITLE_WIDTH = 100


def add_title(figure: Figure, title: str, remarks: Sequence[str] = ()) -> dict[str, Any]:
    """The figure's specification with a title and its note, to stand alone."""
    lines = [line for text in (figure.note, *remarks) for line in wrap(text, SUBTITLE_WIDTH)]
    return figure.spec | {"title": {"text": title, "subtitle": lines}}


def name_sources(kind: str, named: Sequence[Named]) -> list[str]:
    """The sources of what such a figure shows and this tool didn't measure."""
    found = dict.fromkeys(
        one.result.source for one in named if one.result.source and KINDS[kind]([one]) is not None
    )
    return [f"Not measured by this tool: {source}." for source in found]


# --- rows -----------------------------------------------------------------------------------------

RATE = "Inserts/s"


def _make_row(named: Named, entry: InsertSummary) -> Row:
    place = format_workers(entry.workers)
    if entry.fill_level is not None:
        place += f", {entry.fill_level:,} events before"
    lines = [named.name, f"{place}: {entry.avg:,.1f} inserts/s"]
    if entry.ci95:
        lines.append(f"95 % interval {entry.ci95[0]:,.1f} to {entry.ci95[1]:,.1f}")
    if entry.runs > 1:
        lines.append(f"{entry.runs} runs, median {entry.median:,.1f}")
    cost = named.result.cost_per_hour
    if cost:
        lines.append(f"{count_events_per_cost(entry.avg, cost):,.0f} events per unit of money")
    low, high = entry.ci95 or (entry.avg, entry.avg)
    return {
        "series": named.name, "workers": entry.workers, "level": entry.fill_level,
        "rate": entry.avg, "low": low, "high": high, "text": "\n".join(lines),
    }  # fmt: skip


MOST_POINTS = 300
"""The most points in a line over time; a longer run is drawn in steps of several seconds."""


def _make_timeline(
    name: str, part: str, timeline: Sequence[tuple[int, int]], who: str = "all workers"
) -> list[Row]:
    """A row for each step; a second in which nothing was acknowledged is not in the timeline."""
    events = dict(timeline)
    first, last = min(events, default=0), max(events, default=-1)
    step = max(1, math.ceil((last - first + 1) / MOST_POINTS))
    rows = []
    for begin in range(first, last + 1, step):
        seconds = range(begin, min(begin + step, last + 1))
        stored = sum(events.get(second, 0) for second in seconds)
        span = f"second {begin}" if len(seconds) == 1 else f"seconds {begin} to {seconds[-1]}"
        text = f"{name}, {who}\n{span}: {stored:,} events"
        rate = stored / len(seconds)
        rows.append({"series": name, "part": part, "second": begin, "events": rate, "text": text})
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


def _choose_examples(named: Named, alone: bool) -> list[tuple[str, InsertRun]]:
    """The slowest valid run of each worker count (in a series over fill levels: the first and the last
    run); beside other results, only that of the best worker count."""
    result = named.result
    runs = [run for run in result.insert_runs if run.valid and run.timeline and run.inserts_per_s]
    if result.by_fill_level:
        return [
            (_name_run(named, run, alone), run)
            for run in (runs[:1] + runs[-1:] if alone else runs[:1])
        ]
    if not alone and result.best:
        runs = [run for run in runs if run.workers == result.best.workers]
    found: dict[int, InsertRun] = {}
    for run in runs:
        known = found.get(run.workers)
        if known is None or (run.inserts_per_s or 0) < (known.inserts_per_s or 0):
            found[run.workers] = run
    return [(_name_run(named, run, alone), run) for run in found.values()]


def _choose_slowest(named: Named, alone: bool) -> list[tuple[str, InsertRun]]:
    """The run with the highest p99 of each worker count; beside other results, only that of the
    best worker count."""
    result = named.result
    runs = [run for run in result.insert_runs if run.valid and run.latency_ms]
    if not alone and result.best and not result.by_fill_level:
        runs = [run for run in runs if run.workers == result.best.workers]
    found: dict[int, InsertRun] = {}
    for run in runs:
        known = found.get(run.workers)
        if known is None or _find_p99(run) > _find_p99(known):
            found[run.workers] = run
    return [(_name_run(named, run, alone), run) for run in found.values()]


def _describe_places(results: Sequence[Named]) -> str:
    """Where `_choose_examples` and `_choose_slowest` look."""
    return "at each worker count" if len(results) == 1 else "of each result's best worker count"


def _find_p99(run: InsertRun) -> float:
    return run.latency_ms.p99 if run.latency_ms else 0.0


def _name_run(named: Named, run: InsertRun, alone: bool) -> str:
    text = _describe_run(named.result, run)
    return text if alone else f"{named.name}, {text}"


def _describe_run(result: Result, run: InsertRun) -> str:
    if result.by_fill_level:
        return f"level {run.fill_level:,}"
    return f"{format_workers(run.workers)}, run {run.run}"


def _format_seconds(value: float) -> str:
    return f"{value:,.4f}"


def _count_executions(count: int) -> str:
    return f"{count} execution{'s' if count != 1 else ''}"
