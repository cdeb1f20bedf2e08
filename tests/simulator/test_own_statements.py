"""Statements of a workload's own: what is a parameter, what is wrong with one, and what is sent."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from simulator.contract import GivenAnswer, StoredPart, WorkerAnswers
from simulator.errors import OptionError
from simulator.modules import find_own_problem, load_module, module_names
from simulator.modules.base import AnyModule, Job
from simulator.modules.cassandra.asking import encode_executions
from simulator.modules.options import parse_options
from simulator.modules.own_statements import find_own_statement
from simulator.modules.postgres import Postgres
from simulator.oracle.answers import normalize
from simulator.oracle.checking import Checker
from simulator.oracle.survey import RecognizedEvents
from simulator.workloads.base import Workload
from simulator.workloads.defined import define
from simulator.workloads.drawing import BoundQuery, Stored, draw_block
from simulator.workloads.queries import Query, find_problems, parse_statement
from simulator.workloads.schema import ColumnType
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition

DEFINITION = (
    begin_definition("boilers", "boiler", "Boilers of a house", devices=5, interval="10s")
    + """\
  - {name: heat, type: float32, signal: {kind: wander, low: 20, high: 80, period: 1h}}
queries:
  - name: warm
    devices: 2
    window: {span: 10m}
    where: {column: heat, above: 30.1}
    compute: [{function: count}]
    per: [{every: 1m}]
    order: {by: 1}
    limit: 7
    statement:
      postgres: PLACE
