"""Requests to ClickHouse over HTTP, the meaning of its errors, and its writers and askers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from ...encoding.columns import quote_name
from ...errors import Retryable, SimulatorError, one_line
from ..base import AnyModule, Job
from ..kit.exactly_once import ConnectedWriter
from ..kit.http_answer import Answer, ConnectionLost, NoAnswer
from ..kit.http_connection import HttpRequest
from ..kit.http_database import Conversation, HttpDatabase, SqlAsker
from ..kit.module import missing_table
from ..kit.official import sent_columns
from ..sending import Received, Request, Rows
from .encoding import ClickhouseOptions, Compression, Part
from .queries import NotNative, count_rows, quote_text, read_rows

if TYPE_CHECKING:
    from ..clickhouse import Clickhouse


from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..kit.http import CONNECT_TIMEOUT_S
from ..kit.module import ConnectedModule, connection_lost, unreachable
from ..kit.official import ClientAsker, ClientWriter, RowsEncoder
from ..waiting import limit_wait
from .encoding import make_tokens

if TYPE_CHECKING:
    from urllib3 import PoolManager

_CODE = "X-ClickHouse-Exception-Code"

# https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
_UNKNOWN_TABLE, _UNKNOWN_DATABASE = 60, 81
_TOO_OLD = (
    46,  # UNKNOWN_FUNCTION
    50,  # UNKNOWN_TYPE
    115,  # UNKNOWN_SETTING
    344,  # SUPPORT_IS_DISABLED: a type that was experimental then
    432,  # UNKNOWN_CODEC
)
_FINAL = {
    **dict.fromkeys((192, 193, 194, 516), "{text}; check {options.LOGIN}"),
    497: "{text}; as an administrator, GRANT ALL ON {database}.* TO {options.user}",  # ACCESS_DENIED
    **dict.fromkeys(_TOO_OLD, "{text}; a newer server knows it"),
}
"""Code -> the message for an error that ends a run."""
_PASSING = {
    # The server is overloaded.
    202: "too_many_requests",  # TOO_MANY_SIMULTANEOUS_QUERIES
    252: "too_many_parts",  # TOO_MANY_PARTS
    241: "out_of_memory",  # MEMORY_LIMIT_EXCEEDED
    # May work in a moment; the token settles whether the INSERT is stored.
    159: "timeout",  # TIMEOUT_EXCEEDED
    209: "timeout",  # SOCKET_TIMEOUT
    210: "unavailable",  # NETWORK_ERROR
    236: "unavailable",  # ABORTED
    242: "unavailable",  # TABLE_IS_READ_ONLY: a replica without its Keeper
    285: "unavailable",  # TOO_FEW_LIVE_REPLICAS
    286: "unavailable",  # UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
    319: "unavailable",  # UNKNOWN_STATUS_OF_INSERT
    394: "unavailable",  # QUERY_WAS_CANCELLED
    999: "unavailable",  # KEEPER_EXCEPTION
}

_VERSION = re.compile(r" \(version [^)]*\)$")
_EXCEPTION = re.compile(rb"Code: (\d+)\. DB::Exception: [^\r\n]*")
_EXCEPTION_BYTES = 1 << 14
"""How much of the end of an answer to search."""

_SESSION = {
    **dict.fromkeys(("extremes", "use_query_cache"), "0"),
    # Settings that leave something out silently.
    **dict.fromkeys(
        (
            "result_overflow_mode", "read_overflow_mode", "read_overflow_mode_leaf", "set_overflow_mode",
            "group_by_overflow_mode", "sort_overflow_mode", "distinct_overflow_mode", "join_overflow_mode",
            "transfer_overflow_mode", "timeout_overflow_mode", "timeout_overflow_mode_leaf",
        ),
        "throw",
    ),
    # The meaning of statements.
    **dict.fromkeys(
        (
            "aggregate_functions_null_for_empty", "data_type_default_nullable", "group_by_use_nulls",
            "empty_result_for_aggregation_by_empty_set", "final", "join_use_nulls", "transform_null_in",
        ),
        "0",
    ),
    "enable_positional_arguments": "1",
    # The form of blocks, and their deduplication.
    "input_format_native_allow_types_conversion": "1",
    "input_format_native_decode_types_in_binary_format": "0",
    "output_format_native_encode_types_in_binary_format": "0",
    "low_cardinality_allow_in_native_format": "1",
    "insert_deduplicate": "1",
}  # fmt: skip
"""Settings that affect answers or stored data. A user's profile may differ from these defaults.
https://clickhouse.com/docs/operations/settings/settings"""


