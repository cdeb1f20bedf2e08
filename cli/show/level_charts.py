"""Figures over the fill level, by candidate: inserts and their times, query times, and what is on disk. And a
step's figures over the number of workers or nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simulator.units import format_count

from ..results.caveats import Place
from ..results.matrix import Measured, pool_samples
from ..results.model import GroupRun, Result
from ..results.statistics import Summary, summarize
from ..run.campaign.plan import Candidate
from .chart import Chart
from .tables import Table, format_ms, format_rate
from .vega import (
    HEIGHT,
    Row,
    draw_intervals,
    draw_lines,
    draw_points,
    draw_series,
    list_series,
    make_axis,
    make_spec,
    needs_log,
)

MOST_PANELS = 4
"""The most queries that are drawn over fill levels."""
MOST_SERIES = 7
"""The most series over the number of nodes."""
GROWN = 1.05
"""This many times as many events are another fill level."""

_OVER = (
    "Mean over the repetitions at each level, and the range from the lowest to the highest of them"
)


def _make_point(
    name: str, level: float, values: Sequence[float], shown: str, of: str = "events"
) -> Row:
    """A point: the mean of the repetitions' values at a level, and the range. `of`: what the level counts."""
    mean = fmean(values)
    text = f"{name}\n{level:,.0f} {of}: {shown}"
    return {
        "series": name, "level": level, "value": mean, "low": min(values), "high": max(values),
        "text": text,
    }  # fmt: skip


def _draw_panel(
    rows: Sequence[Row], title: str, height: int, x: Row | None = None
) -> tuple[Row, bool]:
    """Values over the level, and whether their axis is logarithmic. `x`: another axis than that of events."""
    log = needs_log([row[end] for row in rows for end in ("low", "high")])
    x = x or make_axis("level", "Events in the database", axis={"format": "~s"})
    axis = {"format": "~s"} if max(row["high"] for row in rows) >= 1000 else {}
    layers = [draw_intervals(x, make_axis("low", title, axis, log=log), "high", rows)]
    layers += draw_series(x, make_axis("value", title, axis, log=log), rows)
    return make_spec(rows, layers, height), log


