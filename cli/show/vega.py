"""The parts of a Vega-Lite specification (https://vega.github.io/vega-lite/docs/) that figures share: axes,
marks, colours, and how these change on a dark page."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

INK, MUTED, GRID, PAPER = "#1b1f24", "#59636e", "#d8dee4", "#fffffe"

# Six hues of Okabe & Ito's palette (https://jfly.uni-koeln.de/color/), darkened where a line
# could hardly be seen on white, and two greys; a test checks that they can be told apart with the three
# kinds of colour blindness. Series differ in shape, too.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc5fa0", "#332288", "#333333", "#8c8c8c")
SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
)  # fmt: skip

PHASES = {
    "start": SERIES[6],
    "prepare": SERIES[4],
    "prefill": SERIES[3],
    "barrier": SERIES[1],
    "run": SERIES[0],
    "verify": SERIES[2],
    "check": MUTED,
    "clean_up": SERIES[5],
}

DARK = {
    INK: "#e6edf3",
    MUTED: "#9aa4af",
    GRID: "#30363d",
    PAPER: "#0d1117",
    "#0072b2": "#56b4e9",
    "#d55e00": "#e06c1f",
    "#009e73": "#1aa37a",
    "#cc5fa0": "#d98cb8",
    "#332288": "#f0e442",
    "#333333": "#ffffff",
    "#8c8c8c": "#7f7f7f",
}
"""Light colour -> its counterpart on a dark page. Figures are drawn in light colours."""

# The first comes with the renderer, for machines on which no font is installed.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "gridColor": GRID, "domainColor": MUTED,
        "tickColor": MUTED, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "titlePadding": 8, "labelLimit": 260, "labelSeparation": 12,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "labelLimit": 600,
        "orient": "top", "direction": "vertical", "title": None, "columns": 1,
    },
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12},
    "title": {
        "color": INK, "subtitleColor": MUTED, "anchor": "start", "fontSize": 15,
        "subtitleFontSize": 12, "offset": 12, "frame": "group",
    },
}  # fmt: skip
"""Vega-Lite's `config`: https://vega.github.io/vega-lite/docs/config.html"""


