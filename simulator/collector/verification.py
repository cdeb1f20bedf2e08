"""What the database holds after a run, and the report that says so."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

from ..advice import name_events
from ..build import list_ignored_keys
from ..contract import (
    Carried,
    Group,
    InsertRun,
    Load,
    Report,
    Role,
    RunSettings,
    WorkerInsert,
)
from ..environment import client_environment
from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule, await_count
from ..oracle.stored import StoredPart
from .asking import ask
from .barrier import Barrier
from .database import Preparation
from .merge import find_query_rate, merge_inserts, merge_queries, queryable
from .offered import extend_offers, find_lateness
from .reads import merge_reads
from .surroundings import add_surroundings

_log = logging.getLogger(__name__)


def make_report(settings: RunSettings, prepared: Preparation, barrier: Barrier) -> Report:
    """Count, merge, and say it all; the phases' times are yet to come.

    Raises SimulatorError if there is nothing that a report could be about.
    """
    report = Report(
        index_build_s=prepared.indexing.build_s,
        phases_s={},
        environment=_describe_environment(settings, prepared),
        carried=Carried(next_event=prepared.first_event, stored=None),
    )
    for group in settings.groups_of(Role.READ):
        _judge_reads(report, group, settings, prepared, barrier)
    for group in settings.groups_of(Role.WRITE):
        report.insert, report.carried = _verify(group.load, prepared, barrier)
        report.invalid_reasons += report.insert.invalid_reasons
    add_surroundings(report, barrier)
    return report


def make_early_report(
    settings: RunSettings, prepared: Preparation, barrier: Barrier, reason: str
) -> Report:
    """What the writers of a run that was given up have measured. Nothing is counted: the database is away."""
    (group,) = settings.groups_of(Role.WRITE)
    parts, nodes = _collect_parts(barrier)
    run = merge_inserts(
        extend_offers(parts, group.load),
        nodes,
        barrier.clock_offsets_s,
        group.load,
        prepared.baseline + barrier.prefilled,
        None,
    )
    changes = {"valid": False, "invalid_reasons": [reason], "verification": None}
    if group.load.duration_s is None:
        # The figure would be of other events than were asked for.
        changes["inserts_per_s"] = changes["inserts_per_s_mean_duration"] = None
    elif run.inserts_per_s is not None:
        changes["metrics_per_s"] = run.inserts_per_s * prepared.module.job.schema.metrics
    report = Report(
        phases_s={},
        environment=_describe_environment(settings, prepared),
        carried=Carried(next_event=prepared.first_event, stored=None),
        insert=run.model_copy(update=changes),
        invalid_reasons=[reason],
        failure=reason,
    )
    add_surroundings(report, barrier)
    return report


def _describe_environment(settings: RunSettings, prepared: Preparation) -> dict[str, Any]:
    module = prepared.module
    found = {"client": client_environment(module.packages), "database": prepared.server}
    ignored = list_ignored_keys(settings, type(module.options))
    return found | {"ignored_secret_keys": ignored} if ignored else found


def _collect_parts(barrier: Barrier) -> tuple[dict[int, WorkerInsert], dict[int, str]]:
    """What each writer measured, and on which node each worker was."""
    results = barrier.results.items()
    parts = {worker: result.insert for worker, result in results if result.insert}
    return parts, {worker: result.node for worker, result in results}


def _judge_reads(
    report: Report, group: Group, settings: RunSettings, prepared: Preparation, barrier: Barrier
) -> None:
    """Put into the report what a group of readers measured."""
    offsets_s, load = barrier.clock_offsets_s, group.load
    results = {w: barrier.results[w] for w in range(group.first, group.end)}
    writers = bool(settings.groups_of(Role.WRITE))
    if not writers:
        report.fill_level = _fill_level(prepared.module)
        if report.fill_level == 0:
            raise SimulatorError(
                f"there is nothing to query: the tables of workload {settings.data.workload} are"
                f" empty; run insert first: {settings.program} insert --target {settings.target}"
                f" --workload {name_events(settings.data)}"
            )
    if load.duration_s is None:
        asked = {w: result.queries for w, result in results.items() if result.queries}
        report.queries, reasons, report.overlap = merge_queries(asked, offsets_s, prepared.drawn)
        report.queries_per_s = find_query_rate(asked, offsets_s)
        report.invalid_reasons += reasons
        return
    level = prepared.baseline + barrier.prefilled if writers else report.fill_level
    reads = {w: result.reads for w, result in results.items() if result.reads}
    report.read = merge_reads(reads, offsets_s, load, level, writers, prepared.drawn)
    report.invalid_reasons += report.read.invalid_reasons


def _verify(load: Load, prepared: Preparation, barrier: Barrier) -> tuple[InsertRun, Carried]:
    """Count the events of a group of writers, and merge what it measured."""
    module = prepared.module
    parts, nodes = _collect_parts(barrier)
    before = prepared.baseline + barrier.prefilled
    acknowledged = sum(part.events for part in parts.values())
    try:
        stored = await_count(partial(_count, module), before + acknowledged, module.settle_s)
        lost_devices = prepared.find_lost_devices(sorted(parts))
    except (SimulatorError, Retryable) as error:
        raise SimulatorError(f"the result could not be verified: {error}") from error
    lag_s = _since_the_end(barrier)
    run = merge_inserts(
        parts,
        nodes,
        barrier.clock_offsets_s,
        load,
        before,
        stored,
    )
    run.invalid_reasons += lost_devices
    run.lateness = find_lateness(
        prepared.workload,
        [
            StoredPart(w, prepared.first_event + barrier.ready[w].prefilled, part.events)
            for w, part in parts.items()
        ],
    )
    run.index_build_s = prepared.indexing.build_s
    if run.inserts_per_s is not None:
        run.metrics_per_s = run.inserts_per_s * module.job.schema.metrics
    if module.settle_s:
        run.queryable = queryable(run, lag_s)
    most_prefilled = max(message.prefilled for message in barrier.ready.values())
    most = max(part.events for part in parts.values())
    next_event = prepared.first_event + most_prefilled + most
    return run, Carried(next_event=next_event, stored=stored)


def _fill_level(module: AnyModule) -> int | None:
    """Events in the database; None if they can't be counted. Asked after the queries: a count before
    them would read into the caches what they are about to read."""
    try:
        return _count(module)
    except (SimulatorError, Retryable) as error:
        _log.warning("the events could not be counted: %s", error)
        return None


def _count(module: AnyModule) -> int | None:
    return ask(module.count)


def _since_the_end(barrier: Barrier) -> float:
    """Seconds since the last worker ended, on this clock."""
    assert barrier.start_at is not None
    ends = [result.insert.end_s for result in barrier.results.values() if result.insert]
    return max(0.0, time.monotonic() - barrier.start_at - max(ends))
