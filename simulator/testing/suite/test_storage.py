"""What a module says of its tables' size on disk."""

from __future__ import annotations

import pytest

from ...contract import Storage
from ...modules.base import AnyModule, Module, await_count
from ...workloads.temperature import Temperature
from ..events import insert_with
from ..server import ServerUnderTest, new_job

LEAST_PER_EVENT, MOST_PER_EVENT = 2, 4_000
"""Bytes. Four columns, compressed as well as can be, and with all that a table has before its first event."""


def test_the_size_on_disk_grows_with_the_events(server: ServerUnderTest) -> None:
    if not server.tells_size or server.module_type.storage is Module.storage:
        pytest.skip("nothing tells the size")
    workload = Temperature(seed=8, device_spread=10)
    job = new_job(workload.schema, batch=1_000)
    fill = server.events_for_size
    with server.prepare(job) as observer:
        sizes = [_store(server, observer, workload, number) for number in (1, 2)]
        if server.compacts and observer.compact():
            sizes.append(observer.storage())
        amid = observer.storage_during()
    if amid.reason is None:
        # Nothing is written any more, so it is what is on disk.
        assert amid.total_bytes == pytest.approx(sizes[-1].total_bytes, rel=0.1)
        assert amid.level is None or 0 <= amid.level.events <= 2 * fill or amid.shared
    assert all(size.reason is None and size.source for size in sizes)
    first, second = (size.total_bytes or 0 for size in sizes[:2])
    assert 0 < first < second
    for events, size in zip((fill, 2 * fill, 2 * fill), sizes, strict=False):
        total = size.total_bytes or 0
        assert LEAST_PER_EVENT * events <= total / size.copies <= MOST_PER_EVENT * events
        if size.index_bytes is not None:
            assert (size.data_bytes or 0) + size.index_bytes == total
    own = server.size_on_disk(workload.schema.table)
    if own is not None:
        assert sizes[-1].total_bytes == own


def _store(
    server: ServerUnderTest, observer: AnyModule, workload: Temperature, number: int
) -> Storage:
    fill = server.events_for_size
    insert_with(server.module(observer.job), workload, fill, first=(number - 1) * fill)
    expected = number * fill
    assert await_count(observer.count, expected, observer.settle_s) == expected
    return observer.storage()
