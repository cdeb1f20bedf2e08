"""The database's processes on this machine: which they are, and what they used."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from simulator.contract import Resources

from .background import Process, Snapshot, find_family
from .timeline import Step, Window, add_up

CPU, READ, WRITTEN = "cpu_s", "read_bytes", "written_bytes"
"""Amounts of a step, as they are called in `Counters`; seconds for which a disk was busy are by its name in a
tuple."""
_MOST_PROPORTIONAL = 64
"""Of so many processes it is asked what memory is theirs alone: of more it would take too long."""

Root = tuple[int, float]
"""A listening process: its number and when it began, since numbers are used again."""


@dataclass(frozen=True)
class Counters:
    """Of a root and its children since they began: they rise as long as it lives."""

    cpu_s: float
    """That of children that have ended included."""
    read_bytes: int | None
    written_bytes: int | None
    """To and from disks; None if that can't be seen. Children that have ended take theirs along."""

    def scaled(self, share: float) -> Counters:
        """This share of all of them."""
        read, written = (
            None if size is None else round(share * size)
            for size in (self.read_bytes, self.written_bytes)
        )
        return Counters(share * self.cpu_s, read, written)


@dataclass(frozen=True)
class Use:
    """The database's processes at an instant."""

    at: float
    """By the wall clock, as seconds since 1970."""
    roots: Mapping[Root, Counters]
    names: tuple[str, ...]
    memory_bytes: int
    disks_busy_s: Mapping[str, float]
    """Disk of the machine -> how long it has been at work, whoever for."""


def summarize_use(uses: Sequence[Use], window: Window, cpus: int) -> Resources | None:
    """What was used in a window; None if too little is known of that time. `cpus`: the machine's."""
    uses = _fill_in(uses)
    steps = [_compare(before, after) for before, after in pairwise(uses)]
    amounts = add_up(steps, window)
    if amounts is None:
        return None
    began, ended = window.began, window.ended
    busy_s = [amount for key, amount in amounts.items() if isinstance(key, tuple)]
    within = [use for use in uses if began <= use.at <= ended] or [uses[-1]]
    seen = all(own.written_bytes is not None for use in uses for own in use.roots.values())
    return Resources(
        source="this machine's processes",
        names=next((list(use.names) for use in reversed(uses) if use.names), []),
        cpu_s=amounts[CPU],
        cpus=cpus,
        cpu_share=amounts[CPU] / (window.length_s * cpus),
        cpu_us_per_event=1e6 * amounts[CPU] / window.events if window.events else None,
        memory_peak_bytes=max(use.memory_bytes for use in within),
        disk_read_bytes=round(amounts[READ]) if seen else None,
        disk_written_bytes=round(amounts[WRITTEN]) if seen else None,
        disk_busy_share=min(1.0, max(busy_s) / window.length_s) if busy_s else None,
        restarts=_count_restarts(uses, began, ended),
        timeline=[
            (int(step.began - window.origin), step.rate(CPU), use.memory_bytes)
            for step, use in zip(steps, uses[1:], strict=True)
            if step.within_s(began, ended) > 0 and step.began >= window.origin
        ],
    )


def merge_uses(earlier: Use, later: Use) -> Use | None:
    """The earlier look with the most memory of both: what the later one counts is in those that follow.
    None if there are other processes."""
    if earlier.roots.keys() != later.roots.keys():
        return None
    return replace(earlier, memory_bytes=max(earlier.memory_bytes, later.memory_bytes))


def _fill_in(uses: Sequence[Use]) -> list[Use]:
    """The same with roots that began between two of them and were found at a later one, as who listens is
    seldom looked for: until then they have used the same in each second since they began."""
    filled = list(uses)
    for late, found in enumerate(uses):
        for root in found.roots.keys() - filled[late - 1].roots.keys() if late else ():
            born, own = root[1], found.roots[root]
            if born < uses[0].at or born >= found.at:
                continue
            for place in range(late):
                share = (uses[place].at - born) / (found.at - born)
                if share > 0 and root not in filled[place].roots:
                    roots = {**filled[place].roots, root: own.scaled(share)}
                    filled[place] = replace(filled[place], roots=roots)
    return filled


def count_cpus(uses: Sequence[Use]) -> float | None:
    """How many CPUs were in use between the last two looks; None if there weren't two, or nothing to see."""
    last = uses[-2:]
    if len(last) < 2 or not last[1].roots or last[1].at <= last[0].at:
        return None
    step = _compare(*last)
    return step.rate(CPU)


def _count_restarts(uses: Sequence[Use], began: float, ended: float) -> int:
    """Looks at which there were roots that came while it was looked: a server may come with several."""
    return sum(
        any(root[1] > uses[0].at for root in after.roots.keys() - before.roots.keys())
        for before, after in pairwise(uses)
        if before.at < ended and after.at > began
    )