def draw_levels(step: str, measured: Measured) -> Chart | None:
    """Inserts per second and, below, the time of a request, over what was stored before, for growing data."""
    rates: list[Row] = []
    times: list[Row] = []
    offered = False
    for name, results in measured.items():
        for runs in _join_steps(results):
            offered = offered or any(group_run.group.offered for group_run in runs)
            level = fmean(group_run.run.fill_level or 0 for group_run in runs)
            done = [group_run.group.rate_per_s for group_run in runs if group_run.group.rate_per_s]
            took = [
                group_run.group.latency_ms.tail for group_run in runs if group_run.group.latency_ms
            ]
            if done:
                rates.append(
                    _make_point(name, level, done, f"{format_rate(fmean(done))} inserts/s")
                )
            if took:
                times.append(_make_point(name, level, took, f"p99 {format_ms(fmean(took))} ms"))
    if not rates:
        return None
    title = f"{'Response' if offered else 'Request'} p99, ms"
    panels = [_draw_panel(rates, "Inserts/s", HEIGHT * 3 // 4)]
    panels += [_draw_panel(times, title, HEIGHT // 2)] if times else []
    note = f"{_OVER}; below, how long a request took" if times else _OVER
    note += " (logarithmic axis)." if any(log for _, log in panels) else "."
    spec = {"vconcat": [panel for panel, _ in panels]}
    return Chart("levels", f"{step}: rate and time over fill level", note, spec)


def _join_steps(results: Iterable[Result]) -> list[list[GroupRun]]:
    """For each step on growing data, the valid runs of all repetitions."""
    steps: dict[int, list[GroupRun]] = {}
    for result in results:
        if result.by_fill_level:
            for group_run in result.writers:
                if group_run.group.valid:
                    steps.setdefault(group_run.run.run, []).append(group_run)
    return [steps[number] for number in sorted(steps)]


def draw_workers(step: str, rates: Mapping[str, Mapping[Place, Sequence[float]]]) -> Chart:
    """Inserts per second over the number of workers. `rates`: candidate -> the rates of its repetitions."""
    rows = [
        _make_point(
            name, place.workers, values, f"{format_rate(fmean(values))} inserts/s", "workers"
        )
        for name, places in rates.items()
        for place, values in places.items()
        if place.workers is not None
    ]
    counts = sorted({int(row["level"]) for row in rows})
    ticks = {"values": counts, "format": "d"}
    x = make_axis("level", "Number of workers", axis=ticks, zero=False)
    panel, log = _draw_panel(rows, "Inserts/s", HEIGHT, x)
    note = "Mean over the repetitions at each number, and the range from the lowest to the highest of them"
    note += " (logarithmic axis)." if log else "."
    return Chart("rates", f"{step}: inserts per second", note, panel)


# --- queries --------------------------------------------------------------------------------------


def draw_query_levels(steps: Mapping[str, Measured]) -> Chart | None:
    """A panel for each query that a candidate was asked at several fill levels: how long it took."""
    queries: dict[str, dict[str, dict[int, list[float]]]] = {}
    for measured in steps.values():
        for name, results in measured.items():
            for result in results:
                for summary in result.query_summary if result.fill_level else ():
                    levels = queries.setdefault(summary.query, {}).setdefault(name, {})
                    _add_near(levels, result.fill_level or 0, 1000 * summary.avg)
    panels = []
    for query, candidates in queries.items():
        if any(len(levels) > 1 for levels in candidates.values()):
            rows = [
                _make_point(name, level, took, f"{query} {format_ms(fmean(took))} ms")
                for name, levels in candidates.items()
                for level, took in sorted(levels.items())
            ]
            panels.append(_draw_panel(rows, f"{query}, ms", HEIGHT // 2))
    if not panels:
        return None
    note = _OVER
    if len(panels) > MOST_PANELS:
        note += f"; the first {MOST_PANELS} of {len(panels)} queries"
    note += " (logarithmic axis)." if any(log for _, log in panels[:MOST_PANELS]) else "."
    spec = {"vconcat": [panel for panel, _ in panels[:MOST_PANELS]]}
    return Chart("query-levels", "Query times over fill level", note, spec)


def _add_near(levels: dict[int, list[float]], level: int, value: float) -> None:
    """Add a value to those at about the same level: repetitions that inserted for a time differ a little."""
    near = next(
        (other for other in levels if level <= other * GROWN and other <= level * GROWN), level
    )
    levels.setdefault(near, []).append(value)


# --- on disk --------------------------------------------------------------------------------------


def draw_storage(steps: Mapping[str, Measured]) -> Chart | None:
    """Bytes on disk over the events in the database: for steps on growing data, or else for the step whose
    fill levels lie furthest apart."""
    sizes = {
        step: rows
        for step, measured in steps.items()
        if (
            rows := [
                row for name, results in measured.items() for row in _list_sizes(name, results)
            ]
        )
    }
    growing = [step for step in sizes if _has_steps(steps[step])]
    step = max(growing or sizes, key=lambda step: _find_span(sizes[step]), default=None)
    if step is None:
        return None
    panel, _ = _draw_panel(sizes[step], "On disk, bytes", HEIGHT)
    note = (
        "What the tables take on disk, all copies counted, with what is allocated ahead of events;"
        " mean over the repetitions, and their range."
    )
    return Chart("storage", f"{step}: disk over fill level", note, panel)


def _find_span(rows: Sequence[Row]) -> float:
    """Events from the lowest level to the highest."""
    levels = [float(row["level"]) for row in rows]
    return max(levels) - min(levels)


def _has_steps(measured: Measured) -> bool:
    return any(result.by_fill_level for results in measured.values() for result in results)


def _list_sizes(name: str, results: Sequence[Result]) -> list[Row]:
    """A row for each fill level whose size is known, during runs and after them."""
    sizes: dict[int, list[float]] = {}
    for result in results:
        for run in result.writers:
            for stored in (run.group.storage_during, run.group.storage):
                if (
                    run.group.valid
                    and stored is not None
                    and stored.total_bytes is not None
                    and stored.events
                    and not stored.shared
                ):
                    sizes.setdefault(stored.events, []).append(float(stored.total_bytes))
    return [
        _make_point(name, events, values, f"{fmean(values):,.0f} bytes on disk")
        for events, values in sorted(sizes.items())
    ]


# --- the number of nodes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    series: str
    nodes: int
    place: Place
    summary: Summary


def find_scaling(
    step: str, measured: Mapping[Candidate, Sequence[Result]]
) -> list[tuple[Chart, Table]]:
    """The step's rates and its times over the number of nodes; none unless a series has two numbers or more.
    `measured`: candidate -> its results, one for each repetition that gave one."""
    counts: dict[str, set[int]] = {}
    for candidate, results in measured.items():
        if candidate.nodes is not None and results:
            counts.setdefault(candidate.series, set()).add(candidate.nodes)
    scaled = {
        candidate: results
        for candidate, results in measured.items()
        if results and candidate.nodes is not None and len(counts[candidate.series]) > 1
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
    return [(_draw_scaling(step, group), _tabulate_scaling(group)) for group in kinds if group]


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
