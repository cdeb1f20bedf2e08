"""PostgreSQL's answers as they come: where one ends, what is in it, and what a question looks like."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from simulator.errors import SimulatorError
from simulator.modules.base import Job
from simulator.modules.kit.libpq import Connection, ServerError
from simulator.modules.kit.libpq_lines import (
    LibpqLine,
    MessageLine,
    Question,
    pack_values,
    read_rows,
)
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.queries import PostgresAsker
from simulator.modules.sending import Received
from simulator.workloads import load_workload
from simulator.workloads.drawing import BoundQueries, BoundQuery
from simulator.workloads.temperature import Temperature

from .bounds import make_bounds

_INT8, _TEXT = 20, 25
_READY = b"Z\0\0\0\x05I"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def row(*values: bytes | None) -> bytes:
    parts = [
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
        for value in values
    ]
    return message(b"D", struct.pack("!h", len(values)) + b"".join(parts))


def complete(rows: int) -> bytes:
    return message(b"C", b"SELECT %d\0" % rows) + _READY


@pytest.fixture
def server() -> Iterator[tuple[socket.socket, MessageLine]]:
    """The server's end of a line, and the line."""
    ours, theirs = socket.socketpair()
    connection = SimpleNamespace(socket=ours, descriptor=ours.fileno(), stamped=False)
    with ours, theirs:
        yield theirs, MessageLine(cast(Connection, connection), 5.0)


def take(server: tuple[socket.socket, MessageLine], *pieces: bytes) -> Received:
    """The answer that comes in these pieces, of which only the last ends it."""
    theirs, line = server
    for piece in pieces[:-1]:
        theirs.sendall(piece)
        assert line.receive() is None
    theirs.sendall(pieces[-1])
    received = line.receive()
    assert received is not None
    return received


def test_rows_and_bytes_are_counted_without_being_decoded(
    server: tuple[socket.socket, MessageLine],
) -> None:
    answer = message(b"2", b"") + row(b"1", b"a") + row(b"2", None) + complete(2)
    received = take(server, answer)
    assert (received.rows, received.bytes) == (2, len(answer))
    assert list(read_rows((_INT8, _TEXT), b"".join(received.data[1]))) == [(1, "a"), (2, None)]
    assert take(server, complete(0)).rows == 0


@pytest.mark.parametrize("cut", [1, 5, 20, 40])
def test_an_answer_ends_with_its_last_byte_wherever_it_is_cut(
    server: tuple[socket.socket, MessageLine], cut: int
) -> None:
    answer = b"".join(row(b"%d" % number) for number in range(50)) + complete(50)
    received = take(server, answer[:-cut], answer[-cut:])
    assert (received.rows, received.bytes) == (50, len(answer))
    assert len(read_rows((_INT8,), b"".join(received.data[1]))) == 50


def test_a_row_that_looks_like_an_end_is_none(server: tuple[socket.socket, MessageLine]) -> None:
    """A row of 90 columns, of which the first has five characters: its header is like ReadyForQuery."""
    wide = row(b"I2345", *[b"x" * 9] * 89)
    at = wide.index(b"Z\0\0\0\x05I") + 6
    received = take(server, wide[:at], wide[at:] + complete(1))
    assert received.rows == 1


def test_an_error_is_raised_once_it_is_complete_and_the_next_is_answered(
    server: tuple[socket.socket, MessageLine],
) -> None:
    theirs, line = server
    refused = message(b"E", b"SERROR\0C22012\0Mdivision by zero\0\0")
    theirs.sendall(row(b"1") + refused)
    assert line.receive() is None
    theirs.sendall(_READY)
    with pytest.raises(ServerError, match="division by zero") as raised:
        line.receive()
    assert raised.value.code == "22012"
    assert take(server, row(b"7") + complete(1)).rows == 1


def test_a_lost_connection_and_a_silent_server_are_errors(
    server: tuple[socket.socket, MessageLine],
) -> None:
    theirs, line = server
    theirs.sendall(row(b"1"))
    assert line.receive() is None
    theirs.close()
    with pytest.raises(OSError, match="closed the connection"):
        line.receive()


def test_an_answer_beyond_memory_ends_the_question(
    server: tuple[socket.socket, MessageLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulator.modules.kit.libpq_lines.most_answer_bytes", lambda: 100)
    theirs, line = server
    theirs.sendall(row(b"x" * 200) + _READY[:3])
    with pytest.raises(SimulatorError, match="too much for this worker's memory"):
        line.receive()


def make_asker(workload: Any, **options: Any) -> PostgresAsker:
    target = {"connection_string": "host=127.0.0.1 dbname=none", **options}
    module = Postgres(Postgres.options_model(**target), Job(workload.schema))
    return PostgresAsker(module, 1, module.options, module.dialect, module.plans_anew)


@pytest.mark.parametrize("tags", ["row", "table"])
@pytest.mark.parametrize(
    "name", [query.name for query in load_workload("machines")().schema.descriptions]
)
def test_a_statement_with_places_is_the_compiled_one(name: str, tags: str) -> None:
    """Filled in as texts, it is what `compile` gives for each execution."""
    workload = load_workload("machines")(devices=50, tags=tags)
    asker = make_asker(workload, prepared_statements=False)
    bounds = make_bounds(workload.schema.description(name))
    sent = [question.message[5:-1].decode() for question in asker.encode(bounds)]
    assert sent == [asker.module.compile(bound) for bound in bounds]


def test_a_prepared_question_has_its_values_in_the_protocols_types() -> None:
    workload = Temperature(device_spread=3)
    asker = make_asker(workload)
    query = workload.schema.description("range")
    assert query is not None
    questions = asker.encode(
        BoundQueries(query, 2, np.array([[b"a"], [b"bc"]]), np.array([1, 2]), np.array([3, 4]))
    )
    first, second = questions
    assert first.statement is second.statement and first.statement is not None
    text = first.statement.text.decode()
    assert all(place in text for place in ("$1", "$2", "$3"))
    whole = asker.module.compile(BoundQuery(query, ("bc",), 2, 4))
    filled = text.replace("$1", "'bc'").replace("$2", "2").replace("$3", "4")
    assert filled == whole
    assert pack_values(second) == [b"bc", struct.pack("!q", 2), struct.pack("!q", 4)]
    assert asker.encode_statement("SELECT 1").statement != first.statement
    assert isinstance(first, Question)


@pytest.mark.parametrize(
    ("name", "is_text"),
    [
        ("fleet-downsample", True),
        ("threshold", True),
        ("top-devices", True),
        ("downsample", False),
        ("range", False),
        ("last-values", False),
    ],
)
def test_a_window_of_all_devices_has_a_plan_of_its_own(name: str, is_text: bool) -> None:
    workload = load_workload("machines")(devices=50)
    asker = make_asker(workload)
    bounds = make_bounds(workload.schema.description(name))
    questions = list(asker.encode(bounds))
    assert [question.statement is None for question in questions] == [is_text] * 3
    if is_text:
        sent = [question.message[5:-1].decode() for question in questions]
        assert sent == [asker.module.compile(bound) for bound in bounds]


def test_over_tls_libpq_is_given_the_text_alone() -> None:
    sent: list[bytes] = []
    pg = SimpleNamespace(send_query=sent.append, flush=lambda: 0)
    line = LibpqLine(cast(Connection, SimpleNamespace(pg=pg, descriptor=0)))
    line.send(make_asker(Temperature(), prepared_statements=False).encode_statement("SELECT 1"))
    assert sent == [b"SELECT 1"]
