"""Readers beside writers: answers come while events are stored, and all of these are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ...modules.base import await_count, connect
from ...workloads.temperature import Temperature
from ..events import insert_with
from ..server import ServerUnderTest, new_job

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
        # With a refresh between, a database may tell of them later than it has them.
        assert all(_BEFORE <= count <= _BEFORE + _MEANWHILE for count in counts)
        assert (recorder.events, recorder.retries, recorder.errors) == (_MEANWHILE, 0, {})
        whole = _BEFORE + _MEANWHILE
        assert await_count(observer.count, whole, observer.settle_s) == whole


def test_readers_begin_before_there_are_events(server: ServerUnderTest) -> None:
    """In a run with writers: nothing is an answer then."""
    with server.prepare(new_job(Temperature.schema)) as module:
        module.prepare_queries()
        answers = {name: module.fetch(statement) for name, statement in module.queries().items()}
    assert answers["count-events"] == [(0,)]
    assert answers["newest-per-device"] == []
