"""Events that are stored in parts: with tags in a separate table, or each value by itself. They take fewer
bytes for the same events, and an event that lost a part counts as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ...collector.database import EVENTS, Preparation, count_values
from ...collector.lookup import look_up
from ...collector.report import count_stored
from ...contract import (
    DataSet,
    Lookup,
    PrimaryKey,
    RunSettings,
    StoredPart,
    Tables,
    Verification,
    make_groups,
)
from ...errors import OptionError, SimulatorError
from ...modules.base import AnyModule, Encoding, Job, Support, await_count, connect
from ...oracle.answers import answer, compare_answers
from ...workloads import load_workload
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import Stored, bind
from ...workloads.queries import Query
from ...workloads.schema import EventBlock, number_devices
from ...workloads.temperature import Temperature
from ..events import TESTED, Sparse, Sundry, insert, insert_with, rows_of, store_devices_of
from ..server import Fault, ServerUnderTest, as_observer, batch_of, key_modes, new_job, table_modes
from .test_inserts import stored_as_generated
from .test_queries import check_answer, fill, prepare_queries, workload_of
from .test_recovery import BATCH, insert_during

_DEVICES = 3


def need_table(server: ServerUnderTest) -> None:
    """Skip the test if the module has no tags' table, after checking that it says so."""
    schema = Temperature(tags="table").schema
    if server.can_hold(schema):
        return
    with pytest.raises(OptionError, match=r"joins, (for tags=table|which tags=table needs)"):
        server.module(new_job(schema))
    pytest.skip("refuses it")


def test_every_way_of_inserting_stores_events_without_their_tags(
    server: ServerUnderTest, encoding: Encoding
) -> None:
    """All workloads and all key modes, with one table and with several, in turn."""
    need_table(server)
    module = server.module_type
    keys, tables = key_modes(module), table_modes(module)
    number = [candidate.label for candidate in module.ENCODINGS].index(encoding.label)
    kinds = list(TESTED.values())
    workload = kinds[number % len(kinds)](seed=5, device_spread=_DEVICES, tags="table")
    schema = workload.schema
    key = keys[number % len(keys)]
    job = new_job(
        schema, batch=batch_of(encoding, 5), primary_key=key, tables=tables[number % len(tables)]
    )
    blocks = stored_as_generated(server, job, workload, encoding)
    assert server.tables() == {*job.table_names, schema.tags_table}
    assert count_devices(server, workload) == 2 * _DEVICES
    columns = set(server.columns(job.table_names[0])) - {"id"}
    assert columns == set(server.expected_columns(replace(schema, columns=schema.row)))
    if key is PrimaryKey.CLIENT:
        stored = [client_key for table in job.table_names for client_key in server.keys(table)]
        ids = [
            device_id for block in blocks for device_id in number_devices(block.devices).tolist()
        ]
        assert sorted(int(client_key[:11]) for client_key in stored) == sorted(ids)


def count_devices(server: ServerUnderTest, workload: Workload) -> int | None:
    with connect(server.module(as_observer(new_job(workload.schema)))) as module:
        return module.count_devices()


def test_exactly_once_by_the_id(server: ServerUnderTest, thorough_fault: Fault) -> None:
    """Events are looked up by their device's id, in every key mode and encoding in turn."""
    need_table(server)
    module = server.module_type
    keys = key_modes(module)
    for number, encoding in enumerate(module.ENCODINGS):
        workload = (Temperature, Cpu)[number % 2](seed=1, device_spread=2, tags="table")
        job = new_job(
            workload.schema, batch=batch_of(encoding, BATCH), primary_key=keys[number % len(keys)]
        )
        insert_during(server, thorough_fault, job, workload, encoding)


def test_a_run_goes_on_with_the_devices_that_are_there(server: ServerUnderTest) -> None:
    """Their ids are those of the previous run, and further devices get ids of their own."""
    need_table(server)
    # With twice as many devices, time passes half as fast: it must continue where it was.
    for run, (devices, first) in enumerate(((2, 0), (2, 8), (4, 32))):
        workload = Sundry(seed=2, device_spread=devices, tags="table")
        job = new_job(workload.schema, batch=4, clean=not first)
        with server.prepare(job) as observer:
            insert_with(server.module(job), workload, 8, worker=1, first=first)
            assert observer.count() == 8 * run + 8
            assert observer.count_devices() == devices
    old, new = (Sundry(seed=2, device_spread=devices, tags="table") for devices in (2, 4))
    blocks = [old.block(1, 0, 16), new.block(1, 32, 8)]
    assert server.rows(new.schema, new.schema.table) == sorted(rows_of(*blocks))


