"""The report of a run: what its workers measured, and what the database holds afterwards."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from math import sqrt
from typing import Any

from ..contract import (
    CarriedState,
    EarlyEnd,
    Group,
    GroupResult,
    Lateness,
    Level,
    Load,
    LongWindows,
    Progress,
    Report,
    Role,
    RunResult,
    RunSettings,
    Storage,
    StoredPart,
    Verification,
    WorkerFigures,
)
from ..errors import Retryable, SimulatorError
from ..machine import client_environment, merge_machines
from ..modules import list_ignored_keys
from ..modules.base import AnyModule, await_count
from ..workloads import name_events
from ..workloads.base import Workload
from ..workloads.drawing import Stored
from ..workloads.numbering import WithHistory
from ..workloads.queries import Query
from .barrier import Barrier
from .database import Preparation, ask, count_values, list_counted
from .merge import merge_group, queryable
from .retention import Deleter, describe_remaining, weigh_deletions
from .verdicts import extend_offers

_log = logging.getLogger(__name__)

_MOST_WORKERS = 8
"""At most this many workers are checked, for all: computing the order of their events takes 20 ms each."""


def make_report(
    settings: RunSettings,
    prepared: Preparation,
    barrier: Barrier,
    early_end: EarlyEnd | None = None,
    deleter: Deleter | None = None,
) -> Report:
    """Count what is stored, and merge what was measured. The phases' times are added later. `early_end`: if
    the run was ended because it could no longer keep a limit. `deleter`: if the run has a retention.

    Raises SimulatorError if there is nothing to report.
    """
    report = _begin_report(settings, prepared, barrier)
    run, writes = report.run, bool(settings.groups_of(Role.WRITE))
    if settings.groups_of(Role.READ) and not writes:
        run.fill_level = _count_after_queries(settings, prepared.module)
    run.aborted = early_end
    for group in settings.groups_of(Role.WRITE, Role.READ):
        load, parts = group.load, _collect_figures(group, barrier)
        if early_end is not None:
            # The load that was really applied.
            load = load.model_copy(update={"duration_s": early_end.at_s})
        if load.role is Role.WRITE:
            kept_events = None if deleter is None else deleter.count_kept()
            result, report.carried = _verify(load, parts, settings, prepared, barrier, kept_events)
        else:
            # While data are written, any answer may grow.
            varying = None if writes else prepared.drawn
            longer = settings.duration_option
            result = _merge(load, parts, barrier, varying=varying, duration_option=longer)
        if early_end is not None:
            result.invalid_reasons.append(str(early_end))
        if deleter is not None:
            result.deletion_cost = weigh_deletions(result, list(parts.values()), deleter.deletions)
        run.groups.append(result)
    if deleter is not None and run.writers is not None:
        run.retention = deleter.make_result()
        if deleter.kept_at_start is not None:
            run.fill_level = deleter.kept_at_start
        run.writers.invalid_reasons += describe_remaining(run.retention)
    return report


def make_early_report(
    settings: RunSettings, prepared: Preparation, barrier: Barrier, reason: str
) -> Report:
    """What the writers of a run that was given up have measured. Nothing is counted: the database is
    unavailable."""
    report = _begin_report(settings, prepared, barrier)
    report.failure = reason
    (group,) = settings.groups_of(Role.WRITE)
    parts = extend_offers(_collect_figures(group, barrier), group.load)
    writers = _merge(group.load, parts, barrier)
    writers.invalid_reasons = [reason]
    if group.load.duration_s is None:
        # The figure would cover other events than those requested.
        writers.rate_per_s = writers.rate_per_s_mean_duration = None
    _add_metrics(writers, prepared)
    report.run.groups.append(writers)
    return report


def _begin_report(settings: RunSettings, prepared: Preparation, barrier: Barrier) -> Report:
    """The parts of a report that don't depend on groups."""
    module = prepared.module
    measured = [
        # With the same upper bound of how late the worker started as in its figures.
        (figures.start_s + late_s, figures.end_s + late_s)
        for worker, result in barrier.results.items()
        if (figures := result.figures) is not None
        for late_s in [barrier.clock_offsets_s.get(worker, 0.0)]
    ]
    environment: dict[str, Any] = {
        "client": client_environment(module.packages),
        "database": prepared.server,
    }
    if ignored := list_ignored_keys(settings, type(module.options)):
        environment["ignored_secret_keys"] = ignored
    run = RunResult(
        groups=[],
        prefilled=barrier.prefilled or None,
        index_build_s=prepared.indexing.build_s,
    )
    if settings.groups_of(Role.WRITE):
        run.fill_level = prepared.baseline + barrier.prefilled
    report = Report(
        run=run,
        environment=environment,
        carried=CarriedState(next_event=prepared.begin.first_event, stored=None),
    )
    if measured:
        start_s, end_s = min(start for start, _ in measured), max(end for _, end in measured)
        run.began_at, run.ended_at = barrier.format_utc(start_s), barrier.format_utc(end_s)
        results = sorted(barrier.results.items())
        run.machines = merge_machines(result.machine for _, result in results)
        report.window_s = barrier.start_clock_s + start_s, barrier.start_clock_s + end_s
    return report


