"""Questions by HTTP without a server: requests that are made from templates, rows that are counted, broken
answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from simulator.contract import StoredPart
from simulator.errors import Retryable, SimulatorError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.kit.http_database import SqlAsker
from simulator.modules.options import parse_options
from simulator.modules.sending import Received, Request
from simulator.testing.events import Sundry
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery, Stored, draw_block
from simulator.workloads.queries import Query
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from .test_http import Script, Scripted, answers

MODULES = ("questdb", "cratedb", "clickhouse", "arangodb")
WORKLOADS = [
    Temperature(device_spread=9),
    Sundry(),
    load_workload("machines")(device_spread=9, tags="table"),
]


def make_module(name: str, schema: Schema, endpoint: str = "http://nowhere") -> Any:
    kind = load_module(name)
    options = parse_options(kind.options_model, {"endpoint": endpoint}, str)
    return kind(options, Job(schema))


def read_request(name: str, request: Any) -> str:
    """The statement of a request, with its arguments in their places."""
    if name == "questdb":
        [statement] = parse_qs(urlsplit(request.target).query, strict_parsing=True)["query"]
        return str(statement)
    if name == "clickhouse":
        return str(request.decode())
    body = json.loads(request.body)
    if name == "arangodb":
        assert (body["count"], body["cache"]) == (True, False)
        return str(body["query"])
    arguments = iter(body.get("args", ()))
    return re.sub(r"\?", lambda _: write_argument(next(arguments)), body["stmt"])


def write_argument(value: object) -> str:
    """The value as a constant in SQL."""
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


AWKWARD = Query.model_validate(
    {"name": "awkward", "events": ["timestamp"], "devices": ["it's 100 % \\", 'ä & "b"+c']}
)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("workload", WORKLOADS, ids=["temperature", "sundry", "machines"])
def test_requests_ask_what_is_compiled(name: str, workload: Workload) -> None:
    """Each execution is asked for as if it were compiled alone."""
    module = make_module(name, workload.schema)
    asker: SqlAsker[Any] = module.asker(1)
    stored = Stored(workload, [StoredPart(0, 0, 1000)])
    queries = [query for query in workload.schema.descriptions if query.is_drawn]
    differing = 0
    for query in queries:
        bounds = draw_block(query, stored, 3, 5, 20)
        statements = [read_request(name, request) for request in asker.encode(bounds)]
        assert statements == [module.compile(bound) for bound in bounds]
        differing += len(set(statements)) > 1
    assert differing > 3


@pytest.mark.parametrize("name", MODULES)
def test_a_statement_that_is_always_the_same_becomes_a_request(name: str) -> None:
    schema = Temperature.schema
    module = make_module(name, schema)
    query = AWKWARD.model_copy(update={"events": (schema.time,)})
    devices = tuple(map(str, query.devices)) if isinstance(query.devices, tuple) else None
    statement = module.compile(BoundQuery(query, devices))
    assert read_request(name, module.asker(1).encode_statement(statement)) == statement


# --- answers --------------------------------------------------------------------------------------


def answer_of(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


def cut_off(body: bytes) -> Script:
    """The connection ends in the middle of an answer, after this much of it."""

    def script(server: Scripted, stream: Any) -> None:
        assert server.reads(stream)
        stream.sendall(answer_of(body + bytes(1)).removesuffix(bytes(1)))

    return script


@contextmanager
def asking(name: str, *scripts: Script) -> Iterator[SqlAsker[Any]]:
    """An open asker of a server that first lets it in, and then plays these scripts, one per connection."""
    letting_in = answers(answer_of(LETS_IN[name]))
    with closing(Scripted(letting_in, *scripts)) as server:
        module = make_module(name, Temperature.schema, f"http://{server.address}")
        with closing(module.asker(1)) as asker:
            asker.open()
            # The connection that let it in isn't used again.
            asker.database.close()
            yield asker


LETS_IN: Mapping[str, bytes] = {
    "questdb": b'{"dataset":[[1]],"columns":[{"name":"1","type":"INT"}],"count":1}',
    "cratedb": b'{"cols":["1"],"rows":[[1]],"rowcount":1,"duration":0.1}',
    "clickhouse": b'{"data": []}',
    "arangodb": b'{"server":"arango","version":"3.12.0"}',
}
AQL_ENDS = b'"cached":false,"extra":{"warnings":[],"stats":{"executionTime":0.1}},"error":false,"code":201}'
COLUMNS = b'"columns":[{"name":"a","type":"INT"},{"name":"b","type":"VARCHAR"}]'
UINT8 = b"\x01a\x05UInt8"
"""The head of a column in the Native format."""

WHOLE = [
    ("questdb", b'{"query":"q",%s,"timestamp":-1,"dataset":[],"count":0}' % COLUMNS, []),
    (
        "questdb",
        b'{"query":"q",%s,"timestamp":-1,"dataset":[[1,"],\\"count\\":9}"],[2,null]],"count":2}'
        % COLUMNS,
        [(1, '],"count":9}'), (2, None)],
    ),
    ("cratedb", b'{"cols":["a"],"rows":[],"rowcount":0,"duration":0.53}', []),
    (
        "cratedb",
        b'{"cols":["a"],"rows":[["],\\"rowcount\\":9,"],[null]],"rowcount":2,"duration":1.2E-4}',
        [('],"rowcount":9,',), (None,)],
    ),
    ("cratedb", b'{"rowcount": 1, "rows": [[7]], "cols": ["a"]}', [(7,)]),
    ("arangodb", b'{"result":[],"hasMore":false,"count":0,' + AQL_ENDS, []),
    (
        "arangodb",
        b'{"result":[[1,"\\"count\\":9,\\"hasMore\\":true"],[null,2]],"hasMore":false,"count":2,'
        + AQL_ENDS,
        [(1, '"count":9,"hasMore":true'), (None, 2)],
    ),
    (
        "arangodb",
        b'{"error": false, "code": 201, "count": 1, "hasMore": false, "result": [[7]]}',
        [(7,)],
    ),
    ("clickhouse", b"", []),
    ("clickhouse", b"\x01\x00" + UINT8, []),
    ("clickhouse", (b"\x01\x02" + UINT8 + b"\x07\x08") * 2, [(7,), (8,), (7,), (8,)]),
]


@pytest.mark.parametrize(("name", "body", "rows"), WHOLE)
def test_rows_are_counted_without_being_decoded(
    name: str, body: bytes, rows: list[tuple[Any, ...]]
) -> None:
    with asking(name, answers(answer_of(body))) as asker:
        received = asker.ask(asker.encode_statement("SELECT"))
        assert received[:2] == (len(rows), len(body))
        assert received.data in (body, [body])
        assert asker.decode(received) == rows


BROKEN: list[tuple[str, bytes, type[Exception], str]] = [
    # An error in the middle of a 200.
    (
        "questdb",
        b'{"query":"q",%s,"timestamp":-1,"dataset":[[1,"x"],[]],"count":2,"error":"timeout, query aborted"}'
        % COLUMNS,
        SimulatorError,
        "timeout, query aborted",
    ),
    (
        "clickhouse",
        b"\x01\x09"
        + UINT8
        + b"\x07Code: 241. DB::Exception: Memory limit exceeded: would use 9 GiB. (X)\n",
        Retryable,
        "Memory limit exceeded",
    ),
    (
        "clickhouse",
        b"\x01\x02" + UINT8 + b"\x07\x08\r\n__exception__\r\nabcdefgh\r\n"
        b"Code: 395. DB::Exception: thrown on purpose. (X)\r\n52 abcdefgh\r\n__exception__\r\n",
        SimulatorError,
        "thrown on purpose",
    ),
    (
        "arangodb",
        b'{"result":[],"hasMore":false,"count":0,"error":true,"errorNum":1429,"errorMessage":"too few"}',
        Retryable,
        "200 too few",
    ),
    (
        "arangodb",
        b'{"error":true,"code":400,"errorNum":1501,"errorMessage":"syntax error"}',
        SimulatorError,
        "400 syntax error",
    ),
    # Less than there should be.
    (
        "arangodb",
        b'{"result":[[1],[2]],"hasMore":false,"count":2',
        SimulatorError,
        "incomplete answer",
    ),
    ("arangodb", b'{"result":[[1],[', SimulatorError, "incomplete answer"),
    ("arangodb", b'{"result":[[1]],"hasMore":false}', SimulatorError, "unreadable answer"),
    ("arangodb", b'{"result":[],"hasMore":true,"count":9}', SimulatorError, "unreadable answer"),
    (
        "questdb",
        b'{"query":"q",%s,"dataset":[[1,"x"' % COLUMNS,
        SimulatorError,
        "incomplete answer",
    ),
    ("questdb", b"<html>", SimulatorError, "incomplete answer"),
    ("cratedb", b'{"cols":["a"],"rows":[[1],', SimulatorError, "incomplete answer"),
    ("cratedb", b'{"cols":["a"]}', SimulatorError, "incomplete answer"),
    ("clickhouse", b"\x01\x02" + UINT8 + b"\x07", SimulatorError, "in the middle of a column"),
    ("clickhouse", b"\x01\x02" + UINT8[:4], SimulatorError, "in the middle of a block"),
    ("clickhouse", b"\x01\x02\x01a\x04UUID" + bytes(32), SimulatorError, "of type UUID"),
]


@pytest.mark.parametrize(("name", "body", "kind", "said"), BROKEN)
def test_an_answer_that_is_no_success_ends_its_own_question(
    name: str, body: bytes, kind: type[Exception], said: str
) -> None:
    good, rows = next((body, rows) for module_name, body, rows in WHOLE if module_name == name)
    with asking(name, answers(answer_of(body), answer_of(good))) as asker:
        request = asker.encode_statement("SELECT")
        with pytest.raises(kind, match=said) as refused:
            asker.ask(request)
        assert "\n" not in str(refused.value)
        # And no other.
        assert asker.decode(asker.ask(request)) == rows


@pytest.mark.parametrize("name", MODULES)
def test_an_answer_that_breaks_off_is_a_lost_connection(name: str) -> None:
    good, rows = next((body, rows) for module_name, body, rows in WHOLE if module_name == name)
    with asking(name, cut_off(b"{"), answers(answer_of(good))) as asker:
        request = asker.encode_statement("SELECT")
        with pytest.raises(Retryable, match="during its answer") as lost:
            asker.ask(request)
        assert lost.value.kind == "connection_lost"
        asker.recover(Request(None))
        assert asker.decode(asker.ask(request)) == rows


def test_what_clickhouse_said_before_it_hung_up() -> None:
    error = b"Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)"
    with (
        asking("clickhouse", cut_off(b"\x01\x02" + UINT8 + error)) as asker,
        pytest.raises(Retryable, match="Memory limit exceeded") as failed,
    ):
        asker.ask(asker.encode_statement("SELECT"))
    assert failed.value.kind == "out_of_memory"


def test_an_answer_of_several_pages_is_asked_for_by_its_cursor() -> None:
    first = b'{"result":[[1],[2]],"hasMore":true,"id":"77","count":3,"cached":false,"error":false,"code":201}'
    last = b'{"result":[[3]],"hasMore":false,"count":3,' + AQL_ENDS
    gone = b'{"error":true,"code":404,"errorNum":1600,"errorMessage":"cursor not found"}'
    played = answers(*map(answer_of, (first, last, first)), answer_of(gone, "404 Not Found"))
    with asking("arangodb", played) as asker:
        request = asker.encode_statement("FOR e IN events RETURN [e.a]")
        received = asker.ask(request)
        assert received == Received(3, len(first) + len(last), [first, last])
        assert asker.decode(received) == [(1,), (2,), (3,)]
        with pytest.raises(SimulatorError, match="cursor not found"):
            asker.ask(request)
