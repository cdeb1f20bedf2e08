"""Bars: their template (a mean, its interval, single runs as dots), and what they show. Decides nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from textwrap import wrap

from simulator.units import format_count, format_digits

from ..results.caveats import Place
from ..results.comparison import ASKING, choose_columns, collect_figures
from ..results.matrix import Average, Measured, collect_samples
from ..results.model import Result
from ..results.naming import format_options
from ..results.statistics import find_mean, summarize, summarize_repetitions, summarize_times
from .ranking import describe_doubts
from .vega import (
    INK,
    PAPER,
    WIDTH,
    Places,
    Row,
    Series,
    draw_label,
    draw_limit,
    find_label_step,
    list_series,
    make_label_axis,
    needs_log,
)

MOST_DOTS = 100
"""The most dots in one bar. With more samples some are left out, never the lowest or the highest."""

MILLISECONDS = "Time, ms"
CAPACITY = "Events/s"
"""The unit of bars whose whisker ends at the lowest rate that didn't hold."""
_LABEL_CHARACTERS = 45
"""Characters in a line of a bar's label."""


@dataclass(frozen=True)
class Bar:
    """One bar: a figure of one of the results shown side by side."""

    name: str
    value: float
    interval: tuple[float, float] | None
    samples: Sequence[float] = ()
    """The values it is the mean of."""
    series: str = ""
    """What its colour stands for; empty: all bars share one colour."""


@dataclass(frozen=True)
class Bars:
    """Bars of one unit."""

    bars: Sequence[Bar]
    unit: str
    sample: str = "run"
    """What a bar is the mean of."""
    title: str = ""
    """The end of the chart's title."""
    note: str = ""
    """Replaces the general caption of bars."""
    limits: Mapping[float, str] = field(default_factory=dict)
    """Value -> text of the dashed lines across."""


def rank(bars: Sequence[Bar]) -> list[Bar]:
    """The bars, with the highest value first."""
    return sorted(bars, key=lambda bar: -bar.value)


def wrap_label(name: str) -> list[str]:
    """The lines of a bar's label."""
    return wrap(name, _LABEL_CHARACTERS) or [" "]


def draw_bars(
    bars: Sequence[Bar],
    unit: str,
    sample: str = "run",
    places: Places | None = None,
    limits: Mapping[float, str] | None = None,
) -> tuple[Row, str]:
    """The bars from top to bottom, and their caption. `sample`: what a bar is the mean of; `limits`: value ->
    text of the dashed lines across."""
    ends = [end for bar in bars for end in (bar.value, *(bar.interval or ()), *bar.samples)]
    log = needs_log(ends)
    if unit == CAPACITY:
        note = "The highest rate that held; the line ends at the lowest that didn't"
    else:
        note = "Mean over the valid runs" if sample == "run" else f"Mean over the {sample}s"
        if any(bar.interval for bar in bars):
            note += ", with its 95 % interval"
        if any(len(bar.samples) > 1 for bar in bars):
            note += f"; each dot is a {'single run' if sample == 'run' else sample}"
        if log:
            note += ". The axis is logarithmic: read where a bar ends, not its length"

    def write(value: float) -> str:
        if unit == MILLISECONDS:
            return f"{format_digits(value)} ms"
        return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"

    labels = ["\n".join(wrap_label(bar.name)) for bar in bars]
    rows: list[Row] = []
    dots: list[Row] = []
    for label, bar in zip(labels, bars, strict=True):
        samples = _thin(bar.samples) if len(bar.samples) > 1 else []
        low, high = bar.interval or (bar.value, bar.value)
        text = [bar.name, write(bar.value)]
        if bar.interval:
            word = "held; didn't hold" if unit == CAPACITY else "95 % interval"
            text.append(f"{word} {write(low)} to {write(high)}")
        if bar.samples:
            text.append(format_count(len(bar.samples), sample))
        rows.append(
            {"name": label, "value": bar.value, "low": low, "high": high, "said": write(bar.value),
             "end": max(bar.value, high, *samples), "series": bar.series,
             "text": "\n".join(text)}
        )  # fmt: skip
        dots += [
            {"name": label, "sample": value, "text": f"{bar.name}\none {sample}: {write(value)}"}
            for value in samples
        ]
    scale: Row = {"type": "linear", "nice": True}
    ticks: Row = {"tickCount": 6}
    start: Row = {}
    if log:
        least = min([row["low"] for row in rows] + [dot["sample"] for dot in dots])
        least = min(least, *(row["value"] for row in rows))
        most = max(row["end"] for row in rows)
        powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)))
        # A logarithmic bar needs a start above 0.
        scale = {"type": "log", "nice": False, "domainMin": 10.0 ** powers[0],
                 "domainMax": 1.1 * most}  # fmt: skip
        ticks = {"values": [10.0**power for power in powers]}
        start = {"x2": {"datum": 10.0 ** powers[0]}}
    y = {
        "field": "name", "type": "nominal", "sort": labels, "title": None,
        "scale": {"paddingInner": 0.25, "paddingOuter": 0.15}, "axis": make_label_axis(labels),
    }  # fmt: skip

    def place(name: str) -> Row:
        return {"field": name, "type": "quantitative", "title": unit, "scale": scale, "axis": ticks}

    told = {"y": y, "description": {"field": "text"}}
    colour = {"fill": Series(list_series(rows), places or {}).scale("fill") | {"legend": None}}
    layers: list[Row] = [
        {"mark": {"type": "bar", "fillOpacity": 0.75},
         "encoding": {"x": place("value"), **told, **start, **colour}},
        {"mark": {"type": "rule", "stroke": INK, "strokeWidth": 2, "aria": False},
         "encoding": {"x": place("low"), "x2": {"field": "high"}, "y": y}},
        {"data": {"values": dots},
         "mark": {"type": "point", "fill": PAPER, "stroke": INK, "size": 26, "opacity": 1,
                  "strokeWidth": 1.2},
         "encoding": {"x": place("sample"), **told}},
        {"mark": {"type": "text", "align": "left", "dx": 8, "fill": INK, "fontSize": 12, "aria": False},
         "encoding": {"x": place("end"), "y": y, "text": {"field": "said"}}},
    ]  # fmt: skip
    for value, said in (limits or {}).items():
        beyond = value > max(row["end"] for row in rows)
        layers += [draw_limit("x", value), draw_label(value, said, 0, to_the_left=beyond)]
    step = find_label_step(max(label.count("\n") + 1 for label in labels))
    spec = {
        "width": WIDTH, "height": step * len(rows), "data": {"values": rows},
        "layer": [layer for layer in layers if layer.get("data", {}).get("values", [0])],
    }  # fmt: skip
    return spec, f"{note}."


