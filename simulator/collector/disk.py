"""What a run's tables take on disk, amid it and after it. A database that doesn't say is no failure."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from itertools import takewhile

from ..contract import GroupResult, Level, Load, Progress, RunResult, RunSettings, Storage
from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule
from .database import ask

_log = logging.getLogger(__name__)

_AMID_SHARE = 0.4
"""The share of a run after which the size amid it is asked for: workers report once a second."""
_LONGEST_S = 1.0
"""If a size took longer, it isn't known of which instant it is."""
_VALUE_BYTES = 8


def is_amid(load: Load, reports: Collection[Progress]) -> bool:
    """Whether writers of this load are about in the middle of their run, by their last reports."""
    running = [report for report in reports if report.stage == "run"]
    if load.duration_s is not None:
        longest_s = max((report.elapsed_s for report in running), default=0.0)
        return longest_s >= _AMID_SHARE * load.duration_s
    return sum(report.done for report in running) >= _AMID_SHARE * load.workers * load.events


def measure_during(module: AnyModule, start_at: float) -> tuple[float, Storage] | None:
    """The size while workers write, and when that was, in seconds since the common start."""
    began = time.monotonic()
    try:
        storage = module.storage_during()
    except (SimulatorError, Retryable) as error:
        _log.warning("size during the run unknown: %s", error)
        return None
    ended = time.monotonic()
    if ended - began > _LONGEST_S and storage.level is None:
        return None
    return (began + ended) / 2 - start_at, storage


def place_amid(run: RunResult, at_s: float, storage: Storage) -> Storage:
    """The size amid a run with the events that were in it: those acknowledged by then, unless the database
    has counted them."""
    if storage.reason or storage.level or storage.total_bytes is None:
        return storage
    timeline = run.writers.timeline if run.writers else []
    events = (run.fill_level or 0) + count_acknowledged(timeline, at_s)
    return storage.model_copy(
        update={"level": Level(size_bytes=storage.total_bytes, events=events)}
    )


def count_acknowledged(timeline: Sequence[tuple[int, int]], at_s: float) -> int:
    """Events of whole seconds that were acknowledged until an instant: evenly within its second."""
    whole = takewhile(lambda second: second[0] < at_s, timeline)
    return round(sum(events * min(1.0, at_s - second) for second, events in whole))


def measure_storage(
    settings: RunSettings, module: AnyModule, writers: GroupResult
) -> tuple[Storage | None, Storage | None]:
    """What is on disk now, and if asked for, after the database has compacted its tables."""
    if writers.verification is None or writers.verification.stored is None:
        return None, None
    stored = writers.verification.stored
    before = _ask(settings, module, stored)
    if not settings.data.compact or before.reason:
        return before, None
    return before, _ask_compacted(settings, module, stored)


def _ask_compacted(settings: RunSettings, module: AnyModule, stored: int) -> Storage:
    try:
        done = module.compact()
    except (SimulatorError, Retryable) as error:
        return Storage(reason=f"compacting failed: {error}")
    if not done:
        return Storage(reason="the database has no command for compaction")
    return _ask(settings, module, stored)


def _ask(settings: RunSettings, module: AnyModule, stored: int) -> Storage:
    try:
        return _complete(module, ask(module.storage, settings), stored)
    except (SimulatorError, Retryable) as error:
        _log.warning("size on disk unknown: %s", error)
        return Storage(reason=str(error))


def _complete(module: AnyModule, storage: Storage, stored: int) -> Storage:
    """The size, with what growth is derived from."""
    job = module.job
    allocation = storage.allocation
    if allocation is None:
        static = module.CAPABILITIES.allocation
        units = len(job.table_names) * storage.copies
        allocation = static.times(units)
    return storage.model_copy(
        update={
            "events": stored,
            "allocation": allocation,
            "event_bytes": _VALUE_BYTES * len(job.schema.row),
        }
    )
