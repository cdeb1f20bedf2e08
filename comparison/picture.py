"""The front page's picture of the fleet."""

from __future__ import annotations

from collections.abc import Iterator
from math import dist, log
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

    def axis(field: str, title: str) -> dict[str, Any]:
        scale = {"type": "log", "nice": False, "padding": 24}
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
    name = {"field": "name", "type": "nominal"}
    for below, dy in ((False, -9), (True, 16)):
        layers.append({
            "mark": {"type": "text", "align": "left", "dx": 9, "dy": dy, "color": INK},
            "transform": [{"filter": {"field": "below", "equal": below}}],
            "encoding": {**place, "text": name},
        })  # fmt: skip
    spec = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "width": 620, "height": 380,
            "data": {"values": rows}, "layer": layers}  # fmt: skip
    return make_standalone_svg(spec, "auto")


_LOSSES = ("keeps what it has acknowledged", "lost acknowledged events after SIGKILL")


_CROWDED = 0.1
"""Points as near as this (natural logarithms of their figures) have their names above and below."""


def _list_points(field: Field) -> Iterator[dict[str, Any]]:
    places: list[tuple[float, float]] = []
    for row in field.rows:
        times, inserts, disk = (
            cell.shown.value if (cell := find_cell(field, row, *COLUMNS[heading])) else None
            for heading in (QUERIES, INSERTS, DISK)
        )
        if times is None or inserts is None:
            continue
        place = (log(inserts), log(times))
        crowded = any(dist(place, other) < _CROWDED for other in places)
        places.append(place)
        yield {
            "name": row.candidate.name, "ms": times, "inserts": inserts, "bytes": disk,
            "loses": _LOSSES[max(count_losses(row.candidate), default=0) > 0], "below": crowded,
        }  # fmt: skip
