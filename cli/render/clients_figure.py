"""What official clients cost, as bars: throughput, and the client's CPU for each event."""

from __future__ import annotations

from collections.abc import Sequence

from .bars import RATE, collect_clients, draw_bars
from .figure import Figure, NamedResult

CPU = "µs of CPU per event"


def draw_clients(results: Sequence[NamedResult]) -> Figure | None:
    """Throughput by each client, of each comparison the lean path first."""
    bars = collect_clients(results)
    if not bars:
        return None
    return draw_bars("clients", "Throughput by client", bars, RATE, most=len(bars))


def draw_client_cpu(results: Sequence[NamedResult]) -> Figure | None:
    """What each client's process used for an event: making it, its request, sending, the answer."""
    bars = collect_clients(results, lambda own: own.cpu_us)
    if not bars:
        return None
    return draw_bars("client-cpu", "CPU of each client", bars, CPU, most=len(bars))
