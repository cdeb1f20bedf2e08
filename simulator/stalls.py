"""Notices when this process stands still: when it is stopped, its machine sleeps, or it gets no CPU."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from .contract import STALL_S, Stall

_WAKE_S = 0.1
"""Waking costs up to 0.13 ms of CPU, on a busy virtual machine, and there may be dozens of workers."""

# `perf_counter` stands still while the machine sleeps, on Linux and macOS alike. This clock goes on: macOS
# has no CLOCK_BOOTTIME, but its CLOCK_MONOTONIC counts sleep (clock_gettime(3)), as Linux's doesn't.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_WAITED = (Path("/proc/thread-self/schedstat"), Path("/proc/self/schedstat"))
"""Of this thread, and of the main one, which may hold the interpreter's lock while it waits for a CPU."""


def read_clock_s() -> float:
    """By a clock that nobody sets, that goes on while the machine sleeps, and that all processes share."""
    return time.clock_gettime(_SLEEPLESS)


class Look(NamedTuple):
    """The clocks at an instant."""

    at_s: float
    """By `time.perf_counter`."""
    real_s: float
    """By `read_clock_s`."""
    cpu_s: float = 0.0
    """Of this process."""
    waited_s: float = 0.0
    """How long its threads were ready to go on, and others had the CPU; 0 where the system doesn't tell."""


def look() -> Look:
    """The clocks now."""
    return Look(time.perf_counter(), read_clock_s(), time.process_time(), _read_waited_s())


def _read_waited_s() -> float:
    """The second of three numbers: https://docs.kernel.org/scheduler/sched-stats.html"""
    with suppress(OSError, ValueError, IndexError):
        return sum(int(file.read_bytes().split()[1]) for file in _WAITED) / 1e9
    return 0.0


def find_stall(worker: int | None, before: Look, after: Look) -> Stall | None:
    """What lies between two looks, the second of which was due soon after the first; None if it came in time.
    It begins by `time.perf_counter`, give or take half a pause. Pure."""
    passed_s = after.at_s - before.at_s
    # Whoever is stopped while it waits has waited for half of that time on average.
    late_s = passed_s - _WAKE_S / 2 if passed_s > 2 * _WAKE_S else 0.0
    # The clocks are read one after the other.
    asleep_s = max(0.0, round(after.real_s - before.real_s - passed_s, 3))
    if late_s + asleep_s < STALL_S:
        return None
    return Stall(
        worker=worker,
        begins_s=after.at_s - late_s,
        length_s=late_s + asleep_s,
        asleep_s=asleep_s,
        cpu_s=max(0.0, after.cpu_s - before.cpu_s),
        waited_s=min(max(0.0, after.waited_s - before.waited_s), late_s),
    )


class StallWatch:
    """Looks at the clocks from a thread, from when it is made until its end."""

    def __init__(self, worker: int | None) -> None:
        """`worker`: whose process this is; None: the collector's."""
        self._worker = worker
        self._stalls: list[Stall] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stalls", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        ended, last = False, look()
        while not ended:
            ended = self._ended.wait(_WAKE_S)
            now = look()
            if (stall := find_stall(self._worker, last, now)) is not None:
                self._stalls.append(stall)
            last = now

    def end(self, elapsed_s: float) -> list[Stall]:
        """End it. Returns what it has seen, since the common start, which was `elapsed_s` ago."""
        start_s = time.perf_counter() - elapsed_s
        self._ended.set()
        self._thread.join()
        return [
            stall.model_copy(update={"begins_s": stall.begins_s - start_s})
            for stall in self._stalls
        ]