def _collect_figures(group: Group, barrier: Barrier) -> dict[int, WorkerFigures]:
    """What each worker of a group measured, if its result is there."""
    results = ((worker, barrier.results.get(worker)) for worker in range(group.first, group.end))
    return {worker: result.figures for worker, result in results if result and result.figures}


def _merge(
    load: Load, parts: Mapping[int, WorkerFigures], barrier: Barrier, **more: Any
) -> GroupResult:
    nodes = {worker: barrier.results[worker].node for worker in parts}
    offsets_s = barrier.clock_offsets_s
    return merge_group(load, parts, nodes, offsets_s, stalls=barrier.stalls, **more)


# --- writers --------------------------------------------------------------------------------------


def _verify(
    load: Load,
    parts: Mapping[int, WorkerFigures],
    settings: RunSettings,
    prepared: Preparation,
    barrier: Barrier,
    kept_events: int | None,
) -> tuple[GroupResult, CarriedState]:
    """Count the events of a group of writers, and merge what it measured. `kept_events`: how many events
    weren't due for deletion, if the run has a retention."""
    expected = prepared.baseline + barrier.prefilled + sum(part.count for part in parts.values())
    expected = expected if kept_events is None else kept_events
    lacking = Counter[str]()
    for result in barrier.results.values():
        lacking.update(result.lacking)
    try:
        verification, values = count_stored(
            settings, prepared, expected, lacking if kept_events is None else None
        )
        lost_devices = ask(lambda: prepared.find_lost_devices(sorted(parts)), settings)
    except (SimulatorError, Retryable) as error:
        raise SimulatorError(f"verifying the result failed: {error}") from error
    assert barrier.start_at is not None
    end_s = max(part.end_s for part in parts.values())
    lag_s = max(0.0, time.monotonic() - barrier.start_at - end_s)
    writers = _merge(
        load,
        parts,
        barrier,
        verification=verification,
        duration_option=settings.duration_option,
        is_level=settings.is_level,
    )
    writers.invalid_reasons += lost_devices
    writers.lateness = find_lateness(
        prepared.workload,
        [
            StoredPart(w, prepared.begin.first_of(w) + barrier.ready[w].prefilled, part.count)
            for w, part in parts.items()
        ],
    )
    _add_metrics(writers, prepared)
    if prepared.module.settle_s:
        writers.queryable = queryable(writers, lag_s)
    most_prefilled = max(message.prefilled for message in barrier.ready.values())
    most = max(part.count for part in parts.values())
    next_event = prepared.begin.first_event + most_prefilled + most
    ends = _find_sorted_ends(prepared, parts, barrier)
    carried = CarriedState(
        next_event=max([next_event, *ends.values()]), stored=verification.stored, values=values
    )
    if prepared.begin.has_history and verification.ok:
        until = prepared.begin.find_next({worker: part.count for worker, part in parts.items()})
        carried.next_events = until | {
            worker: max(until[worker], end) for worker, end in ends.items()
        }
        carried.is_certain = prepared.begin.is_certain and carried.next_events == until
    return writers, carried


