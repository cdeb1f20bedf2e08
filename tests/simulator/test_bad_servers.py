"""What servers do that they shouldn't, and what becomes of the requests that are under way then."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import pytest

from simulator.contract import Load
from simulator.errors import Retryable, SimulatorError
from simulator.modules.iotdb.thrift import put_text
from simulator.modules.options import Job
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.dialects import Dialect
from simulator.modules.sending import Asker, Completion, Request
from simulator.workloads.temperature import Temperature

from ..helpers import submit
from .postgres_login import log_in
from .test_iotdb_asking import LOGIN, block, executed, make_module, name_call, put_struct, reply
from .test_postgres_asking import complete, row

LIMIT_S = 20.0

Answer = Callable[[socket.socket], None]
"""Answers all that a client asks."""


@dataclass(frozen=True)
class Spoken:
    """What a server and an asker speak."""

    let_in: Callable[[socket.socket], object]
    make_asker: Callable[[int, int, float], Asker]
    """Of port, queries in flight and the limit for an answer."""
    read_question: Callable[[socket.socket], str]
    """The text of the next query; ConnectionError at the end."""
    answer: Callable[[int], bytes]
    """So many rows."""


# --- PostgreSQL's protocol --------------------------------------------------------------------------


def make_postgres_asker(port: int, in_flight: int, timeout_s: float) -> Asker:
    dsn = f"host=127.0.0.1 port={port} dbname=x sslmode=disable"
    options = Postgres.options_model(
        connection_string=dsn, prepared_statements=False, query_timeout_s=timeout_s
    )
    return Postgres(options, Job(Temperature.schema, Load())).asker(in_flight)


def read_postgres_question(client: socket.socket) -> str:
    head = client.recv(5, socket.MSG_WAITALL)
    if len(head) < 5 or head[:1] != b"Q":
        raise ConnectionResetError
    (size,) = struct.unpack("!I", head[1:])
    return client.recv(size - 4, socket.MSG_WAITALL)[:-1].decode()


# --- Thrift -----------------------------------------------------------------------------------------


def make_iotdb_asker(port: int, in_flight: int, timeout_s: float) -> Asker:
    return make_module(Temperature(), port, query_timeout_s=timeout_s).asker(in_flight)


def read_call(client: socket.socket) -> tuple[str, bytes]:
    """Name and bytes of the next call."""
    head = client.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionResetError
    (size,) = struct.unpack("!i", head)
    message = client.recv(size, socket.MSG_WAITALL)
    return name_call(message), message


def let_into_session(client: socket.socket) -> None:
    for result in LOGIN.values():
        read_call(client)
        client.sendall(reply(result))


def read_iotdb_question(client: socket.socket) -> str:
    name, message = read_call(client)
    if name != "executeStatementV2":
        raise ConnectionResetError
    begin = message.index(put_text(2, "")[:3]) + 3
    (size,) = struct.unpack_from("!i", message, begin)
    return message[begin + 4 : begin + 4 + size].decode()


def answer_in_blocks(rows: int) -> bytes:
    return reply(put_struct(0, executed(1, [block([1] * rows, [], [[5] * rows])])))


SPOKEN = {
    "libpq": Spoken(
        log_in, make_postgres_asker, read_postgres_question,
        lambda rows: row(b"1") * rows + complete(rows),
    ),
    "thrift": Spoken(let_into_session, make_iotdb_asker, read_iotdb_question, answer_in_blocks),
}  # fmt: skip


@pytest.fixture(params=SPOKEN)
def speaks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Spoken:
    monkeypatch.setattr(Dialect, "SESSION", {})
    return SPOKEN[request.param]


# ----------------------------------------------------------------------------------------------------


@dataclass
class Asking:
    """An asker, and how many connections its server has taken."""

    asker: Asker
    connections: int = 0


@contextmanager
def asking(
    speaks: Spoken, answer: Answer, in_flight: int = 1, timeout_s: float = 10.0
) -> Iterator[Asking]:
    """An asker of texts, of a server whose connections are answered so, each in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=live, args=[client], daemon=True).start()

        def live(client: socket.socket) -> None:
            with suppress(OSError), client:
                asked.connections += 1
                speaks.let_in(client)
                answer(client)

        thread = threading.Thread(target=serve)
        asked = Asking(speaks.make_asker(listener.getsockname()[1], in_flight, timeout_s))
        thread.start()
        try:
            with closing(asked.asker):
                asked.asker.open()
                yield asked
        finally:
            # `close` alone would not end a thread that accepts.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def collect(asker: Asker, count: int) -> dict[str, Completion]:
    """This many completions, by their requests' names."""
    ended: dict[str, Completion] = {}
    until_s = time.monotonic() + LIMIT_S
    while len(ended) < count:
        assert time.monotonic() < until_s, ended
        ended |= {completion.request.query: completion for completion in asker.poll(1.0)}
    return ended


