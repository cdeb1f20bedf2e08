"""Tables: made as requested, with the indexes that queries use, and dropped only on request and only if this
tool made them; and what they take on disk."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from ...contract import PrimaryKey, Role, Tables
from ...errors import OptionError, Retryable, SimulatorError
from ...modules import check_versions, find_number
from ...modules.base import AnyModule, Job, Module, Support, await_count, connect
from ...modules.kit.module import CreateIndices, IndexedModule
from ...modules.kit.own_tables import TRIAL, OwnTablesModule
from ...modules.own_statements import list_shaping
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.schema import Schema, Tags
from ...workloads.temperature import Temperature
from ..events import TESTED, Awkward, Sparse, Sundry, insert_with, rows_of
from ..server import ServerUnderTest, as_observer, batch_of, new_job, table_modes
from .test_queries import fill, find_indexing, prepare_queries, workload_of

SCHEMA = Temperature.schema

_VISIBLE_S = 5.0


def prepare_tables(server: ServerUnderTest, job: Job) -> None:
    """Prepare like the collector."""
    with connect(server.module(job)) as module:
        module.prepare()


def insert_some(server: ServerUnderTest, job: Job, count: int = 8, first: int = 0) -> None:
    kinds: list[type[Workload]] = [*TESTED.values(), Awkward]
    workload = next(kind() for kind in kinds if kind.schema is job.schema)
    insert_with(server.module(job), workload, count, first=first)


def make_tables(server: ServerUnderTest, job: Job) -> None:
    """Prepare, and make the tables visible."""
    prepare_tables(server, job)
    if server.tables_come_with_events:
        insert_some(server, job)


def count_events(server: ServerUnderTest, job: Job, expected: int = 0) -> int | None:
    """Events in the tables. A busy server may take a moment to show the last of the `expected` ones."""
    with connect(server.module(as_observer(job))) as module:
        return await_count(module.count, expected, max(_VISIBLE_S, module.settle_s))


def test_prepare_keeps_earlier_data_otherwise(server: ServerUnderTest, tables: Tables) -> None:
    job = new_job(SCHEMA, tables=tables, clean=False)
    prepare_tables(server, job)
    insert_some(server, job)
    prepare_tables(server, job)
    assert count_events(server, job, 8) == 8
    insert_some(server, job, first=8)
    assert server.rows(SCHEMA, *job.table_names) == sorted(rows_of(Temperature().block(0, 0, 16)))


def test_cleaning_drops_the_tables_of_either_table_mode(server: ServerUnderTest) -> None:
    """With their events. Each mode follows itself and the other."""
    modes = table_modes(server.module_type)
    for tables in (*modes, *reversed(modes), modes[0]):
        job = new_job(SCHEMA, tables=tables)
        prepare_tables(server, job)
        assert count_events(server, job) == 0
        insert_some(server, job)
        assert server.tables() == set(job.table_names)


def test_cleaning_leaves_other_tables_alone(server: ServerUnderTest) -> None:
    stores = server.module_type.CAPABILITIES.workload
    workload = next(kind for kind in (Awkward, Cpu) if stores(kind.schema) is Support.FULL)
    other = new_job(workload.schema)
    make_tables(server, other)
    rows = server.rows(other.schema, other.schema.table)
    for _ in range(2):
        make_tables(server, new_job(SCHEMA))
        assert server.tables() == {other.schema.table, "events"}
    assert server.rows(other.schema, other.schema.table) == rows


def test_count_before_prepare_says_what_to_do(server: ServerUnderTest) -> None:
    if not server.tells_missing_tables:
        assert count_events(server, new_job(SCHEMA)) == 0
        return
    with pytest.raises(SimulatorError, match="run insert first"):
        count_events(server, new_job(SCHEMA))


def test_a_lost_connection_costs_one_count(server: ServerUnderTest) -> None:
    """The collector counts after the run: a connection that died meanwhile must not end it."""
    if server.in_process:
        pytest.skip("there is no connection")
    job = new_job(SCHEMA)
    prepare_tables(server, job)
    insert_some(server, job)
    # A run of its own: a server may notice late that earlier connections have ended.
    job = new_job(SCHEMA)
    with connect(server.module(job)) as module:
        assert server.kill_connections(job.run_id) >= 1
        if not server.reconnects_unasked:
            with pytest.raises(Retryable) as lost:
                module.count()
            assert lost.value.kind == "connection_lost"
        assert module.count() == 8


def test_closing_twice_or_after_a_lost_connection_is_no_error(server: ServerUnderTest) -> None:
    prepare_tables(server, new_job(SCHEMA))
    job = new_job(SCHEMA)
    module, writer = server.module(job), server.module(job).writer()
    module.open()
    writer.open()
    assert server.in_process or server.kill_connections(job.run_id) >= 2
    for _ in range(2):
        module.close()
        writer.close()


def test_only_one_run_at_a_time(server: ServerUnderTest) -> None:
    if not server.locks:
        pytest.skip("the database has no locks")
    ours, theirs = (connect(server.module(new_job(SCHEMA))) for _ in range(2))
    with ours as first, theirs as second:
        with first.lock(), pytest.raises(SimulatorError, match="another run is using") as refused:
            second.lock().__enter__()
        for secret in second.options.secrets():
            assert secret not in str(refused.value)
        # The first has ended, but not its connection.
        with second.lock():
            pass


def test_a_run_that_died_does_not_keep_the_next_out(server: ServerUnderTest) -> None:
    if not server.locks:
        pytest.skip("the database has no locks")
    job = new_job(SCHEMA)
    with (
        connect(server.module(job)) as first,
        connect(server.module(new_job(SCHEMA))) as second,
        first.lock(),
    ):
        assert server.kill_connections(job.run_id) >= 1
        with second.lock():
            pass


def test_server_info_tells_version_and_settings(server: ServerUnderTest) -> None:
    with connect(server.module(new_job(SCHEMA))) as module:
        info = module.server_info()
    assert any(character.isdigit() for character in info["version"])
    assert info["settings"]
    json.dumps(info)  # it is stored in result.json


def test_what_an_acknowledgement_is_worth_is_declared_and_told(server: ServerUnderTest) -> None:
    """Each setting that determines it is an option, or is reported by the server."""
    server.clear()
    with connect(server.module(new_job(SCHEMA))) as module:
        module.prepare()
        info = module.server_info()
        told = module.options.model_dump(mode="json") | info["settings"]
        durability = module.find_durability(info["version"])
    assert durability is not None
    assert not [name for name in durability.needed if told.get(name) is None]
    worth = durability.judge(told)
    assert (worth.on_disk is True) == (worth.when == "before it is acknowledged")
    assert (worth.places or 1) >= 1


def test_a_server_that_is_too_old_is_told_before_there_are_tables(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.clear()
    with connect(server.module(new_job(SCHEMA))) as module:
        check_versions(module)
        if not any(map(find_number, module.read_versions().values())):
            pytest.skip("it tells no version")
        monkeypatch.setattr(type(module), "OLDEST", dict.fromkeys(module.OLDEST, "9999"))
        with pytest.raises(SimulatorError, match=rf"module {module.name} needs 9999 or later: "):
            check_versions(module)


_FEW_DEVICES = 2


def new_job_of(server: ServerUnderTest, **changes: object) -> Job:
    """A job that inserts events of `Temperature`."""
    encoding = server.module_type.ENCODINGS[0]
    return new_job(
        Temperature(device_spread=_FEW_DEVICES).schema, batch=batch_of(encoding, 5), **changes
    )


def list_table_names(job: Job) -> list[str]:
    """All names that runs of the job's workload may give to tables."""
    return [*job.all_table_names, job.schema.tags_table]


