"""Questions to Cassandra without a server: what goes out, and what becomes of the pages of a fake node."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra.cqltypes import DoubleType, LongType, UTF8Type

from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.cassandra import Cassandra
from simulator.modules.cassandra.asking import (
    CassandraAsker,
    Executions,
    PreparedQuestion,
    read_page,
)
from simulator.modules.cassandra.encoding import Prepared
from simulator.modules.cassandra.queries import Plan, Selection, Statement
from simulator.modules.cassandra.server import ClusterSession, translate
from simulator.modules.cassandra.wire import Connection, Node, Reply
from simulator.modules.sending import Received, Request
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature

from ..helpers import submit
from .bounds import each_workload, make_bounds
from .test_cassandra_wire import Server

_RESULT, _ERROR, _EXECUTE = 0x08, 0x00, 0x0A
_MORE, _NO_COLUMNS, _CHANGED = 0x02, 0x04, 0x08
_TRACED, _PAYLOAD, _WARNED = 0x02, 0x04, 0x08
_STATE = b"where to go on"


def text(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def page(*rows: tuple[bytes | None, ...], state: bytes | None = None, columns: int = 1) -> bytes:
    """The body of a RESULT."""
    flags = _NO_COLUMNS | (0 if state is None else _MORE)
    paging = b"" if state is None else struct.pack("!i", len(state)) + state
    values = b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
        for row in rows
        for value in row
    )
    return struct.pack("!3i", 2, flags, columns) + paging + struct.pack("!i", len(rows)) + values


def failure(code: int, *rest: bytes) -> bytes:
    return struct.pack("!i", code) + text(b"says the test") + b"".join(rest)


READ_TIMEOUT = failure(0x1200, struct.pack("!HiiB", 6, 0, 1, 0))


class Session:
    """What an asker uses of the module's session: one node, which the test plays."""

    version = 5
    release = (5, 0)

    def __init__(self, module: Cassandra, columns: Sequence[Any]) -> None:
        self._module = module
        self._columns = [("k", "t", f"c{place}", kind) for place, kind in enumerate(columns)]
        self.topology = SimpleNamespace(
            version=0, nodes=lambda: ["node"], replicas=lambda partition: ["node"]
        )
        self.servers: list[Server] = []
        self.prepared: list[bool] = []
        """Whether each was prepared before."""

    def await_node(self) -> None:
        pass

    def prepare(self, statement: str, again: bool = False) -> Any:
        self.prepared.append(again)
        return SimpleNamespace(
            query_id=hashlib.md5(statement.encode()).digest(),
            result_metadata_id=b"columns",
            result_metadata=self._columns,
            column_metadata=[None] * statement.count("?"),
        )

    def connect(
        self, node: Node, statements: Sequence[str], names: dict[str, Prepared]
    ) -> Connection:
        for statement in statements:
            name = Prepared(hashlib.md5(statement.encode()).digest(), b"columns")
            assert names[statement] == name
        self.servers.append(Server(self.version, node))
        return self.servers[-1].connection

    def translate(self, error: Exception) -> Retryable | SimulatorError:
        return translate(error, self._module.options, self._module.job)

    def close(self) -> None:
        for server in self.servers:
            server.close()


def make_module(workload: Any, columns: Sequence[Any] = (), **options: Any) -> Cassandra:
    target = {"contact_points": "node", "scan_ranges": 3, "query_timeout": 5, **options}
    module = Cassandra(Cassandra.options_model(**target), Job(workload.schema))
    module._connection = cast(ClusterSession, Session(module, columns))
    return module


@pytest.fixture
def asked() -> Iterator[tuple[CassandraAsker, Session]]:
    """An open asker and its session; a row has a text and a number."""
    module = make_module(Temperature(device_spread=3), (UTF8Type, LongType))
    asker = CassandraAsker(module, 3)
    session = cast(Session, module.connection)
    asker.open()
    yield asker, session
    asker.close()
    module.close()


def selection(asker: CassandraAsker, devices: tuple[str, ...] = ("w1",)) -> Executions:
    query = Query.model_validate({"name": "x", "events": ["device_id"], "devices": list(devices)})
    compiled = asker.module.compile(BoundQuery(query, devices))
    assert isinstance(compiled, Selection)
    return asker.encode_statement(compiled)