def _find_sorted_ends(
    prepared: Preparation, workers: Iterable[int], barrier: Barrier
) -> dict[int, int]:
    """For an encoder that sorts events: after which number each worker has sent none. In its last chunk,
    numbers that weren't sent may come before others that were."""
    ends = {worker: sum(chunk) for worker in workers if (chunk := barrier.results[worker].chunk)}
    return ends if ends and prepared.module.writer().encoder.unit_events else {}


def count_stored(
    settings: RunSettings,
    prepared: Preparation,
    expected: int,
    lacking: Mapping[str, int] | None,
) -> tuple[Verification, dict[str, int]]:
    """Count until the expected events are there, or no more appear. Also counts the values of each column,
    where these are stored separately. `lacking`: how many of the run's events have no value in a nullable
    column; None: not known, as some were deleted."""
    module, baseline, before = prepared.module, prepared.baseline, prepared.values_before
    kept_apart = module.list_kept_apart()
    nullable = {name for name in kept_apart if module.job.schema.column(name).nullable}
    due, found = {}, dict[str, int]()
    for name in list_counted(module):
        if lacking is not None or name not in nullable:
            due[name] = (
                expected - baseline + before.get(name, baseline) - (lacking or {}).get(name, 0)
            )

    def count() -> int | None:
        if not kept_apart:
            return ask(module.count, settings)
        found.update(ask(lambda: count_values(module), settings))
        return expected - max(due[name] - found[name] for name in due)

    stored = await_count(count, expected, module.settle_s)
    if not kept_apart:
        ok = stored is None or stored == expected
        return Verification(expected=expected, stored=stored, ok=ok), found
    short = {name: due[name] - found[name] for name in due}
    # A missing event may have no value in a nullable column.
    whole = [missing for name, missing in short.items() if name not in nullable]
    wrong = short if len(set(short.values())) > 1 else {}
    verification = Verification(
        expected=expected,
        stored=stored,
        ok=stored == expected and not wrong,
        partial=max(0, *short.values()) - max(0, min(whole)),
        columns={name: (found[name], due[name]) for name in wrong if name and short[name]},
    )
    return verification, found


def _add_metrics(writers: GroupResult, prepared: Preparation) -> None:
    if writers.rate_per_s is not None:
        writers.metrics_per_s = writers.rate_per_s * prepared.module.job.schema.metrics


def find_lateness(workload: Workload, parts: Sequence[StoredPart]) -> Lateness | None:
    """How many of the sent events came late. None if about as many did as should have, or if none should
    have."""
    late_share, sent, late = workload.late_share, 0, 0.0
    for part in parts[:_MOST_WORKERS] if late_share else ():
        if not part.count:
            continue
        sent += part.count
        late += part.count * workload.find_late_share(part.worker, part.first, part.count)
    # Three standard deviations: with few events, fewer may be late by chance.
    if not sent or late >= late_share * sent - max(
        0.1 * late_share * sent, 3 * sqrt(late_share * sent)
    ):
        return None
    return Lateness(asked=late_share, came=late / sent)


# --- readers --------------------------------------------------------------------------------------


def _count_after_queries(settings: RunSettings, module: AnyModule) -> int | None:
    """Events in the database. None if they can't be counted, SimulatorError if there are none. Comes after
    the queries: a count before them would read into the caches what they are about to read."""
    try:
        count = ask(module.count, settings)
    except (SimulatorError, Retryable) as error:
        _log.warning("counting the events failed: %s", error)
        return None
    if count == 0:
        raise SimulatorError(
            f"there is nothing to query: the tables of workload {settings.data.workload} are"
            f" empty; run insert first: {settings.program} insert --target {settings.target}"
            f" --workload {name_events(settings.data)}"
        )
    return count


