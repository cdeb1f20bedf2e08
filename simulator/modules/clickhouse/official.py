"""clickhouse-connect (`client=official`), with its defaults.

The client inserts as its documentation has it for many INSERTs into one table: one `insert` with an
InsertContext for each request: rows of Python values, of which it makes the Native format, compressed by LZ4.
It sends a request again by itself when a connection ends; here the loop does, and counts it, so the client is
given a pool that tells of no failure that it was such an end.

https://clickhouse.com/docs/integrations/language-clients/python/advanced-inserting
https://clickhouse.com/docs/integrations/language-clients/python/driver-api
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import Retryable, SimulatorError, one_line
from ..kit.http import CONNECT_TIMEOUT_S
from ..kit.http_connection import Answer
from ..kit.module import ConnectedModule, connection_lost, unreachable
from ..kit.official import ClientAsker, ClientWriter, RowsEncoder, sent_columns
from ..sending import Payload, Rows
from ..waiting import limit_wait
from .encoding import make_tokens
from .server import Connection

if TYPE_CHECKING:
    from urllib3 import PoolManager


class OfficialClickhouseWriter(ClientWriter[Connection]):
    """Sends payloads of `RowsEncoder` by a client. Its pool tells what errors mean."""

    def __init__(self, module: ConnectedModule[Any, Connection]) -> None:
        super().__init__(RowsEncoder(module.job), module)
        self._tokens = make_tokens()
        self._pool: PoolManager | None = None
        self._contexts: dict[int, Any] = {}
        """The context of each table."""

    def make_client(self) -> Any:
        options = self.connection.options
        client, self._pool = make_client(self.connection, options.request_timeout_s)
        return client

    def close_client(self, client: Any) -> None:
        client.close()
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def send(self, payload: Payload) -> int:
        for part in payload.data:
            if part.rows:
                part.name = part.name or next(self._tokens)
                if part.table not in self._contexts:
                    self._contexts[part.table] = self.client.create_insert_context(
                        self.job.table_names[part.table],
                        sent_columns(self.job),
                        settings=dict(self.connection.insert_settings),
                    )
                context = self._contexts[part.table]
                context.settings["insert_deduplication_token"] = part.name
                self.client.insert(context=context, data=part.values)
                part.rows = ()
        return payload.events


def make_client(connection: Connection, timeout_s: float) -> tuple[Any, PoolManager]:
    """A client that reaches the server as the module's own connection does, and its pool, which it doesn't
    close. `timeout_s`: how long an answer may take."""
    import clickhouse_connect

    options = connection.options
    parts = urlsplit(options.endpoint[0])
    pool = _make_pool(connection, timeout_s)
    try:
        client = clickhouse_connect.get_client(
            interface=parts.scheme,
            host=parts.hostname,
            port=parts.port or options.DEFAULT_PORT or 0,
            username=options.user,
            password=options.password or "",
            database=options.database,
            proxy_path=parts.path,
            client_name=f"iot-benchmark {connection.job.run_id}",
            send_receive_timeout=round(timeout_s) or 1,
            pool_mgr=pool,
            settings=dict(connection.session),
        )
    except Retryable as error:
        raise unreachable("ClickHouse", error) from error
    return client, pool


def _make_pool(connection: Connection, timeout_s: float) -> PoolManager:
    """The pool by which the client sends requests."""
    import urllib3
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    options = connection.options

    class Pool(urllib3.PoolManager):
        """Tells what failures mean in the tool's words, which the client leaves alone."""

        def request(self, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = urllib3.Timeout(
                connect=CONNECT_TIMEOUT_S, read=limit_wait(timeout_s)
            )
            try:
                answer = super().request(*args, **kwargs)
            except ReadTimeoutError as error:
                raise Retryable("timeout", f"{options.server}: {one_line(error)}") from error
            except HTTPError as error:
                raise connection_lost(f"{options.server}: {one_line(error)}") from error
            if answer.status != 200:
                headers = [
                    (name.encode(), value.encode()) for name, value in answer.headers.items()
                ]
                raise connection.explain(Answer(answer.status, answer.data, headers))
            return answer

    return Pool(ssl_context=options.make_tls_context())


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