def _thin(samples: Sequence[float]) -> list[float]:
    if len(samples) <= MOST_DOTS:
        return list(samples)
    ordered = sorted(samples)
    step = (len(ordered) - 1) / (MOST_DOTS - 1)
    return [ordered[round(place * step)] for place in range(MOST_DOTS)]


# --- what is shown --------------------------------------------------------------------------------

Samples = Mapping[str, Sequence[float]]
"""What a result has measured: where, in words -> a figure for each run."""


RATE, WITHIN_LIMITS = "Inserts/s", "Capacity, events/s"


def read_bars(
    subjects: Measured,
    read: Callable[[Result], Samples],
    unit: str = RATE,
    best: bool = False,
    at_first: bool = False,
) -> Bars:
    """A bar for everything that each result measured, or only for its `best`. `at_first`: name the place
    before the result, so that bars of one place are next to each other."""
    alone = len(subjects) == 1
    pick = best and not alone
    found = [
        (name, at, values)
        for name, (result,) in subjects.items()
        for at, values in sorted(
            read(result).items(), key=lambda pair: -median(pair[1]) if pick else 0
        )[: 1 if pick else None]
    ]
    if at_first:
        order = list(dict.fromkeys(at for _, at, _ in found))
        found.sort(key=lambda entry: order.index(entry[1]))
    alike = best and len({at for _, at, _ in found}) == 1
    bars = []
    for name, at, values in found:
        both = f"{at}, {name}" if at_first else f"{name}, {at}"
        bars.append(make_bar(at if alone else name if alike else both, values, times=at_first))
    return Bars(bars, unit)


def make_bar(label: str, values: Sequence[float], series: str = "", times: bool = False) -> Bar:
    """The mean of the values. `times`: they are times, not rates."""
    summary = summarize_times(values) if times else summarize(values)
    return Bar(label, summary.avg, summary.ci95, values, series)


def read_inserts(result: Result) -> Samples:
    """Inserts per second at each number of workers, or fill level."""
    samples = collect_samples(result)
    return {str(place): values for place, values in samples.items() if not place.has_times}


def read_queries(result: Result) -> Samples:
    """Milliseconds of each query."""
    samples = collect_samples(result)
    return {
        entry.query: [
            1000 * time_s for time_s in samples.get(Place(query=entry.query), [entry.avg])
        ]
        for entry in result.query_summary
    }