def row(device: bytes, number: int) -> tuple[bytes, bytes]:
    return device, struct.pack("!q", number)


def end(asker: CassandraAsker) -> Any:
    [completion] = asker.poll(10)
    return completion.error or completion.answer


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flavor", ["cassandra", "ycql"])
@each_workload
def test_a_block_of_questions_is_what_compile_gives_for_each(workload: Any, flavor: str) -> None:
    asker = CassandraAsker(make_module(workload, flavor=flavor))
    kinds = set()
    for query in workload.schema.descriptions:
        bounds = make_bounds(query)
        for request, bound in zip(asker.encode(bounds), bounds, strict=True):
            compiled = asker.module.compile(bound)
            kinds.add(type(compiled))
            assert request == asker.encode_statement(compiled), bound
    assert kinds == {Selection, Plan}


def test_an_execution_has_its_values_in_the_protocols_types() -> None:
    where = {"column": "temperature", "above": 1.25}
    described = {"name": "x", "events": ["timestamp"], "where": where, "devices": ["é"]}
    query = Query.model_validate(described | {"window": {"span": "1s"}})
    module = make_module(Temperature(device_spread=3))
    asker = CassandraAsker(module)
    [execution] = asker.encode_statement(
        module.compile(BoundQuery(query, ("é",), 1000, 2000))
    ).executions
    assert execution.partition == "é".encode()
    kind = "f" if module.job.schema.column("temperature").type == "float32" else "d"
    limit = struct.pack("!" + kind, 1.25)
    values = ["é".encode(), struct.pack("!q", 1000), struct.pack("!q", 1999), limit]
    parts = [struct.pack("!i", len(value)) + value for value in values]
    assert execution.values == b"".join(parts)


def test_an_execute_is_the_protocols() -> None:
    """Sections 4.1.4 and 4.1.6."""
    for version, size in ((5, "!I"), (4, "!B")):
        statement = PreparedQuestion(Prepared(b"id", b"columns"), 2, "LOCAL_QUORUM", version)
        named = text(b"id") + (text(b"columns") if version == 5 else b"") + b"\0\x06"
        page_size = struct.pack("!i", 5000)
        first = named + struct.pack(size, 0x07) + b"\0\2" + b"values" + page_size
        assert statement.execute(b"values") == first
        state = struct.pack("!i", len(_STATE)) + _STATE
        following = named + struct.pack(size, 0x0F) + b"\0\2" + b"values" + page_size + state
        assert statement.execute(b"values", _STATE) == following


# --- answers --------------------------------------------------------------------------------------


def test_a_page_is_counted_by_its_head_whatever_stands_around_it() -> None:
    body = page((b"a",), (None,), state=_STATE)
    warnings = struct.pack("!H", 2) + text(b"slow") + text(b"tombstones")
    payload = struct.pack("!H", 1) + text(b"key") + struct.pack("!i", 2) + b"xy"
    for flags, before in (
        (0, b""),
        (_WARNED, warnings),
        (_TRACED | _WARNED | _PAYLOAD, bytes(16) + warnings + payload),
    ):
        assert read_page(Reply(flags, before + body)) == (2, _STATE)
    assert read_page(Reply(0, page())) == (0, None)


@pytest.mark.parametrize("size", range(16))
def test_a_page_that_is_cut_off_is_none(size: int) -> None:
    with pytest.raises(SimulatorError, match="ends too early"):
        read_page(Reply(0, page((b"a",))[:size]))


def test_what_is_no_page() -> None:
    for body in (struct.pack("!i", 1) + bytes(12), struct.pack("!4i", 2, 0, 1, 0)):
        with pytest.raises(SimulatorError, match="lacks the rows"):
            read_page(Reply(0, body))


