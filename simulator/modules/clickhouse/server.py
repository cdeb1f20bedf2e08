"""Requests to ClickHouse by HTTP, what its errors mean, what it tells of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import missing_table, unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    HttpPool,
    NoAnswer,
    basic_auth,
    interpret_no_answer,
)
from .._base.options import TRUST_REMEDY
from .._base.sql_queries import quote_name
from ..base import Job
from .encoding import Part, sent_columns
from .options import ClickhouseOptions, Compression
from .queries import quote_text

_OK, _BAD_GATEWAY = 200, 502
_CODE = "X-ClickHouse-Exception-Code"

# https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
_UNKNOWN_TABLE, _UNKNOWN_DATABASE = 60, 81
_TOO_OLD = (
    46,  # UNKNOWN_FUNCTION
    50,  # UNKNOWN_TYPE
    115,  # UNKNOWN_SETTING
    344,  # SUPPORT_IS_DISABLED: a type that was an experiment then
    432,  # UNKNOWN_CODEC
)
_REFUSED_USERS = (192, 193, 194, 516)
_ACCESS_DENIED = 497
_PASSING = {
    # The server asks to be left alone for a while.
    202: "too_many_requests",  # TOO_MANY_SIMULTANEOUS_QUERIES
    252: "too_many_parts",  # TOO_MANY_PARTS
    241: "out_of_memory",  # MEMORY_LIMIT_EXCEEDED
    # What may be better in a moment; whether the INSERT is stored is settled by its token.
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
_PASSING_STATUSES = {
    429: "too_many_requests",
    502: "unavailable",
    503: "unavailable",
    504: "unavailable",
}

_VERSION = re.compile(r" \(version [^)]*\)$")

_SERVER_SETTINGS = (
    "async_insert_busy_timeout_max_ms", "async_insert_busy_timeout_min_ms", "async_insert_max_data_size",
    "async_insert_use_adaptive_busy_timeout", "insert_quorum", "max_insert_threads", "max_memory_usage",
    "max_threads", "use_query_cache",
)  # fmt: skip
_TABLE_SETTINGS = (
    "fsync_after_insert", "fsync_part_directory", "index_granularity", "min_bytes_for_wide_part",
    "min_compressed_bytes_to_fsync_after_merge", "non_replicated_deduplication_window",
    "parts_to_delay_insert", "parts_to_throw_insert", "replicated_deduplication_window",
)  # fmt: skip


class Connection:
    """The nodes in turn: requests in, answers out, errors translated."""

    def __init__(self, options: ClickhouseOptions, job: Job) -> None:
        """Connects to nothing yet. Raises SimulatorError if `ca_certs`, or a header, can't be used."""
        self._options = options
        self._job = job
        self.headers = {
            "user-agent": f"iot-benchmark {job.run_id}",
            "authorization": basic_auth(options.user, options.password or ""),
        }
        self._pool = HttpPool(
            options.endpoint,
            options.DEFAULT_PORT,
            self.headers,
            options.request_timeout_s,
            options.make_tls_context(),
            job.stamps_arrivals,
        )
        self.insert_headers = {}
        """Of an INSERT of events, besides `headers`."""
        if options.compression is not Compression.NONE:
            self.insert_headers["content-encoding"] = options.compression.value
        columns = ", ".join(map(quote_name, sent_columns(job.schema, job.load.primary_key)))
        self._insert_targets = [
            f"/?{urlencode(_insert(table, columns, options.database) | self.insert_settings)}"
            "&insert_deduplication_token="
            for table in job.table_names
        ]

    @property
    def insert_settings(self) -> dict[str, str]:
        """The settings of an INSERT, but for its token."""
        options = self._options
        # Newer servers have 1 as their default.
        found = {"async_insert": str(int(options.async_insert))}
        if options.async_insert:
            found["wait_for_async_insert"] = str(int(options.wait_for_async_insert))
            found["async_insert_deduplicate"] = "1"
        if options.insert_quorum is not None:
            found["insert_quorum"] = str(options.insert_quorum)
        return found

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def check(self) -> None:
        """Connect to all nodes; SimulatorError with a remedy if none lets us in."""
        failure: Retryable | None = None
        failures = 0
        for _ in self._options.endpoint:
            try:
                self.ask(
                    "SELECT 1", timeout_s=min(CONNECT_TIMEOUT_S, self._options.request_timeout_s)
                )
            except Retryable as error:
                failure = error
                failures += 1
        if failure is not None and failures == len(self._options.endpoint):
            raise unreachable("ClickHouse", failure) from failure

    def find_target(self, part: Part) -> str:
        """Path and parameters of an INSERT."""
        return self._insert_targets[part.table] + part.token

    def insert(self, part: Part) -> None:
        """Send an INSERT; Retryable if it may be sent again."""
        answer = self._request(self.find_target(part), part.body, self.insert_headers)
        if answer.status != _OK:
            raise self.explain(answer)

    def store(self, table: str, columns: Sequence[str], body: bytes) -> None:
        """Insert rows that may be there more than once; Retryable."""
        names = ", ".join(map(quote_name, columns))
        settings = _insert(table, names, self._options.database) | {"async_insert": "0"}
        answer = self._request(f"/?{urlencode(settings)}", body)
        if answer.status != _OK:
            raise self.explain(answer)

    def run(self, statement: str, timeout_s: float | None = None, **settings: str) -> None:
        """A statement without an answer, in no database; Retryable or SimulatorError."""
        target = f"/?{urlencode(settings)}" if settings else "/"
        answer = self._request(target, statement.encode(), timeout_s=timeout_s)
        if answer.status != _OK:
            raise self.explain(answer)

    def ask(
        self, statement: str, database: str | None = None, timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a SELECT's answer. `database`: where tables are that are named without one."""
        timeout_s = timeout_s or self._options.query_timeout_s
        settings = {"default_format": "JSONCompact", "output_format_json_quote_64bit_integers": "0"}
        if database is not None:
            settings["database"] = database
        answer = self._request(f"/?{urlencode(settings)}", statement.encode(), timeout_s=timeout_s)
        if answer.status != _OK:
            raise self.explain(answer)
        try:
            rows = orjson.loads(answer.body)["data"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            # An error that comes in the middle of an answer ends it.
            text = one_line(answer.body[-500:].decode(errors="replace"))
            raise SimulatorError(
                f"ClickHouse at {self._options.server} did not finish its answer: {text}"
            ) from error
        return [tuple(row) for row in rows]

    def _request(
        self,
        target: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        try:
            return self._pool.request("POST", target, body, headers, timeout_s)
        except NoAnswer as error:
            raise interpret_no_answer(
                error, "ClickHouse", self._options.server, TRUST_REMEDY
            ) from error

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        """What an error means: worth another try, or the end of the run."""
        options = self._options
        message = _VERSION.sub("", one_line(answer.body.decode(errors="replace"), 500))
        code = int(answer.header(_CODE) or 0)
        text = f"ClickHouse at {options.server}: {message or answer.status}"
        if code in _REFUSED_USERS or (not code and answer.status in (401, 403)):
            return SimulatorError(f"{text}; check user and password")
        if code == _ACCESS_DENIED:
            return SimulatorError(
                f"{text}; as an administrator, GRANT ALL ON {quote_name(options.database)}.* TO"
                f" {options.user}"
            )
        if code in (_UNKNOWN_TABLE, _UNKNOWN_DATABASE):
            return missing_table(text, self._job)
        if code in _TOO_OLD:
            return SimulatorError(f"{text}; a newer server knows it")
        kind = _PASSING.get(code) or (not code and _PASSING_STATUSES.get(answer.status))
        if not kind and not code and answer.status < 500:
            # ClickHouse numbers its errors.
            return SimulatorError(f"{text}; check that endpoint names ClickHouse's HTTP server")
        return Retryable(kind, text) if kind else SimulatorError(text)


def _insert(table: str, columns: str, database: str) -> dict[str, str]:
    """The parameters of an INSERT whose body is its rows."""
    query = f"INSERT INTO {quote_name(table)} ({columns}) FORMAT Native"
    return {"query": query, "database": database}


def describe(connection: Connection, options: ClickhouseOptions, table: str) -> dict[str, Any]:
    """Version, and the settings that change a result: the table's own, and those of who asks."""
    [(version,)] = connection.ask("SELECT version()")
    settings: dict[str, Any] = {}
    for source, names in (
        ("settings", _SERVER_SETTINGS), ("merge_tree_settings", _TABLE_SETTINGS),
    ):  # fmt: skip
        among = ", ".join(map(quote_text, names))
        settings |= dict(
            connection.ask(f"SELECT name, value FROM system.{source} WHERE name IN ({among})")
        )
    settings |= {
        "async_insert": options.async_insert,
        "wait_for_async_insert": options.wait_for_async_insert,
    }
    for engine, full in connection.ask(
        "SELECT engine, engine_full FROM system.tables"
        f" WHERE database = {quote_text(options.database)} AND name = {quote_text(table)}"
    ):
        settings |= {"engine": engine, "engine_full": full, **read_table_settings(full)}
    return {"version": f"ClickHouse {version}", "settings": settings}


def read_table_settings(engine: str) -> dict[str, str]:
    """The settings in a table's definition."""
    _, _, listed = engine.partition(" SETTINGS ")
    pairs = (one.partition(" = ") for one in listed.split(", ") if one)
    return {name: value.strip("'") for name, _, value in pairs}
