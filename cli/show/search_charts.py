"""What searches measured: response times over the rate that was offered, and the two settings that matter
most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from simulator.contract import Offered, RunLimit

from ..results.capacity import CapacityStep
from ..results.naming import format_value
from ..results.tuning import TunedSetting, Tuning
from .chart import Chart, NamedResult
from .tables import format_ms
from .vega import (
    HEIGHT,
    INK,
    SERIES,
    WIDTH,
    Row,
    draw_limit,
    draw_lines,
    draw_points,
    list_log_ticks,
    make_axis,
    make_spec,
    needs_log,
)

PERCENTILES = {"p50": "p50", "p99": "p99", "p99_9": "p99.9"}
_ACHIEVED = "Achieved, % of what was due"
_KEPT_UP = 99.0
"""Below it a run is saturated."""


def _find_point(row: Row) -> tuple[object, ...]:
    """What steps of one result at one rate share."""
    return row["result"], row["part"], row["rate"]


def draw_over_rate(results: Sequence[NamedResult]) -> Chart | None:
    """Each step of a capacity: p50, p99 and p99.9 over the rate, and below how much of it was achieved.
    Several results have a panel for each percentile, with a line for each result."""
    rows = [row for named in results for row in _list_rows(named)]
    if not rows:
        return None
    like = defaultdict(list)
    for row in rows:
        like[_find_point(row)].append(row["value"])
    for row in rows:
        own = sorted(like[_find_point(row)])
        row["middle"] = own[len(own) // 2]
    shown = [named for named in results if named.result.capacity]
    alone = len(shown) == 1
    times = [row for row in rows if row["part"] in PERCENTILES]
    panels = []
    if alone:
        own = [row | {"series": PERCENTILES[row["part"]]} for row in times]
        panels.append(_draw_panel(own, "Response time, ms", _list_limits(shown), HEIGHT))
    else:
        for part, title in PERCENTILES.items():
            own = [row for row in times if row["part"] == part]
            if not own:
                continue  # of steps so short that it isn't known
            limits = _list_limits(shown, part)
            panels.append(_draw_panel(own, f"Response {title}, ms", limits, HEIGHT // 2))
    achieved = [row for row in rows if row["part"] == "achieved"]
    if alone:
        achieved = [row | {"series": "p50"} for row in achieved]
    panels.append(_draw_panel(achieved, _ACHIEVED, {}, HEIGHT // 2))
    capacities = [
        named.result.capacity.events_per_s
        for named in shown
        if named.result.capacity and named.result.capacity.events_per_s
    ]
    if alone:
        for panel in panels:
            panel["layer"] += [draw_limit("x", rate) for rate in capacities]
    return Chart(
        "rate",
        "Response time over rate",
        "Each point is a step of the search, the lines go through their medians; invalid steps are left"
        " out. Response times count from when a request was due, and grow without end where the database"
        " doesn't keep up. Dashed: the limit"
        + (", and the capacity" if alone and capacities else "")
        + f"; below, {_KEPT_UP:.0f} % of what was due, under which a run is saturated.",
        {"vconcat": panels},
    )


def _list_rows(named: NamedResult) -> list[Row]:
    """A row for each percentile of each valid step, and for what was achieved."""
    capacity = named.result.capacity
    writers = {group_run.run.run: group_run.group for group_run in named.result.writers}
    rows: list[Row] = []
    for step in capacity.steps if capacity else ():
        group = writers[step.run]
        offered, latency = group.offered, group.latency_ms
        if step.rate_per_s is None or not group.valid or offered is None or latency is None:
            continue
        shared = {"series": named.name, "result": named.name, "rate": step.rate_per_s}
        about = f"{named.name}\n{step.rate_per_s:,.10g} events/s: {_describe(step)}"
        for part, title in PERCENTILES.items():
            value = getattr(latency, part)
            if value is None:
                continue
            text = f"{about}\nresponse time {title}: {format_ms(value)} ms"
            rows.append({**shared, "part": part, "value": value, "text": text})
        share = _find_share(offered)
        text = f"{about}\nachieved: {share:.1f} % of what was due"
        rows.append({**shared, "part": "achieved", "value": share, "text": text})
    return rows


def _describe(step: CapacityStep) -> str:
    return "holds" if step.holds else "doesn't hold"


def _find_share(offered: Offered) -> float:
    return 100 * offered.achieved / offered.due if offered.due else 100.0


def _list_limits(shown: Sequence[NamedResult], part: str | None = None) -> dict[float, str]:
    """Value -> text of each limit on response times of inserts; `part`: only those on this percentile."""
    limits: list[RunLimit] = [
        limit for named in shown if named.result.capacity for limit in named.result.capacity.limits
    ]
    return {
        limit.at_most: str(limit)
        for limit in limits
        if limit.query is None
        and limit.measure in PERCENTILES
        and part in (None, str(limit.measure))
    }


def _draw_panel(rows: Sequence[Row], title: str, limits: dict[float, str], height: int) -> Row:
    rates, values = [row["rate"] for row in rows], [row["value"] for row in rows]
    far = needs_log(rates)
    x = make_axis("rate", "Offered, events/s", place_ticks(rates, far), log=far, zero=False)
    shown = [*values, *limits]
    log = title != _ACHIEVED and needs_log(shown)
    ticks = place_ticks(shown, log)
    y, middle = (make_axis(field, title, ticks, log=log) for field in ("value", "middle"))
    layers = [draw_limit("y", value) for value in limits] or (
        [] if title != _ACHIEVED else [draw_limit("y", _KEPT_UP)]
    )
    layers += [write_limit(value, text) for value, text in limits.items()]
    layers += [draw_lines(x, middle, rows), draw_points(x, y, rows, size=40)]
    return make_spec(rows, layers, height)


def place_ticks(values: Sequence[float], log: bool) -> Row:
    """A few ticks on a logarithmic axis; on others they are the renderer's own."""
    return {"values": list_log_ticks(values)} if log else {}