def _compare(before: Use, after: Use) -> Step:
    """What the roots that are there now have used; what those that ended did last isn't known."""
    amounts: dict[Hashable, float] = {
        key: sum(_grow(before, after, root, key) for root in after.roots)
        for key in (CPU, READ, WRITTEN)
    }
    for name, busy_s in after.disks_busy_s.items():
        amounts[name,] = max(0.0, busy_s - before.disks_busy_s.get(name, busy_s))
    return Step(before.at, after.at, amounts)


def _grow(before: Use, after: Use, root: Root, name: str) -> float:
    """What a root has used between two looks: since it began, if that was meanwhile. Of one that was there
    before the first look and is found late, its part of that time."""
    now: float = getattr(after.roots[root], name) or 0.0
    if root in before.roots:
        was: float = getattr(before.roots[root], name) or 0.0
        return max(0.0, now - was)
    born = root[1]
    if born >= before.at:
        return now
    return now * (after.at - before.at) / (after.at - born)


def sample_database(snapshot: Snapshot, pids: Collection[int]) -> Use:
    """What the database's processes and their children have used up to a snapshot."""
    family = find_family(snapshot.processes, pids)
    of = [snapshot.processes[pid] for pid in sorted(family)]
    # Who has just been forked by a server may still listen as it does.
    roots = [one for one in of if one.parent not in family]
    families = {
        (one.pid, one.created): [
            snapshot.processes[pid] for pid in find_family(snapshot.processes, [one.pid])
        ]
        for one in roots
    }
    counters = psutil.disk_io_counters(perdisk=True) or {}
    return Use(
        at=snapshot.at,
        roots={root: _count(own) for root, own in families.items()},
        names=tuple(dict.fromkeys(one.name for one in of)),
        memory_bytes=sum(map(_read_memory, families.values())),
        disks_busy_s={
            name: one.busy_time / 1000
            for name, one in counters.items()
            if hasattr(one, "busy_time")
        },
    )


def _count(processes: Sequence[Process]) -> Counters:
    disks = [_read_disk(one.pid) for one in processes]
    return Counters(
        cpu_s=sum(one.cpu_s + one.ended_children_s for one in processes),
        read_bytes=None if None in disks else sum(read for read, _ in filter(None, disks)),
        written_bytes=None if None in disks else sum(put for _, put in filter(None, disks)),
    )


def _read_memory(family: Sequence[Process]) -> int:
    """Of a server and what it has started. What is shared among them counts in each by its part, unless they
    are many; of a single one it isn't asked, as that takes milliseconds for each GB."""
    is_shared_out = psutil.LINUX and 1 < len(family) <= _MOST_PROPORTIONAL
    size = 0
    for one in family:
        with suppress(psutil.Error):
            process = psutil.Process(one.pid)
            size += process.memory_full_info().pss if is_shared_out else process.memory_info().rss
    return size


def _read_disk(pid: int) -> tuple[int, int] | None:
    """Bytes read and written, those of children that have ended included; None if that can't be seen."""
    try:
        found = psutil.Process(pid).io_counters()
    except psutil.NoSuchProcess:
        return 0, 0
    except (psutil.Error, AttributeError, NotImplementedError):
        return None
    return found.read_bytes, found.write_bytes


# --- which processes they are ----------------------------------------------------------------------

Endpoint = tuple[str, int]

# They listen for a server that is elsewhere: in a container, mostly.
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "com.docker.backend", "gvproxy", "pasta"})
_EAGER_LOOKS, _SELDOM = 3, 10
"""At first, and when one has ended, so many looks ask for connections; later one in so many, as that takes
milliseconds."""
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - looked for, not bound to
_PATH = re.compile(r"/[^\s'\"?&=]+")


