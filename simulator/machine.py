"""The machine that a process runs on: what it is, how much memory is left, how many files may be open, how
busy it was in a run, and when this process stalled."""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from . import __version__
from .contract import STALL_S, Machine, Stall
from .errors import SimulatorError

# Used by the payloads and measurements of every module.
_SHARED = ("numpy", "orjson")


def client_environment(packages: Iterable[str]) -> dict[str, Any]:
    """What the load generator is, with the versions of `packages` (a module's own) and of the packages that
    all modules use."""
    affinity, memory_mb = getattr(os, "sched_getaffinity", None), None
    with suppress(ValueError, OSError):
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        "simulator": __version__,
        "host": platform.node(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(affinity(0)) if affinity else os.cpu_count(),
        "memory_mb": memory_mb,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: find_version(name) for name in (*packages, *_SHARED)},
    }


def node_name() -> str:
    """The name of the Kubernetes node if the pod was told it, otherwise of this host."""
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


# cgroup v2, then v1 as a container sees it: the limit, and its current use.
# https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
_LIMIT_FILES = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def find_memory_bytes() -> int:
    """The memory of this machine, or the limit of this process's container."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit, _ in _LIMIT_FILES:
        # Without a limit the file says `max`.
        with suppress(OSError, ValueError):
            memory_bytes = min(memory_bytes, int(limit.read_text(encoding="utf-8")))
    return memory_bytes


def free_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), limits: Iterable[tuple[Path, Path]] = _LIMIT_FILES
) -> int | None:
    """The memory that this process may still take on this machine, within its container; None: not known."""
    free_bytes = []
    with suppress(OSError):
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        available = (line for line in lines if line.startswith("MemAvailable:"))
        free_bytes += [int(line.split()[1]) * 1024 for line in available]
    for limit, used in limits:
        with suppress(OSError, ValueError):
            most, taken = (int(file.read_text(encoding="utf-8")) for file in (limit, used))
            free_bytes.append(max(0, most - taken))
    return min(free_bytes, default=None)


def find_version(name: str) -> str | None:
    """The version of a distribution; None if it isn't installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --- how busy it was ------------------------------------------------------------------------------

# Read from the kernel's counters, which cover the whole machine (on Kubernetes, the node) even in a
# container: https://man7.org/linux/man-pages/man5/proc_stat.5.html. Where they don't exist, as on macOS, the
# shares are None.

_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class CpuTimes:
    """What all CPUs of a machine have done since boot, in ticks of the kernel."""

    idle: int
    """Includes waiting for disks."""
    steal: int
    """What a hypervisor gave to other machines while this one had work."""
    total: int

    @classmethod
    def parse(cls, line: str) -> CpuTimes | None:
        """From the first line of /proc/stat; None if it is something else, or counts nothing (gVisor)."""
        name, *fields = line.split() or [""]
        if name != "cpu" or not all(field.isdecimal() for field in fields):
            return None
        # The guests' time, in the fields after these, is part of `user` and `nice`.
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
    """The machine now; None for what this system doesn't report."""
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
    """How busy the machine was between two readings. The load average is the first one's."""
    busy_share = steal_share = None
    if begin.times is not None and end.times is not None:
        total = end.times.total - begin.times.total
        idle = end.times.idle - begin.times.idle
        steal = end.times.steal - begin.times.steal
        if total > 0:
            # The time of waiting for disks may go back slightly (proc_stat(5)).
            steal_share = min(1.0, max(0.0, steal / total))
            busy_share = min(1.0, max(0.0, (total - idle - steal) / total))
    return Machine(
        node=node, cpus=begin.cpus, load_average_1m=begin.load_average_1m,
        busy_share=busy_share, steal_share=steal_share,
    )  # fmt: skip


def merge_machines(seen: Iterable[Machine | None]) -> list[Machine]:
    """One machine for each node, by name, as seen by the first worker on it: all saw the same."""
    machines: dict[str, Machine] = {}
    for machine in seen:
        if machine is not None:
            machines.setdefault(machine.node, machine)
    return [machine for _, machine in sorted(machines.items())]


# --- open files -----------------------------------------------------------------------------------

_OWN_FILES = 32
"""How many files a process opens for itself. A collector had 12 open, a worker 8."""

_PER_WORKER = 2
"""Connections between the collector and each worker: one for progress, one for everything else."""

_MOST_FILES = 65_536


def allow_files() -> None:
    """Raise the limit of open files of this process and its children as far as allowed: it is often 1,024 by
    default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _count_allowed()
    if soft != resource.RLIM_INFINITY and soft < most:
        # macOS has another limit, below the one that it reports.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _count_allowed() -> int:
    """How many files a process may have open after raising its limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)


def check_files(workers: int = 0, in_flight: int = 0) -> None:
    """SimulatorError, with the remedy, if the collector of this many workers, or a worker with this many
    requests in flight, needs more open files than allowed."""
    allowed = _count_allowed()
    most = max(0, allowed - _OWN_FILES)
    for needed, at_most, who, what in (
        (_PER_WORKER * workers, most // _PER_WORKER, f"the collector of {workers}", "workers"),
        (in_flight, most, f"a worker with {in_flight}", "requests in flight"),
    ):
        if needed > most:
            files = needed + _OWN_FILES
            fewer = f", or use {at_most} {what} at most" if at_most else ""
            raise SimulatorError(
                f"{who} {what} needs {files} open files, and may have {allowed}: raise the limit by"
                f" `ulimit -n {files}`{fewer}"
            )


# --- when this process stalls ---------------------------------------------------------------------

_WAKE_S = 0.1
"""How often to wake. Waking costs up to 0.13 ms of CPU on a busy virtual machine, and there may be dozens of
workers."""

# `perf_counter` stops while the machine sleeps, on Linux and macOS alike. This clock doesn't: macOS has no
# CLOCK_BOOTTIME, but its CLOCK_MONOTONIC counts sleep (clock_gettime(3)), unlike Linux's.
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_WAITED = (Path("/proc/thread-self/schedstat"), Path("/proc/self/schedstat"))
"""Of this thread, and of the main one, which may hold the interpreter's lock while it waits for a CPU."""


def read_clock_s() -> float:
    """The time by a clock that is never set, that doesn't stop while the machine sleeps, and that all
    processes share."""
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
    """How long its threads were runnable while others had the CPU; 0 if the system doesn't report it."""


def look() -> Look:
    """The clocks now."""
    at_s, real_s, cpu_s, waited_s = time.perf_counter(), read_clock_s(), time.process_time(), 0.0
    with suppress(OSError, ValueError, IndexError):
        # The second of three numbers: https://docs.kernel.org/scheduler/sched-stats.html
        waited_s = sum(int(file.read_bytes().split()[1]) for file in _WAITED) / 1e9
    return Look(at_s, real_s, cpu_s, waited_s)


def find_stall(worker: int | None, before: Look, after: Look) -> Stall | None:
    """The stall between two looks, the second of which was due soon after the first; None if it came in time.
    Its beginning, by `time.perf_counter`, is exact to half a pause."""
    passed_s = after.at_s - before.at_s
    # A process that is stopped while it sleeps has slept half of that time on average.
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
    """Looks at the clocks from a thread, from its creation until its end."""

    def __init__(self, worker: int | None) -> None:
        """`worker`: the worker whose process this is; None: the collector."""
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
        """End the watch. Returns its stalls by the common start, which was `elapsed_s` ago."""
        start_s = time.perf_counter() - elapsed_s
        self._ended.set()
        self._thread.join()
        return [
            stall.model_copy(update={"begins_s": stall.begins_s - start_s})
            for stall in self._stalls
        ]
