"""PostgreSQL and its relatives with indexes: their names, and what is asked where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.kit.module import IndexedModule
from simulator.modules.options import parse_options
from simulator.modules.postgres.dialects import PostgresSql
from simulator.modules.postgres.server import list_statements, name_index
from simulator.testing.events import make_schema
from simulator.workloads import load_workload
from simulator.workloads.base import Workload, describe_queries
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query, Where
from simulator.workloads.schema import Column, ColumnType
from simulator.workloads.temperature import Temperature

_LOOK_UP = (
    'CROSS JOIN LATERAL (SELECT "device_id" AS "_v0", "temperature" AS "_v1" FROM "events" WHERE'
)
_NEWEST_TIMES = (
    'SELECT DISTINCT ON ("device_id") "device_id" AS "_v0", "temperature" AS "_v1" FROM "events" JOIN (SELECT'
    ' "device_id" AS "_v0", max("timestamp") AS "_v1" FROM "events" GROUP BY 1) AS newest'
    ' ON "device_id" = newest."_v0" AND "timestamp" = newest."_v1" ORDER BY "device_id"'
)


def compile_newest(module: str, devices: tuple[str, ...] | None = None, **changes: Any) -> str:
    """The statement of `newest-per-device` on a target with these options."""
    tags = changes.pop("tags", "row")
    kind, schema = load_module(module), Temperature(tags=tags).schema
    options = parse_options(kind.options_model, {"connection_string": "host=none", **changes}, str)
    description = schema.description("newest-per-device")
    assert description is not None
    return str(kind(options, Job(schema)).compile(BoundQuery(description, devices)))


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        ("postgres", {}, _NEWEST_TIMES),
        ("postgres", {"dialect": "yugabytedb"}, 'max("timestamp") OVER (PARTITION BY "device_id")'),
        ("postgres", {"dialect": "cockroachdb"}, _NEWEST_TIMES),
        ("postgres", {"create_indices": "before"}, _LOOK_UP),
        ("postgres", {"create_indices": "after"}, _LOOK_UP),
        ("postgres", {"create_indices": "after", "dialect": "yugabytedb"}, _LOOK_UP),
        ("postgres", {"create_indices": "after", "dialect": "cockroachdb"}, _NEWEST_TIMES),
        ("timescaledb", {}, _NEWEST_TIMES),
        ("timescaledb", {"columnstore": True}, "OVER (PARTITION BY"),
        ("timescaledb", {"create_indices": "before"}, 'SELECT DISTINCT ON ("device_id")'),
    ],
)
def test_newest_events_are_asked_for_by_the_index_that_is_there(
    module: str, options: dict[str, Any], words: str
) -> None:
    assert words in compile_newest(module, **options)


@pytest.mark.parametrize(
    ("devices", "tags", "beginning"),
    [
        (None, "row", 'WITH RECURSIVE "_devices" AS ((SELECT "device_id" AS "_v0" FROM "events" ORDER'),
        (("a", "b'"), "row", """WITH "_devices" ("_v0") AS (VALUES ('a'), ('b''')) SELECT"""),
        (None, "table", 'SELECT "device_id", "_v1" FROM (WITH "_devices" AS (SELECT "tags_id" AS "_v0"'),
    ],
)  # fmt: skip
def test_only_devices_that_are_asked_about_are_looked_up(
    devices: tuple[str, ...] | None, tags: str, beginning: str
) -> None:
    statement = compile_newest("postgres", devices, create_indices="before", tags=tags)
    assert statement.startswith(beginning)


def test_without_an_index_newest_events_of_named_devices_are_looked_for_once() -> None:
    """All of them take two passes, each of which would go through the events of all devices."""
    assert "JOIN" not in compile_newest("postgres", ("a", "b"))
    joined = compile_newest("postgres", tags="table")
    assert 'JOIN (SELECT "tags_id" AS "_v0", max("timestamp")' in joined


def test_names_of_indexes_differ_however_long_those_of_tables_are() -> None:
    """PostgreSQL cuts names at 63 bytes: what is cut off would be what they differ by."""
    assert name_index("events", "device_ts") == "events_device_ts"
    names = {name_index(f"{'t' * 57}{n}", i) for n in range(4) for i in ("device_ts", "temp")}
    assert len(names) == 8
    assert {len(name) for name in names} == {63}
    schema = Temperature(tags="table").schema
    tables = ["events0", "events1"]
    statements = list_statements(schema, schema.indexes, tables, PostgresSql(), "ASC")
    assert list(statements) == [
        "events0_device_ts", "events0_temp", "events1_device_ts", "events1_temp", "events_tags_device",
    ]  # fmt: skip


def list_made(module: str, workload: Workload) -> list[str]:
    """Tables and columns of the indexes that it makes."""
    kind = load_module(module)
    options = parse_options(kind.options_model, {"connection_string": "host=none"}, str)
    built = kind(options, Job(workload.schema))
    assert isinstance(built, IndexedModule)
    return [statement.partition(" ON ")[2] for statement in built.describe_indexes()]


def test_the_references_workload_keeps_its_indexes() -> None:
    assert list_made("postgres", Temperature()) == [
        '"events" ("device_id" ASC, "timestamp" ASC, "temperature" ASC)',
        '"events" ("temperature" ASC)',
    ]
    assert list_made("postgres", Temperature(tags="table"))[0].startswith('"events" ("tags_id" ASC')


def test_a_hypertable_which_has_an_index_on_time_gets_no_other() -> None:
    workload = load_workload("machines")()
    by_device = '"machines" ("machine" ASC, "measured_at" {})'
    assert list_made("postgres", workload) == [
        by_device.format("ASC"),
        '"machines" ("measured_at" ASC)',
    ]
    assert list_made("timescaledb", workload) == [by_device.format("DESC")]


def test_what_is_at_a_path_into_documents_has_an_index() -> None:
    """An index on an expression serves the queries that have the same."""
    document = Column("payload", ColumnType.JSON, texts=('{"it\'s":{"hot":1.5}}',))
    indexes = {"by_payload.it's.hot": ("payload.it's.hot",)}
    schema, dialect = make_schema("pumps", document), PostgresSql()
    [statement] = list_statements(schema, indexes, ["pumps"], dialect, "ASC").values()
    expression = dialect.read(schema.column("payload.it's.hot"))
    assert expression == """CAST(("payload" -> 'it''s' ->> 'hot') AS double precision)"""
    assert statement.endswith(f"""_by_payload.it's.hot" ON "pumps" (({expression}) ASC)""")


