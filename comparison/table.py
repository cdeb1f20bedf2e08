"""The tables of results in `comparison/README.md`, and the front page's picture: `make comparison-table`.

The fleet's figures are those of the site that `publish` makes of the same results. `tests/test_comparison.py`
holds page, picture and results together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import dist, log
from pathlib import Path
from statistics import fmean
from typing import Any

from cli.results.caveats import Place
from cli.results.kept import SUFFIX
from cli.results.matrix import CandidateFigures, Matrix, collect_samples
from cli.results.model import Result
from cli.results.published import Candidate, Cell, Field, Row, find_candidates, make_fields
from cli.results.sources import find_sources
from cli.results.statistics import find_mean
from cli.show.drawing import make_standalone_svg
from cli.show.vega import INK, choose_colour
from simulator.contract import GroupResult
from simulator.units import format_count, format_digits

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "comparison" / "results"
FLEET = RESULTS / f"fleet{SUFFIX}"
BEGIN, END = "<!-- comparison: made by `make comparison-table` -->", "<!-- comparison: end -->"
_BLOCK = re.compile(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)

COLUMNS: Mapping[str, tuple[str, str | None]] = {
    "inserts/s": ("inserts", "fill"),
    "capacity at p99 ≤ 100 ms, events/s": ("capacity", "capacity"),
    "ten queries, ms": ("hot", "questions"),
    "bytes/event": ("disk", None),
    "CPU µs/event": ("cpu", "fill"),
    "outage after SIGKILL, s": ("outage", "kill"),
}
"""Heading -> the aspect of the site's first page, and its step; None: the step that the site has chosen."""
LOST = "acknowledged but lost"
STORED = "load"
"""The reference's step that only stores the events of the queries."""


def make_table(folder: Path) -> str:
    """The table in Markdown, with its notes. Each cell has the mean of the repetitions and their range, bold
    if it leads."""
    sources = find_sources([folder])
    field = make_fields(find_candidates(sources))[0]
    columns = [[_find_cell(field, row, *place) for row in field.rows] for place in COLUMNS.values()]
    shown = [
        list(map(show_cell, cells, _find_leaders(map(_read_figures, cells)))) for cells in columns
    ]
    lines = [["candidate", *COLUMNS, LOST], ["---"] * (len(COLUMNS) + 2)]
    for row, *cells in zip(field.rows, *shown, strict=True):
        lines.append([row.candidate.name, *cells, _show_losses(row.candidate)])
    return "\n\n".join(
        filter(None, [
            _write_table(lines),
            _list_notes([row.candidate for row in field.rows]),
            _describe([source.result for source in sources.done]),
        ])
    )  # fmt: skip


