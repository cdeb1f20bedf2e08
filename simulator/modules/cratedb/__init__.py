"""CrateDB, by its HTTP endpoint.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
CrateDB has no transactions: of a request with many rows each is stored or refused alone, and the
answer says which (the rows' counts; of UNNEST, how many). What an error leaves open is what became of
the request. `recover` therefore waits a second, then until no INSERT is running any more that has begun
until then (sys.jobs), makes what they stored visible (REFRESH TABLE), looks up by their natural keys
which of the request's events are stored, and leaves only the others to be sent again. With a key
from the client the second copy of a row is impossible in any case.

What can't be promised without such a key: that a node which had received the request, but not begun
with it for a second, or a proxy on the way doesn't begin with it after that. The count after the run
shows such copies.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import orjson
from pydantic import Field, field_validator

from ...conditions import Condition
from ...contract import PrimaryKey
from ...encoding import KEY_COLUMN, bounds
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType, EventBlock, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import (
    Capabilities,
    CommaList,
    Encoding,
    Job,
    Module,
    Options,
    Payload,
    Query,
    Support,
    Writer,
)
from ..shared.http import HttpPool, NoAnswer, basic_auth, parsed, translated
from ..shared.options import checked_url
from ..shared.sql import quoted
from ..shared.tls import trusted
from .encoding import InsertMode, Part, StatementEncoder, is_object

# https://cratedb.com/docs/crate/reference/en/latest/general/ddl/data-types.html
_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "TIMESTAMP WITH TIME ZONE",
    ColumnType.INT64: "BIGINT",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT32: "REAL",
    ColumnType.TEXT: "TEXT",
    # An object takes no arrays and no lone values.
    ColumnType.JSON: "TEXT",
}

_HOST = "tags['hostname']"
_HOSTS = ", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)

# `max_by` (CrateDB 5.2 and later) finds the newest row's value in one pass.
_QUERIES = {
    "count-events": "SELECT count(*) FROM events",
    "temperature-min-max": "SELECT min(temperature), max(temperature) FROM events",
    "temperature-stats": "SELECT min(temperature), avg(temperature), max(temperature) FROM events",
    "temperature-stats-per-device": "SELECT device_id, min(temperature), avg(temperature),"
    " max(temperature) FROM events GROUP BY device_id",
    "newest-per-device": 'SELECT device_id, max_by(temperature, "timestamp") FROM events'
    " GROUP BY device_id",
    "cpu-max-all": f"SELECT date_trunc('hour', ts), {', '.join(f'max({m})' for m in METRICS)}"
    f" FROM cpu WHERE {_HOST} IN ({_HOSTS})"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {MAX_ALL_UNTIL_MS} GROUP BY date_trunc('hour', ts)",
    "high-cpu": f"SELECT {_HOST}, ts, {', '.join(METRICS)} FROM cpu"
    f" WHERE usage_user > {HIGH_CPU_ABOVE}"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}",
    "last-point": f"SELECT {_HOST}, max(ts), {', '.join(f'max_by({m}, ts)' for m in METRICS)}"
    f" FROM cpu GROUP BY {_HOST}",
}

_DEFAULT_PORT = 4200
_TRUST = "ca_certs (or set verify_certs=false)"
_CONNECT_S = 5.0
_JOBS_END_S = 10.0
_JOBS_POLL_S = 0.05
# How soon a node begins with a statement that it has received.
_SETTLE_S = 1.0
_LOOK_UP = 1_000
MAX_BATCH = 20_000

# https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html#error-codes
_UNKNOWN_RELATION, _UNKNOWN_SCHEMA, _DUPLICATE_KEY = 4041, 4045, 4091
_UNAUTHORIZED, _BAD_REQUEST, _TOO_LARGE, _TOO_MANY_REQUESTS, _SERVER_ERROR = 401, 400, 413, 429, 500
_NO_RIGHTS = (4010, 4011)
# What a node says whose queue of writes is full, or that is out of memory for now.
_OVERLOADED = ("EsRejectedExecutionException", "rejected execution", "CircuitBreakingException")
_STORED = b'"rowcount":1}'
_LOST = "connection_lost"


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None,
        description="how events are sent: bulk (bulk arguments, default with --batch), unnest,"
        " single (default without --batch)",
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        if batch and self.insert_mode is InsertMode.SINGLE:
            raise OptionError("insert_mode=single sends each event alone: leave --batch out")
        if not batch and self.insert_mode not in (None, InsertMode.SINGLE):
            raise OptionError(f"insert_mode={self.insert_mode} needs --batch N")
        if batch > MAX_BATCH:
            raise OptionError(f"--batch may be {MAX_BATCH:,} at most with CrateDB")
        return self.insert_mode or (InsertMode.BULK if batch else InsertMode.SINGLE)


class CratedbOptions(EncodingOptions):
    """Options of targets with `module: cratedb`."""

    endpoint: Annotated[CommaList, Condition.NONE] = Field(
        min_length=1, description="the nodes' URLs, separated by commas: http[s]://HOST[:4200]"
    )
    user: Annotated[str, Condition.NONE] = Field("crate", min_length=1, description="user name")
    password: str | None = Field(None, repr=False, description="the user's password")
    ca_certs: Annotated[str | None, Condition.NONE] = Field(
        None, description="authorities to trust: a PEM file, or its text (default: the usual ones)"
    )
    verify_certs: Annotated[bool, Condition.NONE] = Field(
        True, description="check the server's certificate"
    )
    default_schema: Annotated[str, Condition.NONE] = Field(
        "doc", pattern=r"^[a-z_][a-z0-9_]*$", description="schema that the tables are in"
    )
    shards: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, le=1024, description="shards per table (default: the server's)"
    )
    replicas: Annotated[str | None, Condition.REPLICATION] = Field(
        None,
        pattern=r"^\d+(-(\d+|all))?$",
        description="copies of each shard: a number or a range like 0-1 (default: the server's)",
    )
    concurrent_requests: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description="requests that a worker keeps under way at once"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for an answer, in seconds"
    )

    @field_validator("replicas", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("endpoint")
    @classmethod
    def _urls(cls, value: list[str]) -> list[str]:
        return [
            checked_url(url, "http://cratedb.example:4200", "user and password") for url in value
        ]

    def secrets(self) -> list[str]:
        return [self.password] if self.password else []

    def public(self) -> dict[str, Any]:
        shown = super().public()
        return shown | {name: "***" for name in ("password",) if name in shown}

    @property
    def server(self) -> str:
        """The nodes' host:port, for messages."""
        parts = [urlsplit(url) for url in self.endpoint]
        return ", ".join(f"{part.hostname}:{part.port or _DEFAULT_PORT}" for part in parts)

    def trusted(self) -> ssl.SSLContext | None:
        """Whom to trust where an endpoint says https; SimulatorError if `ca_certs` can't be used."""
        return trusted(self.endpoint, self.ca_certs, self.verify_certs)


