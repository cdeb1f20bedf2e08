"""Times in which a process of the load generator stood still, and what they say about a run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .message import Count, Instant, Message, Seconds

STALL_S = 0.25
"""A process that stands still for less isn't told from one that waits its turn on a busy machine."""
MOST_STALLED_SHARE = 0.02
"""Up to this share of its window, a run keeps its figures: a rate is then too low by as much at most."""


class Stall(Message):
    """A time in which a worker or the collector did nothing at all."""

    worker: Count | None
    """Which worker; None: the collector."""
    begins_s: Instant
    """Since the common start."""
    length_s: Seconds
    asleep_s: Seconds = 0.0
    """For how long of this the machine slept: no clock by which requests are measured went on."""
    cpu_s: Seconds = 0.0
    """CPU time of the process meanwhile: if it is most of the time, it didn't stop but computed."""
    waited_s: Seconds = 0.0
    """For how long of this it was ready to go on, and others had the CPU; 0 where only Linux would tell."""

    @property
    def stood_s(self) -> float:
        """For how long it stood still for another reason than a busy machine, which is told by who used its
        CPUs, and on which a local database has its share of them."""
        return max(0.0, self.length_s - self.waited_s)

    def cut(self, late_s: float, began_s: float, ended_s: float) -> Stall | None:
        """The part of it within a window; None if that is too short to count. `late_s`: how late this process
        started."""
        begins_s = self.begins_s + late_s
        ends_s = begins_s + self.length_s - self.asleep_s
        awake_s = min(ends_s, ended_s) - max(begins_s, began_s)
        if awake_s < 0 or awake_s + self.asleep_s < STALL_S:
            return None
        length_s = awake_s + self.asleep_s
        changes = {
            "begins_s": max(begins_s, began_s),
            "length_s": length_s,
            "waited_s": min(self.waited_s, length_s),
        }
        return self.model_copy(update=changes)


def _by_process(stalls: Iterable[Stall]) -> Collection[list[Stall]]:
    by_process: dict[int | None, list[Stall]] = {}
    for stall in stalls:
        by_process.setdefault(stall.worker, []).append(stall)
    return by_process.values()


def _find_worst(stalls: Iterable[Stall]) -> list[Stall]:
    """Those of the process that stood still for longest: one of many is enough to hold a run back."""
    return max(_by_process(stalls), key=_sum_s, default=[])


def _sum_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.length_s for stall in stalls)


def _sum_stood_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.stood_s for stall in stalls)


def sum_stalls_s(stalls: Iterable[Stall]) -> float:
    """For how long the process stood still that did for longest."""
    return _sum_s(_find_worst(stalls))


def _measure_whole_s(worst: Iterable[Stall], window_s: float) -> float:
    """How long a window really was: no clock of the run has counted what its machine slept."""
    return window_s + sum(stall.asleep_s for stall in worst)


def is_stalled(stalls: Iterable[Stall], window_s: float) -> bool:
    """Whether a process stood still for so much of a window that the figures are the client's."""
    worst = max(_by_process(stalls), key=_sum_stood_s, default=[])
    return _sum_stood_s(worst) > MOST_STALLED_SHARE * _measure_whole_s(worst, window_s)


def describe_stalls(stalls: Collection[Stall], window_s: float) -> str:
    """For how long the load generator stood still, which process did, and why as far as that shows."""
    worst = _find_worst(stalls)
    stood_s, worker = _sum_s(worst), worst[0].worker
    others = len({stall.worker for stall in stalls}) - 1
    who = "the collector" if worker is None else f"worker {worker}"
    who += f" and {others:,} more" if others else ""
    if sum(stall.asleep_s for stall in worst) >= stood_s / 2:
        why = "the machine slept"
    elif sum(stall.cpu_s for stall in worst) >= stood_s / 2:
        why = "busy with its own computing"
    elif sum(stall.waited_s for stall in worst) >= stood_s / 2:
        why = "left without CPU"
    else:
        why = "stopped, or left without CPU"
    whole_s = _measure_whole_s(worst, window_s)
    return f"the load generator stood still for {stood_s:.1f} s of {whole_s:.3g} s ({who}: {why})"
