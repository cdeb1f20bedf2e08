"""Connections to ArangoDB: requests, answers, errors, the writer and the asker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import orjson
from arango.client import ArangoClient
from arango.database import StandardDatabase
from arango.exceptions import ArangoServerError
from arango.http import HTTPClient
from arango.response import Response

from ...errors import Retryable, SimulatorError, one_line
from ..base import Job
from ..kit.exactly_once import SettlingWriter, Span, Wanted
from ..kit.http import Probe, parse_body
from ..kit.http_answer import Answer
from ..kit.http_connection import HttpRequest
from ..kit.http_database import Conversation, HttpDatabase, SqlAsker, read_json
from ..kit.module import lost_table, missing_table, stored_by_earlier_run
from ..kit.sql_queries import Template
from ..options import InsertMode
from ..own_statements import JSON_LITERALS
from ..sending import Received, Request, Rows, explain_length, most_answer_bytes
from .encoding import ArangoOptions, Documents
from .queries import name_field

if TYPE_CHECKING:
    from ..arangodb import Arangodb


SHOWN = 300
"""Characters of an answer to quote in a message."""

JSON = {"content-type": "application/json"}
"""The header of a request with a body."""

# https://docs.arangodb.com/stable/develop/error-codes/
UNIQUE = 1210
_NO_COLLECTION = 1203

TOO_MANY_REQUESTS = "too_many_requests"
"""The kind of error that says that the server did nothing."""

_PASSING = {
    # The server is read-only for now, or a shard has too few copies: it answers 403, as for a missing
    # privilege.
    **dict.fromkeys((1004, 1429), "unavailable"),
    # A shard that has another leader by now, or none yet. Some come with 406.
    **dict.fromkeys(range(1489, 1497), "unavailable"),
    1200: "write_conflict",
    # The queue is full, or a request was queued for too long.
    **dict.fromkeys((21003, 21004), TOO_MANY_REQUESTS),
}
"""Number of a temporary error -> the kind that a result counts."""
_PASSING_STATUS = {
    429: TOO_MANY_REQUESTS,
    # 408: a gateway timed out; 421: another server leads by now; 412: too busy, after
    # x-arango-queue-time-seconds.
    **dict.fromkeys((408, 412, 421), "unavailable"),
}
"""The same by status, for errors without such a number."""
_FINAL = {
    401: "{text}; check {options.LOGIN}",
    403: "{text}; grant the user the rights, or use another user",
    413: "{text}; use a smaller --batch",
    1228: "{text}; check that the database exists: {options.database}",
}
"""Number or status -> the message for an error that ends a run."""

PAGE = 10_000
"""Rows in one page of an answer."""

_ResultT = TypeVar("_ResultT")


class Connection(HttpDatabase[ArangoOptions], HTTPClient):
    """A database. Documents and answers use our own requests. Collections, indexes and settings go through
    python-arango, over the same connections: its own HTTP layer retries some requests by itself, hides why
    it can't connect, and takes several times the CPU."""

    SYSTEM = "ArangoDB"
    # 503 while the server starts, stops or is read-only. It needs no privileges.
    PROBE: ClassVar[Probe] = Probe("GET", "/_admin/server/availability")

    def __init__(self, options: ArangoOptions, job: Job) -> None:
        super().__init__(options, job)
        self.expects_tables = False
        """Whether the job's collections exist: a server that doesn't know them hasn't caught up."""
        name = quote(options.database, safe="")
        self._path = options.path
        # We choose the node, so the client needs only one. We log in, since the client would put the
        # database's name into paths unquoted.
        client = ArangoClient(hosts=options.endpoint[0], http_client=self)
        self.database: StandardDatabase = client.db(name, username=options.username, password="")

    def ping(self, timeout_s: float) -> None:
        self.fetch("GET", f"{self._path}/_api/version", timeout_s=timeout_s)

    def post(self, path: str, body: bytes) -> Answer:
        """POST a body to an API of the database. Returns any answer; Retryable if there is none."""
        return self.request("POST", self._path + path, body, JSON)

    def rows(self, query: str, values: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """All rows of a query that returns arrays; `values`: its bind variables."""
        question = {"query": query, "batchSize": PAGE, "bindVars": values or {}, "cache": False}
        path, body = f"{self._path}/_api/cursor", orjson.dumps(question)
        rows: list[tuple[Any, ...]] = []
        while True:
            page = self.parse(self.fetch("POST", path, body, JSON, expected=(200, 201)))
            rows += map(tuple, page["result"])
            if not page["hasMore"]:
                return rows
            path, body = f"{self._path}/_api/cursor/{page['id']}", b""

    # --- the client -------------------------------------------------------------------------------

    def ask(self, ask: Callable[[], _ResultT]) -> _ResultT:
        """The client's result, with its errors translated."""
        try:
            return ask()
        except ArangoServerError as error:
            raise self.explain_client(error) from error

    def create_session(self, host: str) -> Any:
        """The client wants one per host; we keep nothing in it."""
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
        """Send the client's request. Errors that the client can't tell apart are raised here."""
        parts = urlsplit(url)
        target = f"{parts.path}?{urlencode(params)}" if params else parts.path
        content = data.encode() if isinstance(data, str) else data or b""
        answer = self.request(method.upper(), target, content, headers)
        status = answer.status
        if status in (401, 403) or status in _PASSING_STATUS or status >= 500:
            raise self.explain(answer)
        return Response(method, url, {}, status, "", answer.body.decode(errors="replace"))

    # --- errors -----------------------------------------------------------------------------------

    def explain_client(self, error: ArangoServerError) -> Retryable | SimulatorError:
        """What an error of the client means."""
        answer = {"errorNum": error.error_code, "errorMessage": error.message}
        return self.interpret(error.http_code, answer)

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        return self.interpret(answer.status, parse_body(answer.body))

    def interpret(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an error means: a whole answer, or an answer's part about one document."""
        number = read_error_number(answer)
        message = answer.get("errorMessage", "") if isinstance(answer, dict) else answer
        text = f"{self.place}: {status} {one_line(message, SHOWN)}"
        if number == _NO_COLLECTION:
            return lost_table(text) if self.expects_tables else missing_table(text, self.job)
        if number == UNIQUE:
            return stored_by_earlier_run(text)
        passing = _PASSING.get(number) or _PASSING_STATUS.get(status)
        if kind := passing or ("unavailable" if status >= 500 else None):
            return Retryable(kind, text, backoff_s=0.01 if kind == "write_conflict" else 0.1)
        form = _FINAL.get(number) or _FINAL.get(status, "{text}")
        return SimulatorError(form.format(text=text, options=self.options))


def read_error_number(answer: object) -> Any:
    """ArangoDB's number of an error; None without one."""
    return answer.get("errorNum") if isinstance(answer, dict) else None


class DocumentWriter(SettlingWriter[Connection]):
    """Finds out which documents of a request are stored, however it is sent."""

    LOOKUPS_APART_S: ClassVar[float | None] = 0.3
    REFUSES_KEYS: ClassVar[bool] = True

    def __init__(self, module: Arangodb) -> None:
        super().__init__(module)
        self._sync = module.options.sync

    def open(self) -> None:
        super().open()
        self.connection.expects_tables = True

    def find(self, request: Any, wanted: Wanted) -> list[tuple[Any, ...]]:
        schema = self.job.schema
        paths = {name: name_field(schema, name) for name in schema.row_key}
        conditions: list[str] = []
        values: dict[str, Any] = {"@collection": self.job.table_names[request.table]}
        for number, (name, sought) in enumerate(wanted.items()):
            if isinstance(sought, Span):
                conditions += [
                    f"{paths[name]} >= @first{number}",
                    f"{paths[name]} <= @last{number}",
                ]
                values |= {f"first{number}": sought.first, f"last{number}": sought.last}
            else:
                conditions.append(f"{paths[name]} IN @texts{number}")
                values[f"texts{number}"] = sought
        query = f"""
            FOR e IN @@collection
            FILTER {" AND ".join(conditions)}
            RETURN [{", ".join(paths.values())}]"""
        return self.connection.rows(query, values)

    def may_be_there(self, request: Any) -> bool:
        """Whether an earlier attempt may have stored a document whose key is refused."""
        return self.may_repeat and bool(request.sent_before)


class ArangoWriter(DocumentWriter):
    """Sends payloads of `DocumentEncoder`."""

    def __init__(self, module: Arangodb) -> None:
        super().__init__(module)
        sync, names = str(self._sync).lower(), module.job.table_names
        self._document_paths = [
            f"/_api/document/{name}?silent=true&waitForSync={sync}" for name in names
        ]
        self._import_paths = [_import_path(name, self._sync) for name in names]

    def send_request(self, request: Documents, payload: Request) -> None:
        try:
            if request.method is InsertMode.IMPORT:
                self._import(request)
            else:
                self._store(request)
        except Retryable as error:
            if error.kind != TOO_MANY_REQUESTS:
                request.doubt()
            raise

    def _store(self, request: Documents) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/documents/#create-multiple-documents"""
        answer = self.connection.post(self._document_paths[request.table], request.body)
        status = answer.status
        # With `silent`, the answer says nothing about stored documents.
        if status in (201, 202) and answer.body in (b"{}", b"[]"):
            return
        reply = parse_body(answer.body)
        errors = reply if status in (201, 202) else [reply]
        if not isinstance(errors, list):
            raise SimulatorError(
                f"ArangoDB gave an unreadable answer: {one_line(answer.body, SHOWN)}"
            )
        again = self.may_be_there(request)
        failures = [error for error in errors if not (again and read_error_number(error) == UNIQUE)]
        if not failures:
            return
        if errors is reply:
            # The errors don't say which documents they are about.
            request.doubt()
        meanings = [self.connection.interpret(status, error) for error in failures]
        ends = (meaning for meaning in meanings if isinstance(meaning, SimulatorError))
        raise next(ends, meanings[-1])

    def _import(self, request: Documents) -> None:
        again = self.may_be_there(request)
        path = self._import_paths[request.table] + ("ignore" if again else "error")
        answer = self.connection.post(path, request.body)
        details = _read_refusals(self.connection, answer, len(request.rows))
        if not details:
            return
        refused = [detail for detail in details if "conflict" not in detail]
        if not refused:
            raise Retryable("write_conflict", one_line(details[0], SHOWN), backoff_s=0.01)
        text = f"{self.connection.place}: {one_line(refused[0], SHOWN)}"
        if "unique constraint violated" in refused[0]:
            raise stored_by_earlier_run(text)
        raise SimulatorError(text)


def _import_path(table: str, sync: bool) -> str:
    """The path for imports; what happens to existing documents is added.

    https://docs.arangodb.com/stable/develop/http-api/import/
    """
    return (
        f"/_api/import?collection={table}&type=documents&details=true&waitForSync={str(sync).lower()}"
        "&onDuplicate="
    )


def _read_refusals(connection: Connection, answer: Answer, documents: int) -> list[str]:
    """Why some of `documents` imported documents were refused; empty if all are stored."""
    if answer.status != 201:
        raise connection.explain(answer)
    reply = parse_body(answer.body)
    if reply["created"] + reply["ignored"] == documents:
        return []
    return reply.get("details") or [one_line(answer.body, SHOWN)]


def import_missing(
    connection: Connection, table: str, body: bytes, documents: int, sync: bool
) -> None:
    """Store documents with keys through the import API, except existing ones; Retryable or SimulatorError if
    some aren't stored."""
    answer = connection.post(f"{_import_path(table, sync)}ignore", body)
    if refusals := _read_refusals(connection, answer, documents):
        raise Retryable("documents_refused", one_line(refusals[0], SHOWN))


# Quotes within a text of an answer would be escaped.
_HAS_MORE = re.compile(rb'"hasMore":\s*(true|false)')
_COUNT = re.compile(rb'"count":\s*(\d+)')
_CURSOR = re.compile(rb'"id":\s*"(\d+)"')
_FAILED = re.compile(rb'"error":\s*true')


class ArangoAsker(SqlAsker[Connection]):
    """Sends the queries of `Arangodb.compile`, and receives all pages."""

    def __init__(self, module: Arangodb, in_flight: int) -> None:
        super().__init__(module, JSON_LITERALS, in_flight)
        path = f"{module.options.path}/_api/cursor"
        self._target, self._following = path, path + "/"

    def prepare(self, template: Template) -> Template:
        parts = list(map(self.escape, template.parts))
        parts[0] = '{"query":"' + parts[0]
        parts[-1] += f'","batchSize":{PAGE},"count":true,"cache":false}}'
        return Template(tuple(parts), template.places, template.devices)

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", self._target, escaped.encode(), JSON)

    def converse(self, request: HttpRequest) -> Conversation:
        pages: list[bytes] = []
        rows = size = 0
        while True:
            body = yield request
            pages.append(body)
            size += len(body)
            if len(pages) == 1:
                rows = self.count_rows(body)
            elif size > most_answer_bytes():
                raise explain_length(size)
            match = _search_end(_HAS_MORE, body, b'"hasMore":')
            if match is None or not body.endswith(b"}") or _search_end(_FAILED, body, b'"error":'):
                raise self._refuse(body)
            if match[1] != b"true":
                return Received(rows, size, pages)
            following = _search_end(_CURSOR, body, b'"id":')
            if following is None:
                raise self._refuse(body)
            request = HttpRequest("POST", self._following + following[1].decode())

    def count_rows(self, body: bytes) -> int:
        """The number of rows on all pages, as the first page states it."""
        if match := _search_end(_COUNT, body, b'"count":'):
            return int(match[1])
        raise self._refuse(body)

    def _refuse(self, body: bytes) -> Retryable | SimulatorError:
        """The meaning of an answer with a success status that has no result."""
        answer = read_json(body)
        if isinstance(answer, dict) and answer.get("error"):
            return self.database.interpret(answer.get("code", 200), answer)
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        return SimulatorError(f"{self.database.place} gave an unreadable answer ({text})")

    def decode(self, received: Received) -> Rows:
        return [tuple(row) for page in received.data for row in read_json(page, "result")]


def _search_end(pattern: re.Pattern[bytes], body: bytes, name: bytes) -> re.Match[bytes] | None:
    """The last member with this name, if its value matches the pattern."""
    at = body.rfind(name)
    return None if at < 0 else pattern.match(body, at)
