"""Sends rows to CrateDB, and finds out what became of those whose answer never came.

By the lean path, and with `client=official` by CrateDB's client `crate`: `executemany` and `execute` of a
cursor. The client compresses bodies from 8 kB on (its default). Its errors have no codes, so what they mean
is read from their texts. A request whose connection was reset, and with several endpoints any whose answer
never came, it sends again by itself: with a key of the client the second copy is refused and looked up;
without one rows may be stored twice, which the count after the run shows.

https://cratedb.com/docs/python/en/latest/query.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError
from ...workloads.schema import EventBlock
from ..kit.exactly_once import Request, SettlingWriter, Span, Wanted, keep_refused
from ..kit.http import parse_body
from ..kit.module import ConnectedModule, connection_lost
from ..kit.official import ClientWriter, Rows, RowsEncoder, sent_columns
from ..options import InsertMode
from ..sending import Payload
from ..waiting import limit_wait
from .encoding import Part, StatementEncoder, is_object, list_statements
from .server import BAD_REQUEST, DUPLICATE_KEY, SERVER_ERROR, Connection, reason

_JOBS_END_S = 10.0
_JOBS_POLL_S = 0.05
# How soon a node begins with a statement that it has received.
_SETTLE_S = 1.0
_STORED = b'"rowcount":1}'


class RowWriter(SettlingWriter[Connection]):
    """Finds out what became of rows, however they are sent. Several threads share it if several requests may
    be in flight."""

    def open(self) -> None:
        super().open()
        self.connection.expect_tables()

    def sort_out(
        self, request: Request, payload: Payload, results: Sequence[Mapping[str, Any]]
    ) -> None:
        """Return if all rows are stored; else raise the first refused one's error, with only those
        left in the request that may be sent again."""
        failure = keep_refused(request, payload, self._judge_rows(request, results))
        if failure is not None:
            request.doubt()
            raise failure

    def _judge_rows(
        self, request: Request, results: Sequence[Mapping[str, Any]]
    ) -> Iterator[Retryable | SimulatorError | None]:
        for result in results:
            code, message = reason(result)
            if result["rowcount"] == 1:
                yield None
            elif code or message:
                status = SERVER_ERROR if "error" not in result else BAD_REQUEST
                yield self.judge(request, status, result)
            else:
                yield Retryable("rows_refused", message)

    def judge(
        self, request: Request, status: int, answer: Any
    ) -> Retryable | SimulatorError | None:
        """What an error, of a statement or of a row in it, means; None: the row is stored."""
        code, message = reason(answer)
        if code == DUPLICATE_KEY:
            if request.sent_before:
                return None
            if self.has_stored:
                # A node sends its part of a request again when the primary shard dies, and meets
                # what that had stored.
                return Retryable("duplicate_key", message)
        return self.connection.interpret(status, answer)

    def await_end(self, payload: Payload) -> None:
        """Wait until no INSERT runs that can be the one whose answer was lost."""
        connection = self.connection
        # A node may have received it and not begun with it. There is no event to wait for, neither
        # for that nor for the end of another connection's statement.
        time.sleep(_SETTLE_S)
        [(now,)] = connection.ask("SELECT CURRENT_TIMESTAMP")
        deadline = time.monotonic() + limit_wait(_JOBS_END_S)
        while True:
            [(running,)] = connection.ask(
                "SELECT count(*) FROM sys.jobs WHERE stmt LIKE 'INSERT INTO%' AND started <= ?",
                [now],
            )
            if not running:
                return
            if time.monotonic() > deadline:
                raise connection_lost("the server is still processing the request")
            time.sleep(_JOBS_POLL_S)

    def show_events(self, request: Request) -> None:
        self.connection.ask(f"REFRESH TABLE {self._name_table(request)}")

    def _name_table(self, request: Request) -> str:
        return quote_name(self.job.table_names[request.table])

    def find(self, request: Request, wanted: Wanted) -> Collection[tuple[Any, ...]]:
        schema = self.job.schema
        fields = {
            name: f"{quote_name(name)}['{schema.device_path}']"
            if name == schema.device and schema.device_path
            else quote_name(name)
            for name in schema.row_key
        }
        conditions: list[str] = []
        values: list[Any] = []
        for name, sought in wanted.items():
            if isinstance(sought, Span):
                conditions.append(f"{fields[name]} BETWEEN ? AND ?")
                values += sought
            else:
                conditions.append(f"{fields[name]} = ANY(?)")
                values.append(sought)
        return self.connection.ask(
            f"SELECT {', '.join(fields.values())} FROM {self._name_table(request)}"
            f" WHERE {' AND '.join(conditions)}",
            values,
        )


class CratedbWriter(RowWriter):
    """Sends payloads of `StatementEncoder`."""

    encoder: StatementEncoder

    def send_request(self, request: Part, payload: Payload) -> None:
        try:
            answer = self.connection.send(request.body)
        except Retryable:
            request.doubt()
            raise
        status, body = answer.status, answer.body
        if status >= BAD_REQUEST:
            problem = parse_body(body)
            meaning = self.judge(request, status, problem)
            if meaning is None and len(request.rows) == 1:
                return
            # Overload, too, may have come after a part of the rows was stored.
            request.doubt()
            raise meaning or Retryable("duplicate_key", reason(problem)[1])
        if self.encoder.mode is InsertMode.BULK:
            if body.count(_STORED) != len(request.rows):
                self.sort_out(request, payload, parse_body(body)["results"])
        elif (stored := parse_body(body)["rowcount"]) != len(request.rows):
            request.doubt()
            raise Retryable(
                "rows_refused", f"CrateDB stored {stored} of a request's {len(request.rows)} rows"
            )


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
    """Sends payloads of `ObjectsEncoder` by cursors of the client."""

    def __init__(self, module: ConnectedModule[Any, Connection]) -> None:
        super().__init__(ObjectsEncoder(module.job), module)
        self._mode = module.mode
        self._statements = list_statements(self.job, self._mode)
        self._errors: Any = None
        """The module with the client's errors."""

    def make_client(self) -> Any:
        from crate.client import exceptions

        self._errors = exceptions
        return make_client(self.connection, max(10, self.max_in_flight))

    def send_request(self, request: Rows, payload: Payload) -> None:
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
        """Insert the rows; what the client says of each."""
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
    """The status of an error of the client's."""
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
    """A server's `request` under a name by which an administrator knows the run, and within what is left of
    its patience."""

    def named(*args: Any, headers: Mapping[str, str] | None = None, **more: Any) -> Any:
        more["timeout"] = limit_wait(timeout_s)
        return request(*args, headers={**(headers or {}), "User-Agent": name}, **more)

    return named
