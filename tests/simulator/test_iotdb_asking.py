"""Questions to IoTDB without a server: what is sent, and what becomes of the answers of a fake node."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from simulator.contract import Load, Role
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.iotdb import Iotdb
from simulator.modules.iotdb.connection import Question
from simulator.modules.iotdb.queries import Computation
from simulator.modules.iotdb.thrift import (
    TEXT,
    Answer,
    ThriftError,
    count_rows,
    put_bool,
    put_i32,
    put_i64,
    put_list,
    put_text,
    write_i32s,
    write_texts,
)
from simulator.modules.sending import Asker, Request
from simulator.workloads import load_workload
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature

from ..helpers import submit
from .bounds import each_workload, make_bounds

_INT64, _STRING = 2, 11
_NAME = re.compile(rb"\x80\x01\x00\x01....(\w+)", re.DOTALL)


def block(times: list[int], texts: list[list[str]], numbers: list[list[int]]) -> bytes:
    """A block of an answer: columns of texts, then of numbers."""
    rows = len(times)
    kinds = bytes([_STRING] * len(texts) + [_INT64] * len(numbers))
    head = struct.pack("!i", len(kinds)) + kinds + struct.pack("!i", rows)
    encodings = bytes([2] + [3] * len(texts) + [2] * len(numbers))
    columns = [b"\0" + struct.pack(f"!{rows}q", *times)]
    for column in texts:
        encoded = [text.encode() for text in column]
        columns.append(b"\0" + b"".join(struct.pack("!i", len(text)) + text for text in encoded))
    columns += [b"\0" + struct.pack(f"!{rows}q", *column) for column in numbers]
    return head + encodings + b"".join(columns)


def structure(*fields: bytes) -> bytes:
    return b"".join(fields) + b"\0"


def put_struct(number: int, value: bytes) -> bytes:
    return struct.pack("!bh", 12, number) + value


def status(code: int = 200, text: str = "") -> bytes:
    return put_struct(1, structure(put_i32(1, code), put_text(2, text)))


def put_blocks(number: int, blocks: list[bytes]) -> bytes:
    listed = b"".join(struct.pack("!i", len(data)) + data for data in blocks)
    return put_list(number, struct.pack("!bi", TEXT, len(blocks)) + listed)


def executed(columns: int, blocks: list[bytes], more: bool = False, time: bool = False) -> bytes:
    """What executeStatementV2 returns."""
    names = write_texts([f"c{number}" for number in range(columns)])
    return structure(
        status(), put_i64(2, 7), put_list(3, names), put_bool(5, not time),
        put_blocks(13, blocks), put_bool(14, more), put_list(17, write_i32s(range(columns))),
    )  # fmt: skip


def fetched(blocks: list[bytes], more: bool = False) -> bytes:
    return structure(status(), put_bool(2, True), put_blocks(6, blocks), put_bool(7, more))


LOGIN = {
    "openSession": put_struct(0, structure(status(), put_i32(2, 2), put_i64(3, 77))),
    "requestStatementId": put_i64(0, 5),
}
"""The calls by which a session begins, and what they return."""


def name_call(message: bytes) -> str:
    matched = _NAME.match(message)
    assert matched is not None
    return matched[1].decode()


def reply(result: bytes) -> bytes:
    """The frame of an answer that returns this."""
    message = struct.pack("!Ii", 0x80010002, 0) + bytes(4) + result + b"\0"
    return struct.pack("!i", len(message)) + message


class Node:
    """Takes connections, lets everybody in, and answers statements with what the test gives, in turn."""

    def __init__(self) -> None:
        self.answers: list[bytes | None] = []
        """Structs; None: the connection is cut."""
        self.asked: list[tuple[str, bytes]] = []
        """Name and bytes of each call for rows."""
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self.listener.accept()
                self.connections.append(stream)
                threading.Thread(target=self._serve, args=[stream], daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError, EOFError), stream, stream.makefile("rb") as reader:
            while head := reader.read(4):
                message = reader.read(*struct.unpack("!i", head))
                result = self._answer(message)
                if result is None:
                    return
                stream.sendall(reply(result))

    def _answer(self, message: bytes) -> bytes | None:
        name = name_call(message)
        if name in LOGIN:
            return LOGIN[name]
        if name == "closeSession":
            return put_struct(0, structure(status()))
        with self.lock:
            self.asked.append((name, message))
            answer = self.answers.pop(0)
        return None if answer is None else put_struct(0, answer)

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture
def node() -> Iterator[Node]:
    server = Node()
    yield server
    server.close()


def make_module(workload: Any, port: int = 6667, **options: Any) -> Iotdb:
    target = {"host": "127.0.0.1", "port": port, "password": "root", **options}
    return Iotdb(Iotdb.options_model(**target), Job(workload.schema, Load(role=Role.READ)))


@contextmanager
def asking(node: Node, in_flight: int = 1, **options: Any) -> Iterator[Asker]:
    port = node.listener.getsockname()[1]
    asker = make_module(Temperature(), port, **options).asker(in_flight)
    asker.open()
    try:
        yield asker
    finally:
        asker.close()


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["table", "tree"])
@each_workload
def test_a_block_of_questions_is_what_compile_gives_for_each(workload: Any, model: str) -> None:
    module = make_module(workload, model=model)
    asker = module.asker(1)
    for query in workload.schema.descriptions:
        bounds = make_bounds(query)
        for request, bound in zip(asker.encode(bounds), bounds, strict=True):
            single = asker.encode_statement(module.compile(bound))
            if isinstance(single, Computation):
                assert isinstance(request, Computation)
                assert next(request.begin()) == next(single.begin())
            else:
                assert isinstance(request, Question)
                assert (request.selection is None) is (single.selection is None)
                assert request.call == single.call


def test_tags_of_their_own_keep_their_place_in_statements() -> None:
    workload = load_workload("machines")(devices=50, tags="table")
    module = make_module(workload)
    asker = module.asker(1)
    for query in workload.schema.descriptions:
        bounds = make_bounds(query)
        for request, bound in zip(asker.encode(bounds), bounds, strict=True):
            statement = module.compile(bound)
            assert isinstance(statement, str)
            assert isinstance(request, Question)
            assert request.call == Question(statement).call


# --- answers --------------------------------------------------------------------------------------


def test_all_rows_are_fetched_and_decoded_only_later(node: Node) -> None:
    first, second = block([1, 2], [["a", "b"]], [[5, 6]]), block([3], [["c"]], [[7]])
    with asking(node) as asker:
        node.answers = [executed(2, [first], more=True), fetched([second], more=True), fetched([])]
        received = asker.ask(asker.encode_statement("SELECT 1"))
        assert received.rows == 3
        assert received.bytes > len(first) + len(second)
        assert asker.decode(received) == [("a", 5), ("b", 6), ("c", 7)]
    names = [name for name, _ in node.asked]
    assert names == ["executeStatementV2", "fetchResultsV2", "fetchResultsV2"]
    assert all(put_text(2, "SELECT 1") in message for _, message in node.asked)
    assert put_i64(4, 7) in node.asked[1][1]


def test_an_answer_without_columns_has_no_rows(node: Node) -> None:
    with asking(node) as asker:
        node.answers = [structure(status(), put_i64(2, 7))]
        received = asker.ask(asker.encode_statement("CREATE"))
        assert (received.rows, asker.decode(received)) == (0, [])


def test_a_refusal_ends_its_question_and_the_next_is_answered(node: Node) -> None:
    refused = structure(status(701, "no such function"))
    with asking(node) as asker:
        request = asker.encode_statement("SELECT 1")
        node.answers = [refused, executed(1, [block([1], [], [[5]])], more=True), refused]
        with pytest.raises(SimulatorError, match="701: no such function"):
            asker.ask(request)
        # Also when it comes with later rows.
        with pytest.raises(SimulatorError, match="701: no such function"):
            asker.ask(request)
        node.answers = [executed(1, [block([1], [], [[5]])])]
        assert asker.ask(request).rows == 1
    assert len(node.connections) == 1


def test_a_lost_connection_is_made_again(node: Node) -> None:
    rows = executed(1, [block([1], [], [[5]])])
    with asking(node, 3) as asker:
        request = asker.encode_statement("SELECT 1")
        node.answers = [None]
        with pytest.raises(Retryable) as lost:
            asker.ask(request)
        assert lost.value.kind == "connection_lost"
        asker.recover(Request(None))
        assert len(node.connections) == 4
        node.answers = [rows] * 3
        for name in "abc":
            submit(asker, request, name)
        answered: set[str] = set()
        while len(answered) < 3:
            for completion in asker.poll(10):
                assert completion.answer is not None
                answered.add(completion.request.query)
        assert len(node.connections) == 4


def test_an_answer_beyond_memory_ends_the_question(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.modules.iotdb.connection.most_answer_bytes", lambda: 100)
    long = executed(1, [block(list(range(20)), [], [list(range(20))])], more=True)
    with asking(node) as asker:
        request = asker.encode_statement("SELECT 1")
        node.answers = [long, executed(1, [])]
        with pytest.raises(SimulatorError, match="too much for this worker's memory"):
            asker.ask(request)
        assert asker.ask(request).rows == 0
    # What is still to come of the long answer belongs to no question.
    assert len(node.connections) == 2


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_rows_that_are_none_are_an_error_of_decoding(node: Node, cut: int) -> None:
    whole = block([1, 2], [["a", "bc"]], [[5, 6]])
    with asking(node) as asker:
        node.answers = [executed(2, [whole[:-cut]])]
        received = asker.ask(asker.encode_statement("SELECT 1"))
        assert received.rows == 2
        with pytest.raises(SimulatorError, match="unreadable answer"):
            asker.decode(received)


@pytest.mark.parametrize("size", range(9))
def test_a_block_without_a_head_is_none(size: int) -> None:
    with pytest.raises(ThriftError, match="not in the form of rows"):
        count_rows(block([1], [["a"]], [])[:size])


# --- the tree -------------------------------------------------------------------------------------


def compile_tree(workload: Any, **described: Any) -> Any:
    query = Query.model_validate({"name": "x", **described})
    return make_module(workload, model="tree").compile(BoundQuery(query))


@pytest.mark.parametrize("names_texts", [False, True])
def test_newest_events_are_counted_by_what_each_has(names_texts: bool) -> None:
    """A row for each of their values: those of `power` are never missing. Texts may look like paths."""
    workload = load_workload("machines")(devices=50)
    selection = compile_tree(
        workload, newest=True, events=["temperature", *(["status"] if names_texts else [])]
    )
    paths, values = [], []
    for device in ("a", "b", "c"):
        paths += [f"root.benchmark.machines.{device}.{name}" for name in ("power", "temperature")]
        values += ["1.5", "2.5"]
    if names_texts:
        paths.append("root.benchmark.machines.a.status")
        values.append("x.power")
    paths.append(paths.pop(0))
    values.append(values.pop(0))
    count = len(paths)
    rows = block([9] * count, [paths, values, ["FLOAT"] * count], [])
    answer = Answer({2: 7, 3: [b""] * 3, 5: False, 13: [rows], 17: [0, 1, 2]}, len(rows))
    assert answer.rows == count
    events = selection.read(answer.read())
    assert [row[:2] for row in sorted(events)] == [("a", 2.5), ("b", 2.5), ("c", 2.5)]
    assert selection.count(answer) == 3


def test_without_timeseries_the_table_is_missing(node: Node) -> None:
    with asking(node, model="tree") as asker:
        for described in (
            {"events": ["timestamp"], "newest": True},
            {"compute": [{"function": "count"}]},
        ):
            node.answers = [executed(3, [], time=True)]
            query = Query.model_validate({"name": "x", **described})
            request = asker.encode_statement(asker.module.compile(BoundQuery(query)))
            with pytest.raises(
                SimulatorError, match=r"no timeseries below root\.benchmark\.events"
            ):
                asker.ask(request)


def test_a_computation_is_decoded_on_its_way(node: Node) -> None:
    """The span of all events, then their number in each bucket: two statements, two rows."""
    described = {"compute": [{"function": "count"}], "per": [{"every": "10s"}]}
    query = Query.model_validate({"name": "x", **described})
    span = executed(3, [block([0], [["root.benchmark.events.a"]], [[12_000], [31_000]])])
    counts = executed(1, [block([10_000, 30_000], [], [[3, 1]])], time=True)
    with asking(node, model="tree") as asker:
        node.answers = [span, counts]
        received = asker.ask(asker.encode_statement(asker.module.compile(BoundQuery(query))))
        assert asker.decode(received) == [(10_000, 3), (30_000, 1)]
        assert received.rows == 2
        assert received.bytes > 0
    assert b"GROUP BY ([10000, 31001), 10000ms)" in node.asked[1][1]