class Servers:
    """Found by the connections of a run's processes, so that no module need tell its addresses."""

    def __init__(self, options: Iterable[object], pids: Collection[int] = ()) -> None:
        """`options`: values of the module's; a folder that one names may have a server's socket. `pids`:
        processes that are known to be the database's."""
        found = [path for text in options for path in _PATH.findall(str(text))]
        self._paths = {Path(path) for path in found} - {Path("/")}
        self._asked: set[Endpoint] = set()
        self._served: set[Endpoint] = set()
        self._addresses: set[str] | None = None
        self._by_socket: set[int] = set()
        self._must_find_sockets = True
        self._looks = 0
        self.pids: set[int] = set(pids)
        """Processes that listen, as far as they live."""
        self.ports: set[int] = set()
        """Where they do, as far as the run's processes are connected to it by TCP."""
        self.hidden = False
        """Whether there is one on this machine that can't be told from others."""

    def look(self, own: Collection[int]) -> bool:
        """Look for servers that the processes `own` are connected to; whether more is known now."""
        gone = {pid for pid in self.pids if not _is_alive(pid)}
        self.pids -= gone
        if gone:
            # What is started in their place is found by the same addresses.
            self._asked.clear()
            self._must_find_sockets, self._looks = True, 0
        self._looks += 1
        if self.pids and self._looks > _EAGER_LOOKS and self._looks % _SELDOM:
            return False
        before = set(self.pids), self.hidden
        connected, sockets = _list_connections(own)
        new = {address for address in connected - self._asked if self._is_here(address[0])}
        self._asked |= connected
        if new:
            self._find_listeners(new)
        if self._must_find_sockets:
            found = self._find_sockets()
            self._by_socket |= found
            # A server that was there comes back.
            self._must_find_sockets = bool(self._by_socket) and not found
            self.pids |= found
        # The other end of a socket without an address can't be seen.
        self.hidden |= sockets and not self._by_socket and not self._asked
        return before != (self.pids, self.hidden)

    def _is_here(self, address: str) -> bool:
        if ipaddress.ip_address(address).is_loopback:
            return True
        if self._addresses is None:
            listed = psutil.net_if_addrs().values()
            self._addresses = {one.address.partition("%")[0] for own in listed for one in own}
        return address in self._addresses

    def _find_listeners(self, endpoints: Iterable[Endpoint]) -> None:
        listening: dict[int, list[Any]] = {}
        with suppress(psutil.Error, OSError):  # macOS: only root may see all
            for one in psutil.net_connections("tcp"):
                if one.laddr and one.status == psutil.CONN_LISTEN:
                    listening.setdefault(one.laddr.port, []).append(one)
        for address, port in endpoints:
            found = [
                one
                for one in listening.get(port, [])
                if _plain(one.laddr.ip) == address or one.laddr.ip in _ANY
            ]
            endpoint = (address, port)
            if not found and endpoint in self._served:
                # It has just ended, or isn't back yet.
                self._asked.discard(endpoint)
                continue
            if found:
                self._served.add(endpoint)
                self.ports.add(port)
            self.pids |= {_find_first(one, "tcp") for one in found if one.pid}
            self.hidden |= not found or any(_forwards(one.pid) for one in found)

    def _find_sockets(self) -> set[int]:
        """Who listens at Unix sockets in the folders that the options name."""
        found: set[int] = set()
        if not self._paths:
            return found
        with suppress(psutil.Error, OSError):
            for one in psutil.net_connections("unix"):
                path = Path(str(one.laddr or "/"))
                if path in self._paths or path.parent in self._paths:
                    found |= {_find_first(one, "unix")} if one.pid else set()
        return found


def _find_first(listening: Any, kind: str) -> int:
    """Who listens, rather than a process that it has just forked: that has the same socket until it closes
    it, and of all who have it psutil names the last."""
    pid: int = listening.pid
    with suppress(psutil.Error, OSError):
        while parent := psutil.Process(pid).parent():
            if all(one.laddr != listening.laddr for one in parent.net_connections(kind)):
                break
            pid = parent.pid
    return pid


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _forwards(pid: int | None) -> bool:
    """Whether a server is behind a process, rather than it; also if that can't be seen."""
    if pid is None:
        return True
    try:
        return psutil.Process(pid).name() in _FORWARDERS
    except psutil.Error:
        return True


def _list_connections(own: Collection[int]) -> tuple[set[Endpoint], bool]:
    """Where these processes are connected to, each other aside, and whether they have Unix sockets
    (but for those of the collector, which are its event loop's)."""
    to: set[Endpoint] = set()
    listening: set[int] = set()
    sockets = False
    for pid in own:
        with suppress(psutil.Error, OSError):  # it has just ended
            found = psutil.Process(pid).net_connections("all")
            tcp = [(one.laddr, one.raddr, one.status) for one in found if _is_tcp(one)]
            ports = {here.port for here, _, status in tcp if status == psutil.CONN_LISTEN}
            to |= {
                (_plain(there.ip), there.port)
                for here, there, status in tcp
                if status == psutil.CONN_ESTABLISHED and here.port not in ports
            }
            sockets |= not ports and any(one.family == socket.AF_UNIX for one in found)
            listening |= ports
    return {address for address in to if address[1] not in listening}, sockets


def _is_tcp(connection: Any) -> bool:
    return bool(connection.family != socket.AF_UNIX and connection.type == socket.SOCK_STREAM)


def _plain(address: str) -> str:
    """`127.0.0.1` for `::ffff:127.0.0.1`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
