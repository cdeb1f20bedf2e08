"""Asks ClickHouse: by its HTTP interface, for answers in the Native format, as the vendor's drivers do: of
all formats it costs the server least to write, and a client to read. With `client=official`
clickhouse-connect asks, with its defaults.

https://clickhouse.com/docs/interfaces/http
https://clickhouse.com/docs/integrations/language-clients/python/driver-api
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import Retryable, SimulatorError, one_line
from ..kit.http import HttpRequest
from ..kit.http_database import Conversation, SqlAsker
from ..kit.module import connection_lost
from ..kit.official import ClientAsker
from ..sending import Received, Rows
from .native import NotNative, count_rows, read_rows
from .server import Connection, find_exception
from .writing import make_client

if TYPE_CHECKING:
    from . import Clickhouse


class ClickhouseAsker(SqlAsker[Connection]):
    """Asks what `Clickhouse.compile` gives."""

    def __init__(self, module: Clickhouse, in_flight: int) -> None:
        super().__init__(module, module.DIALECT, in_flight, module.options.query_timeout_s)

    def escape(self, part: str) -> str:
        return part

    def make_request(self, escaped: str) -> HttpRequest:
        return HttpRequest("POST", "", escaped.encode())

    def converse(self, request: HttpRequest) -> Conversation:
        # Where it goes is known once there is a connection.
        target = self.database.question_target
        return super().converse(HttpRequest("POST", target, request.body))

    def count_rows(self, body: bytes) -> int:
        try:
            return count_rows(body)
        except NotNative as error:
            # An error in the middle of an answer is the last of it.
            if exception := find_exception(body):
                raise self.database.explain(exception) from error
            raise SimulatorError(
                f"{self.database.place} gave an unreadable answer: {error}"
            ) from error

    def decode(self, received: Received) -> Rows:
        return read_rows(received.data)


class OfficialClickhouseAsker(ClientAsker[Connection]):
    """Asks by `Client.query`."""

    def make_client(self) -> Any:
        return make_client(self.connection, self.connection.options.query_timeout_s)

    def close_client(self, client: Any) -> None:
        own, pool = client
        own.close()
        pool.clear()

    def ask(self, client: Any, statement: str) -> Rows:
        rows: Rows = client[0].query(statement).result_rows
        return rows

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        from clickhouse_connect.driver.exceptions import Error, OperationalError, StreamFailureError

        # The client's pool has told in the tool's words what a request's status says.
        if isinstance(error, OperationalError | StreamFailureError):
            return connection_lost(f"{self.connection.options.server}: {error}")
        if isinstance(error, Error):
            return SimulatorError(f"{self.connection.place}: {one_line(error, 500)}")
        return None
