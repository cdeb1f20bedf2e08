"""PostgreSQL and its relatives with indexes: their names, and what is asked where they are."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.options import parse_options
from simulator.modules.postgres.dialects import PostgresSql
from simulator.modules.postgres.server import list_statements, name_index
from simulator.workloads.drawing import BoundQuery
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
    statements = list_statements(schema, ["events0", "events1"], PostgresSql(), "ASC")
    assert list(statements) == [
        "events0_device_ts", "events0_temp", "events1_device_ts", "events1_temp", "events_tags_device",
    ]  # fmt: skip
