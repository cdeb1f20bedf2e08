"""Requests of ArangoDB, taken apart again by json; options; and what only the stand-in can bring about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from simulator.contract import Load, PrimaryKey, Tables
from simulator.encoding.columns import client_keys
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.arangodb.encoding import MODES, ArangoOptions, DocumentEncoder, Documents
from simulator.modules.arangodb.server import Connection
from simulator.modules.base import Job
from simulator.modules.options import InsertMode, parse_options, parse_payload_options
from simulator.modules.sending import Request
from simulator.testing.events import (
    Awkward,
    Row,
    insert,
    insert_with,
    most_at_once,
    normalise,
    rows_of,
)
from simulator.testing.server import new_job
from simulator.worker import connect
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.temperature import Temperature

from ..contract.arangodb import ArangoStandInUnderTest
from ..contract.http_server import count_inserted, prepare
from .encoded import each_kind, make_events

URL = "http://localhost:8529"
JOB = Job(Temperature.schema)


def documents(request: Documents) -> list[dict[str, Any]]:
    """The documents of a request. Checks its form."""
    if request.method is InsertMode.IMPORT:
        return [json.loads(line) for line in request.body.split(b"\n")]
    body = json.loads(request.body)
    assert isinstance(body, dict if request.method is InsertMode.SINGLE else list)
    return [body] if isinstance(body, dict) else body


def rows(workload: Workload, payload: Request) -> list[Row]:
    """The documents of a payload in the order of its events."""
    names = [column.name for column in workload.schema.columns]
    dealt: dict[int, list[Any]] = {}
    for request in payload.data:
        for row, document in zip(request.rows, documents(request), strict=True):
            assert [name for name in document if name != "_key"] == names
            dealt[row] = [document[name] for name in names]
    assert sorted(dealt) == list(range(payload.events))
    return normalise(workload.schema, [dealt[row] for row in sorted(dealt)])


@each_kind
@pytest.mark.parametrize("method", MODES)
@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT])
@pytest.mark.parametrize("tables", Tables)
def test_documents_are_the_events(
    kind: type[Workload], method: InsertMode, key: PrimaryKey, tables: Tables
) -> None:
    batch = 0 if method is InsertMode.SINGLE else 5
    workload, block, job = make_events(kind, primary_key=key, tables=tables, batch=batch)
    payloads = DocumentEncoder(job, method).encode(block)

    assert [row for payload in payloads for row in rows(workload, payload)] == rows_of(block)
    count = len(job.table_names)
    keys = client_keys(block).astype(str).tolist()
    event = 0
    for payload in payloads:
        assert payload.last == event + payload.events - 1
        for request in payload.data:
            for row, document in zip(request.rows, documents(request), strict=True):
                assert request.table == (block.first + event + row) % count
                expected = keys[event + row] if key is PrimaryKey.CLIENT else None
                assert document.get("_key") == expected
        event += payload.events


@pytest.mark.parametrize("method", [InsertMode.DOCUMENT, InsertMode.IMPORT])
def test_only_what_is_missing_is_kept(method: InsertMode) -> None:
    workload = Awkward(device_spread=3)
    job = Job(workload.schema, Load(batch=1000, tables=Tables.MULTIPLE))
    (payload,) = DocumentEncoder(job, method).encode(workload.block(0, 0, 91))
    request = payload.data[1]
    before = documents(request)
    request.keep([0, 2, 5], payload)
    assert documents(request) == [before[0], before[2], before[5]]
    assert request.rows == [1, 9, 21]
    assert request.stored == len(before) - 3


@pytest.mark.parametrize(
    ("values", "batch", "method"),
    [
        ({}, 0, InsertMode.SINGLE),
        ({}, 1, InsertMode.DOCUMENT),
        ({"insert_method": "import"}, 10, InsertMode.IMPORT),
        ({"insert_method": "single"}, 0, InsertMode.SINGLE),
    ],
)
def test_the_method_is_what_a_result_calls_the_insert_mode(
    values: dict[str, str], batch: int, method: InsertMode
) -> None:
    assert parse_payload_options(ArangoOptions, values).mode(Load(batch=batch)) is method


@pytest.mark.parametrize(
    "endpoint",
    ["", "localhost:8529", "ftp://x", "http://", f"{URL}/_db/x", f"{URL}?x=1", "http://u:p@x:1",
     "http://x:99999"],
)  # fmt: skip
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(OptionError, match="option endpoint: ") as refused:
        parse_options(ArangoOptions, {"endpoint": endpoint}, str)
    assert "u:p" not in str(refused.value)


def test_the_password_is_not_shown() -> None:
    options = parse_options(ArangoOptions, {"endpoint": URL, "password": "hush"}, str)
    assert options.secrets() == ["hush"]
    assert "hush" not in f"{options.public()} {options!r}"
    assert options.public()["password"] == "***"


def test_authorities_that_are_none_are_told_before_anything_is_asked() -> None:
    values = {"endpoint": "https://localhost", "ca_certs": "/no/such/file"}
    with pytest.raises(SimulatorError, match=r"ca_certs can't be used: .*give the path"):
        Connection(parse_options(ArangoOptions, values, str), JOB)


@pytest.mark.parametrize(
    ("status", "number", "kind"),
    [
        (409, 1200, "write_conflict"), (202, 1200, "write_conflict"),
        (429, None, "too_many_requests"), (503, 21003, "too_many_requests"),
        (412, 21004, "too_many_requests"), (503, None, "unavailable"), (503, 1429, "unavailable"),
        (504, None, "unavailable"), (500, 4, "unavailable"), (421, 1496, "unavailable"),
    ],
)  # fmt: skip
def test_what_passes(status: int, number: int | None, kind: str) -> None:
    connection = Connection(parse_options(ArangoOptions, {"endpoint": URL}, str), JOB)
    meaning = connection.interpret(status, {"errorNum": number, "errorMessage": "why"})
    assert isinstance(meaning, Retryable)
    assert meaning.kind == kind


@pytest.mark.parametrize(
    ("status", "answer", "text"),
    [
        (401, {"errorNum": 11, "errorMessage": "not authorized"}, "check username and password"),
        (403, {"errorNum": 11, "errorMessage": "forbidden"}, "grant the user the rights"),
        (
            404,
            {"errorNum": 1228, "errorMessage": "database not found"},
            "check that the database exists: ",
        ),
        (404, {"errorNum": 1203, "errorMessage": "collection not found"}, "run insert first"),
        (409, {"errorNum": 1210, "errorMessage": "unique"}, "an earlier run has stored"),
        (413, "too large", "use a smaller --batch"),
        (400, "<html>\nwhat?", "400 <html> what\\?"),
    ],
)
def test_what_ends_a_run(status: int, answer: object, text: str) -> None:
    connection = Connection(parse_options(ArangoOptions, {"endpoint": URL}, str), JOB)
    meaning = connection.interpret(status, answer)
    assert isinstance(meaning, SimulatorError)
    with pytest.raises(SimulatorError, match=text):
        raise meaning


# --- on the stand-in ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def _server() -> Iterator[ArangoStandInUnderTest]:
    with ArangoStandInUnderTest.begun() as stand_in:
        yield stand_in


@pytest.fixture
def server(_server: ArangoStandInUnderTest) -> ArangoStandInUnderTest:
    _server.clear()
    _server.stand_in.requests.clear()
    return _server


def test_a_collection_is_made_as_asked_for(server: ArangoStandInUnderTest) -> None:
    job = new_job(Temperature.schema, primary_key=PrimaryKey.UUID)
    options = {"replication_factor": "3", "shard_count": "6", "sync": "true"}
    prepare(server, job, **options)
    properties = server.ask("GET", f"/_db/{server.database}/_api/collection/events/properties")
    assert (properties["replicationFactor"], properties["numberOfShards"]) == (3, 6)
    assert (properties["waitForSync"], properties["keyOptions"]["type"]) == (True, "uuid")
    module = server.module(job, options=options)
    module.open()
    info = module.server_info()
    module.close()
    assert "3.12.0" in info["version"]
    assert info["settings"]["replication_factor"] == 3
    assert info["settings"]["shard_count"] == 6


def test_a_database_may_have_any_name(server: ArangoStandInUnderTest) -> None:
    """https://docs.arangodb.com/stable/concepts/data-structure/databases/#database-names"""
    name = "Daten & Bänke? #1 100%"
    server.ask("POST", "/_db/_system/_api/database", {"name": name})
    job = new_job(Temperature.schema, batch=5)
    assert count_inserted(server, job, 10, database=name) == 10
    server.ask("DELETE", f"/_db/_system/_api/database/{quote(name, safe='')}")


