"""What official clients cost, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.comparison import (
    ASKING,
    ClientCost,
    choose_columns,
    collect_figures,
    compare_clients,
)
from ..results.figures import FIGURES
from ..results.model import Result
from ..results.statistics import Ratio, summarize
from .ratios import format_factor, format_speed, format_speed_interval
from .tables import Table, format_interval, format_ms, format_rate


def tabulate_clients(result: Result) -> Table:
    """Each client's figures: the mean of its rates with the interval, and the means of the others."""
    comparison = result.clients
    if comparison is None:
        return Table([], [])
    columns = choose_columns([result])
    of_cpu = [key for key in (columns.cpu, columns.row) if key]
    way = "Asks by" if comparison.asks else "Inserts by"
    headers = [
        "Client", way, "Runs", FIGURES[columns.rate].heading, "95% interval",
        *(FIGURES[key].heading.replace("Client", "CPU,") for key in of_cpu), "p50, ms", "p99, ms",
    ]  # fmt: skip
    by_client = collect_figures([result])
    turns = {turn.client for turn in comparison.turns}
    rows = []
    for client, text in comparison.ways.items():
        if (figures := by_client.get(client)) is not None:
            rates = summarize(figures[columns.rate])
            rows.append([
                client, text, f"{rates.runs:,}", format_rate(rates.avg),
                format_interval(rates.ci95, format_rate),
                *(_format_mean(figures.get(key, ())) for key in of_cpu),
                *(_format_latency(figures.get(key, ())) for key in (columns.p50, columns.p99)),
            ])  # fmt: skip
        elif client in turns:
            rows.append([client, text, "0", *["-"] * (len(headers) - 3)])
    return Table(headers, rows, left=("Client", way))


def tabulate_questions(result: Result) -> Table:
    """How long each query took with each client that asks: means over its valid runs."""
    comparison = result.clients
    if comparison is None or not comparison.asks:
        return Table([], [])
    asked = [
        (query, comparison.find_client(group_run.run.run))
        for group_run in result.compared
        if group_run.group.valid
        for query in group_run.group.queries
    ]
    rows = []
    for name in sorted({query.query for query, _ in asked}):
        for client in comparison.ways:
            own = [query for query, by in asked if (query.query, by) == (name, client)]
            times = [query.latency_ms for query in own if query.latency_ms]
            if own:
                rows.append([
                    name, client, f"{sum(query.executions for query in own):,}",
                    _format_latency([ms.p50 for ms in times]),
                    _format_latency([ms.p99 for ms in times if ms.p99 is not None]),
                ])  # fmt: skip
    return Table(["Query", "Client", "Times", "p50, ms", "p99, ms"], rows, left=("Query", "Client"))


def tabulate_turns(result: Result) -> Table:
    """Which client made which run, in the order of the runs."""
    turns = result.clients.turns if result.clients else []
    return Table(["Run", "Client"], [[f"{turn.run:,}", turn.client] for turn in turns], ("Client",))


def describe_clients(result: Result) -> list[str]:
    """What each client costs beside the lean path: a sentence each."""
    costs = compare_clients([result])
    if result.clients is None or not costs:
        return ["The cost of a client is unknown: both sides need a valid run."]
    return [_describe_cost(cost, result) for cost in costs]


def _describe_cost(cost: ClientCost, result: Result) -> str:
    columns = choose_columns([result])
    event, request = ("question", "question") if columns is ASKING else ("event", "request")
    parts = [_describe_rate(cost.ratios[columns.rate])]
    if (cpu := cost.ratios.get(columns.cpu)) is not None:
        own, lean = (_format_mean(side[columns.cpu]) for side in (cost.own, cost.lean))
        parts.append(f"{own} µs of CPU for each {event} instead of {lean} ({_format_times(cpu)})")
    if columns.row is not None and columns.row in cost.ratios:
        own, lean = (_format_mean(side[columns.row]) for side in (cost.own, cost.lean))
        parts.append(f"{own} for each row instead of {lean}")
    if (p50 := cost.ratios.get(columns.p50)) is not None:
        own, lean = (_format_latency(side[columns.p50]) for side in (cost.own, cost.lean))
        parts.append(f"a {request}'s p50 {own} ms instead of {lean} ({_format_times(p50)})")
    way = result.clients.ways[cost.client] if result.clients else cost.client
    return f"What your application's client ({way}) costs you: {'; '.join(parts)}."


def _describe_rate(rate: Ratio) -> str:
    if rate.interval is None:
        return f"{format_speed(rate.value)} than the lean path, from single runs"
    interval = f"95 % interval {format_speed_interval(*rate.interval)}"
    if not rate.differs:
        return f"no difference in throughput shown ({interval})"
    return f"{format_speed(rate.value)} than the lean path ({interval})"


def _format_times(ratio: Ratio) -> str:
    interval = f"; {' to '.join(map(format_factor, ratio.interval))}" if ratio.interval else ""
    return f"{format_factor(ratio.value)} times{interval}"


def _format_mean(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):,.2f}" if values else "-"


def _format_latency(values: Sequence[float]) -> str:
    return format_ms(sum(values) / len(values)) if values else "-"


def describe_client_costs(results: Sequence[Result]) -> str:
    """What each client costs beside the lean path in a few words, from all of these results together."""
    columns = choose_columns(results)
    texts = []
    for cost in compare_clients(results):
        text = f"{cost.client}: {_describe_rate(cost.ratios[columns.rate])}"
        if (cpu := cost.ratios.get(columns.cpu)) is not None:
            # `2.8× (0.9 to 8.9)`.
            ends = f" ({' to '.join(map(format_factor, cpu.interval))})" if cpu.interval else ""
            unit = "question" if columns is ASKING else "event"
            text += f", CPU per {unit} {format_factor(cpu.value)}×{ends}"
        texts.append(text)
    return "; ".join(texts) or "the cost of a client is unknown"


def write_clients_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    rate = choose_columns([result]).rate
    costs = compare_clients([result])
    if not costs:
        return "no figures of two clients"
    return ", ".join(f"{cost.client} {format_speed(cost.ratios[rate].value)}" for cost in costs)
