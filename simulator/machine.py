"""The machine that a process runs on: what it is, what memory it has left, and how busy it was in a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import __version__
from .contract import Machine

# What every module's payloads and measurements go through.
_SHARED = ("numpy", "orjson", "hdrhistogram")


def client_environment(packages: Iterable[str]) -> dict[str, Any]:
    """Processor, memory, kernel and Python of the load generator, and the versions of the
    distributions `packages` (a module's own) and of those that all modules use."""
    return {
        "simulator": __version__,
        "host": platform.node(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": _usable_cpus(),
        "memory_mb": _memory_mb(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: find_version(name) for name in (*packages, *_SHARED)},
    }


def node_name() -> str:
    """The Kubernetes node if the pod was told it, or else this host."""
    return os.environ.get("NODE_NAME") or platform.node()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or "unknown"


def _usable_cpus() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count()


def _memory_mb() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        return None


# cgroup v2, then v1 as a container sees it: the limit, and what is used of it.
# https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
_LIMIT_FILES = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def find_memory_bytes() -> int:
    """The memory of this machine, or as much of it as this process's container may have."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _LIMIT_FILES:
        # Without a limit the file says `max`.
        with suppress(OSError, ValueError):
            memory_bytes = min(memory_bytes, int(limit.read_text(encoding="utf-8")))
    return memory_bytes


def free_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), limits: Iterable[tuple[Path, Path]] = _LIMIT_FILES
) -> int | None:
    """The memory that this process may still take, by what the machine has and by its container's limit;
    None if that isn't known."""
    free_bytes = []
    with suppress(OSError):
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        free_bytes += [
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
        ]
    for limit, used in limits:
        with suppress(OSError, ValueError):
            free_bytes.append(
                max(
                    0,
                    int(limit.read_text(encoding="utf-8")) - int(used.read_text(encoding="utf-8")),
                )
            )
    return min(free_bytes, default=None)


def find_version(name: str) -> str | None:
    """The version of a distribution; None if it isn't installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --- how busy it was ------------------------------------------------------------------------------

# Read from the kernel's counters, which are those of the whole machine (on Kubernetes, of the node) in a
# container, too: https://man7.org/linux/man-pages/man5/proc_stat.5.html. Where they don't exist, as on macOS,
# the shares are None.

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
        # The time of this machine's guests, behind these, is a part of `user` and `nice`.
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
    """How busy the machine was between two readings. The load average is that of the first."""
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
    """One machine for each node, in order of their names, as the first worker on it saw it: all saw the
    same."""
    machines: dict[str, Machine] = {}
    for machine in seen:
        if machine is not None:
            machines.setdefault(machine.node, machine)
    return [machine for _, machine in sorted(machines.items())]


def _clamp(share: float) -> float:
    return min(1.0, max(0.0, share))
