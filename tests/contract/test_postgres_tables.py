"""Tables of PostgreSQL and its relatives that were there before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.errors import SimulatorError
from simulator.testing.events import Sundry
from simulator.testing.server import new_job
from simulator.workloads.base import Column, ColumnType, Schema

from .postgres import PostgresUnderTest


def prepare(server: PostgresUnderTest, schema: Schema, clean: bool) -> None:
    module = server.module(new_job(schema, clean=clean))
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
