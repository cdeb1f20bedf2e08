"""The eight templates of charts, in Vega-Lite (https://vega.github.io/vega-lite/docs/): bars with intervals;
lines over time, rate, fill level and workers; a distribution; a timeline with marks; a matrix.

They only lay out their input. Each mark carries its exact figures as text (`description`), shown on hover and
read by screen readers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from simulator.contract import Mark
from simulator.units import format_count, format_digits

from ..results.faults import name_mark
from .bars import MILLISECONDS, Bar
from .vega import (
    CHARACTER_PX,
    CONFIG,
    HEIGHT,
    INK,
    MOST_TOGETHER,
    PAPER,
    SERIES,
    WIDTH,
    Places,
    Row,
    Series,
    draw_area,
    draw_label,
    draw_limit,
    draw_mark,
    find_body,
    format_ticks,
    list_log_ticks,
    list_series,
    make_axis,
    make_spec,
    needs_log,
    resize_panel,
    slant,
    split,
    write_limit,
)


@dataclass(frozen=True)
class Chart:
    """A chart of one kind of `plot`; `spec` has no title."""

    kind: str
    title: str
    note: str
    """What it shows, in a sentence."""
    spec: Row
    remarks: Sequence[str] = ()
    """Further remarks, shown next to it."""

    def tell(self, sources: Sequence[str], most: int) -> tuple[str, list[str]]:
        """The caption, of at most `most` characters unless its first sentence is longer; and the sentences
        that didn't fit. `sources`: sentences on who measured what it shows, always included."""
        first, *more = _SENTENCES.split(self.note)
        said = [first, *sources, *more, *self.remarks]
        room = 1 + len(sources)
        while room < len(said) and len(" ".join(said[: room + 1])) <= most:
            room += 1
        return " ".join(said[:room]), said[room:]


_SENTENCES = re.compile(r"(?<=[.]) (?=[A-Z])")

LOG = " (logarithmic axis)"

# --- bars with intervals, by place ------------------------------------------------------------------


def draw_ranges(
    rows: Sequence[Row], heading: str, places: Places | None = None
) -> tuple[Row, bool]:
    """Times of several series at several places: a row for each `at`, in it a point for each series at its
    `value`, and a line from `low` to `high`. With so many series that colours repeat, a matrix. Also whether
    the axis is logarithmic. `heading`: what the places are."""
    names = list(dict.fromkeys(row["at"] for row in rows))
    series = Series(list_series(rows), places or {})
    if is_matrix(rows):
        return _draw_times_as_matrix(rows, heading, names, list(series.names)), False
    ends = [row[end] for row in rows for end in ("low", "high")]
    log = needs_log(ends)
    axis = {"values": list_log_ticks(ends)} if log else {}
    y = {"field": "at", "type": "nominal", "title": heading, "sort": names, "axis": {"grid": True}}
    layers = [
        series.draw(
            "rule", text=True, x=make_axis("low", MILLISECONDS, axis, log=log), y=y,
            x2={"field": "high"}, strokeWidth=2,
        ),
        series.draw_points(make_axis("value", MILLISECONDS, axis, log=log), y),
    ]  # fmt: skip
    if len(series.names) > 1:
        for layer in layers:
            layer["encoding"]["yOffset"] = {"field": "series", "sort": list(series.names)}
    height = max(160, len(names) * (24 + 14 * len(series.names)))
    return make_spec(rows, layers, height), log


PALER = "The paler, the nearer to the fastest of its column."


def is_matrix(rows: Sequence[Row]) -> bool:
    """Whether there are so many series that colours would repeat, and a matrix is drawn instead."""
    return len(list_series(rows)) > len(SERIES)


def _draw_times_as_matrix(
    rows: Sequence[Row], heading: str, names: Sequence[str], series: Sequence[str]
) -> Row:
    """The paler, the nearer to the fastest of its column."""
    fastest = {name: min(row["value"] for row in rows if row["at"] == name) for name in names}
    cells = [
        {"x": row["at"], "y": row["series"], "label": format_digits(row["value"]), "text": row["text"],
         "series": row["series"], "value": row["value"],
         "shade": min(2.0, math.log10(max(1.0, row["value"] / fastest[row["at"]])))}
        for row in rows
    ]  # fmt: skip
    return draw_matrix(cells, (f"{heading}, ms", names), ("", series))