class Connection(HttpDatabase[ClickhouseOptions]):
    """INSERTs, other statements, and queries."""

    SYSTEM = "ClickHouse"
    PASSING: ClassVar = {
        429: "too_many_requests",
        502: "unavailable",
        503: "unavailable",
        504: "unavailable",
    }
    """Kinds of errors for answers without a ClickHouse error number."""

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        super().__init__(options, job)
        self.insert_headers = {}
        """The headers of an INSERT of events, besides `headers`."""
        if options.compression is not Compression.NONE:
            self.insert_headers["content-encoding"] = options.compression.value
        # system.settings isn't asked for these two.
        self.session: Mapping[str, str] = {"limit": "0", "offset": "0"}
        """Settings sent with every request, since a user's profile may differ."""

    def ping(self, timeout_s: float) -> None:
        among = ", ".join(map(quote_text, _SESSION))
        question = f"SELECT name, value FROM system.settings WHERE name IN ({among})"
        rows = self.ask(question, timeout_s=timeout_s)
        changed = {name: _SESSION[name] for name, value in rows if value != _SESSION[name]}
        self.session = {**self.session, **changed}

    def target(self, **parameters: str) -> str:
        """Path and parameters of a request."""
        settings = urlencode({**self.session, **parameters})
        return f"/?{settings}" if settings else "/"

    @cached_property
    def _insert_targets(self) -> list[str]:
        columns = ", ".join(map(quote_name, sent_columns(self.job)))
        return [
            self.target(**self._insert(table, columns), **self.insert_settings)
            + "&insert_deduplication_token="
            for table in self.job.table_names
        ]

    @property
    def insert_settings(self) -> dict[str, str]:
        """The settings of an INSERT, without its token."""
        options = self.options
        # The default of newer servers is 1.
        settings = {"async_insert": str(int(options.async_insert))}
        if options.async_insert:
            settings["wait_for_async_insert"] = str(int(options.wait_for_async_insert))
            settings["async_insert_deduplicate"] = "1"
        if options.insert_quorum is not None:
            settings["insert_quorum"] = str(options.insert_quorum)
        return settings

    @cached_property
    def question_target(self) -> str:
        """The target for a query of the workload."""
        return self.target(database=self.options.database, default_format="Native")

    def _insert(self, table: str, columns: str) -> dict[str, str]:
        """The parameters of an INSERT whose body is its rows."""
        query = f"INSERT INTO {quote_name(table)} ({columns}) FORMAT Native"
        return {"query": query, "database": self.options.database}

    def find_target(self, part: Part) -> str:
        """Path and parameters of an INSERT."""
        return self._insert_targets[part.table] + part.token

    def insert(self, part: Part) -> None:
        """Send an INSERT; Retryable if it may be sent again."""
        self.fetch("POST", self.find_target(part), part.body, self.insert_headers)

    def store(self, table: str, columns: Sequence[str], body: bytes) -> None:
        """Insert rows that may be stored already. Raises Retryable."""
        names = ", ".join(map(quote_name, columns))
        target = self.target(**self._insert(table, names), async_insert="0")
        self.fetch("POST", target, body)

    def run(self, statement: str, timeout_s: float | None = None, **settings: str) -> None:
        """Run a statement without an answer, outside any database. Raises Retryable or SimulatorError."""
        self.fetch("POST", self.target(**settings), statement.encode(), timeout_s=timeout_s)

    def ask(
        self, statement: str, database: str | None = None, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a SELECT's answer. `database`: of tables that are named without one."""
        timeout_s = timeout_s or self.options.query_timeout_s
        settings = {"default_format": "JSONCompact", "output_format_json_quote_64bit_integers": "0"}
        if database is not None:
            settings["database"] = database
        target = self.target(**settings)
        answer = self.fetch("POST", target, statement.encode(), timeout_s=timeout_s)
        return [tuple(row) for row in self.parse(answer, "data")]

    def explain_silence(self, error: NoAnswer) -> Retryable | SimulatorError:
        # Newer servers close the connection after an error in the middle of an answer.
        exception = find_exception(error.end) if isinstance(error, ConnectionLost) else None
        return self.explain(exception) if exception else super().explain_silence(error)

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        options = self.options
        message = _VERSION.sub("", one_line(answer.body.decode(errors="replace"), 500))
        code = int(answer.header(_CODE) or 0)
        text = f"{self.place}: {message or answer.status}"
        if code in (_UNKNOWN_TABLE, _UNKNOWN_DATABASE):
            return missing_table(text, self.job)
        if form := _FINAL.get(code):
            database = quote_name(options.database)
            return SimulatorError(form.format(text=text, options=options, database=database))
        if kind := _PASSING.get(code):
            return Retryable(kind, text)
        return SimulatorError(text) if code else self.explain_status(answer, text)


def find_exception(body: bytes) -> Answer | None:
    """The error at the end of a partial answer, as an answer of its own; None if there is none."""
    match = _EXCEPTION.search(body[-_EXCEPTION_BYTES:])
    return Answer(500, match[0], [(_CODE.encode(), match[1])]) if match else None


def read_table_settings(engine: str) -> dict[str, str]:
    """The settings in a table's definition."""
    _, _, listed = engine.partition(" SETTINGS ")
    pairs = (setting.partition(" = ") for setting in listed.split(", ") if setting)
    return {name: value.strip("'") for name, _, value in pairs}


class ClickhouseWriter(ConnectedWriter[Connection]):
    """Sends payloads of `NativeEncoder`; with several threads if several may be in flight."""

    def send(self, payload: Request) -> int:
        for part in payload.data:
            if not part.is_stored:
                self.connection.insert(part)
                part.is_stored = True
        return payload.events


class ClickhouseAsker(SqlAsker[Connection]):
    """Sends the queries of `Clickhouse.compile`."""

    def __init__(self, module: Clickhouse, in_flight: int) -> None:
        super().__init__(module, module.DIALECT, in_flight, module.options.query_timeout_s)

    def escape(self, part: str) -> str:
        return part

    def make_request(self, escaped: str) -> bytes:
        return escaped.encode()

    def converse(self, request: bytes) -> Conversation:
        # The target is known once there is a connection.
        return super().converse(HttpRequest("POST", self.database.question_target, request))

    def count_rows(self, body: bytes) -> int:
        try:
            return count_rows(body)
        except NotNative as error:
            # An error in the middle of an answer comes last.
            if exception := find_exception(body):
                raise self.database.explain(exception) from error
            raise SimulatorError(
                f"{self.database.place} gave an unreadable answer: {error}"
            ) from error

    def decode(self, received: Received) -> Rows:
        return read_rows(received.data)


# --- the official client -----------------------------------------------------------------------------

# clickhouse-connect (`client=official`), with its defaults. It inserts as its documentation advises for many
# INSERTs into one table: one `insert` with an InsertContext for each request. It converts rows of Python
# values to the Native format, compressed with LZ4. By itself it would send a request again when a connection
# ends; here the loop does, and counts it, so the client gets a pool that reports no failure as such an end.
#
# https://clickhouse.com/docs/integrations/language-clients/python/advanced-inserting
# https://clickhouse.com/docs/integrations/language-clients/python/driver-api


class OfficialClickhouseWriter(ClientWriter[Connection]):
    """Sends payloads of `RowsEncoder` through a client. Its pool translates errors."""

    def __init__(self, module: ConnectedModule[Any, Connection]) -> None:
        super().__init__(module)
        self._tokens = make_tokens()
        self._pool: PoolManager | None = None
        self._contexts: dict[int, Any] = {}
        """Each table's context."""

    def make_encoder(self, module: AnyModule) -> RowsEncoder:
        return RowsEncoder(module.job)

    def make_client(self) -> Any:
        options = self.connection.options
        client, self._pool = make_client(self.connection, options.request_timeout_s)
        return client

    def close_client(self, client: Any) -> None:
        client.close()
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def send(self, payload: Request) -> int:
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
    """A client that reaches the server as the module's own connection does, and its pool, which the client
    doesn't close. `timeout_s`: for an answer."""
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
    """The pool through which the client sends requests."""
    import urllib3
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    options = connection.options

    class Pool(urllib3.PoolManager):
        """Translates failures into the tool's errors, which the client doesn't catch."""

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
    """Queries with `Client.query`."""

    def make_client(self) -> Any:
        return make_client(self.connection, self.connection.options.query_timeout_s)

    def close_client(self, client: Any) -> None:
        own, pool = client
        own.close()
        pool.clear()

    def execute(self, client: Any, statement: str) -> Rows:
        rows: Rows = client[0].query(statement).result_rows
        return rows

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        from clickhouse_connect.driver.exceptions import Error, OperationalError, StreamFailureError

        # The client's pool has translated a request's error status already.
        if isinstance(error, OperationalError | StreamFailureError):
            return connection_lost(f"{self.connection.options.server}: {error}")
        if isinstance(error, Error):
            return SimulatorError(f"{self.connection.place}: {one_line(error, 500)}")
        return None
