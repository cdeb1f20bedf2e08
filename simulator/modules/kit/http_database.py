"""A database with an HTTP interface: one pool, and one way to send requests, read answers and errors, and
query.

A module's connection extends `HttpDatabase` with its requests, and with `explain` for its database's errors.
Login, the choice of nodes, dead nodes, TLS, time limits and HTTP's own statuses are handled here. Rows and
bytes of a query's answer are counted; statements, in SQL or the like, are filled into a template per query.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import urlsplit

import orjson

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..base import Job
from ..own_statements import Drawn, quote_json
from ..sending import Asker, Completion, Received, Request
from .http import CONNECT_TIMEOUT_S, HttpPool, Probe, interpret_no_answer, scheme_port
from .http_answer import Answer, NoAnswer
from .http_connection import Connection, HttpRequest
from .module import ConnectedModule, unreachable
from .multiplexer import Multiplexer
from .options import HttpOptions
from .sql_queries import Template, make_template

SHOWN = 500
"""Characters of an answer to quote in a message."""

HttpOptionsT = TypeVar("HttpOptionsT", bound=HttpOptions)


class HttpClient(HttpPool, ABC):
    """A pool that translates errors into their meaning for a run: `begin` and `receive` raise Retryable if
    there is no answer, or SimulatorError without TLS."""

    @abstractmethod
    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an unsuccessful answer means: worth another attempt, or the end of the run."""

    @abstractmethod
    def explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        """What a missing answer means."""


class HttpDatabase(HttpClient, Generic[HttpOptionsT]):
    """The nodes in turn: requests, answers, and translated errors. Threads may share it."""

    SYSTEM: ClassVar[str]
    """The database's name, for messages."""
    PROBE: ClassVar[Probe] = Probe()
    """The request for a dead node."""
    PASSING: ClassVar[Mapping[int, str]] = {
        429: "too_many_requests",
        500: "unavailable",
        502: "unavailable",
        503: "unavailable",
        504: "unavailable",
    }
    """Status of a temporary error -> the kind that a result counts."""

    def __init__(
        self, options: HttpOptionsT, job: Job, headers: Mapping[str, str] | None = None
    ) -> None:
        """Connects to nothing yet. `headers`: of each request, besides the client's name and the login.
        Raises SimulatorError if `ca_certs`, or a header, can't be used."""
        self.options = options
        self.job = job
        self.headers = {
            "user-agent": f"iot-benchmark {job.run_id}",
            **options.login(),
            **(headers or {}),
        }
        super().__init__(
            options.endpoint,
            options.DEFAULT_PORT or scheme_port(options.endpoint[0]),
            self.headers,
            options.request_timeout_s,
            options.make_tls_context(),
            job.stamps_arrivals,
            self.PROBE,
        )

    def exchange(self, request: HttpRequest, timeout_s: float | None = None) -> Answer:
        """The same; SimulatorError if something other than the database answers."""
        answer = super().exchange(request, timeout_s)
        if stranger := find_stranger(answer, self.system):
            raise SimulatorError(f"{self.place} {stranger}")
        return answer

    @property
    def system(self) -> str:
        """The database's name."""
        return self.SYSTEM

    @cached_property
    def place(self) -> str:
        """The database and its address, for the start of a message."""
        return f"{self.system} at {self.options.server}"

    @classmethod
    def connect(cls, options: HttpOptionsT, job: Job) -> Self:
        """A connection with a successful login; SimulatorError with the server's name and a remedy if no node
        accepts it."""
        connection = cls(options, job)
        try:
            connection.check()
        except SimulatorError:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Contact all nodes; SimulatorError if none answers, or one of them refuses the login."""
        timeout_s = min(CONNECT_TIMEOUT_S, self.options.request_timeout_s)
        failures = []
        for _ in self.options.endpoint:
            try:
                self.ping(timeout_s)
            except Retryable as error:
                failures.append(error)
        if len(failures) == len(self.options.endpoint):
            raise unreachable(self.system, failures[-1]) from failures[-1]

    @abstractmethod
    def ping(self, timeout_s: float) -> None:
        """Send a request that needs no data, except the login, to the next node; Retryable or
        SimulatorError."""

    def fetch(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        expected: Collection[int] = (200,),
    ) -> Answer:
        """As `request`, but any unexpected status is an error, translated by `explain`."""
        answer = self.request(method, target, body, headers, timeout_s)
        if answer.status not in expected:
            raise self.explain(answer)
        return answer

    def parse(self, answer: Answer, *path: str) -> Any:
        """An answer's JSON, or the part below these keys; SimulatorError if it has none."""
        try:
            return read_json(answer.body, *path)
        except SimulatorError as error:
            raise SimulatorError(
                f"{self.place} gave an {error}: check that endpoint names {self.system}'s HTTP server"
            ) from error

    # --- errors -----------------------------------------------------------------------------------

    def explain_status(
        self, answer: Answer, text: str, kind: str | None = None
    ) -> Retryable | SimulatorError:
        """What an answer's status means if its body says no more than `text`; `kind`: of a temporary error,
        if the body has it."""
        status, options = answer.status, self.options
        if passing := kind or self.PASSING.get(status):
            return Retryable(passing, text, at_least_s=read_retry_after_s(answer))
        if status in (401, 403):
            return SimulatorError(f"{text}; check {options.LOGIN}")
        if status == 413:
            return SimulatorError(f"{text}; use a smaller --batch")
        if status < 400 or status in (404, 405):
            return SimulatorError(f"{text}; check that endpoint names {self.system}'s HTTP server")
        return SimulatorError(text)

    def explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        options = self.options
        return interpret_no_answer(error, self.system, options.server, options.TRUST_REMEDY)


