"""Connections to ArangoDB: requests in, answers out, and what an error means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from arango.client import ArangoClient
from arango.database import StandardDatabase
from arango.exceptions import ArangoServerError
from arango.http import HTTPClient
from arango.response import Response

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import lost_table, missing_table, stored_by_earlier_run, unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    HttpPool,
    NoAnswer,
    Probe,
    basic_auth,
    interpret_no_answer,
    parse_body,
)
from .._base.options import TRUST_REMEDY
from ..base import Job
from .options import ArangoOptions

SHOWN = 300
"""Characters of an answer in a message."""

_JSON = {"content-type": "application/json"}

# https://docs.arangodb.com/stable/develop/error-codes/
UNIQUE = 1210
_WRITE_CONFLICT, _NO_COLLECTION, _NO_DATABASE = 1200, 1203, 1228
_QUEUE_FULL, _QUEUED_TOO_LONG = 21003, 21004
# Come with 403, as if a right were missing: a server takes no writes for now, or a shard has too few copies.
_READ_ONLY = (1004, 1429)
# Of a shard that another server leads by now, or that none leads yet. Some come with 406.
_LEADERSHIP = range(1489, 1497)

TOO_MANY_REQUESTS = "too_many_requests"
"""The kind of error with which the server says that it has done nothing."""

# Rows in one page of an answer.
_PAGE = 10_000

# 408: a gateway lost patience; 421: another server leads by now; 429 and, after
# x-arango-queue-time-seconds, 412: too busy.
_PASSING = (408, 412, 421, 429)

# 503 while a server starts, ends or takes no writes. It needs no rights.
_PROBE = Probe("GET", "/_admin/server/availability")

_RESULT = TypeVar("_RESULT")


class ArangoHttp(HTTPClient):
    """Sends the client's and the writers' requests, and turns silence into our errors.

    The client's own layer would try some requests again by itself, hides why it can't connect, and
    takes several times the CPU.
    """

    def __init__(self, options: ArangoOptions, job: Job) -> None:
        """Connects to nothing yet. SimulatorError if `ca_certs`, or a header, can't be used."""
        self._options = options
        self._job = job
        self.expects_tables = False
        """Whether the job's collections have been made: a server that doesn't know them has not caught up."""
        headers = {
            "user-agent": f"iot-benchmark {job.run_id}",
            "authorization": basic_auth(options.username, options.password),
        }
        self._pool = HttpPool(
            options.endpoint,
            options.DEFAULT_PORT,
            headers,
            options.request_timeout_s,
            options.make_tls_context(),
            job.stamps_arrivals,
            _PROBE,
        )
        self._database = f"/_db/{quote(options.database, safe='')}"

    def close(self) -> None:
        """Close all connections that nobody uses."""
        self._pool.close()

    def check(self) -> None:
        """Connect; SimulatorError with a remedy if that fails."""
        timeout = min(CONNECT_TIMEOUT_S, self._options.request_timeout_s)
        try:
            status, body = self.request("GET", f"{self._database}/_api/version", timeout_s=timeout)
        except Retryable as error:
            raise unreachable("ArangoDB", error) from error
        if status != 200:
            raise self.interpret(status, parse_body(body))

    def write(self, path: str, body: bytes) -> tuple[int, bytes]:
        """POST a body to an API of the database; Retryable if there is no answer."""
        return self.request("POST", self._database + path, body, _JSON)

    def put(self, path: str, timeout_s: float) -> tuple[int, bytes]:
        """PUT nothing to an API of the database; Retryable if it doesn't answer within `timeout_s`."""
        return self.request("PUT", self._database + path, timeout_s=timeout_s)

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> tuple[int, bytes]:
        """An answer's status and body, whatever they are; Retryable if there is none."""
        try:
            answer = self._pool.request(method, target, body, headers, timeout_s)
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "ArangoDB", self._options.server, TRUST_REMEDY
            ) from error
        return answer.status, answer.body

    def create_session(self, host: str) -> Any:
        """The client wants one per host; ours keeps nothing in it."""
        return self

    def send_request(
        self,
        session: Any,
        method: str,
        url: str,
        headers: Any = None,
        params: Any = None,
        data: Any = None,
        auth: Any = None,
    ) -> Response:
        """What the client asks; errors that it would not tell apart are raised here."""
        parts = urlsplit(url)
        target = f"{parts.path}?{urlencode(params)}" if params else parts.path
        content = data.encode() if isinstance(data, str) else data or b""
        status, body = self.request(method.upper(), target, content, headers)
        text = body.decode(errors="replace")
        if status in (401, 403) or status in _PASSING or status >= 500:
            raise self.interpret(status, parse_body(body))
        return Response(method, url, {}, status, "", text)

    def interpret(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an answer that is an error means: worth another try, or the end of the run."""
        options = self._options
        number = read_error_number(answer)
        message = answer.get("errorMessage", "") if isinstance(answer, dict) else answer
        text = f"ArangoDB at {options.server}: {status} {one_line(message, SHOWN)}"
        if status == 401:
            return SimulatorError(f"{text}; check username and password")
        if number in _READ_ONLY or number in _LEADERSHIP:
            return Retryable("unavailable", text)
        if status == 403:
            return SimulatorError(f"{text}; give the user the rights, or use another one")
        if number == _NO_DATABASE:
            return SimulatorError(
                f"{text}; check database, which must be there: {options.database}"
            )
        if number == _NO_COLLECTION:
            return lost_table(text) if self.expects_tables else missing_table(text, self._job)
        if status == 413:
            return SimulatorError(f"{text}; use a smaller --batch")
        if number == UNIQUE:
            return stored_by_earlier_run(text)
        if number == _WRITE_CONFLICT:
            return Retryable("write_conflict", text, backoff_s=0.01)
        if status == 429 or number in (_QUEUED_TOO_LONG, _QUEUE_FULL):
            return Retryable(TOO_MANY_REQUESTS, text)
        if status in _PASSING or status >= 500:
            return Retryable("unavailable", text)
        return SimulatorError(text)


class Connection:
    """A database: the client, and the HTTP connections that it shares with a writer."""

    def __init__(self, options: ArangoOptions, job: Job) -> None:
        """Connects; SimulatorError with a remedy if nobody lets us in."""
        self.http = ArangoHttp(options, job)
        try:
            self.http.check()
        except SimulatorError:
            self.http.close()
            raise
        # The HTTP layer goes to each node in turn, so the client needs to know of one only.
        client = ArangoClient(hosts=options.endpoint[0], http_client=self.http)
        # The HTTP layer logs in, not the client, and the client puts the database's name into paths as
        # it is given.
        self.database: StandardDatabase = client.db(
            quote(options.database, safe=""), username=options.username, password=""
        )

    def close(self) -> None:
        """Close all connections that nobody uses."""
        self.http.close()

    def ask(self, ask: Callable[[], _RESULT]) -> _RESULT:
        """What the client answers, its errors translated."""
        try:
            return ask()
        except ArangoServerError as error:
            answer = {"errorNum": error.error_code, "errorMessage": error.message}
            raise self.http.interpret(error.http_code, answer) from error

    def rows(self, query: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query that returns arrays; `values`: of its bind variables."""

        def ask() -> list[tuple[Any, ...]]:
            cursor = self.database.aql.execute(
                query, batch_size=_PAGE, bind_vars=values or {}, cache=False
            )
            return [tuple(row) for row in cursor]  # type: ignore[union-attr]

        return self.ask(ask)


def read_error_number(answer: object) -> Any:
    """ArangoDB's number of an error; None without one."""
    return answer.get("errorNum") if isinstance(answer, dict) else None