class _NotFound(SimulatorError):
    """There is no such table."""


class _Connection:
    """The nodes in turn: requests in, answers out, errors translated.

    Not by CrateDB's client: its cursors encode each value, and send a request whose fate is unknown to
    the next node; the HTTP layer below them takes several times the CPU of ours.
    """

    def __init__(self, options: CratedbOptions, name: str) -> None:
        """Connects to nothing yet; requests are sent under `name`, a user agent.

        Raises SimulatorError if `ca_certs`, or a header, can't be used.
        """
        self._options = options
        headers = {
            "user-agent": name,
            "authorization": basic_auth(options.user, options.password or ""),
            "default-schema": options.default_schema,
            "accept": "application/json",
            "content-type": "application/json",
        }
        self._pool = HttpPool(
            options.endpoint, _DEFAULT_PORT, headers, options.request_timeout_s, options.trusted()
        )

    def check(self) -> None:
        """Connect to all nodes; SimulatorError with a remedy if none lets us in."""
        failure: Retryable | None = None
        failures = 0
        for _ in self._options.endpoint:
            try:
                self.ask("SELECT 1", timeout_s=min(_CONNECT_S, self._options.request_timeout_s))
            except Retryable as error:
                failure = error
                failures += 1
        if failures == len(self._options.endpoint):
            raise SimulatorError(
                f"can't connect to CrateDB at {failure}; check that the server runs and that"
                " endpoint names it"
            ) from failure

    def close(self) -> None:
        self._pool.close()

    def send(self, body: bytes, timeout_s: float | None = None) -> tuple[int, bytes]:
        """A request: the answer's status and body, whatever they are; Retryable if there is none."""
        try:
            answer = self._pool.request("POST", "/_sql", body, timeout_s=timeout_s)
        except NoAnswer as error:
            raise translated(error, "CrateDB", self._options.server, _TRUST) from error
        return answer.status, answer.body

    def ask(
        self, statement: str, values: Sequence[Any] = (), timeout_s: float | None = None
    ) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        question: dict[str, Any] = {"stmt": statement}
        if values:
            question["args"] = values
        status, body = self.send(orjson.dumps(question), timeout_s)
        answer = parsed(body)
        if status >= _BAD_REQUEST:
            raise self.refusal(status, answer)
        return [tuple(row) for row in answer["rows"]]

    def refusal(self, status: int, answer: Any) -> Retryable | SimulatorError:
        """What an answer, or one row's result in it, means that is an error."""
        code, message = reason(answer)
        text = f"CrateDB at {self._options.server}: {code or status} {message}"
        if status == _UNAUTHORIZED or code in _NO_RIGHTS:
            return SimulatorError(f"{text}; check user and password, and the user's privileges")
        if code in (_UNKNOWN_RELATION, _UNKNOWN_SCHEMA):
            return _NotFound(f"{text}; run insert first, or without --no-clean")
        if code == _DUPLICATE_KEY:
            return SimulatorError(
                f"{text}; an earlier run has stored the event: run without --no-clean, or with"
                " another --seed"
            )
        if status == _TOO_LARGE:
            return SimulatorError(f"{text}; use a smaller --batch")
        if status == _TOO_MANY_REQUESTS or any(sign in message for sign in _OVERLOADED):
            return Retryable("too_many_requests", text)
        if status >= _SERVER_ERROR or code >= 5000:
            return Retryable("unavailable", text)
        return SimulatorError(text)


