"""Latencies minute by minute, from what workers report anyway. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import MinuteLatency, Progress
from ..histograms import (
    CoarseCounts,
    add_coarse,
    find_percentiles_ms,
    subtract_coarse,
    write_coarse,
)

_MINUTE_S = 60
MOST_MINUTES = 1_440
"""A day. In longer runs two minutes become one, again and again."""


class MinuteSeries:
    """The latencies of a group's requests by the minute in which workers reported them, which is at most a
    second late. All minutes add up to the whole window."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[int, CoarseCounts]] = {}
        """Worker -> minute of its last report, and all that it had reported in earlier ones."""
        self._latest: dict[int, CoarseCounts] = {}
        self._minutes: dict[int, CoarseCounts] = {}
        self.length_s = _MINUTE_S

    def take(self, message: Progress) -> None:
        """Take a worker's report, with all latencies of the window so far."""
        minute = int(message.elapsed_s // self.length_s)
        before = self._told.get(message.worker)
        if before is None:
            self._told[message.worker] = minute, (0, [])
        elif minute > before[0]:
            # What was counted while it was recorded is in the next minute.
            latest = self._latest[message.worker]
            self._add(before[0], subtract_coarse(latest, before[1]))
            self._told[message.worker] = minute, latest
        self._latest[message.worker] = message.latency

    def _add(self, minute: int, counts: CoarseCounts) -> None:
        self._minutes[minute] = add_coarse(self._minutes.get(minute, (0, [])), counts)
        if len(self._minutes) > MOST_MINUTES:
            self._halve()

    def _halve(self) -> None:
        minutes, self._minutes = self._minutes, {}
        self.length_s *= 2
        for minute, counts in minutes.items():
            merged = self._minutes.get(minute // 2, (0, []))
            self._minutes[minute // 2] = add_coarse(merged, counts)
        self._told = {worker: (at // 2, reported) for worker, (at, reported) in self._told.items()}

    def read_latest(self) -> MinuteLatency | None:
        """The last minute that is over for all workers; None before."""
        over = min((minute for minute, _ in self._told.values()), default=0) - 1
        if over not in self._minutes:
            return None
        return self._describe(over, self._minutes[over])

    def result(self) -> list[MinuteLatency]:
        """All minutes, the one that the end cut off included; none if the run has a single one."""
        minutes: Mapping[int, CoarseCounts] = self._minutes
        rest = dict(minutes)
        for worker, (minute, reported) in self._told.items():
            recent = subtract_coarse(self._latest[worker], reported)
            rest[minute] = add_coarse(rest.get(minute, (0, [])), recent)
        if len(rest) < 2:
            return []
        return [self._describe(minute, counts) for minute, counts in sorted(rest.items())]

    def _describe(self, minute: int, counts: CoarseCounts) -> MinuteLatency:
        p50, p99 = find_percentiles_ms([counts], [50, 99])
        return MinuteLatency(
            begins_s=minute * self.length_s,
            length_s=self.length_s,
            requests=sum(counts[1]),
            p50_ms=p50,
            p99_ms=p99,
            counts=write_coarse(counts),
        )
