"""What changes with scale: the table and the picture of `history.yaml`, for docs/measurements/history.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cli.results.kept import SUFFIX
from cli.results.model import Result
from cli.results.sources import find_sources
from cli.show.drawing import make_standalone_svg
from cli.show.vega import choose_colour, choose_shape
from simulator.units import format_digits

from .table import ROOT, write_table

FILE = ROOT / "img" / "results" / f"history{SUFFIX}"
"""Beside the results of the other pictures: one turn each, which the comparison doesn't publish."""
PAGE = ROOT / "docs" / "measurements" / "history.md"
PICTURE = ROOT / "img" / "history.svg"

INSERTS, DISK = "inserts/s until then", "bytes/event"
_COLUMNS = 3
_MILLION = 1_000_000
_LABEL = "datum.label && datum.value < 1 ? format(datum.value, '~g') : datum.label"
"""0.1 instead of 100m."""


class Point(NamedTuple):
    """A figure of a candidate with this many events."""

    figure: str
    candidate: str
    events: int
    value: float


def list_points(folder: Path) -> list[Point]:
    """The figures of the campaign: inserts first, then the disk, then each query in ms."""
    points = [
        Point(figure, source.candidate, events, value)
        for source in find_sources([folder]).done
        for figure, events, value in _read(source.result)
    ]
    figures = list(dict.fromkeys([INSERTS, DISK, *(point.figure for point in points)]))
    return sorted(points, key=lambda own: (figures.index(own.figure), own.candidate, own.events))


def _read(result: Result) -> Iterator[tuple[str, int, float]]:
    for group in (run.group for run in result.writers):
        if group.verification is None or not (stored := group.verification.stored):
            continue
        if group.rate_per_s is not None:
            yield INSERTS, stored, group.rate_per_s
        sizes = [own.total_bytes for own in (group.storage_compacted, group.storage) if own]
        if size_bytes := next(filter(None, sizes), None):
            yield DISK, stored, size_bytes / stored
    if level := result.fill_level:
        for entry in result.query_summary:
            yield f"{entry.query}, ms", level, 1000 * entry.avg


def make_table(folder: Path) -> str:
    """A row for each figure of each candidate, in Markdown; the last column compares the most events with
    the fewest."""
    points = list_points(folder)
    sizes = sorted({point.events for point in points})
    lines = [
        ["figure", "candidate", *(f"{size / _MILLION:g} million" for size in sizes), "factor"],
        ["---", "---", *["---:"] * (len(sizes) + 1)],
    ]
    for figure, candidate in dict.fromkeys((point.figure, point.candidate) for point in points):
        values = {
            p.events: p.value for p in points if (p.figure, p.candidate) == (figure, candidate)
        }
        shown = [_write(figure, values.get(size)) for size in sizes]
        least, most = values.get(sizes[0]), values.get(sizes[-1])
        factor = f"{format_digits(most / least)}×" if least and most else "-"
        lines.append([figure, candidate, *shown, factor])
    return write_table(lines)


def _write(figure: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if figure == INSERTS else format_digits(value)


def make_picture(folder: Path) -> str:
    """An SVG with a panel for each figure and a line for each candidate, by events in the database."""
    points = list_points(folder)
    names = sorted({point.candidate for point in points})
    sizes = sorted({point.events for point in points})

    def scale(choose: Any) -> dict[str, Any]:
        return {"domain": names, "range": list(map(choose, range(len(names))))}

    series = {"field": "candidate", "type": "nominal", "title": None,
              "legend": {"orient": "bottom", "columns": len(names), "symbolSize": 90}}  # fmt: skip
    encoding = {
        "x": {"field": "events", "type": "quantitative", "title": "events in the database",
              "scale": {"type": "log"}, "axis": {"values": sizes, "format": "~s", "grid": True}},
        "y": {"field": "value", "type": "quantitative", "title": None, "scale": {"type": "log"},
              "axis": {"format": "~s", "tickCount": 4, "grid": True, "labelExpr": _LABEL}},
        "color": series | {"scale": scale(choose_colour)},
        "shape": series | {"scale": scale(choose_shape)},
    }  # fmt: skip
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": [point._asdict() for point in points]},
        "facet": {"field": "figure", "type": "nominal", "title": None,
                  "sort": list(dict.fromkeys(point.figure for point in points))},
        "columns": _COLUMNS,
        "spec": {"width": 180, "height": 130,
                 "mark": {"type": "line", "point": {"filled": True, "size": 60}}, "encoding": encoding},
        "resolve": {"scale": {"y": "independent"}},
    }  # fmt: skip
    return make_standalone_svg(spec, "auto")