def test_all_pages_are_received_and_decoded_only_later(
    asked: tuple[CassandraAsker, Session],
) -> None:
    asker, session = asked
    submit(asker, selection(asker), "q")
    [server] = session.servers
    number, operation, first = server.request()
    assert operation == _EXECUTE
    bodies = [
        page(row(b"w1", 1), row(b"w1", 2), state=_STATE, columns=2),
        page(row(b"w1", 3), columns=2),
    ]
    server.answer(number, _RESULT, bodies[0])
    assert asker.poll(0.05) == []
    number, _, second = server.request()
    assert second.endswith(_STATE)
    assert _STATE not in first
    server.answer(number, _RESULT, bodies[1])
    [completion] = asker.poll(10)
    received = completion.answer
    assert received is not None
    assert (completion.request.query, completion.done) == ("q", 3)
    assert received.bytes == sum(map(len, bodies))
    assert asker.decode(received) == [("w1", 1), ("w1", 2), ("w1", 3)]


def test_several_questions_are_under_way_and_devices_come_in_their_order(
    asked: tuple[CassandraAsker, Session],
) -> None:
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker, ("a", "b")), "two")
    submit(asker, selection(asker, ("c",)), "one")
    numbers = [server.request()[0] for _ in range(3)]
    assert len(set(numbers)) == 3
    for number, name in zip(reversed(numbers), (b"c", b"b", b"a"), strict=True):
        server.answer(number, _RESULT, page(row(name, 1), columns=2))
    ended: dict[object, Any] = {}
    while len(ended) < 2:
        ended |= {completion.request.query: completion.answer for completion in asker.poll(10)}
    assert asker.decode(ended["one"]) == [("c", 1)]
    assert asker.decode(ended["two"]) == [("a", 1), ("b", 1)]


def test_no_more_of_a_question_are_under_way_than_an_application_would_have(
    asked: tuple[CassandraAsker, Session],
) -> None:
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker, tuple(f"w{number}" for number in range(40))), "q")
    numbers = [server.request()[0] for _ in range(16)]
    assert len(server.connection.pending) == 16
    received = None
    for answered in range(40):
        server.answer(numbers.pop(0), _RESULT, page(row(b"w", 1), columns=2))
        # What is there is taken; none is complete before the last.
        for completion in asker.poll(0.02 if answered < 39 else 10):
            received = completion.answer
        if answered < 24:
            numbers.append(server.request()[0])
    assert isinstance(received, Received)
    assert received.rows == 40


def test_an_error_ends_its_question_and_no_other(asked: tuple[CassandraAsker, Session]) -> None:
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker, ("a", "b")), "refused")
    submit(asker, selection(asker), "other")
    first, second, other = (server.request()[0] for _ in range(3))
    server.answer(second, _ERROR, READ_TIMEOUT)
    result = end(asker)
    assert isinstance(result, Retryable)
    assert result.kind == "read_timeout"
    # Its other half comes to nothing, and the connection goes on.
    server.answer(first, _RESULT, page(row(b"a", 1), columns=2))
    server.answer(other, _RESULT, page(row(b"w1", 1), columns=2))
    assert asker.decode(end(asker)) == [("w1", 1)]
    submit(asker, selection(asker), "unprepared")
    server.answer(server.request()[0], _ERROR, failure(0x2200))
    assert isinstance(end(asker), SimulatorError)
    assert len(session.servers) == 1


def test_what_a_node_has_forgotten_is_prepared_again(
    asked: tuple[CassandraAsker, Session],
) -> None:
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker), "forgotten")
    server.answer(server.request()[0], _ERROR, failure(0x2500, text(b"id")))
    assert asker.poll(0.05) == []
    server.answer(server.request()[0], _RESULT, page(row(b"w1", 1), columns=2))
    assert asker.decode(end(asker)) == [("w1", 1)]
    assert session.prepared == [False, True]
    # Once, or it would go on for ever.
    submit(asker, selection(asker), "for ever")
    for _ in range(2):
        assert asker.poll(0.05) == []
        server.answer(server.request()[0], _ERROR, failure(0x2500, text(b"id")))
    result = end(asker)
    assert isinstance(result, Retryable)
    assert result.kind == "unprepared"
    assert len(session.servers) == 1


