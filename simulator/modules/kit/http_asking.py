"""Asks questions by HTTP: a request is made whole before it is due, and of its answer rows and bytes are
counted. Statements of SQL, and of languages like it, are made of a template for each query."""

from __future__ import annotations

import select
import time
from abc import abstractmethod
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..asking import PolledAsker, Received
from ..own_statements import Drawn, quote_json
from ..sending import Outcome, find_arrival, find_sending, note_sending
from .connected import ConnectedModule
from .http import Answer, Connection, HttpRequest
from .http_database import SHOWN, HttpClient
from .sql_queries import Template, make_template

_SUCCESS = range(200, 300)

Conversation = Generator[HttpRequest, bytes, Received]
"""The requests that a question takes, one after the other: each is given its answer's body, and the last one
returns what was received. Retryable or SimulatorError if an answer can't be used."""


DatabaseT = TypeVar("DatabaseT", bound=HttpClient)


@dataclass(slots=True)
class _Asked:
    """A question that is under way beside others."""

    token: object
    conversation: Conversation
    connection: Connection
    sent_s: float
    latest_s: float
    """When its latest request was sent."""


class HttpAsker(PolledAsker, Generic[DatabaseT]):
    """Asks by a database of its own, which has a connection for each question in flight. A node that is lost
    is the database's affair, too."""

    module: ConnectedModule[Any, DatabaseT]

    def __init__(
        self,
        module: ConnectedModule[Any, DatabaseT],
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`timeout_s`: how long an answer may take; None: as long as to any other request."""
        super().__init__(module, in_flight, timeout_s or module.options.request_timeout_s)
        self._database: DatabaseT | None = None
        self._begun: tuple[Conversation, Connection] | None = None
        self._asked: dict[int, _Asked] = {}
        """Descriptor of a connection -> the question that is under way by it."""

    def open(self) -> None:
        self._database = self.module.connect()

    def close(self) -> None:
        if self._begun is not None:
            self._begun[1].close()
        for question in self._asked.values():
            question.connection.close()
        self._begun = None
        self._asked.clear()
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def database(self) -> DatabaseT:
        """What an open asker asks."""
        assert self._database is not None
        return self._database

    @abstractmethod
    def converse(self, request: Any) -> Conversation:
        """The requests of a question."""

    def _go_on(self, conversation: Conversation, answer: Answer) -> HttpRequest | Received:
        """The next request, or what was received; Retryable or SimulatorError if the answer can't be used."""
        if answer.status not in _SUCCESS:
            raise self.database.explain(answer)
        try:
            return conversation.send(answer.body)
        except StopIteration as end:
            received: Received = end.value
            return received

    # --- one after the other

    def begin(self, request: Any) -> None:
        conversation = self.converse(request)
        self._begun = conversation, self.database.begin(next(conversation), self._timeout_s)

    def finish(self) -> Received:
        assert self._begun is not None
        conversation, connection = self._begun
        database = self.database
        while True:
            self._begun = None
            result = self._go_on(conversation, database.finish(connection))
            if isinstance(result, Received):
                return result
            sent_s = find_sending(0.0)
            connection = database.begin(result, self._timeout_s)
            self._begun = conversation, connection
            # The question was sent with its first request.
            note_sending(sent_s)

    # --- several at once

    def submit(self, request: Any, token: object) -> None:
        conversation = self.converse(request)
        self._send(token, conversation, next(conversation))

    def _send(
        self,
        token: object,
        conversation: Conversation,
        request: HttpRequest,
        sent_s: float | None = None,
    ) -> None:
        """Send the next request of a question. `sent_s`: when its first one was sent (None: this is it)."""
        latest_s = time.perf_counter()
        try:
            connection = self.database.begin(request, self._timeout_s)
        except (Retryable, SimulatorError) as error:
            self._found.append(Outcome(token, time.perf_counter(), error, sent_s))
            return
        if sent_s is None:
            sent_s = find_sending(latest_s)
        self._asked[connection.descriptor] = _Asked(
            token, conversation, connection, sent_s, latest_s
        )
        self._poll.register(connection.descriptor, select.POLLIN)

    def list_asked(self) -> Iterable[tuple[int, float]]:
        return ((descriptor, question.latest_s) for descriptor, question in self._asked.items())

    def take(self, descriptor: int) -> None:
        question = self._asked[descriptor]
        result: HttpRequest | Received | Exception
        try:
            answer = self.database.receive(question.connection)
            if answer is None:
                return
            result = self._go_on(question.conversation, answer)
        except (Retryable, SimulatorError) as error:
            result = error
        self._forget(descriptor)
        if isinstance(result, HttpRequest):
            self._send(question.token, question.conversation, result, question.sent_s)
            return
        answered_s = find_arrival(question.latest_s)
        self._found.append(Outcome(question.token, answered_s, result, question.sent_s))

    def end_late(self, descriptor: int) -> None:
        question = self._forget(descriptor)
        error = self.database.give_up(question.connection)
        self._found.append(Outcome(question.token, time.perf_counter(), error, question.sent_s))

    def _forget(self, descriptor: int) -> _Asked:
        # A connection may be closed before it is used again, and its descriptor be another's.
        self._poll.unregister(descriptor)
        return self._asked.pop(descriptor)


def read_json(body: bytes, *path: str) -> Any:
    """An answer's JSON, or what it has below these keys; SimulatorError if it isn't that."""
    try:
        document = orjson.loads(body)
        for key in path:
            document = document[key]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        raise SimulatorError(f"unreadable or incomplete answer ({text})") from error
    return document


class SqlAsker(HttpAsker[DatabaseT]):
    """Asks statements, in which the parameters stand, by one request, whose answer's body is counted and
    decoded."""

    def __init__(
        self,
        module: ConnectedModule[Any, DatabaseT],
        dialect: Drawn,
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`dialect`: what the module compiles queries by, SQL or not."""
        super().__init__(module, in_flight, timeout_s)
        self._dialect = dialect
        self._templates: dict[str, Template] = {}
        """Each query's template, escaped."""

    def encode(self, bounds: BoundQueries) -> Sequence[Any]:
        name = bounds.query.name
        if name not in self._templates:
            template = make_template(bounds, self.write_statement, self._dialect)
            self._templates[name] = self.prepare(template)
        filled = self._templates[name].fill(bounds, self.write_text, self.write_instant)
        return list(map(self.make_request, filled))

    def encode_statement(self, statement: Any) -> Any:
        whole = self.prepare(Template((statement,), (), 0))
        return self.make_request(whole.parts[0])

    def write_statement(self, bound: BoundQuery) -> str:
        """The statement that asks a query, as a text."""
        text: str = self.module.make_statement(bound)
        return text

    def prepare(self, template: Template) -> Template:
        """A query's template, with what is constant as it stands in a request."""
        parts = tuple(map(self.escape, template.parts))
        return Template(parts, template.places, template.devices)

    def write_text(self, text: str) -> str:
        """A name as it stands in a request."""
        return self.escape(self._dialect.text(text))

    def write_instant(self, time_ms: int) -> str:
        """A time, in ms since 1970, as it stands in a request."""
        return self.escape(self._dialect.instant(time_ms))

    def converse(self, request: Any) -> Conversation:
        body = yield request
        return Received(self.count_rows(body), len(body), body)

    @abstractmethod
    def count_rows(self, body: bytes) -> int:
        """The rows of a complete answer, by what the protocol says or by a scan that costs nanoseconds a
        byte. Retryable or SimulatorError if it holds an error, whatever its status, or is cut off."""

    def escape(self, part: str) -> str:
        """A part of a statement as it stands in a request, whatever comes before and behind it: within a
        text of JSON, unless the module says otherwise."""
        return quote_json(part)[1:-1]

    @abstractmethod
    def make_request(self, escaped: str) -> HttpRequest:
        """The request for a statement."""
