"""The front page's picture of the fleet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import Any

from cli.results.published import Field, find_candidates, make_fields
from cli.results.sources import find_sources
from cli.show.drawing import make_standalone_svg
from cli.show.vega import INK, choose_colour

from .table import COLUMNS, DISK, INSERTS, QUERIES, ROOT, count_losses, find_cell

PICTURE = ROOT / "img" / "comparison.svg"


def make_picture(folder: Path) -> str:
    """An SVG with a point for each candidate of the fleet: how long the ten queries take, by how many events
    it takes in. A point's size is what an event takes on disk, a cross where that isn't known; who lost
    acknowledged events has another colour. It follows the viewer's light or dark theme."""
    rows = list(_list_points(make_fields(find_candidates(find_sources([folder])))[0]))
    for row, (left, below) in zip(rows, place_names(rows), strict=True):
        row |= {"left": left, "below": below}

    def axis(field: str, title: str) -> dict[str, Any]:
        scale = {"type": "log", "nice": False, "padding": _PADDING}
        return {"field": field, "type": "quantitative", "title": title, "scale": scale,
                "axis": {"grid": True, "format": "~s", "tickCount": 6}}  # fmt: skip

    place: dict[str, Any] = {"x": axis("inserts", "inserts/s (more is better)"),
             "y": axis("ms", "the ten queries, ms (less is better)")}  # fmt: skip
    loses: dict[str, Any] = {"field": "loses", "type": "nominal", "title": None,
             "scale": {"domain": list(_LOSSES), "range": [choose_colour(0), choose_colour(3)]},
             "legend": {"orient": "top"}}  # fmt: skip
    size: dict[str, Any] = {"field": "bytes", "type": "quantitative",
            "title": "bytes per event (cross: not known)",
            "scale": {"type": "linear", "domain": [0, 300], "range": [0, 900]},
            "legend": {"orient": "bottom", "columns": 3, "titleLimit": 0, "values": [30, 100, 300],
                       "symbolFillColor": "#8888"}}  # fmt: skip
    known = {"filter": "datum.bytes > 0"}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "circle", "opacity": 0.55}, "transform": [known],
         "encoding": {**place, "color": loses, "size": size}},
        {"mark": {"type": "point", "shape": "cross", "size": 70},
         "transform": [{"filter": "datum.bytes === null"}], "encoding": {**place, "color": loses}},
    ]  # fmt: skip
    layers.append({
        "mark": {"type": "text", "color": INK, "dx": {"expr": "datum.left ? -9 : 9"},
                 "align": {"expr": "datum.left ? 'right' : 'left'"},
                 "dy": {"expr": "datum.below ? 16 : -9"}},
        "encoding": {**place, "text": {"field": "name", "type": "nominal"}},
    })  # fmt: skip
    spec = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "width": _WIDTH, "height": _HEIGHT,
            "data": {"values": rows}, "layer": layers}  # fmt: skip
    return make_standalone_svg(spec, "auto")


_LOSSES = ("keeps what it has acknowledged", "lost acknowledged events after SIGKILL")


def _list_points(field: Field) -> Iterator[dict[str, Any]]:
    for row in field.rows:
        times, inserts, disk = (
            cell.shown.value if (cell := find_cell(field, row, *COLUMNS[heading])) else None
            for heading in (QUERIES, INSERTS, DISK)
        )
        if times is not None and inserts is not None:
            lost = max(count_losses(row.candidate), default=0) > 0
            yield {"name": row.candidate.name, "ms": times, "inserts": inserts, "bytes": disk,
                   "loses": _LOSSES[lost]}  # fmt: skip


# --- names that don't cover each other ----------------------------------------------------------------

_WIDTH, _HEIGHT, _PADDING = 620, 380, 24
_LETTER, _RADIUS = 6.2, 10
"""What a letter of a name, and most points, take in pixels."""

_SPOTS = ((False, False), (False, True), (True, False), (True, True))
"""Left, below: in the order of preference."""

Box = tuple[float, float, float, float]
"""Left, right, top and bottom, in pixels."""


def place_names(points: Sequence[Mapping[str, Any]]) -> list[tuple[bool, bool]]:
    """Whether each point's name is to the left of it, and whether below: where it covers the fewest other
    names and points."""
    across = _scale([log(point["inserts"]) for point in points], _WIDTH)
    down = [_HEIGHT - y for y in _scale([log(point["ms"]) for point in points], _HEIGHT)]
    places = list(zip(across, down, strict=True))
    dots = [(x - _RADIUS, x + _RADIUS, y - _RADIUS, y + _RADIUS) for x, y in places]
    taken: list[Box] = []
    chosen: list[tuple[bool, bool]] = []
    for number, (point, place) in enumerate(zip(points, places, strict=True)):
        others = [*dots[:number], *dots[number + 1 :], *taken]
        spots = {spot: _find_box(point["name"], place, *spot) for spot in _SPOTS}
        covered = {
            spot: sum(map(partial(_overlap, box), others)) + (box[0] < 0)
            for spot, box in spots.items()
        }
        chosen.append(min(covered, key=covered.__getitem__))
        taken.append(spots[chosen[-1]])
    return chosen


def _find_box(name: str, place: tuple[float, float], left: bool, below: bool) -> Box:
    """What a name takes beside a point."""
    x, y = place
    begin = x - 9 - _LETTER * len(name) if left else x + 9
    base = y + (16 if below else -9)
    return begin, begin + _LETTER * len(name), base - 10, base + 2


def _overlap(one: Box, other: Box) -> bool:
    return all(one[i] < other[i + 1] and other[i] < one[i + 1] for i in (0, 2))


def _scale(values: Sequence[float], pixels: float) -> list[float]:
    span = max(values) - min(values) or 1.0
    inner = pixels - 2 * _PADDING
    return [_PADDING + inner * (value - min(values)) / span for value in values]
