"""Tables of PostgreSQL and its relatives that were there before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.contract import PrimaryKey
from simulator.errors import SimulatorError
from simulator.testing.events import Sundry
from simulator.testing.server import key_modes, new_job
from simulator.workloads.base import Column, ColumnType, Schema

from .postgres import PostgresUnderTest


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
        (Column("absent", ColumnType.FLOAT32), 'column "absent" does not exist'),
        (Column("select", ColumnType.FLOAT64), "select is not of type double precision"),
        (Column("in", ColumnType.TEXT), "in is not of type varchar"),
    ):
        others = tuple(one for one in schema.columns if one.name not in ("select", "in"))
        with pytest.raises(SimulatorError, match=f"where was made for other columns: {problem}"):
            prepare(server, replace(schema, columns=(*others, column)), clean=False)


@pytest.mark.module("postgres")
def test_a_table_with_another_key_is_said_before_the_run(server: PostgresUnderTest) -> None:
    """Of two that the server numbers itself, either will do."""
    modes = key_modes(server.module_type)
    numbered = (PrimaryKey.SQL, PrimaryKey.DB)
    for made in modes:
        prepare(server, Sundry.schema, clean=True, primary_key=made)
        for asked in modes:
            if asked is made or (asked in numbered and made in numbered):
                prepare(server, Sundry.schema, clean=False, primary_key=asked)
                continue
            names = " or ".join(
                f"--primary-key {one}" for one in (numbered if made in numbered else (made,))
            )
            with pytest.raises(SimulatorError) as refused:
                prepare(server, Sundry.schema, clean=False, primary_key=asked)
            assert str(refused.value) == (
                f"table where was made with another primary key than --primary-key {asked}:"
                f" run without --no-clean, or with {names}"
            )
