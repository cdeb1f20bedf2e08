"""The database's processes on this machine: which ones they are, and what they used."""

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
from simulator.machine import find_memory_bytes

from .timeline import Process, Snapshot, Step, Window, add_up, find_family

CPU, READ, WRITTEN = "cpu_s", "read_bytes", "written_bytes"
"""Amounts of a step, named as in `Counters`. The seconds for which a disk was busy are under its name in a
tuple."""
_MOST_PROPORTIONAL = 64
"""Up to this many processes are asked for their proportional share of memory; more would take too long."""

Root = tuple[int, float]
"""A listening process: its ID and start time, since IDs are reused."""


@dataclass(frozen=True)
class Counters:
    """What a root and its children have used since they began. It rises as long as the root lives."""

    cpu_s: float
    """Includes children that have ended."""
    read_bytes: int | None
    written_bytes: int | None
    """To and from disks; None if that can't be seen. Includes children that have ended."""

    def scaled(self, share: float) -> Counters:
        """This share of all counters."""
        read, written = (
            None if size is None else round(share * size)
            for size in (self.read_bytes, self.written_bytes)
        )
        return Counters(share * self.cpu_s, read, written)


@dataclass(frozen=True)
class Use:
    """The database's processes at one instant."""

    at: float
    """By `read_clock_s`."""
    roots: Mapping[Root, Counters]
    names: tuple[str, ...]
    memory_bytes: int
    disks_busy_s: Mapping[str, float]
    """Disk of the machine -> how long it has been busy, for whatever process."""


def summarize_use(uses: Sequence[Use], window: Window, cpus: int) -> Resources | None:
    """What was used in a window; None if too little is known of it. `cpus`: the machine's."""
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
        memory_bytes=find_memory_bytes(),
        disk_read_bytes=round(amounts[READ]) if seen else None,
        disk_written_bytes=round(amounts[WRITTEN]) if seen else None,
        disk_busy_share=min(1.0, max(busy_s) / window.length_s) if busy_s else None,
        # How many samples found roots that began after the first sample: a server may start several.
        restarts=sum(
            any(root[1] > uses[0].at for root in after.roots.keys() - before.roots.keys())
            for before, after in pairwise(uses)
            if before.at < ended and after.at > began
        ),
        timeline=[
            (int(step.began - window.origin), step.rate(CPU), use.memory_bytes)
            for step, use in zip(steps, uses[1:], strict=True)
            if step.within_s(began, ended) > 0 and step.began >= window.origin
        ],
    )


def merge_uses(earlier: Use, later: Use) -> Use | None:
    """Both samples as one: the earlier one, with the higher memory of the two. What the later one counts is
    in the samples that follow. None if the processes differ."""
    if earlier.roots.keys() != later.roots.keys():
        return None
    return replace(earlier, memory_bytes=max(earlier.memory_bytes, later.memory_bytes))


def _fill_in(uses: Sequence[Use]) -> list[Use]:
    """The same samples, complete with roots that began earlier than they were found, since servers are looked
    for only now and then. Until they were found, they count as having used the same amount in each second."""
    filled = list(uses)
    for late, use in enumerate(uses):
        for root in use.roots.keys() - filled[late - 1].roots.keys() if late else ():
            born, own = root[1], use.roots[root]
            if born < uses[0].at or born >= use.at:
                continue
            for place in range(late):
                share = (uses[place].at - born) / (use.at - born)
                if share > 0 and root not in filled[place].roots:
                    roots = {**filled[place].roots, root: own.scaled(share)}
                    filled[place] = replace(filled[place], roots=roots)
    return filled


def count_cpus(uses: Sequence[Use]) -> float | None:
    """How many CPUs were in use between the last two samples; None without two samples, or with nothing to
    see."""
    last = uses[-2:]
    if len(last) < 2 or not last[1].roots or last[1].at <= last[0].at:
        return None
    step = _compare(*last)
    return step.rate(CPU)


def _compare(before: Use, after: Use) -> Step:
    """What the existing roots have used. What ended roots did last isn't known."""
    amounts: dict[Hashable, float] = {
        key: sum(_grow(before, after, root, key) for root in after.roots)
        for key in (CPU, READ, WRITTEN)
    }
    for name, busy_s in after.disks_busy_s.items():
        amounts[name,] = max(0.0, busy_s - before.disks_busy_s.get(name, busy_s))
    return Step(before.at, after.at, amounts)


