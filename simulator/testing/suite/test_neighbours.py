"""What somebody else has made stays as it is, whatever it is called; what this tool has made goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ...contract import Role, Tables
from ...errors import SimulatorError
from ...modules.base import Job, connect
from ...workloads.temperature import Temperature
from ..events import Sundry, insert_with
from ..server import ServerUnderTest, batch_of, new_job, table_modes
from .test_indexes import need_indexes
from .test_queries import find_indexing

DEVICES = 2


def new_job_of(server: ServerUnderTest, **changes: object) -> Job:
    """A job that inserts events of `Temperature`."""
    encoding = server.module_type.ENCODINGS[0]
    return new_job(
        Temperature(device_spread=DEVICES).schema, batch=batch_of(encoding, 5), **changes
    )


def list_names(job: Job) -> list[str]:
    """All names that runs of the job's workload give to tables."""
    return [*job.all_table_names, job.schema.tags_table]


def test_what_others_made_stays(server: ServerUnderTest) -> None:
    """Under the names of all tables that the run doesn't need, and a run after it finds them, too."""
    workload = Temperature(device_spread=DEVICES)
    for tables in table_modes(server.module_type):
        server.clear()
        job = new_job_of(server, tables=tables)
        others = [name for name in list_names(job) if name not in job.table_names]
        before = {name: server.make_neighbour(name) for name in others}
        for _ in range(2):
            with server.prepare(job) as observer:
                insert_with(server.module(job), workload, 10)
                assert observer.count() == 10
        assert {name: server.read_neighbour(name) for name in others} == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_name_that_is_needed_is_refused(server: ServerUnderTest, clean: bool) -> None:
    """Before anything is dropped or written, whether the run would drop the table or add to it."""
    workload = Temperature(device_spread=DEVICES)
    tables = table_modes(server.module_type)[-1]
    earlier = new_job_of(server)
    job = new_job_of(server, tables=tables, clean=clean)
    needed = job.table_names[-1]
    if tables is Tables.MULTIPLE:
        with server.prepare(earlier):
            insert_with(server.module(earlier), workload, 10)
    before = server.make_neighbour(needed)
    problem = rf"{needed},? .*did not make.*drop them yourself"
    with connect(server.module(job)) as module, pytest.raises(SimulatorError, match=problem):
        module.prepare()
    assert server.read_neighbour(needed) == before
    if tables is Tables.MULTIPLE:
        with connect(server.module(earlier)) as module:
            assert module.count() == 10


def test_what_this_tool_made_goes(server: ServerUnderTest) -> None:
    """Tables of another workload, too, if the database has a place for a mark."""
    job = new_job_of(server)
    if server.marks:
        other = new_job(replace(Sundry.schema, table=job.schema.table))
        with server.prepare(other):
            pass
    for _ in range(2):
        with server.prepare(job) as observer:
            assert observer.count() == 0
            insert_with(server.module(job), Temperature(device_spread=DEVICES), 10)
            assert observer.count() == 10


def test_no_index_is_made_on_what_others_made(server: ServerUnderTest) -> None:
    """Queries may read it; they change nothing."""
    need_indexes(server)
    job = new_job_of(server, role=Role.READ)
    server.make_neighbour(job.schema.table)
    reader, problem = server.module(job, options={"create_indices": "after"}), "did not make"
    with connect(reader), pytest.raises(SimulatorError, match=problem):
        find_indexing(reader).build()
    assert not server.indices(job.schema.table)