def test_what_others_made_stays(server: ServerUnderTest) -> None:
    """Under the names of all tables that the run doesn't need; a run after it finds them, too."""
    workload = Temperature(device_spread=_FEW_DEVICES)
    for tables in table_modes(server.module_type):
        server.clear()
        job = new_job_of(server, tables=tables)
        others = [name for name in list_table_names(job) if name not in job.table_names]
        before = {name: server.make_neighbour(name) for name in others}
        for _ in range(2):
            with server.prepare(job) as observer:
                insert_with(server.module(job), workload, 10)
                assert observer.count() == 10
        assert {name: server.read_neighbour(name) for name in others} == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_name_that_is_needed_is_refused(server: ServerUnderTest, clean: bool) -> None:
    """Before anything is dropped or written, whether the run would drop the table or add to it."""
    workload = Temperature(device_spread=_FEW_DEVICES)
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
    """Including tables of another workload, if the database can hold a mark."""
    job = new_job_of(server)
    if server.marks:
        other = new_job(replace(Sundry.schema, table=job.schema.table))
        with server.prepare(other):
            pass
    for _ in range(2):
        with server.prepare(job) as observer:
            assert observer.count() == 0
            insert_with(server.module(job), Temperature(device_spread=_FEW_DEVICES), 10)
            assert observer.count() == 10


