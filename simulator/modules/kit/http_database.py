"""A database that is spoken to by HTTP: one pool, one way to send a request, to read its answer or error, and
to ask questions.

A module's connection extends `HttpDatabase` and says what is its own: the requests, and by `explain` what an
error of its database means. Logging in, the node whose turn it is, nodes that are dead, TLS, time limits, and
what HTTP's own statuses mean are here. Of an answer to a question rows and bytes are counted; statements of
SQL, and of languages like it, are made of a template for each query.
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
"""Characters of an answer in a message."""

HttpOptionsT = TypeVar("HttpOptionsT", bound=HttpOptions)


class HttpClient(HttpPool, ABC):
    """A pool whose errors are what they mean for a run: `begin` and `receive` raise Retryable if there is no
    answer, or SimulatorError without TLS."""

    @abstractmethod
    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an answer that is no success means: worth another try, or the end of the run."""

    @abstractmethod
    def explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        """What it means that there was no answer."""


class HttpDatabase(HttpClient, Generic[HttpOptionsT]):
    """The nodes in turn: requests in, answers out, errors translated. May be shared by threads."""

    SYSTEM: ClassVar[str]
    """The database's name, for messages."""
    PROBE: ClassVar[Probe] = Probe()
    """What a dead node is asked."""
    PASSING: ClassVar[Mapping[int, str]] = {
        429: "too_many_requests",
        500: "unavailable",
        502: "unavailable",
        503: "unavailable",
        504: "unavailable",
    }
    """Status -> the kind that a result counts, of what may be better in a moment."""

    def __init__(
        self, options: HttpOptionsT, job: Job, headers: Mapping[str, str] | None = None
    ) -> None:
        """Connects to nothing yet. `headers`: of each request, besides who asks and the login. Raises
        SimulatorError if `ca_certs`, or a header, can't be used."""
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
        """The same; SimulatorError if something else than the database answers."""
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
        """The database and where it is, to begin a message with."""
        return f"{self.system} at {self.options.server}"

    @classmethod
    def connect(cls, options: HttpOptionsT, job: Job) -> Self:
        """A connection that has been let in; SimulatorError with the server's name and a remedy if none of
        its nodes lets us in."""
        connection = cls(options, job)
        try:
            connection.check()
        except SimulatorError:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Ask all nodes; SimulatorError if none answers, or one of them refuses us."""
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
        """Ask the node whose turn it is something that needs no data, but the login; Retryable or
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
        """As `request`, but any other status than those expected is an error, which `explain` tells."""
        answer = self.request(method, target, body, headers, timeout_s)
        if answer.status not in expected:
            raise self.explain(answer)
        return answer

    def parse(self, answer: Answer, *path: str) -> Any:
        """An answer's JSON, or what it has below these keys; SimulatorError if it isn't that."""
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
        """What an answer's status means if its body says no more than `text`; `kind`: the kind of an error
        that passes, if the body tells."""
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
    """Where an answer sends us, without what could be secret; None if it doesn't."""
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
"""The requests that a question takes, one after the other: each is given its answer's body, and the last one
returns what was received. Retryable or SimulatorError if an answer can't be used."""


DatabaseT = TypeVar("DatabaseT", bound=HttpClient)


class HttpAsker(Multiplexer, Asker, Generic[DatabaseT]):
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
        Multiplexer.__init__(self, timeout_s or module.options.request_timeout_s)
        Asker.__init__(self, module, in_flight)
        self.blocks = in_flight == 1
        self._database: DatabaseT | None = None
        self._asked: dict[int, tuple[Connection, Request, Conversation, float]] = {}
        """Descriptor -> the connection, the question that is under way by it, and when that was sent."""

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
        """What an open asker asks."""
        assert self._database is not None
        return self._database

    @abstractmethod
    def converse(self, request: Any) -> Conversation:
        """The requests of a question."""

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
        """Send the next request of a question. `sent_s`: when its first one was sent (None: this is it)."""
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
        # A connection may be closed before it is used again, and its descriptor be another's.
        self.forget(descriptor)
        del self._asked[descriptor]


def read_json(body: bytes, *path: str) -> Any:
    """An answer's JSON, or what it has below these keys; SimulatorError if it isn't that."""
    try:
        document = orjson.loads(body)
        for key in path:
            document = document[key]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        # One that comes in the middle of an answer ends it.
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        raise SimulatorError(f"unreadable or incomplete answer ({text})") from error
    return document


class TemplateAsker(HttpAsker[DatabaseT]):
    """Makes a query's statements of a template, in which the parameters stand."""

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

    def fill(self, bounds: BoundQueries) -> Iterator[str]:
        """The statement of each execution, as it stands in a request."""
        name = bounds.query.name
        if name not in self._templates:
            template = make_template(bounds, self.write_statement, self._dialect)
            self._templates[name] = self.prepare(template)
        return self._templates[name].fill(bounds, self.write_text, self.write_instant)

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

    def escape(self, part: str) -> str:
        """A part of a statement as it stands in a request, whatever comes before and behind it: within a
        text of JSON, unless the module says otherwise."""
        return quote_json(part)[1:-1]


class SqlAsker(TemplateAsker[DatabaseT]):
    """Asks statements by one request, whose answer's body is counted and decoded."""

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
        """The rows of a complete answer, by what the protocol says or by a scan that costs nanoseconds a
        byte. Retryable or SimulatorError if it holds an error, whatever its status, or is cut off."""

    @abstractmethod
    def make_request(self, escaped: str) -> Any:
        """The request for a statement, as `converse` takes it."""
