"""Deletes events that have become too old while writers are active: when, at what cost, and whether they are
gone."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..contract import (
    Deletion,
    DeletionCost,
    GroupResult,
    IntervalFigures,
    Retention,
    RetentionResult,
    Role,
    RunSettings,
    StoredPart,
    WorkerFigures,
)
from ..errors import Retryable, SimulatorError
from ..histograms import merge_histograms
from ..workloads.drawing import BoundQuery, Stored
from ..workloads.numbering import find_time_ms
from ..workloads.queries import Aggregate, Function, Query, Window
from .barrier import Barrier
from .database import Preparation, ask, open_tables

_log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.5
"""How often to check whether something has become too old: workers report once a second."""

REST_S = 2.0
"""How long nothing is deleted after a deletion, to have seconds for comparison."""

_LONG_BEFORE_MS = 366 * 86_400_000
"""No event is older than the first timestamp by more than this."""


@dataclass
class Deleter:
    """Deletes events older than a run's retention, in steps of event time."""

    settings: RunSettings
    prepared: Preparation
    barrier: Barrier
    retention: Retention
    deletions: list[Deletion] = field(default_factory=list)
    """The deletions while writers were active."""
    limit_ms: int | None = None
    """Events older than this have been deleted; None: nothing has been deleted."""
    kept_at_start: int | None = None
    """Events of the prefill that weren't too old when the run began; None: nothing was deleted before the
    run."""
    looked_at_s: float = -math.inf
    """When it was last checked what is due, while writers are active."""

    @property
    def _writers(self) -> Sequence[int]:
        groups = self.settings.groups_of(Role.WRITE, Role.FILL)
        return [worker for group in groups for worker in range(group.first, group.end)]

    def list_parts(self) -> list[StoredPart]:
        """What each writer has inserted, as far as known."""
        parts = []
        for worker in self._writers:
            ready = self.barrier.ready.get(worker)
            count = ready.prefilled if ready else 0
            result, progress = self.barrier.results.get(worker), self.barrier.progress.get(worker)
            if result is not None and result.figures is not None:
                count += result.figures.count
            elif result is None and progress is not None and progress.stage == "run":
                count += progress.done
            parts.append(StoredPart(worker, self.prepared.begin.first_event, count))
        return parts

    def find_due_in_run(self) -> int | None:
        """The limit by which to delete now, while writers are active; None: nothing is due, or it is too
        early to check or to delete again."""
        elapsed_s = self.barrier.elapsed_s()
        # A worker that is done says nothing about the others' event time.
        if elapsed_s - self.looked_at_s < LOOK_INTERVAL_S or self.barrier.results:
            return None
        if self.deletions and elapsed_s - self.deletions[-1].ended_s < REST_S:
            return None
        self.looked_at_s = elapsed_s
        return self.find_due()

    def find_due(self) -> int | None:
        """The limit by which to delete now, by the writer that is furthest behind. None: nothing more has
        become too old."""
        clock_ms = min(
            find_time_ms(self.prepared.workload, part.worker, part.first + part.count)
            for part in self.list_parts()
        )
        limit_ms = self.retention.find_limit(clock_ms)
        first_ms = self.prepared.workload.schema.epoch_ms
        return limit_ms if limit_ms > (self.limit_ms or first_ms) else None

    def delete(self, limit_ms: int) -> None:
        """Delete events older than the limit. Raises SimulatorError or Retryable."""
        ask(lambda: self.prepared.module.delete_older(limit_ms), self.settings)
        self.limit_ms = limit_ms

    def delete_in_run(self, limit_ms: int) -> None:
        """The same while writers are active; notes when."""
        began_s = self.barrier.elapsed_s()
        self.delete(limit_ms)
        ended_s = self.barrier.elapsed_s()
        self.deletions.append(Deletion(before_ms=limit_ms, began_s=began_s, ended_s=ended_s))

    def delete_from_prefill(self) -> None:
        """Delete events of the prefill that are too old, before writers begin."""
        self.delete_rest()
        if self.limit_ms is not None:
            self.kept_at_start = self.count_kept()

    def delete_rest(self) -> None:
        """Delete what has become too old by now, while no other deletion is in progress."""
        if (limit_ms := self.find_due()) is not None:
            self.delete(limit_ms)

    # --- afterwards -------------------------------------------------------------------------------

    def count_kept(self) -> int:
        """How many acknowledged events are not too old."""
        parts = [part for part in self.list_parts() if part.count]
        if self.limit_ms is None or not parts:
            return sum(part.count for part in parts)
        return Stored(self.prepared.workload, parts).count_since(self.limit_ms)

    def make_result(self) -> RetentionResult:
        """What was deleted, and whether any of it is still there."""
        retention = self.retention
        result = RetentionResult(
            period_s=retention.period_ms / 1000,
            step_s=retention.step_ms / 1000,
            deletions=self.deletions,
            way=self.prepared.module.CAPABILITIES.ageing.way,
            clock_factor=self.prepared.workload.clock_factor,
            kept_from_ms=self.limit_ms,
        )
        if self.limit_ms is not None:
            result.deleted = sum(part.count for part in self.list_parts()) - self.count_kept()
            try:
                result.remaining = ask(self._count_older, self.settings)
            except (SimulatorError, Retryable) as error:
                _log.warning("counting the events older than the retention failed: %s", error)
        return result

    def _count_older(self) -> int | None:
        """Events older than the limit, over all tables; None: the module has no such query."""
        module, schema = self.prepared.module, self.prepared.module.job.schema
        assert self.limit_ms is not None
        begin_ms = schema.epoch_ms - _LONG_BEFORE_MS
        query = Query(
            name="older",
            window=Window(span=self.limit_ms - begin_ms),
            compute=(Aggregate(function=Function.COUNT),),
        )
        if not schema.shapes_of(query) <= frozenset(module.CAPABILITIES.shapes):
            return None
        bound = BoundQuery(query, None, begin_ms, self.limit_ms)
        rows = [
            row
            for table_module in open_tables(module)
            for row in table_module.fetch(table_module.compile(bound))
        ]
        return sum(int(row[0]) for row in rows)


