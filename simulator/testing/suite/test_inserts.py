"""What is stored is what was generated: every column of every event, in every way of sending, by the lean
path and the vendor's client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import nullcontext

import pytest

from ...collector.lookup import look_up
from ...contract import Lookup, PrimaryKey, StoredPart, Tables
from ...errors import OptionError
from ...modules.base import Encoding, Job, Support, await_count, connect
from ...modules.capabilities import find_refused_texts
from ...modules.options import LEAN, PREFILL_BATCH
from ...oracle.answers import answer, compare_answers
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import Stored, bind
from ...workloads.queries import Query
from ...workloads.schema import ColumnType, EventBlock
from ...workloads.temperature import Temperature
from ..events import (
    TESTED,
    Awkward,
    NotingRecorder,
    insert,
    insert_with,
    make_texts,
    most_at_once,
    rows_of,
)
from ..server import (
    IN_FLIGHT,
    ServerUnderTest,
    batch_of,
    full,
    new_job,
    table_modes,
    two_key_modes,
    workloads_of,
)
from .test_queries import prepare_queries
from .test_recovery import BATCH, insert_during


def stored_as_generated(
    server: ServerUnderTest,
    job: Job,
    workload: Workload,
    encoding: Encoding | None = None,
    count: int = 23,
) -> list[EventBlock]:
    """Insert with two workers, and compare everything stored and measured. Returns the inserted blocks."""
    blocks = []
    with server.prepare(job, encoding) as observer:
        # With four tables, the second worker's first event goes to the third.
        for worker, first in ((0, 0), (1, 6)):
            module = server.module(job, encoding)
            measured = insert_with(module, workload, count, worker=worker, first=first).result()
            block = workload.block(worker, first, count)
            assert (measured.count, measured.retries, measured.errors) == (count, 0, {})
            assert measured.histogram.count == len(module.writer().encoder.encode(block))
            blocks.append(block)
        assert await_count(observer.count, 2 * count, observer.settle_s) == 2 * count
    check_dealt(server, job, *blocks)
    return blocks


def insert_alone(
    server: ServerUnderTest,
    job: Job,
    workload: Workload,
    count: int,
    encoding: Encoding,
    options: Mapping[str, str],
    first: int = 0,
) -> NotingRecorder:
    """Insert with one worker: everything is stored as generated, each request at the first try."""
    with server.prepare(job, encoding) as observer:
        module = server.module(job, encoding, options)
        recorder = insert_with(module, workload, count, first=first)
        assert (recorder.events, recorder.retries, recorder.errors) == (count, 0, {})
        assert await_count(observer.count, count, observer.settle_s) == count
    check_dealt(server, job, workload.block(0, first, count))
    return recorder


def check_dealt(server: ServerUnderTest, job: Job, *blocks: EventBlock) -> None:
    """Each of the job's tables has its share of these events, and nothing else."""
    tables = job.table_names
    for number, table in enumerate(tables):
        dealt = [
            block.part((number - block.first) % len(tables), len(block), len(tables))
            for block in blocks
        ]
        assert server.rows(job.schema, table) == sorted(rows_of(*dealt)), table


def check_tables(server: ServerUnderTest, job: Job) -> None:
    """The job's tables exist and no others, with the schema's columns."""
    assert server.tables() == set(job.table_names)
    for name in job.table_names:
        columns = server.columns(name)
        key = columns.pop("id", None)
        assert columns == server.expected_columns(job.schema)
        assert (key is None) == (job.load.primary_key in server.keyless)