_REDIRECTS = (301, 302, 303, 307, 308)
_HTML = re.compile(rb"\s*<(?:!doctype )?html", re.IGNORECASE)
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


def find_redirect(answer: Answer) -> str | None:
    """Where an answer redirects to, without possible secrets; None if it doesn't."""
    if answer.status not in _REDIRECTS:
        return None
    parts = urlsplit(answer.header("location") or "")
    host = parts.netloc.rpartition("@")[2]
    address = f"{parts.scheme}://{host}{parts.path}" if host else parts.path or "nowhere"
    return f"answers with a redirect to {one_line(address, SHOWN)}: use that address"


def find_stranger(answer: Answer, system: str) -> str | None:
    """What an answer says if it isn't the database's, to follow the server's name; None if it may be. A page
    with another status may come from a proxy before the database."""
    if redirect := find_redirect(answer):
        return redirect
    if (answer.status < 300 or answer.status in (404, 405)) and _HTML.match(answer.body):
        title = _TITLE.search(answer.body)
        named = f" ({one_line(title[1].decode(errors='replace'), 80)})" if title else ""
        return (
            f"is not {system}: it answers with an HTML page{named}; check that endpoint names {system}'s"
            " HTTP server"
        )
    return None


def read_retry_after_s(answer: Answer) -> float:
    """Seconds of a Retry-After header; 0 without one, or with a date."""
    try:
        return max(0.0, float(answer.header("Retry-After") or 0))
    except ValueError:
        return 0.0


_SUCCESS, _REDIRECTED = 200, 300

Conversation = Generator[HttpRequest, bytes, Received]
"""The requests of a query, one after another: the generator receives each answer's body, and returns what was
received. Retryable or SimulatorError if an answer can't be used."""


DatabaseT = TypeVar("DatabaseT", bound=HttpClient)