def answer_all(speaks: Spoken, client: socket.socket, repeated: int = 1) -> None:
    while True:
        speaks.read_question(client)
        for _ in range(repeated):
            client.sendall(speaks.answer(1))
            time.sleep(0.01)


def ask(asker: Asker, *names: str) -> None:
    for name in names:
        submit(asker, asker.encode_statement(name), name)


def test_connections_that_die_with_many_in_flight_fail_their_own_questions_alone(
    speaks: Spoken,
) -> None:
    come = threading.Barrier(8)

    def answer(client: socket.socket) -> None:
        name = speaks.read_question(client)
        come.wait(LIMIT_S)
        if name.startswith("dies"):
            return
        client.sendall(speaks.answer(1))
        answer_all(speaks, client)

    with asking(speaks, answer, in_flight=8) as asked:
        names = [f"{fate} {number}" for number in range(4) for fate in ("dies", "lives")]
        ask(asked.asker, *names)
        ended = collect(asked.asker, 8)
        for name, completion in ended.items():
            if name.startswith("lives"):
                assert (completion.error, completion.done) == (None, 1)
            else:
                assert isinstance(completion.error, Retryable)
                assert completion.error.kind == "connection_lost"
        # Connections are made again when they are asked for.
        come.reset()
        assert asked.connections == 8
        asked.asker.recover(Request(None))
        assert asked.connections == 12


def test_answers_out_of_order_are_those_of_their_own_questions(speaks: Spoken) -> None:
    turns = {name: threading.Event() for name in ("first", "second", "third")}
    rows = {name: count for count, name in enumerate(turns, 1)}

    def answer(client: socket.socket) -> None:
        name = speaks.read_question(client)
        assert turns[name].wait(LIMIT_S)
        client.sendall(speaks.answer(rows[name]))

    with asking(speaks, answer, in_flight=3) as asked:
        ask(asked.asker, *turns)
        for name in ("third", "first", "second"):
            assert not asked.asker.poll(0.0)
            turns[name].set()
            [completion] = collect(asked.asker, 1).values()
            assert (completion.request.query, completion.done) == (name, rows[name])


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_answer_that_comes_byte_by_byte_has_its_time_and_no_more(
    speaks: Spoken, in_flight: int
) -> None:
    def answer(client: socket.socket) -> None:
        pause_s = 0.0002 if speaks.read_question(client) == "slow" else 0.1
        for byte in speaks.answer(3) * (1 if pause_s < 0.1 else 100):
            client.sendall(bytes([byte]))
            time.sleep(pause_s)
        answer_all(speaks, client)

    with asking(speaks, answer, in_flight, timeout_s=1.0) as asked:
        ask(asked.asker, "slow")
        [completion] = collect(asked.asker, 1).values()
        assert (completion.error, completion.done) == (None, 3)
    with asking(speaks, answer, in_flight, timeout_s=1.0) as asked:
        began_s = time.monotonic()
        ask(asked.asker, "endless")
        [completion] = collect(asked.asker, 1).values()
        assert isinstance(completion.error, Retryable)
        assert "no answer" in str(completion.error)
        # The whole answer would take 9 s and more.
        assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("in_flight", [1, 2])
def test_no_answer_at_all_ends_the_question_in_time(speaks: Spoken, in_flight: int) -> None:
    def answer(client: socket.socket) -> None:
        while True:
            speaks.read_question(client)

    with asking(speaks, answer, in_flight, timeout_s=0.3) as asked:
        ask(asked.asker, "silent")
        error = collect(asked.asker, 1)["silent"].error
        assert isinstance(error, Retryable) and "no answer" in str(error)


def test_a_second_answer_is_not_taken_for_the_next_one(speaks: Spoken) -> None:
    with asking(speaks, lambda client: answer_all(speaks, client, repeated=2)) as asked:
        assert asked.asker.ask(asked.asker.encode_statement("twice")).rows == 1
        # By then the other one is there.
        time.sleep(0.05)
        with pytest.raises((Retryable, SimulatorError), match="nobody asked for"):
            asked.asker.ask(asked.asker.encode_statement("next"))


def test_with_several_in_flight_a_second_answer_ends_its_connection(speaks: Spoken) -> None:
    with asking(
        speaks, lambda client: answer_all(speaks, client, repeated=2), in_flight=2
    ) as asked:
        for number in range(4):
            ask(asked.asker, str(number))
            completion = collect(asked.asker, 1)[str(number)]
            assert completion.done == 1 or "nobody asked for" in str(completion.error)
            # By then the other one is there.
            time.sleep(0.03)
        asked.asker.recover(Request(None))
        assert asked.connections > 2


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_answer_that_came_while_the_worker_was_stopped_counts(
    speaks: Spoken, in_flight: int
) -> None:
    """By the clock, it is late when the worker goes on."""
    with asking(
        speaks, lambda client: answer_all(speaks, client), in_flight, timeout_s=0.3
    ) as asked:
        ask(asked.asker, "stopped")
        time.sleep(0.9)
        completion = collect(asked.asker, 1)["stopped"]
        assert (completion.error, completion.done) == (None, 1)