def test_tables_with_tags_elsewhere_are_told_apart(server: ServerUnderTest) -> None:
    """Before anything is inserted or queried."""
    need_table(server)
    for before, after in (("row", "table"), ("table", "row")):
        fill(server, Temperature(tags=before), [(0, 0, 5)])
        schema = Temperature(tags=after).schema
        with connect(server.module(new_job(schema, clean=False))) as module:
            for prepare in (module.prepare, module.prepare_queries):
                with pytest.raises(SimulatorError, match=r"tags=row or table|no table events_tags"):
                    prepare()


TRUCKS = load_workload("trucks")(seed=4, devices=4, tags="table")
READING: Sequence[dict[str, object]] = (
    {"events": ["truck", "fleet", "velocity"], "where": {"column": "load_capacity", "above": 1800}},
    {"events": ["velocity", "driver"], "devices": ["w00000d000001"], "newest": True},
    {"events": ["fuel_capacity", "velocity"], "newest": True, "order": {"by": 1}},
    {"events": ["measured_at", "load_capacity"], "order": {"by": 0}, "limit": 4},
    {"compute": [{"function": "max", "column": "load_capacity"}], "per": ["truck"]},
    {
        "compute": [{"function": "sum", "column": "fuel_capacity"}],
        "where": {"column": "velocity", "above": 5},
    },
    {
        "compute": [{"function": "min", "column": "fuel_capacity"}, {"function": "count"}],
        "per": ["fleet", {"every": "1m"}],
        "devices": ["w00000d000000", "w00000d000002"],
        "where": {"column": "fuel_capacity", "below": 250},
    },
    {"compute": [{"function": "avg", "column": "velocity"}], "per": ["fleet", "truck"]},
    {"compute": [{"function": "last", "column": "velocity"}], "per": ["model", "truck"]},
)


def test_tags_are_read_in_every_place(server: ServerUnderTest) -> None:
    """In conditions, in figures, as groups and as values, alone and together with events' columns."""
    need_table(server)
    fill(server, TRUCKS, [(0, 0, 200)])
    stored = Stored(TRUCKS, [StoredPart(0, 0, 200)])
    wrong = {}
    with prepare_queries(server, TRUCKS) as module:
        for values in READING:
            query = Query.model_validate({"name": "reading", **values})
            TRUCKS.schema.check_query(query)
            bound = bind(query, TRUCKS.schema.epoch_ms)
            problem = compare_answers(answer(bound, stored), module.fetch(module.compile(bound)))
            if problem:
                wrong[bound] = problem
    assert not wrong


def test_own_queries_have_the_same_answers(server: ServerUnderTest) -> None:
    """Including those tuned for indexes, which come last."""
    need_table(server)
    names = server.queries_of(server.module_type)
    for kind in (Temperature, Cpu):
        own = [name for name in names if name.removesuffix("-tuned") in kind.schema.queries]
        devices = workload_of(own[0]).device_spread
        workload = kind(seed=workload_of(own[0]).seed, device_spread=devices, tags="table")
        fill(server, workload)
        indexable = server.module_type.CAPABILITIES.indices is Support.FULL
        for indexed in (False, True) if indexable else (False,):
            options = {"create_indices": "after" if indexed else "no"} if indexable else {}
            with prepare_queries(server, workload, options) as module:
                queries = module.queries()
                assert list(queries) == (own if indexed else list(kind.schema.queries))
                for name in queries:
                    check_answer(module, name)


_COUNT = 60


def count_there(block: EventBlock, name: str) -> int:
    """How many events have a value in a column."""
    missing = block.missing.get(name)
    return len(block) if missing is None else int(np.count_nonzero(~missing))


