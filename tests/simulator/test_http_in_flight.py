"""Several questions by HTTP at once, in one thread: on a server that answers each connection by itself."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
import trustme

from simulator.errors import Retryable, SimulatorError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.kit.http_database import HttpAsker
from simulator.modules.options import parse_options
from simulator.modules.sending import Completion, Received
from simulator.workloads.temperature import Temperature

from .. import helpers
from ..helpers import eventually
from .listening import Listening
from .test_http_asking import AQL_ENDS, LETS_IN, UINT8, answer_of

Answering = Callable[[str, socket.socket], None]
"""Receives what a request asks, and where to answer."""

ONE_ROW = b"\x01\x01" + UINT8 + b"\x07"


class Server(Listening):
    """Answers each connection in a thread of its own."""

    def __init__(self, answering: Answering, tls: ssl.SSLContext | None = None) -> None:
        self._answering = answering
        self._tls = tls
        self.connections = self.ended = 0
        super().__init__()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self.listener.accept()
                self.connections += 1
                threading.Thread(target=self._answer_all, args=[stream], daemon=True).start()

    def _answer_all(self, plain: socket.socket) -> None:
        with (
            suppress(OSError),
            self._tls.wrap_socket(plain, True) if self._tls else plain as stream,
            stream.makefile("rb") as reader,
        ):
            while first := reader.readline():
                size = 0
                while (line := reader.readline()) != b"\r\n":
                    name, _, value = line.lower().partition(b":")
                    size = int(value) if name == b"content-length" else size
                body = reader.read(size)
                self._answering((body or first).decode(), stream)
        self.ended += 1


@contextmanager
def asking(
    answering: Answering,
    in_flight: int,
    name: str = "clickhouse",
    timeout_s: float | None = None,
    trust: trustme.CA | None = None,
) -> Iterator[tuple[HttpAsker[Any], Server]]:
    """An open asker that the server has let in; `timeout_s`: how long it waits for an answer."""

    def answer(question: str, stream: socket.socket) -> None:
        if question.startswith(("SELECT 1", "SELECT name, value")) or "/_api/version" in question:
            stream.sendall(answer_of(LETS_IN[name]))
        else:
            answering(question, stream)

    tls, values = None, {}
    if trust is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.issue_cert("127.0.0.1").configure_cert(tls)
        values = {"ca_certs": trust.cert_pem.bytes().decode()}
    with closing(Server(answer, tls)) as server:
        values["endpoint"] = f"{'https' if tls else 'http'}://{server.address}"
        kind = load_module(name)
        module: Any = kind(parse_options(kind.options_model, values, str), Job(Temperature.schema))
        with closing(module.asker(in_flight)) as asker:
            asker.open()
            if timeout_s is not None:
                asker._timeout_s = timeout_s
            yield asker, server


def collect(asker: HttpAsker[Any], count: int) -> dict[str, Completion]:
    """This many completions, by what was submitted."""
    completions: list[Completion] = []
    deadline_s = time.monotonic() + 20
    while len(completions) < count:
        assert time.monotonic() < deadline_s, completions
        completions += asker.poll(1.0)
    return {completion.request.query: completion for completion in completions}


def submit(asker: HttpAsker[Any], *asked: str) -> None:
    for question in asked:
        helpers.submit(asker, asker.encode_statement(question), question)


def test_answers_come_in_any_order_and_no_thread_waits_for_them() -> None:
    come = threading.Barrier(3)
    turns = {name: threading.Event() for name in "abc"}

    def answering(question: str, stream: socket.socket) -> None:
        come.wait(20)
        assert turns[question].wait(20)
        stream.sendall(answer_of(ONE_ROW * (1 + "abc".index(question))))

    with asking(answering, 3) as (asker, _):
        submit(asker, "a", "b", "c")
        assert "send" not in [thread.name for thread in threading.enumerate()]
        for name in "cab":
            assert asker.poll(0.0) == []
            turns[name].set()
            [(asked, completion)] = collect(asker, 1).items()
            assert asked == name
            assert completion.done == 1 + "abc".index(name)
            assert completion.sent_s is not None and completion.sent_s <= completion.arrived_s


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_that_comes_twice_is_taken_for_no_other(is_late: bool, in_flight: int) -> None:
    taken = {name: threading.Event() for name in "abc"}

    def answering(question: str, stream: socket.socket) -> None:
        answer = answer_of(ONE_ROW * (1 + "abc".index(question)))
        stream.sendall(answer if is_late else answer + answer)
        if is_late:
            assert taken[question].wait(20)
            stream.sendall(answer)

    with asking(answering, in_flight) as (asker, server):
        for name in "abc":
            submit(asker, name)
            assert collect(asker, 1)[name].done == 1 + "abc".index(name)
            taken[name].set()
            if is_late:
                [connection] = asker.database._nodes[0]._idle
                eventually(lambda: bool(connection.find_events(0)), "second answer")  # noqa: B023
        assert server.connections >= 3


def test_an_answer_is_over_when_its_end_has_come() -> None:
    """The answer comes in pieces: header, chunk and end."""
    asked_for = threading.Semaphore(0)

    def answering(_: str, stream: socket.socket) -> None:
        for piece in (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            b"%x\r\n%b\r\n" % (len(ONE_ROW), ONE_ROW),
            b"0\r\n\r\n",
        ):
            assert asked_for.acquire(timeout=20)
            stream.sendall(piece)

    with asking(answering, 2) as (asker, _):
        submit(asker, "a")
        for _ in range(2):
            asked_for.release()
            assert asker.poll(0.05) == []
        asked_for.release()
        assert collect(asker, 1)["a"].answer == Received(1, len(ONE_ROW), ONE_ROW)


def answer_by_name(asked: str, stream: socket.socket) -> None:
    """Answer as the question's name says."""
    if asked == "cut":
        stream.sendall(answer_of(ONE_ROW + b"?")[:-1])
        stream.shutdown(socket.SHUT_RDWR)
    elif asked == "wrong":
        stream.sendall(answer_of(ONE_ROW[:-1]))
    elif asked == "refused":
        stream.sendall(answer_of(b"Code: 1. DB::Exception: no", "500 Error"))
    elif asked != "silent":
        stream.sendall(answer_of(ONE_ROW))


