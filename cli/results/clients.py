"""What official clients cost, from the runs of a comparison. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.contract import GroupResult
from simulator.modules.options import LEAN

from .model import Result
from .statistics import Ratio, estimate_ratio


@dataclass(frozen=True)
class ClientFigures:
    """What the valid runs by one client gave."""

    client: str
    rates: Sequence[float]
    """Events, or queries, per second."""
    cpu_us: Sequence[float]
    """Microseconds of the client's CPU for each of them: making it, its request, sending, the answer."""
    row_us: Sequence[float]
    """The same for each row of an answer, if the clients ask."""
    p50_ms: Sequence[float]
    """Of a request, like `p99_ms`."""
    p99_ms: Sequence[float]


@dataclass(frozen=True)
class ClientCost:
    """A client beside the lean path: each ratio is its figure ÷ the lean path's."""

    figures: ClientFigures
    rate: Ratio
    cpu: Ratio | None
    row: Ratio | None
    p50: Ratio | None


def collect_figures(result: Result) -> dict[str, ClientFigures]:
    """Client -> its figures, the lean path first. A client without a valid run is left out; other commands
    have none."""
    figures: dict[str, ClientFigures] = {}
    comparison = result.clients
    for client in comparison.ways if comparison else ():
        groups = [
            group_run.group
            for group_run in result.compared
            if group_run.group.valid
            and group_run.group.rate_per_s
            and comparison
            and comparison.find_client(group_run.run.run) == client
        ]
        if groups:
            times = [group.latency_ms for group in groups if group.latency_ms]
            figures[client] = ClientFigures(
                client,
                [group.rate_per_s for group in groups if group.rate_per_s],
                [cpu for group in groups if (cpu := find_cpu_us(group)) is not None],
                [cpu for group in groups if (cpu := find_row_us(group)) is not None],
                [ms.p50 for ms in times],
                [ms.p99 for ms in times if ms.p99 is not None],
            )
    return figures


def find_cpu_us(group: GroupResult) -> float | None:
    """Microseconds of the client's CPU for each event that was acknowledged, or query that was answered, in
    the window."""
    if group.client is None or not group.rate_per_s or not group.window_s:
        return None
    return group.client.cpu_s / (group.rate_per_s * group.window_s) * 1e6


def find_row_us(group: GroupResult) -> float | None:
    """Microseconds of the client's CPU for each row of the answers of the window."""
    rows = sum(query.rows or 0 for query in group.queries)
    return None if group.client is None or not rows else group.client.cpu_s / rows * 1e6


def pool_figures(several: Sequence[Mapping[str, ClientFigures]]) -> dict[str, ClientFigures]:
    """Client -> its figures of several comparisons together."""
    return {
        client: ClientFigures(
            client,
            *(
                [
                    value
                    for figures in several
                    if client in figures
                    for value in getattr(figures[client], name)
                ]
                for name in ("rates", "cpu_us", "row_us", "p50_ms", "p99_ms")
            ),
        )
        for client in dict.fromkeys(client for figures in several for client in figures)
    }


def compare_figures(figures: Mapping[str, ClientFigures]) -> list[ClientCost]:
    """Each client beside the lean path, where both have figures."""
    by_client = dict(figures)
    lean = by_client.pop(LEAN, None)
    if lean is None:
        return []

    def compare(
        read: Callable[[ClientFigures], Sequence[float]], own: ClientFigures
    ) -> Ratio | None:
        sides = [value for value in read(own) if value], [value for value in read(lean) if value]
        return estimate_ratio(*sides) if all(sides) else None

    return [
        ClientCost(
            own,
            estimate_ratio(own.rates, lean.rates),
            compare(lambda side: side.cpu_us, own),
            compare(lambda side: side.row_us, own),
            compare(lambda side: side.p50_ms, own),
        )
        for own in by_client.values()
    ]
