"""Tables of PostgreSQL and its relatives that were there before."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import psycopg2.errors
import pytest

from simulator.contract import PrimaryKey, Retention, Tables
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import connect
from simulator.modules.postgres import Postgres
from simulator.testing.events import Sparse, Sundry, make_schema
from simulator.testing.server import key_modes, new_job
from simulator.workloads.schema import Column, ColumnType, Schema, Tags
from simulator.workloads.temperature import Temperature

from .postgres import PostgresUnderTest, quoted, with_options


def prepare(server: PostgresUnderTest, schema: Schema, clean: bool, **load: Any) -> None:
    module = server.module(new_job(schema, clean=clean, **load))
    module.open()
    try:
        module.prepare()
    finally:
        module.close()


@pytest.mark.module("postgres")
def test_a_table_with_other_columns_is_said_before_the_run(server: PostgresUnderTest) -> None:
    schema = Sundry.schema
    prepare(server, schema, clean=True)
    prepare(server, schema, clean=False)
    for column, problem in (
        (Column("absent", ColumnType.FLOAT32), "it has no column absent"),
        (Column("select", ColumnType.FLOAT64), "select is real, not double precision"),
        (Column("in", ColumnType.TEXT), "in is jsonb, not varchar"),
    ):
        others = tuple(other for other in schema.columns if other.name not in ("select", "in"))
        with pytest.raises(SimulatorError, match=f"where was created for other columns: {problem}"):
            prepare(server, replace(schema, columns=(*others, column)), clean=False)


@pytest.mark.module("postgres")
def test_a_workloads_own_table_that_can_not_hold_events_is_said_before_the_run(
    server: PostgresUnderTest,
) -> None:
    """A text, a number, a locale's order, a length and NOT NULL; and a table that holds all."""
    if server.options.get("dialect"):
        return  # another order of texts, and stand-ins that know the module's own tables only
    right = {"timestamp": "bigint", "user": 'text COLLATE "C"', "level": "int", "speed": "float8",
             "power": "real", "state": "int"}  # fmt: skip
    for name, kind, problem in (
        ("state", "text", "state as text, which can't hold what is sent: make it int4"),
        ("timestamp", "timestamptz", "timestamp as timestamptz, which can't hold"),
        ("user", 'text COLLATE "POSIX"', 'user in the order of a locale: write COLLATE "C"'),
        ("user", "varchar(5)", "user for 5 characters, and events have 13 there"),
        ("level", "int NOT NULL", "level as NOT NULL, and events may have no value for it"),
        ("note", "int NOT NULL", "note as NOT NULL, and events may have no value for it"),
        ("note", "bigserial PRIMARY KEY", None),
    ):
        columns = ", ".join(f'"{column}" {own}' for column, own in {**right, name: kind}.items())
        own = {"postgres": (f"CREATE TABLE :table ({columns})",)}
        expected = (
            nullcontext()
            if problem is None
            else pytest.raises(SimulatorError, match=re.escape(problem))
        )
        with expected:
            prepare(server, replace(Sparse.schema, statements=own), clean=True)
        assert server.tables() == (set() if problem else {"sparse"})


@pytest.mark.module("postgres")
def test_a_table_with_another_key_is_said_before_the_run(server: PostgresUnderTest) -> None:
    """Of the two keys that the server numbers itself, either will do."""
    modes = key_modes(server.module_type)
    numbered = (PrimaryKey.SQL, PrimaryKey.DB)
    for existing in modes:
        prepare(server, Sundry.schema, clean=True, primary_key=existing)
        for requested in modes:
            if requested is existing or (requested in numbered and existing in numbered):
                prepare(server, Sundry.schema, clean=False, primary_key=requested)
                continue
            names = " or ".join(
                f"--primary-key {key}"
                for key in (numbered if existing in numbered else (existing,))
            )
            with pytest.raises(SimulatorError) as refused:
                prepare(server, Sundry.schema, clean=False, primary_key=requested)
            assert str(refused.value) == (
                f"table where was created with a different primary key than --primary-key {requested}:"
                f" run without --no-clean, or with {names}"
            )


def make_wide(columns: int) -> Schema:
    """A text and this many numbers, two of which don't begin where the one before ends."""
    return make_schema(
        "wide",
        Column("small", ColumnType.FLOAT32),
        *(Column(f"c{number}", ColumnType.FLOAT64) for number in range(columns)),
        Column("flag", ColumnType.BOOL),
    )


@pytest.mark.module("postgres")
def test_rows_that_no_page_holds_are_refused_before_the_run(server: PostgresUnderTest) -> None:
    """Those that the server itself refuses, and no others; none for its relatives."""
    too_wide = make_wide(1015)
    if server.options.get("dialect"):
        prepare(server, too_wide, clean=True)
        return
    with pytest.raises(OptionError) as refused:
        server.module(new_job(too_wide))
    assert str(refused.value) == (
        "a row of table wide takes 8,161 bytes at least, but PostgreSQL stores 8,160 at most: use fewer"
        " columns, or smaller types"
    )
    prepare(server, make_wide(1014), clean=True, primary_key=PrimaryKey.NONE)
    values = f"1, '', 1{', 1' * 1014}, true"
    server.ask(f"INSERT INTO wide VALUES ({values})")
    server.ask("ALTER TABLE wide ADD COLUMN more double precision")
    with pytest.raises(psycopg2.errors.ProgramLimitExceeded, match="row is too big"):
        server.ask(f"INSERT INTO wide VALUES ({values}, 1)")


