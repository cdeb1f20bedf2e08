"""Figures of searches for a capacity: intervals and the limit, and response times over the rate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from simulator.contract import RunLimit

from ..results.capacity import Capacity
from ..results.matrix import Measured
from ..results.model import Result
from .bars import WITHIN_LIMITS, Bar, draw_bars, rank
from .chart import Chart
from .ranking import describe_doubts
from .search_charts import PERCENTILES, place_ticks, write_limit
from .tables import format_ms
from .vega import (
    Row,
    draw_label,
    draw_limit,
    draw_lines,
    draw_points,
    make_axis,
    make_spec,
    needs_log,
)

NEAR = 1.05
"""Rates that are at most this many times as high as others share a point of a line with them: each repetition
searches at rates of its own."""


def draw_capacities(
    step: str, measured: Measured, required_per_s: float | None = None
) -> Chart | None:
    """A bar for each candidate, the highest first: the mean of what held, and a line over all of the
    repetitions' intervals."""
    searches = {name: _list_answers(results) for name, results in measured.items()}
    doubts = describe_doubts(measured)
    bars = []
    for name, answers in searches.items():
        held = [answer.events_per_s for answer in answers if answer.events_per_s]
        if held:
            above = [
                answer.above_per_s
                for answer in answers
                if answer.events_per_s and answer.above_per_s
            ]
            ends = (min(held), max(*held, *above)) if above else None
            bars.append(Bar(name + doubts.get(name, ""), fmean(held), ends, held, name))
    if not bars:
        return None
    limits = ", ".join(map(str, _list_limits(measured)))
    title = "Capacity" if step == "capacity" else f"{step}: capacity"
    title += f" within {limits}" if limits else ""
    chart = draw_bars("capacity", title, rank(bars), WITHIN_LIMITS, len(bars), "repetition")
    note = (
        "Mean over the repetitions of the highest rate that held within the limits; the line spans all"
        " intervals between the highest rate that held and the lowest that failed; each dot is a"
        " repetition."
    )
    none = [name for name, answers in searches.items() if answers and not _holds_any(answers)]
    if none:
        note += f" No rate held: {', '.join(none)}."
    if required_per_s:
        chart.spec["layer"] += [draw_limit("x", required_per_s)]
        chart.spec["layer"] += [draw_label(required_per_s, "required", 0, to_the_left=False)]
        note += f" Dashed: the {required_per_s:,.10g} events/s that are required."
    return Chart("capacity", chart.title, note, chart.spec)


def _list_answers(results: Sequence[Result]) -> list[Capacity]:
    return [result.capacity for result in results if result.capacity is not None]


def _holds_any(answers: Sequence[Capacity]) -> bool:
    return any(answer.events_per_s for answer in answers)


def _list_limits(measured: Measured) -> list[RunLimit]:
    """The limits of all searches, each once."""
    limits: dict[str, RunLimit] = {}
    for results in measured.values():
        for answer in _list_answers(results):
            limits |= {str(limit): limit for limit in answer.limits}
    return list(limits.values())


def draw_responses(
    step: str, measured: Measured, required_per_s: float | None = None
) -> Chart | None:
    """The percentile that the limit is about (otherwise p99) over the rate: a point for each valid step of a
    candidate's searches, and a line through the medians of steps at about the same rate."""
    limits = [
        limit
        for limit in _list_limits(measured)
        if limit.query is None and limit.measure in PERCENTILES
    ]
    measure = str(limits[0].measure) if limits else "p99"
    bounds = {limit.at_most: str(limit) for limit in limits if limit.measure == measure}
    rows = [
        row for name, results in measured.items() for row in _list_steps(name, results, measure)
    ]
    if not rows:
        return None
    lines = _join_near(rows)
    rates = [row["rate"] for row in rows] + ([required_per_s] if required_per_s else [])
    values = [*(row["value"] for row in rows), *bounds]
    far, log = needs_log(rates), needs_log(values)
    title = f"Response time {PERCENTILES[measure]}, ms"
    x = make_axis("rate", "Offered, events/s", place_ticks(rates, far), log=far, zero=False)
    y = make_axis("value", title, place_ticks(values, log), log=log)
    line = draw_lines(x, y, rows) | {"data": {"values": lines}}
    layers = [draw_limit("y", value) for value in bounds]
    layers += [write_limit(value, text) for value, text in bounds.items()]
    layers += [draw_limit("x", required_per_s)] if required_per_s else []
    layers += [line, draw_points(x, y, rows, size=30)]
    note = (
        "Each point is a step of a search, the lines go through the medians of steps at about the same rate"
        " in all repetitions; invalid steps are left out. Response times count from when a request was due."
    )
    if bounds:
        note += " Dashed: the limit" + (", and the required rate." if required_per_s else ".")
    return Chart(
        "responses-over-rate", f"{step}: response time over rate", note, make_spec(rows, layers)
    )


def _list_steps(name: str, results: Sequence[Result], measure: str) -> list[Row]:
    """A row for each valid step at a rate that has the percentile."""
    rows: list[Row] = []
    for result in results:
        writers = {group_run.run.run: group_run.group for group_run in result.writers}
        for answer in _list_answers([result]):
            for step in answer.steps:
                group = writers[step.run]
                times = group.latency_ms if group.valid and group.offered else None
                value = getattr(times, measure, None)
                if step.rate_per_s is None or value is None:
                    continue
                held = "holds" if step.holds else "doesn't hold"
                text = (
                    f"{name}\n{step.rate_per_s:,.10g} events/s: {held}\n"
                    f"response time {PERCENTILES[measure]}: {format_ms(value)} ms"
                )
                rows.append({"series": name, "rate": step.rate_per_s, "value": value, "text": text})
    return rows


def _join_near(rows: Sequence[Row]) -> list[Row]:
    """For each series the median rate and value of steps at about the same rate."""
    near: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (row["series"], row["rate"])):
        first = near[-1][0] if near else None
        if first and first["series"] == row["series"] and row["rate"] <= NEAR * first["rate"]:
            near[-1].append(row)
        else:
            near.append([row])
    return [
        {
            "series": steps[0]["series"],
            "rate": median(row["rate"] for row in steps),
            "value": median(row["value"] for row in steps),
        }
        for steps in near
    ]