# --- a matrix -------------------------------------------------------------------------------------

CELL_PX, LOW_CELL_PX = 46, 28
_MOST_HIGH = 7
FAINTEST, DARKEST = 0.06, 0.6
"""Opacity of the lightest and the darkest shade; text must be legible on both, on any page."""
_COLUMN_CHARACTERS = 90
"""Characters of the column names that fit a line."""


def draw_matrix(
    rows: Sequence[Row], across: tuple[str, Sequence[str]], down: tuple[str, Sequence[str]]
) -> Row:
    """A cell with its `label` for each `x` and `y`; the higher its `shade`, the darker. `across`, `down`:
    title and names of each side; a single name has no axis."""

    def place(name: str, title: str, names: Sequence[str]) -> Row:
        slanted = name == "x" and sum(map(len, names)) > _COLUMN_CHARACTERS
        turn: Row = slant(names) if slanted else {"labelAngle": 0}
        if name == "y" and names:
            # A browser's font may be wider than the renderer's.
            longest = math.ceil(CHARACTER_PX * max(map(len, names)))
            turn["minExtent"] = min(longest, CONFIG["axis"]["labelLimit"])
        return {"field": name, "type": "ordinal", "title": title or None, "sort": list(names),
                "axis": {**turn, "grid": False} if len(names) > 1 or title else None}  # fmt: skip

    shades = [row["shade"] for row in rows]
    cells = {
        "mark": {"type": "rect", "fill": SERIES[0], "stroke": None, "aria": True},
        "encoding": {
            "fillOpacity": {
                "field": "shade", "type": "quantitative", "legend": None,
                "scale": {"domain": [min(shades), max(shades)], "range": [FAINTEST, DARKEST]},
            },
            "description": {"field": "text"},
        },
    }  # fmt: skip
    texts = {
        "mark": {"type": "text", "fill": INK, "fontSize": 12, "aria": False},
        "encoding": {"text": {"field": "label"}},
    }
    return {
        "width": WIDTH,
        "height": (CELL_PX if len(down[1]) <= _MOST_HIGH else LOW_CELL_PX) * len(down[1]),
        "data": {"values": list(rows)},
        "encoding": {"x": place("x", *across), "y": place("y", *down)},
        "layer": [cells, texts],
    }


# --- lines over time, rate, fill level, workers -----------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of lines."""

    title: str
    say: Callable[[float], str] = "{:,.0f}".format
    """A position on it in words."""
    form: str | None = None
    most_ticks: int = 0
    """With up to this many values, each has its own tick."""
    zero: bool = True
    far: bool = False
    """Whether it may be logarithmic."""
    near: float = 1.0
    """Positions within this factor share a point."""
    size: int = 70
    """The words before a point's position."""


def _count(noun: str) -> Callable[[float], str]:
    return lambda value: format_count(round(value), noun)


OVER_TIME = Axis("Seconds since the start", form="d", size=24)
_FEW_S = 5
OVER_RATE = Axis("Offered, events/s", "{:,.10g} events/s".format, zero=False, far=True)
OVER_LEVEL = Axis("Events in the database before the run", "{:,.0f} events before".format, "~s", 12)
OVER_EVENTS = Axis("Events in the database", "{:,.0f} events".format, "~s", near=1.05)
OVER_WORKERS = Axis("Number of workers", _count("worker"), "d", 1000, zero=False)
OVER_NODES = Axis("Number of nodes", _count("node"), "d", 1000, zero=False)


@dataclass(frozen=True)
class Panel:
    """Lines over one horizontal axis, with their own vertical axis."""

    title: str
    """Title of the vertical axis: what, and its unit."""
    rows: Sequence[Row]
    """For each `series` at each `x` its `value`, from `low` to `high`, and its `text`."""
    samples: Sequence[Row] = ()
    """The single measurements behind them, drawn as dots."""
    limits: Mapping[float, str] = field(default_factory=dict)
    """Value -> text of the dashed lines across."""
    height: int = HEIGHT
    form: str | None = None
    log: bool = True
    """Whether the vertical axis may be logarithmic."""
    bars: Sequence[Bar] = ()
    """The rows as bars, for lines with a single position."""


