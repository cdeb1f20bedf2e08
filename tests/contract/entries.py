"""The servers under test. A new module joins here: its name, where its server is, its adapter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simulator.testing.server import Entry

from .arangodb import ArangoStandInUnderTest, ArangoUnderTest
from .cassandra import CassandraClusterUnderTest, CassandraUnderTest
from .clickhouse import ClickhouseUnderTest
from .cockroachdb import CockroachStandIn, CockroachUnderTest
from .cratedb import CratedbStandIn, CratedbUnderTest
from .elasticsearch import SearchUnderTest
from .influxdb import InfluxUnderTest
from .iotdb import IotdbUnderTest
from .iotdb_tree import IotdbTreeUnderTest
from .kusto import KustoUnderTest
from .postgres import PostgresUnderTest
from .questdb import QuestdbUnderTest
from .timescaledb import TimescaleStandIn, TimescaleUnderTest
from .victoriametrics import VictoriaMetricsUnderTest
from .yugabytedb import YugabyteStandIn, YugabyteUnderTest


def _embedded(
    name: str, module: str, adapter: type[PostgresUnderTest], thinned: bool = False
) -> Entry:
    """An entry on the embedded PostgreSQL, which is always there."""

    def start(request: pytest.FixtureRequest, _: list[str]) -> Any:
        dsn, home = request.getfixturevalue("embedded_postgres")
        return adapter.started(module, dsn, home / "data")

    return Entry(name, module, adapter, start, thinned=thinned)


def _at_dsn(name: str, module: str, adapter: type[PostgresUnderTest], variable: str) -> Entry:
    """An entry on the server that the connection string in the variable names."""

    def start(_: pytest.FixtureRequest, values: list[str]) -> Any:
        return adapter.started(module, values[0], None)

    return Entry(name, module, adapter, start, (variable,), thinned=True)


def _influxdb(request: pytest.FixtureRequest, values: list[str]) -> Any:
    return InfluxUnderTest.started(request, *values)


def _iotdb(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return IotdbUnderTest.started(*values)


def _iotdb_tree(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return IotdbTreeUnderTest.started(*values)


def _elasticsearch(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return SearchUnderTest.started(values[0].split(","), "elasticsearch")


def _opensearch(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return SearchUnderTest.started(values[0].split(","), "opensearch")


def _cassandra(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return CassandraUnderTest.started(*values)


def _cassandra_three(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return CassandraClusterUnderTest.started(*values)


def _cratedb_stand_in(request: pytest.FixtureRequest, _: list[str]) -> Any:
    dsn, _home = request.getfixturevalue("embedded_postgres")
    return CratedbStandIn.on(dsn)


def _cratedb(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return CratedbUnderTest.started(values[0])


def _clickhouse(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return ClickhouseUnderTest.started(*values)


def _kusto(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return KustoUnderTest.started(*values)


def _questdb(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return QuestdbUnderTest.started(*values)


def _arangodb(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return ArangoUnderTest.started(*values)


def _arangodb_stand_in(_: pytest.FixtureRequest, __: list[str]) -> Any:
    return ArangoStandInUnderTest.begun()


def _victoriametrics(_: pytest.FixtureRequest, values: list[str]) -> Any:
    return VictoriaMetricsUnderTest.started(values[0])


ENTRIES = (
    _embedded("postgres-embedded", "postgres", PostgresUnderTest),
    _at_dsn("postgres", "postgres", PostgresUnderTest, "POSTGRES_DSN"),
    _embedded("timescaledb-stand-in", "timescaledb", TimescaleStandIn, thinned=True),
    _at_dsn("timescaledb", "timescaledb", TimescaleUnderTest, "TIMESCALEDB_DSN"),
    _embedded("cockroachdb-stand-in", "postgres", CockroachStandIn, thinned=True),
    _at_dsn("cockroachdb", "postgres", CockroachUnderTest, "COCKROACHDB_DSN"),
    _embedded("yugabytedb-stand-in", "postgres", YugabyteStandIn, thinned=True),
    _at_dsn("yugabytedb", "postgres", YugabyteUnderTest, "YUGABYTEDB_DSN"),
    Entry(
        "influxdb", "influxdb", InfluxUnderTest, _influxdb,
        ("INFLUXDB_URL", "INFLUXDB_ORG", "INFLUXDB_TOKEN"),
    ),
    Entry(
        "iotdb", "iotdb", IotdbUnderTest, _iotdb,
        ("IOTDB_HOST", "IOTDB_PORT", "IOTDB_USER", "IOTDB_PASSWORD"),
    ),
    Entry(
        "iotdb-tree", "iotdb", IotdbTreeUnderTest, _iotdb_tree,
        ("IOTDB_HOST", "IOTDB_PORT", "IOTDB_USER", "IOTDB_PASSWORD"), thinned=True,
    ),
    Entry(
        "kusto", "azure_data_explorer", KustoUnderTest, _kusto, ("KUSTO_URL", "KUSTO_DATABASE")
    ),
    Entry(
        "elasticsearch", "elasticsearch", SearchUnderTest, _elasticsearch, ("ELASTICSEARCH_URL",)
    ),
    Entry(
        "elasticsearch-three", "elasticsearch", SearchUnderTest, _elasticsearch,
        ("ELASTICSEARCH_THREE_URLS",), thinned=True,
    ),
    Entry(
        "opensearch", "elasticsearch", SearchUnderTest, _opensearch, ("OPENSEARCH_URL",),
        thinned=True,
    ),
    Entry(
        "cassandra", "cassandra", CassandraUnderTest, _cassandra,
        ("CASSANDRA_CONTACT_POINTS", "CASSANDRA_PORT"),
    ),
    Entry(
        "cassandra-three", "cassandra", CassandraClusterUnderTest, _cassandra_three,
        ("CASSANDRA_THREE_CONTACT_POINTS", "CASSANDRA_THREE_PORT"), thinned=True,
    ),
    Entry("cratedb-stand-in", "cratedb", CratedbStandIn, _cratedb_stand_in),
    Entry("cratedb", "cratedb", CratedbUnderTest, _cratedb, ("CRATEDB_URL",)),
    Entry(
        "clickhouse", "clickhouse", ClickhouseUnderTest, _clickhouse,
        ("CLICKHOUSE_URL", "CLICKHOUSE_USER", "CLICKHOUSE_PASSWORD"), thinned=True,
    ),
    Entry("questdb", "questdb", QuestdbUnderTest, _questdb, ("QUESTDB_URL", "QUESTDB_DSN")),
    Entry(
        "victoriametrics", "victoriametrics", VictoriaMetricsUnderTest, _victoriametrics,
        ("VICTORIAMETRICS_URL",),
    ),
    Entry("arangodb-stand-in", "arangodb", ArangoStandInUnderTest, _arangodb_stand_in),
    Entry("arangodb", "arangodb", ArangoUnderTest, _arangodb, ("ARANGODB_URL", "ARANGODB_PASSWORD")),
)  # fmt: skip


def find_entry(name: str) -> Entry:
    """The entry of that name."""
    [entry] = [entry for entry in ENTRIES if entry.name == name]
    return entry


def server_fixtures(name: str) -> tuple[Any, Any]:
    """For a module of tests, `_server`, that entry's server, and `server`, the same without tables."""

    @pytest.fixture(scope="module", name="_server")
    def started(request: pytest.FixtureRequest) -> Iterator[Any]:
        entry = find_entry(name)
        with entry.start(request, entry.values()) as server:
            yield server

    @pytest.fixture(name="server")
    def emptied(_server: Any) -> Any:
        _server.clear()
        return _server

    return started, emptied
