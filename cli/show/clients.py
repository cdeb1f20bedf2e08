"""What official clients cost, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import QueryResult
from simulator.modules.options import LEAN

from ..results.clients import (
    ClientCost,
    ClientFigures,
    collect_figures,
    compare_figures,
    pool_figures,
)
from ..results.model import ClientComparison, Result
from ..results.statistics import Ratio, summarize
from .ratios import format_factor, format_speed, format_speed_interval
from .tables import Table, format_interval, format_ms, format_rate

_HEADERS = (
    "Client",
    "Inserts by",
    "Runs",
    "Inserts/s",
    "95% interval",
    "CPU, µs/event",
    "p50, ms",
    "p99, ms",
)
_ASKING_HEADERS = (
    "Client", "Asks by", "Runs", "Queries/s", "95% interval", "CPU, µs/query", "µs/row", "p50, ms", "p99, ms",
)  # fmt: skip


def tabulate_clients(result: Result) -> Table:
    """Each client's figures: the mean of its rates with the interval, and the means of the others."""
    comparison = result.clients
    if comparison is None:
        return Table([], [])
    headers = _ASKING_HEADERS if comparison.asks else _HEADERS
    by_client = collect_figures(result)
    rows = []
    for client, way in comparison.ways.items():
        if client not in by_client:
            if any(turn.client == client for turn in comparison.turns):
                rows.append([client, way, "0", *["-"] * (len(headers) - 3)])
            continue
        figures = by_client[client]
        rates = summarize(figures.rates)
        interval = format_interval(rates.ci95, format_rate)
        of_rows = [_format_mean(figures.row_us)] if comparison.asks else []
        rows.append(
            [
                client, way, f"{rates.runs:,}", format_rate(rates.avg), interval,
                _format_mean(figures.cpu_us), *of_rows, _format_latency(figures.p50_ms),
                _format_latency(figures.p99_ms),
            ]
        )  # fmt: skip
    return Table(headers, rows, left=("Client", "Inserts by", "Asks by"))


def tabulate_questions(result: Result) -> Table:
    """How long each query took with each client that asks: means over its valid runs."""
    comparison = result.clients
    if comparison is None or not comparison.asks:
        return Table([], [])
    by_client: dict[tuple[str, str], list[QueryResult]] = {}
    for group_run in result.compared:
        for query in group_run.group.queries if group_run.group.valid else ():
            client = comparison.find_client(group_run.run.run)
            assert client is not None
            by_client.setdefault((query.query, client), []).append(query)
    rows = []
    for (name, client), queries in sorted(
        by_client.items(), key=lambda pair: _place(pair[0], comparison)
    ):
        times = [query.latency_ms for query in queries if query.latency_ms]
        rows.append(
            [
                name, client, f"{sum(query.executions for query in queries):,}",
                _format_latency([ms.p50 for ms in times]),
                _format_latency([ms.p99 for ms in times if ms.p99 is not None]),
            ]
        )  # fmt: skip
    return Table(["Query", "Client", "Times", "p50, ms", "p99, ms"], rows, left=("Query", "Client"))


def _place(key: tuple[str, str], comparison: ClientComparison) -> tuple[str, int]:
    """The place of a query and a client: by query, then the clients in their order."""
    name, client = key
    return name, list(comparison.ways).index(client)


def tabulate_turns(result: Result) -> Table:
    """Which client made which run, in the order of the runs."""
    turns = result.clients.turns if result.clients else []
    return Table(["Run", "Client"], [[f"{turn.run:,}", turn.client] for turn in turns], ("Client",))


def describe_clients(result: Result) -> list[str]:
    """What each client costs beside the lean path: a sentence each."""
    comparison = result.clients
    costs = compare_figures(collect_figures(result))
    if comparison is None or not costs:
        return ["The cost of a client is unknown: both sides need a valid run."]
    lean, asks = collect_figures(result)[LEAN], comparison.asks
    return [
        _describe_cost(cost, comparison.ways[cost.figures.client], lean, asks) for cost in costs
    ]


def _describe_cost(cost: ClientCost, way: str, lean: ClientFigures, asks: bool) -> str:
    parts = [_describe_rate(cost.rate)]
    event, request = ("question", "question") if asks else ("event", "request")
    if cost.cpu is not None:
        parts.append(
            f"{_format_mean(cost.figures.cpu_us)} µs of CPU for each {event} instead of"
            f" {_format_mean(lean.cpu_us)} ({_format_times(cost.cpu)})"
        )
    if cost.row is not None:
        parts.append(
            f"{_format_mean(cost.figures.row_us)} for each row instead of {_format_mean(lean.row_us)}"
        )
    if cost.p50 is not None:
        parts.append(
            f"a {request}'s p50 {_format_latency(cost.figures.p50_ms)} ms instead of"
            f" {_format_latency(lean.p50_ms)} ({_format_times(cost.p50)})"
        )
    return f"What your application's client ({way}) costs you: {'; '.join(parts)}."


def _describe_rate(rate: Ratio) -> str:
    if rate.interval is None:
        return f"{format_speed(rate.value)} than the lean path, from single runs"
    interval = f"95 % interval {format_speed_interval(*rate.interval)}"
    if not rate.differs:
        return f"no difference in throughput shown ({interval})"
    return f"{format_speed(rate.value)} than the lean path ({interval})"


def _format_times(ratio: Ratio) -> str:
    if ratio.interval is None:
        return f"{format_factor(ratio.value)} times"
    low, high = map(format_factor, ratio.interval)
    return f"{format_factor(ratio.value)} times; {low} to {high}"


def _format_factor(ratio: Ratio) -> str:
    """`2.8× (0.9 to 8.9)`."""
    text = f"{format_factor(ratio.value)}×"
    return (
        text
        if ratio.interval is None
        else f"{text} ({' to '.join(map(format_factor, ratio.interval))})"
    )


def _format_mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):,.2f}" if values else "-"


def _format_latency(values: Sequence[float]) -> str:
    return format_ms(sum(values) / len(values)) if values else "-"


def describe_client_costs(results: Sequence[Result]) -> str:
    """What each client costs beside the lean path in a few words, from all of these results together."""
    costs = compare_figures(pool_figures([collect_figures(result) for result in results]))
    if not costs:
        return "the cost of a client is unknown"
    asks = any(result.clients is not None and result.clients.asks for result in results)
    return "; ".join(
        f"{cost.figures.client}: {_describe_rate(cost.rate)}"
        + (
            f", CPU per {'question' if asks else 'event'} {_format_factor(cost.cpu)}"
            if cost.cpu
            else ""
        )
        for cost in costs
    )


def write_clients_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    costs = compare_figures(collect_figures(result))
    if not costs:
        return "no figures of two clients"
    return ", ".join(f"{cost.figures.client} {format_speed(cost.rate.value)}" for cost in costs)