def test_no_index_is_made_on_what_others_made(server: ServerUnderTest) -> None:
    """Queries may read it, but change nothing."""
    need_indexes(server)
    job = new_job_of(server, role=Role.READ)
    server.make_neighbour(job.schema.table)
    reader, problem = server.module(job, options={"create_indices": "after"}), "did not make"
    with connect(reader), pytest.raises(SimulatorError, match=problem):
        find_indexing(reader).build()
    assert not server.indices(job.schema.table)


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
    """The module of a run that continues with the events of another one, with its tables ready."""
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
    """In one database, whichever is queried first."""
    need_indexes(server)
    for workload in (workload_of("count-events"), workload_of("last-point")):
        fill(server, workload)
        with prepare_queries(server, workload, {"create_indices": "after"}):
            assert server.indices(workload.schema.table)


def test_each_index_has_a_size(server: ServerUnderTest) -> None:
    need_indexes(server)
    workload = Temperature(seed=3)
    job = new_job(workload.schema, batch=50)
    with server.prepare(job, options={"create_indices": "before"}) as module:
        find_indexing(module).prepare_inserts()
        insert_with(server.module(job), workload, _EVENTS)
        assert isinstance(module, IndexedModule)
        size, texts = module.storage(), module.list_indexes()
        if not size.indexes:
            pytest.skip("the database doesn't tell")
        assert texts["events_device_ts"] in size.indexes
        assert all(each > 0 for each in size.indexes.values())
        assert size.index_bytes is not None
        assert sum(size.indexes.values()) <= size.index_bytes
        assert not module.storage_during().indexes


LEAST_PER_EVENT, MOST_PER_EVENT = 2, 4_000
"""Bytes. Four columns, compressed as well as possible, and with everything that a table has before its first
event."""


def test_the_size_on_disk_grows_with_the_events(server: ServerUnderTest) -> None:
    if not server.tells_size or server.module_type.storage is Module.storage:
        pytest.skip("nothing tells the size")
    workload = Temperature(seed=8, device_spread=10)
    job = new_job(workload.schema, batch=1_000)
    fill = server.events_for_size
    with server.prepare(job) as observer:
        sizes = []
        for stored in (0, fill):
            insert_with(server.module(job), workload, fill, first=stored)
            expected = stored + fill
            assert await_count(observer.count, expected, observer.settle_s) == expected
            sizes.append(observer.storage())
        if server.compacts and observer.compact():
            sizes.append(observer.storage())
        amid = observer.storage_during()
    if amid.reason is None:
        # Nothing is being written now, so this is what is on disk.
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


# --- tables that a workload makes itself ---------------------------------------------------------------


OWN_EVENTS = 12
OTHER_TEXTS = {"questdb": "VARCHAR", "clickhouse": "String"}
"""Module -> its type for texts, where that isn't `TEXT`."""


def make_own_job(
    server: ServerUnderTest, statements: Sequence[str], tags: Tags = Tags.ROW, **changes: object
) -> tuple[Workload, Job]:
    """Events whose tables are made by these statements, and a job that inserts them."""
    workload = Sparse(seed=4, tags=tags)
    own = {server.module_type.name: tuple(statements)}
    workload.schema = replace(workload.schema, statements=own)
    encoding = server.module_type.ENCODINGS[0]
    return workload, new_job(workload.schema, batch=batch_of(encoding, 4), **changes)


def leave_out(server: ServerUnderTest) -> dict[str, object]:
    """The server's options, except those that affect the module's own tables."""
    kind = server.module_type
    shaping = list_shaping(kind.options_model, kind.CAPABILITIES.own_schema)
    return {name: default for name, default in shaping.items() if name in server.options}