def test_every_way_of_inserting_stores_the_events(
    server: ServerUnderTest, encoding: Encoding, primary_key: PrimaryKey, tables: Tables
) -> None:
    workload = Temperature(seed=3, device_spread=3)
    # 23 events in batches of 5: the last request is smaller, and not a multiple of four tables.
    job = new_job(
        workload.schema, batch=batch_of(encoding, 5), primary_key=primary_key, tables=tables
    )
    names = ["events0", "events1", "events2", "events3"] if tables == "multiple" else ["events"]
    assert job.table_names == names
    blocks = stored_as_generated(server, job, workload, encoding)
    check_tables(server, job)

    keys = [key for table in job.table_names for key in server.keys(table)]
    if primary_key in server.keyless:
        assert not keys
        return
    if tables is Tables.SINGLE:
        assert len(set(keys)) == 46
    if primary_key is PrimaryKey.UUID:
        assert all(uuid.UUID(key) for key in keys)
    if primary_key is PrimaryKey.CLIENT:
        expected = [
            f"{device}{time:013d}{number:012d}"
            for block in blocks
            for time, device, number, _ in rows_of(block)
        ]
        assert sorted(keys) == sorted(expected)


def test_events_are_looked_up_in_all_tables(server: ServerUnderTest) -> None:
    workload = Temperature(seed=5, device_spread=3)
    batch = batch_of(server.module_type.ENCODINGS[0], 5)
    job = new_job(workload.schema, batch=batch, tables=Tables.MULTIPLE)
    with server.prepare(job) as observer:
        insert_with(server.module(job), workload, 23)
        assert await_count(observer.count, 23, observer.settle_s) == 23
        lookup = look_up(observer, workload, [StoredPart(0, 0, 23)])
        assert lookup == Lookup(events=23, missing=0, doubled=0, per_group=1)
        lookup = look_up(observer, workload, [StoredPart(0, 0, 20), StoredPart(1, 0, 2)])
        assert (lookup.missing, lookup.doubled) == (2, 3)


def test_every_way_of_inserting_holds_several_requests_in_flight(
    server: ServerUnderTest, pipelined: Encoding
) -> None:
    workload = Temperature(seed=4, device_spread=3)
    job = new_job(workload.schema, batch=batch_of(pipelined, 5), in_flight=IN_FLIGHT)
    # So many that a moment without CPU for the client makes no difference.
    insert_in_flight(server, job, workload, 100, pipelined)


def insert_in_flight(
    server: ServerUnderTest,
    job: Job,
    workload: Workload,
    requests: int,
    encoding: Encoding,
    client: str = LEAN,
) -> None:
    """Insert with a client in about this many requests, several at once: all events are stored."""
    count = requests * max(1, job.load.batch) - 2
    recorder = insert_alone(server, job, workload, count, encoding, {"client": client})
    # How many more than one also depends on the machine.
    assert 1 < most_at_once(recorder) <= IN_FLIGHT


def test_every_workload_is_stored(
    server: ServerUnderTest, encoding: Encoding, either_key: PrimaryKey, workload_name: str
) -> None:
    tags = {"extra_tags": 2} if workload_name == Cpu.name else {}
    workload = TESTED[workload_name](seed=5, device_spread=4, **tags)
    job = new_job(workload.schema, batch=batch_of(encoding, 8), primary_key=either_key)
    stored_as_generated(server, job, workload, encoding)
    assert server.tables() == {workload.schema.table}
    values = {column.name for column in workload.schema.columns}
    values -= {workload.schema.time, workload.schema.device}
    assert values <= set(server.columns(workload.schema.table))


def make_awkward(server: ServerUnderTest) -> Awkward:
    """Events with all integers that the module's database supports."""
    workload, can = Awkward(device_spread=3), server.module_type.CAPABILITIES
    workload.int32_range, workload.int64_range = can.int32_range, can.int64_range
    return workload


def test_encoders_follow_the_schema(
    server: ServerUnderTest, encoding: Encoding, either_key: PrimaryKey, tables: Tables
) -> None:
    """A workload unknown to the encoders, with everything that needs escaping."""
    if server.module_type.CAPABILITIES.workload(Awkward.schema) is not Support.FULL:
        pytest.skip("the module doesn't store it")
    workload = make_awkward(server)
    job = new_job(
        workload.schema, batch=batch_of(encoding, 7), primary_key=either_key, tables=tables
    )
    # Enough for all texts to occur with all documents.
    stored_as_generated(server, job, workload, encoding, count=90)
    check_tables(server, job)


