"""Asks ClickHouse: by its HTTP interface, for answers in the Native format, as the vendor's drivers do: of
all formats it costs the server least to write, and a client to read.

https://clickhouse.com/docs/interfaces/http
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ...errors import SimulatorError
from .._base.http_asking import HttpRequest, SqlAsker
from ..asking import Received, Rows
from .native import NotNative, count_rows, read_rows
from .server import Connection, find_exception

if TYPE_CHECKING:
    from . import Clickhouse


class ClickhouseAsker(SqlAsker[Connection]):
    """Asks what `Clickhouse.compile` gives."""

    def __init__(self, module: Clickhouse, in_flight: int) -> None:
        super().__init__(module, module.DIALECT, in_flight, module.options.query_timeout_s)
        settings = {"database": module.options.database, "default_format": "Native"}
        self._target = f"/?{urlencode(settings)}"

    def escape(self, part: str) -> str:
        return part

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", self._target, escaped.encode())

    def count_rows(self, body: bytes) -> int:
        try:
            return count_rows(body)
        except NotNative as error:
            # An error in the middle of an answer is the last of it.
            if found := find_exception(body):
                raise self.database.explain(found) from error
            raise SimulatorError(
                f"{self.database.place} gave an answer that can't be read: {error}"
            ) from error

    def decode(self, received: Received) -> Rows:
        return read_rows(received.data)
