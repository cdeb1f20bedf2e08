"""Clocks and timelines: what a worker measures of itself and of its requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from ..contract import WorkerInsert
from ..histograms import encode_histogram, new_histogram


class Recorder:
    """Collects one worker's requests. Begins at `begin()`, which is the start of its window.

    `record` is in the hot path of single-row inserts: it costs about 1 µs, mostly the histogram.
    """

    def __init__(self) -> None:
        self.events = 0
        self.retries = 0
        self.errors: Counter[str] = Counter()
        self._histogram = new_histogram()
        self._seconds: Counter[int] = Counter()
        self._origin = 0.0
        self._begin = self._end = 0.0
        self._cpu_begin = self._cpu_end = 0.0
        self._throttling_begin: tuple[int, int] | None = None

    def begin(self, origin: float) -> None:
        """Open the window; `origin` is the common start on `time.perf_counter`'s clock."""
        self._origin = origin
        self._throttling_begin = throttled_periods()
        self._cpu_begin = time.process_time()
        self._begin = self._end = time.perf_counter()

    def record(self, sent: float, answered: float, events: int) -> None:
        """One request: submitted and acknowledged at these `perf_counter` times."""
        self._histogram.record_value((answered - sent) * 1e6 or 1)
        self._seconds[int(answered - self._origin)] += events
        self.events += events
        # Answers to requests in flight may come here in another order than they came in.
        self._end = max(self._end, answered)

    def end(self) -> None:
        """Close the window, which ends with the last acknowledged request."""
        self._cpu_end = time.process_time()

    def elapsed_s(self) -> float:
        """Seconds since the common start."""
        return time.perf_counter() - self._origin

    def result(
        self, generate_s: float, encode_s: float, ceiling_per_s: float, in_flight: int = 1
    ) -> WorkerInsert:
        """What was measured, for the collector."""
        return WorkerInsert(
            start_s=self._begin - self._origin,
            end_s=self._end - self._origin,
            events=self.events,
            cpu_s=self._cpu_end - self._cpu_begin,
            generate_s=generate_s,
            encode_s=encode_s,
            ceiling_per_s=ceiling_per_s,
            histogram=encode_histogram(self._histogram),
            timeline=sorted(self._seconds.items()),
            retries=self.retries,
            errors=dict(self.errors),
            in_flight=in_flight,
            throttled_share=throttled_share(self._throttling_begin, throttled_periods()),
        )


# cgroup v2, then v1 as a container sees it.
_CPU_STAT_FILES = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


def throttled_periods(files: Iterable[Path] = _CPU_STAT_FILES) -> tuple[int, int] | None:
    """(periods, throttled periods) of this container's CPU limit; None without a limit.

    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    for path in files:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        values = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
        if "nr_periods" in values and "nr_throttled" in values:
            return values["nr_periods"], values["nr_throttled"]
    return None


def throttled_share(begin: tuple[int, int] | None, end: tuple[int, int] | None) -> float | None:
    """Share of the periods between two readings that were throttled; None if not known."""
    if begin is None or end is None:
        return None
    periods = end[0] - begin[0]
    return (end[1] - begin[1]) / periods if periods > 0 else None