@pytest.mark.parametrize("kind", [Sparse, Sundry])
def test_an_event_that_lost_a_value_is_not_whole(
    server: ServerUnderTest, tables: Tables, kind: type[Workload]
) -> None:
    """Counted by column and looked up by event, with events that never had a value, and late ones."""
    workload = kind(seed=8, device_spread=_DEVICES)
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    job = new_job(workload.schema, batch=20, tables=tables)
    names = server.module(job).list_kept_apart()
    if not names:
        pytest.skip("it keeps an event in one piece")
    with server.prepare(job) as observer:
        block, parts = workload.block(0, 0, _COUNT), [StoredPart(0, 0, _COUNT)]
        insert_with(server.module(job), workload, _COUNT)
        assert await_count(observer.count, _COUNT, observer.settle_s) == _COUNT
        due = {EVENTS: _COUNT} | {name: count_there(block, name) for name in names}
        assert count_values(observer) == due
        whole = Lookup(events=_COUNT, missing=0, incomplete=0, doubled=0, per_group=1)
        assert look_up(observer, workload, parts) == whole

        lost = np.zeros(_COUNT, dtype=np.bool_)
        # An event may lose several values, but is missing once. The last column is the one by which events
        # are counted.
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
        # If the value by which events are counted is gone, too, an event looks as if it were missing
        # entirely.
        assert 0 < found.incomplete <= missing
    check_next_run(server, job, workload)


def describe_run(job: Job, **data: Any) -> RunSettings:
    """Settings of a run of one writer."""
    return RunSettings(
        run_id=job.run_id, token="", target="x", module="x", options={}, data=DataSet(**data),
        groups=make_groups(job.load),
    )  # fmt: skip


def find_lacking(block: EventBlock) -> dict[str, int]:
    """The counts in the form in which writers report them."""
    return {name: len(block) - count_there(block, name) for name in block.missing}


def check_counted(
    observer: AnyModule, workload: Workload, there: Mapping[str, int], lost: NDArray[np.bool_]
) -> None:
    """The run's count names the columns that lack values: no more events are complete than these have
    values."""
    lacking = find_lacking(workload.block(0, 0, _COUNT))
    prepared = Preparation(describe_run(observer.job), observer, workload)
    verification, values = count_stored(describe_run(observer.job), prepared, _COUNT, lacking)
    assert {name: values[name] for name in there} == there
    due = {name: _COUNT - lacking.get(name, 0) for name in there}
    wrong = {name: (there[name], due[name]) for name in there if there[name] != due[name]}
    assert (verification.ok, verification.columns) == (False, wrong)
    assert verification.stored == _COUNT - max(after - before for before, after in wrong.values())
    assert verification.partial == _COUNT - verification.stored <= np.count_nonzero(lost)


def check_next_run(server: ServerUnderTest, job: Job, workload: Workload) -> None:
    """What was lost before a run doesn't count as lost in it."""
    settings = describe_run(job, clean=False)
    module = server.module(replace(as_observer(job), clean=False))
    prepared = Preparation(settings, module, workload)
    try:
        prepared.prepare()
        assert prepared.baseline == _COUNT
        insert_with(server.module(job), workload, 20, first=_COUNT)
        lacking = find_lacking(workload.block(0, _COUNT, 20))
        verification, _ = count_stored(settings, prepared, _COUNT + 20, lacking)
        assert verification == Verification(
            expected=_COUNT + 20, stored=_COUNT + 20, ok=True, partial=0
        )
    finally:
        prepared.close()


def test_an_event_whose_tags_are_lost_is_missing(server: ServerUnderTest) -> None:
    need_table(server)
    workload = Temperature(seed=8, device_spread=_DEVICES, tags="table")
    job = new_job(workload.schema, batch=5)
    rows = list(workload.device_rows(0))
    with server.prepare(job) as observer:
        with connect(server.module(job)) as module:
            module.store_devices(
                [{name: values[1:] for name, values in some.items()} for some in rows]
            )
            with connect(module.writer()) as writer:
                insert(writer, workload, _COUNT)
        assert await_count(observer.count, _COUNT, observer.settle_s) == _COUNT
        lookup = look_up(observer, workload, [StoredPart(0, 0, _COUNT)])
        assert (lookup.missing, lookup.doubled) == (_COUNT // _DEVICES, 0)
        lost = Preparation(describe_run(job), observer, workload).find_lost_devices([0])
        assert lost == [f"table events_tags has {_DEVICES - 1} devices instead of {_DEVICES}"]
        # If others' devices are there, too, their number proves nothing.
        store_devices_of(server.module(job), workload, 1)
        after = Preparation(describe_run(job, clean=False), observer, workload)
        text = f"{_COUNT // _DEVICES} events have no row in table events_tags"
        assert after.find_lost_devices([0]) == [text]
        store_devices_of(server.module(job), workload, 0)
        assert after.find_lost_devices([0]) == []
