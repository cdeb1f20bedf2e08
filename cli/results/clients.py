"""What official clients cost, from the runs of a comparison. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.contract import InsertRun
from simulator.modules.options import LEAN

from .model import ClientComparison
from .statistics import Ratio, Summary, estimate_ratio, summarize


@dataclass(frozen=True)
class ClientFigures:
    """What the valid runs by one client gave."""

    client: str
    rates: Sequence[float]
    """Events per second."""
    cpu_us: Sequence[float]
    """Microseconds of the client's CPU for each event: making it, its request, sending, the answer."""
    p50_ms: Sequence[float]
    """Of a request, as are the p99."""
    p99_ms: Sequence[float]


@dataclass(frozen=True)
class ClientCost:
    """A client beside the lean path: each is its figure ÷ the lean path's."""

    figures: ClientFigures
    rate: Ratio
    cpu: Ratio | None
    p50: Ratio | None


def collect_figures(
    comparison: ClientComparison, runs: Sequence[InsertRun]
) -> dict[str, ClientFigures]:
    """Client -> its figures, the lean path first; none of a client without a valid run."""
    found = {}
    for client in comparison.ways:
        own = [
            run
            for run in runs
            if run.valid and run.inserts_per_s and comparison.find_client(run.run) == client
        ]
        if own:
            found[client] = ClientFigures(
                client,
                [run.inserts_per_s for run in own if run.inserts_per_s],
                [cpu for run in own if (cpu := find_cpu_us(run)) is not None],
                [run.latency_ms.p50 for run in own if run.latency_ms],
                [p99 for run in own if run.latency_ms and (p99 := run.latency_ms.p99) is not None],
            )
    return found


def find_cpu_us(run: InsertRun) -> float | None:
    """Microseconds of the client's CPU for each event that was acknowledged in the window."""
    if run.client is None or not run.inserts_per_s or not run.window_s:
        return None
    return run.client.cpu_s / (run.inserts_per_s * run.window_s) * 1e6


def pool_figures(several: Sequence[Mapping[str, ClientFigures]]) -> dict[str, ClientFigures]:
    """Client -> its figures of several comparisons together."""
    return {
        client: ClientFigures(
            client,
            *(
                [value for one in several if client in one for value in getattr(one[client], name)]
                for name in ("rates", "cpu_us", "p50_ms", "p99_ms")
            ),
        )
        for client in dict.fromkeys(client for one in several for client in one)
    }


def compare_clients(comparison: ClientComparison, runs: Sequence[InsertRun]) -> list[ClientCost]:
    """Each client beside the lean path, where both have figures."""
    return compare_figures(collect_figures(comparison, runs))


def compare_figures(figures: Mapping[str, ClientFigures]) -> list[ClientCost]:
    """The same of figures that are there."""
    found = dict(figures)
    lean = found.pop(LEAN, None)
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
            compare(lambda one: one.cpu_us, own),
            compare(lambda one: one.p50_ms, own),
        )
        for own in found.values()
    ]


def summarize_rates(figures: ClientFigures) -> Summary:
    """The rates of one client over its runs."""
    return summarize(figures.rates)