_OF_SOME = Query.model_validate(
    {"name": "of-some", "devices": 1, "window": {"span": "1h"},
     "where": {"column": "pressure", "above": 9}, "events": ["pressure"]}
)  # fmt: skip
_OF_TIME = _OF_SOME.model_copy(update={"name": "of-time", "devices": "all"})
_OF_ALL = _OF_TIME.model_copy(update={"name": "of-all", "window": None})
_OF_TEXT = _OF_ALL.model_copy(
    update={"where": Where.model_validate({"column": "state", "is": "x"})}
)
_OF_NOT = _OF_ALL.model_copy(
    update={"where": Where.model_validate({"column": "state", "is_not": "x"})}
)
_COUNTED = Query.model_validate({"name": "all", "compute": [{"function": "count"}]})
_BY_DEVICE, _BY_TIME, _BY_VALUE = ("pump", "at"), ("at",), ("pressure",)


@pytest.mark.parametrize(
    ("queries", "indexes"),
    [
        ([_COUNTED], [_BY_DEVICE]),
        ([_OF_SOME], [_BY_DEVICE]),
        ([_OF_TIME], [_BY_DEVICE, _BY_TIME]),
        ([_OF_ALL, _OF_TIME], [_BY_DEVICE, _BY_VALUE, _BY_TIME]),
        ([_OF_TEXT], [_BY_DEVICE, ("state",)]),
        ([_OF_NOT], [_BY_DEVICE]),
        # The ones that all workloads have, among them windows of all devices.
        ([], [_BY_DEVICE, _BY_TIME]),
    ],
)
def test_indexes_are_on_what_a_workloads_own_queries_filter_by(
    queries: list[Query], indexes: list[tuple[str, ...]]
) -> None:
    columns = Column("pressure", ColumnType.FLOAT64), Column("state", ColumnType.TEXT)
    schema = make_schema("pumps", *columns, device="pump")
    described = describe_queries(queries, schema, 1000, ("pressure", 9.0))
    names = tuple(query.name for query in queries)
    schema = replace(schema, descriptions=described, queries=names)
    assert list(schema.indexes.values()) == indexes
