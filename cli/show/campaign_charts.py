"""Figures of a campaign: the repetitions of a candidate pooled, each candidate in a colour of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from simulator.contract import LatencyMs
from simulator.histograms import merge_histograms

from ..results.caveats import Place
from ..results.clients import choose_columns, collect_figures
from ..results.matrix import Measured, pool_samples
from ..results.model import GroupRun, Result
from ..results.statistics import summarize
from ..results.summaries import find_slowest
from .bars import MILLISECONDS, RATE, WITHIN_LIMITS, Bar, draw_bars, rank
from .capacity_charts import draw_capacities, draw_responses
from .chart import Chart
from .drawing import resize
from .level_charts import draw_levels, draw_query_levels, draw_storage, draw_workers
from .ranking import describe_doubts
from .run_charts import Timed, draw_curves, draw_timelines
from .tables import format_ms
from .vega import Row, assign_colours, make_range_spec, needs_log

MOST_DRAWN = 12
"""The most candidates in a figure: with more of them no line can be told from another."""

WIDTH = 560
"""Pixels of a plot: a page of 1400 has two beside each other."""

SAMPLE = "repetition"
"""What figures are the mean of."""


def draw_campaign(
    steps: Mapping[str, Measured], required_per_s: float | None
) -> tuple[list[Chart], list[Chart]]:
    """Every figure that the steps have data for, of the first `MOST_DRAWN` candidates: those that answer what
    was asked, and those of single runs. `required_per_s`: a rate that is to be held, if there is one."""
    names = list(dict.fromkeys(chain.from_iterable(steps.values())))
    shown = {
        step: {
            name: results
            for name, results in measured.items()
            if results and name in names[:MOST_DRAWN]
        }
        for step, measured in steps.items()
    }
    first: list[Chart | None] = []
    more: list[Chart | None] = []
    for step, measured in shown.items():
        over_time = draw_over_time(step, measured)
        disturbed = any(
            run.marks for results in measured.values() for result in results for run in result.runs
        )
        first += [
            draw_capacities(step, measured, required_per_s),
            draw_responses(step, measured, required_per_s),
            draw_rates(step, measured),
            draw_clients(step, measured),
            draw_levels(step, measured),
            over_time if disturbed else None,
            draw_times(step, measured, response=True),
            draw_times(step, measured, response=False),
        ]
        more += [draw_latencies(step, measured), None if disturbed else over_time]
    first += [draw_query_levels(shown), draw_storage(shown)]
    return _finish(first, names, 0), _finish(more, names, len(first))


def _finish(charts: Sequence[Chart | None], names: Sequence[str], place: int) -> list[Chart]:
    """The charts that exist, in the candidates' colours, each of its own kind: pages name figures by it."""
    return [
        replace(
            chart,
            kind=f"{number}-{chart.kind}",
            spec=resize(assign_colours(chart.spec, names), WIDTH),
        )
        for number, chart in enumerate(charts, place + 1)
        if chart is not None
    ]


def draw_rates(step: str, measured: Measured) -> Chart | None:
    """A bar for each candidate, the fastest first; None unless two have a rate. With several numbers of
    workers, lines over them. Capacities have a figure of their own."""
    pooled = {
        name: {
            place: values
            for place, values in places.items()
            if not (place.has_times or place.capacity or place.level is not None)
        }
        for name, places in pool_samples(measured).items()
    }
    if len({place for places in pooled.values() for place in places if place.workers}) > 1:
        return draw_workers(step, pooled)
    rates = {
        name: max(places.items(), key=lambda pair: fmean(pair[1]))
        for name, places in pooled.items()
        if places
    }
    if len(rates) < 2:
        return None
    alike = len({place for place, _ in rates.values()}) == 1
    doubts = describe_doubts(measured)
    bars = [
        _make_bar((name if alike else f"{name}, {place}") + doubts.get(name, ""), values, name)
        for name, (place, values) in rates.items()
    ]
    within = any(
        result.tuning and result.tuning.limits
        for results in measured.values()
        for result in results
    )
    unit = WITHIN_LIMITS if within else RATE
    place = next(iter(rates.values()))[0]
    title = f"{step}: inserts per second" + (f", {place}" if alike else "")
    return draw_bars("rates", title, rank(bars), unit, len(bars), SAMPLE)