def test_many_events(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are generated at once, in large batches."""
    monkeypatch.setattr("simulator.worker.feed._CHUNK_EVENTS", 1000)
    workload = Temperature(device_spread=10)
    job = new_job(workload.schema, batch=1000)
    stored_as_generated(server, job, workload, count=2_300)


@pytest.mark.parametrize("batch", [1, 1000])
def test_batches_of_one_and_larger_than_the_run(server: ServerUnderTest, batch: int) -> None:
    workload = Temperature()
    for tables in table_modes(server.module_type):
        job = new_job(workload.schema, batch=batch, tables=tables)
        stored_as_generated(server, job, workload)


def test_prefill_stores_the_events_by_whatever_way_the_target_allows(
    server: ServerUnderTest, encoding: Encoding, tables: Tables
) -> None:
    workload, count = Temperature(), 2 * PREFILL_BATCH + 500
    job = new_job(workload.schema, batch=batch_of(encoding, 10), tables=tables)
    with (
        server.prepare(job, encoding),
        connect(server.module(job, encoding).for_prefill().writer()) as writer,
    ):
        recorder = insert(writer, workload, count)
    assert recorder.result().histogram.count == 3
    assert server.rows(job.schema, *job.table_names) == sorted(rows_of(workload.block(0, 0, count)))


def test_modes_and_encodings_agree(server: ServerUnderTest) -> None:
    module = server.module_type
    labels = {encoding.label.split()[0] for encoding in module.ENCODINGS}
    assert labels == set(full(module.CAPABILITIES.insert_modes))


def test_a_mode_that_does_not_fit_the_batch_is_refused(
    server: ServerUnderTest, encoding: Encoding
) -> None:
    if "insert_mode" not in encoding.options:
        pytest.skip("the module has no modes that go by the batch")
    batch = 0 if encoding.batched else 10
    with pytest.raises(OptionError, match=encoding.label.split()[0]):
        server.module(new_job(Temperature.schema, batch=batch), encoding)


def check_stored(
    server: ServerUnderTest, official: tuple[str, Encoding], workload: Workload, tables: Tables
) -> None:
    """Insert with the client: everything is stored as generated, as by the lean path."""
    client, encoding = official
    key = two_key_modes(server.module_type)[-1]
    job = new_job(workload.schema, batch=batch_of(encoding, 10), tables=tables, primary_key=key)
    insert_alone(server, job, workload, 45, encoding, {"client": client}, first=3)


def test_an_official_client_stores_events_of_all_types(
    server: ServerUnderTest, official: tuple[str, Encoding]
) -> None:
    """Including missing values, if the database supports them."""
    names = workloads_of(server.module_type)
    workload = TESTED["sundry" if "sundry" in names else names[-1]](seed=5, device_spread=4)
    check_stored(server, official, workload, Tables.SINGLE)


def test_an_official_client_stores_awkward_events_in_several_tables(
    server: ServerUnderTest, official_client: tuple[str, Encoding]
) -> None:
    """Texts with everything that some format escapes."""
    tables = table_modes(server.module_type)[-1]
    check_stored(server, official_client, make_awkward(server), tables)


def test_an_official_client_stores_events_exactly_once(
    server: ServerUnderTest, official_client: tuple[str, Encoding]
) -> None:
    client, encoding = official_client
    faults = [fault for fault in type(server).FAULTS if fault.thorough]
    workload = Temperature(seed=1, device_spread=2)
    key = two_key_modes(server.module_type)[-1]
    for fault in faults[:1]:
        job = new_job(workload.schema, batch=batch_of(encoding, BATCH), primary_key=key)
        insert_during(server, fault, job, workload, encoding, client)


def test_an_official_client_holds_several_requests_in_flight(
    server: ServerUnderTest, official_in_flight: tuple[str, Encoding]
) -> None:
    client, encoding = official_in_flight
    workload = Temperature(seed=4, device_spread=3)
    job = new_job(workload.schema, batch=batch_of(encoding, 5), in_flight=IN_FLIGHT)
    insert_in_flight(server, job, workload, 30, encoding, client)


def test_only_the_clients_that_a_module_has_can_be_chosen(server: ServerUnderTest) -> None:
    clients = server.module_type.official_clients()
    with pytest.raises(OptionError, match=r"has no client=offical.*\(known: lean") as refused:
        server.module(new_job(Temperature.schema), options={"client": "offical"})
    assert "\n" not in str(refused.value)
    assert all(name in str(refused.value) for name in clients)
    for name, client in clients.items():
        for encoding in server.module_type.ENCODINGS:
            job = new_job(Temperature.schema, batch=batch_of(encoding, 10))
            if encoding.label.split()[0] not in client.ways:
                with pytest.raises(OptionError, match="can't insert in mode"):
                    server.module(job, encoding, {"client": name})
                continue
            module = server.module(job, encoding, {"client": name})
            assert set(client.packages) <= set(module.packages)
            several = new_job(Temperature.schema, batch=job.load.batch, in_flight=IN_FLIGHT)
            if not client.in_flight:
                with pytest.raises(OptionError, match="holds one request in flight"):
                    server.module(several, encoding, {"client": name})


AWKWARD_TEXTS = {
    "quotes": ['say "\\"', "it''s", "a\\, b=c d", "\\N", "$1 %s {} ?", "ﬀ", "🌡"],
    "tabs": ["\t", "a\tb", "\x0b", "\x1f\x85\u2028x"],
    "breaks": ["\n", "a\n,b", "back\\"],
    "returns": ["\r", "a\r\n,b", "c\r"],
}
_TEXT_EVENTS = 40

kinds = pytest.mark.parametrize("kind", AWKWARD_TEXTS)


def find_workload(server: ServerUnderTest, kind: str) -> Workload:
    """Events with these texts, also in columns of their own if the module supports that."""
    can_hold = ColumnType.TEXT in server.module_type.CAPABILITIES.column_types
    return make_texts(AWKWARD_TEXTS[kind], in_events=can_hold)


def check_kept(
    server: ServerUnderTest, workload: Workload, encoding: Encoding, options: Mapping[str, str]
) -> None:
    job = new_job(workload.schema, batch=batch_of(encoding, 10))
    insert_alone(server, job, workload, _TEXT_EVENTS, encoding, options)


@kinds
def test_texts_are_kept_or_refused(server: ServerUnderTest, kind: str) -> None:
    can, workload = server.module_type.CAPABILITIES, find_workload(server, kind)
    schema = workload.schema
    if not server.can_hold(schema):
        with pytest.raises(OptionError, match="use another value"):
            can.require_workload(schema, "texts", server.module_type.name)
        return
    for encoding in server.module_type.ENCODINGS:
        check_kept(server, workload, encoding, {})
    query = Query(name="all", events=tuple(column.name for column in schema.columns))
    if not schema.shapes_of(query) <= frozenset(can.shapes):
        return
    bound = bind(query, schema.epoch_ms)
    right = answer(bound, Stored(workload, [StoredPart(0, 0, _TEXT_EVENTS)]))
    clients = server.module_type.CLIENTS
    for options in [{"client": name} for name, client in clients.items() if client.asker]:
        with prepare_queries(server, workload, options) as module, connect(module.asker()) as asker:
            received = asker.ask(asker.encode_statement(module.compile(bound)))
            assert received.rows == _TEXT_EVENTS
            assert compare_answers(right, asker.decode(received)) is None


@kinds
def test_an_official_client_keeps_the_texts(
    server: ServerUnderTest, official_client: tuple[str, Encoding], kind: str
) -> None:
    client, encoding = official_client
    workload = find_workload(server, kind)
    if not server.can_hold(workload.schema):
        pytest.skip("refused, as tried above")
    refused = server.module_type.CLIENTS[client].refused_texts
    expected = (
        pytest.raises(OptionError, match="use another value")
        if any(find_refused_texts(refused, workload.schema))
        else nullcontext()
    )
    with expected:
        check_kept(server, workload, encoding, {"client": client})