def describe_remaining(result: RetentionResult) -> list[str]:
    """The reasons why a retention makes a run invalid."""
    if not result.remaining:
        return []
    return [f"{result.remaining:,} events older than the retention allows are still stored"]


def leave_out_deleted(prepared: Preparation, stored: Sequence[StoredPart]) -> list[StoredPart]:
    """The stored events that remain until the end of the run, about which readers query. All events, if it
    isn't known when the run ends."""
    until_ms = find_last_limit(prepared)
    if until_ms is None:
        return list(stored)
    parts = []
    for part in stored:
        own = Stored(prepared.workload, [part])
        [older] = own.find_between(None, until_ms)
        skipped = max(0, min(older.stop - part.first, part.count - 1))
        parts.append(StoredPart(part.worker, part.first + skipped, part.count - skipped))
    return parts


def find_last_limit(prepared: Preparation) -> int | None:
    """Events older than this may be gone at the end of the run; None: nothing is deleted, or the limit isn't
    known."""
    retention = prepared.module.job.retention
    if retention is None or retention.until_ms is None:
        return None
    # Poisson arrivals may bring a few more events than the rate suggests.
    return retention.find_limit(retention.until_ms) + retention.step_ms


def weigh_deletions(
    group: GroupResult, figures: Sequence[WorkerFigures], deletions: Sequence[Deletion]
) -> DeletionCost | None:
    """What a group did before the first deletion, during deletions and between them, by whole seconds of its
    window; None without deletions."""
    if not deletions or group.window_s is None:
        return None
    running = {
        second
        for deletion in deletions
        for second in range(int(deletion.began_s), int(deletion.ended_s) + 1)
    }
    begin = int(group.warm_up_s) + (group.warm_up_s % 1 > 0)
    # The last second is cut off by the end, as the first is by the end of the warm-up.
    window = range(begin, int(group.warm_up_s + group.window_s))
    first = min(running)
    return DeletionCost(
        before=_sum_up(group, figures, [second for second in window if second < first]),
        during=_sum_up(group, figures, [second for second in window if second in running]),
        between=_sum_up(
            group,
            figures,
            [second for second in window if second > first and second not in running],
        ),
    )


def _sum_up(
    group: GroupResult, figures: Sequence[WorkerFigures], seconds: Sequence[int]
) -> IntervalFigures:
    if not seconds:
        return IntervalFigures(seconds=0)
    chosen, done = set(seconds), dict(group.timeline)
    latencies = [own for part in figures for second, own in part.seconds if second in chosen]
    return IntervalFigures(
        seconds=len(seconds),
        rate_per_s=sum(done.get(second, 0) for second in seconds) / len(seconds),
        p99_ms=merge_histograms(latencies).percentiles_ms([99])[0],
    )
