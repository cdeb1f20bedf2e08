"""What described queries are in CrateDB's SQL, and what the stand-in refuses."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.modules.cratedb import CratedbDialect
from simulator.modules.kit.sql_queries import compile_query
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import bind
from simulator.workloads.queries import Query
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from ..contract.cratedb_stand_in import Refused, check_select


def compile_for(schema: Schema, **values: Any) -> str:
    query = Query.model_validate({"name": "q", **values})
    return compile_query(bind(query, 0), schema, CratedbDialect())


@pytest.mark.parametrize(
    ("every", "interval"),
    [("1h", "1 hours"), ("90m", "90 minutes"), ("17s", "17 seconds"), (1450, "1.450 seconds"),
     ("3d", "72 hours")],
)  # fmt: skip
def test_buckets(every: object, interval: str) -> None:
    text = compile_for(Temperature.schema, compute=[{"function": "count"}], per=[{"every": every}])
    assert text == (
        f"SELECT date_bin('{interval}'::INTERVAL, \"timestamp\", 0), count(*)"
        ' FROM "events" GROUP BY 1'
    )
    check_select(text)


def test_the_newest_event_comes_from_one_pass() -> None:
    columns = ["ts", "tags", "usage_user"]
    text = compile_for(Cpu.schema, events=columns, newest=True, order={"by": 1}, limit=3)
    host = "\"tags\"['hostname']"
    assert text == (
        f'SELECT * FROM (SELECT {host} AS "_v0", max("ts") AS "_v1", {host} AS "_v2",'
        ' max_by("usage_user", "ts") AS "_v3" FROM "cpu" GROUP BY 1) AS newest'
        " ORDER BY 2 ASC NULLS LAST, 1 ASC LIMIT 3"
    )


def test_tags_are_joined_where_they_are_read() -> None:
    """No id's name stands unqualified where two tables have it."""
    schema = Cpu(tags="table").schema
    conditions: dict[str, Any] = {"devices": ["w0"], "window": {"span": "1h", "at": "first"}}
    id_of = (
        '"cpu"."tags_id" = (SELECT "tags_id" FROM "cpu_tags" WHERE "tags"[\'hostname\'] = \'w0\')'
    )
    text = compile_for(schema, events=["ts"], **conditions)
    assert text == f'SELECT "ts" FROM "cpu" WHERE {id_of} AND "ts" >= 0 AND "ts" < 3600000'
    check_select(text)
    joined = '"cpu_tags" ON "cpu_tags"."tags_id" = "_v0"'
    text = compile_for(schema, events=["tags", "ts"], **conditions)
    assert ' FROM "cpu" JOIN "cpu_tags" ON "cpu"."tags_id" = "cpu_tags"."tags_id" WHERE ' in text
    assert id_of in text
    check_select(text)
    for values in (
        {"compute": [{"function": "count"}], "per": ["tags"]},
        {"events": ["tags", "usage_user"], "newest": True},
    ):
        text = compile_for(schema, **values)
        assert text.endswith(f' FROM "cpu" GROUP BY 1) AS e JOIN {joined}')
        check_select(text)


@pytest.mark.parametrize(
    "statement",
    [
        'SELECT DISTINCT ON ("a") "a" FROM "t" ORDER BY "a"',
        "SELECT tags ->> 'hostname' FROM cpu",
        'SELECT (array_agg("a" ORDER BY "b"))[1] FROM "t"',
        'SELECT last("a", "b") FROM "t"',
        'SELECT time_bucket(10, "a") FROM "t"',
        'SELECT "a" FROM "t" WHERE',
        'SELECT "a" FROM "t"; SELECT 1',
    ],
)
def test_the_stand_in_refuses_what_crate_would(statement: str) -> None:
    with pytest.raises(Refused, match=r"SQLParseException|Unknown function"):
        check_select(statement)