def reason(answer: Any) -> tuple[int, str]:
    """Code (0: none) and message of an error, or of a row that was refused."""
    error = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("error_message", answer))
    if isinstance(error, dict) and "message" in error:
        return int(error.get("code", 0)), one_line(error["message"])
    text = one_line(error, 300)
    # Older servers give a row's error as text alone.
    return (_DUPLICATE_KEY if "DuplicateKeyException" in text else 0), text


class Cratedb(Module[CratedbOptions, EncodingOptions]):
    """A CrateDB cluster."""

    name = "cratedb"
    PACKAGES = ("httptools",)
    options_model = CratedbOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "refresh_interval": Condition.DURABILITY,
        "translog.durability": Condition.DURABILITY,
        "translog.sync_interval": Condition.DURABILITY,
        "nodes": Condition.REPLICATION,
        "number_of_shards": Condition.REPLICATION,
        "number_of_replicas": Condition.REPLICATION,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.NONE: Support.FULL,
            # There are no sequences, and its random keys aren't UUIDs.
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=dict.fromkeys(_QUERIES, Support.FULL),
        # Every column is indexed anyway.
        indices=Support.UNSUPPORTED,
        column_types=_COLUMN_TYPES,
    )
    ENCODINGS = (
        Encoding("bulk", {"insert_mode": "bulk"}),
        Encoding("unnest", {"insert_mode": "unnest"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: CratedbOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self._connection: _Connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> StatementEncoder:
        return StatementEncoder(job, options.mode(batch))

    def writer(self, batch: int, prefill: bool = False) -> CratedbWriter:
        options = self.options
        if prefill and options.insert_mode is InsertMode.SINGLE:
            options = options.model_copy(update={"insert_mode": None})
        return CratedbWriter(self.encoder(options, self.job, batch), options, self.job)

    def open(self) -> None:
        connection = _Connection(self.options, f"iot-benchmark {self.job.run_id}")
        connection.check()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self) -> None:
        if self.job.clean:
            for table in self.job.all_table_names:
                self._ask(f"DROP TABLE IF EXISTS {quoted(table)}")
        for table in self.job.table_names:
            self._ask(self._create(table))

    def _create(self, table: str) -> str:
        options, schema = self.options, self.job.schema
        columns = [
            f"{quoted(column.name)} "
            + (_object(schema) if is_object(schema, column) else _COLUMN_TYPES[column.type])
            for column in schema.columns
        ]
        if self.job.load.primary_key is not PrimaryKey.NONE:
            key = f"{quoted(KEY_COLUMN)} TEXT"
            if self.job.load.primary_key is PrimaryKey.DB:
                key += " DEFAULT gen_random_text_uuid()"
            columns.insert(0, f"{key} PRIMARY KEY")
        statement = f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({', '.join(columns)})"
        if options.shards is not None:
            statement += f" CLUSTERED INTO {options.shards} SHARDS"
        if options.replicas is not None:
            statement += f" WITH (number_of_replicas = '{options.replicas}')"
        return statement

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        try:
            self._ask(f"REFRESH TABLE {quoted(table)}")
        except _NotFound as error:
            raise SimulatorError(
                f"there is no table {table} to query: run insert first, with --tables single"
            ) from error

    def count(self) -> int:
        counts = []
        for table in self.job.table_names:
            self._ask(f"REFRESH TABLE {quoted(table)}")
            counts.append(self._ask(f"SELECT count(*) FROM {quoted(table)}")[0][0])
        return sum(counts)

    def workload_queries(self) -> Mapping[str, Query]:
        return {name: partial(self._ask, _QUERIES[name]) for name in self.job.schema.queries}

    def server_info(self) -> dict[str, Any]:
        nodes = self._ask("SELECT version['number'] FROM sys.nodes ORDER BY 1")
        settings: dict[str, Any] = {"nodes": len(nodes)}
        found = self._ask(
            "SELECT number_of_shards, number_of_replicas, settings['refresh_interval'],"
            " settings['translog']['durability'], settings['translog']['sync_interval'],"
            " settings['codec'] FROM information_schema.tables"
            " WHERE table_schema = ? AND table_name = ?",
            [self.options.default_schema, self.job.table_names[0]],
        )
        names = (
            "number_of_shards", "number_of_replicas", "refresh_interval", "translog.durability",
            "translog.sync_interval", "codec",
        )  # fmt: skip
        for row in found:
            settings |= dict(zip(names, row, strict=True))
        return {"version": f"CrateDB {nodes[0][0]}", "settings": settings}

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection.ask(statement, values)


def _object(schema: Schema) -> str:
    """The type of a device's attributes: more than the one that names it may come."""
    return f"OBJECT(DYNAMIC) AS ({quoted(schema.device_path or '')} TEXT)"


class CratedbWriter(Writer):
    """Sends payloads of `StatementEncoder`; by several threads if `concurrent_requests` says so."""

    encoder: StatementEncoder

    def __init__(self, encoder: StatementEncoder, options: CratedbOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.concurrent_requests
        self._options = options
        self._job = job
        self._connection: _Connection | None = None

    def open(self) -> None:
        name = f"iot-benchmark {self._job.run_id}"
        connection = _Connection(self._options, name)
        connection.check()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        for part in payload.data:
            if part.rows:
                self._send_part(part, payload.block)
        return payload.events

    def _send_part(self, part: Part, block: EventBlock) -> None:
        """Until all its rows are stored, or the first one's error."""
        connection = self._connection
        assert connection is not None
        try:
            status, body = connection.send(part.body)
        except Retryable:
            part.in_doubt = part.sent_before = True
            raise
        if status >= _BAD_REQUEST:
            answer = parsed(body)
            if reason(answer)[0] == _DUPLICATE_KEY and part.sent_before and len(part.rows) == 1:
                part.rows = ()
                return
            meaning = connection.refusal(status, answer)
            # Overload, too, may have come after a part of the rows was stored.
            part.in_doubt = part.sent_before = True
            raise meaning
        if self.encoder.mode is InsertMode.BULK:
            if body.count(_STORED) != len(part.rows):
                self._partly(part, block, parsed(body)["results"])
        elif (stored := parsed(body)["rowcount"]) != len(part.rows):
            part.in_doubt = part.sent_before = True
            raise Retryable(
                "rows_refused", f"CrateDB stored {stored} of a request's {len(part.rows)} rows"
            )
        part.rows = ()

    def _partly(self, part: Part, block: EventBlock, results: Sequence[Mapping[str, Any]]) -> None:
        """Nothing, if all rows are stored; else the first refused one's error, with only those that
        may be sent again left in the part."""
        assert self._connection is not None
        kept: list[int] = []
        failure: Retryable | None = None
        for row, result in zip(part.rows, results, strict=True):
            if result["rowcount"] == 1:
                continue
            code, message = reason(result)
            if code == _DUPLICATE_KEY and part.sent_before:
                continue
            meaning: Retryable | SimulatorError = Retryable("rows_refused", message)
            if code or message:
                status = _SERVER_ERROR if "error" not in result else _BAD_REQUEST
                meaning = self._connection.refusal(status, result)
            if isinstance(meaning, SimulatorError):
                raise meaning
            failure = failure or meaning
            kept.append(row)
        if failure is not None:
            self.encoder.keep(part, block, kept)
            part.in_doubt = part.sent_before = True
            raise failure

    def recover(self, payload: Payload) -> bool:
        doubtful = [part for part in payload.data if part.in_doubt]
        if doubtful:
            self._await_jobs()
        for part in doubtful:
            kept = list(self._missing(part, payload.block))
            self.encoder.keep(part, payload.block, kept)
            part.in_doubt = False
        return not any(part.rows for part in payload.data)

    def _await_jobs(self) -> None:
        """Wait until no INSERT runs that can be the one whose answer was lost."""
        connection = self._connection
        assert connection is not None
        # A node may have received it and not begun with it. There is no event to wait for, neither
        # for that nor for the end of another connection's statement.
        time.sleep(_SETTLE_S)
        [(now,)] = connection.ask("SELECT CURRENT_TIMESTAMP")
        deadline = time.monotonic() + _JOBS_END_S
        while True:
            [(running,)] = connection.ask(
                "SELECT count(*) FROM sys.jobs WHERE stmt LIKE 'INSERT INTO%' AND started <= ?",
                [now],
            )
            if not running:
                return
            if time.monotonic() > deadline:
                raise Retryable(_LOST, "the server is still at work on the request")
            time.sleep(_JOBS_POLL_S)

    def _missing(self, part: Part, block: EventBlock) -> Iterator[int]:
        """Those of the part's rows that aren't stored."""
        connection, schema = self._connection, self._job.schema
        assert connection is not None
        table = quoted(self._job.table_names[part.table])
        connection.ask(f"REFRESH TABLE {table}")
        fields = [
            f"{quoted(name)}['{schema.device_path}']"
            if name == schema.device and schema.device_path
            else quoted(name)
            for name in schema.key
        ]
        for start, stop in bounds(len(part.rows), _LOOK_UP):
            rows = part.rows[start:stop]
            keys = [tuple(block.key_of(row).values()) for row in rows]
            conditions, values = [], []
            for field, found in zip(fields, zip(*keys, strict=True), strict=True):
                if isinstance(found[0], str):
                    conditions.append(f"{field} = ANY(?)")
                    values.append(sorted(set(found)))
                else:
                    conditions.append(f"{field} BETWEEN ? AND ?")
                    values += [min(found), max(found)]
            stored = set(
                connection.ask(
                    f"SELECT {', '.join(fields)} FROM {table} WHERE {' AND '.join(conditions)}",
                    values,
                )
            )
            yield from (row for row, key in zip(rows, keys, strict=True) if key not in stored)
