"""What official clients cost: each client of a comparison beside the lean path. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.modules.options import LEAN

from .figures import FIGURES
from .matrix import gather
from .model import Result
from .observations import Observation, observe
from .statistics import Ratio, estimate_ratio

ClientFigures = Mapping[str, Sequence[float]]
"""Key of a figure -> its values in a client's valid runs."""


@dataclass(frozen=True)
class ClientColumns:
    """Keys of the figures by which clients are compared."""

    rate: str
    """Events, or queries, per second."""
    cpu: str
    """Microseconds of the client's CPU for each of them: making it, its request, sending, the answer."""
    row: str | None = None
    """The same for each row of an answer."""
    p50: str = "latency_p50_ms"
    p99: str = "latency_p99_ms"

    @property
    def keys(self) -> list[str]:
        """All of them, in the order of the table."""
        return [key for key in (self.rate, self.cpu, self.row, self.p50, self.p99) if key]


INSERTING = ClientColumns("inserts_per_s", "client_cpu_us_per_event")
ASKING = ClientColumns("queries_per_s", "client_cpu_us_per_query", "client_cpu_us_per_row")


@dataclass(frozen=True)
class ClientCost:
    """A client beside the lean path."""

    client: str
    own: ClientFigures
    lean: ClientFigures
    ratios: Mapping[str, Ratio]
    """Key of a figure that both have -> the client's ÷ the lean path's."""


def are_asked(results: Sequence[Result]) -> bool:
    """Whether all comparisons among these are of clients that ask."""
    comparisons = [result.clients for result in results if result.clients is not None]
    return bool(comparisons) and all(comparison.asks for comparison in comparisons)


def choose_columns(results: Sequence[Result]) -> ClientColumns:
    """The figures that these comparisons are about: those of inserts, unless all clients ask."""
    return ASKING if are_asked(results) else INSERTING


def collect_figures(results: Sequence[Result]) -> dict[str, ClientFigures]:
    """Client -> its figures in all of these comparisons, the lean path first. A client without a valid run is
    left out; other commands have none."""
    columns = choose_columns(results)
    figures = [FIGURES[key] for key in columns.keys]
    collected: dict[str, dict[str, list[float]]] = {}
    for result in results:
        comparison = result.clients
        if comparison is None:
            continue

        def find_client(seen: Observation, result: Result = result) -> str | None:
            assert result.clients is not None and seen.run is not None
            return result.clients.find_client(seen.run) if columns.rate in seen.figures else None

        by_client = gather(observe(result, figures=figures, parts=False), find_client)
        for client in comparison.ways:
            for key, values in by_client.get(client, {}).items():
                collected.setdefault(client, {}).setdefault(key, []).extend(values)
    return {client: own for client, own in collected.items() if columns.rate in own}


def compare_clients(results: Sequence[Result]) -> list[ClientCost]:
    """Each client beside the lean path, where both have figures."""
    by_client = collect_figures(results)
    lean = by_client.pop(LEAN, None)
    if lean is None:
        return []
    return [
        ClientCost(
            client, own, lean, {key: estimate_ratio(own[key], lean[key]) for key in own if key in lean}
        )
        for client, own in by_client.items()
    ]  # fmt: skip
