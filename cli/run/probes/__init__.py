"""Samples of a database's resources during a run: CPU, memory, disks, network, background load."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

import psutil

from simulator.contract import DatabaseUse, Report, Resources
from simulator.machine import read_clock_s

from ...system.output import note
from .database import Servers, count_cpus, merge_uses, sample_database, summarize_use
from .network import (
    NetworkSnapshot,
    find_link_share,
    merge_networks,
    read_links,
    read_traffic,
    sum_traffic,
)
from .timeline import (
    AgingSeries,
    Snapshot,
    Window,
    compare,
    find_family,
    find_window,
    merge_steps,
    read_families,
    share_of_others,
    take_snapshot,
)

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
# The most of the machine's CPUs that sampling may take. A sample of a thousand processes takes 25 ms, so with
# few CPUs there are fewer samples. One of the database's processes takes 1 ms, or 10 ms if many of them share
# memory.
_MOST_SHARE, _MOST_DATABASE_SHARE = 0.003, 0.002
_LOOKED_AT = 3
"""How many of the run's processes have their connections examined: all are connected alike."""
_END_PATIENCE_S = 2.0
_HIDDEN = (
    "the database's processes are not on this machine, or can't be identified: list them as"
    " database_pids in the target"
)
_TOO_SHORT = "the window was too short to look at the database's processes"


class BackgroundLoadSampler:
    """Samples all processes once a second in a thread of the command line, at no cost to the workers and the
    collector."""

    def __init__(
        self,
        options: Iterable[object],
        processes: Callable[[], Collection[int]],
        database_pids: Collection[int] = (),
    ) -> None:
        """`options`: values of the module's options; `processes`: returns the collector and the workers;
        `database_pids`: the database's processes, where they can't be identified by where they listen."""
        self._processes = processes
        self._servers = Servers(options, database_pids)
        self._known: set[int] = set()
        self._family: set[int] = set()
        """The database's processes in the last sample of all processes."""
        self._uses = AgingSeries(merge_uses)
        self._steps = AgingSeries(merge_steps)
        self._networks = AgingSeries(merge_networks)
        self._cpus = psutil.cpu_count() or 1
        self._pause_s = self._database_pause_s = _INTERVAL_S
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample, and end."""
        self._stopped.set()
        if self._thread.is_alive():  # a signal may have come before the thread began
            self._thread.join(_END_PATIENCE_S)

    def see_database(self) -> DatabaseUse | None:
        """What the database used between the last two samples; None if that isn't known yet."""
        used = None if self._servers.hidden else count_cpus(self._uses.last(2))
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
            _log.debug("other processes can't be seen: %s", error)
        except Exception as error:  # noqa: BLE001 - the run can do without
            note(
                f"warning: what else uses this machine can no longer be observed: unexpected {error!r}"
            )

    def _forget(self, before: Snapshot, after: Snapshot, new: Collection[int]) -> None:
        """Drop samples since the start of processes that only now turn out to be the database's."""
        born = min(
            (after.processes[pid].created for pid in new if pid in after.processes),
            default=after.at,
        )
        # They were counted as others.
        earlier = (step for step in self._steps if step.ended <= born)
        self._steps = AgingSeries(merge_steps, earlier)
        if not self._uses or born < self._uses.first.at:
            first = sample_database(before, self._servers.pids)
            self._uses = AgingSeries(merge_uses, [first] if first.roots else [])

    def _pause(self) -> None:
        """Wait until the next sample of all processes is due. Meanwhile take the cheaper ones: the network,
        and the database's processes. Look for servers as long as none is known; finding one ends the wait."""
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
        """Sample the database's processes of the last full sample, and those they have started."""
        began_s = time.thread_time()
        pids = self._servers.pids | self._family
        snapshot = Snapshot(
            read_clock_s(), 0.0, {process.pid: process for process in read_families(pids)}
        )
        self._uses.append(sample_database(snapshot, self._servers.pids))
        own_s = time.thread_time() - began_s
        self._database_pause_s = max(_INTERVAL_S, own_s / (_MOST_DATABASE_SHARE * self._cpus))

    def _find_servers(self) -> bool:
        """Look for servers. Returns whether that brought anything new."""
        return self._servers.look(sorted(self._processes())[:_LOOKED_AT])

    def _sample_network(self) -> None:
        now, ports = read_clock_s(), sorted(self._servers.ports)
        traffic = read_traffic(ports) if ports else None
        self._networks.append(NetworkSnapshot(now, traffic, read_links()))

    def complete(self, report: Report) -> None:
        """Put what others took, and what the database used, into a report, for the report's own window. Call
        it after the end."""
        if self._thread.is_alive():
            return
        run = report.run
        window = find_window(run, report.window_s)
        if window is None:
            return
        run.resources = self._summarize_use(window)
        changes: dict[str, Any] = {"link_share": find_link_share(self._networks, window)}
        taken = share_of_others(self._steps, window, self._cpus)
        if taken is not None and not self._servers.hidden:
            changes |= {"others_share": taken[0], "others": taken[1]}
        run.machines = [machine.model_copy(update=changes) for machine in run.machines]

    def _summarize_use(self, window: Window) -> Resources:
        # A server that has ended counts, too.
        if self._servers.hidden or not (self._servers.pids or self._uses):
            return Resources(reason=_HIDDEN)
        resources = summarize_use(list(self._uses), window, self._cpus)
        if resources is not None:
            resources.received_bytes, resources.sent_bytes = sum_traffic(self._networks, window)
        return resources or Resources(reason=_TOO_SHORT)
