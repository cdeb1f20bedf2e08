"""Tables of PostgreSQL and its relatives that were there before."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import psycopg2.errors
import pytest

from simulator.contract import PrimaryKey
from simulator.errors import OptionError, SimulatorError
from simulator.testing.events import Sundry, make_schema
from simulator.testing.server import key_modes, new_job
from simulator.workloads.schema import Column, ColumnType, Schema

from .postgres import PostgresUnderTest, with_options


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
        with pytest.raises(SimulatorError, match=f"where was made for other columns: {problem}"):
            prepare(server, replace(schema, columns=(*others, column)), clean=False)


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
                f"table where was made with another primary key than --primary-key {requested}:"
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
