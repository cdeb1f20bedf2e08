"""Asks QuestDB over HTTP, for answers as JSON: where PGWire (`pgwire.py`) is not at hand.

https://questdb.com/docs/query/rest-api/#exec---execute-queries
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

from ...errors import one_line
from ..kit.http import HttpRequest
from ..kit.http_database import SqlAsker, read_json
from ..sending import Received, Rows
from .queries import QuestdbDialect
from .server import ASK_TARGET, Connection, limit_time, read_rows

if TYPE_CHECKING:
    from . import Questdb

_END = re.compile(rb'\],"count":(\d+)\}\Z')
"""How an answer without an error ends. Within a text its quotes would be escaped."""
_END_BYTES = 48


class QuestdbAsker(SqlAsker[Connection]):
    """Asks what `Questdb.compile` gives."""

    def __init__(self, module: Questdb, in_flight: int) -> None:
        timeout_s = module.options.query_timeout_s
        super().__init__(module, QuestdbDialect(module.job.schema), in_flight, timeout_s)
        self._headers = limit_time(timeout_s)

    def escape(self, part: str) -> str:
        return quote_plus(part)

    def make_request(self, escaped: str) -> HttpRequest:
        # An asker that isn't open only shows what it would send.
        target = self.database.target(escaped) if self._database else ASK_TARGET + escaped
        return HttpRequest("GET", target, headers=self._headers)

    def count_rows(self, body: bytes) -> int:
        if match := _END.search(body, max(0, len(body) - _END_BYTES)):
            return int(match[1])
        # An error that came up when the first rows were on the way, or no answer of QuestDB's.
        answer = read_json(body)
        raise self.database.explain_refusal(
            one_line(
                answer["error"] if isinstance(answer, dict) and "error" in answer else answer, 500
            )
        )

    def decode(self, received: Received) -> Rows:
        return read_rows(read_json(received.data))
