"""Figures drawn anew for a narrow page, as a telephone has: less wide, with names on several lines."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from .drawing import find_size, to_svg
from .theme import CONFIG
from .vega import CHARACTER_PX, WIDTH, Row, find_label_step, make_label_axis

NARROW_PX = 360
"""Of a whole figure: what a page of 400 px has room for."""

_PLOT_PX, _LEAST_PLOT_PX = 250, 110
_TRIES = 3
_LETTERS = 15
"""In a line of a name."""
_LEGEND_COLUMNS = 3

_CONFIG: dict[str, Any] = CONFIG | {
    "axis": CONFIG["axis"] | {"labelLimit": 130, "titleLimit": 300, "labelSeparation": 6},
    # What is too wide then scrolls.
    "legend": CONFIG["legend"] | {"labelLimit": 0},
}


def draw_narrow(spec: Row) -> str:
    """The bare SVG, as wide as a narrow page at most where that can be."""
    plot_px = float(_PLOT_PX)
    for _ in range(_TRIES):
        svg = to_svg(make_narrow(spec, plot_px), _CONFIG)
        excess = float(find_size(svg)[0]) - NARROW_PX
        if excess <= 0 or plot_px == _LEAST_PLOT_PX:
            break
        # What is beside the plot takes so much.
        plot_px = max(_LEAST_PLOT_PX, plot_px - excess)
    return svg


def make_narrow(spec: Row, plot_px: float) -> Row:
    """The same figure with panels so many pixels wide."""
    found = copy.deepcopy(spec)
    for panel in found.get("vconcat", [found]):
        _narrow_panel(panel, plot_px)
    return found


def _narrow_panel(panel: Row, plot_px: float) -> None:
    panel["width"] = plot_px
    layers = panel.get("layer", [])
    parts = [panel, *layers]
    for part in parts:
        mark = part.get("mark")
        if isinstance(mark, dict):
            # What is placed by pixels.
            mark |= {key: mark[key] * plot_px / WIDTH for key in ("limit", "x") if key in mark}
        for channel in part.get("encoding", {}).values():
            legend = channel.get("legend") if isinstance(channel, dict) else None
            if legend and legend.get("columns", 0) > _LEGEND_COLUMNS:
                legend["columns"] = _LEGEND_COLUMNS
    _wrap_names(panel, parts)
    _turn_labels(panel, parts, plot_px)


def _list_axes(parts: list[Row], channel: str) -> Iterator[Row]:
    """The channel's encodings that have names, not numbers."""
    for part in parts:
        found = part.get("encoding", {}).get(channel, {})
        if found.get("type") in ("nominal", "ordinal") and found.get("axis", {}) is not None:
            yield found


def _wrap_names(panel: Row, parts: list[Row]) -> None:
    """Names on the vertical axis get several lines."""
    axes = list(_list_axes(parts, "y"))
    fields = {axis["field"] for axis in axes}
    for field in fields:
        for part in parts:
            for row in part.get("data", {}).get("values", ()):
                if field in row:
                    row[field] = _wrap(row[field])
    names = list(dict.fromkeys(name for axis in axes for name in map(_wrap, axis.get("sort", ()))))
    if not names:
        return
    for axis in axes:
        axis["sort"] = [_wrap(name) for name in axis["sort"]]
        axis["axis"] = axis["axis"] | make_label_axis(names)
    lines = max(name.count("\n") + 1 for name in names)
    panel["height"] = max(panel["height"], find_label_step(lines) * len(names))


def _wrap(name: str) -> str:
    return "\n".join(wrap(" ".join(name.split("\n")), _LETTERS, break_long_words=False)) or " "


def _turn_labels(panel: Row, parts: list[Row], plot_px: float) -> None:
    """Names on the horizontal axis that would lie on each other stand aslant."""
    for axis in _list_axes(parts, "x"):
        names = axis.get("sort") or []
        if sum(CHARACTER_PX * (len(name) + 1) for name in names) > plot_px:
            axis["axis"] = axis["axis"] | {"labelAngle": -45, "labelAlign": "right"}