@pytest.mark.module("postgres")
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("-c default_transaction_read_only=on", "the server is read-only for this session"),
        (
            "-c role=reader -c search_path=locked",
            "may not create tables in schema locked: GRANT CREATE",
        ),
        ("-c search_path=nowhere", "may not create tables in any schema of its search_path"),
        ("-c application_name=free", ""),
    ],
)
def test_who_may_not_make_tables_is_told_before(
    server: PostgresUnderTest, settings: str, problem: str
) -> None:
    role = f"reader_{os.getpid()}"
    server.ask(f"CREATE ROLE {role}")
    server.ask("CREATE SCHEMA locked")
    server.ask(f"GRANT USAGE ON SCHEMA locked TO {role}")
    dsn = with_options(server.dsn, options=settings.replace("reader", role))
    module = server.module(new_job(Sundry.schema), options={"connection_string": dsn})
    try:
        module.open()
        with pytest.raises(SimulatorError, match=problem) if problem else nullcontext():
            module.check()
    finally:
        module.close()
        server.ask("DROP SCHEMA locked")
        server.ask(f"DROP ROLE {role}")


# --- what somebody else has made --------------------------------------------------------------------


@pytest.mark.module("postgres", "timescaledb")
def test_whatever_is_no_table_of_ours_stays(server: PostgresUnderTest) -> None:
    """A view, what it is made of, a sequence, and our own table in another schema that would be found."""
    job = new_job(Temperature.schema)
    server.ask("CREATE TABLE elsewhere (timestamp bigint)")
    for name, kind in (("events0", "VIEW"), ("events1", "MATERIALIZED VIEW")):
        columns = ", ".join(f"NULL::{column} AS {name}" for name, column in OURS.items())
        server.ask(f"CREATE {kind} {name} AS SELECT {columns} FROM elsewhere")
    server.ask("CREATE SEQUENCE events2")
    before = list_relations(server)
    prepare(server, job.schema, clean=True)
    assert list_relations(server) - before >= {("events", "r")}
    assert before <= list_relations(server)
    with pytest.raises(SimulatorError, match="needs the names events0, events1, events2, but"):
        prepare(server, job.schema, clean=True, tables=Tables.MULTIPLE)
    server.ask("CREATE SCHEMA mine")
    mine = {"connection_string": with_options(server.dsn, options="-c search_path=mine,public")}
    with connect(server.module(job, options=mine)) as module:
        module.prepare()
    assert before <= list_relations(server) and ("events", "r") in list_relations(server)
    assert server.ask("SELECT count(*) FROM mine.events") == [(0,)]
    server.ask("DROP SCHEMA mine CASCADE")
    server.ask("DROP SEQUENCE events2")


OURS = {
    "timestamp": "bigint", "device_id": "varchar", "sequence_number": "bigint", "temperature": "real",
}  # fmt: skip


def list_relations(server: PostgresUnderTest) -> set[tuple[str, str]]:
    """Name and kind of what is in the schema public."""
    rows = server.ask(
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    )
    return {(name, kind) for name, kind in rows}


@pytest.mark.module("postgres", "timescaledb")
def test_tables_of_earlier_versions_are_known_by_their_columns(server: PostgresUnderTest) -> None:
    """They have no mark: whatever their key, and wherever their tags were."""
    for tags in Tags:
        for key in key_modes(server.module_type):
            schema = Temperature(tags=tags).schema
            prepare(server, schema, clean=True, primary_key=key, tables=Tables.MULTIPLE)
            for name in server.tables():
                server.ask(f"COMMENT ON TABLE {quoted(name)} IS NULL")
            prepare(server, Temperature.schema, clean=True)
            assert server.tables() == {"events"}
            server.ask("COMMENT ON TABLE events IS NULL")


@pytest.mark.module("postgres")
def test_partitions_have_names_of_their_own(server: PostgresUnderTest) -> None:
    """Somebody else's is in the way; one that was detached and not dropped is not."""
    schema = Temperature.schema
    retention = Retention(period_ms=20_000, step_ms=5_000, until_ms=schema.epoch_ms + 60_000)
    job = new_job(schema, retention=retention)
    if server.options.get("dialect") == "cockroachdb":
        return
    with server.prepare(job) as module:
        assert isinstance(module, Postgres)
        partitions = module.needed_names[1:]
        server.ask(f"ALTER TABLE events DETACH PARTITION {quoted(partitions[0])}")
    with server.prepare(job):
        assert server.tables() == {"events", *partitions}
    server.clear()
    server.make_neighbour(partitions[-1])
    problem = f"needs the names {partitions[-1]}, but"
    with connect(server.module(job)) as module, pytest.raises(SimulatorError, match=problem):
        module.prepare()
    assert server.tables() == {partitions[-1]}