def write_own(server: ServerUnderTest, tags: Tags = Tags.ROW) -> list[str]:
    """The module's tables as a workload would define them, with an additional column."""
    job = make_own_job(server, [], tags, primary_key=PrimaryKey.NONE)[1]
    module = server.module(job, options=leave_out(server))
    assert isinstance(module, OwnTablesModule)
    tables = {module.name_table(module.job.schema.table): ":table"}
    tables |= {module.name_table(table): ":tags" for table in module.job.tags_tables}
    texts = [text for text in module.create_tables() if text.startswith("CREATE TABLE")]
    for name, parameter in tables.items():
        texts = [text.replace(f"{name} (", f"{parameter} (") for text in texts]
    kinds = [match[1] for text in texts if (match := re.search(r'"state" (\w+)', text))]
    return [text.replace(":table (", f':table ("own_note" {kinds[0]}, ') for text in texts]


def need_own_tables(server: ServerUnderTest) -> None:
    if not server.module_type.CAPABILITIES.own_schema.language:
        pytest.skip("it takes none")


def test_a_workloads_own_tables(server: ServerUnderTest, tables: Tables) -> None:
    """Made, filled, counted, dropped by the next run, and extended by one that keeps them."""
    if not server.module_type.CAPABILITIES.own_schema.language:
        job = make_own_job(server, ["CREATE TABLE :table ()"])[1]
        with pytest.raises(OptionError, match="takes no schema from a workload: "):
            server.module(job)
        return
    options = leave_out(server)
    for tags in Tags:
        server.clear()
        if not server.can_hold(replace(Sparse.schema, tags=tags)):
            continue
        own = write_own(server, tags)
        workload, job = make_own_job(server, own, tags, tables=tables)
        for expected, clean in ((OWN_EVENTS, True), (OWN_EVENTS, True), (2 * OWN_EVENTS, False)):
            kept = replace(job, clean=clean)
            with server.prepare(kept, options=options) as observer:
                first = expected - OWN_EVENTS
                if tags is Tags.TABLE:
                    observer.store_devices(workload.device_rows(0))
                insert_with(server.module(kept, options=options), workload, OWN_EVENTS, first=first)
                assert await_count(observer.count, expected, observer.settle_s) == expected
            assert server.tables() == {*job.table_names, *job.tags_tables}
            assert all("own_note" in server.columns(table) for table in job.table_names)


@pytest.mark.parametrize(
    ("pattern", "other", "problem"),
    [
        (r"\"state\"", '"statt"', r"nothing was dropped: :table has no column state"),
        (
            r"\"state\" \w+",
            '"state" {text}',
            r":table has state as .*, which can't hold what is sent",
        ),
        (r"\"state\" ", '"state" "nonsense" ', r"was refused, and nothing was dropped: "),
    ],
)
def test_own_tables_that_do_not_fit_are_told_before_any_is_dropped(
    server: ServerUnderTest, pattern: str, other: str, problem: str
) -> None:
    need_own_tables(server)
    own, options = write_own(server), leave_out(server)
    workload, job = make_own_job(server, own)
    with server.prepare(job, options=options) as observer:
        insert_with(server.module(job, options=options), workload, OWN_EVENTS)
        assert await_count(observer.count, OWN_EVENTS, observer.settle_s) == OWN_EVENTS
        text = OTHER_TEXTS.get(observer.name, "TEXT")
        wrong = [re.sub(pattern, other.format(text=text), statement, count=1) for statement in own]
        assert wrong != own
        reader = server.module(make_own_job(server, wrong)[1], options=options)
        with connect(reader), pytest.raises(SimulatorError, match=problem):
            reader.prepare()
        assert observer.count() == OWN_EVENTS
    assert server.tables() == set(job.table_names)


def test_own_tables_are_not_tried_on_somebody_elses(server: ServerUnderTest) -> None:
    need_own_tables(server)
    job = make_own_job(server, write_own(server))[1]
    before, module = server.make_neighbour(TRIAL), server.module(job, options=leave_out(server))
    with connect(module), pytest.raises(SimulatorError, match=TRIAL):
        module.prepare()
    assert server.read_neighbour(TRIAL) == before