def _grow(before: Use, after: Use, root: Root, name: str) -> float:
    """What a root has used between two samples: everything, if it began in between. If it began before the
    first sample but was found late: the share of that time."""
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
    processes = [snapshot.processes[pid] for pid in sorted(family)]
    # A process that a server has just forked may still listen at the server's port.
    roots = [process for process in processes if process.parent not in family]
    families = {
        (root.pid, root.created): [
            snapshot.processes[pid] for pid in find_family(snapshot.processes, [root.pid])
        ]
        for root in roots
    }
    counters = psutil.disk_io_counters(perdisk=True) or {}
    return Use(
        at=snapshot.at,
        roots={root: _count(own) for root, own in families.items()},
        names=tuple(dict.fromkeys(process.name for process in processes)),
        memory_bytes=sum(map(_read_memory, families.values())),
        disks_busy_s={
            name: disk.busy_time / 1000
            for name, disk in counters.items()
            if hasattr(disk, "busy_time")
        },
    )


def _count(processes: Sequence[Process]) -> Counters:
    disks = [_read_disk(process.pid) for process in processes]
    return Counters(
        cpu_s=sum(process.cpu_s + process.ended_children_s for process in processes),
        read_bytes=None if None in disks else sum(read for read, _ in filter(None, disks)),
        written_bytes=None if None in disks else sum(put for _, put in filter(None, disks)),
    )


def _read_memory(family: Sequence[Process]) -> int:
    """Memory of a server and its children. Shared memory counts proportionally, unless they are many. A
    single process isn't asked for its share, since that takes milliseconds per GB."""
    is_shared_out = psutil.LINUX and 1 < len(family) <= _MOST_PROPORTIONAL
    size = 0
    for member in family:
        with suppress(psutil.Error):
            process = psutil.Process(member.pid)
            size += process.memory_full_info().pss if is_shared_out else process.memory_info().rss
    return size


def _read_disk(pid: int) -> tuple[int, int] | None:
    """Bytes read and written, including those of children that have ended; None if that can't be seen."""
    try:
        counters = psutil.Process(pid).io_counters()
    except psutil.NoSuchProcess:
        return 0, 0
    except (psutil.Error, AttributeError, NotImplementedError):
        return None
    return counters.read_bytes, counters.write_bytes


# --- which processes they are ----------------------------------------------------------------------

Endpoint = tuple[str, int]

# They listen for a server elsewhere, usually in a container.
_FORWARDERS = frozenset({"docker-proxy", "rootlessport", "com.docker.backend", "gvproxy", "pasta"})
_EAGER_LOOKS, _SELDOM = 3, 10
"""At first, and after one has ended, this many samples examine connections; later only one in so many, since
it takes milliseconds."""
_ANY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound to
_ESCAPED = re.compile(r"\\(.)")
"""Backslashes escape in libpq's connection strings."""