def test_a_question_that_fails_ends_no_other() -> None:
    with asking(answer_by_name, 4) as (asker, _):
        for _ in range(2):
            submit(asker, "cut", "wrong", "good", "refused")
            ended = collect(asker, 4)
            cut, wrong, refused = (ended[name].error for name in ("cut", "wrong", "refused"))
            assert isinstance(cut, Retryable) and cut.kind == "connection_lost"
            assert isinstance(wrong, SimulatorError)
            assert "in the middle of a column" in str(wrong)
            assert "DB::Exception: no" in str(refused)
            assert ended["good"].answer == Received(1, len(ONE_ROW), ONE_ROW)


def test_an_answer_that_is_late_ends_its_own_question() -> None:
    # A busy machine answers the good ones within it.
    with asking(answer_by_name, 2, timeout_s=0.8) as (asker, server):
        submit(asker, "silent", "good")
        assert collect(asker, 1)["good"].done == 1
        late = collect(asker, 1)["silent"].error
        assert isinstance(late, Retryable) and late.kind == "timeout"
        assert "no answer within 0.8 s" in str(late)
        # What comes of it later must not be taken for the next one's answer.
        eventually(lambda: server.ended == 1, "end of that connection")
        submit(asker, "good")
        assert collect(asker, 1)["good"].done == 1


def test_a_connection_that_ended_between_questions_is_replaced() -> None:
    def answering(_: str, stream: socket.socket) -> None:
        stream.sendall(answer_of(ONE_ROW))
        stream.shutdown(socket.SHUT_RDWR)

    with asking(answering, 2) as (asker, server):
        for number in range(1, 4):
            submit(asker, "a")
            assert collect(asker, 1)["a"].done == 1
            eventually(lambda: server.ended == number, "end of a connection")  # noqa: B023
        for number in range(4, 6):
            received = asker.ask(asker.encode_statement("b"))
            assert received.rows == 1
            eventually(lambda: server.ended == number, "end of a connection")  # noqa: B023


def test_pages_of_several_questions_are_asked_for_at_once() -> None:
    come = threading.Barrier(2)

    def answering(question: str, stream: socket.socket) -> None:
        come.wait(20)
        if "/_api/cursor/" in question:
            number = question.partition("/_api/cursor/")[2][:1]
            body = b'{"result":[[%b]],"hasMore":false,"count":2,' % number.encode() + AQL_ENDS
        else:
            number = "7" if "seven" in question else "8"
            body = (
                b'{"result":[[0]],"hasMore":true,"id":"%b","count":2,"error":false,"code":201}'
                % number.encode()
            )
        stream.sendall(answer_of(body))

    with asking(answering, 2, "arangodb") as (asker, _):
        submit(asker, "seven", "eight")
        for name, completion in collect(asker, 2).items():
            assert completion.answer is not None
            assert asker.decode(completion.answer) == [(0,), (7 if name == "seven" else 8,)]


def test_long_answers_over_tls_come_whole() -> None:
    """Nothing tells that there is more decrypted data."""
    body = ONE_ROW * 50_000

    with asking(lambda _, stream: stream.sendall(answer_of(body)), 2, trust=trustme.CA()) as (
        asker,
        _,
    ):
        submit(asker, "a", "b")
        for completion in collect(asker, 2).values():
            assert completion.answer == Received(50_000, len(body), body)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_what_is_under_way_in_the_end_is_cut_off(in_flight: int) -> None:
    with asking(answer_by_name, in_flight) as (asker, server):
        submit(asker, "silent")
        eventually(lambda: server.connections > 0, "connection")
        asker.close()
        eventually(lambda: server.ended == server.connections, "end of all connections")


def test_who_asks_nobody_is_told_so() -> None:
    with asking(answer_by_name, 2) as (asker, server):
        asker.database.close()
        server.close()
        submit(asker, "a")
        lost = collect(asker, 1)["a"].error
        assert isinstance(lost, Retryable) and lost.kind == "connection_lost"
