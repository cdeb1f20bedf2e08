"""What more nodes bring: a step's figures over the number of nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.units import format_count

from ..render.chart import Chart
from ..render.tables import Table
from ..render.vega import (
    Row,
    draw_intervals,
    draw_lines,
    draw_points,
    list_series,
    make_axis,
    make_spec,
    needs_log,
)
from ..results.caveats import Place
from ..results.model import Result
from ..results.statistics import Summary, summarize
from .plan import Candidate
from .ranking import pool_samples

MOST_SERIES = 7
"""The most series in a figure."""


@dataclass(frozen=True)
class Scaling:
    """A step of a campaign over the number of nodes."""

    step: str
    figure: Chart
    table: Table


@dataclass(frozen=True)
class _Point:
    series: str
    nodes: int
    place: Place
    summary: Summary


def find_scaling(step: str, measured: Mapping[Candidate, Sequence[Result]]) -> list[Scaling]:
    """The step's rates and its times over the number of nodes; none unless a series has two numbers or more.
    `measured`: candidate -> its results, one for each repetition that gave one."""
    counts: dict[str, set[int]] = {}
    for candidate, results in measured.items():
        if candidate.nodes is not None and results:
            counts.setdefault(candidate.series, set()).add(candidate.nodes)
    scaled = {
        candidate: results
        for candidate, results in measured.items()
        if candidate.nodes is not None and len(counts.get(candidate.series, ())) > 1
    }
    pooled = pool_samples({str(candidate): results for candidate, results in scaled.items()})
    points = [
        _Point(
            _name_series(candidate.series, place, pooled),
            candidate.nodes or 0,
            place,
            summarize(values),
        )
        for candidate in scaled
        for place, values in pooled.get(str(candidate), {}).items()
        if place.response is None
    ]
    points.sort(key=lambda point: (point.series, point.nodes))
    kinds = [
        [point for point in points if point.place.has_times is times] for times in (False, True)
    ]
    return [
        Scaling(step, _draw_scaling(step, group), _tabulate_scaling(group))
        for group in kinds
        if group
    ]


def _name_series(
    series: str, place: Place, pooled: Mapping[str, Mapping[Place, Sequence[float]]]
) -> str:
    """The series, with the place if there are several."""
    places = {other for samples in pooled.values() for other in samples if other.response is None}
    return series if len(places) == 1 else f"{series}, {place}"


def _draw_scaling(step: str, points: Sequence[_Point]) -> Chart:
    times = points[0].place.has_times
    unit = "Seconds" if times else "Events/s"
    rows: list[Row] = []
    for point in points:
        low, high = point.summary.ci95 or (point.summary.avg, point.summary.avg)
        figure = f"{_format_figure(point.summary.avg, times)} {unit.lower()}"
        text = f"{point.series}, {format_count(point.nodes, 'node')}\n{figure}"
        rows.append(
            {"series": point.series, "nodes": point.nodes, "mean": point.summary.avg, "low": low,
             "high": high, "text": text}
        )  # fmt: skip
    names = list_series(rows)
    rows = [row for row in rows if row["series"] in names[:MOST_SERIES]]
    counts = sorted({row["nodes"] for row in rows})
    log = needs_log([row[end] for row in rows for end in ("mean", "low", "high")])
    x = make_axis("nodes", "Number of nodes", axis={"values": counts, "format": "d"}, zero=False)
    layers = [
        draw_intervals(x, make_axis("low", unit, log=log), "high", rows),
        draw_lines(x, make_axis("mean", unit, log=log), rows),
        draw_points(x, make_axis("mean", unit, log=log), rows),
    ]
    note = "Mean over the repetitions, with its 95 % interval where there are two or more"
    if log:
        note += " (logarithmic axis)"
    if len(names) > MOST_SERIES:
        note += f"; {len(names) - MOST_SERIES} more are in the table"
    kind = f"nodes-{step}-{'times' if times else 'rates'}"
    return Chart(kind, f"{step} by number of nodes", f"{note}.", make_spec(rows, layers))


def _tabulate_scaling(points: Sequence[_Point]) -> Table:
    """Each figure, how many times as fast it is as with the fewest nodes, and what share that is of as many
    times the nodes."""
    times = points[0].place.has_times
    first: dict[tuple[str, Place], _Point] = {}
    rows = []
    for point in points:
        base = first.setdefault((point.series, point.place), point)
        speed = (
            base.summary.avg / point.summary.avg if times else point.summary.avg / base.summary.avg
        )
        interval = point.summary.ci95
        rows.append(
            [
                point.series,
                f"{point.nodes:,}",
                _format_figure(point.summary.avg, times),
                f"{_format_figure(interval[0], times)} to {_format_figure(interval[1], times)}"
                if interval
                else "-",
                f"{speed:.2f}",
                f"{speed * base.nodes / point.nodes:.0%}",
            ]
        )
    unit = "Seconds" if times else "Events/s"
    headers = ["Series", "Nodes", unit, "95% interval", "Times as fast", "Of linear"]
    return Table(headers, rows, left=("Series",))


def _format_figure(value: float, times: bool) -> str:
    return f"{value:,.3g}" if times else f"{value:,.0f}"
