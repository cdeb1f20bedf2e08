"""What is older than a retention is deleted, and nothing else, while others insert."""

from __future__ import annotations

from threading import Thread

import pytest

from ...contract import Retention, StoredPart, Tables, find_step_ms
from ...errors import OptionError, Retryable, SimulatorError
from ...modules.base import AnyModule, Job, await_count
from ...workloads.drawing import BoundQuery, Stored
from ...workloads.history import find_time_ms
from ...workloads.queries import Aggregate, Function, Query, Window
from ...workloads.temperature import Temperature
from ..events import insert_with
from ..server import ServerUnderTest, new_job

PERIOD_MS = 40 * 86_400_000
STEP_MS = find_step_ms(PERIOD_MS)
EVENTS = 1_000
# All of them together are of a hundred days.
WORKLOAD = Temperature(seed=3, device_spread=10, clock_factor=100 * 86_400_000 // (450 * EVENTS))


def _keep(workload: Temperature) -> Retention:
    return Retention(
        period_ms=PERIOD_MS, step_ms=STEP_MS, until_ms=find_time_ms(workload, 0, EVENTS)
    )


def test_what_is_too_old_is_deleted_and_nothing_else(
    server: ServerUnderTest, tables: Tables
) -> None:
    ageing = server.module_type.CAPABILITIES.ageing
    job = new_job(WORKLOAD.schema, batch=50, tables=tables, retention=_keep(WORKLOAD))
    if not ageing.way:
        with pytest.raises(OptionError, match="can't do --retention: "):
            server.module(job)
        return
    try:
        with server.prepare(job) as observer:
            _check_deletions(server, job, observer)
    except OptionError as error:
        # The database is a relative of the module's that can't delete what is too old.
        if "can't do --retention: " not in str(error):
            raise
    except SimulatorError as error:
        if "lacks the module" in str(error):
            pytest.skip(str(error))
        raise


def _check_deletions(server: ServerUnderTest, job: Job, observer: AnyModule) -> None:
    half = EVENTS // 2
    insert_with(server.module(job), WORKLOAD, half)
    # So old that nothing goes, and then a part of what is there; again, and nothing more goes.
    _check(observer, half, WORKLOAD.schema.epoch_ms // STEP_MS * STEP_MS)
    first = _find_limit(half) + 5 * STEP_MS
    _check(observer, half, first)
    _check(observer, half, first)
    more = Thread(
        target=insert_with, args=(server.module(job), WORKLOAD, half), kwargs={"first": half}
    )
    more.start()
    _delete(observer, first + STEP_MS)
    more.join()
    _check(observer, EVENTS, _find_limit(EVENTS))


def _find_limit(events: int) -> int:
    return _keep(WORKLOAD).find_limit(find_time_ms(WORKLOAD, 0, events))


def _delete(observer: AnyModule, limit_ms: int) -> None:
    try:
        observer.delete_older(limit_ms)
    except Retryable:
        # As the collector does: it may be repeated.
        observer.delete_older(limit_ms)


def _check(observer: AnyModule, inserted: int, limit_ms: int) -> None:
    """Delete, and count what is there, in all and of what should be gone."""
    _delete(observer, limit_ms)
    expected = Stored(WORKLOAD, [StoredPart(0, 0, inserted)]).count_since(limit_ms)
    assert 0 < expected <= inserted
    assert await_count(observer.count, expected, observer.settle_s) == expected
    if observer.job.load.tables is Tables.SINGLE:
        begin_ms = WORKLOAD.schema.epoch_ms - PERIOD_MS
        older = Query(
            name="older",
            window=Window(span=limit_ms - begin_ms),
            compute=(Aggregate(function=Function.COUNT),),
        )
        rows = observer.fetch(observer.compile(BoundQuery(older, None, begin_ms, limit_ms)))
        assert sum(row[0] or 0 for row in rows) == 0
