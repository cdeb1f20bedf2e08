"""Tables of readers."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import GroupResult

from ..results.comparison import Cost
from ..results.figures import list_entries
from ..results.model import GroupRun, Result
from ..results.statistics import summarize
from ..results.summaries import find_slowest, find_unanswered
from .tables import (
    Table,
    choose_more,
    format_client,
    format_interval,
    format_ms,
    list_more,
    strike,
    tabulate_queries,
)


def tabulate_reads(readers: Sequence[GroupRun], terminal: bool) -> Table:
    """Queries per second over the valid runs, and the response times of the slowest of them."""
    rows = []
    is_open = any(one.group.offered for one in readers)
    entries = list_entries(readers)
    more = choose_more(entries)
    for workers in dict.fromkeys(one.group.workers for one in readers):
        own = [one.group for one in readers if one.group.workers == workers]
        counted = [group for group in own if group.valid] or own
        rates = [group.rate_per_s for group in counted if group.rate_per_s is not None]
        figures = ["-"] * 5
        if rates:
            found = summarize(rates)
            figures = [
                *(_format_rate(value) for value in (found.min, found.max, found.avg)),
                format_interval(found.ci95, _format_rate),
                "-" if found.cv is None else f"{found.cv:.1%}",
            ]
        if not any(group.valid for group in own):
            figures = [text if text == "-" else strike(text, terminal) for text in figures]
        worst = find_slowest(counted)
        ms = worst.latency_ms if worst else None
        rows.append(
            [
                f"{workers:,}",
                *figures,
                *_list_offered(own),
                "-" if ms is None else format_ms(ms.p50),
                "-" if ms is None else format_ms(ms.p99),
                f"{sum(query.errors for group in own for query in group.queries):,}",
                format_client(counted),
                *list_more([one for one in entries if one.group.workers == workers], more),
            ]
        )
    what = "Response" if is_open else "Latency"
    headers = [
        "Readers", "Min", "Max", "Avg", "95% interval", "CV",
        *(["Offered"] if is_open else []),
        f"{what} p50 ms", "p99 ms", "Failed", "Client CPU", *(one.heading for one in more),
    ]  # fmt: skip
    return Table(headers, rows)


def _list_offered(groups: Sequence[GroupResult]) -> list[str]:
    """What was due per second, the mean over the runs; no cell if it is a closed loop."""
    offers = [(group.offered, group.window_s) for group in groups]
    rates = [offered.due / window_s for offered, window_s in offers if offered and window_s]
    return [_format_rate(sum(rates) / len(rates))] if rates else []


def _format_rate(value: float) -> str:
    return f"{value:,.1f}"


def tabulate_reads_by_query(result: Result) -> Table:
    """The queries' times in ms, rows and bytes, over all runs."""
    failed, unasked = find_unanswered(result.asked)
    errors = {name: sum(one.errors for one in result.asked if one.query == name) for name in failed}
    return tabulate_queries(result.query_summary, errors, unasked)


def tabulate_costs(costs: Sequence[Cost]) -> Table:
    """What writers and readers cost each other."""
    rows = [
        [
            cost.group,
            cost.figure,
            _format_figure(cost.alone, cost.unit),
            _format_figure(cost.beside, cost.unit),
            cost.unit,
            f"{cost.ratio.value:.2f}",
            format_interval(cost.ratio.interval, "{:.2f}".format),
        ]
        for cost in costs
    ]
    headers = ["Group", "Figure", "Alone", "Beside the others", "Unit", "Ratio", "95% interval"]
    return Table(headers, rows, left=("Group", "Figure", "Unit"))


def _format_figure(value: float, unit: str) -> str:
    return (
        format_ms(value) if unit == "ms" else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    )
