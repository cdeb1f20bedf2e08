"""Asks questions by HTTP: a request is made whole before it is due, and of its answer rows and bytes are
counted. Statements of SQL, and of languages like it, are made of a template for each query."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..asking import Asker, Received
from ..own_statements import Drawn
from .connected import Closable, ConnectedModule
from .http import Answer
from .http_database import SHOWN
from .sql_queries import Template, make_template

_SUCCESS = range(200, 300)


class Database(Closable, Protocol):
    """What is asked: an `HttpDatabase`, or what has the same of it."""

    @property
    def request(self) -> Callable[..., Answer]:
        """As `HttpDatabase.request`."""

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an answer means that is no success."""


DatabaseT = TypeVar("DatabaseT", bound=Database)


class HttpRequest(NamedTuple):
    """A question, ready to be sent."""

    method: str
    target: str
    body: bytes = b""
    headers: Mapping[str, str] | None = None


class AnyHttpAsker(Asker, Generic[DatabaseT]):
    """Asks by a database of its own, which several in flight share: it has a connection for each. A node that
    is lost is its affair, too."""

    module: ConnectedModule[Any, Any, DatabaseT]

    def __init__(
        self,
        module: ConnectedModule[Any, Any, DatabaseT],
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`timeout_s`: how long an answer may take; None: as any other."""
        super().__init__(module, in_flight)
        self._timeout_s = timeout_s
        self._database: DatabaseT | None = None

    def open(self) -> None:
        self._database = self.module.connect()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @property
    def database(self) -> DatabaseT:
        """What an open asker asks."""
        assert self._database is not None
        return self._database

    def exchange(self, request: HttpRequest) -> Answer:
        """One request and its answer, which is a success by its status; Retryable or SimulatorError."""
        answer = self.database.request(*request, timeout_s=self._timeout_s)
        if answer.status not in _SUCCESS:
            raise self.database.explain(answer)
        return answer


class HttpAsker(AnyHttpAsker[DatabaseT]):
    """Asks by one request, whose answer's body is counted and decoded."""

    def send(self, request: Any) -> Received:
        body = self.exchange(request).body
        return Received(self.count_rows(body), len(body), body)

    @abstractmethod
    def count_rows(self, body: bytes) -> int:
        """The rows of a complete answer, by what the protocol says or by a scan that costs nanoseconds a
        byte. Retryable or SimulatorError if it holds an error, whatever its status, or is cut off."""


def read_json(body: bytes, *path: str) -> Any:
    """An answer's JSON, or what it has below these keys; SimulatorError if it isn't that."""
    try:
        found = orjson.loads(body)
        for key in path:
            found = found[key]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        raise SimulatorError(f"an answer makes no sense, or isn't complete ({text})") from error
    return found


class SqlAsker(HttpAsker[DatabaseT]):
    """Asks statements, in which the parameters stand."""

    def __init__(
        self,
        module: ConnectedModule[Any, Any, DatabaseT],
        dialect: Drawn,
        in_flight: int = 1,
        timeout_s: float | None = None,
    ) -> None:
        """`dialect`: what the module compiles queries by, SQL or not."""
        super().__init__(module, in_flight, timeout_s)
        self._dialect = dialect
        self._templates: dict[str, Template] = {}
        """Of each query, escaped."""

    def encode(self, bounds: BoundQueries) -> Sequence[Any]:
        name = bounds.query.name
        if name not in self._templates:
            made = make_template(bounds, self.write_statement, self._dialect)
            self._templates[name] = self.prepare(made)
        filled = self._templates[name].fill(bounds, self.write_text, self.write_instant)
        return list(map(self.make_request, filled))

    def encode_statement(self, statement: Any) -> Any:
        whole = self.prepare(Template((statement,), (), 0))
        return self.make_request(whole.parts[0])

    def write_statement(self, bound: BoundQuery) -> str:
        """What asks a query, as a text."""
        text: str = self.module.make_statement(bound)
        return text

    def prepare(self, template: Template) -> Template:
        """A query's template, with what is constant as it stands in a request."""
        parts = tuple(map(self.escape, template.parts))
        return Template(parts, template.places, template.devices)

    def write_text(self, text: str) -> str:
        """A name as it stands there."""
        return self.escape(self._dialect.text(text))

    def write_instant(self, time_ms: int) -> str:
        """A time, in ms since 1970, as it stands there."""
        return self.escape(self._dialect.instant(time_ms))

    @abstractmethod
    def escape(self, part: str) -> str:
        """A part of a statement as it stands in a request, whatever comes before and behind it."""

    @abstractmethod
    def make_request(self, escaped: str) -> HttpRequest:
        """The request for a statement."""