def _make_bar(label: str, values: Sequence[float], name: str) -> Bar:
    summary = summarize(values)
    return Bar(label, summary.avg, summary.ci95, values, name)


def draw_clients(step: str, measured: Measured) -> Chart | None:
    """A bar for each client of each candidate, the lean path first; its runs in all repetitions together."""
    bars = [
        _make_bar(f"{name}, {client}", figures[choose_columns(results).rate], name)
        for name, results in measured.items()
        for client, figures in collect_figures(results).items()
    ]
    if not bars:
        return None
    return draw_bars("clients", f"{step}: inserts per second by client", bars, RATE, len(bars))


def draw_times(step: str, measured: Measured, response: bool) -> Chart | None:
    """How long each query took or, for `response`, requests that were due at a rate."""
    rows: list[Row] = []
    for name, places in pool_samples(measured).items():
        for place, values in places.items():
            if place.has_times and (place.response is not None) is response:
                # Times of queries are in seconds.
                in_ms = [value if response else 1000 * value for value in values]
                rows.append(_make_row(name, place, in_ms))
    if not rows:
        return None
    log = needs_log([float(row[end]) for row in rows for end in ("low", "high")])
    note = f"Mean over the {SAMPLE}s, and the range from the fastest to the slowest of them"
    if log:
        note += " (logarithmic axis)"
    kind, heading = ("responses", "At") if response else ("queries", "Query")
    title = f"{step}: {'response' if response else 'query'} times"
    return Chart(kind, title, f"{note}.", make_range_spec(rows, MILLISECONDS, log, heading))


def _make_row(name: str, place: Place, values: Sequence[float]) -> Row:
    """A row of times in milliseconds."""
    mean, low, high = fmean(values), min(values), max(values)
    text = f"{name}\n{place}: mean {format_ms(mean)} ms\n{format_ms(low)} to {format_ms(high)} ms"
    return {
        "series": name, "query": str(place), "mean": mean, "low": low, "high": high, "text": text
    }  # fmt: skip


# --- single runs ----------------------------------------------------------------------------------


def draw_latencies(step: str, measured: Measured) -> Chart | None:
    """How long the requests of all valid runs of each candidate took, at its best number of workers."""
    timed = []
    for name, results in measured.items():
        groups = [run.group for run in _list_best_runs(results) if run.group.latency_ms]
        slowest = find_slowest(groups)
        if slowest is None or slowest.latency_ms is None:
            continue
        histograms = [group.histogram for group in groups if group.histogram]
        merged = LatencyMs.of(merge_histograms(histograms))
        timed.append(Timed(name, merged or slowest.latency_ms, histograms if merged else []))
    note = (
        "All valid runs at each candidate's best number of workers, retries included. A request is a whole"
        " batch; at a given rate it counts from when it was due."
    )
    return draw_curves("latency", f"{step}: latency of a request", "the requests", note, timed)


def draw_over_time(step: str, measured: Measured) -> Chart | None:
    """Events acknowledged in each second of a run of each candidate: the one in the middle of its valid runs
    at its best number of workers."""
    examples = []
    for name, results in measured.items():
        runs = [run for run in _list_best_runs(results) if run.group.timeline]
        runs.sort(key=lambda run: run.group.rate_per_s or 0.0)
        if runs:
            examples.append((name, runs[(len(runs) - 1) // 2]))
    chart = draw_timelines(examples, "the valid run of each candidate whose rate is in the middle")
    return chart and replace(chart, title=f"{step}: throughput over time")


def _list_best_runs(results: Sequence[Result]) -> list[GroupRun]:
    """The valid runs of inserts at the number of workers that inserted fastest; none of a search, whose runs
    are at rates of their own, and none of steps on growing data."""
    runs = [
        run
        for result in results
        if result.command in ("insert", "mixed") and not result.by_fill_level
        for run in result.writers
        if run.group.valid and run.group.rate_per_s
    ]
    rates: dict[int, list[float]] = {}
    for run in runs:
        rates.setdefault(run.group.workers, []).append(run.group.rate_per_s or 0.0)
    best = max(rates, key=lambda workers: fmean(rates[workers]), default=None)
    return [run for run in runs if run.group.workers == best]