class Servers:
    """Servers, found by the connections of a run's processes, so that no module has to name addresses."""

    def __init__(self, options: Iterable[object], pids: Collection[int] = ()) -> None:
        """`options`: values of the module's options; a server's socket may be in a folder that one of them
        names. `pids`: processes that are known to be the database's."""
        texts = [_ESCAPED.sub(r"\1", str(text)) for text in options]
        self._texts = [text for text in texts if "/" in text]
        self._asked: set[Endpoint] = set()
        self._served: set[Endpoint] = set()
        self._addresses: set[str] | None = None
        self._by_socket: set[int] = set()
        self._must_find_sockets = True
        self._looks = 0
        self.pids: set[int] = set(pids)
        """Processes that listen, while they live."""
        self.ports: set[int] = set()
        """Their ports, where the run's processes are connected by TCP."""
        self.hidden = False
        """Whether a server on this machine can't be identified."""

    def look(self, own: Collection[int]) -> bool:
        """Look for servers that the processes `own` are connected to. Returns whether that brought anything
        new."""
        ended = {pid for pid in self.pids if not _is_alive(pid)}
        self.pids -= ended
        if ended:
            # Their successors are found at the same addresses.
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
            pids = self._find_sockets()
            self._by_socket |= pids
            # The server that was there will be back.
            self._must_find_sockets = bool(self._by_socket) and not pids
            self.pids |= pids
        # The other end of a Unix socket can't be seen without a known address.
        self.hidden |= sockets and not self._by_socket and not self._asked
        return before != (self.pids, self.hidden)

    def _is_here(self, address: str) -> bool:
        if ipaddress.ip_address(address).is_loopback:
            return True
        if self._addresses is None:
            interfaces = psutil.net_if_addrs().values()
            self._addresses = {
                assigned.address.partition("%")[0]
                for interface in interfaces
                for assigned in interface
            }
        return address in self._addresses

    def _find_listeners(self, endpoints: Iterable[Endpoint]) -> None:
        listening: dict[int, list[Any]] = {}
        with suppress(psutil.Error, OSError):  # macOS: only root may see all connections
            for connection in psutil.net_connections("tcp"):
                if connection.laddr and connection.status == psutil.CONN_LISTEN:
                    listening.setdefault(connection.laddr.port, []).append(connection)
        for address, port in endpoints:
            listeners = [
                connection
                for connection in listening.get(port, [])
                if _plain(connection.laddr.ip) == address or connection.laddr.ip in _ANY
            ]
            endpoint = (address, port)
            if not listeners and endpoint in self._served:
                # The server has just ended, or isn't back yet.
                self._asked.discard(endpoint)
                continue
            if listeners:
                self._served.add(endpoint)
                self.ports.add(port)
            self.pids |= {
                _find_first(connection, "tcp") for connection in listeners if connection.pid
            }
            self.hidden |= not listeners or any(
                _forwards(connection.pid) for connection in listeners
            )

    def _find_sockets(self) -> set[int]:
        """The processes that listen at Unix sockets in the folders that the options name."""
        pids: set[int] = set()
        if not self._texts:
            return pids
        with suppress(psutil.Error, OSError):
            for connection in psutil.net_connections("unix"):
                path = Path(str(connection.laddr or "/"))
                if self._is_named(path) or self._is_named(path.parent):
                    pids |= {_find_first(connection, "unix")} if connection.pid else set()
        return pids

    def _is_named(self, path: Path) -> bool:
        """Whether one of the options names this path, and not only one below it."""
        whole = re.compile(rf"(?<![^\s'\"=]){re.escape(str(path))}(?![^\s'\"?&,])")
        return path != Path("/") and any(whole.search(text) for text in self._texts)


def _find_first(listening: Any, kind: str) -> int:
    """The process that listens, rather than one that it has just forked. A fork shares the socket until it
    closes it, and psutil names the last process that has it."""
    pid: int = listening.pid
    with suppress(psutil.Error, OSError):
        while parent := psutil.Process(pid).parent():
            if all(
                connection.laddr != listening.laddr for connection in parent.net_connections(kind)
            ):
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
    """Whether the process only forwards to a server; also True if that can't be seen."""
    if pid is None:
        return True
    try:
        return psutil.Process(pid).name() in _FORWARDERS
    except psutil.Error:
        return True


def _list_connections(own: Collection[int]) -> tuple[set[Endpoint], bool]:
    """What these processes are connected to, except each other, and whether they have Unix sockets (except
    the collector's, which belong to its event loop)."""
    endpoints: set[Endpoint] = set()
    listening: set[int] = set()
    sockets = False
    for pid in own:
        with suppress(psutil.Error, OSError):  # the process has just ended
            connections = psutil.Process(pid).net_connections("all")
            tcp = [
                (connection.laddr, connection.raddr, connection.status)
                for connection in connections
                if connection.family != socket.AF_UNIX and connection.type == socket.SOCK_STREAM
            ]
            ports = {local.port for local, _, status in tcp if status == psutil.CONN_LISTEN}
            endpoints |= {
                (_plain(remote.ip), remote.port)
                for local, remote, status in tcp
                if status == psutil.CONN_ESTABLISHED and local.port not in ports
            }
            sockets |= not ports and any(
                connection.family == socket.AF_UNIX for connection in connections
            )
            listening |= ports
    return {address for address in endpoints if address[1] not in listening}, sockets


def _plain(address: str) -> str:
    """`127.0.0.1` for `::ffff:127.0.0.1`."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
