"""Tables of readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..results.columns import READERS, Runs
from ..results.comparison import Cost
from ..results.entries import list_entries
from ..results.model import GroupRun, Result
from ..results.statistics import summarize
from ..results.summaries import find_unanswered
from .tables import Table, format_interval, format_ms, tabulate_columns, tabulate_queries


def tabulate_reads(readers: Sequence[GroupRun], terminal: bool) -> Table:
    """Queries per second over the valid runs, and the response times of the slowest of them."""
    rows = []
    for workers in dict.fromkeys(run.group.workers for run in readers):
        own = [entry for entry in list_entries(readers) if entry.group.workers == workers]
        runs = Runs(own, None, any(entry.group.valid for entry in own))
        rates = [group.rate_per_s for group in runs.counted if group.rate_per_s is not None]
        rows.append(replace(runs, rates=summarize(rates) if rates else None))
    is_open = any(run.group.offered for run in readers)
    left_out = "Latency p50 ms" if is_open else "Response p50 ms"
    columns = [
        column
        for name, column in READERS.items()
        if name != left_out and (is_open or name != "Offered")
    ]
    return replace(tabulate_columns(columns, rows, terminal), spare=())


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
