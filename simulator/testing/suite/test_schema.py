"""Tables: made as asked for, again and again, dropped only when asked for."""

from __future__ import annotations

import json

import pytest

from ...contract import Tables
from ...errors import Retryable, SimulatorError
from ...modules.base import Job, Support, await_count, connect
from ...modules.versions import check_versions, find_number
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.temperature import Temperature
from ..events import TESTED, Awkward, insert_with, rows_of
from ..server import ServerUnderTest, as_observer, new_job, table_modes

EVENTS = Temperature.schema

_VISIBLE_S = 5.0


def prepare(server: ServerUnderTest, job: Job) -> None:
    """Prepare as the collector does."""
    with connect(server.module(job)) as module:
        module.prepare()


def fill(server: ServerUnderTest, job: Job, count: int = 8, first: int = 0) -> None:
    kinds: list[type[Workload]] = [*TESTED.values(), Awkward]
    workload = next(kind() for kind in kinds if kind.schema is job.schema)
    insert_with(server.module(job), workload, count, first=first)


def make_tables(server: ServerUnderTest, job: Job) -> None:
    """Prepare, and have the tables appear."""
    prepare(server, job)
    if server.tables_come_with_events:
        fill(server, job)


def count(server: ServerUnderTest, job: Job, expected: int = 0) -> int | None:
    """Events in the tables. A busy server may take a moment to show the last of those `expected`."""
    with connect(server.module(as_observer(job))) as module:
        return await_count(module.count, expected, max(_VISIBLE_S, module.settle_s))


def test_prepare_keeps_earlier_data_otherwise(server: ServerUnderTest, tables: Tables) -> None:
    job = new_job(EVENTS, tables=tables, clean=False)
    prepare(server, job)
    fill(server, job)
    prepare(server, job)
    assert count(server, job, 8) == 8
    fill(server, job, first=8)
    assert server.rows(EVENTS, *job.table_names) == sorted(rows_of(Temperature().block(0, 0, 16)))


def test_cleaning_drops_the_tables_of_either_table_mode(server: ServerUnderTest) -> None:
    """With their events. Each mode comes after itself and after the other."""
    modes = table_modes(server.module_type)
    for tables in (*modes, *reversed(modes), modes[0]):
        job = new_job(EVENTS, tables=tables)
        prepare(server, job)
        assert count(server, job) == 0
        fill(server, job)
        assert server.tables() == set(job.table_names)


def test_cleaning_leaves_other_tables_alone(server: ServerUnderTest) -> None:
    stores = server.module_type.CAPABILITIES.workload
    workload = next(kind for kind in (Awkward, Cpu) if stores(kind.schema) is Support.FULL)
    other = new_job(workload.schema)
    make_tables(server, other)
    rows = server.rows(other.schema, other.schema.table)
    for _ in range(2):
        make_tables(server, new_job(EVENTS))
        assert server.tables() == {other.schema.table, "events"}
    assert server.rows(other.schema, other.schema.table) == rows


def test_count_before_prepare_says_what_to_do(server: ServerUnderTest) -> None:
    if not server.tells_missing_tables:
        assert count(server, new_job(EVENTS)) == 0
        return
    with pytest.raises(SimulatorError, match="run insert first"):
        count(server, new_job(EVENTS))


def test_a_lost_connection_costs_one_count(server: ServerUnderTest) -> None:
    """The collector counts after the run: a connection that died meanwhile must not end it."""
    if server.in_process:
        pytest.skip("there is no connection")
    job = new_job(EVENTS)
    prepare(server, job)
    fill(server, job)
    # A run of its own: a server may notice late that the connections before have ended.
    job = new_job(EVENTS)
    with connect(server.module(job)) as module:
        assert server.kill_connections(job.run_id) >= 1
        if not server.reconnects_unasked:
            with pytest.raises(Retryable) as lost:
                module.count()
            assert lost.value.kind == "connection_lost"
        assert module.count() == 8


def test_closing_twice_or_after_a_lost_connection_is_no_error(server: ServerUnderTest) -> None:
    prepare(server, new_job(EVENTS))
    job = new_job(EVENTS)
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
    ours, theirs = (connect(server.module(new_job(EVENTS))) for _ in range(2))
    with ours as first, theirs as second:
        with first.lock(), pytest.raises(SimulatorError, match="another run is using") as refused:
            second.lock().__enter__()
        for secret in second.options.secrets():
            assert secret not in str(refused.value)
        # The first has ended, though its connection has not.
        with second.lock():
            pass


def test_a_run_that_died_does_not_keep_the_next_out(server: ServerUnderTest) -> None:
    if not server.locks:
        pytest.skip("the database has no locks")
    job = new_job(EVENTS)
    with (
        connect(server.module(job)) as first,
        connect(server.module(new_job(EVENTS))) as second,
        first.lock(),
    ):
        assert server.kill_connections(job.run_id) >= 1
        with second.lock():
            pass


def test_server_info_tells_version_and_settings(server: ServerUnderTest) -> None:
    with connect(server.module(new_job(EVENTS))) as module:
        info = module.server_info()
    assert any(character.isdigit() for character in info["version"])
    assert info["settings"]
    json.dumps(info)  # it goes into result.json


def test_a_server_that_is_too_old_is_told_before_there_are_tables(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.clear()
    with connect(server.module(new_job(EVENTS))) as module:
        check_versions(module)
        if not any(map(find_number, module.read_versions().values())):
            pytest.skip("it tells no version")
        monkeypatch.setattr(type(module), "OLDEST", dict.fromkeys(module.OLDEST, "9999"))
        with pytest.raises(SimulatorError, match=rf"module {module.name} needs 9999 or later: "):
            check_versions(module)
