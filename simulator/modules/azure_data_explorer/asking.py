"""Asks Azure Data Explorer: by its query API, for frames (version 2), as Microsoft's clients do; with
`client=official` azure-kusto-data asks, by `execute_query`.

The protocol doesn't say how many rows there are: they are counted by their brackets. The lean path asks for
answers as they are, the client for compressed ones, which it decompresses.

https://learn.microsoft.com/kusto/api/rest/response-v2
https://learn.microsoft.com/kusto/api/get-started/app-basic-query
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from azure.kusto.data import KustoClient
from azure.kusto.data.exceptions import KustoError, KustoMultiApiError

from ...errors import Retryable, SimulatorError, one_line
from ...workloads.drawing import BoundQueries, BoundQuery
from ..asking import Received, Rows
from ..kit.http import HttpRequest
from ..kit.http_asking import Conversation, SqlAsker, read_json
from ..kit.http_database import SHOWN
from ..kit.official import ClientAsker
from ..kit.sql_queries import Template
from .queries import LITERALS, Compiled, Read
from .server import Connection, make_properties, name_request

if TYPE_CHECKING:
    from . import AzureDataExplorer

_MORE = timedelta(seconds=30)
"""How much longer than the service the client waits, as Microsoft's does."""

# Within a text of an answer, quotes would be escaped.
_PRIMARY, _FRAME = b'"PrimaryResult"', b'"FrameType"'
_ROWS = re.compile(rb'"Rows":\s*\[')
_WHOLE = re.compile(rb'"HasErrors":\s*false[^\[\]{}]*\}\s*\]\s*\Z')
"""How an answer without errors ends."""
_END_BYTES = 200
_ERRORS = b'"OneApiErrors"'
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')


class Question(NamedTuple):
    """A request, and how each value of a row is read."""

    request: HttpRequest
    reads: Sequence[Read]


class AdxAsker(SqlAsker[Connection]):
    """Asks what `AzureDataExplorer.compile` gives. Receives the body, and how to read it."""

    module: AzureDataExplorer

    def __init__(self, module: AzureDataExplorer, in_flight: int) -> None:
        limit_s = module.options.query_timeout_s + _MORE.total_seconds()
        super().__init__(module, LITERALS, in_flight, limit_s)
        self._properties = make_properties(module.options).to_json()
        self._reads: dict[str, Sequence[Read]] = {}
        """How to read the rows of each query."""

    def open(self) -> None:
        super().open()
        self.database.reach(self.database.log_in)

    def encode(self, bounds: BoundQueries) -> Sequence[Question]:
        name = bounds.query.name
        if name not in self._reads:
            self._reads[name] = self.module.make_statement(bounds[0]).reads
        return [Question(request, self._reads[name]) for request in super().encode(bounds)]

    def encode_statement(self, statement: Compiled) -> Question:
        return Question(super().encode_statement(statement.text), statement.reads)

    def write_statement(self, bound: BoundQuery) -> str:
        text: str = self.module.make_statement(bound).text
        return text

    def prepare(self, template: Template) -> Template:
        database = self.escape(self.module.options.kusto_db)
        parts = list(map(self.escape, template.parts))
        parts[0] = f'{{"db":"{database}","csl":"{parts[0]}'
        parts[-1] += f'","properties":"{self.escape(self._properties)}"}}'
        return Template(tuple(parts), template.places, template.devices)

    def make_request(self, escaped: str) -> HttpRequest:
        headers = {"content-type": "application/json; charset=utf-8", **name_request("query")}
        return HttpRequest("POST", "/v2/rest/query", escaped.encode(), headers)

    def converse(self, request: Question) -> Conversation:
        body = yield request.request
        return Received(self.count_rows(body), len(body), (request.reads, body))

    def count_rows(self, body: bytes) -> int:
        if _ERRORS in body or not _WHOLE.search(body, max(0, len(body) - _END_BYTES)):
            raise self._explain_errors(body)
        at = body.find(_PRIMARY)
        begin = _ROWS.search(body, at) if at >= 0 else None
        if begin is None:
            raise self._explain_errors(body)
        rows = body[begin.end() : body.find(_FRAME, begin.end())]
        # Nothing that is asked for is a list; texts may have brackets.
        bare = _TEXT.sub(b"", rows) if b"\\" in rows else b"".join(rows.split(b'"')[::2])
        return bare.count(b"[")

    def _explain_errors(self, body: bytes) -> Retryable | SimulatorError:
        """What an answer means that came with 200 and has no result."""
        frames = read_json(body)
        errors = []
        for frame in frames if isinstance(frames, list) else []:
            rows = frame.get("Rows", ()) if isinstance(frame, dict) else ()
            errors += [
                part for part in (frame, *rows) if isinstance(part, dict) and "OneApiErrors" in part
            ]
        if errors:
            return self.database.interpret(KustoMultiApiError(errors))
        text = one_line(body[-SHOWN:].decode(errors="replace"), SHOWN)
        return SimulatorError(f"unreadable or incomplete answer ({text})")

    def decode(self, received: Received) -> Rows:
        reads, body = received.data
        for frame in read_json(body):
            if frame.get("TableKind") == "PrimaryResult":
                return Compiled("", reads).read(frame["Rows"])
        raise SimulatorError("unreadable answer: it has no table of results")


class OfficialAdxAsker(ClientAsker[Connection]):
    """Asks by `KustoClient.execute_query`."""

    def make_client(self) -> Any:
        return KustoClient(self.connection.describe_place(self.connection.options.kusto_uri))

    def ask(self, client: Any, statement: Compiled) -> Rows:
        connection = self.connection
        answer = client.execute_query(
            connection.options.kusto_db, statement.text, connection.properties
        )
        if answer.errors_count:
            raise SimulatorError(one_line("; ".join(answer.get_exceptions()), SHOWN))
        return statement.read([row.to_list() for row in answer.primary_results[0]])

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        return self.connection.interpret(error) if isinstance(error, KustoError) else None
