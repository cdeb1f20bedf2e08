"""CrateDB's client `crate` (`client=official`): a cursor's `executemany` and `execute`, also for queries.

The client compresses bodies from 8 kB on (its default). Its errors have no codes, so their meaning is read
from their texts. It repeats a request by itself if its connection was reset or, with several endpoints, if no
answer came. With a key from the client, the second copy is refused and looked up; without one, rows may be
stored twice, which the count after the run shows.

https://cratedb.com/docs/python/en/latest/query.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from ...errors import Retryable, SimulatorError
from ...workloads.schema import EventBlock
from ..base import AnyModule
from ..kit.module import ConnectedModule, connection_lost
from ..kit.official import ClientAsker, ClientWriter, Rows, RowsEncoder, sent_columns
from ..options import InsertMode
from ..sending import Request
from ..sending import Rows as Answers
from ..waiting import limit_wait
from .encoding import is_object, list_statements
from .server import BAD_REQUEST, SERVER_ERROR, Connection, RowWriter

if TYPE_CHECKING:
    pass


class ObjectsEncoder(RowsEncoder):
    """Rows in which values that are stored as objects are dictionaries."""

    def list_values(self, block: EventBlock) -> Sequence[Any]:
        rows, schema = super().list_values(block), block.schema
        objects = {column.name for column in schema.row if is_object(schema, column)}
        for place, name in enumerate(sent_columns(self.job)):
            if name in objects:
                rows = [(*row[:place], orjson.loads(row[place]), *row[place + 1 :]) for row in rows]
        return rows


class OfficialCratedbWriter(RowWriter, ClientWriter[Connection]):
    """Sends payloads of `ObjectsEncoder` through cursors of the client."""

    def __init__(self, module: ConnectedModule[Any, Connection]) -> None:
        super().__init__(module)
        self._mode = module.mode
        self._statements = list_statements(self.job, self._mode)
        self._errors: Any = None
        """The module that has the client's errors."""

    def make_encoder(self, module: AnyModule) -> ObjectsEncoder:
        return ObjectsEncoder(module.job)

    def make_client(self) -> Any:
        from crate.client import exceptions

        self._errors = exceptions
        return make_client(self.connection, max(10, self.max_in_flight))

    def send_request(self, request: Rows, payload: Request) -> None:
        try:
            results = self._insert(request)
        except self._errors.ConnectionError as error:
            request.doubt()
            raise connection_lost(f"{self.connection.options.server}: {error}") from error
        except self._errors.Error as error:
            text = str(error)
            meaning = self.judge(request, read_status(text), text)
            if meaning is not None or len(request.rows) > 1:
                request.doubt()
                raise meaning or connection_lost(text) from error
        else:
            if any(result["rowcount"] != 1 for result in results):
                self.sort_out(request, payload, results)

    def _insert(self, request: Rows) -> Sequence[Mapping[str, Any]]:
        """Insert the rows; the client's result for each."""
        cursor = self.client.cursor()
        statement = self._statements[request.table]
        if self._mode is InsertMode.BULK:
            results: Sequence[Mapping[str, Any]] = cursor.executemany(statement, request.values)
            return results
        if self._mode is InsertMode.SINGLE:
            cursor.execute(statement, request.values[0])
        else:
            columns = zip(*request.values, strict=True)
            cursor.execute(statement, [list(column) for column in columns])
        stored = cursor.rowcount
        return [{"rowcount": 1 if row < stored else -2} for row in range(len(request.rows))]


def read_status(text: str) -> int:
    """The status of a client's error."""
    return SERVER_ERROR if "Server Error" in text else BAD_REQUEST


def make_client(connection: Connection, pool_size: int) -> Any:
    """A client that reaches the nodes as the module's own connection does."""
    from crate.client import connect

    options = connection.options
    client = connect(
        options.endpoint,
        timeout=options.request_timeout_s,
        username=options.user,
        password=options.password,
        schema=options.default_schema,
        verify_ssl_cert=options.verify_certs,
        ca_cert=options.find_file("ca_certs"),
        cert_file=options.find_file("client_cert"),
        key_file=options.find_file("client_key"),
        pool_size=pool_size,
    )
    name = f"iot-benchmark {connection.job.run_id}"
    for server in client.client.server_pool.values():
        server.request = _wrap_request(server.request, name, options.request_timeout_s)
    return client


def _wrap_request(request: Callable[..., Any], name: str, timeout_s: float) -> Callable[..., Any]:
    """A server's `request` with a name by which administrators recognise the run, and within the rest of its
    patience."""

    def named(*args: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        more["timeout"] = limit_wait(timeout_s)
        return request(*args, headers={**(headers or {}), "User-Agent": name}, **more)

    return named


class OfficialCratedbAsker(ClientAsker[Connection]):
    """Queries with `cursor.execute` and `fetchall`."""

    def make_client(self) -> Any:
        return make_client(self.connection, 1)

    def execute(self, client: Any, statement: str) -> Answers:
        cursor = client.cursor()
        cursor.execute(statement)
        rows: Answers = cursor.fetchall()
        return rows

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        from crate.client import exceptions

        if isinstance(error, exceptions.ConnectionError):
            return connection_lost(f"{self.connection.options.server}: {error}")
        if not isinstance(error, exceptions.Error):
            return None
        text = str(error)
        return self.connection.interpret(read_status(text), text)
