"""The parts of a Vega-Lite specification (https://vega.github.io/vega-lite/docs/) that charts share: axes,
marks, colours, and how these change on a dark page."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
"""Light colour -> its dark counterpart. Charts are drawn in light colours."""

# The first ships with the renderer, for machines without fonts.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": None,
    # A browser's font may be wider than the renderer's, also to the right of bars.
    "padding": {"left": 5, "top": 5, "right": 16, "bottom": 5},
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "gridColor": GRID, "domainColor": MUTED,
        "tickColor": MUTED, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "titlePadding": 8, "labelLimit": 260, "labelSeparation": 12,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "labelLimit": 600, "symbolOpacity": 1,
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
    """CSS that turns the charts within `selector` dark."""
    return "\n".join(
        f'{selector} [fill="{light}"]{{fill:{dark}}}{selector} [stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )


WIDTH, HEIGHT = 640, 320

Row = dict[str, Any]

Places = Mapping[str, int]
"""Series -> its place among all of the page, which decides its colour and shape."""


# --- series ---------------------------------------------------------------------------------------


def choose_colour(place: int) -> str:
    """The colour of the series at this place."""
    return SERIES[place % len(SERIES)]


def choose_shape(place: int) -> str:
    """The shape of the series at this place; shifts by one each time the colours repeat."""
    return SHAPES[(place + place // len(SERIES)) % len(SHAPES)]


_CHOICES = {"stroke": choose_colour, "fill": choose_colour, "shape": choose_shape}
"""Visual property of a series -> the function that chooses it."""

_WIDEST_IN_COLUMNS = 24
"""The longest name in a legend of three columns, as charts of many series have."""


@dataclass(frozen=True)
class Series:
    """The series of a chart: same colour and shape in all of its panels and layers, so that they share a
    legend."""

    names: Sequence[str]
    places: Mapping[str, int] = field(default_factory=dict)
    """Name -> its place in all charts of a page, whichever series this one shows."""

    def scale(self, channel: str) -> Row:
        """The encoding of the series on a channel."""
        names = sorted(self.names, key=lambda name: self.places.get(name, 0))
        chosen = [_CHOICES[channel](self.places.get(n, place)) for place, n in enumerate(names)]
        legend: Row | None = {} if len(names) > 1 else None
        if len(names) > len(SERIES) and max(map(len, names)) <= _WIDEST_IN_COLUMNS:
            legend = {"columns": 3}
        return {
            "field": "series", "type": "nominal", "scale": {"domain": names, "range": chosen},
            "legend": legend,
        }  # fmt: skip

    def draw_lines(
        self, x: Row, y: Row, data: Sequence[Row] | None = None, width: float = 2
    ) -> Row:
        """A line through the points of each; `data`: points to use instead of the panel's."""
        layer = self.draw("line", x=x, y=y, strokeWidth=width)
        return layer if data is None else layer | {"data": {"values": list(data)}}

    def draw_points(self, x: Row, y: Row, size: int = 70, seen: bool = True) -> Row:
        """A point of its shape at each value, with the text on hover, whether `seen` or invisible."""
        layer = self.draw("point", text=True, x=x, y=y, size=size, opacity=int(seen), strokeWidth=2)
        layer["encoding"]["shape"] = self.scale("shape")
        layer["mark"]["fill"] = PAPER
        return layer

    def draw_dots(self, x: Row, y: Row, data: Sequence[Row]) -> Row:
        """A dot for each single measurement."""
        layer = self.draw("point", text=True, x=x, y=y, size=20, opacity=0.7, strokeWidth=1.5)
        return layer | {"data": {"values": list(data)}}

    def draw(self, kind: str, text: bool = False, *, x: Row, y: Row, **more: Any) -> Row:
        """A layer of marks; `text`: each shows its row's `text`."""
        channels: Row = {name: more.pop(name) for name in ("x2", "y2") if name in more}
        encoding: Row = {"x": x, "y": y, "stroke": self.scale("stroke"), **channels}
        if text:
            encoding["description"] = {"field": "text"}
        return {"mark": {"type": kind, "aria": text, **more}, "encoding": encoding}


def list_series(rows: Iterable[Row]) -> list[str]:
    """The names of the series, in order of appearance."""
    return list(dict.fromkeys(row["series"] for row in rows))


# --- panels and axes ------------------------------------------------------------------------------