def write_limit(value: float, text: str) -> Row:
    """A text above a horizontal line."""
    return {
        "data": {"values": [{"limit": value}]},
        "mark": {"type": "text", "text": text, "align": "right", "x": WIDTH - 4, "dy": -7, "fill": INK,
                 "aria": False},
        "encoding": {"y": {"field": "limit", "type": "quantitative"}},
    }  # fmt: skip


CELL_PX = 46
FAINTEST, DARKEST = 0.06, 0.6
"""Opacity of the lowest and of the highest rate; text must be legible on both, on any page."""


def draw_tuning(results: Sequence[NamedResult]) -> Chart | None:
    """The highest rate with each pair of values, whatever the other settings are. Only drawn for a single
    tuning."""
    own = [tuning for named in results if (tuning := named.result.tuning)]
    tuning = own[0] if len(own) == 1 else None
    if tuning is None or not any(trial.rate_per_s for trial in tuning.trials):
        return None
    names = list(tuning.weigh_settings())[:2]
    chosen = {setting.name: setting for setting in tuning.over}
    across = chosen[names[0]]
    down = chosen[names[1]] if len(names) > 1 else None
    rows = _list_cells(tuning, across, down)
    unit = "capacity, events/s" if tuning.limits else "inserts/s"
    others = [setting.name for setting in tuning.over if setting.name not in names]
    whatever = f", with the best of {', '.join(others)}" if others else ""
    return Chart(
        "tuning",
        "What settings bring",
        f"The highest {unit} that was reached with each pair of values{whatever}; for combinations that"
        " were dropped early, from a short run. The two settings are those that matter most.",
        {
            "width": WIDTH,
            "height": CELL_PX * (len(down.values) if down else 1),
            "data": {"values": rows},
            "encoding": {
                "x": _make_axis("x", across),
                "y": _make_axis("y", down)
                if down
                else {"field": "y", "type": "ordinal", "axis": None},
            },
            "layer": [_draw_cells(rows), _draw_texts()],
        },
    )


def _list_cells(tuning: Tuning, across: TunedSetting, down: TunedSetting | None) -> list[Row]:
    rows: list[Row] = []
    for x in across.values:
        for y in down.values if down else [None]:
            settings = {across.name: x} | ({down.name: y} if down else {})
            rates = [
                trial.rate_per_s
                for trial in tuning.trials
                if trial.rate_per_s
                and settings.items() <= tuning.candidates[trial.candidate].items()
            ]
            if rates:
                place = ", ".join(
                    f"{name}={format_value(value)}" for name, value in settings.items()
                )
                rows.append(
                    {
                        "x": format_value(x), "y": format_value(y), "rate": max(rates),
                        "label": _format(max(rates)), "text": f"{place}\n{max(rates):,.0f}",
                    }
                )  # fmt: skip
    return rows


def _format(rate: float) -> str:
    """Short enough for a cell: `1.23M`, `456k`, `78`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


def _make_axis(field: str, setting: TunedSetting) -> dict[str, Any]:
    return {
        "field": field,
        "type": "ordinal",
        "title": setting.name,
        "sort": [format_value(value) for value in setting.values],
        "axis": {"labelAngle": 0, "grid": False},
    }


def _draw_cells(rows: Sequence[Row]) -> Row:
    rates = [row["rate"] for row in rows]
    return {
        "mark": {"type": "rect", "fill": SERIES[0], "stroke": None, "aria": True},
        "encoding": {
            "fillOpacity": {
                "field": "rate",
                "type": "quantitative",
                "scale": {"domain": [min(rates), max(rates)], "range": [FAINTEST, DARKEST]},
                "legend": None,
            },
            "description": {"field": "text"},
        },
    }


def _draw_texts() -> Row:
    return {
        "mark": {"type": "text", "fill": INK, "fontSize": 12, "aria": False},
        "encoding": {"text": {"field": "label"}},
    }
