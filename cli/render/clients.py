"""What official clients cost, as a table and in words."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.modules.options import LEAN

from ..results.clients import (
    ClientCost,
    ClientFigures,
    collect_figures,
    compare_figures,
    pool_figures,
)
from ..results.model import Result
from ..results.statistics import Ratio, summarize
from .ratios import format_factor, format_speed, format_speed_interval
from .tables import Table, format_interval, format_ms, format_rate

_HEADERS = (
    "Client", "Inserts by", "Runs", "Inserts/s", "95% interval", "CPU, µs/event", "p50, ms", "p99, ms",
)  # fmt: skip


def tabulate_clients(result: Result) -> Table:
    """Each client's figures: the mean of the rates with its interval, the others' means."""
    comparison = result.clients
    if comparison is None:
        return Table([], [])
    found = collect_figures(result)
    rows = []
    for client, way in comparison.ways.items():
        if client not in found:
            if any(turn.client == client for turn in comparison.turns):
                rows.append([client, way, "0", *["-"] * 5])
            continue
        own = found[client]
        rates = summarize(own.rates)
        interval = format_interval(rates.ci95, format_rate)
        rows.append(
            [
                client, way, f"{rates.runs:,}", format_rate(rates.avg), interval,
                _format_mean(own.cpu_us), _format_latency(own.p50_ms), _format_latency(own.p99_ms),
            ]
        )  # fmt: skip
    return Table(_HEADERS, rows, left=("Client", "Inserts by"))


def tabulate_turns(result: Result) -> Table:
    """Which run was made by which client, in their order."""
    turns = result.clients.turns if result.clients else []
    return Table(["Run", "Client"], [[f"{one.run:,}", one.client] for one in turns], ("Client",))


def describe_clients(result: Result) -> list[str]:
    """What each client costs beside the lean path: a sentence each."""
    comparison = result.clients
    costs = compare_figures(collect_figures(result))
    if comparison is None or not costs:
        return ["Nothing can be said of what a client costs: both sides need a valid run."]
    lean = collect_figures(result)[LEAN]
    return [_describe_cost(cost, comparison.ways[cost.figures.client], lean) for cost in costs]


def _describe_cost(cost: ClientCost, way: str, lean: ClientFigures) -> str:
    parts = [_describe_rate(cost.rate)]
    if cost.cpu is not None:
        parts.append(
            f"{_format_mean(cost.figures.cpu_us)} µs of CPU for each event instead of"
            f" {_format_mean(lean.cpu_us)} ({_format_times(cost.cpu)})"
        )
    if cost.p50 is not None:
        parts.append(
            f"a request's p50 {_format_latency(cost.figures.p50_ms)} ms instead of"
            f" {_format_latency(lean.p50_ms)} ({_format_times(cost.p50)})"
        )
    return f"What your application's client costs you, by {way}: {'; '.join(parts)}."


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
    """What each client costs beside the lean path in a few words, by all of these results together."""
    costs = compare_figures(pool_figures([collect_figures(one) for one in results]))
    if not costs:
        return "nothing can be said of what a client costs"
    return "; ".join(
        f"{cost.figures.client}: {_describe_rate(cost.rate)}"
        + (f", CPU per event {_format_factor(cost.cpu)}" if cost.cpu else "")
        for cost in costs
    )


def write_clients_headline(result: Result) -> str:
    """The answer in a few words, for a list."""
    costs = compare_figures(collect_figures(result))
    if not costs:
        return "no figures of two clients"
    return ", ".join(f"{cost.figures.client} {format_speed(cost.rate.value)}" for cost in costs)
