"""How busy the machine is that a worker runs on, from the common start to the worker's end.

Read from the kernel's counters, which are those of the whole machine (on Kubernetes, of the node)
in a container, too: https://man7.org/linux/man-pages/man5/proc_stat.5.html. Where they don't exist,
as on macOS, the shares are None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .contract import Machine

_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class CpuTimes:
    """What all CPUs of a machine did since it began, in ticks of the kernel."""

    idle: int
    """Waiting for disks included."""
    steal: int
    """What a hypervisor gave to other machines while this one had work."""
    total: int

    @classmethod
    def parse(cls, line: str) -> CpuTimes | None:
        """From the first line of /proc/stat; None if it is none, or counts nothing (gVisor)."""
        name, *fields = line.split() or [""]
        if name != "cpu" or not all(field.isdecimal() for field in fields):
            return None
        # What guests of this machine took, behind these, is a part of `user` and `nice`.
        ticks = [int(field) for field in fields[:8]]
        if len(ticks) < 8 or not sum(ticks):
            return None
        _user, _nice, _system, idle, waiting, _irq, _softirq, steal = ticks
        return cls(idle=idle + waiting, steal=steal, total=sum(ticks))


@dataclass(frozen=True)
class Reading:
    """The machine at an instant."""

    cpus: int | None
    load_average_1m: float | None
    times: CpuTimes | None


def read_machine(stat: Path = _STAT) -> Reading:
    """The machine now; None for what this system doesn't tell."""
    try:
        load_average_1m = os.getloadavg()[0]
    except OSError:
        load_average_1m = None
    try:
        with stat.open(encoding="ascii", errors="replace") as file:
            times = CpuTimes.parse(file.readline())
    except OSError:
        times = None
    return Reading(os.cpu_count(), load_average_1m, times)


def measure_machine(node: str, begin: Reading, end: Reading) -> Machine:
    """How busy it was between two readings. The load average is that of the first."""
    busy_share = steal_share = None
    if begin.times is not None and end.times is not None:
        total = end.times.total - begin.times.total
        idle = end.times.idle - begin.times.idle
        steal = end.times.steal - begin.times.steal
        if total > 0:
            # The time of waiting for disks may go back by a little (proc_stat(5)).
            steal_share = _clamp(steal / total)
            busy_share = _clamp((total - idle - steal) / total)
    return Machine(
        node=node,
        cpus=begin.cpus,
        load_average_1m=begin.load_average_1m,
        busy_share=busy_share,
        steal_share=steal_share,
    )


def merge_machines(seen: Iterable[Machine | None]) -> list[Machine]:
    """One for each node, in order of their names: as the first worker on it saw it, for all saw the
    same."""
    found: dict[str, Machine] = {}
    for machine in seen:
        if machine is not None:
            found.setdefault(machine.node, machine)
    return [machine for _, machine in sorted(found.items())]


def _clamp(share: float) -> float:
    return min(1.0, max(0.0, share))