def test_a_lost_connection_ends_the_question_and_is_made_again(
    asked: tuple[CassandraAsker, Session],
) -> None:
    asker, session = asked
    submit(asker, selection(asker), "lost")
    session.servers[0].socket.close()
    session.servers[0]._stream.close()
    result = end(asker)
    assert isinstance(result, Retryable)
    assert result.kind == "connection_lost"
    asker.recover(Request(None))
    submit(asker, selection(asker), "again")
    server = session.servers[1]
    server.answer(server.request()[0], _RESULT, page(columns=2))
    assert end(asker).rows == 0


def test_an_answer_beyond_memory_ends_the_question(
    asked: tuple[CassandraAsker, Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.modules.cassandra.asking.most_answer_bytes", lambda: 100)
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker), "long")
    server.answer(server.request()[0], _RESULT, page(row(b"x" * 200, 1), state=_STATE, columns=2))
    result = end(asker)
    assert isinstance(result, SimulatorError)
    assert "too much for this worker's memory" in str(result)
    # No further page is asked for.
    submit(asker, selection(asker), "next")
    number, _, body = server.request()
    assert not body.endswith(_STATE)
    server.answer(number, _RESULT, page(columns=2))
    assert end(asker).rows == 0


def test_rows_that_are_none_are_an_error_of_decoding(asked: tuple[CassandraAsker, Session]) -> None:
    asker, session = asked
    [server] = session.servers
    submit(asker, selection(asker), "q")
    server.answer(server.request()[0], _RESULT, page(row(b"w1", 1), columns=2)[:-3])
    with pytest.raises(SimulatorError, match="can't be read"):
        asker.decode(end(asker))


# --- the client's part ----------------------------------------------------------------------------


def test_a_plan_goes_on_with_what_was_too_late_and_computes_in_its_time() -> None:
    """The mean of all devices: from three ranges, one of which is late, and then from its devices."""
    compute = ({"function": "avg", "column": "temperature"},)
    query = Query.model_validate({"name": "x", "compute": compute})
    module = make_module(Temperature(device_spread=3), (LongType, DoubleType))
    asker = CassandraAsker(module)
    session = cast(Session, module.connection)
    asker.open()
    [server] = session.servers
    try:
        submit(asker, asker.encode_statement(module.compile(BoundQuery(query))), "mean")
        late, *others = (server.request()[0] for _ in range(3))
        server.answer(late, _ERROR, READ_TIMEOUT)
        for number, total in zip(others, (6.0, 0.0), strict=True):
            values = struct.pack("!q", 3 if total else 0), struct.pack("!d", total)
            server.answer(number, _RESULT, page(values, columns=2))
        assert asker.poll(0.1) == []
        # The devices of the range that was late: there are none.
        server.answer(server.request()[0], _RESULT, page(columns=2))
        received = end(asker)
        assert received.rows == 1
        assert asker.decode(received) == [(2.0,)]
        assert received.bytes > 0
    finally:
        asker.close()
        module.close()


def test_one_question_alone_is_asked_as_one_of_several(
    asked: tuple[CassandraAsker, Session],
) -> None:
    """With answers of one page and of two, a forgotten statement, a refusal, and a page that is cut off."""
    asker, session = asked
    [server] = session.servers
    refused, whole = failure(0x2200), page(row(b"w1", 1), columns=2)
    answers = [
        (_RESULT, whole),
        (_RESULT, page(row(b"w1", 1), state=_STATE, columns=2)),
        (_RESULT, whole),
        (_ERROR, failure(0x2500, text(b"id"))),
        (_RESULT, whole),
        (_ERROR, refused),
        (_RESULT, whole[:7]),
        (_RESULT, whole),
    ]

    def answer() -> None:
        for operation, body in answers:
            server.answer(server.request()[0], operation, body)

    request = selection(asker)
    # Only a statement that is prepared goes the short way.
    asker._prepare(request.question.text if isinstance(request.question, Statement) else "")
    with ThreadPoolExecutor(1) as thread:
        answering = thread.submit(answer)
        assert [asker.ask(request).rows for _ in range(3)] == [1, 2, 1]
        for problem in ("says the test", "ends too early"):
            with pytest.raises(SimulatorError, match=problem):
                asker.ask(request)
        assert asker.decode(asker.ask(request)) == [("w1", 1)]
        answering.result(10)
