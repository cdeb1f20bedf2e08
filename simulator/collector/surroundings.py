"""When a run was measured by the wall clock, and on how busy machines."""

from __future__ import annotations

from collections.abc import Iterable

from ..contract import InsertRun, Machine, ReadRun, Report, WorkerInsert, WorkerQueries, WorkerReads
from ..machine import merge_machines
from .barrier import Barrier


def add_surroundings(report: Report, barrier: Barrier) -> None:
    """Put them into a report, for writers and for readers."""
    results = [result for _, result in sorted(barrier.results.items())]
    machines = merge_machines(result.machine for result in results)
    _add(report, [(one.worker, one.queries) for one in results], barrier, machines)
    if report.insert is not None:
        _add(report.insert, [(one.worker, one.insert) for one in results], barrier, machines)
    if report.read is not None:
        _add(report.read, [(one.worker, one.reads) for one in results], barrier, machines)


def _add(
    part: Report | InsertRun | ReadRun,
    measured: Iterable[tuple[int, WorkerInsert | WorkerReads | WorkerQueries | None]],
    barrier: Barrier,
    machines: list[Machine],
) -> None:
    starts, ends = [], []
    for worker, own in measured:
        if own is not None:
            # By the same bound of how late a worker started as in the figures.
            late_s = barrier.clock_offsets_s.get(worker, 0.0)
            starts.append(own.start_s + late_s)
            ends.append(own.end_s + late_s)
    if starts:
        part.began_at = barrier.format_utc(min(starts))
        part.ended_at = barrier.format_utc(max(ends))
        part.machines = machines
