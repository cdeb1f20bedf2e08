"""`workloads NAME --show-queries`: what a target is sent, without connecting to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import commands
from cli.run.experiments.statements import EVENTS, collect_statements
from cli.show.workloads import describe_statements
from simulator.contract import StoredPart
from simulator.modules.base import Job, Module
from simulator.modules.options import parse_options
from simulator.modules.postgres import Postgres
from simulator.workloads import load_workload
from simulator.workloads.drawing import BoundQuery, Stored, draw

CONFIG = """
targets:
  postgres: {module: postgres, connection_string: "host=nowhere.invalid dbname=x"}
  timescaledb: {module: timescaledb, connection_string: "host=nowhere.invalid", columnstore: true}
  questdb: {module: questdb, endpoint: "http://nowhere.invalid:9000"}
  elasticsearch: {module: elasticsearch, endpoint: "http://nowhere.invalid:9200", shards: 3}
  cassandra: {module: cassandra, contact_points: nowhere.invalid, local_datacenter: here}
  ycql: {module: cassandra, contact_points: nowhere.invalid, flavor: ycql}
  arangodb: {module: arangodb, endpoint: "http://nowhere.invalid:8529", create_indices: after}
  clickhouse: {module: clickhouse, endpoint: "http://nowhere.invalid:8123"}
  cratedb: {module: cratedb, endpoint: "http://nowhere.invalid:4200"}
  iotdb: {module: iotdb, host: nowhere.invalid, username: u, password: secret-word}
  iotdb_tree: {module: iotdb, host: nowhere.invalid, username: u, password: secret-word, model: tree}
  victoriametrics: {module: victoriametrics, endpoint: "http://nowhere.invalid:8428"}
  influxdb: {module: influxdb, endpoint: "http://nowhere.invalid:8086", token: word, org: o, bucket: plant}
  blackhole: {module: blackhole}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return str(file)


