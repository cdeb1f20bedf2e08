"""Errors caused by nodes that leave or join are tried again, whatever they are called."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from cassandra import InvalidRequest
from cassandra.protocol import IsBootstrappingErrorMessage, ServerError

from simulator.errors import Retryable, SimulatorError
from simulator.modules.arangodb.encoding import ArangoOptions
from simulator.modules.arangodb.server import Connection as ArangoConnection
from simulator.modules.base import Job
from simulator.modules.cassandra.encoding import CassandraOptions
from simulator.modules.cassandra.server import translate
from simulator.modules.cratedb.encoding import CratedbOptions
from simulator.modules.cratedb.server import Connection as CratedbConnection
from simulator.modules.elasticsearch import ElasticsearchOptions
from simulator.modules.elasticsearch.server import Connection as SearchConnection
from simulator.modules.kit.http_answer import Answer
from simulator.modules.kit.module import MissingTable
from simulator.modules.options import parse_options
from simulator.workloads.temperature import Temperature

JOB = Job(Temperature.schema)
URL = "http://localhost:1"


def cratedb() -> CratedbConnection:
    return CratedbConnection(parse_options(CratedbOptions, {"endpoint": URL}, str), JOB)


def error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        # All as CrateDB 6.4.3 has sent them, on three nodes.
        (400, 4000, "SQLParseException[Unknown node: 7uCBwSnJTLuIXN3Y0CTK7w]"),
        (404, 4040, "IllegalIndexShardStateException[CurrentState[RECOVERING] operations only allowed when"),
        (500, 5002, "UnavailableShardsException[[doc.t] shard 2 is not available]"),
        (503, 5030, "blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized]"),
    ],
)  # fmt: skip
def test_cratedbs_nodes_that_leave_or_join(status: int, code: int, message: str) -> None:
    failure = cratedb().interpret(status, error(code, message))
    assert isinstance(failure, Retryable)
    assert (failure.kind, message in str(failure)) == ("unavailable", True)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, 4000, "SQLParseException[line 1:1: mismatched input]"),
        (404, 4043, "ColumnUnknownException[Column x unknown]"),
        # Its own number of more digits is no server error.
        (400, 40013, "DependentObjectsExists[...]"),
        (409, 40910, "SchemaAlreadyExists[...]"),
    ],
)
def test_cratedbs_errors_of_the_user(status: int, code: int, message: str) -> None:
    assert isinstance(cratedb().interpret(status, error(code, message)), SimulatorError)


def test_a_table_that_the_run_has_made_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = error(4041, "RelationUnknown[Relation 'events' unknown]")
    connection = cratedb()
    monkeypatch.setattr(connection, "_may_use_schema", lambda: True)
    assert isinstance(connection.interpret(404, unknown), MissingTable)
    connection.expect_tables()
    failure = connection.interpret(404, unknown)
    assert isinstance(failure, Retryable)
    assert failure.kind == "missing_table"
    assert "Relation 'events' unknown]; this run created it" in str(failure)


@pytest.mark.parametrize(
    ("status", "answer", "passes"),
    [
        (200, {"rows": [[1]]}, True),
        # Of a node that has named its master already.
        (200, {"rows": [[0]]}, False),
        (503, error(5030, "state not recovered"), False),
    ],
)
def test_a_node_of_cratedb_is_back_when_it_knows_the_table(
    status: int, answer: dict[str, Any], passes: bool
) -> None:
    connection = cratedb()
    connection.expect_tables()
    probe = connection.probe
    assert orjson.loads(probe.body)["args"] == ["doc", "events"]
    assert probe.passes(Answer(status, orjson.dumps(answer), [])) is passes


def test_an_index_that_the_run_has_made_may_come_back() -> None:
    connection = SearchConnection(parse_options(ElasticsearchOptions, {"endpoint": URL}, str), JOB)
    unknown = {"error": {"type": "index_not_found_exception", "reason": "no such index [events]"}}
    assert isinstance(connection.interpret(404, unknown), MissingTable)
    connection.expects_tables = True
    failure = connection.interpret(404, unknown)
    assert isinstance(failure, Retryable)
    assert failure.kind == "missing_table"
    # It waits for the node that leads, so a node that has not joined doesn't answer it in time, or by 503.
    probe = connection.probe
    assert probe.target == "/_cluster/health"
    assert [probe.passes(Answer(status, b"", [])) for status in (200, 403, 503)] == [
        True, True, False,
    ]  # fmt: skip


def test_a_collection_that_the_run_has_made_may_come_back() -> None:
    connection = ArangoConnection(parse_options(ArangoOptions, {"endpoint": URL}, str), JOB)
    unknown = {"errorNum": 1203, "errorMessage": "collection or view not found"}
    assert isinstance(connection.interpret(404, unknown), MissingTable)
    connection.expects_tables = True
    assert isinstance(connection.interpret(404, unknown), Retryable)
    assert connection.probe.target == "/_admin/server/availability"


@pytest.mark.parametrize(
    ("status", "number"),
    [
        # A write concern that isn't fulfilled, and a server that takes no writes.
        (403, 1004), (403, 1429),
        # The leader of a shard has changed.
        (406, 1489), (406, 1490), (421, 1491), (503, 1495), (503, 1496),
    ],
)  # fmt: skip
def test_arangodbs_shards_that_change_hands(status: int, number: int) -> None:
    connection = ArangoConnection(parse_options(ArangoOptions, {"endpoint": URL}, str), JOB)
    failure = connection.interpret(status, {"errorNum": number, "errorMessage": "why"})
    assert isinstance(failure, Retryable)
    assert failure.kind == "unavailable"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (InvalidRequest("unconfigured table events"), "missing_table"),
        (InvalidRequest("Keyspace iot does not exist"), "missing_table"),
        (IsBootstrappingErrorMessage(0x1002, "bootstrapping", None), "unavailable"),
        (ServerError(0x0000, "RejectedExecutionException: shut down", None), "server_error"),
    ],
)
def test_cassandras_nodes_that_leave_or_join(cause: Exception, kind: str) -> None:
    options = parse_options(CassandraOptions, {"contact_points": "one"}, str)
    failure = translate(cause, options, JOB, expects_tables=True)
    assert isinstance(failure, Retryable)
    assert failure.kind == kind
