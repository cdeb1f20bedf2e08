"""Latencies second by second, in a worker: for runs in which something is done to the database every now and
then, which no percentile of the whole run shows."""

from __future__ import annotations

import zlib

from ..histograms import CoarseCounts, coarsen_latencies, read_coarse, write_coarse


class SecondRecorder:
    """The latencies of the requests of each second since the common start. One thread records.

    Seconds that are over are kept as coarse counts, packed into some hundred bytes each, so that a day's run
    has room: lists of numbers took as many kilobytes.
    """

    def __init__(self) -> None:
        self._pending: dict[int, list[float]] = {}
        self._newest = -1
        self._counts: list[tuple[int, bytes]] = []

    def record(self, at_s: float, latency_s: float) -> None:
        """Note a request that was sent (in an open loop: due) then. In the hot path."""
        second = max(0, int(at_s))
        if second > self._newest:
            # Some 0.1 ms, once a second.
            self._newest = second
            self._keep()
        self._pending.setdefault(second, []).append(latency_s)

    def _keep(self) -> None:
        self._counts += [
            (second, zlib.compress(write_coarse(coarsen_latencies(own)).encode(), 1))
            for second, own in self._pending.items()
        ]
        self._pending.clear()

    def result(self) -> list[tuple[int, CoarseCounts]]:
        """Second and counts; a second whose requests were answered late may be there several times."""
        self._keep()
        return [
            (second, read_coarse(zlib.decompress(packed).decode()))
            for second, packed in self._counts
        ]
