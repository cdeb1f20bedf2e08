"""A database that is spoken to by HTTP: one pool, one way to send a request and to read its answer or error.

A module's connection extends `HttpDatabase` and says what is its own: the requests, and by `explain` what an
error of its database means. Logging in, the node whose turn it is, nodes that are dead, TLS, time limits, and
what HTTP's own statuses mean are here.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar
from urllib.parse import urlsplit

import orjson

from ...errors import Retryable, SimulatorError, one_line
from ..base import Job
from .errors import unreachable
from .http import (
    CONNECT_TIMEOUT_S,
    Answer,
    Connection,
    HttpPool,
    HttpRequest,
    NoAnswer,
    Probe,
    interpret_no_answer,
    scheme_port,
)
from .options import HttpOptions

SHOWN = 500
"""Characters of an answer in a message."""

HttpOptionsT = TypeVar("HttpOptionsT", bound=HttpOptions)


class HttpClient(HttpPool, ABC):
    """A pool whose errors are what they mean for a run."""

    def begin(self, request: HttpRequest, timeout_s: float | None = None) -> Connection:
        """Retryable if it can't be sent, or SimulatorError without TLS."""
        try:
            return super().begin(request, timeout_s)
        except NoAnswer as error:
            raise self.explain_silence(error) from error

    def receive(self, connection: Connection) -> Answer | None:
        """Retryable if there is no answer."""
        try:
            return super().receive(connection)
        except NoAnswer as error:
            raise self.explain_silence(error) from error

    def give_up(self, connection: Connection) -> Retryable | SimulatorError:
        """Wait no longer for an answer; returns what that means."""
        return self.explain_silence(self.drop(connection))

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
            document = orjson.loads(answer.body)
            for key in path:
                document = document[key]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            # One that comes in the middle of an answer ends it.
            text = one_line(answer.body[-SHOWN:].decode(errors="replace"), SHOWN)
            raise SimulatorError(
                f"{self.place} gave an unreadable or incomplete answer ({text}): check that"
                f" endpoint names {self.system}'s HTTP server"
            ) from error
        return document

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
