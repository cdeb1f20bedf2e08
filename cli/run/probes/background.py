"""How much of this machine's CPU was taken by processes that aren't of a run.

There are two counts, and the larger one holds. The count by process is exact, but lacks those that ended
between two snapshots and those that can't be seen, as from within a container. The time that the machine was
busy, less what the run's own processes took, lacks nothing, but is the kernel's estimate by its ticks, and
too small where the processes' times include those of interrupts.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

from simulator.machine import read_clock_s

from .timeline import Step, Window, add_up, name_most

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
    """By `read_clock_s`."""
    cpu_s: float
    ended_children_s: float
    """CPU seconds of its children that have ended, and of theirs."""


@dataclass(frozen=True)
class Snapshot:
    """All processes that can be seen, and what the machine did since it began."""

    at: float
    """By `read_clock_s`."""
    used_s: float
    """CPU seconds of all processes, without those of interrupts."""
    processes: Mapping[int, Process]


OWN, KERNEL, MACHINE = "own", "kernel", "machine"
"""CPU seconds of a step: of the run and its database; of the kernel's threads, which write for the database
and for others; of all processes, without those of interrupts. What another took is by its name in a tuple."""


def find_family(processes: Mapping[int, Process], roots: Collection[int]) -> set[int]:
    """The roots that are there, their children, and so on."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    family: set[int] = set()
    queue = [root for root in roots if root in processes]
    while queue:
        pid = queue.pop()
        if pid not in family:
            family.add(pid)
            queue += children.get(pid, [])
    return family


def compare(before: Snapshot, after: Snapshot, roots: Collection[int], cpus: int) -> Step | None:
    """What was done between two snapshots by the family of `roots` and by others; None if that can't
    be said, because a process of the family got away or was counted twice."""
    families = [find_family(snapshot.processes, roots) for snapshot in (before, after)]
    own_before_s, own_s = (
        sum(
            snapshot.processes[pid].cpu_s + snapshot.processes[pid].ended_children_s
            for pid in family
        )
        for snapshot, family in zip((before, after), families, strict=True)
    )
    own_s -= own_before_s
    capacity_s = cpus * (after.at - before.at)
    if not 0 <= own_s <= _SLACK * capacity_s + _SLACK_S:
        return None
    first = after.processes.get(_KERNEL_PID)
    is_kernel = first is not None and first.name == _KERNEL_NAME
    kernel = find_family(after.processes, [_KERNEL_PID]) if is_kernel else set()
    amounts: dict[Hashable, float] = defaultdict(float)
    amounts |= {MACHINE: after.used_s - before.used_s, OWN: own_s, KERNEL: 0.0}
    for pid in after.processes.keys() - families[1]:
        process, earlier = after.processes[pid], before.processes.get(pid)
        took_s = process.cpu_s
        if (
            earlier is not None and earlier.created == process.created
        ):  # else it has begun meanwhile
            took_s -= earlier.cpu_s
        if pid in kernel:
            amounts[KERNEL] += took_s
        elif took_s > 0:
            amounts[process.name,] += took_s
    return Step(before.at, after.at, amounts)


def share_of_others(
    steps: Iterable[Step], window: Window, cpus: int
) -> tuple[float, dict[str, float]] | None:
    """The share of the machine's CPU that others took in a window, and which of them took most. None if the
    steps tell of less than half of that time."""
    amounts = add_up(steps, window)
    if amounts is None:
        return None
    capacity_s = cpus * window.length_s
    by_name = {
        key[0]: took_s / capacity_s for key, took_s in amounts.items() if isinstance(key, tuple)
    }
    in_all = (amounts[MACHINE] - amounts[OWN] - amounts[KERNEL]) / capacity_s
    return min(1.0, max(0.0, in_all, sum(by_name.values()))), name_most(by_name)


# Processes of a Linux machine by one short read of each: a fifth of what psutil takes for the same.

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_CUT_AT = 15
"""The kernel keeps so many bytes of a name."""
# Counted from behind the name, in which there may be blanks and brackets.
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM, _BEGAN = 1, 11, 12, 13, 14, 19


def read_processes(place: Path = _PROC) -> Iterator[Process]:
    """The processes that are there now; what ends meanwhile is left out."""
    for entry in os.listdir(place):  # noqa: PTH208 - a thousand paths a second would cost more than they say
        if entry.isdecimal():
            with suppress(OSError):
                yield parse_stat(int(entry), Path(f"{place}/{entry}/stat").read_bytes())


def read_families(pids: Iterable[int], place: Path = _PROC) -> Iterator[Process]:
    """Those of these processes that are there now, and what they have started, and so on: as far as the
    kernel tells (with CONFIG_PROC_CHILDREN, of a process's first thread), for there is no short way to ask
    for more."""
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
    """A process by its line as in proc(5). Pure but for names that are cut."""
    head, _, rest = stat.rpartition(b")")
    fields = rest.split()
    began = int(fields[_BEGAN])
    name = head.partition(b"(")[2].decode(errors="replace")
    return Process(
        pid=pid,
        parent=int(fields[_PARENT]),
        name=name if len(name) < _CUT_AT else _read_name(pid, began, name),
        created=began / _TICKS,
        cpu_s=(int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS,
        ended_children_s=(int(fields[_CHILDREN_USER]) + int(fields[_CHILDREN_SYSTEM])) / _TICKS,
    )


@lru_cache(1)
def _read_begin_s() -> float:
    """When `read_clock_s` was 0, by the wall clock: the same for all looks, even if that is set."""
    return time.time() - read_clock_s()


@lru_cache(4096)
def _read_name(pid: int, _began: int, name: str) -> str:
    """The whole name of a process of which only the beginning is known."""
    with suppress(psutil.Error):
        return str(psutil.Process(pid).name())
    return name


def take_snapshot() -> Snapshot:
    """All processes that can be seen now."""
    at, times = read_clock_s(), psutil.cpu_times()
    processes = read_processes() if psutil.LINUX else _list_processes()
    return Snapshot(
        at, times.user + times.nice + times.system, {process.pid: process for process in processes}
    )


def _list_processes() -> Iterator[Process]:
    for process in psutil.process_iter(["pid", "ppid", "name", "cpu_times", "create_time"]):
        info = process.info
        if info["cpu_times"] is not None:  # macOS: those of other users may be hidden
            spent = info["cpu_times"]
            yield Process(
                pid=info["pid"],
                parent=info["ppid"] or 0,
                name=info["name"] or "",
                created=(info["create_time"] or 0.0) - _read_begin_s(),
                cpu_s=spent.user + spent.system,
                ended_children_s=spent.children_user + spent.children_system,
            )
