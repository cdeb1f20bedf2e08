"""Stored means whole: an event of which a part is lost counts as lost, wherever the parts are kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ...collector.counting import EVENTS, count_values
from ...collector.database import Preparation
from ...collector.lookup import look_up
from ...collector.report import count_stored
from ...contract import DataSet, Lookup, RunSettings, StoredPart, Tables, Verification, make_groups
from ...modules.base import AnyModule, Job, await_count, connect
from ...workloads.base import Workload
from ...workloads.schema import EventBlock
from ...workloads.temperature import Temperature
from ..events import Sparse, Sundry, insert, insert_with, store_devices_of
from ..server import ServerUnderTest, as_observer, new_job
from .test_tags import need_table

COUNT, DEVICES = 60, 3


def count_there(block: EventBlock, name: str) -> int:
    """How many events have a value in a column."""
    missing = block.missing.get(name)
    return len(block) if missing is None else int(np.count_nonzero(~missing))


@pytest.mark.parametrize("kind", [Sparse, Sundry])
def test_an_event_that_lost_a_value_is_not_whole(
    server: ServerUnderTest, tables: Tables, kind: type[Workload]
) -> None:
    """Counted for each column, and looked up for each event: with events that never had a value, and late
    ones."""
    workload = kind(seed=8, device_spread=DEVICES)
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    job = new_job(workload.schema, batch=20, tables=tables)
    names = server.module(job).list_kept_apart()
    if not names:
        pytest.skip("it keeps an event in one piece")
    with server.prepare(job) as observer:
        block, parts = workload.block(0, 0, COUNT), [StoredPart(0, 0, COUNT)]
        insert_with(server.module(job), workload, COUNT)
        assert await_count(observer.count, COUNT, observer.settle_s) == COUNT
        due = {EVENTS: COUNT} | {name: count_there(block, name) for name in names}
        assert count_values(observer) == due
        whole = Lookup(events=COUNT, missing=0, incomplete=0, doubled=0, per_group=1)
        assert look_up(observer, workload, parts) == whole

        lost = np.zeros(COUNT, dtype=np.bool_)
        # An event may lose several values; it is missing once. The last column is what events are counted by.
        fields = [column for column in workload.schema.columns if column.name in names]
        nullable = next(column.name for column in fields if column.nullable)
        first, second = (device.decode() for device in block.devices[:2].tolist())
        losses = {first: [nullable, fields[-2].name], second: [fields[-1].name]}
        server.lose_values(job, block, losses)
        for device, losing in losses.items():
            own = np.flatnonzero(block.devices == device.encode())
            for name in losing:
                there = own[~block.missing[name][own]] if name in block.missing else own
                lost[there] = True
                due[name] -= len(there)
        check_counted(observer, workload, {name: due[name] for name in names}, lost)
        missing = int(np.count_nonzero(lost))
        found = look_up(observer, workload, parts)
        assert found == whole.model_copy(
            update={"missing": missing, "incomplete": found.incomplete}
        )
        # Where nothing is left of what events are counted by, they look as if they were gone altogether.
        assert 0 < found.incomplete <= missing
    check_next_run(server, job, workload)


def describe_run(job: Job, **data: Any) -> RunSettings:
    """Settings of a run of one writer."""
    return RunSettings(
        run_id=job.run_id, token="", target="x", module="x", options={}, data=DataSet(**data),
        groups=make_groups(job.load),
    )  # fmt: skip


def find_lacking(block: EventBlock) -> dict[str, int]:
    """As writers tell it."""
    return {name: len(block) - count_there(block, name) for name in block.missing}


def check_counted(
    observer: AnyModule, workload: Workload, there: Mapping[str, int], lost: NDArray[np.bool_]
) -> None:
    """The run's count says which columns lack values, and that no more events are whole than these columns
    have values."""
    lacking = find_lacking(workload.block(0, 0, COUNT))
    prepared = Preparation(describe_run(observer.job), observer, workload)
    verification, values = count_stored(describe_run(observer.job), prepared, COUNT, lacking)
    assert {name: values[name] for name in there} == there
    due = {name: COUNT - lacking.get(name, 0) for name in there}
    wrong = {name: (there[name], due[name]) for name in there if there[name] != due[name]}
    assert (verification.ok, verification.columns) == (False, wrong)
    assert verification.stored == COUNT - max(after - before for before, after in wrong.values())
    assert verification.partial == COUNT - verification.stored <= np.count_nonzero(lost)


def check_next_run(server: ServerUnderTest, job: Job, workload: Workload) -> None:
    """What was lost before a run is not lost in it."""
    settings = describe_run(job, clean=False)
    module = server.module(replace(as_observer(job), clean=False))
    prepared = Preparation(settings, module, workload)
    try:
        prepared.prepare()
        assert prepared.baseline == COUNT
        insert_with(server.module(job), workload, 20, first=COUNT)
        lacking = find_lacking(workload.block(0, COUNT, 20))
        verification, _ = count_stored(settings, prepared, COUNT + 20, lacking)
        assert verification == Verification(
            expected=COUNT + 20, stored=COUNT + 20, ok=True, partial=0
        )
    finally:
        prepared.close()


def test_an_event_whose_tags_are_lost_is_missing(server: ServerUnderTest) -> None:
    need_table(server)
    workload = Temperature(seed=8, device_spread=DEVICES, tags="table")
    job = new_job(workload.schema, batch=5)
    rows = list(workload.device_rows(0))
    with server.prepare(job) as observer:
        with connect(server.module(job)) as module:
            module.store_devices(
                [{name: values[1:] for name, values in some.items()} for some in rows]
            )
            with connect(module.writer()) as writer:
                insert(writer, workload, COUNT)
        assert await_count(observer.count, COUNT, observer.settle_s) == COUNT
        lookup = look_up(observer, workload, [StoredPart(0, 0, COUNT)])
        assert (lookup.missing, lookup.doubled) == (COUNT // DEVICES, 0)
        lost = Preparation(describe_run(job), observer, workload).find_lost_devices([0])
        assert lost == [f"table events_tags has {DEVICES - 1} devices instead of {DEVICES}"]
        # Where others' are there, too, their number doesn't tell.
        store_devices_of(server.module(job), workload, 1)
        after = Preparation(describe_run(job, clean=False), observer, workload)
        text = f"{COUNT // DEVICES} events have no row in table events_tags"
        assert after.find_lost_devices([0]) == [text]
        store_devices_of(server.module(job), workload, 0)
        assert after.find_lost_devices([0]) == []