def add_long_windows(run: RunResult, prepared: Preparation) -> None:
    """Add to the readers' result which queries have windows longer than the stored events."""
    if isinstance(prepared.known, str) or run.readers is None:
        return
    stored = Stored(prepared.known.workload, prepared.known.parts, prepared.certain_until_ms)
    names = [query.query for query in run.readers.queries]
    queries = map(prepared.module.describe_query, names)
    run.readers.long_windows = find_long_windows(queries, stored)


def find_long_windows(descriptions: Iterable[Query | None], stored: Stored) -> LongWindows | None:
    """The queries with windows longer than the time that the stored events cover; None if there are none."""
    first, end = stored.span_ms
    # The interval from the last event to the next one counts, too; in a history it is longer.
    interval_ms = stored.workload.device_interval_ms
    if isinstance(stored.workload, WithHistory) and (history := stored.workload.history):
        interval_ms = history.every_ms
    span_ms = end - first + int(interval_ms)
    queries = {
        query.name: int(query.window.span)
        for query in descriptions
        if query is not None and query.window is not None and query.window.span > span_ms
    }
    return LongWindows(stored_ms=end - first, queries=queries) if queries else None


# --- what the tables take on disk, during the run and after it; not reporting it is no failure ---------

_AMID_SHARE = 0.4
"""The share of a run after which the size halfway is measured: workers report once a second."""
_LONGEST_S = 1.0
"""If measuring took longer, it isn't known which instant the size belongs to."""
_VALUE_BYTES = 8


def is_amid(load: Load, reports: Collection[Progress]) -> bool:
    """Whether writers of this load are about halfway through their run, by their last reports."""
    running = [report for report in reports if report.stage == "run"]
    if load.duration_s is not None:
        longest_s = max((report.elapsed_s for report in running), default=0.0)
        return longest_s >= _AMID_SHARE * load.duration_s
    return sum(report.done for report in running) >= _AMID_SHARE * load.total_events


def measure_during(module: AnyModule, start_at: float) -> tuple[float, Storage] | None:
    """The size while writers are active, and when that was, in seconds since the common start."""
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
    """The size halfway through a run, with the number of events in it: those acknowledged by then, unless the
    database has counted them."""
    if storage.reason or storage.level or storage.total_bytes is None:
        return storage
    timeline = run.writers.timeline if run.writers else []
    events = (run.fill_level or 0) + count_acknowledged(timeline, at_s)
    return storage.model_copy(
        update={"level": Level(size_bytes=storage.total_bytes, events=events)}
    )


def count_acknowledged(timeline: Sequence[tuple[int, int]], at_s: float) -> int:
    """Events acknowledged until an instant, from whole seconds: spread evenly within the last one."""
    whole = takewhile(lambda second: second[0] < at_s, timeline)
    return round(sum(events * min(1.0, at_s - second) for second, events in whole))


def measure_storage(
    settings: RunSettings, module: AnyModule, writers: GroupResult
) -> tuple[Storage | None, Storage | None]:
    """What is on disk now and, if requested, after the database has compacted its tables; with the values
    from which growth is computed."""
    if writers.verification is None or writers.verification.stored is None:
        return None, None
    stored, job = writers.verification.stored, module.job

    def measure() -> Storage:
        try:
            storage = ask(module.storage, settings)
        except (SimulatorError, Retryable) as error:
            _log.warning("size on disk unknown: %s", error)
            return Storage(reason=str(error))
        units = len(job.table_names) * storage.copies
        allocation = storage.allocation or module.CAPABILITIES.allocation.times(units)
        event_bytes = _VALUE_BYTES * len(job.schema.row)
        changes = {"events": stored, "allocation": allocation, "event_bytes": event_bytes}
        return storage.model_copy(update=changes)

    before = measure()
    if not settings.data.compact or before.reason:
        return before, None
    try:
        if not module.compact():
            return before, Storage(reason="the database has no compaction command")
    except (SimulatorError, Retryable) as error:
        return before, Storage(reason=f"compacting failed: {error}")
    return before, measure()