def make_spec(rows: Sequence[Row], layers: Sequence[Row], height: int = HEIGHT) -> Row:
    """A panel of layers."""
    # Keep the title of the vertical axis off its labels. The renderer's font places both; a
    # browser may have only a wider one.
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
    return {
        "width": WIDTH, "height": height, "data": {"values": list(rows)}, "layer": list(layers),
    }  # fmt: skip


MOST_TOGETHER = 4
"""The most series that stay distinguishable in one panel."""
_SMALL_HEIGHT, _SMALL_WIDTH, _SPACING = 70, 110, 14
_HEADER_CHARACTER_PX = 6.2


def split(panel: Row, names: Sequence[str]) -> Row:
    """A panel of lines as small multiples: one for each of its series, all with the same axes. What belongs
    to no series, such as a limit, is in each."""
    rows = [row | {"layer": -1} for row in panel["data"]["values"]]
    layers = []
    for place, layer in enumerate(panel["layer"]):
        own, channels = layer.get("data", {}).get("values"), dict(layer["encoding"])
        for name, channel in channels.items():
            if "legend" in channel:
                channels[name] = channel | {"legend": None}
            elif "title" in channel:
                few = {"tickCount": 3, **format_ticks("~s")}
                channels[name] = channel | {"title": None, "axis": few | channel["axis"]}
        layers.append(layer | {"encoding": channels})
        if own is None or "series" in own[0]:
            layers[-1].pop("data", None)
            number = -1 if own is None else place
            layers[-1]["transform"] = [{"filter": f"datum.layer === {number}"}]
            rows += [row | {"layer": place} for row in own or ()]
    titles = [panel["layer"][-1]["encoding"][axis]["title"] for axis in ("y", "x")]
    return {
        "facet": {
            "field": "series", "type": "nominal", "sort": list(names),
            "title": [f"↑ {titles[0]}", f"→ {titles[1]}"],
            "header": {"titleFontWeight": "normal", "titleColor": INK, "labelPadding": 2,
                       "labelFontSize": 11},
        },
        "columns": 1, "spacing": _SPACING, "data": {"values": rows},
        "spec": {"width": panel["width"], "height": _SMALL_HEIGHT, "layer": layers},
    }  # fmt: skip


def find_body(panel: Row) -> Row:
    """The part that has the panel's layers and width: itself, or the one repeated for each series."""
    body: Row = panel.get("spec", panel)
    return body


CHARACTER_PX = 7.7
"""Width of a digit of 12 px in the widest of the usual fonts (DejaVu Sans)."""


def make_axis(
    name: str, title: str, axis: Row | None = None, zero: bool = True, log: bool = False
) -> Row:
    """An axis of numbers; without `zero`, from the lowest to the highest."""
    scale: Row = {"zero": zero, "nice": True}
    if log or not zero:
        scale = {**({"type": "log"} if log else {"zero": False}), "nice": False, "padding": 16}
    return {
        "field": name, "type": "quantitative", "title": title, "scale": scale, "axis": axis or {},
    }  # fmt: skip


def format_ticks(form: str) -> Row:
    """The part of an axis that writes each of its numbers in this form of d3, by itself: the renderer gives
    all of them the unit of the largest, so that none is `0M`."""
    return {"labelExpr": f"format(datum.value, '{form}')"}


def resize(spec: Row, plot_px: float) -> Row:
    """The same figure with panels of this width in pixels."""
    resized = copy.deepcopy(spec)
    for panel in resized.get("vconcat", [resized]):
        resize_panel(panel, plot_px)
    return resized


LEAST_CELL_PX = 40
"""Minimum width of a matrix's cell, below which figures would touch: on a phone it scrolls instead."""


def resize_panel(panel: Row, plot_px: float) -> None:
    """Give a panel this width, and small multiples as many columns as fit."""
    body = find_body(panel)
    if body is not panel:
        longest = _HEADER_CHARACTER_PX * max(map(len, panel["facet"]["sort"]))
        panel["columns"] = max(
            1, int((plot_px + _SPACING) / (max(_SMALL_WIDTH, longest) + _SPACING))
        )
        plot_px = (plot_px + _SPACING) / panel["columns"] - _SPACING
    factor = plot_px / body["width"]
    columns = body.get("encoding", {}).get("x", {}).get("sort", [])
    body["width"] = max(plot_px, LEAST_CELL_PX * len(columns))
    for part in (body, *body.get("layer", [])):
        mark = part.get("mark")
        if isinstance(mark, dict):
            # These are given in pixels.
            mark |= {key: mark[key] * factor for key in ("limit", "x") if key in mark}


