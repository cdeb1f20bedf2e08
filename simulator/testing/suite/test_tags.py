"""Tags in a table of their own: the same events come out of fewer bytes, in every way of sending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ...contract import PrimaryKey, StoredPart
from ...errors import OptionError, SimulatorError
from ...modules.base import Encoding, Support, connect
from ...oracle.answers import answer, compare_answers
from ...workloads import load_workload
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import Stored, bind
from ...workloads.queries import Query
from ...workloads.schema import number_devices
from ...workloads.temperature import Temperature
from ..events import TESTED, Sundry, insert_with, rows_of
from ..server import Fault, ServerUnderTest, as_observer, batch_of, key_modes, new_job, table_modes
from .test_inserts import stored_as_generated
from .test_queries import EXPECTED, assert_same, fill, prepare_queries, workload_of
from .test_recovery import BATCH, insert_during

DEVICES = 3


def need_table(server: ServerUnderTest) -> None:
    """Skip the test if the module has no table of tags, and check that it says so."""
    schema = Temperature(tags="table").schema
    if server.can_hold(schema):
        return
    with pytest.raises(OptionError, match=r"joins, (for tags=table|which tags=table needs)"):
        server.module(new_job(schema))
    pytest.skip("refuses it")


def test_every_way_of_inserting_stores_events_without_their_tags(
    server: ServerUnderTest, encoding: Encoding
) -> None:
    """All workloads, all key modes, and one table and several, take turns."""
    need_table(server)
    module = server.module_type
    keys, tables = key_modes(module), table_modes(module)
    number = [candidate.label for candidate in module.ENCODINGS].index(encoding.label)
    kinds = list(TESTED.values())
    workload = kinds[number % len(kinds)](seed=5, device_spread=DEVICES, tags="table")
    schema = workload.schema
    key = keys[number % len(keys)]
    job = new_job(
        schema,
        batch=batch_of(encoding, 5),
        primary_key=key,
        tables=tables[number % len(tables)],
    )
    blocks = stored_as_generated(server, job, workload, encoding)
    assert server.tables() == {*job.table_names, schema.tags_table}
    assert count_devices(server, workload) == 2 * DEVICES
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
    """The look-up of an event goes by its device's id, in every key mode and encoding in turn."""
    need_table(server)
    module = server.module_type
    keys = key_modes(module)
    for number, encoding in enumerate(module.ENCODINGS):
        workload = (Temperature, Cpu)[number % 2](seed=1, device_spread=2, tags="table")
        job = new_job(
            workload.schema,
            batch=batch_of(encoding, BATCH),
            primary_key=keys[number % len(keys)],
        )
        insert_during(server, thorough_fault, job, workload, encoding)


def test_a_run_goes_on_with_the_devices_that_are_there(server: ServerUnderTest) -> None:
    """Their ids are those of the run before, and more devices find their place beside them."""
    need_table(server)
    # With twice as many devices, time goes half as fast: it is to go on from where it was.
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
    """Before anything is inserted or asked."""
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
    """In conditions, in figures, as groups and as values, alone and beside those of events."""
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
    """Also those that are tuned for indices, which come last."""
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
                for name, statement in queries.items():
                    assert name.removesuffix("-tuned") in EXPECTED
                    assert_same(module.fetch(statement), name)
