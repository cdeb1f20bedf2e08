"""Asks ArangoDB: by its cursor API, whose answers say how many rows there are (`count`); with
`client=official` by python-arango's `aql.execute`, with its defaults.

An answer of more rows than a page holds comes by several requests, one after the other.

https://docs.arangodb.com/stable/develop/http-api/queries/aql-queries/
https://docs.python-arango.com/en/main/aql.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from arango.exceptions import ArangoServerError

from ...errors import Retryable, SimulatorError, one_line
from ..kit.http import HttpRequest
from ..kit.http_database import Conversation, SqlAsker, read_json
from ..kit.official import ClientAsker
from ..kit.sql_queries import Template
from ..own_statements import JSON_LITERALS
from ..sending import Received, Rows, explain_length, most_answer_bytes
from . import server
from .server import SHOWN, Connection
from .writing import UNANSWERED, explain_silence, make_client

if TYPE_CHECKING:
    from . import Arangodb

# Within a text of an answer, quotes would be escaped.
_HAS_MORE = re.compile(rb'"hasMore":\s*(true|false)')
_COUNT = re.compile(rb'"count":\s*(\d+)')
_CURSOR = re.compile(rb'"id":\s*"(\d+)"')
_FAILED = re.compile(rb'"error":\s*true')


class ArangoAsker(SqlAsker[Connection]):
    """Asks what `Arangodb.compile` gives, and receives the pages."""

    def __init__(self, module: Arangodb, in_flight: int) -> None:
        super().__init__(module, JSON_LITERALS, in_flight)
        path = f"{module.options.path}/_api/cursor"
        self._target, self._following = path, path + "/"

    def prepare(self, template: Template) -> Template:
        parts = list(map(self.escape, template.parts))
        parts[0] = '{"query":"' + parts[0]
        parts[-1] += f'","batchSize":{server.PAGE},"count":true,"cache":false}}'
        return Template(tuple(parts), template.places, template.devices)

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", self._target, escaped.encode(), server.JSON)

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
            if not self._has_more(body):
                return Received(rows, size, pages)
            following = _search_end(_CURSOR, body, b'"id":')
            if following is None:
                raise self._refuse(body)
            request = HttpRequest("POST", self._following + following[1].decode())

    def count_rows(self, body: bytes) -> int:
        """The number of rows on all pages, which the first page tells."""
        if match := _search_end(_COUNT, body, b'"count":'):
            return int(match[1])
        raise self._refuse(body)

    def _has_more(self, body: bytes) -> bool:
        """Whether there are further pages. Retryable or SimulatorError if the page is an error."""
        match = _search_end(_HAS_MORE, body, b'"hasMore":')
        if match is None or not body.endswith(b"}") or _search_end(_FAILED, body, b'"error":'):
            raise self._refuse(body)
        return match[1] == b"true"

    def _refuse(self, body: bytes) -> Retryable | SimulatorError:
        """What an answer means whose status was a success."""
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


class OfficialArangoAsker(ClientAsker[Connection]):
    """Asks by `aql.execute`, and by the cursor that it gives."""

    def make_client(self) -> Any:
        return make_client(self.connection, 1)

    def close_client(self, client: Any) -> None:
        client[0].close()

    def ask(self, client: Any, statement: str) -> Rows:
        return list(map(tuple, client[1].aql.execute(statement, cache=False)))

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        if isinstance(error, UNANSWERED):
            return explain_silence(self.connection, error)
        if isinstance(error, ArangoServerError):
            return self.connection.explain_client(error)
        return None