def show(config: str, target: str, *arguments: str, workload: str = "machines") -> str:
    words = ["workloads", workload, "-c", config, "--target", target, "--show-queries", *arguments]
    result = CliRunner().invoke(commands, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def split(text: str) -> dict[str, str]:
    """The heading's first two words, or what is before its comma -> what is below."""
    parts = [part.partition("\n") for part in text.split("\n\n")]
    return {head.partition(":")[0]: below for head, _, below in parts}


def test_postgres_is_asked_what_the_module_compiles(config: str) -> None:
    sections = split(show(config, "postgres", "--seed", "3"))
    kind = load_workload("machines")
    assert [*sections][1:] == [f"Query {query.name}" for query in kind.schema.descriptions]
    values = {"connection_string": "host=nowhere.invalid dbname=x"}
    module = Postgres(parse_options(Postgres.options_model, values, str), Job(kind.schema))
    stored = Stored(kind(3), [StoredPart(0, 0, EVENTS)])
    for query in kind.schema.descriptions:
        if query.is_drawn:
            right = module.compile(draw(query, stored, 0, 0))
            assert sections[f"Query {query.name}"].strip() == right
    schema = sections["Target postgres, module postgres, workload machines"]
    assert schema.split("\n") == [f"  {text}" for text in module.describe_schema()]
    assert '"temperature" real' in schema and "INDEX" not in schema
    assert "the newest event of each device\n" in show(config, "postgres")


@pytest.mark.parametrize(
    ("when", "heading"),
    [("before", "created with the tables"), ("after", "created when the events are loaded")],
)
def test_indexes_are_shown_where_they_are_asked_for(config: str, when: str, heading: str) -> None:
    text = show(config, "postgres", "--extra-option", f"create_indices={when}")
    indexes = split(text)[f"Indexes, {heading}"].splitlines()
    assert len(indexes) == 2
    assert all(line.startswith("  CREATE INDEX IF NOT EXISTS") for line in indexes)
    # The newest events are asked for as these serve it.
    assert "LATERAL" in split(text)["Query last-values"]


def test_timescaledb_makes_a_hypertable(config: str) -> None:
    schema = next(iter(split(show(config, "timescaledb")).values())).splitlines()
    begins = [
        "CREATE EXTENSION",
        "CREATE TABLE",
        "COMMENT ON TABLE",
        "SELECT * FROM create_hypertable",
        "ALTER",
    ]
    assert len(schema) == 5
    assert all(line.strip().startswith(b) for line, b in zip(schema, begins, strict=True))


def test_questdb_is_asked_in_its_own_words(config: str) -> None:
    sections = split(show(config, "questdb"))
    assert "DEDUP UPSERT KEYS" in next(iter(sections.values()))
    assert "LATEST ON" in sections["Query last-values"]
    assert "SAMPLE BY" in sections["Query fleet-downsample"]


def test_elasticsearch_is_sent_json(config: str) -> None:
    sections = split(show(config, "elasticsearch"))
    first, _, rest = next(iter(sections.values())).partition("\n")
    body, _, alias = rest.rpartition("\n")
    assert (first.strip(), alias.strip()) == (
        "PUT /machines",
        "PUT /machines/_alias/machines-write",
    )
    index = json.loads(body)
    assert index["settings"]["index"]["number_of_shards"] == 3
    assert index["mappings"]["properties"]["temperature"] == {"type": "float"}
    target, _, question = sections["Query aggregate"].partition("\n")
    assert target.strip().startswith("POST /machines/_search?")
    search = json.loads(question)
    assert search["size"] == 0 and len(search["query"]["bool"]["filter"]) == 2
    assert sections["Query range"].endswith("and so on with `search_after` while pages are full")


def test_cassandras_statements_come_with_what_they_are_asked_with(config: str) -> None:
    sections = split(show(config, "cassandra"))
    schema = next(iter(sections.values()))
    assert "'NetworkTopologyStrategy', 'here': '3'" in schema and "PRIMARY KEY ((" in schema
    statement, values = sections["Query range"].splitlines()
    assert statement.count("?") == 3 and len(values.split(",")) == 3
    assert values.strip().startswith("with 'w00000d")
    assert "and so on, 10 times in all" in sections["Query downsample"]
    assert sections["Query downsample"].endswith("the client combines the results")
    # YCQL lists the devices first.
    first, second, *_ = (
        line
        for line in split(show(config, "ycql"))["Query last-values"].splitlines()
        if "SEL" in line
    )
    assert "SELECT DISTINCT" in first and second.endswith("LIMIT 1")
    assert "<the local data center>" in show(config, "ycql")


@pytest.mark.parametrize("target", ["arangodb", "clickhouse", "cratedb", "iotdb", "iotdb_tree"])
@pytest.mark.parametrize("workload", ["temperature", "trucks"])
def test_every_query_is_shown(config: str, target: str, workload: str) -> None:
    sections = split(show(config, target, workload=workload))
    names = [query.name for query in load_workload(workload).schema.descriptions]
    assert [name for name in sections if name.startswith("Query ")] == [f"Query {n}" for n in names]
    asking = "RETURN" if target == "arangodb" else "SELECT "
    assert all(asking in below for name, below in sections.items() if name.startswith("Query "))


def test_influxdb_is_asked_in_flux(config: str) -> None:
    sections = split(show(config, "influxdb"))
    assert next(iter(sections.values())).strip().startswith('bucket plant {"description":')
    query_texts = {name: below for name, below in sections.items() if name.startswith("Query ")}
    assert len(query_texts) == len(load_workload("machines").schema.descriptions)
    assert all('from(bucket: "plant")' in below for below in query_texts.values())


def test_victoriametrics_is_sent_forms(config: str) -> None:
    sections = split(show(config, "victoriametrics", workload="trucks"))
    lines = sections["Query range"].splitlines()
    assert lines[0].strip() == "POST /api/v1/export" and lines[1].strip().startswith("match[]={")
    for name in ("aggregate", "downsample", "fleet-downsample", "last-values", "top-devices"):
        assert "POST /api/v1/query" in sections[f"Query {name}"]


def test_only_the_targets_queries_are_shown(config: str) -> None:
    sections = split(show(config, "postgres", "--extra-option", "queries=range,point"))
    assert [*sections][1:] == ["Query point", "Query range"]


def test_a_query_that_can_not_be_asked_says_why(config: str) -> None:
    sections = split(show(config, "victoriametrics", workload="trucks"))
    assert "nothing is created before the events" in next(iter(sections.values()))
    assert (
        "the database has no queries with a condition on a value" in sections["Query range-filter"]
    )


_PERCENTILE = """
name: pumps
about: Pumps
table: pumps
time: at
device: pump
devices: 2
interval: 1s
columns:
  - {name: at, type: timestamp_ms}
  - {name: pump, type: text}
  - {name: load, type: int32, signal: {kind: uniform, low: 0, high: 9}}
queries: [{name: high, compute: [{function: p95, column: load}]}]
"""


@pytest.mark.parametrize(
    ("target", "heading", "statement"),
    [
        ("postgres", "Query high", 'percentile_cont(0.95) WITHIN GROUP (ORDER BY CAST("load"'),
        ("questdb", "Query high (percentiles are estimated by approx_percentile", '("load", 0.95, 3)'),
        ("cassandra", "Query high", "the database has no queries with a percentile of several"),
    ],
)  # fmt: skip
def test_percentiles_are_said_to_be_estimates_where_they_are(
    config: str, tmp_path: Path, target: str, heading: str, statement: str
) -> None:
    (tmp_path / "pumps.yaml").write_text(_PERCENTILE)
    sections = split(show(config, target, workload=str(tmp_path / "pumps.yaml")))
    [below] = [text for head, text in sections.items() if head.startswith(heading)]
    assert statement in below


class Silent(Postgres):
    """A module that shows nothing."""

    name = "silent"
    describe_schema = Module.describe_schema

    def compile(self, bound: BoundQuery) -> Any:
        return bound


def test_a_module_that_shows_nothing_says_so() -> None:
    workload = load_workload("temperature")(0)
    options = parse_options(Postgres.options_model, {"connection_string": "host=x"}, str)
    module = Silent(options, Job(workload.schema))
    text = describe_statements(collect_statements(module, workload))
    assert "  module silent can't show what it creates\n" in text
    below = split(text)["Query count-events"]
    assert below == "  module silent can't show what it sends"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["machines", "--show-queries"], "--show-queries needs a WORKLOAD and a --target"),
        (["--show-queries", "--target", "postgres"], "needs a WORKLOAD and a --target"),
        (["machines", "--target", "postgres"], "go with --show-queries"),
        (["machines", "--show-queries", "--plot", "--target", "postgres"], "choose one"),
        (["machines", "--show-queries", "--target", "postgre"], "did you mean postgres?"),
        (["machines", "--show-queries", "--target", "blackhole"], "stores nothing to query"),
        (["machines", "--show-queries", "--target", "victoriametrics"], "can't do workload machines"),
        (
            ["machines", "--show-queries", "--target", "postgres", "--extra-option", "queries=pont"],
            "there is no query 'pont'; did you mean point?",
        ),
    ],
)  # fmt: skip
def test_what_can_not_be_shown_is_an_error(config: str, arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(commands, ["workloads", "-c", config, *arguments])
    assert result.exit_code != 0
    assert problem in str(result.exception) + result.output
