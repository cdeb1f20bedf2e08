"""What servers do that they shouldn't, and what becomes of the requests that are under way then."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from simulator.contract import Load
from simulator.errors import Retryable, SimulatorError
from simulator.modules.options import Job
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.dialects import Dialect
from simulator.modules.postgres.queries import PostgresAsker
from simulator.modules.sending import Completion, Request
from simulator.workloads.temperature import Temperature

from ..helpers import submit
from .postgres_login import let_in
from .test_postgres_asking import complete, row

LIMIT_S = 20.0

Answer = Callable[[socket.socket], None]
"""Answers all that a client asks."""


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dialect, "SESSION", {})


@contextmanager
def asking(answer: Answer, in_flight: int = 1, timeout_s: float = 10.0) -> Iterator[PostgresAsker]:
    """An asker of texts, of a server whose connections are answered so, each in a thread."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        let_in(listener, 4 * in_flight) as clients,
    ):
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                if clients.empty():
                    over.wait(0.005)
                    continue
                threading.Thread(target=live, args=[clients.get()], daemon=True).start()

        def live(client: socket.socket) -> None:
            with suppress(OSError), client:
                answer(client)

        thread = threading.Thread(target=serve)
        thread.start()
        dsn = f"host=127.0.0.1 port={listener.getsockname()[1]} dbname=x sslmode=disable"
        options = Postgres.options_model(
            connection_string=dsn, prepared_statements=False, query_timeout_s=timeout_s
        )
        module = Postgres(options, Job(Temperature.schema, Load()))
        asker = PostgresAsker(module, in_flight, options, module.dialect)
        try:
            with closing(asker):
                asker.open()
                yield asker
        finally:
            over.set()
            thread.join()


def collect(asker: PostgresAsker, count: int) -> dict[str, Completion]:
    """This many completions, by their requests' names."""
    ended: dict[str, Completion] = {}
    until_s = time.monotonic() + LIMIT_S
    while len(ended) < count:
        assert time.monotonic() < until_s, ended
        ended |= {completion.request.query: completion for completion in asker.poll(1.0)}
    return ended


def read_question(client: socket.socket) -> str:
    """The text of the next question; ConnectionError at the end."""
    head = client.recv(5, socket.MSG_WAITALL)
    if len(head) < 5 or head[:1] != b"Q":
        raise ConnectionResetError
    (size,) = struct.unpack("!I", head[1:])
    return client.recv(size - 4, socket.MSG_WAITALL)[:-1].decode()


def answer_all(client: socket.socket, repeated: int = 1) -> None:
    while True:
        read_question(client)
        for _ in range(repeated):
            client.sendall(row(b"1") + complete(1))
            time.sleep(0.01)


def ask(asker: PostgresAsker, *names: str) -> None:
    for name in names:
        submit(asker, asker.encode_statement(name), name)


def test_connections_that_die_with_many_in_flight_fail_their_own_questions_alone() -> None:
    come = threading.Barrier(8)

    def answer(client: socket.socket) -> None:
        name = read_question(client)
        come.wait(LIMIT_S)
        if name.startswith("dies"):
            return
        client.sendall(row(b"1") + complete(1))
        answer_all(client)

    with asking(answer, in_flight=8) as asker:
        names = [f"{fate} {number}" for number in range(4) for fate in ("dies", "lives")]
        ask(asker, *names)
        ended = collect(asker, 8)
        for name, completion in ended.items():
            if name.startswith("lives"):
                assert (completion.error, completion.done) == (None, 1)
            else:
                assert isinstance(completion.error, Retryable)
                assert completion.error.kind == "connection_lost"
        # Connections are made again when they are asked for.
        come.reset()
        assert len(asker._lines) == 4
        asker.recover(Request(None))
        assert len(asker._lines) == 8


def test_answers_out_of_order_are_those_of_their_own_questions() -> None:
    turns = {name: threading.Event() for name in ("first", "second", "third")}

    def answer(client: socket.socket) -> None:
        name = read_question(client)
        assert turns[name].wait(LIMIT_S)
        client.sendall(row(name.encode()) * len(name) + complete(len(name)))

    with asking(answer, in_flight=3) as asker:
        ask(asker, *turns)
        for name in ("third", "first", "second"):
            assert asker.poll(0.0) == []
            turns[name].set()
            [completion] = collect(asker, 1).values()
            assert (completion.request.query, completion.done) == (name, len(name))


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_answer_that_comes_byte_by_byte_has_its_time_and_no_more(in_flight: int) -> None:
    def answer(client: socket.socket) -> None:
        pause_s = 0.001 if read_question(client) == "slow" else 0.1
        for byte in (row(b"1") * 3 + complete(3)) * (1 if pause_s < 0.1 else 100):
            client.sendall(bytes([byte]))
            time.sleep(pause_s)
        answer_all(client)

    with asking(answer, in_flight, timeout_s=0.8) as asker:
        ask(asker, "slow")
        [completion] = collect(asker, 1).values()
        assert (completion.error, completion.done) == (None, 3)
    with asking(answer, in_flight, timeout_s=0.8) as asker:
        began_s = time.monotonic()
        ask(asker, "endless")
        [completion] = collect(asker, 1).values()
        assert isinstance(completion.error, Retryable)
        assert "no answer within 0.8 s" in str(completion.error)
        # The whole answer would take 100 s.
        assert time.monotonic() - began_s < LIMIT_S


@pytest.mark.parametrize("in_flight", [1, 2])
def test_no_answer_at_all_ends_the_question_in_time(in_flight: int) -> None:
    def answer(client: socket.socket) -> None:
        while True:
            read_question(client)

    with asking(answer, in_flight, timeout_s=0.3) as asker:
        ask(asker, "silent")
        error = collect(asker, 1)["silent"].error
        assert isinstance(error, Retryable) and "no answer within 0.3 s" in str(error)


def test_a_second_answer_is_not_taken_for_the_next_one() -> None:
    with asking(lambda client: answer_all(client, repeated=2)) as asker:
        assert asker.ask(asker.encode_statement("twice")).rows == 1
        # By then the other one is there.
        time.sleep(0.05)
        with pytest.raises((Retryable, SimulatorError), match="nobody asked for"):
            asker.ask(asker.encode_statement("next"))


def test_with_several_in_flight_a_second_answer_ends_its_connection() -> None:
    with asking(lambda client: answer_all(client, repeated=2), in_flight=2) as asker:
        for number in range(4):
            ask(asker, str(number))
            assert collect(asker, 1)[str(number)].error is None


@pytest.mark.parametrize("in_flight", [1, 2])
def test_an_answer_that_came_while_the_worker_was_stopped_counts(in_flight: int) -> None:
    """By the clock, it is late when the worker goes on."""
    with asking(answer_all, in_flight, timeout_s=0.3) as asker:
        ask(asker, "stopped")
        time.sleep(0.9)
        completion = collect(asker, 1)["stopped"]
        assert (completion.error, completion.done) == (None, 1)
