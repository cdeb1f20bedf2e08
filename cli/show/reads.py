"""Tables of readers."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import GroupResult

from ..results.comparison import Cost
from ..results.entries import list_entries
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
    is_open = any(run.group.offered for run in readers)
    entries = list_entries(readers)
    more = choose_more(entries)
    for workers in dict.fromkeys(run.group.workers for run in readers):
        groups = [run.group for run in readers if run.group.workers == workers]
        counted = [group for group in groups if group.valid] or groups
        rates = [group.rate_per_s for group in counted if group.rate_per_s is not None]
        figures = ["-"] * 5
        if rates:
            summary = summarize(rates)
            figures = [
                *(_format_rate(value) for value in (summary.min, summary.max, summary.avg)),
                format_interval(summary.ci95, _format_rate),
                "-" if summary.cv is None else f"{summary.cv:.1%}",
            ]
        if not any(group.valid for group in groups):
            figures = [text if text == "-" else strike(text, terminal) for text in figures]
        worst = find_slowest(counted)
        ms = worst.latency_ms if worst else None
        rows.append(
            [
                f"{workers:,}",
                *figures,
                *_list_offered(groups),
                "-" if ms is None else format_ms(ms.p50),
                "-" if ms is None else format_ms(ms.p99),
                f"{sum(query.errors for group in groups for query in group.queries):,}",
                format_client(counted),
                *list_more([entry for entry in entries if entry.group.workers == workers], more),
            ]
        )
    measure = "Response" if is_open else "Latency"
    headers = [
        "Readers", "Min", "Max", "Avg", "95% interval", "CV",
        *(["Offered"] if is_open else []),
        f"{measure} p50 ms", "p99 ms", "Failed", "Client CPU", *(figure.heading for figure in more),
    ]  # fmt: skip
    return Table(headers, rows)


def _list_offered(groups: Sequence[GroupResult]) -> list[str]:
    """A cell for what was due per second, the mean over the runs; none for a closed loop."""
    offers = [(group.offered, group.window_s) for group in groups]
    rates = [offered.due / window_s for offered, window_s in offers if offered and window_s]
    return [_format_rate(sum(rates) / len(rates))] if rates else []


def _format_rate(value: float) -> str:
    return f"{value:,.1f}"


def tabulate_reads_by_query(result: Result) -> Table:
    """The queries' times in ms, rows and bytes, over all runs."""
    failed, unasked = find_unanswered(result.asked)
    errors = {
        name: sum(query.errors for query in result.asked if query.query == name) for name in failed
    }
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
