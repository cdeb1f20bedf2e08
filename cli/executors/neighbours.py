"""What processes that aren't of a run took of this machine's CPU. Pure.

Two counts, of which the larger holds. That of each process is exact, but lacks those that ended
between two snapshots and those that can't be seen, as from within a container. What the machine was
busy, less what the run's own processes took, lacks nothing, but is the kernel's estimate by its ticks,
and too small where the processes' times include those of interrupts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

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
