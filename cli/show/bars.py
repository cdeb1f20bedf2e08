"""Results beside each other as bars: a mean with its interval, and the single runs as dots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from simulator.units import format_count, format_digits

from ..results.caveats import Place
from ..results.clients import are_asked, choose_columns, collect_figures
from ..results.matrix import collect_samples
from ..results.model import InsertSummary, QuerySummary, Result
from ..results.naming import format_options
from ..results.statistics import summarize
from .chart import Chart, NamedResult
from .vega import INK, PAPER, WIDTH, find_label_step, make_label_axis, needs_log, scale_series

MOST_BARS = 10
"""Bars in the figure of the answer, which should be visible without scrolling."""
MOST_DOTS = 100
"""Dots in one bar; of more runs some are left out, but never the fastest or the slowest."""

RATE, QUERY_RATE = "Inserts/s", "Queries/s"
MILLISECONDS = "Time, ms"
WITHIN_LIMITS = "Capacity, events/s"
_TALLEST_PX = 270
_LABEL_CHARACTERS = 45
"""Characters in a line of a bar's label."""


@dataclass(frozen=True)
class Bar:
    """One figure of one result."""

    name: str
    value: float
    interval: tuple[float, float] | None
    samples: Sequence[float] = ()
    """The runs whose mean it is."""
    series: str = ""
    """What decides its colour; empty: all bars have the same one."""


def draw_answer(results: Sequence[NamedResult]) -> Chart | None:
    """The figure that answers the question: the first of capacity, inserts, mixed runs, fill levels, queries,
    tunings and clients that was measured. Several results each show their best, the fastest first."""
    for kind, (title, usual_unit, collect) in _KINDS.items():
        of_kind = [named for named in results if named.result.kind == kind]
        bars = collect(of_kind)
        if bars:
            if len(of_kind) > 1 and kind not in _IN_ORDER:
                bars = rank(bars)
            unit = usual_unit
            if kind == "tunings" and any(
                named.result.tuning and named.result.tuning.limits for named in of_kind
            ):
                unit = WITHIN_LIMITS
            if kind == "clients" and _are_asked(of_kind):
                unit = QUERY_RATE
            return draw_bars("answer", title, bars, unit, count_fitting(bars))
    return None


