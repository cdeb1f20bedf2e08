"""A workload's own schema: what is wrong with its statements, what they become, which modules take one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simulator.contract import Load, PrimaryKey, Retention, Tables
from simulator.documents import parse_yaml
from simulator.errors import OptionError
from simulator.modules import find_own_problem, load_module, module_names
from simulator.modules.base import AnyModule, Job
from simulator.modules.options import parse_options
from simulator.workloads.defined import define
from simulator.workloads.own_schema import find_schema_problems, serves_newest
from simulator.workloads.yaml_source import check_document, parse_definition

from ..helpers import begin_definition
from .test_own_statements import OPTIONS

DEFINITION = (
    begin_definition("boilers", "boiler", "Boilers of a house", devices=5, interval="10s")
    + """\
  - {name: house, type: text, tag: true, signal: {kind: choice, values: [north, south]}}
  - {name: heat, type: float32, signal: {kind: wander, low: 20, high: 80, period: 1h}}
"""
)
SCHEMA = define(parse_definition(DEFINITION, "boilers.yaml")).schema
COLUMNS = f"{SCHEMA.time} bigint, boiler varchar(20), house text, heat real"
TABLE = f"CREATE TABLE :table ({COLUMNS})"
INDEX = f"CREATE INDEX ON :table (boiler, {SCHEMA.time} DESC)"


def make_module(name: str, own: dict[str, list[str]], **changes: Any) -> AnyModule:
    kind = load_module(name)
    options, tags = changes.pop("options", {}), changes.pop("tags", "row")
    text = f"{DEFINITION}schema: {own}\n"
    workload = define(parse_definition(text, "boilers.yaml"))(tags=tags)
    values = parse_options(kind.options_model, OPTIONS[name] | options, str)
    return kind(values, Job(workload.schema, **changes))


@pytest.mark.parametrize(
    ("statements", "problem"),
    [
        ([TABLE], None),
        ([TABLE, INDEX, "ALTER TABLE :table SET (fillfactor = 90)"], None),
        ([TABLE, "SELECT create_hypertable(:table_text, by_range('at'))"], None),
        ([TABLE, "CALL add_columnstore_policy(:table_text, after => 1)"], None),
        ([f"create unlogged table if not exists :table({COLUMNS}, primary key (boiler, heat));"], None),
        ([TABLE.replace("heat real", '"heat" real -- , in degrees\n')], None),
        ([TABLE.replace(", heat real", ""), "ALTER TABLE :table ADD COLUMN heat real"], None),
        ([TABLE.replace("real", "numeric(5, 2) DEFAULT (1 + 2), note text DEFAULT ', (drop'")], None),
        ([], "nothing makes :table: write one CREATE TABLE :table"),
        ([INDEX], "nothing makes :table"),
        ([TABLE, TABLE], "two statements make :table"),
        ([f"{TABLE}; DROP TABLE pumps"], "more than one statement"),
        ([TABLE.replace(":table", "boilers")], "a table with a fixed name: write CREATE TABLE :table"),
        ([TABLE.replace(":table", '"boilers"')], "a table with a fixed name"),
        ([TABLE, "CREATE INDEX ON pumps (heat)"], "its index is on another table: write ON :table"),
        ([TABLE, "CREATE INDEX mine ON :table (heat)"], "its index has a name"),
        ([TABLE, "ALTER TABLE pumps ADD note text"], "it is none of CREATE TABLE :table"),
        ([TABLE, "DROP TABLE :table"], "it is none of"),
        ([TABLE, "SELECT drop_chunks('pumps', 1), f(:table_text)"], "it is none of"),
        ([TABLE, "ALTER TABLE :table RENAME TO pumps"], "RENAME does more than create a table"),
        ([f"{TABLE} INHERITS (pumps)"], "INHERITS does more"),
        ([f"CREATE TABLE :table PARTITION OF pumps ({COLUMNS}) DEFAULT"], "PARTITION OF does more"),
        (["CREATE TABLE :table AS SELECT * FROM pumps"], "it fills the table"),
        ([TABLE.replace("heat", "heet")], r":table has no column heat.*; did you mean heet\?"),
        ([TABLE.replace("house text, ", "")], ":table has no column house"),
        (["CREATE TABLE :table (LIKE pumps)"], f":table has no column {SCHEMA.time}"),
        ([TABLE.replace(":table", ":tabel")], r"no parameter :tabel; did you mean table\? \(a schema has"),
        ([f"{TABLE} WITH (owner_password='hush', password='hush')"], "it contains a password"),
        ([TABLE, "CREATE TABLE :tags (tags_id bigint)"], ":table has no column tags_id"),
        (
            [f"CREATE TABLE :table ({SCHEMA.time} bigint, tags_id bigint, heat real)",
             "CREATE TABLE :tags (tags_id bigint PRIMARY KEY, boiler text, house text)"], None,
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_schema_is_said(statements: list[str], problem: str | None) -> None:
    problems = [text for _, text in find_schema_problems(statements, SCHEMA)]
    if problem is None:
        assert problems == []
    else:
        assert re.search(problem, problems[0])


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        ("{postgres: [DROP TABLE x]}", "boilers.yaml:13: schema.postgres[0]: it is none of"),
        ("{postgres: []}", "boilers.yaml:13: schema.postgres: nothing makes :table"),
        ("{postgres: CREATE}", "schema: write a list of statements for each module"),
        ("[1]", "schema: write a list of statements for each module"),
        (f"{{influxdb: ['{TABLE}']}}", "takes no schema from a workload: it creates no tables"),
        (f"{{postgrs: ['{TABLE}']}}", "no module 'postgrs'; did you mean postgres"),
    ],
)  # fmt: skip
def test_errors_name_line_and_key(own: str, problem: str) -> None:
    with pytest.raises(OptionError) as error:
        check_document(
            *parse_yaml(f"{DEFINITION}schema: {own}\n"), "boilers.yaml", (), find_own_problem
        )
    assert problem in str(error.value)


def test_which_modules_take_a_schema() -> None:
    taking = {name for name in module_names() if find_own_problem(name, of_schema=True) is None}
    assert taking == {"cassandra", "clickhouse", "cratedb", "postgres", "questdb", "timescaledb"}


def test_each_table_is_made_by_the_statements() -> None:
    own = {"postgres": [INDEX, TABLE]}
    module = make_module("postgres", own, load=Load(tables=Tables.MULTIPLE))
    table, mark, index = module.describe_schema()[-3:]
    assert table == f'CREATE TABLE "boilers3" ({COLUMNS})'
    assert mark.startswith('COMMENT ON TABLE "boilers3"')
    assert index == INDEX.replace(":table", '"boilers3"')
    assert len(module.describe_schema()) == 12
    # Whatever the run asks for, nobody makes a key but the database.
    assert module.job.load.primary_key is PrimaryKey.NONE


def test_a_module_that_extends_another_takes_its_schema() -> None:
    module = make_module("timescaledb", {"postgres": [TABLE]})
    statements = module.describe_schema()
    assert statements[1] == f'CREATE TABLE "boilers" ({COLUMNS})'
    assert "create_hypertable" in statements[-1]
    assert not make_module("postgres", {"timescaledb": [TABLE]}).own_tables


def test_a_kind_of_server_may_have_a_schema_of_its_own() -> None:
    other = TABLE.replace("heat real", "heat float4")
    own = {"cockroachdb": [other], "postgres": [TABLE]}
    for dialect, statement in (
        ("cockroachdb", other),
        ("yugabytedb", TABLE),
        ("postgresql", TABLE),
    ):
        module = make_module("postgres", own, options={"dialect": dialect})
        assert module.own_tables == (statement,)
    assert find_own_problem("cockroachdb", of_schema=True) is None
    assert "did you mean cockroachdb" in str(find_own_problem("cockroach", of_schema=True))


def test_an_index_on_device_and_time_is_used_for_the_newest_events() -> None:
    for statements, serves in (
        ([TABLE, INDEX], True),
        ([f"CREATE TABLE :table ({COLUMNS}, PRIMARY KEY (boiler, {SCHEMA.time}))"], True),
        ([TABLE, INDEX.replace("boiler, ", "")], False),
    ):
        assert serves_newest(statements, SCHEMA) is serves


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"options": {"create_indices": "before"}}, "option create_indices shapes the table"),
        ({"options": {"dialect": "yugabytedb", "tablets": 3}}, "option tablets shapes the table"),
        ({"tags": "table"}, "is for tags=row: set this workload option"),
        ({"retention": Retention(period_ms=86_400_000, step_ms=3_600_000)}, "can't do --retention with"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_a_schema_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        make_module("postgres", {"postgres": [TABLE]}, **changes)
    # Of another module's schema it is no concern.
    make_module("postgres", {"questdb": [TABLE]}, **changes)


def test_a_targets_password_is_not_kept() -> None:
    own = {"clickhouse": [f"{TABLE} COMMENT 'secret-word'"]}
    make_module("clickhouse", own)
    with pytest.raises(
        OptionError, match=r"schema.clickhouse: it contains a password of the target"
    ):
        make_module("clickhouse", own, options={"user": "me", "password": "secret-word"})


def test_the_documents_example_is_right() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "own-workload.md").read_text()
    boilers, *others = (part.partition("```")[0] for part in page.split("```yaml\n")[1:])
    [own] = [text for text in others if text.startswith("schema:")]
    assert {"postgres", "cassandra"} == set(parse_definition(boilers + own, "doc").statements)
