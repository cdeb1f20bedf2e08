"""Charts of stored results, as Vega-Lite specifications (https://vega.github.io/vega-lite/docs/).

They show what is stored and compute nothing but where to draw it. Each mark carries its exact figures
as a text (`description`), which a page shows on hover and a screen reader reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from simulator.units import format_count

from ..results.model import InsertSummary
from ..results.statistics import count_events_per_cost
from ..results.summaries import group_executions, list_event_sizes
from .bars import (
    MILLISECONDS,
    RATE,
    draw_bars,
    draw_client_cpu,
    draw_clients,
    make_insert_bar,
    rank,
)
from .chart import Chart, NamedResult, describe_run
from .run_charts import draw_latencies, draw_over_time, draw_query_latencies
from .search_charts import draw_over_rate, draw_tuning
from .tables import format_cost, format_ms
from .vega import (
    HEIGHT,
    INK,
    PAPER,
    PHASES,
    Row,
    draw_intervals,
    draw_limit,
    draw_series,
    make_axis,
    make_range_spec,
    make_spec,
    needs_log,
)

_PARTS = {
    "all": "On disk: bytes",
    "indexes": "Indexes: bytes",
    "growth": "Added: bytes/event",
}


def draw_storage(results: Sequence[NamedResult]) -> Chart | None:
    """Bytes after each step, in all and of indexes, and what an event of the step added."""
    rows = [row for named in results if named.result.by_fill_level for row in _make_rows(named)]
    if not rows:
        return None
    panels = []
    for part, title in _PARTS.items():
        own = [row for row in rows if row["part"] == part]
        if own:
            x = make_axis("events", "Events in the database", axis={"format": "~s"})
            y = make_axis("bytes", title, axis={"format": "~s"})
            marks = draw_series(x, y, rows)
            panels.append(make_spec(own, marks, HEIGHT if part == "all" else HEIGHT // 2))
    return Chart(
        "storage",
        "Disk by fill level",
        "What the tables take on disk after each step, all copies counted, with what is allocated ahead of"
        " events. The last panel shows what a step added ÷ its own events, where that is many times what the"
        " database allocates at a time.",
        {"vconcat": panels},
    )


def _make_rows(named: NamedResult) -> list[Row]:
    writers = named.result.writers
    rows = []
    for run, weight in zip(writers, list_event_sizes(writers), strict=True):
        stored = run.group.storage
        if stored is None or not stored.events:
            continue
        sizes = (stored.total_bytes, stored.index_bytes, weight.bytes_per_event)
        for (part, title), size in zip(_PARTS.items(), sizes, strict=True):
            if size is not None:
                label, _, unit = title.partition(":")
                text = f"{named.name}\n{stored.events:,} events: {label} {size:,.10g}{unit}"
                rows.append(
                    {
                        "series": named.name, "part": part, "events": stored.events, "bytes": size,
                        "text": text,
                    }
                )  # fmt: skip
    return rows


MOST_TICKS = 12
"""With up to this many fill levels, each has its own tick."""


def draw_by_workers(results: Sequence[NamedResult]) -> Chart | None:
    """Inserts per second by worker count, with the interval of each mean; a single count is drawn as bars."""
    rows = _list_rates(results, by_fill_level=False)
    if not rows:
        return None
    counts = sorted({row["workers"] for row in rows})
    if len(counts) == 1:
        return _draw_one_count(results, counts[0])
    rates = [row[end] for row in rows for end in ("rate", "low", "high")]
    log = needs_log(rates)
    x = make_axis(
        "workers", "Number of workers", axis={"values": counts, "format": "d"}, zero=False
    )
    return Chart(
        "workers",
        "Throughput by number of workers",
        "Mean over the valid runs of each worker count, with its 95 % interval (Student's t) where"
        " there are two runs or more" + (" (logarithmic axis)." if log else "."),
        make_spec(
            rows,
            [
                draw_intervals(x, make_axis("low", RATE, log=log), "high", rows),
                *draw_series(x, make_axis("rate", RATE, log=log), rows),
            ],
        ),
    )


def _draw_one_count(results: Sequence[NamedResult], workers: int) -> Chart:
    """A bar for each result: a line through a single point says nothing."""
    bars = [
        make_insert_bar(named, entry, named.name)
        for named in results
        if not named.result.by_fill_level
        for entry in named.result.insert_summary
    ]
    title = f"Throughput with {format_count(workers, 'worker')}"
    return draw_bars("workers", title, rank(bars), RATE, most=len(bars))


def draw_by_fill_level(results: Sequence[NamedResult]) -> Chart | None:
    """Inserts per second by what was stored before."""
    rows = _list_rates(results, by_fill_level=True)
    if not rows:
        return None
    levels = sorted({row["level"] for row in rows})
    ticks: Row = {"format": "~s"} | ({"values": levels} if len(levels) <= MOST_TICKS else {})
    x = make_axis("level", "Events in the database before the run", axis=ticks)
    log = needs_log([row["rate"] for row in rows])
    return Chart(
        "fill-level",
        "Throughput by fill level",
        "One run at each level: the variation from run to run is unknown"
        + (" (logarithmic axis)." if log else "."),
        make_spec(rows, draw_series(x, make_axis("rate", RATE, log=log), rows)),
    )


_AFTER_FIRST = "the executions after each worker's first"
_ONLY_FIRST = "the first executions where a query was asked once only"


def draw_queries(results: Sequence[NamedResult]) -> Chart | None:
    """Query times by database."""
    rows: list[Row] = []
    counted: set[str] = set()
    for named in results:
        executions = group_executions(named.result.asked)
        firsts = {query for query, times in executions.items() if not times.warm}
        for entry in named.result.query_summary:
            text = (
                f"{named.name}\n{entry.query}: mean {format_ms(1000 * entry.avg)} ms\n"
                f"{format_ms(1000 * entry.min)} to {format_ms(1000 * entry.max)} ms in"
                f" {format_count(entry.runs, 'execution')}"
            )
            if entry.cold is not None and entry.query not in firsts:
                text += f"\nthe first time {format_ms(1000 * entry.cold)} ms"
            counted.add(_ONLY_FIRST if entry.query in firsts else _AFTER_FIRST)
            rows.append(
                {"series": named.name, "query": entry.query, "mean": 1000 * entry.avg,
                 "low": 1000 * entry.min, "high": 1000 * entry.max, "text": text}
            )  # fmt: skip
    if not rows:
        return None
    log = needs_log([float(row[end]) for row in rows for end in ("low", "high")])
    return Chart(
        "queries",
        "Query times",
        f"Mean of {', or '.join(sorted(counted))}, and the range from the fastest to the slowest"
        + (" (logarithmic axis)." if log else "."),
        make_range_spec(rows, MILLISECONDS, log),
    )


MOST_BARS = 30


def draw_phases(results: Sequence[NamedResult]) -> Chart | None:
    """How long each phase of each run took."""
    bars: list[tuple[str, Mapping[str, float]]] = []
    for named in results:
        prefix = "" if len(results) == 1 else f"{named.name}, "
        if named.result.command == "query":
            bars += [(f"{prefix}all queries", run.phases_s) for run in named.result.runs]
            continue
        shown = [group_run for group_run in named.result.writers if group_run.run.phases_s]
        if len(shown) * len(results) > MOST_BARS:
            firsts = {
                group_run.group.workers: group_run
                for group_run in reversed(shown)
                if group_run.run.run == 1
            }
            shown = sorted(firsts.values(), key=lambda group_run: group_run.group.workers)
        bars += [
            (f"{prefix}{describe_run(named.result, group_run)}", group_run.run.phases_s)
            for group_run in shown
        ]
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
    return Chart(
        "phases",
        "Phases of a run",
        "From starting collector and workers to removing them. The measured window is within the"
        " phase run.",
        make_spec(rows, [bar], height=max(80, 20 * len(bars))),
    )


def draw_client_share(results: Sequence[NamedResult]) -> Chart | None:
    """How busy the load generator itself was."""
    rows: list[Row] = []
    for named in results:
        for workers in dict.fromkeys(run.group.workers for run in named.result.writers):
            pairs = [
                (client, run)
                for run in named.result.writers
                if run.group.workers == workers and run.group.valid and (client := run.group.client)
            ]
            if pairs:
                client, run = max(pairs, key=lambda pair: pair[0].cpu_share)
                bound = f"\nclient-bound: {client.bound_reason}" if client.bound else ""
                share = 100 * client.cpu_share
                text = f"{named.name}\n{describe_run(named.result, run)}: {share:.2f} %{bound}"
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
    label = {
        "data": {"values": [{"limit": 80}]},
        "mark": {"type": "text", "text": "client-bound from here on", "align": "left", "x": 4,
                 "dy": -7, "fill": INK, "fontSize": 12, "aria": False},
        "encoding": {"y": {"field": "limit", "type": "quantitative"}},
    }  # fmt: skip
    return Chart(
        "client",
        "What the client cost",
        "CPU time of the workers ÷ (workers × window), of the busiest run at each worker count. A"
        " client that is busy measures itself, not the database.",
        make_spec(rows, [draw_limit("y", 80), label, *draw_series(x, y, rows)]),
    )


KINDS: dict[str, Callable[[Sequence[NamedResult]], Chart | None]] = {
    "workers": draw_by_workers,
    "fill-level": draw_by_fill_level,
    "storage": draw_storage,
    "queries": draw_queries,
    "rate": draw_over_rate,
    "tuning": draw_tuning,
    "clients": draw_clients,
    "client-cpu": draw_client_cpu,
    "time": draw_over_time,
    "latency": draw_latencies,
    "query-latency": draw_query_latencies,
    "client": draw_client_share,
    "phases": draw_phases,
}
"""All kinds of figure, the most telling first."""


def draw_all(results: Sequence[NamedResult]) -> list[Chart]:
    """Every figure that these results have data for."""
    return [figure for draw in KINDS.values() if (figure := draw(results)) is not None]


SUBTITLE_WIDTH = 100


def add_title(figure: Chart, title: str, remarks: Sequence[str] = ()) -> dict[str, Any]:
    """The figure's specification with a title and its note, to stand alone."""
    lines = [line for text in (figure.note, *remarks) for line in wrap(text, SUBTITLE_WIDTH)]
    return figure.spec | {"title": {"text": title, "subtitle": lines}}


