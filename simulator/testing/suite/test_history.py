"""A history and what follows it; deletion by age; queries while events arrive."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest

from ...collector.lookup import look_up
from ...contract import Load, Lookup, Retention, StoredPart, Tables, find_step_ms
from ...errors import OptionError, Retryable, SimulatorError
from ...modules.base import AnyModule, Job, await_count, connect
from ...oracle.answers import answer_all, compare_answers
from ...oracle.survey import (
    Beginning,
    OtherEvents,
    UnknownEvents,
    recognize_events,
    resume_history,
    survey_devices,
)
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import BoundQuery, Stored
from ...workloads.numbering import History, WithHistory, find_time_ms
from ...workloads.queries import Aggregate, Function, Query, Window
from ...workloads.temperature import Temperature
from ..events import insert, insert_with
from ..server import ServerUnderTest, batch_of, new_job
from .test_queries import make_settings, prepare_queries

SEED, DEVICES, STEPS, AFTER = 9, 5, 40, 60
EVERY_MS = 90_000
"""Eighteen times the interval between two events of a device."""


def make_workload(every_ms: int = EVERY_MS) -> WithHistory:
    base = Cpu(seed=SEED, device_spread=DEVICES)
    return WithHistory(base, History(every_ms, STEPS, base.device_interval_ms))


_ASKED: list[dict[str, Any]] = [
    {"compute": [{"function": "count"}]},
    {
        "compute": [{"function": "count"}, {"function": "max", "column": "usage_user"}],
        "per": ["tags"],
    },
    {
        "compute": [{"function": "avg", "column": "usage_idle"}],
        "per": [{"every": "1m"}],
        "devices": ["w00000d000001", "w00000d000004"],
    },
    {"events": ["ts", "usage_user"], "devices": ["w00000d000002"]},
]
QUESTIONS = [
    Query.model_validate({"name": f"asked-{number}", "window": {"span": "10m"}, **question})
    for number, question in enumerate(_ASKED)
]


def test_a_history_and_what_follows_are_one(server: ServerUnderTest) -> None:
    workload = make_workload()
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    history = workload.count_history(0)
    job = new_job(workload.schema, batch=batch_of(server.module_type.ENCODINGS[0], 20))
    stored_events = history + AFTER
    with server.prepare(job) as module:
        with connect(server.module(job).for_prefill().writer()) as writer:
            insert(writer, workload, history)
        with connect(server.module(job).writer()) as writer:
            insert(writer, workload, AFTER, first=history)
        assert await_count(module.count, stored_events, module.settle_s) == stored_events
    with prepare_queries(server, workload) as module:
        try:
            inventory = survey_devices(module, workload)
        except UnknownEvents as error:
            pytest.skip(str(error))
        parts = [StoredPart(0, 0, stored_events)]
        assert recognize_events(module, workload, inventory).parts == parts
        resumed = resume_history(begin(job.load, workload), module)
        assert resumed.is_certain
        assert (resumed.first_of(0), resumed.prefill) == (stored_events, 0)
        with pytest.raises(OtherEvents, match="not the history's"):
            resume_history(begin(job.load, make_workload(2 * EVERY_MS)), module)
        stored = Stored(workload, parts)
        border_ms = int(workload.block(0, history, 1).columns["ts"][0])
        shapes = frozenset(module.CAPABILITIES.shapes)
        bounds = [
            BoundQuery(query, devices_of(query), border_ms + at, border_ms + at + 600_000)
            for query in QUESTIONS
            if workload.schema.shapes_of(query) <= shapes
            # In the history, across its end, and at its end only.
            for at in (-3_000_000, -300_000, -600_000 + 5_000)
        ]
        for bound, right in zip(bounds, answer_all(bounds, stored), strict=True):
            assert len(right)
            assert compare_answers(right, module.fetch(module.compile(bound))) is None, bound
        # Nothing of the history is looked up.
        assert look_up(module, workload, parts, border_ms) == Lookup(
            events=AFTER, missing=0, doubled=0, per_group=1
        )

    # After a run that left a gap: the next one continues after everything that is stored, and knows that
    # events before it are uncertain.
    far = stored_events + 20 * DEVICES
    with connect(server.module(job).writer()) as writer:
        insert(writer, workload, DEVICES, first=far)
    with prepare_queries(server, workload) as module:
        assert await_count(module.count, stored_events + DEVICES, module.settle_s)
        resumed = resume_history(begin(job.load, workload), module)
        assert not resumed.is_certain
        assert resumed.first_of(0) >= far + DEVICES


def begin(load: Load, workload: Workload) -> Beginning:
    """The beginning of a run with one writer."""
    return Beginning(make_settings("m", load), workload)


def devices_of(query: Query) -> tuple[str, ...] | None:
    return query.devices if isinstance(query.devices, tuple) else None


def test_the_questions_find_both() -> None:
    workload: Workload = make_workload()
    count = STEPS * DEVICES
    block = workload.block(0, count - DEVICES, 2 * DEVICES)
    times = block.columns["ts"].tolist()
    assert times[DEVICES] - times[0] == EVERY_MS
    assert times[DEVICES + 1] - times[DEVICES] == 1000


PERIOD_MS = 40 * 86_400_000
STEP_MS = find_step_ms(PERIOD_MS)
AGEING_EVENTS = 1_000
# Together they span a hundred days.
AGEING = Temperature(
    seed=3, device_spread=10, clock_factor=100 * 86_400_000 // (450 * AGEING_EVENTS)
)


def _keep(workload: Temperature) -> Retention:
    return Retention(
        period_ms=PERIOD_MS, step_ms=STEP_MS, until_ms=find_time_ms(workload, 0, AGEING_EVENTS)
    )


def test_what_is_too_old_is_deleted_and_nothing_else(
    server: ServerUnderTest, tables: Tables
) -> None:
    ageing = server.module_type.CAPABILITIES.ageing
    job = new_job(AGEING.schema, batch=50, tables=tables, retention=_keep(AGEING))
    if not ageing.way:
        with pytest.raises(OptionError, match="can't do --retention: "):
            server.module(job)
        return
    try:
        with server.prepare(job) as observer:
            _check_deletions(server, job, observer)
    except OptionError as error:
        # A relative of the module's database that can't delete old events.
        if "can't do --retention: " not in str(error):
            raise
    except SimulatorError as error:
        if "lacks the module" in str(error):
            pytest.skip(str(error))
        raise


def _check_deletions(server: ServerUnderTest, job: Job, observer: AnyModule) -> None:
    half = AGEING_EVENTS // 2
    insert_with(server.module(job), AGEING, half)
    # First so old that nothing is deleted, then a part of the events; again, and nothing more is deleted.
    _check(observer, half, AGEING.schema.epoch_ms // STEP_MS * STEP_MS)
    first = _find_limit(half) + 5 * STEP_MS
    _check(observer, half, first)
    _check(observer, half, first)
    more = Thread(
        target=insert_with, args=(server.module(job), AGEING, half), kwargs={"first": half}
    )
    more.start()
    _delete(observer, first + STEP_MS)
    more.join()
    _check(observer, AGEING_EVENTS, _find_limit(AGEING_EVENTS))


def _find_limit(events: int) -> int:
    return _keep(AGEING).find_limit(find_time_ms(AGEING, 0, events))


def _delete(observer: AnyModule, limit_ms: int) -> None:
    try:
        observer.delete_older(limit_ms)
    except Retryable:
        # Like the collector: deletion may be repeated.
        observer.delete_older(limit_ms)


def _check(observer: AnyModule, inserted: int, limit_ms: int) -> None:
    """Delete, and count what is stored, in total and of what should be gone."""
    _delete(observer, limit_ms)
    expected = Stored(AGEING, [StoredPart(0, 0, inserted)]).count_since(limit_ms)
    assert 0 < expected <= inserted
    assert await_count(observer.count, expected, observer.settle_s) == expected
    if observer.job.load.tables is Tables.SINGLE:
        begin_ms = AGEING.schema.epoch_ms - PERIOD_MS
        older = Query(
            name="older",
            window=Window(span=limit_ms - begin_ms),
            compute=(Aggregate(function=Function.COUNT),),
        )
        rows = observer.fetch(observer.compile(BoundQuery(older, None, begin_ms, limit_ms)))
        assert sum(row[0] or 0 for row in rows) == 0


_BEFORE, _MEANWHILE = 200, 400


def test_queries_are_answered_while_events_come_in(server: ServerUnderTest) -> None:
    workload = Temperature(seed=6, device_spread=3)
    job = new_job(workload.schema, batch=10)
    reader_job = new_job(workload.schema, clean=False)
    counts = []
    with server.prepare(job) as observer, connect(server.module(reader_job)) as reader:
        insert_with(server.module(job), workload, _BEFORE)
        assert await_count(observer.count, _BEFORE, observer.settle_s) == _BEFORE
        reader.prepare_queries()
        queries = reader.queries()
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(
                insert_with, server.module(job), workload, _MEANWHILE, first=_BEFORE
            )
            over = False
            while not over:
                over = writing.done()
                for name, statement in queries.items():
                    rows = reader.fetch(statement)
                    assert rows, name
                    if name == "count-events":
                        counts.append(rows[0][0])
            recorder = writing.result()
        # With a refresh in between, a database may report events later than it stores them.
        assert all(_BEFORE <= count <= _BEFORE + _MEANWHILE for count in counts)
        assert (recorder.events, recorder.retries, recorder.errors) == (_MEANWHILE, 0, {})
        whole = _BEFORE + _MEANWHILE
        assert await_count(observer.count, whole, observer.settle_s) == whole


def test_readers_begin_before_there_are_events(server: ServerUnderTest) -> None:
    """In a run with writers, an empty answer is right."""
    with server.prepare(new_job(Temperature.schema)) as module:
        module.prepare_queries()
        answers = {name: module.fetch(statement) for name, statement in module.queries().items()}
    assert answers["count-events"] == [(0,)]
    assert answers["newest-per-device"] == []
