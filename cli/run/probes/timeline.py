"""What was used over time, how much of it within the window of a run, and how a day of samples stays small.
Pure.

All probes return steps: what was used between two samples, whatever it is and wherever it was sampled. It is
assumed to be spread evenly over that time.
"""

from __future__ import annotations

import os
import pickle
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from simulator.contract import RunResult
from simulator.machine import read_clock_s

MIN_COVERED = 0.5
"""The share of a window that steps have to cover."""
NAMED, NAMED_SHARE = 5, 0.01
"""How many of the largest consumers of a machine's CPU are named, and from which share on."""


@dataclass(frozen=True)
class Window:
    """From when to when something was measured, by the clock of the sampler."""

    began: float
    ended: float
    origin: float
    """The common start: from then on the load was constant."""
    events: int | None = None
    """How many events were acknowledged in the window."""

    @property
    def length_s(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Step:
    """What was used between two instants: amounts of whatever the keys name."""

    began: float
    ended: float
    amounts: Mapping[Hashable, float]

    @property
    def length_s(self) -> float:
        return self.ended - self.began

    def within_s(self, began: float, ended: float) -> float:
        """How many seconds of it lie between two instants."""
        return max(0.0, min(self.ended, ended) - max(self.began, began))

    def rate(self, key: Hashable) -> float:
        """How much of this was used per second."""
        return self.amounts[key] / self.length_s


def merge_steps(earlier: Step, later: Step) -> Step | None:
    """Both as one; None if there is a gap between them."""
    if later.began != earlier.ended:
        return None
    amounts = dict(earlier.amounts)
    for key, amount in later.amounts.items():
        amounts[key] = amounts.get(key, 0.0) + amount
    return Step(earlier.began, later.ended, amounts)


def add_up(steps: Iterable[Step], window: Window) -> dict[Hashable, float] | None:
    """What was used in a window; None if the steps cover less than half of it. What lies outside all steps is
    assumed to be like the rest."""
    amounts: dict[Hashable, float] = defaultdict(float)
    covered_s = 0.0
    for step in steps:
        within_s = step.within_s(window.began, window.ended)
        if within_s > 0:
            covered_s += within_s
            for key, amount in step.amounts.items():
                amounts[key] += amount * within_s / step.length_s
    if covered_s <= 0 or covered_s < MIN_COVERED * window.length_s:
        return None
    return {key: amount * window.length_s / covered_s for key, amount in amounts.items()}


def name_most(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of a machine's CPU that are worth naming, largest first."""
    most = sorted(shares.items(), key=lambda pair: -pair[1])[:NAMED]
    return {name: share for name, share in most if share >= NAMED_SHARE}


def find_window(run: RunResult, own: tuple[float, float] | None = None) -> Window | None:
    """The measured time of a run; None if nothing was measured. `own`: its start and end by the sampler's
    clock; None: that is the wall clock, in seconds since 1970."""
    if run.began_at is None or run.ended_at is None:
        return None
    began, ended = own or (
        datetime.fromisoformat(text).timestamp() for text in (run.began_at, run.ended_at)
    )
    events = run.writers.count if run.writers else None
    return Window(began, ended, began - run.groups[0].warm_up_s, events)


# --- a series of samples that coarsens with age

_Seen = TypeVar("_Seen")

_PACKED = 60
"""How many samples are packed together."""
_BLOCKS = 60
"""How many packs of one age there are: an hour of samples stays as it is; of older ones two become one, again
and again."""


class AgingSeries(Generic[_Seen]):
    """Samples in order. Those of the last hour stay as they are. Older ones coarsen with age: two neighbours
    become one where `merge` can combine them."""

    def __init__(
        self, merge: Callable[[_Seen, _Seen], _Seen | None], seen: Iterable[_Seen] = ()
    ) -> None:
        """`merge`: combines two samples; None if both have to stay."""
        self._merge = merge
        self._ages: list[list[bytes]] = []
        """Packs by how often they were merged, oldest first. The more often, the older."""
        self._latest: list[_Seen] = []
        self._length = 0
        for look in seen:
            self.append(look)

    def append(self, look: _Seen) -> None:
        """Add the latest sample."""
        # The two latest stay unpacked.
        if len(self._latest) >= _PACKED + 2:
            self._add_pack(0, self._latest[:_PACKED])
            del self._latest[:_PACKED]
        self._latest.append(look)
        self._length += 1

    def _add_pack(self, age: int, looks: list[_Seen]) -> None:
        if age == len(self._ages):
            self._ages.append([])
        packs = self._ages[age]
        # Names and keys are the same in all samples.
        packs.append(zlib.compress(pickle.dumps(looks, pickle.HIGHEST_PROTOCOL), 1))
        if len(packs) > _BLOCKS:
            older = [look for pack in packs[:2] for look in self._unpack(pack)]
            del packs[:2]
            merged = list(self._merge_pairs(older))
            self._length += len(merged) - len(older)
            self._add_pack(age + 1, merged)

    def _merge_pairs(self, looks: list[_Seen]) -> Iterator[_Seen]:
        place = 0
        while place < len(looks):
            following = looks[place + 1] if place + 1 < len(looks) else None
            merged = None if following is None else self._merge(looks[place], following)
            yield looks[place] if merged is None else merged
            place += 1 if merged is None else 2

    def _unpack(self, pack: bytes) -> list[_Seen]:
        looks: list[_Seen] = pickle.loads(zlib.decompress(pack))  # noqa: S301 - our own, from memory
        return looks

    def __iter__(self) -> Iterator[_Seen]:
        for packs in reversed(self._ages):
            for pack in packs:
                yield from self._unpack(pack)
        yield from self._latest

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> _Seen:
        """The earliest sample; StopIteration if there is none."""
        return next(iter(self))

    def last(self, count: int) -> list[_Seen]:
        """The latest samples, at most two."""
        return self._latest[-count:]


# --- other programs ----------------------------------------------------------------------------------
# How much of this machine's CPU was taken by processes outside the run.
#
# There are two counts, and the larger one counts. The count by process is exact, but lacks processes that
# ended between two snapshots and those that can't be seen, for example from within a container. The time that
# the machine was busy, less what the run's own processes took, lacks nothing. But it is the kernel's
# estimate, based on its ticks, and too small where the processes' times include interrupts.


# More than all CPUs can do means that a process was counted twice: before its end, and in its parent.
_SLACK, _SLACK_S = 1.1, 0.1
# The parent of the kernel's threads. In a container any process may have this ID.
_KERNEL_PID, _KERNEL_NAME = 2, "kthreadd"


@dataclass(frozen=True)
class Process:
    """One process. CPU seconds count from its start."""

    pid: int
    parent: int
    name: str
    created: float
    """By `read_clock_s`."""
    cpu_s: float
    ended_children_s: float
    """CPU seconds of its ended children, and of theirs."""


@dataclass(frozen=True)
class Snapshot:
    """All visible processes, and the machine's work since it booted."""

    at: float
    """By `read_clock_s`."""
    used_s: float
    """CPU seconds of all processes, without interrupts."""
    processes: Mapping[int, Process]


OWN, KERNEL, MACHINE = "own", "kernel", "machine"
"""CPU seconds of a step: of the run and its database; of the kernel's threads, which write for the database
and for others; of all processes, without interrupts. Those of other processes are under their name in a
tuple."""


def find_family(processes: Mapping[int, Process], roots: Collection[int]) -> set[int]:
    """The existing roots, their children, and so on."""
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
    """What the family of `roots` and others did between two snapshots; None if that is unknown, because a
    process of the family escaped or was counted twice."""
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
        ):  # otherwise it began in between
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
    steps cover less than half of that time."""
    amounts = add_up(steps, window)
    if amounts is None:
        return None
    capacity_s = cpus * window.length_s
    by_name = {
        key[0]: took_s / capacity_s for key, took_s in amounts.items() if isinstance(key, tuple)
    }
    in_all = (amounts[MACHINE] - amounts[OWN] - amounts[KERNEL]) / capacity_s
    return min(1.0, max(0.0, in_all, sum(by_name.values()))), name_most(by_name)


# The processes of a Linux machine, by one short read each: a fifth of the time that psutil takes.

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_CUT_AT = 15
"""The kernel keeps this many bytes of a name."""
# Counted from the end of the name, which may contain spaces and brackets.
_PARENT, _USER, _SYSTEM, _CHILDREN_USER, _CHILDREN_SYSTEM, _BEGAN = 1, 11, 12, 13, 14, 19


def read_processes(place: Path = _PROC) -> Iterator[Process]:
    """The processes that exist now. Those that end meanwhile are left out."""
    for entry in os.listdir(place):  # noqa: PTH208 - a thousand paths a second would cost more than they say
        if entry.isdecimal():
            with suppress(OSError):
                yield parse_stat(int(entry), Path(f"{place}/{entry}/stat").read_bytes())


def read_families(pids: Iterable[int], place: Path = _PROC) -> Iterator[Process]:
    """Those of these processes that exist now, their children, and so on. This goes as far as the kernel
    tells (with CONFIG_PROC_CHILDREN, for a process's first thread); there is no cheap way to learn more."""
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
    """A process from its line as in proc(5). Pure, except for truncated names."""
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
    """When `read_clock_s` was 0, by the wall clock: the same for all samples, even if that clock is
    changed."""
    return time.time() - read_clock_s()


@lru_cache(4096)
def _read_name(pid: int, _began: int, name: str) -> str:
    """The whole name of a process whose name was truncated."""
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
        if info["cpu_times"] is not None:  # macOS: other users' processes may be hidden
            spent = info["cpu_times"]
            yield Process(
                pid=info["pid"],
                parent=info["ppid"] or 0,
                name=info["name"] or "",
                created=(info["create_time"] or 0.0) - _read_begin_s(),
                cpu_s=spent.user + spent.system,
                ended_children_s=spent.children_user + spent.children_system,
            )