@pytest.mark.parametrize("method", ["document", "import"])
@pytest.mark.parametrize("sync", [True, False])
def test_documents_are_acknowledged_when_asked_for(
    server: ArangoStandInUnderTest, method: str, sync: bool
) -> None:
    job = new_job(Temperature.schema, batch=5)
    prepare(server, job)
    options = {"sync": sync, "insert_method": method}
    insert_with(server.module(job, options=options), Temperature(), 10)
    sent = [target for _, target in server.stand_in.requests if f"/_api/{method}" in target]
    assert len(sent) == 2
    assert all(f"waitForSync={str(sync).lower()}" in target for target in sent)


@pytest.mark.parametrize("method", ["document", "import", "single"])
def test_an_event_of_an_earlier_run_is_told_from_one_sent_twice(
    server: ArangoStandInUnderTest, method: str
) -> None:
    batch = 0 if method == "single" else 4
    job = new_job(Temperature.schema, batch=batch, primary_key=PrimaryKey.CLIENT)
    prepare(server, job)
    options = {"insert_method": method}
    insert_with(server.module(job, options=options), Temperature(), 4)
    with pytest.raises(SimulatorError, match="an earlier run has stored the event"):
        insert_with(server.module(job, options=options), Temperature(), 4, first=2)


def test_figures_follow_a_flush_and_what_is_forbidden_is_told(
    server: ArangoStandInUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = new_job(Temperature.schema, batch=5)
    prepare(server, job)
    insert_with(server.module(job), Temperature(), 5)
    module = server.module(job)
    module.open()
    server.stand_in.requests.clear()
    size = module.storage()
    flush, figures = (
        target.partition(server.database)[2] for _, target in server.stand_in.requests
    )
    assert flush == "/_admin/wal/flush?waitForSync=true&waitForCollector=true"
    assert figures == "/_api/collection/events/figures"
    assert "flush" not in size.source
    with pytest.raises(SimulatorError, match="only superusers may compact"):
        module.compact()
    monkeypatch.setattr(server.stand_in, "forbidden", {"flush"})
    assert module.compact()
    unflushed = module.storage()
    assert "could not be flushed" in unflushed.source
    assert unflushed.total_bytes == size.total_bytes
    module.close()


@pytest.mark.parametrize("method", ["document", "import"])
def test_requests_in_flight(server: ArangoStandInUnderTest, method: str) -> None:
    """All arrive, even when one of them is lost."""
    job = new_job(Temperature.schema, batch=2)
    prepare(server, job)
    module = server.module(job, options={"max_in_flight": 4, "insert_method": method})
    workload = Temperature()

    def lose() -> None:
        server.proxy.fate = "drop answer"

    # Longer than a busy machine takes between two requests, when none is in flight.
    server.proxy.delay_s = 0.02
    try:
        with connect(module.writer()) as writer:
            recorder = insert(writer, workload, 60, before={9: lose})
    finally:
        server.proxy.delay_s = 0.0
    assert recorder.errors == {"connection_lost": 1}
    assert server.rows(job.schema, "events") == sorted(rows_of(workload.block(0, 0, 60)))
    assert 1 < most_at_once(recorder) <= 4


def test_a_long_answer_comes_in_pages(
    server: ArangoStandInUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.modules.arangodb.server.PAGE", 7)
    workload = Cpu(device_spread=3)
    job = new_job(workload.schema, batch=100)
    prepare(server, job)
    insert_with(server.module(job), workload, 400)
    module = server.module(job)
    module.open()
    answer = module.fetch(module.queries()["high-cpu"])
    module.close()
    block = workload.block(0, 0, 400)
    assert len(answer) == int((block.columns["usage_user"] > 90).sum()) > 7
    pages = [target for method, target in server.stand_in.requests if "/_api/cursor/" in target]
    assert len(pages) == (len(answer) - 1) // 7