def draw_over(
    axis: Axis, panels: Sequence[Panel], places: Places | None = None, across: Sequence[float] = ()
) -> tuple[Row, bool]:
    """The panels stacked, and whether any is logarithmic. `across`: values of the axis with a dashed line."""
    series = Series(list_series(row for panel in panels for row in panel.rows), places or {})
    specs, logs = [], []
    for panel in panels:
        both = [*panel.rows, *panel.samples]
        shown = sorted({row["x"] for row in both} | set(across))
        far = axis.far and needs_log(shown)
        ticks: Row = format_ticks(axis.form) if axis.form else {}
        if axis is OVER_TIME:
            ticks["tickMinStep"] = 1  # without effect on an axis of a second or two
            if shown and shown[-1] <= _FEW_S:
                ticks["values"] = list(range(round(shown[-1]) + 1))
        if far or 0 < len(shown) <= axis.most_ticks:
            ticks["values"] = list_log_ticks(shown) if far else shown
        x = make_axis("x", axis.title, ticks, log=far, zero=axis.zero)
        ends = [*panel.limits] + [
            row[end] for row in both for end in ("value", "low", "high") if end in row
        ]
        log = panel.log and needs_log(ends)
        values: Row = format_ticks(panel.form) if panel.form else {}
        values |= {"values": list_log_ticks(ends)} if log else {}
        y = make_axis("value", panel.title, values, log=log)
        layers = [draw_limit("y", value) for value in panel.limits]
        layers += [draw_limit("x", value) for value in across]
        if any(row.get("low") != row.get("high") for row in panel.rows):
            low = make_axis("low", panel.title, values, log=log)
            layers.append(
                series.draw("rule", x=x, y=low, y2={"field": "high"}, strokeWidth=2, opacity=0.6)
            )
        layers.append(series.draw_lines(x, y))
        layers += [series.draw_dots(x, y, panel.samples)] if panel.samples else []
        apart = len(series.names) > MOST_TOGETHER
        for value, text in panel.limits.items() if not apart else ():
            layers += write_limit(value, text, at_end=axis is OVER_RATE) if text else []
        layers.append(series.draw_points(x, y, axis.size, seen=axis is not OVER_TIME))
        spec = make_spec(panel.rows, layers, panel.height)
        specs.append(spread(spec, series) if apart else spec)
        logs.append(log)
    return specs[0] if len(specs) == 1 else {"vconcat": specs}, any(logs)


def spread(panel: Row, series: Series) -> Row:
    """The panel as small multiples in the order of the page, as wide as other charts."""
    spec = split(panel, series.scale("stroke")["scale"]["domain"])
    resize_panel(spec, WIDTH)
    return spec


def draw_lines_over_time(title: str, panels: Mapping[str, Sequence[Row]], height: int) -> Row:
    """Lines without points, with gaps where a `value` is missing; each panel under its heading. `title`: of
    the horizontal axis."""
    specs = []
    for heading, rows in panels.items():
        series = Series(list_series(rows))
        y = make_axis("value", heading, zero=False)
        specs.append(make_spec(rows, [series.draw_lines(make_axis("x", title), y)], height))
    return {"vconcat": specs}


# --- a timeline with marks ------------------------------------------------------------------------

_MOST_LABELS = 4
"""Texts of this many marks are stacked before the next starts at the top again."""
_SPAN_PX = 20


@dataclass(frozen=True)
class Gap:
    """A period in which nothing was acknowledged."""

    series: str
    begin: float
    end: float

    @property
    def text(self) -> str:
        """It in words."""
        return f"nothing was acknowledged for {self.end - self.begin:.1f} s"