LOG_FROM = 50
"""The ratio of largest to smallest value above which an axis is logarithmic."""


def needs_log(values: Sequence[float]) -> bool:
    """Whether values vary so much that only a logarithmic axis shows them all."""
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


MOST_LOG_TICKS = 8


def list_log_ticks(values: Sequence[float]) -> list[float]:
    """A few round numbers over the range of values; the renderer's own are nine per power of ten."""
    low, high = min(values), max(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    finest = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    inside = [tick for tick in finest if low <= tick <= high]
    if len(inside) <= MOST_LOG_TICKS:
        return inside
    return [10.0**power for power in powers[:: math.ceil(len(powers) / MOST_LOG_TICKS)]]


LINE_PX = 15
"""Height of a line of text of 12 px."""
_LABEL_PADDING = 8


def make_label_axis(labels: Sequence[str]) -> Row:
    """An axis of names, which may have several lines each. It leaves room for wider fonts than the
    renderer's."""
    longest = max(len(line) for label in labels for line in label.split("\n"))
    lines = max(label.count("\n") + 1 for label in labels)
    axis: Row = {
        "minExtent": math.ceil(CHARACTER_PX * longest) + _LABEL_PADDING,
        "labelExpr": "split(datum.label, '\\n')", "labelLimit": 0, "ticks": False,
        "labelPadding": _LABEL_PADDING,
    }  # fmt: skip
    if lines > 1:
        # By default a label's first line, not its middle, is at its bar.
        axis["labelOffset"] = {
            "condition": [
                {"test": f"length(split(datum.label, '\\n')) == {count}",
                 "value": -LINE_PX * (count - 1) / 2}
                for count in range(2, lines + 1)
            ],
            "value": 0,
        }  # fmt: skip
    return axis


def slant(names: Sequence[str]) -> Row:
    """A horizontal axis of names that would overlap side by side."""
    longest = CHARACTER_PX * max(map(len, names))
    return {"labelAngle": -45, "labelAlign": "right", "labelLimit": 260,
            "minExtent": math.ceil(min(longest, 260) * math.sin(math.pi / 4))}  # fmt: skip


def find_label_step(lines: int) -> int:
    """Pixels between names on a vertical axis, with this many lines each."""
    return max(26, LINE_PX * lines + 8)


# --- what lies across a panel ---------------------------------------------------------------------


def draw_limit(axis: str, value: float) -> Row:
    """A dashed line across, at a value of one axis."""
    return {
        "data": {"values": [{"limit": value}]},
        "mark": {"type": "rule", "stroke": MUTED, "strokeDash": [4, 4], "aria": False},
        "encoding": {axis: {"field": "limit", "type": "quantitative"}},
    }


def write_limit(value: float, text: str, at_end: bool) -> list[Row]:
    """A text above a horizontal line, at its right or left end, legible on top of other marks."""
    place = {"align": "right", "x": WIDTH - 4} if at_end else {"align": "left", "x": 4}
    mark = {"type": "text", "text": text, "dy": -7, "fontSize": 12, "aria": False, **place}
    return [
        {
            "data": {"values": [{"limit": value}]},
            "mark": mark | colours,
            "encoding": {"y": {"field": "limit", "type": "quantitative"}},
        }
        for colours in ({"fill": PAPER, "stroke": PAPER, "strokeWidth": 4}, {"fill": INK})
    ]


def draw_mark(value: float, text: str) -> Row:
    """A solid line across, at a value of the x-axis, with a text on hover."""
    return {
        "data": {"values": [{"mark": value, "text": text}]},
        "mark": {"type": "rule", "stroke": INK, "strokeWidth": 1.5},
        "encoding": {
            "x": {"field": "mark", "type": "quantitative"},
            "description": {"field": "text"},
        },
    }


def draw_label(value: float, text: str, line: int, to_the_left: bool) -> Row:
    """A text next to a line across, this many lines below the panel's upper edge."""
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
    """A grey area over the whole y-axis, between two values of the x-axis, with a text on hover."""
    return {
        "data": {"values": [{"begin": begin, "end": end, "text": text}]},
        "mark": {"type": "rect", "fill": MUTED, "fillOpacity": 0.2, "stroke": None},
        "encoding": {
            "x": {"field": "begin", "type": "quantitative"},
            "x2": {"field": "end"},
            "description": {"field": "text"},
        },
    }