"""
)
OPTIONS: dict[str, dict[str, Any]] = {
    "postgres": {"connection_string": "host=nowhere.invalid"},
    "timescaledb": {"connection_string": "host=nowhere.invalid"},
    "questdb": {"endpoint": "http://nowhere.invalid:9000"},
    "clickhouse": {"endpoint": "http://nowhere.invalid:8123"},
    "cratedb": {"endpoint": "http://nowhere.invalid:4200"},
    "cassandra": {"contact_points": "nowhere.invalid", "local_datacenter": "here"},
    "arangodb": {"endpoint": "http://nowhere.invalid:8529", "username": "u", "password": "p"},
    "iotdb": {"host": "nowhere.invalid", "username": "u", "password": "secret-word"},
    "influxdb": {
        "endpoint": "http://nowhere.invalid:8086", "token": "word", "org": "o", "bucket": "b",
    },
}  # fmt: skip
EVERYTHING = (
    "SELECT :every FROM :table WHERE d IN (:devices) AND t >= :start AND t < :end AND h > :above"
    " LIMIT :limit"
)


def make_workload(statement: dict[str, str]) -> Workload:
    document = parse_definition(DEFINITION.replace("PLACE", "SELECT 1"), "boilers.yaml")
    (query,) = document.queries
    queries = (query.model_copy(update={"statement": statement}),)
    return define(document.model_copy(update={"queries": queries}))()


def make_module(name: str, statement: dict[str, str], **options: Any) -> AnyModule:
    kind = load_module(name)
    values = parse_options(kind.options_model, OPTIONS[name] | options, str)
    return kind(values, Job(make_workload(statement).schema))


def bind(module: AnyModule) -> BoundQuery:
    query = module.job.schema.description("warm")
    assert query is not None
    return BoundQuery(query, ("a'b", "c"), 120_000, 180_000)


# --- what is a parameter ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT a FROM :table WHERE t>=:start AND t<:end", ["table", "start", "end"]),
        ("SELECT h::real, :device::text", ["device"]),
        ("SELECT ':start', '''', ':end'", []),
        ("SELECT 'it''s :start' || :device", ["device"]),
        ("""SELECT ":start" FROM "a"":b" """, []),
        ("SELECT `:start`, :end", ["end"]),
        ("SELECT E'\\':start' , :end", ["end"]),
        ("SELECT $$ :start $$, $tag$ :end $tag$, :device", ["device"]),
        ("SELECT a -- :start\n , /* :end\n */ :device", ["device"]),
        ("SELECT a[1:2], a[low:high], f(x := 1), b ? c : d", []),
        ('{"term": {"d": :device}, "gte": :start}', ["device", "start"]),
        ("SELECT (:start), -:end, 12:34", ["start", "end"]),
    ],
)
def test_parameters_are_told_from_what_looks_like_one(text: str, names: list[str]) -> None:
    parsed = parse_statement(text)
    assert (list(parsed.names), parsed.problem) == (names, None)
    assert parsed.fill({name: f":{name}" for name in names}) == text.strip()


def test_a_last_semicolon_is_left_out() -> None:
    assert parse_statement("SELECT :start ; -- the end\n").fill({"start": "1"}) == "SELECT 1 "
    assert parse_statement("SELECT ';' , 1;\n").parts == ("SELECT ';' , 1",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the statement is empty: write one, or leave the key out"),
        (" -- nothing\n/* at all */", "the statement is empty"),
        ("SELECT 1; SELECT 2", "it is more than one statement: leave out what follows the `;`"),
        ("SELECT 1;;", None),
        ("SELECT 'a", "' is never closed"),
        ("SELECT 1 /* a", "/\\* is never closed"),
        ("SELECT :devise", "there is no parameter :devise; did you mean device"),
        ("SELECT :limit", r"no parameter :limit.*this query has :table, :device, :start"),
        ("WITH x AS (DELETE FROM a RETURNING 1) SELECT 1", "may only read, but DELETE does more"),
        ("SELECT 'drop', \"update\", replace(a, 'b', 'c')", None),
        ("FOR e IN a REPLACE e IN b", "REPLACE does more"),
        (
            "SELECT dblink('host=a password=hush', 'b')",
            "it contains a password, which results would store",
        ),
        ("SELECT * FROM s3('https://me:hush@a/b')", "it contains a password"),
        ("SELECT password FROM a", None),
    ],
)
def test_what_is_wrong_with_a_statement_is_said(text: str, problem: str | None) -> None:
    problems = list(find_problems(text, ["table", "device", "start"]))
    if problem is None:
        assert problems == []
    else:
        with pytest.raises(OptionError, match=problem):
            raise OptionError("; ".join(problems))


# --- in a definition ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT :device", ":22: queries[warm].statement.postgres: there is no parameter :device"),
        ("", ":22: queries[warm].statement.postgres: the statement is empty"),
        ("[1]", ":22: queries[warm].statement.postgres: a statement must be text"),
    ],
)
def test_errors_name_line_and_key(statement: str, problem: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_definition(DEFINITION.replace("PLACE", statement), "boilers.yaml")
    assert f"boilers.yaml{problem}" in str(error.value)
    text = DEFINITION.replace("statement:\n      postgres: PLACE", "statement: SELECT 1")
    with pytest.raises(OptionError, match=r"warm\].statement: write a statement for each module"):
        parse_definition(text, "boilers.yaml")


def test_which_modules_take_statements() -> None:
    taking = {name for name in module_names() if find_own_problem(name) is None}
    assert taking == {
        "arangodb", "azure_data_explorer", "cassandra", "clickhouse", "cratedb", "iotdb", "postgres",
        "questdb", "timescaledb",
    }  # fmt: skip
    assert "no module 'postgress'; did you mean postgres" in str(find_own_problem("postgress"))
    assert "influxdb takes no statements" in str(find_own_problem("influxdb"))


def test_the_documents_example_and_parameters_are_true() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "own-workload.md").read_text()
    section = page.split("## Statements of your own\n", 1)[1].split("\n## ", 1)[0]
    example = section.split("```yaml\n", 1)[1].split("```", 1)[0]
    definition = parse_definition(
        f"{DEFINITION.partition('queries:')[0]}queries:\n{example}", "doc"
    )
    assert {"postgres", "questdb"} == set(definition.queries[0].statement)
    parameters = set(re.findall("^\\| (.*?) \\|", section, re.MULTILINE))
    named = {name for cell in parameters for name in re.findall("`:([a-z]+)`", cell)}
    assert set(definition.queries[0].parameters) <= named and "limit" in named


def test_a_statement_is_part_of_the_definition_and_of_the_query() -> None:
    text = DEFINITION.replace("PLACE", "SELECT :start")
    plain = parse_definition(
        text.replace("    statement:\n      postgres: SELECT :start\n", ""), "x"
    )
    own = parse_definition(text, "x")
    assert own != plain
    assert {own.queries[0]: 1}[own.queries[0]] == 1 and own.queries[0] != plain.queries[0]
    document = json.loads(own.model_dump_json(include={"queries"}))["queries"][0]
    assert document["statement"] == {"postgres": "SELECT :start"}
    assert plain.queries[0].statement == {}


# --- what is sent -------------------------------------------------------------------------------


def test_parameters_are_written_as_the_module_writes_them() -> None:
    statements = {
        name: make_module(name, {name: EVERYTHING}).make_statement(
            bind(make_module(name, {name: EVERYTHING}))
        )
        for name in ("postgres", "questdb", "clickhouse", "cratedb", "iotdb")
    }
    end = "AND h > CAST(30.1 AS real) LIMIT 7"
    assert statements["postgres"] == (
        """SELECT 60000 FROM "boilers" WHERE d IN ('a''b', 'c') AND t >= 120000 AND t < 180000 """
        + end
    )
    assert statements["cratedb"] == statements["postgres"]
    assert "t >= 120000000 AND t < 180000000" in statements["questdb"]
    assert r"IN ('a\'b', 'c')" in statements["clickhouse"]
    assert "t >= fromUnixTimestamp64Milli(120000, 'UTC')" in statements["clickhouse"]
    assert statements["iotdb"].startswith('SELECT 60000 FROM "boilers" WHERE')


def test_cassandra_has_markers_for_what_is_drawn() -> None:
    module = make_module("cassandra", {"cassandra": EVERYTHING})
    statement, values, _ = module.make_statement(bind(module))
    [execution] = encode_executions(statement, values)
    assert execution.partition == b"a'b"
    assert statement.text == (
        'SELECT 60000 FROM "benchmark"."boilers" WHERE d IN (?, ?) AND t >= ? AND t < ? AND h > 30.1 LIMIT 7'
    )
    assert statement.kinds == (*[ColumnType.TEXT] * 2, *[ColumnType.TIMESTAMP_MS] * 2)
    assert values == [("a'b", "c", 120_000, 180_000)]
    module = make_module("cassandra", {"cassandra": "SELECT 1 FROM :table"})
    statement, values, _ = module.make_statement(bind(module))
    assert (statement.kinds, values) == ((), [()])
    [execution] = encode_executions(statement, values)
    assert execution.partition is None


def test_postgres_prepares_it_with_its_parameters() -> None:
    text = "SELECT :end, :device::text, ':start' FROM :table WHERE d = :device"
    query = Query.model_validate(
        {
            "name": "one",
            "devices": 1,
            "window": {"span": "1m"},
            "events": ["heat"],
            "statement": {"postgres": text},
        }
    )
    module = make_module("postgres", {})
    workload = make_workload({})
    bounds = draw_block(query, Stored(workload, [StoredPart(0, 0, 1000)]), 0, 0, 3)
    questions = list(module.asker(1).encode(bounds))
    (prepared,) = {question.statement for question in questions}
    assert prepared.text == b"""SELECT $2, $1::text, ':start' FROM "boilers" WHERE d = $1"""
    assert [question.values[0] for question in questions] == bounds.list_parameters()[0]


def test_a_module_that_extends_another_takes_its_statement() -> None:
    of_both = {"postgres": "SELECT 1", "timescaledb": "SELECT 2"}
    for statement, text in ((of_both, "SELECT 2"), ({"postgres": "SELECT 1"}, "SELECT 1")):
        module = make_module("timescaledb", statement)
        assert module.make_statement(bind(module)) == text
    module = make_module("postgres", {"timescaledb": "SELECT 2", "questdb": "SELECT 3"})
    assert module.make_statement(bind(module)) == module.compile(bind(module))
    query = bind(module).query
    assert find_own_statement(module.own_names, query) is None


def test_what_a_module_can_not_take_is_refused() -> None:
    with pytest.raises(OptionError, match="query warm: statement: module influxdb takes no stat"):
        make_module("influxdb", {"influxdb": "from(bucket: 1)"})
    make_module("influxdb", {"postgres": "SELECT 1"})
    with pytest.raises(OptionError, match="only with model=table"):
        make_module("iotdb", {"iotdb": "SELECT 1"}, model="tree")
    with pytest.raises(OptionError, match="it contains a password of the target") as error:
        make_module("iotdb", {"iotdb": "SELECT 'secret-word'"})
    assert "secret-word" not in str(error.value)


def test_it_is_asked_where_the_description_can_not_be() -> None:
    """What a database's language can do is not what a module can compile."""

    class Narrow(Postgres):
        name = "narrow"
        CAPABILITIES = Postgres.CAPABILITIES.__class__(
            **{**vars(Postgres.CAPABILITIES), "shapes": frozenset()}
        )

    options = parse_options(Narrow.options_model, OPTIONS["postgres"], str)
    module = Narrow(options, Job(make_workload({"postgres": "SELECT :start"}).schema))
    assert module.choose_queries() == ["warm"]
    assert list(module.drawn_queries()) == ["warm"]


# --- whether it was right -----------------------------------------------------------------------


def test_times_may_come_as_a_driver_has_them() -> None:
    moment = datetime(2024, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    rows = [(moment,), (moment.replace(tzinfo=None),)]
    rows.append((moment.astimezone(timezone(timedelta(hours=5))),))
    assert normalize([ColumnType.TIMESTAMP_MS], rows) == [[1_704_067_201_500] * 3]


def test_a_wrong_answer_is_said_to_be_the_statements() -> None:
    module = make_module("postgres", {"postgres": "SELECT 1"})
    workload = make_workload({"postgres": "SELECT 1"})
    checker = Checker(module)
    devices = [name.decode() for name in workload.devices(0)[:2].tolist()]
    start = workload.schema.epoch_ms
    answer = GivenAnswer(query="warm", devices=devices, start_ms=start, end_ms=start + 60_000)
    answer.malformed = "row 1 has 3 values instead of 2: (1, 2, 3)"
    checker.add(WorkerAnswers(worker=0, answers=[answer]))
    result = checker.check(RecognizedEvents(workload, [StoredPart(0, 0, 1000)]))
    assert result.wrong[0].difference.endswith("(using the workload's own statement)")
