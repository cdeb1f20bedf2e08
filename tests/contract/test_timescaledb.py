"""What the module asks of TimescaleDB beyond PostgreSQL: of the real one if TIMESCALEDB_DSN is set, otherwise
of the stand-in on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from simulator.contract import PrimaryKey, Tables
from simulator.errors import SimulatorError
from simulator.modules.timescaledb import Timescaledb
from simulator.testing.events import insert_with
from simulator.testing.server import new_job
from simulator.workloads import WORKLOADS
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import INTERVAL_MS, Temperature

from .postgres import PostgresUnderTest
from .timescaledb import TimescaleStandIn, TimescaleUnderTest


@pytest.fixture(scope="module")
def _server(request: pytest.FixtureRequest) -> Iterator[PostgresUnderTest]:
    if dsn := os.environ.get("TIMESCALEDB_DSN"):
        with TimescaleUnderTest.started("timescaledb", dsn, None) as adapter:
            yield adapter
    else:
        dsn = request.getfixturevalue("postgres_dsn")
        with TimescaleStandIn.started("timescaledb", dsn, None) as adapter:
            yield adapter


@pytest.fixture
def timescale(_server: TimescaleUnderTest) -> TimescaleUnderTest:
    _server.clear()
    return _server


@pytest.fixture
def community(timescale: TimescaleUnderTest) -> Iterator[TimescaleUnderTest]:
    """The edition with the columnstore: on a server with another one the test is skipped."""
    # The setting is the extension's.
    prepared(timescale, Temperature(), 0).close()
    with timescale.licensed("timescale"):
        yield timescale


def prepared(
    timescale: TimescaleUnderTest, workload: Workload, count: int, **changes: Any
) -> Timescaledb:
    """An open module, after `count` events were inserted; `changes`: options and parts of the job."""
    parts = {key: changes.pop(key) for key in ("primary_key", "tables", "clean") if key in changes}
    module = timescale.module(new_job(workload.schema, batch=100, **parts), options=changes)
    assert isinstance(module, Timescaledb)
    module.open()
    module.prepare()
    insert_with(module, workload, count)
    return module


@pytest.mark.parametrize("kind", WORKLOADS)
def test_each_table_is_a_hypertable_of_the_interval_asked_for(
    timescale: TimescaleUnderTest, kind: str
) -> None:
    workload = WORKLOADS[kind]()
    prepared(timescale, workload, 8, tables=Tables.MULTIPLE, chunk_time_interval="3600000").close()
    table = workload.schema.table
    assert timescale.chunk_intervals() == {f"{table}{number}": 3_600_000 for number in range(4)}


def test_a_day_of_events_is_a_chunk_by_default_as_in_the_reference(
    timescale: TimescaleUnderTest,
) -> None:
    prepared(timescale, Temperature(), 1).close()
    assert timescale.chunk_intervals() == {"events": 86_400_000}


def test_the_apache_edition_has_no_columnstore(timescale: TimescaleUnderTest) -> None:
    prepared(timescale, Temperature(), 10).close()
    with timescale.licensed("apache"):
        module = timescale.module(new_job(Temperature.schema), options={"columnstore": True})
        module.open()
        with pytest.raises(SimulatorError, match=r"Community edition.*leave columnstore out"):
            module.prepare()
        # Nothing was dropped.
        assert module.count() == 10
        module.close()


def test_tests_of_the_columnstore_are_skipped_on_the_apache_edition(
    timescale: TimescaleUnderTest,
) -> None:
    prepared(timescale, Temperature(), 0).close()
    licensed_on_the_real_one = TimescaleUnderTest.licensed
    with timescale.licensed("apache"):
        if isinstance(timescale, TimescaleStandIn):
            # There the edition applies to connections made from now on.
            timescale.ask("SET timescaledb.license = apache")
        with (
            pytest.raises(pytest.skip.Exception, match=r"timescaledb.license is apache"),
            licensed_on_the_real_one(timescale, "timescale"),
        ):
            pass


def test_what_the_tables_are_like_is_told_and_not_what_was_asked_for(
    community: TimescaleUnderTest,
) -> None:
    options = {"chunk_time_interval": 3_600_000, "columnstore": True}
    prepared(community, Temperature(), 10, **options).close()
    module = community.module(new_job(Temperature.schema, clean=False))
    module.open()
    module.prepare()
    settings = module.server_info()["settings"]
    module.close()
    assert settings["chunk_time_interval"] == 3_600_000
    assert settings["columnstore"] is True
    assert settings["timescaledb.license"] == "timescale"
    assert "chunk_time_interval" not in module.options.public()


def test_another_interval_than_that_of_a_table_that_stays_is_refused(
    timescale: TimescaleUnderTest,
) -> None:
    prepared(timescale, Temperature(), 10, chunk_time_interval=3_600_000).close()
    for interval, refused in ((3_600_000, False), (7_200_000, True)):
        module = timescale.module(
            new_job(Temperature.schema, clean=False), options={"chunk_time_interval": interval}
        )
        module.open()
        if refused:
            with pytest.raises(
                SimulatorError, match="has chunk_time_interval=3600000, not 7200000"
            ):
                module.prepare()
        else:
            module.prepare()
        module.close()


def test_a_hypertable_stays_one_without_cleaning(timescale: TimescaleUnderTest) -> None:
    prepared(timescale, Temperature(), 10).close()
    again = timescale.module(new_job(Temperature.schema, clean=False))
    again.open()
    again.prepare()
    assert again.count() == 10
    again.close()


@pytest.mark.parametrize(
    ("key", "identity"),
    [
        (PrimaryKey.SQL, True),
        (PrimaryKey.NONE, False),
        # What a hypertable can't have is left out if it is only a default.
        (PrimaryKey.DB, False),
    ],
)
def test_no_table_has_a_primary_key(
    timescale: TimescaleUnderTest, key: PrimaryKey, identity: bool
) -> None:
    prepared(timescale, Temperature(), 10, primary_key=key).close()
    columns = timescale.ask(
        "SELECT column_name FROM information_schema.columns"
        " WHERE table_name = 'events' AND is_identity = 'YES'"
    )
    assert columns == ([("id",)] if identity else [])
    assert not timescale.ask("SELECT FROM pg_constraint WHERE contype IN ('p', 'u')"
                          " AND conrelid = 'events'::regclass")  # fmt: skip


def test_a_key_with_the_time_can_be_asked_for(timescale: TimescaleUnderTest) -> None:
    constraint = "PRIMARY KEY (id, timestamp)"
    key = PrimaryKey.SQL
    prepared(
        timescale, Temperature(), 10, primary_key=key, primary_key_constraint=constraint
    ).close()
    with pytest.raises(SimulatorError, match="without the column"):
        prepared(timescale, Temperature(), 0, primary_key=key, primary_key_constraint="UNIQUE (id)")


@pytest.mark.parametrize(
    "workload", [Temperature(device_spread=3), Cpu(device_spread=3)], ids=["temperature", "cpu"]
)
def test_chunks_are_in_the_columnstore_when_the_queries_are_asked(
    community: TimescaleUnderTest, workload: Workload
) -> None:
    options = {"columnstore": "true", "chunk_time_interval": 10 * INTERVAL_MS}
    module = prepared(community, workload, 100, **options)
    module.prepare_queries()
    chunks = community.chunks(workload.schema.table)
    assert len(chunks) >= 10
    assert all(chunks)
    for name, statement in module.queries().items():
        assert module.fetch(statement), name
    # Once more: chunks that are there already are no error.
    module.prepare_queries()
    module.close()


def test_chunks_stay_as_they_are_otherwise(timescale: TimescaleUnderTest) -> None:
    module = prepared(timescale, Temperature(), 100)
    module.prepare_queries()
    assert not any(timescale.chunks("events"))
    module.close()


class Restarting(Temperature):
    """As with `--timestamps restart`: event 50 gets the time of the first again."""

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        return super().block(worker, first, count, time_origin=50)


@pytest.mark.parametrize(
    ("second", "chunks"), [(Restarting(), 2), (Temperature(), 4)], ids=["restart", "continue"]
)
def test_more_events_go_to_the_same_chunks_or_on_in_time(
    community: TimescaleUnderTest, second: Workload, chunks: int
) -> None:
    options = {"columnstore": True, "chunk_time_interval": 25 * INTERVAL_MS}
    module = prepared(community, Temperature(), 50, **options)
    insert_with(module, second, 50, first=50)
    assert module.count() == 100
    module.prepare_queries()
    # Jitter may put an event or two into one more chunk.
    assert len(community.chunks("events")) in (chunks, chunks + 1)
    module.close()


def test_a_database_without_timescaledb_says_what_to_do(postgres_dsn: str) -> None:
    with PostgresUnderTest.started("timescaledb", postgres_dsn, None) as plain:
        plain.ask("CREATE TABLE events (kept int)")
        module = plain.module(new_job(Temperature.schema))
        module.open()
        remedy = r"no extension timescaledb.*shared_preload_libraries=timescaledb"
        with pytest.raises(SimulatorError, match=remedy):
            module.prepare()
        module.close()
        # Nothing was dropped.
        assert plain.columns("events") == {"kept": "integer"}


def test_the_extension_is_made_and_its_version_told(timescale: TimescaleUnderTest) -> None:
    """The suite's database is a new one: nobody else has made the extension there."""
    module = timescale.module(new_job(Temperature.schema))
    module.open()
    module.prepare()
    assert "; TimescaleDB 2." in module.server_info()["version"]
    module.close()
