"""The asker of a vendor's client: one for each question in flight, and another for one that was lost."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import Retryable, SimulatorError
from simulator.modules.kit.module import connection_lost
from simulator.modules.kit.official import ClientAsker
from simulator.modules.sending import Received, Rows

from ..helpers import submit


class Database:
    """A module's connection, and the module that has it."""

    closed = False

    def connect(self) -> Database:
        return self

    def close(self) -> None:
        self.closed = True


class Client:
    """Fails as it is told to."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Lost(Exception):
    """The client's word for a connection that ended."""


class Refused(Exception):
    """The client's word for an invalid statement."""


class ClientsAsker(ClientAsker[Database]):
    """A statement is the rows of its answer, or the error that the client raises."""

    def __init__(self, in_flight: int = 1) -> None:
        super().__init__(Database(), in_flight)  # type: ignore[arg-type]
        self.made: list[Client] = []

    def make_client(self) -> Client:
        self.made.append(Client())
        return self.made[-1]

    def execute(self, client: Client, statement: Any) -> Rows:
        assert not client.closed
        if isinstance(statement, Exception):
            raise statement
        rows: Rows = statement
        return rows

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        if isinstance(error, Lost):
            return connection_lost(error)
        return SimulatorError(str(error)) if isinstance(error, Refused) else None


def test_each_answer_is_decoded_by_the_client() -> None:
    asker = ClientsAsker()
    asker.open()
    received = asker.ask(asker.encode_statement([(1,), (2,)]))
    assert received == Received(2, 0, [(1,), (2,)])
    assert asker.decode(received) == [(1,), (2,)]
    connection = asker.connection
    asker.close()
    assert connection.closed
    assert [client.closed for client in asker.made] == [True]


def test_a_refused_question_leaves_its_client_and_a_lost_one_does_not() -> None:
    asker = ClientsAsker()
    asker.open()
    with pytest.raises(SimulatorError, match="no such table"):
        asker.ask(Refused("no such table"))
    assert asker.ask([(1,)]).rows == 1
    assert len(asker.made) == 1
    for kind, error in ((Retryable, Lost("gone")), (ZeroDivisionError, ZeroDivisionError())):
        with pytest.raises(kind):
            asker.ask(error)
        assert asker.made[-1].closed
        assert asker.ask([(1,)]).rows == 1
    assert len(asker.made) == 3


def test_there_is_a_client_for_each_question_in_flight() -> None:
    asker = ClientsAsker(3)
    asker.open()
    assert len(asker.made) == 3
    for number in range(6):
        submit(asker, [(number,)], str(number))
    answers: dict[str, Any] = {}
    while len(answers) < 6:
        for completion in asker.poll(10):
            assert completion.answer is not None
            answers[completion.request.query] = completion.answer.data
    assert answers == {str(number): [(number,)] for number in range(6)}
    asker.close()
    assert all(client.closed for client in asker.made)