def name_tuned_rate(subjects: Measured) -> str:
    """The unit of what tunings found: a rate, or a rate within limits."""
    tunings = [
        result.tuning for results in subjects.values() for result in results if result.tuning
    ]
    return WITHIN_LIMITS if any(tuning.limits for tuning in tunings) else RATE


def read_tunings(subjects: Measured) -> Bars:
    """What a tuning's combinations reach; for several tunings, the best of each."""
    return read_bars(subjects, _read_finalists, name_tuned_rate(subjects), best=True)


def _read_finalists(result: Result) -> Samples:
    """What the finalists of a tuning reach, best first."""
    tuning = result.tuning
    ranked = tuning.rank_finalists() if tuning else []
    return {
        format_options(tuning.candidates[place]): tuning.find_rates(place, tuning.stages)
        for place in ranked
        if tuning
    }


def read_clients(subjects: Measured, cpu: bool = False) -> Bars:
    """A bar for each client of each comparison, the lean path first: of clients that insert or, if there are
    none, of clients that query. `cpu`: their CPU time per event or query instead of their rates."""
    columns = choose_columns([result for (result,) in subjects.values()])
    asks = columns is ASKING
    compared = {
        name: [result]
        for name, (result,) in subjects.items()
        if result.clients and result.clients.asks is asks
    }

    def read(result: Result) -> Samples:
        key = columns.cpu if cpu else columns.rate
        figures = collect_figures([result])
        return {client: own[key] for client, own in figures.items() if own.get(key)}

    if cpu:
        return read_bars(compared, read, f"µs of CPU per {'query' if asks else 'event'}")
    return read_bars(compared, read, "Queries/s" if asks else RATE)


def read_answers(subjects: Measured) -> Bars:
    """The highest rate that held in each search, up to the lowest that didn't."""
    found = [
        Bar(name, held, (held, answer.above_per_s) if answer.above_per_s else None)
        for name, results in subjects.items()
        for answer in (result.capacity for result in results)
        if answer and (held := answer.events_per_s)
    ]
    return Bars(found, CAPACITY)


def read_candidates_clients(subjects: Measured) -> Bars:
    """A bar for each client of each candidate, the lean path first."""
    found = [
        make_bar(f"{name}, {client}", figures[choose_columns(results).rate], name)
        for name, results in subjects.items()
        for client, figures in collect_figures(results).items()
    ]
    return Bars(found, RATE)


def read_capacities(subjects: Measured, required: Sequence[float]) -> Bars:
    """The mean of what held in each candidate's searches, with a line over all of their intervals.
    `required`: rates that the campaign requires."""
    doubts, limits = describe_doubts(subjects), dict[str, None]()
    found, none = [], []
    for name, results in subjects.items():
        answers = [result.capacity for result in results if result.capacity is not None]
        limits |= {str(limit): None for answer in answers for limit in answer.limits}
        held = [answer.events_per_s for answer in answers if answer.events_per_s]
        above = [
            answer.above_per_s for answer in answers if answer.events_per_s and answer.above_per_s
        ]
        if held:
            ends = (min(held), max(*held, *above)) if above else None
            found.append(Bar(name + doubts.get(name, ""), find_mean(held), ends, held, name))
        elif answers:
            none.append(name)
    note = (
        "Mean over the repetitions of the highest rate that held; each dot is a repetition. The line spans"
        " the range between the highest rate that held and the lowest that failed."
    )
    note += f" No rate held: {', '.join(none)}." if none else ""
    note += "".join(f" Dashed: the required {rate:,.10g} events/s." for rate in required)
    within = f" within {', '.join(limits)}" if limits else ""
    lines = dict.fromkeys(required, "required")
    return Bars(found, WITHIN_LIMITS, "repetition", within, note, lines)


def read_rates(pooled: Mapping[str, Mapping[Place, Average]], subjects: Measured) -> Bars:
    """The highest rate of each candidate; none unless two have one. `pooled`: the figures of all
    repetitions."""
    doubts = describe_doubts(subjects)
    rates = {
        name: max(places.items(), key=lambda pair: pair[1].mean)
        for name, places in pooled.items()
        if places
    }
    alike = {str(place) for place, _ in rates.values()}
    found = [
        Bar(
            (name if len(alike) == 1 else f"{name}, {place}") + doubts.get(name, ""),
            mean,
            (summarize if len(subjects[name]) == 1 else summarize_repetitions)(values).ci95,
            values,
            name,
        )
        for name, (place, (values, mean)) in rates.items()
    ]
    place = f", {alike.pop()}" if len(alike) == 1 else ""
    return Bars(found if len(found) > 1 else [], name_tuned_rate(subjects), "repetition", place)
