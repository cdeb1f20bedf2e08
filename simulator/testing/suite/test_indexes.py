"""Inserts are measured with the indexes that queries go through, or building them is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ...contract import Tables
from ...errors import SimulatorError
from ...modules.base import AnyModule, Support
from ...modules.indexes import CreateIndices, IndexedModule
from ...workloads.schema import Schema, Tags
from ...workloads.temperature import Temperature
from ..events import insert_with
from ..server import ServerUnderTest, new_job
from .test_queries import fill, find_indexing, prepare_queries, workload_of

_EVENTS = 200


def need_indexes(server: ServerUnderTest) -> None:
    if server.module_type.CAPABILITIES.indices is not Support.FULL:
        pytest.skip("no indexes")


def list_indexes(server: ServerUnderTest, schema: Schema, tables: list[str]) -> set[str]:
    apart = [schema.tags_table] if schema.tags is Tags.TABLE else []
    return {name for table in [*tables, *apart] for name in server.indices(table)}


@pytest.mark.parametrize("when", CreateIndices)
def test_indexes_are_there_when_the_option_says(
    server: ServerUnderTest, when: CreateIndices, tables: Tables
) -> None:
    """Before the first event, after the last one, or never."""
    need_indexes(server)
    for tags in Tags:
        workload = Temperature(seed=3, tags=tags)
        job = new_job(workload.schema, batch=50, tables=tables)
        with server.prepare(job, options={"create_indices": when}) as module:
            assert isinstance(module, IndexedModule)
            names = set(module.index_names)
            assert len(names) == 2 * len(job.table_names) + (tags is Tags.TABLE)
            indexing = find_indexing(module)
            indexing.prepare_inserts()
            before = list_indexes(server, workload.schema, job.table_names)
            assert before == (names if when is CreateIndices.BEFORE else set())
            assert names & set(module.list_indexes()) == before
            insert_with(server.module(job), workload, _EVENTS)
            assert indexing.builds_after_run == (when is CreateIndices.AFTER)
            if indexing.builds_after_run:
                indexing.build()
            after = list_indexes(server, workload.schema, job.table_names)
            assert after == (set() if when is CreateIndices.NO else names)
            assert (indexing.build_s is not None) == (when is CreateIndices.AFTER)


@contextmanager
def prepare_again(server: ServerUnderTest, when: CreateIndices) -> Iterator[AnyModule]:
    """The module of a run that goes on with the events of another one, its tables ready."""
    job = new_job(Temperature.schema, batch=50, clean=False)
    with server.prepare(job, options={"create_indices": when}) as module:
        find_indexing(module).prepare_inserts()
        yield module


def test_each_step_on_growing_data_is_loaded_without_the_indexes_of_after(
    server: ServerUnderTest,
) -> None:
    need_indexes(server)
    fill(server, workload_of("count-events"))
    for _ in range(2):
        with prepare_again(server, CreateIndices.AFTER) as module:
            assert not server.indices("events")
            find_indexing(module).build()
            assert server.indices("events") == {"events_device_ts", "events_temp"}
    refused = r"events_device_ts.*run without --no-clean, or with"
    with pytest.raises(SimulatorError, match=refused), prepare_again(server, CreateIndices.NO):
        pass
    with prepare_again(server, CreateIndices.BEFORE):
        pass


def test_queries_find_no_index_that_no_insert_has_paid_for(server: ServerUnderTest) -> None:
    need_indexes(server)
    fill(server, workload_of("count-events"))
    refused = pytest.raises(SimulatorError, match=r"events_device_ts.*insert again.*=after")
    with refused, prepare_queries(server, Temperature(), {"create_indices": "before"}):
        pass
    assert not server.indices("events")
    with prepare_queries(server, Temperature(), {"create_indices": "after"}):
        assert server.indices("events") == {"events_device_ts", "events_temp"}
    with prepare_queries(server, Temperature(), {"create_indices": "true"}) as module:
        assert find_indexing(module).build_s is None


def test_each_workload_has_its_own_indexes(server: ServerUnderTest) -> None:
    """In one database, whichever is asked about first."""
    need_indexes(server)
    for workload in (workload_of("count-events"), workload_of("last-point")):
        fill(server, workload)
        with prepare_queries(server, workload, {"create_indices": "after"}):
            assert server.indices(workload.schema.table)
