"""What others take of this machine's CPU while a run's processes are on it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import psutil

from simulator.contract import DatabaseUse, Machine, Report, Resources, RunResult

from .background import (
    Process,
    Snapshot,
    Step,
    compare,
    find_family,
    read_families,
    read_processes,
    share_of_others,
)
from .database import Counters, Use, count_cpus, summarize_use
from .network import (
    LinkSnapshot,
    TrafficSnapshot,
    find_link_share,
    read_links,
    read_traffic,
    sum_traffic,
)
from .servers import Servers

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
# Of the machine's CPUs. A look at a thousand processes takes 25 ms: with few CPUs there are fewer looks. One
# at the database's alone takes 1 ms, or 10 if it has many whose memory is shared.
_MOST_SHARE, _MOST_DATABASE_SHARE = 0.003, 0.002
_LOOKED_AT = 3
"""So many of the run's processes are asked for their connections: all are connected alike."""
_END_PATIENCE_S = 2.0
_MOST_PROPORTIONAL = 64
"""Of so many processes it is asked what memory is theirs alone: of more it would take too long."""
_HIDDEN = (
    "the database's processes are not on this machine, or can't be told from others: name them by"
    " database_pids in the target"
)
_TOO_SHORT = "the window was too short to look at the database's processes"


class BackgroundLoadSampler:
    """Looks at all processes once a second, from a thread of this one: neither the workers nor the
    collector spend anything on it."""

    def __init__(
        self,
        options: Iterable[object],
        processes: Callable[[], Collection[int]],
        database_pids: Collection[int] = (),
    ) -> None:
        """`options`: values of the module's; `processes`: the collector and the workers there are;
        `database_pids`: those of the database, as far as they can't be told by where they listen."""
        self._processes = processes
        self._servers = Servers(options, database_pids)
        self._known: set[int] = set()
        self._family: set[int] = set()
        """The database's processes at the last look at all."""
        self._uses: list[Use] = []
        self._steps: list[Step] = []
        self._links: list[LinkSnapshot] = []
        self._traffic: list[TrafficSnapshot] = []
        self._cpus = psutil.cpu_count() or 1
        self._pause_s = self._database_pause_s = _INTERVAL_S
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._stopped.set()
        if self._thread.is_alive():  # a signal may have come before it began
            self._thread.join(_END_PATIENCE_S)

    def see_database(self) -> DatabaseUse | None:
        """What the database used between the last two looks; None as long as that isn't known."""
        used = None if self._servers.hidden else count_cpus(self._uses)
        return None if used is None else DatabaseUse(cpus_used=used, cpus=self._cpus)

    def _watch(self) -> None:
        try:
            before = take_snapshot()
            while True:
                self._pause()
                ended = self._stopped.is_set()
                if self._servers.pids or ended:
                    self._find_servers()
                began_s = time.thread_time()
                after = take_snapshot()
                if new := self._servers.pids - self._known:
                    self._known |= new
                    self._forget(before, after, new)
                self._family = find_family(after.processes, self._servers.pids)
                use = sample_database(after, self._servers.pids)
                if use.roots or self._uses:
                    self._uses.append(use)
                self._sample_network()
                roots = {os.getpid(), *self._servers.pids}
                step = compare(before, after, roots, self._cpus)
                if step is not None:
                    self._steps.append(step)
                before = after
                own_s = time.thread_time() - began_s
                self._pause_s = max(_INTERVAL_S, own_s / (_MOST_SHARE * self._cpus))
                if ended:
                    return
        except (psutil.Error, OSError) as error:
            _log.debug("what other processes do can't be seen: %s", error)

    def _forget(self, before: Snapshot, after: Snapshot, new: Collection[int]) -> None:
        """Forget what was made of looks since processes began that are known as the database's only now."""
        born = min(
            (after.processes[pid].created for pid in new if pid in after.processes),
            default=after.at,
        )
        # They were taken for others.
        self._steps = [step for step in self._steps if step.ended <= born]
        if not self._uses or born < self._uses[0].at:
            first = sample_database(before, self._servers.pids)
            self._uses = [first] if first.roots else []

    def _pause(self) -> None:
        """Wait until it's time for the next look at all processes, and do meanwhile what takes less: look at
        the network and at the database's processes, and for servers as long as there are none; one
        that is found ends it."""
        now = time.monotonic()
        until, next_use = now + self._pause_s, now + self._database_pause_s
        while (left_s := until - now) > 0:
            if self._stopped.wait(min(left_s, _INTERVAL_S)):
                return
            if not self._servers.pids and self._find_servers():
                return
            self._sample_network()
            now = time.monotonic()
            if psutil.LINUX and self._uses and next_use <= now < until - _INTERVAL_S / 2:
                self._sample_database()
                next_use = now + self._database_pause_s

    def _sample_database(self) -> None:
        """Between looks at all processes: at those that the last one saw, and what they have started."""
        began_s = time.thread_time()
        known = self._servers.pids | self._family
        snapshot = Snapshot(time.time(), 0.0, {one.pid: one for one in read_families(known)})
        self._uses.append(sample_database(snapshot, self._servers.pids))
        own_s = time.thread_time() - began_s
        self._database_pause_s = max(_INTERVAL_S, own_s / (_MOST_DATABASE_SHARE * self._cpus))

    def _find_servers(self) -> bool:
        """Whether more is known of them now."""
        return self._servers.look(sorted(self._processes())[:_LOOKED_AT])

    def _sample_network(self) -> None:
        now, ports = time.time(), sorted(self._servers.ports)
        self._traffic.append(TrafficSnapshot(now, read_traffic(ports) if ports else None))
        self._links.append(read_links(now))

    def complete(self, report: Report) -> None:
        """Put what others took, and what the database used, into a report, for its own window; to be called
        after the end."""
        if self._thread.is_alive():
            return
        run = report.run
        if run.began_at is None or run.ended_at is None:
            return
        began, ended = (
            datetime.fromisoformat(text).timestamp() for text in (run.began_at, run.ended_at)
        )
        run.resources = self._summarize_use(run, began, ended)
        links = {"link_share": find_link_share(self._links, began, ended)}
        run.machines = [one.model_copy(update=links) for one in run.machines]
        if self._servers.hidden:
            return
        found = share_of_others(self._steps, began, ended, self._cpus)
        if found is not None:
            run.machines = [_add_others(machine, *found) for machine in run.machines]

    def _summarize_use(self, run: RunResult, began: float, ended: float) -> Resources:
        # One that has ended was seen, too.
        if self._servers.hidden or not (self._servers.pids or self._uses):
            return Resources(reason=_HIDDEN)
        events = run.writers.count if run.writers else None
        warm_up_s = run.groups[0].warm_up_s
        found = summarize_use(self._uses, began, ended, began - warm_up_s, self._cpus, events)
        if found is not None:
            found.received_bytes, found.sent_bytes = sum_traffic(self._traffic, began, ended)
        return found or Resources(reason=_TOO_SHORT)


def _add_others(machine: Machine, share: float, others: dict[str, float]) -> Machine:
    return machine.model_copy(update={"others_share": share, "others": others})


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


def take_snapshot() -> Snapshot:
    """All processes that can be seen now."""
    at, times = time.time(), psutil.cpu_times()
    found = read_processes() if psutil.LINUX else _list_processes()
    return Snapshot(
        at, times.user + times.nice + times.system, {process.pid: process for process in found}
    )


def _list_processes() -> Iterator[Process]:
    for one in psutil.process_iter(["pid", "ppid", "name", "cpu_times", "create_time"]):
        known = one.info
        if known["cpu_times"] is not None:  # macOS: those of other users may be hidden
            spent = known["cpu_times"]
            yield Process(
                pid=known["pid"],
                parent=known["ppid"] or 0,
                name=known["name"] or "",
                created=known["create_time"] or 0.0,
                cpu_s=spent.user + spent.system,
                ended_children_s=spent.children_user + spent.children_system,
            )