def name_sources(kind: str, named: Sequence[NamedResult]) -> list[str]:
    """A sentence for each source of results in such a figure that this tool didn't measure; those of the
    answer stand beside it, in words."""
    if kind not in KINDS:
        return []
    sources = dict.fromkeys(
        named_result.result.source
        for named_result in named
        if named_result.result.source and KINDS[kind]([named_result]) is not None
    )
    return [f"Not measured by this tool: {source}." for source in sources]


def _list_rates(results: Sequence[NamedResult], by_fill_level: bool) -> list[Row]:
    return [
        _make_row(named, entry)
        for named in results
        if named.result.by_fill_level is by_fill_level
        for entry in named.result.insert_summary
    ]


def _make_row(named: NamedResult, entry: InsertSummary) -> Row:
    place = format_count(entry.workers, "worker")
    if entry.fill_level is not None:
        place += f", {entry.fill_level:,} events before"
    lines = [named.name, f"{place}: {entry.avg:,.1f} inserts/s"]
    if entry.ci95:
        lines.append(f"95 % interval {entry.ci95[0]:,.1f} to {entry.ci95[1]:,.1f}")
    if entry.runs > 1:
        lines.append(f"{entry.runs} runs, median {entry.median:,.1f}")
    cost = named.result.cost_per_hour
    if cost:
        lines.append(f"{format_cost(count_events_per_cost(entry.avg, cost))} per million events")
    low, high = entry.ci95 or (entry.avg, entry.avg)
    return {
        "series": named.name, "workers": entry.workers, "level": entry.fill_level,
        "rate": entry.avg, "low": low, "high": high, "text": "\n".join(lines),
    }  # fmt: skip