def count_fitting(bars: Sequence[Bar]) -> int:
    """How many of the bars a screen has room for: fewer where their names take several lines."""
    lines = max(len(_wrap(bar.name)) for bar in bars[:MOST_BARS])
    return min(MOST_BARS, _TALLEST_PX // find_label_step(lines))


def rank(bars: Sequence[Bar]) -> list[Bar]:
    """The bars, with the highest rate first."""
    return sorted(bars, key=lambda bar: -bar.value)


def draw_bars(
    kind: str, title: str, bars: Sequence[Bar], unit: str, most: int, sample: str = "run"
) -> Chart:
    """The bars from top to bottom; those beyond `most` are left out, and counted in the note. `sample`: what
    a bar is the mean of."""
    shown = list(bars[:most])
    ends = [end for bar in shown for end in (bar.value, *(bar.interval or ()), *bar.samples)]
    log = needs_log(ends)
    note = "Mean over the valid runs" if sample == "run" else f"Mean over the {sample}s"
    if any(bar.interval for bar in shown):
        note += ", with its 95 % interval"
    if any(len(bar.samples) > 1 for bar in shown):
        note += f"; each dot is a {'single run' if sample == 'run' else sample}"
    if log:
        note += ". The axis is logarithmic: read where a bar ends, not its length"
    if len(bars) > most:
        note += f". {len(bars) - most:,} more are in the tables below"
    if unit == _CAPACITY:
        note = "The highest rate that held; the line ends at the lowest that didn't"
    return Chart(kind, title, f"{note}.", _make_spec(shown, unit, log, sample))


def make_insert_bar(named: NamedResult, entry: InsertSummary, name: str) -> Bar:
    """The bar for the runs of one worker count, or of one fill level."""
    place = Place(workers=entry.workers)
    if named.result.by_fill_level:
        place = Place(level=entry.fill_level)
    samples = collect_samples(named.result).get(place, [])
    return Bar(name, entry.avg, entry.ci95, samples)


def _collect_inserts(results: Sequence[NamedResult]) -> list[Bar]:
    """All worker counts of a single result; the best one of each of several."""
    if len(results) == 1:
        (named,) = results
        return [
            make_insert_bar(named, entry, _name_entry(entry))
            for entry in named.result.insert_summary
        ]
    best = [(named, named.result.best) for named in results]
    summaries = [(named, entry) for named, entry in best if entry is not None]
    alike = len({_name_entry(entry) for _, entry in summaries}) == 1
    return [
        make_insert_bar(
            named, entry, named.name if alike else f"{named.name}, {_name_entry(entry)}"
        )
        for named, entry in summaries
    ]


def _name_entry(entry: InsertSummary) -> str:
    if entry.fill_level is not None:
        return f"level {entry.fill_level:,}"
    return format_count(entry.workers, "worker")


def _collect_capacities(results: Sequence[NamedResult]) -> list[Bar]:
    capacities = [(named.name, named.result.capacity) for named in results]
    return [
        Bar(
            name,
            capacity.events_per_s,
            (capacity.events_per_s, capacity.above_per_s) if capacity.above_per_s else None,
        )
        for name, capacity in capacities
        if capacity is not None and capacity.events_per_s
    ]


def _collect_queries(results: Sequence[NamedResult]) -> list[Bar]:
    """All results for the first query beside each other, then those for the next."""
    entries: dict[str, list[tuple[NamedResult, QuerySummary]]] = {}
    for named in results:
        for entry in named.result.query_summary:
            entries.setdefault(entry.query, []).append((named, entry))
    return [
        Bar(
            entry.query if len(results) == 1 else f"{entry.query}, {named.name}",
            1000 * entry.avg,
            entry.ci95 and (1000 * entry.ci95[0], 1000 * entry.ci95[1]),
            _list_executions(named.result, entry.query),
        )
        for pairs in entries.values()
        for named, entry in pairs
    ]


def _list_executions(result: Result, query: str) -> list[float]:
    return [1000 * time_s for time_s in collect_samples(result).get(Place(query=query), [])]


def _collect_tunings(results: Sequence[NamedResult]) -> list[Bar]:
    """The combinations that a single tuning compared at the end; the best one of each of several."""
    bars = []
    for named in results:
        tuning = named.result.tuning
        if tuning is None:
            continue
        ranked = tuning.rank_finalists()
        for candidate in ranked if len(results) == 1 else ranked[:1]:
            settings = format_options(tuning.candidates[candidate])
            rates = summarize(tuning.find_rates(candidate, tuning.stages))
            name = settings if len(results) == 1 else f"{named.name}, {settings}"
            samples = tuning.find_rates(candidate, tuning.stages)
            bars.append(Bar(name, rates.avg, rates.ci95, samples))
    return bars


def collect_clients(results: Sequence[NamedResult], cpu: bool = False) -> list[Bar]:
    """A bar for each client of each comparison, the lean path first. These are comparisons of clients that
    insert, or if there are none, of clients that ask. `cpu`: not their rates, but their CPU for each."""
    asks = _are_asked(results)
    compared = [
        named
        for named in results
        if named.result.clients is not None and named.result.clients.asks is asks
    ]
    columns = choose_columns([named.result for named in compared])
    bars = []
    for named in compared:
        for client, figures in collect_figures([named.result]).items():
            if samples := figures.get(columns.cpu if cpu else columns.rate):
                summary = summarize(samples)
                label = client if len(compared) == 1 else f"{named.name}, {client}"
                bars.append(Bar(label, summary.avg, summary.ci95, samples))
    return bars


def _are_asked(results: Sequence[NamedResult]) -> bool:
    return are_asked([named.result for named in results])


_CAPACITY = "Events/s"
_KINDS: dict[str, tuple[str, str, Callable[[Sequence[NamedResult]], list[Bar]]]] = {
    "capacities": ("Capacity", _CAPACITY, _collect_capacities),
    "inserts": ("Throughput of inserts", RATE, _collect_inserts),
    "mixed runs": ("Throughput of inserts beside readers", RATE, _collect_inserts),
    "fill levels": ("Throughput of inserts by fill level", RATE, _collect_inserts),
    "queries": ("Query times", MILLISECONDS, _collect_queries),
    "tunings": ("Throughput with the best settings", RATE, _collect_tunings),
    "clients": ("Throughput by client", RATE, collect_clients),
}
"""Kind of result -> the figure of its answer: title, unit, and what collects its bars."""
_IN_ORDER = ("queries", "clients")
"""Kinds whose bars of one result belong together, and are not ranked."""


def _make_spec(bars: Sequence[Bar], unit: str, log: bool, sample: str) -> dict[str, Any]:
    labels = ["\n".join(_wrap(bar.name)) for bar in bars]
    lines = max(label.count("\n") + 1 for label in labels)
    rows: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for label, bar in zip(labels, bars, strict=True):
        low, high = bar.interval or (bar.value, bar.value)
        samples = _thin(bar.samples) if len(bar.samples) > 1 else []
        figure = _format(bar.value, unit)
        rows.append(
            {"name": label, "value": bar.value, "low": low, "high": high, "said": figure,
             "end": max(bar.value, high, *samples), "text": _describe(bar, unit, sample),
             "series": bar.series}
        )  # fmt: skip
        dots += [
            {
                "name": label,
                "sample": value,
                "text": f"{bar.name}\none {sample}: {_format(value, unit)}",
            }
            for value in samples
        ]
    scale: dict[str, Any] = {"type": "linear", "nice": True}
    ticks: dict[str, Any] = {"tickCount": 6}
    start: dict[str, Any] = {}
    if log:
        ends = [min(row["low"], row["value"]) for row in rows] + [dot["sample"] for dot in dots]
        powers = range(
            math.floor(math.log10(min(ends))),
            math.ceil(math.log10(max(row["end"] for row in rows))),
        )
        # A bar has to begin somewhere.
        low = 10.0 ** powers[0]
        scale = {"type": "log", "nice": False,
                 "domainMin": low, "domainMax": 1.1 * max(row["end"] for row in rows)}  # fmt: skip
        ticks = {"values": [10.0**power for power in powers]}
        start = {"x2": {"datum": low}}
    y = {
        "field": "name",
        "type": "nominal",
        "sort": labels,
        "title": None,
        "scale": {"paddingInner": 0.25, "paddingOuter": 0.15},
        "axis": make_label_axis(labels),
    }

    def place(field: str) -> dict[str, Any]:
        return {
            "field": field, "type": "quantitative", "title": unit, "scale": scale, "axis": ticks
        }  # fmt: skip

    colour = {"fill": scale_series(rows, "fill") | {"legend": None}}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "bar", "fillOpacity": 0.75},
         "encoding": {"x": place("value"), "y": y, "description": {"field": "text"}, **start, **colour}},
        {"mark": {"type": "rule", "stroke": INK, "strokeWidth": 2, "aria": False},
         "encoding": {"x": place("low"), "x2": {"field": "high"}, "y": y}},
        {"data": {"values": dots},
         "mark": {"type": "point", "fill": PAPER, "stroke": INK, "size": 26, "opacity": 1,
                  "strokeWidth": 1.2},
         "encoding": {"x": place("sample"), "y": y, "description": {"field": "text"}}},
        {"mark": {"type": "text", "align": "left", "dx": 8, "fill": INK, "fontSize": 12, "aria": False},
         "encoding": {"x": place("end"), "y": y, "text": {"field": "said"}}},
    ]  # fmt: skip
    return {
        "width": WIDTH, "height": find_label_step(lines) * len(rows), "data": {"values": rows},
        "layer": [layer for layer in layers if layer.get("data", {}).get("values", [0])],
    }  # fmt: skip