def draw_timeline(
    panels: Sequence[Panel],
    marks: Sequence[Mark],
    gaps: Sequence[Gap],
    across: Sequence[float],
    places: Places | None = None,
) -> Row:
    """Lines over time, with the disturbances of the database. Gaps of a single series are grey areas; those
    of several are in a panel with a row for each."""
    drawn, _ = draw_over(OVER_TIME, panels, places, across)
    specs = drawn.get("vconcat", [drawn])
    several = len({gap.series for gap in gaps}) > 1
    areas = [] if several else [draw_area(gap.begin, gap.end, gap.text) for gap in gaps]
    # Disturbances at about the same time share one line.
    done = {(round(mark.at_s), mark.action): mark for mark in sorted(marks, key=lambda m: m.at_s)}
    lines = [draw_mark(mark.at_s, mark.action) for mark in done.values()]
    last = max(row["x"] for row in panels[0].rows)
    labels = [
        draw_label(mark.at_s, name_mark(mark), place % _MOST_LABELS, mark.at_s > last / 2)
        for place, mark in enumerate(done.values())
    ]
    for place, spec in enumerate(specs):
        body = find_body(spec)
        said = labels if place == 0 and body is spec else ()
        body["layer"] = [*areas, *body["layer"], *lines, *said]
    if several:
        rows = [
            {"row": gap.series, "series": gap.series, "begin": gap.begin, "end": gap.end,
             "text": f"{gap.series}\n{gap.text}"}
            for gap in gaps
        ]  # fmt: skip
        names = list_series(row for panel in panels for row in panel.rows)
        colour = Series(names, places or {}).scale("fill") | {"legend": None}
        strip = draw_spans(rows, ("No answer", OVER_TIME.title), colour)
        strip["layer"][0]["encoding"]["x"]["scale"] = {"domain": [0, last], "nice": True}
        specs.insert(1, strip)
    return {"vconcat": specs}


def draw_spans(rows: Sequence[Row], titles: tuple[str, str], colour: Row) -> Row:
    """A line for each `row`, with bars from `begin` to `end`. `titles`: of the lines, and of the horizontal
    axis; `colour`: the field that colours the bars."""
    names = list(dict.fromkeys(row["row"] for row in rows))
    y = {"field": "row", "type": "nominal", "title": titles[0], "axis": {"labelLimit": 420},
         "sort": names}  # fmt: skip
    bar: Row = {
        "mark": {"type": "bar", "stroke": PAPER, "strokeWidth": 1},
        "encoding": {
            "y": y, "x": make_axis("begin", titles[1]), "x2": {"field": "end"}, "color": colour,
            "description": {"field": "text"},
        },
    }  # fmt: skip
    return make_spec(rows, [bar], height=max(80, _SPAN_PX * len(names)))


# --- a distribution -------------------------------------------------------------------------------


def draw_distribution(
    of: str, points: Sequence[Row], curve: Sequence[Row], places: Places | None = None
) -> tuple[Row, bool]:
    """Milliseconds (`value`) over the percentiles, and whether they are curves: if each series has one
    (`rank`: one in this many is slower). Otherwise there is a point at each `percentile`. `of`: what the
    times are of."""
    series = Series(list_series(points), places or {})
    values = [row["value"] for row in (*points, *curve) if row["value"] > 0]
    log = needs_log([row["value"] for row in points])
    y = make_axis(
        "value", "Latency, ms", {"values": list_log_ticks(values)} if log else {}, log=log
    )
    if set(list_series(curve)) != set(series.names):
        named = list(dict.fromkeys(row["percentile"] for row in points))
        x: Row = {"field": "percentile", "type": "ordinal", "title": f"Percentile of {of}",
                  "sort": named, "axis": {"labelAngle": 0}}  # fmt: skip
        layers = [series.draw_lines(x, y), series.draw_points(x, y)]
        spec = make_spec(points, layers)
        return spread(spec, series) if len(series.names) > MOST_TOGETHER else spec, False
    ends = {row["series"]: row["rank"] for row in curve}
    for row in points:
        # The slowest of n requests is the one in n.
        row["rank"] = ends[row["series"]] if row["percentile"] == "max" else row["rank"]
    ticks = [1.0, 2.0, 10.0]
    while 10 * ticks[-1] <= max(ends.values()) * 1.0001:
        ticks.append(10 * ticks[-1])
    x = make_axis("rank", f"Percentile of {of}, %", {"values": ticks, "labelExpr": _AS_PERCENT})
    x["scale"] = {"type": "log", "nice": False}
    spec = make_spec(points, [series.draw_lines(x, y, curve), series.draw_points(x, y)])
    return spread(spec, series) if len(series.names) > MOST_TOGETHER else spec, True


_AS_PERCENT = "format(100 - 100 / datum.value, '.8~r')"
"""Writes a rank of 1,000 (one request in 1,000 is slower) as 99.9 %."""
