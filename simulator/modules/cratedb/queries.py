"""Described queries in CrateDB's SQL, and how they are asked: statements with arguments by its HTTP endpoint.

https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html#parameter-substitution
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...encoding.columns import quote_name
from ...workloads.schema import Schema
from ..kit.http_connection import HttpRequest
from ..kit.http_database import SqlAsker, read_json
from ..kit.sql_queries import NewestByFunction, Template, quote_text
from ..own_statements import quote_json
from ..sending import Received, Rows
from .server import Connection

if TYPE_CHECKING:
    from ..cratedb import Cratedb


_UNITS_MS = (("hours", 3_600_000), ("minutes", 60_000), ("seconds", 1000))


class CratedbDialect(NewestByFunction):
    """https://cratedb.com/docs/crate/reference/en/latest/sql/statements/select.html"""

    NEWEST = "max_by"
    """Since CrateDB 5.2."""

    def device(self, schema: Schema) -> str:
        column, path = quote_name(schema.device), schema.device_path
        return f"{column}[{quote_text(path)}]" if path else column

    def bucket(self, time: str, every_ms: int) -> str:
        # The origin 0 is 1970. https://cratedb.com/docs/crate/reference/en/latest/general/builtins/scalar-functions.html#date-bin
        whole = ((unit, ms) for unit, ms in _UNITS_MS if every_ms % ms == 0)
        unit, ms = next(whole, ("", 0))
        span = f"{every_ms // ms} {unit}" if ms else f"{every_ms / 1000:.3f} seconds"
        return f"date_bin('{span}'::INTERVAL, {time}, 0)"


_END = re.compile(rb'\],"rowcount":(\d+),"duration":[\d.Ee+-]+\}\s*\Z')
"""How an answer ends. Within a text its quotes would be escaped."""
_END_BYTES = 96


class CratedbAsker(SqlAsker[Connection]):
    """Asks what `Cratedb.compile` gives, with a statement's parameters as its arguments."""

    def __init__(self, module: Cratedb, in_flight: int) -> None:
        super().__init__(module, module.DIALECT, in_flight)

    def prepare(self, template: Template) -> Template:
        begin = '{"stmt":"' + self.escape("?".join(template.parts)) + '"'
        count = len(template.places)
        if not count:
            return Template((begin + "}",), (), template.devices)
        parts = (begin + ',"args":[', *[","] * (count - 1), "]}")
        return Template(parts, template.places, template.devices)

    def write_text(self, text: str) -> str:
        return quote_json(text)

    def write_instant(self, time_ms: int) -> str:
        return str(time_ms)

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", "/_sql", escaped.encode())

    def count_rows(self, body: bytes) -> int:
        if match := _END.search(body, max(0, len(body) - _END_BYTES)):
            return int(match[1])
        # In another order, as any JSON may be.
        return int(read_json(body, "rowcount"))

    def decode(self, received: Received) -> Rows:
        return [tuple(row) for row in read_json(received.data, "rows")]