def dark_style(selector: str = "") -> str:
    """CSS that turns the figures within `selector` dark."""
    return "\n".join(
        f'{selector} [fill="{light}"]{{fill:{dark}}}{selector} [stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )


WIDTH, HEIGHT = 640, 320

Row = dict[str, Any]


def make_spec(rows: Sequence[Row], layers: Sequence[Row], height: int = HEIGHT) -> dict[str, Any]:
    _make_room_for_labels(rows, layers)
    return {
        "width": WIDTH, "height": height, "data": {"values": list(rows)}, "layer": list(layers),
    }  # fmt: skip


CHARACTER_PX = 7.7
"""Width of a digit of 12 px in the widest of the usual fonts (DejaVu Sans)."""


def _make_room_for_labels(rows: Sequence[Row], layers: Sequence[Row]) -> None:
    """Keep the title of the vertical axis off its labels. Both are placed by the renderer's font; a
    browser may have only a wider one."""
    channels = [layer["encoding"]["y"] for layer in layers if "data" not in layer]
    most = max(
        len(value if isinstance(value, str) else f"{1.2 * value:,.0f}")
        for channel in channels
        for row in rows
        if (value := row[channel["field"]]) is not None
    )
    for channel in channels:
        # At least "0.25": the ticks between small numbers have decimals.
        channel["axis"] = channel["axis"] | {"minExtent": math.ceil(CHARACTER_PX * max(4, most))}


def make_axis(
    field: str, title: str, axis: Row | None = None, zero: bool = True, log: bool = False
) -> Row:
    scale: Row = {"type": "log", "nice": True} if log else {"zero": zero, "nice": True}
    if not zero:
        scale |= {"nice": False, "padding": 16}
    return {
        "field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis or {},
    }  # fmt: skip


def choose_colour(place: int) -> str:
    """The colour of the series at this place."""
    return SERIES[place % len(SERIES)]


def choose_shape(place: int) -> str:
    """The shape of the series at this place; shifted by one each time the colours start over."""
    return SHAPES[(place + place // len(SERIES)) % len(SHAPES)]


_CHOICES = {"stroke": choose_colour, "fill": choose_colour, "shape": choose_shape}
"""Channel -> the function that chooses what it shows a series by."""


def scale_series(rows: Sequence[Row], channel: str) -> Row:
    """The scale of the series for colour or shape, the same in all layers, so that they share one
    legend; none for a single series."""
    names = list_series(rows)
    values = [_CHOICES[channel](place) for place in range(len(names))]
    return {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": names, "range": values},
        "legend": {} if len(names) > 1 else None,
    }


def assign_colours(spec: Row, names: Sequence[str]) -> Row:
    """The figure with each series in the colour and shape of its place among `names`. They are the same in
    all figures of a page, whichever of the series a figure has."""
    coloured = copy.deepcopy(spec)
    places = {name: place for place, name in enumerate(names)}
    for panel in coloured.get("vconcat", [coloured]):
        for part in (panel, *panel.get("layer", [])):
            for channel, encoding in part.get("encoding", {}).items():
                if channel in _CHOICES and encoding.get("field") == "series":
                    own_names = sorted(encoding["scale"]["domain"], key=places.__getitem__)
                    chosen = [_CHOICES[channel](places[name]) for name in own_names]
                    encoding["scale"] = {"domain": own_names, "range": chosen}
    return coloured


def make_mark(
    kind: str, rows: Sequence[Row], text: bool = False, *, x: Row, y: Row, **more: Any
) -> Row:
    channels: Row = {
        name: more.pop(name) for name in ("x2", "y2", "shape", "order") if name in more
    }
    encoding: Row = {"x": x, "y": y, "stroke": scale_series(rows, "stroke"), **channels}
    if text:
        encoding["description"] = {"field": "text"}
    return {"mark": {"type": kind, "aria": text, **more}, "encoding": encoding}


def draw_lines(x: Row, y: Row, rows: Sequence[Row]) -> Row:
    return make_mark("line", rows, x=x, y=y, strokeWidth=2)


def draw_intervals(x: Row, y: Row, high: str, rows: Sequence[Row]) -> Row:
    return make_mark("rule", rows, x=x, y=y, y2={"field": high}, strokeWidth=2, opacity=0.6)


def draw_points(x: Row, y: Row, rows: Sequence[Row], size: int = 70) -> Row:
    return make_mark(
        "point", rows, text=True, x=x, y=y, shape=scale_series(rows, "shape"), size=size, fill=PAPER,
        opacity=1, strokeWidth=2,
    )  # fmt: skip


def draw_series(x: Row, y: Row, rows: Sequence[Row], size: int = 70) -> list[Row]:
    """Lines with their points."""
    return [draw_lines(x, y, rows), draw_points(x, y, rows, size)]


def list_series(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


LOG_FROM = 50
"""Largest value ÷ smallest, above which an axis is logarithmic."""


def needs_log(values: Sequence[float]) -> bool:
    """Whether values are so far apart that only a logarithmic axis shows them all."""
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


MOST_LOG_TICKS = 8


def list_log_ticks(values: Sequence[float]) -> list[float]:
    """Few round numbers over the range of values: the renderer's own are nine for each power of ten."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    finest = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [tick for tick in finest if low <= tick <= high]
    if len(inside) <= MOST_LOG_TICKS:
        return inside
    return [10.0**power for power in powers[:: math.ceil(len(powers) / MOST_LOG_TICKS)]]


def draw_limit(axis: str, value: float) -> Row:
    """A dashed line across, at a value of one axis."""
    return {
        "data": {"values": [{"limit": value}]},
        "mark": {"type": "rule", "stroke": MUTED, "strokeDash": [4, 4], "aria": False},
        "encoding": {axis: {"field": "limit", "type": "quantitative"}},
    }


def draw_mark(value: float, text: str) -> Row:
    """A solid line across, at a value of the x-axis, with a text for whoever points at it."""
    return {
        "data": {"values": [{"mark": value, "text": text}]},
        "mark": {"type": "rule", "stroke": INK, "strokeWidth": 1.5},
        "encoding": {
            "x": {"field": "mark", "type": "quantitative"},
            "description": {"field": "text"},
        },
    }


LINE_PX = 15
"""Height of a line of text of 12 px."""


def make_label_axis(labels: Sequence[str]) -> Row:
    """An axis of names, which may have several lines each. It has room for them in whatever font the browser
    has: the renderer's may be narrower."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    lines = max(label.count("\n") + 1 for label in labels)
    axis: Row = {
        "minExtent": math.ceil(CHARACTER_PX * longest),
        "labelExpr": "split(datum.label, '\\n')", "labelLimit": 0, "ticks": False, "labelPadding": 8,
    }  # fmt: skip
    if lines > 1:
        # A label's first line is at its bar, not its middle.
        axis["labelOffset"] = {
            "condition": [
                {"test": f"length(split(datum.label, '\\n')) == {count}",
                 "value": -LINE_PX * (count - 1) / 2}
                for count in range(2, lines + 1)
            ],
            "value": 0,
        }  # fmt: skip
    return axis


def find_label_step(lines: int) -> int:
    """Pixels from one name to the next on a vertical axis, with this many lines in each."""
    return max(26, LINE_PX * lines + 8)


def draw_label(value: float, text: str, line: int, to_the_left: bool) -> Row:
    """A text beside a line across, this many lines below the panel's upper edge."""
    return {
        "data": {"values": [{"mark": value, "text": text}]},
        "mark": {
            "type": "text", "align": "right" if to_the_left else "left", "baseline": "top",
            "dx": -5 if to_the_left else 5, "fill": INK, "fontSize": 12, "limit": WIDTH // 2,
            "aria": False,
        },
        "encoding": {
            "x": {"field": "mark", "type": "quantitative"},
            "y": {"value": LINE_PX * line},
            "text": {"field": "text"},
        },
    }  # fmt: skip


def draw_area(begin: float, end: float, text: str) -> Row:
    """A grey area over all of the y-axis, between two values of the x-axis, with a text for whoever points at
    it."""
    return {
        "data": {"values": [{"begin": begin, "end": end, "text": text}]},
        "mark": {"type": "rect", "fill": MUTED, "fillOpacity": 0.2, "stroke": None},
        "encoding": {
            "x": {"field": "begin", "type": "quantitative"},
            "x2": {"field": "end"},
            "description": {"field": "text"},
        },
    }


def make_range_spec(rows: Sequence[Row], title: str, log: bool, heading: str = "Query") -> Row:
    """A row of its own for each `query`: for each series a point at its `mean`, and a line from `low` to
    `high`. `heading`: the heading of the queries, which may be other places."""
    names = list(dict.fromkeys(row["query"] for row in rows))
    series = list_series(rows)
    y = {
        "field": "query",
        "type": "nominal",
        "title": heading,
        "sort": names,
        "axis": {"grid": True},
    }
    aside = {"yOffset": {"field": "series", "sort": series}} if len(series) > 1 else {}
    ticks = {"values": list_log_ticks([row[end] for row in rows for end in ("low", "high")])}
    axis = ticks if log else {}
    x = make_axis("low", title, axis, log=log)
    bars = make_mark("rule", rows, x=x, y=y, x2={"field": "high"}, text=True, strokeWidth=2)
    points = draw_points(make_axis("mean", title, axis, log=log), y, rows)
    for layer in (bars, points):
        layer["encoding"] |= aside
    height = max(160, len(names) * (24 + 14 * len(series)))
    return make_spec(rows, [bars, points], height=height)
