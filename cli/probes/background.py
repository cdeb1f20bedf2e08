"""What processes that aren't of a run took of this machine's CPU.

Two counts, of which the larger holds. That of each process is exact, but lacks those that ended
between two snapshots and those that can't be seen, as from within a container. What the machine was
busy, less what the run's own processes took, lacks nothing, but is the kernel's estimate by its ticks,
and too small where the processes' times include those of interrupts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

NAMED = 5
"""So many of the others are named."""
NAMED_SHARE = 0.01
"""From this share of the CPU on."""

MIN_COVERED = 0.5
"""Share of a window of which snapshots must tell."""

# More than all CPUs can do is a process that was read twice: before its end, and in its parent.
_SLACK, _SLACK_S = 1.1, 0.1
# The parent of the kernel's threads; in a container this number may be any process's.
_KERNEL_PID, _KERNEL_NAME = 2, "kthreadd"


@dataclass(frozen=True)
class Process:
    """One process. CPU seconds count from its begin."""

    pid: int
    parent: int
    name: str
    created: float
    cpu_s: float
    ended_children_s: float
    """That of its children that have ended, and of theirs."""


@dataclass(frozen=True)
class Snapshot:
    """All processes that can be seen, and what the machine did since it began."""

    at: float
    """By the wall clock, as seconds since 1970."""
    used_s: float
    """CPU seconds of all processes, without those of interrupts."""
    processes: Mapping[int, Process]


@dataclass(frozen=True)
class Step:
    """What was done between two snapshots, in CPU seconds."""

    began: float
    ended: float
    used_s: float
    own_s: float
    kernel_s: float
    """By the kernel's threads, which write for the database and for others."""
    others_s: float
    by_name: Mapping[str, float]
    """`others_s` by the processes' names."""


def find_family(processes: Mapping[int, Process], roots: Collection[int]) -> set[int]:
    """Those of the roots that are there, their children, and so on."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    queue = [root for root in roots if root in processes]
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue += children.get(pid, [])
    return found


def compare(before: Snapshot, after: Snapshot, roots: Collection[int], cpus: int) -> Step | None:
    """What was done between two snapshots by the family of `roots` and by others; None if that can't
    be said, because a process of the family got away or was counted twice."""
    families = [find_family(one.processes, roots) for one in (before, after)]
    own_before_s, own_s = (
        sum(one.processes[pid].cpu_s + one.processes[pid].ended_children_s for pid in family)
        for one, family in zip((before, after), families, strict=True)
    )
    own_s -= own_before_s
    capacity_s = cpus * (after.at - before.at)
    if not 0 <= own_s <= _SLACK * capacity_s + _SLACK_S:
        return None
    kernel = _find_kernel(after.processes)
    kernel_s = 0.0
    by_name: dict[str, float] = defaultdict(float)
    for pid in after.processes.keys() - families[1]:
        took_s = _took_s(before.processes.get(pid), after.processes[pid])
        if pid in kernel:
            kernel_s += took_s
        elif took_s > 0:
            by_name[after.processes[pid].name] += took_s
    return Step(
        began=before.at,
        ended=after.at,
        used_s=after.used_s - before.used_s,
        own_s=own_s,
        kernel_s=kernel_s,
        others_s=sum(by_name.values()),
        by_name=by_name,
    )


def _find_kernel(processes: Mapping[int, Process]) -> set[int]:
    """The kernel's own threads."""
    first = processes.get(_KERNEL_PID)
    is_kernel = first is not None and first.name == _KERNEL_NAME
    return find_family(processes, [_KERNEL_PID]) if is_kernel else set()


def _took_s(before: Process | None, after: Process) -> float:
    if before is None or before.created != after.created:
        return after.cpu_s  # it has begun meanwhile
    return after.cpu_s - before.cpu_s


def share_of_others(
    steps: Iterable[Step], began: float, ended: float, cpus: int
) -> tuple[float, dict[str, float]] | None:
    """The share of the machine's CPU that others took between two instants, and which of them took
    most. None if the steps tell of less than half of that time."""
    parts = [(step, _overlap_s(step, began, ended)) for step in steps]
    covered_s = sum(seconds for _, seconds in parts)
    if covered_s <= 0 or covered_s < MIN_COVERED * (ended - began):
        return None
    in_all_s = seen_s = 0.0
    by_name: dict[str, float] = defaultdict(float)
    for step, seconds in parts:
        if seconds > 0:
            share = seconds / (step.ended - step.began)
            in_all_s += share * (step.used_s - step.own_s - step.kernel_s)
            seen_s += share * step.others_s
            for name, took_s in step.by_name.items():
                by_name[name] += share * took_s
    capacity_s = cpus * covered_s
    most = sorted(by_name.items(), key=lambda pair: -pair[1])[:NAMED]
    named = {
        name: took_s / capacity_s for name, took_s in most if took_s >= NAMED_SHARE * capacity_s
    }
    return min(1.0, max(0.0, in_all_s, seen_s) / capacity_s), named


def _overlap_s(step: Step, began: float, ended: float) -> float:
    return max(0.0, min(step.ended, ended) - max(step.began, began))


# Processes of a Linux machine by one short read of each: a fifth of what psutil takes for the same.

_PROC = Path("/proc")
_CUT_AT = 15
"""The kernel keeps so many bytes of a name."""
# Counted from behind the name, in which there may be blanks and brackets.
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM, _BEGAN = 1, 11, 12, 13, 14, 19


def read_processes(place: Path = _PROC) -> Iterator[Process]:
    """Those that are there now; what ends meanwhile is left out."""
    for entry in os.listdir(place):  # noqa: PTH208 - a thousand paths a second would cost more than they say
        if entry.isdecimal():
            with suppress(OSError):
                yield parse_stat(int(entry), Path(f"{place}/{entry}/stat").read_bytes())


def read_families(pids: Iterable[int], place: Path = _PROC) -> Iterator[Process]:
    """Those of them that are there now, and what they have started, and so on: as far as the kernel tells
    (with CONFIG_PROC_CHILDREN, of a process's first thread), for there is no short way to ask for more."""
    queue, seen = list(pids), set[int]()
    while queue:
        pid = queue.pop()
        if pid in seen:
            continue
        seen.add(pid)
        with suppress(OSError):
            yield parse_stat(pid, Path(f"{place}/{pid}/stat").read_bytes())
            children = Path(f"{place}/{pid}/task/{pid}/children").read_bytes()
            queue += map(int, children.split())


def parse_stat(pid: int, stat: bytes) -> Process:
    """A process by its line as in proc(5). Pure but for the clock and names that are cut."""
    head, _, rest = stat.rpartition(b")")
    fields = rest.split()
    ticks, booted = _read_clock()
    began = int(fields[_BEGAN])
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(
        pid=pid,
        parent=int(fields[_PARENT]),
        name=name if len(name) < _CUT_AT else _read_name(pid, began, name),
        created=booted + began / ticks,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / ticks,
        ended_children_s=(int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / ticks,
    )


@lru_cache(1)
def _read_clock() -> tuple[int, float]:
    """Ticks per second, and when the machine began: the same for all looks, even if its clock is set."""
    return os.sysconf("SC_CLK_TCK"), psutil.boot_time()


@lru_cache(4096)
def _read_name(pid: int, _began: int, name: str) -> str:
    """The whole name of a process, of which the beginning is known."""
    with suppress(psutil.Error):
        return str(psutil.Process(pid).name())
    return name