def _wrap(name: str) -> list[str]:
    return wrap(name, _LABEL_CHARACTERS) or [" "]


def _describe(bar: Bar, unit: str, sample: str) -> str:
    lines = [bar.name, _format(bar.value, unit)]
    if bar.interval:
        low, high = (_format(end, unit) for end in bar.interval)
        word = "held; didn't hold" if unit == _CAPACITY else "95 % interval"
        lines.append(f"{word} {low} to {high}")
    if bar.samples:
        lines.append(format_count(len(bar.samples), sample))
    return "\n".join(lines)


def _format(value: float, unit: str) -> str:
    if unit == MILLISECONDS:
        return f"{format_digits(value)} ms"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _thin(samples: Sequence[float]) -> list[float]:
    if len(samples) <= MOST_DOTS:
        return list(samples)
    ordered = sorted(samples)
    step = (len(ordered) - 1) / (MOST_DOTS - 1)
    return [ordered[round(place * step)] for place in range(MOST_DOTS)]


CPU, QUERY_CPU = "µs of CPU per event", "µs of CPU per query"


def draw_clients(results: Sequence[NamedResult]) -> Chart | None:
    """Throughput by client, with the lean path first in each comparison."""
    bars = collect_clients(results)
    if not bars:
        return None
    unit = QUERY_RATE if _are_asked(results) else RATE
    return draw_bars("clients", "Throughput by client", bars, unit, most=len(bars))


def draw_client_cpu(results: Sequence[NamedResult]) -> Chart | None:
    """What each client's process used for an event: making it, its request, sending, the answer."""
    bars = collect_clients(results, cpu=True)
    if not bars:
        return None
    unit = QUERY_CPU if _are_asked(results) else CPU
    return draw_bars("client-cpu", "CPU of each client", bars, unit, most=len(bars))