class HttpAsker(Multiplexer, Asker, Generic[DatabaseT]):
    """Queries a database object of its own, with a connection per query in flight. The database object also
    handles lost nodes."""

    module: ConnectedModule[Any, DatabaseT]

    def __init__(
        self,
        module: ConnectedModule[Any, DatabaseT],
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`timeout_s`: for an answer; None: as for any other request."""
        Multiplexer.__init__(self, timeout_s or module.options.request_timeout_s)
        Asker.__init__(self, module, in_flight)
        self.blocks = in_flight == 1
        self._database: DatabaseT | None = None
        self._asked: dict[int, tuple[Connection, Request, Conversation, float]] = {}
        """Descriptor -> the connection, its query in flight, and when it was sent."""

    def open(self) -> None:
        self._database = self.module.connect()

    def close(self) -> None:
        for descriptor, (connection, *_) in list(self._asked.items()):
            self._forget(descriptor)
            connection.close()
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def database(self) -> DatabaseT:
        """The database of an open asker."""
        assert self._database is not None
        return self._database

    @abstractmethod
    def converse(self, request: Any) -> Conversation:
        """The requests of a query."""

    @property
    def is_busy(self) -> bool:
        return bool(self._asked)

    def submit(self, request: Request) -> None:
        conversation = self.converse(request.data)
        self._send(request, conversation, next(conversation))

    def _send(
        self,
        request: Request,
        conversation: Conversation,
        following: HttpRequest,
        sent_s: float | None = None,
    ) -> None:
        """Send the next request of a query. `sent_s`: when its first one was sent (None: this is it)."""
        try:
            connection = self.database.begin(following, self._timeout_s)
        except (Retryable, SimulatorError) as error:
            self.found.append(Completion(request, 0, time.perf_counter(), error, None, sent_s))
            return
        descriptor = connection.descriptor
        sent_s = connection.sent_s if sent_s is None else sent_s
        self._asked[descriptor] = connection, request, conversation, sent_s
        self.watch(descriptor)

    def serve(self, descriptor: int, events: int) -> None:
        connection, request, conversation, sent_s = self._asked[descriptor]
        try:
            answer = self.database.receive(connection)
            if answer is None:
                return
            status, body, _ = answer
            if not _SUCCESS <= status < _REDIRECTED:
                raise self.database.explain(answer)
            following = conversation.send(body)
        except StopIteration as end:
            received: Received = end.value
            ended = Completion(request, received.rows, connection.arrived_s, None, received, sent_s)
        except (Retryable, SimulatorError) as error:
            ended = Completion(request, 0, connection.arrived_s, error, None, sent_s)
        else:
            self._forget(descriptor)
            self._send(request, conversation, following, sent_s)
            return
        self._forget(descriptor)
        self.found.append(ended)

    def end_late(self, now_s: float) -> None:
        for descriptor, (connection, request, _, sent_s) in list(self._asked.items()):
            if connection.sent_s + self._timeout_s <= now_s:
                self._forget(descriptor)
                error = self.database.drop(connection)
                self.found.append(Completion(request, 0, now_s, error, None, sent_s))

    def _forget(self, descriptor: int) -> None:
        # A connection may be closed before it is used again, and its descriptor reused.
        self.forget(descriptor)
        del self._asked[descriptor]


def read_json(body: bytes, *path: str) -> Any:
    """An answer's JSON, or the part below these keys; SimulatorError if it has none."""
    try:
        document = orjson.loads(body)
        for key in path:
            document = document[key]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        # An error in the middle of an answer ends it.
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        raise SimulatorError(f"unreadable or incomplete answer ({text})") from error
    return document


class TemplateAsker(HttpAsker[DatabaseT]):
    """Builds a query's statements from a template with places for the parameters."""

    def __init__(
        self,
        module: ConnectedModule[Any, DatabaseT],
        dialect: Drawn,
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`dialect`: by which the module compiles queries, SQL or not."""
        super().__init__(module, in_flight, timeout_s)
        self._dialect = dialect
        self._templates: dict[str, Template] = {}
        """Each query's template, escaped."""

    def fill(self, bounds: BoundQueries) -> Iterator[str]:
        """The statement of each execution, in the form for a request."""
        name = bounds.query.name
        if name not in self._templates:
            template = make_template(bounds, self.write_statement, self._dialect)
            self._templates[name] = self.prepare(template)
        return self._templates[name].fill(bounds, self.write_text, self.write_instant)

    def write_statement(self, bound: BoundQuery) -> str:
        """The statement of a query, as a text."""
        text: str = self.module.make_statement(bound)
        return text

    def prepare(self, template: Template) -> Template:
        """A query's template, with constants in the form for a request."""
        parts = tuple(map(self.escape, template.parts))
        return Template(parts, template.places, template.devices)

    def write_text(self, text: str) -> str:
        """A name in the form for a request."""
        return self.escape(self._dialect.text(text))

    def write_instant(self, time_ms: int) -> str:
        """A time, in ms since 1970, in the form for a request."""
        return self.escape(self._dialect.instant(time_ms))

    def escape(self, part: str) -> str:
        """A part of a statement in the form for a request, whatever surrounds it: within a text of JSON,
        unless the module overrides it."""
        return quote_json(part)[1:-1]


class SqlAsker(TemplateAsker[DatabaseT]):
    """Sends each statement in one request; counts and decodes the answer's body."""

    def encode(self, bounds: BoundQueries) -> Iterable[Any]:
        return map(self.make_request, self.fill(bounds))

    def encode_statement(self, statement: Any) -> Any:
        whole = self.prepare(Template((statement,), (), 0))
        return self.make_request(whole.parts[0])

    def converse(self, request: Any) -> Conversation:
        body = yield request
        return Received(self.count_rows(body), len(body), body)

    @abstractmethod
    def count_rows(self, body: bytes) -> int:
        """The number of rows in a complete answer, from the protocol or from a scan that costs nanoseconds
        per byte. Retryable or SimulatorError if it has an error, whatever its status, or is cut off."""

    @abstractmethod
    def make_request(self, escaped: str) -> Any:
        """The request for a statement, for `converse`."""
