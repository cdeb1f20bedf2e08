"""How many files each process of a run has open, connections among them, and how many it may."""

from __future__ import annotations

import resource
from contextlib import suppress

from .errors import SimulatorError

_OWN = 32
"""What a process has open for itself: streams, log, event loop, lifeline, what it imports, the way to the
database's other nodes. A collector had 12, a worker 8."""

_OF_A_WORKER = 2
"""Connections that the collector has with each worker: one reports progress, one asks for all else."""

_MOST = 65_536


def allow_files() -> None:
    """Let this process, and those that it starts, have as many files open as they may: many systems allow
    1,024 unless asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _count_allowed()
    if soft != resource.RLIM_INFINITY and soft < most:
        # macOS has a limit of its own below the one that it tells.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _count_allowed() -> int:
    """How many files a process may have open once it has asked for it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)


def check_files(workers: int = 0, in_flight: int = 0) -> None:
    """SimulatorError, which says what to do, if the collector of so many workers, or a worker with so many
    requests in flight, needs more files than this process, or one that it starts, may have open."""
    allowed = _count_allowed()
    most = max(0, allowed - _OWN)
    for needed, at_most, who, what in (
        (_OF_A_WORKER * workers, most // _OF_A_WORKER, f"the collector of {workers}", "workers"),
        (in_flight, most, f"a worker with {in_flight}", "requests in flight"),
    ):
        if needed > most:
            fewer = f", or use {at_most} {what} at most" if at_most else ""
            raise SimulatorError(
                f"{who} {what} needs {needed + _OWN} open files, and may have {allowed}: raise the limit by"
                f" `ulimit -n {needed + _OWN}`{fewer}"
            )
