"""What others take of this machine's CPU while a run's processes are on it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from datetime import datetime

import psutil

from simulator.contract import Machine, Report

from .neighbours import Process, Snapshot, Step, compare, share_of_others
from .servers import Servers

_log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
# A look at a thousand processes takes 0.1 s of CPU: then there are fewer of them.
_MOST_OWN_SHARE = 0.005
_LOOKED_AT = 3
"""So many of the run's processes are asked for their connections: all are connected alike."""
_END_PATIENCE_S = 2.0


class NeighbourWatch:
    """Looks at all processes once a second, from a thread of this one: neither the workers nor the
    collector spend anything on it."""

    def __init__(self, options: Iterable[object], processes: Callable[[], Collection[int]]) -> None:
        """`options`: values of the module's; `processes`: the collector and the workers there are."""
        self._processes = processes
        self._servers = Servers(options)
        self._steps: list[Step] = []
        self._cpus = psutil.cpu_count() or 1
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._stopped.set()
        self._thread.join(_END_PATIENCE_S)

    def _watch(self) -> None:
        try:
            before = take_snapshot()
            pause_s = _INTERVAL_S
            while True:
                ended = self._stopped.wait(pause_s)
                began_s = time.thread_time()
                if self._servers.look(sorted(self._processes())[:_LOOKED_AT]):
                    # Until now the server's processes were taken for others.
                    self._steps.clear()
                after = take_snapshot()
                roots = {os.getpid(), *self._servers.pids}
                step = compare(before, after, roots, self._cpus)
                if step is not None:
                    self._steps.append(step)
                before = after
                pause_s = max(_INTERVAL_S, (time.thread_time() - began_s) / _MOST_OWN_SHARE)
                if ended:
                    return
        except (psutil.Error, OSError) as error:
            _log.debug("what other processes do can't be seen: %s", error)

    def complete(self, report: Report) -> None:
        """Put what others took into a report, for its own window; to be called after the end."""
        if self._servers.hidden or self._thread.is_alive():
            return
        for part in (report, report.insert, report.read):
            if part is None or part.began_at is None or part.ended_at is None:
                continue
            began, ended = (
                datetime.fromisoformat(text).timestamp() for text in (part.began_at, part.ended_at)
            )
            found = share_of_others(self._steps, began, ended, self._cpus)
            if found is not None:
                part.machines = [_add_others(machine, *found) for machine in part.machines]


def _add_others(machine: Machine, share: float, others: dict[str, float]) -> Machine:
    return machine.model_copy(update={"others_share": share, "others": others})


def take_snapshot() -> Snapshot:
    """All processes that can be seen now."""
    at, times = time.time(), psutil.cpu_times()
    processes = {}
    for one in psutil.process_iter(["pid", "ppid", "name", "cpu_times", "create_time"]):
        known = one.info
        if known["cpu_times"] is not None:  # macOS: those of other users may be hidden
            spent = known["cpu_times"]
            processes[known["pid"]] = Process(
                pid=known["pid"],
                parent=known["ppid"] or 0,
                name=known["name"] or "",
                created=known["create_time"] or 0.0,
                cpu_s=spent.user + spent.system,
                ended_children_s=spent.children_user + spent.children_system,
            )
    return Snapshot(at, times.user + times.nice + times.system, processes)
