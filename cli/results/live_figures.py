"""The figures of a run under way, once: those of the live page and of `/metrics`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.contract import GroupStatus


@dataclass(frozen=True)
class LiveFigure:
    """A figure of a group in the run under way."""

    key: str
    """Its name on the live page."""
    metric: str
    """Its name at `/metrics`; `{unit}`: events or queries."""
    about: str
    read: Callable[[GroupStatus], float | None]
    scale: float = 1.0
    """Metrics are in base units."""


LIVE = (
    LiveFigure("rate", "{unit}_per_second", "{Unit} per second over the last seconds.",
               lambda group: group.rate_per_s),
    LiveFigure("backlog", "backlog_{unit}", "{Unit} that are due and not done (open loop).",
               lambda group: group.backlog),
    LiveFigure("p50", "recent_p50_seconds",
               "p50 of the last seconds: response times, in a closed loop service times.",
               lambda group: group.recent_p50_ms, 1e-3),
    LiveFigure("p99", "recent_p99_seconds",
               "p99 of the last seconds: response times, in a closed loop service times.",
               lambda group: group.recent_p99_ms, 1e-3),
    LiveFigure("rows", "answer_rows_per_second",
               "Rows per second of queries' answers, over the last seconds.",
               lambda group: group.rows_per_s),
    LiveFigure("bytes", "answer_bytes_per_second",
               "Bytes per second of queries' answers, over the last seconds.",
               lambda group: group.bytes_per_s),
)  # fmt: skip