def _write_table(lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list_notes(candidates: Iterable[Candidate]) -> str:
    return "\n".join(
        f"* {candidate.name}: {note}" for candidate in candidates for note in candidate.notes
    )


def _find_cell(field: Field, row: Row, aspect: str, step: str | None) -> Cell | None:
    for column, cell in zip(field.columns, row.cells, strict=True):
        if column.aspect.key == aspect and step in (None, column.test):
            return cell
    return None


def _find_leaders(column: Iterable[CandidateFigures | None]) -> list[bool]:
    """Whether each candidate of a column is first by the rule of ranking, whoever may share that place."""
    figures = list(column)
    matrix = Matrix({place: own for place, own in enumerate(figures) if own is not None})
    ranks = {place: matrix.find_rank(place) for place in matrix.rows}
    return [
        (rank := ranks.get(place)) is not None and rank.of > 1 and rank.worst == 1
        for place in range(len(figures))
    ]


def _read_figures(cell: Cell | None) -> CandidateFigures | None:
    return cell.shown.figures if cell else None


def show_cell(cell: Cell | None, leads: bool) -> str:
    """The figure with its range; `leads`: bold."""
    if cell is None:
        return "-"
    aspect = cell.shown.aspect
    ends = sorted(map(aspect.from_speed, cell.shown.figures.scores))
    low, high = aspect.show(ends[0]), aspect.show(ends[-1])
    figure = f"**{cell.text}**" if leads else cell.text
    return (
        figure
        + (f" ({low} to {high})" if low != high else "")
        + (f", {cell.note}" if cell.note else "")
    )


def _show_losses(candidate: Candidate) -> str:
    """The acknowledged events that were missing after the fault: the fewest and the most of a repetition."""
    losses = _count_losses(candidate)
    if not losses:
        return "-"
    return " to ".join(dict.fromkeys(f"{count:,}" for count in (min(losses), max(losses))))


def _count_losses(candidate: Candidate) -> list[int]:
    groups = [run.group for source in candidate.sources for run in source.result.writers]
    counts = [_count_lost(group) for group in groups if group.lookup]
    return [count for count in counts if count is not None]


def _count_lost(group: GroupResult) -> int | None:
    """Events whose look-up failed; without a look-up, expected minus stored events."""
    if group.lookup and group.lookup.missing is not None:
        return group.lookup.missing
    counted = group.verification
    if counted is None or counted.stored is None:
        return None
    return max(0, counted.expected - counted.stored)


def _describe_cells(results: Sequence[Result]) -> str:
    repeats = max(result.repetition or 1 for result in results)
    return (
        f"Geometric means and ranges of {repeats} repetitions. Bold: the best, where the repetitions"
        " decide it; where nothing is bold, they don't."
    )


def _describe(results: Sequence[Result]) -> str:
    client = results[0].describe("client")
    cpus, model = client.get("cpus"), client.get("cpu_model")
    return (
        f"{_describe_cells(results)} {_describe_windows(results)} Database and client shared the {cpus} CPUs"
        f" of one machine ({model}): on its own server a database does more, and one that needs little CPU"
        " looks better here than there. Durability is each database's default, unless the name says `disk`."
    )


def _describe_windows(results: Sequence[Result]) -> str:
    """How long the measurements took."""
    fills = [result.writers for result in results if result.by_fill_level]
    events = max(sum(run.group.count or 0 for run in runs) for runs in fills)
    searches = [result for result in results if result.command == "capacity"]
    step_s = max(result.options["duration_s"] for result in searches)
    return f"{events:,} events to insert and query, search steps of {step_s:g} s."


def make_reference_table(folder: Path) -> str:
    """The reference's table in Markdown: inserts by each number of workers, and each query's time. Each cell
    has the mean of the repetitions' means and their range, bold as in the fleet's table."""
    sources = find_sources([folder])
    candidates = find_candidates(sources)
    repetitions = {candidate.name: _collect_repetitions(candidate) for candidate in candidates}
    places = sorted({place for cells in repetitions.values() for place in cells}, key=_order)
    shown = []
    for place in places:
        column = [cells.get(place, []) for cells in repetitions.values()]
        leaders = _find_leaders(
            CandidateFigures([{place: [value]} for value in values]) if values else None
            for values in column
        )
        shown.append([_write_range(place, *cell) for cell in zip(column, leaders, strict=True)])
    lines = [["candidate", *map(_head, places)], ["---"] * (len(places) + 1)]
    lines += map(list, zip(repetitions, *shown, strict=True))
    results = [source.result for source in sources.done]
    parts = [_write_table(lines), _list_notes(candidates), _describe_cells(results)]
    return "\n\n".join(filter(None, parts))


def _collect_repetitions(candidate: Candidate) -> dict[Place, list[float]]:
    """Place -> the mean of each repetition, in events per second or seconds."""
    means: dict[Place, list[float]] = {}
    shown = (source for source in candidate.sources if source.test != STORED)
    for source in shown:
        for place, values in collect_samples(source.result).items():
            means.setdefault(place, []).append(fmean(values))
    return means


def _order(place: Place) -> tuple[int, str]:
    return place.workers or sys.maxsize, place.query or ""


def _head(place: Place) -> str:
    if place.query is not None:
        return f"`{place.query}`, ms"
    return f"inserts/s by {format_count(place.workers or 0, 'worker')}"


def _write_range(place: Place, values: Sequence[float], leads: bool) -> str:
    if not values:
        return "-"
    ends = find_mean(values), min(values), max(values)
    if place.query is None:
        middle, low, high = (f"{end:,.0f}" for end in ends)
    else:
        middle, low, high = (format_digits(1000 * end) for end in ends)
    return f"**{middle}** ({low} to {high})" if leads else f"{middle} ({low} to {high})"


PAGE = ROOT / "comparison" / "README.md"
TABLES: Mapping[str, Callable[[Path], str]] = {
    "fleet": make_table,
    "temperature": make_reference_table,
}
"""The results whose tables the page has, and what makes each."""


def make_block(name: str) -> str:
    """The table of these results; nothing where nothing is measured yet."""
    file = RESULTS / f"{name}{SUFFIX}"
    return TABLES[name](file) if file.is_file() else ""


def complete_page(page: str, blocks: Iterable[str]) -> str:
    """The page with these blocks between its marks, in their order."""
    left = iter(blocks)
    return _BLOCK.sub(lambda _: "\n".join(filter(None, [BEGIN, next(left), END])), page)


# --- the front page's picture ------------------------------------------------------------------------

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
            cell.shown.value if (cell := _find_cell(field, row, *COLUMNS[heading])) else None
            for heading in ("ten queries, ms", "inserts/s", "bytes/event")
        )
        if times is None or inserts is None:
            continue
        place = (log(inserts), log(times))
        crowded = any(dist(place, other) < _CROWDED for other in places)
        places.append(place)
        yield {
            "name": row.candidate.name, "ms": times, "inserts": inserts, "bytes": disk,
            "loses": _LOSSES[max(_count_losses(row.candidate), default=0) > 0], "below": crowded,
        }  # fmt: skip


def main() -> None:
    """Write the page's tables, and the picture."""
    PAGE.write_text(complete_page(PAGE.read_text(), map(make_block, TABLES)))
    if FLEET.is_file():
        PICTURE.write_text(make_picture(FLEET))


if __name__ == "__main__":
    main()
