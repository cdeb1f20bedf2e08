"""Tables of readers whose runs were ended by the clock."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import ReadRun

from ..results.reads import Cost, find_unanswered_reads, summarize_reads
from ..results.statistics import summarize
from .tables import (
    Table,
    format_duration_of_histogram,
    format_interval,
    format_ms,
    strike,
    tabulate_queries,
)


def tabulate_reads(reads: Sequence[ReadRun], terminal: bool) -> Table:
    """Queries per second over the valid runs, and the response times of the slowest of them."""
    rows = []
    for workers in dict.fromkeys(read.workers for read in reads):
        own = [read for read in reads if read.workers == workers]
        counted = [read for read in own if read.valid] or own
        rates = [read.queries_per_s for read in counted if read.queries_per_s is not None]
        figures = ["-"] * 5
        if rates:
            found = summarize(rates)
            figures = [
                *(_format_rate(value) for value in (found.min, found.max, found.avg)),
                format_interval(found.ci95, "{:,.1f}"),
                "-" if found.cv is None else f"{found.cv:.1%}",
            ]
        if not any(read.valid for read in own):
            figures = [text if text == "-" else strike(text, terminal) for text in figures]
        measured = [read for read in counted if read.latency_ms]
        worst = max(
            measured, key=lambda r: r.latency_ms.tail if r.latency_ms else 0.0, default=None
        )
        ms = worst.latency_ms if worst else None
        share = max((read.client.cpu_share for read in counted if read.client), default=0.0)
        rows.append(
            [
                f"{workers:,}",
                *figures,
                *_list_offered(own),
                "-" if ms is None else format_ms(ms.p50),
                "-" if ms is None else format_ms(ms.p99),
                f"{sum(one.errors for read in own for one in read.queries):,}",
                f"{share:.0%}",
            ]
        )
    what = "Response" if _is_open(reads) else "Latency"
    headers = [
        "Readers", "Min", "Max", "Avg", "95% interval", "CV",
        *(["Offered"] if _is_open(reads) else []),
        f"{what} p50 ms", "p99 ms", "Failed", "Client CPU",
    ]  # fmt: skip
    return Table(headers, rows)


def _is_open(reads: Sequence[ReadRun]) -> bool:
    return any(read.offered for read in reads)


def _list_offered(reads: Sequence[ReadRun]) -> list[str]:
    """What was due per second, the mean over the runs; no cell if it is a closed loop."""
    rates = [read.offered.due / read.window_s for read in reads if read.offered and read.window_s]
    return [_format_rate(sum(rates) / len(rates))] if rates else []


def _format_rate(value: float) -> str:
    return f"{value:,.1f}"


def tabulate_reads_by_query(reads: Sequence[ReadRun]) -> Table:
    """The queries' times in seconds, over all runs."""
    failed, unasked = find_unanswered_reads(reads)
    form = format_duration_of_histogram
    return tabulate_queries(summarize_reads(reads), failed, form, unasked)


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
            format_interval(cost.ratio.interval, "{:.2f}"),
        ]
        for cost in costs
    ]
    headers = ["Group", "Figure", "Alone", "Beside the others", "Unit", "Ratio", "95% interval"]
    return Table(headers, rows, left=("Group", "Figure", "Unit"))


def _format_figure(value: float, unit: str) -> str:
    return (
        format_ms(value) if unit == "ms" else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"
    )
