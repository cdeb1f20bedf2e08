"""PostgreSQL, and what speaks its protocol: CockroachDB, YugabyteDB SQL.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A request is one transaction (a single statement on an autocommit connection, or BEGIN … COMMIT where
it needs several), so it is stored as a whole or not at all. What an error leaves open is only
whether a transaction was committed whose answer never came. After a lost connection `recover`
therefore

1. waits until the old connection's backend is gone (ending it if need be), so that nothing can be
   committed behind its back any more, and
2. looks for the request's last event by its natural key (device, time, sequence number): found,
   the request counts as stored; not found, it is sent again.

This works without any extra statement while all goes well, and for each key mode:

* `client`: the key is made of the event, so a second copy is impossible in any case, and the
  look-up uses the primary key's index.
* `sql`, `db`, `uuid`, `none`: the database would take a second copy under a new key; the look-up
  alone prevents it. It reads the table, unless `primary_key_constraint` is the natural key or an
  index serves it: slow on a large table, but only after a lost connection.

Serialization failures (40001) and deadlocks (40P01) leave nothing behind: roll back, send the whole
request again. (CockroachDB's savepoints would spare the BEGIN, at the price of two statements more
in each transaction that goes well.)

What can't be promised: that a server that loses acknowledged transactions (a crash with
`synchronous_commit` or `fsync` off, a failover to a lagging replica) still has them, which the
count after the run shows; behind a proxy that gives each transaction another server connection
(PgBouncer in transaction mode), that the old transaction has ended before the look-up; and on
YugabyteDB neither, if the old connection's node lives but can't be connected to by its own address.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from typing import Annotated, Any, ClassVar

import psycopg2
import psycopg2.errors
import psycopg2.extensions
from pydantic import Field, field_validator

from ...conditions import Condition
from ...contract import PrimaryKey
from ...encoding import client_keys
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
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
from ..shared.sql import quoted
from .dialects import DIALECTS, Dialect, DialectName, dialect_of
from .encoding import CopyFormat, InsertMode, PostgresEncoder

_COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "bigint",
    ColumnType.INT64: "bigint",
    # CockroachDB's integer has 64 bits.
    ColumnType.INT32: "int4",
    ColumnType.FLOAT32: "real",
    ColumnType.TEXT: "varchar",
    ColumnType.JSON: "jsonb",
}

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_SERIALIZATION_FAILURE = "40001"
_DEADLOCK = "40P01"
_CONNECTION_LOST = {"40003", "57P01", "57P02", "57P03"}
_CONNECTION_EXCEPTION_CLASS = "08"
_LOCK_NOT_AVAILABLE = "55P03"
_UNDEFINED_TABLE = "42P01"
_TOO_MANY_CONNECTIONS = "53300"
_DISK_FULL = "53100"
_NO_SUCH_FUNCTION = {"0A000", "42883"}

# Any 64-bit number will do, as long as all runs use the same: "iotbench" in ASCII.
_LOCK_KEY = 0x696F7462656E6368

_SETTINGS = (
    "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level",
    "wal_compression", "synchronous_standby_names", "default_transaction_isolation",
    "shared_buffers", "effective_cache_size", "work_mem", "max_wal_size", "checkpoint_timeout",
    "max_connections", "max_parallel_workers_per_gather", "jit", "autovacuum",
)  # fmt: skip

_SECRET_KEYS = ("password", "sslpassword")

# What is counted as `connection_lost` in a result.
_LOST = "connection_lost"

# How long to wait for a table that another session has locked, before saying so.
_LOCK_TIMEOUT = "30s"

# How long the old backend may take to end before the next try.
_BACKEND_END_S = 10.0


_HOST = "tags ->> 'hostname'"
_METRICS = ", ".join(METRICS)

_QUERIES = {
    "count-events": "SELECT count(*) FROM events",
    "temperature-min-max": "SELECT min(temperature), max(temperature) FROM events",
    "temperature-stats": "SELECT min(temperature), avg(temperature), max(temperature) FROM events",
    "temperature-stats-per-device": """
        SELECT device_id, min(temperature), avg(temperature), max(temperature)
        FROM events GROUP BY device_id""",
    "newest-per-device": """
        SELECT device_id, temperature
        FROM (SELECT device_id, temperature, "timestamp",
                     max("timestamp") OVER (PARTITION BY device_id) AS newest FROM events) AS e
        WHERE "timestamp" = newest""",
    "cpu-max-all": f"""
        SELECT ts - ts % {HOUR_MS} AS hour, {", ".join(f"max({name})" for name in METRICS)}
        FROM cpu
        WHERE {_HOST} IN ({", ".join(f"'{host}'" for host in MAX_ALL_HOSTS)})
          AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {MAX_ALL_UNTIL_MS}
        GROUP BY hour""",
    "high-cpu": f"""
        SELECT {_HOST}, ts, {_METRICS} FROM cpu
        WHERE usage_user > {HIGH_CPU_ABOVE}
          AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}""",
    "last-point": f"""
        SELECT DISTINCT ON ({_HOST}) {_HOST}, ts, {_METRICS}
        FROM cpu ORDER BY {_HOST}, ts DESC""",
}


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None,
        description="how events are sent: copy (default with --batch), values_lists, transaction "
        "(an INSERT per event, a commit per batch), single (default without --batch)",
    )
    use_values_lists: Annotated[bool, Condition.BATCH] = Field(
        False, description="the reference's name for insert_mode=values_lists; with --batch only"
    )
    copy_format: Annotated[CopyFormat, Condition.BATCH] = Field(
        CopyFormat.BINARY, description="binary or text"
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        if batch and self.insert_mode is InsertMode.SINGLE:
            raise OptionError("insert_mode=single sends each event alone: leave --batch out")
        if not batch and self.insert_mode not in (None, InsertMode.SINGLE):
            raise OptionError(f"insert_mode={self.insert_mode} needs --batch N")
        if not batch:
            return InsertMode.SINGLE
        return self.insert_mode or self._batch_mode()

    def prefill_mode(self) -> InsertMode:
        """The fastest batch mode that the target allows."""
        if self.insert_mode in (InsertMode.COPY, InsertMode.VALUES_LISTS):
            return self.insert_mode
        return self._batch_mode()

    def _batch_mode(self) -> InsertMode:
        return InsertMode.VALUES_LISTS if self.use_values_lists else self.spoken().BATCH_MODE

    def spoken(self) -> Dialect:
        """What the server speaks."""
        return DIALECTS[DialectName.POSTGRESQL]


class DialectOptions(EncodingOptions):
    """The same where the server may be a relative of PostgreSQL."""

    dialect: DialectName = Field(
        DialectName.POSTGRESQL,
        description="what the server is: postgresql, cockroachdb (batches are values_lists unless "
        "insert_mode says copy) or yugabytedb",
    )

    def spoken(self) -> Dialect:
        return DIALECTS[self.dialect]


class ServerOptions(EncodingOptions):
    """Where the server is, and what is made there: for this module and those built on it."""

    connection_string: Annotated[str, Condition.NONE] = Field(
        min_length=1, repr=False, description="libpq connection string or URL"
    )
    password: str | None = Field(
        None, repr=False, description="the user's password, over one in connection_string"
    )
    primary_key_constraint: Annotated[str | None, Condition.KEY] = Field(
        None, description="replaces PRIMARY KEY (id) in CREATE TABLE"
    )
    install_extensions: CommaList = Field(
        [], description="extensions to create first, separated by commas"
    )
    create_indices: bool = Field(
        False, description="create the indices on device, time and temperature before the queries"
    )

    @field_validator("connection_string")
    @classmethod
    def _parses(cls, value: str) -> str:
        try:
            psycopg2.extensions.parse_dsn(value)
        except psycopg2.ProgrammingError:
            # libpq may quote the string itself, password and all: only the kind of error is kept.
            raise ValueError("is no libpq connection string or URL") from None
        return value

    @property
    def dsn(self) -> str:
        """The connection string with the password, wherever it was given."""
        if self.password is None:
            return self.connection_string
        return str(psycopg2.extensions.make_dsn(self.connection_string, password=self.password))

    def secrets(self) -> list[str]:
        parts = psycopg2.extensions.parse_dsn(self.dsn)
        return list(dict.fromkeys(parts[key] for key in _SECRET_KEYS if key in parts))

    def table_suffix(self) -> str:
        """What follows the columns in CREATE TABLE; OptionError if the server can't do it."""
        return ""

    def public(self) -> dict[str, Any]:
        shown = super().public() | {"connection_string": public_dsn(self.connection_string)}
        return shown | ({"password": "***"} if self.password is not None else {})


class PostgresOptions(ServerOptions, DialectOptions):
    """Options of targets with `module: postgres`."""

    tablets: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, description="split each table INTO so many TABLETS (dialect yugabytedb)"
    )
    colocation: Annotated[bool | None, Condition.REPLICATION] = Field(
        None,
        description="keep the tables in the database's one tablet, if it was made WITH COLOCATION, "
        "or out of it (dialect yugabytedb; default: as the database has it)",
    )

    def table_suffix(self) -> str:
        return self.spoken().table_suffix(self.tablets, self.colocation)


def public_dsn(dsn: str) -> str:
    """The connection string with its password starred out."""
    parts = psycopg2.extensions.parse_dsn(dsn)
    for secret in _SECRET_KEYS:
        if secret in parts:
            parts[secret] = "***"
    return str(psycopg2.extensions.make_dsn(**parts))


def server_name(dsn: str) -> str:
    """host:port of a connection string, for messages."""
    parts = psycopg2.extensions.parse_dsn(dsn)
    return f"{parts.get('host', 'the local socket')}:{parts.get('port', '5432')}"


class Postgres(Module[ServerOptions, EncodingOptions]):
    """Any server that speaks PostgreSQL's protocol."""

    name = "postgres"
    PACKAGES = ("psycopg2-binary",)
    options_model: type[ServerOptions] = PostgresOptions
    encoding_options_model: type[EncodingOptions] = DialectOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "fsync": Condition.DURABILITY,
        "synchronous_commit": Condition.DURABILITY,
        "full_page_writes": Condition.DURABILITY,
        "wal_level": Condition.DURABILITY,
        "yb_disable_transactional_writes": Condition.DURABILITY,
        "synchronous_standby_names": Condition.REPLICATION,
        "zone_configuration": Condition.REPLICATION,
        "tablet_servers": Condition.REPLICATION,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys=dict.fromkeys(PrimaryKey, Support.FULL),
        multiple_tables=Support.FULL,
        queries=dict.fromkeys(_QUERIES, Support.FULL),
        indices=Support.FULL,
        column_types=_COLUMN_TYPES,
    )
    ENCODINGS = (
        Encoding("copy binary", {"insert_mode": "copy", "copy_format": "binary"}),
        Encoding("copy text", {"insert_mode": "copy", "copy_format": "text"}),
        Encoding("values_lists", {"insert_mode": "values_lists"}),
        Encoding("transaction", {"insert_mode": "transaction"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    QUERIES: ClassVar[Mapping[str, str]] = _QUERIES
    """Name -> statement. What is tuned for a server is called so and stands behind the others."""
    TIME_ORDER: ClassVar[str] = "ASC"
    """Of the index on device and time."""
    KEY_CONSTRAINT: ClassVar[str | None] = "PRIMARY KEY (id)"
    """Of a table with an `id`, unless the options say another."""

    def __init__(self, options: ServerOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self.options.table_suffix()
        self._dialect = self.options.spoken()
        self._connection: psycopg2.extensions.connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> PostgresEncoder:
        return PostgresEncoder(job, options.mode(batch), options.copy_format)

    def writer(self, batch: int, prefill: bool = False) -> PostgresWriter:
        mode = self.options.prefill_mode() if prefill else self.options.mode(batch)
        encoder = PostgresEncoder(self.job, mode, self.options.copy_format)
        return PostgresWriter(encoder, self.options.dsn, self.job, self._dialect)

    def open(self) -> None:
        self._connection = connect(self.options.dsn, self.job.run_id)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = %s", [_LOCK_TIMEOUT])
                cursor.execute("SELECT version()")
                (version,) = cursor.fetchone() or ("",)
        except psycopg2.Error as error:
            raise translated(error, self._connection, self._dialect) from error
        self._check_dialect(version)

    def _check_dialect(self, version: str) -> None:
        found = dialect_of(version)
        if found not in (None, self._dialect.name):
            self.close()
            server = server_name(self.options.connection_string)
            raise SimulatorError(
                f"the server at {server} is no {self._dialect.name} ({version.partition(' on ')[0]}):"
                f" set dialect={found}"
            )

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg2.Error):
                self._connection.close()
            self._connection = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """An advisory lock of this connection, which ends with it at the latest. Not every relative
        has them."""
        if not self._dialect.ADVISORY_LOCKS:
            yield
            return
        try:
            free = self._ask("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY])[0][0]
        except SimulatorError as error:
            cause = error.__cause__
            if isinstance(cause, psycopg2.Error) and cause.pgcode in _NO_SUCH_FUNCTION:
                yield
                return
            raise
        if not free:
            raise SimulatorError(
                f"another run is using the database at {server_name(self.options.dsn)}:"
                " wait for it to end, or use another database"
            )
        try:
            yield
        finally:
            # The server may take a moment to notice the connection's end; the next run may not.
            if self._connection is not None and not self._connection.closed:
                with suppress(psycopg2.Error), self._connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])

    def prepare(self) -> None:
        for extension in self.options.install_extensions:
            self._do(f"CREATE EXTENSION IF NOT EXISTS {quoted(extension)}")
        if self.job.clean:
            for table in self.job.all_table_names:
                self._do(f"DROP TABLE IF EXISTS {quoted(table)}")
        for table in self.job.table_names:
            columns = ", ".join(self._columns())
            suffix = self.options.table_suffix()
            self._do(f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({columns}){suffix}")

    def _columns(self) -> list[str]:
        """The column definitions and the constraint of CREATE TABLE."""
        key_types = {
            PrimaryKey.SQL: "bigint GENERATED ALWAYS AS IDENTITY "
            f"(START WITH 1 CACHE {self.job.load.batch or 100})",
            PrimaryKey.DB: "serial",
            PrimaryKey.CLIENT: "varchar",
            PrimaryKey.UUID: "uuid NOT NULL DEFAULT gen_random_uuid()",
        }
        key_type = key_types.get(self.job.load.primary_key)
        columns = [f"{quoted(c.name)} {_COLUMN_TYPES[c.type]}" for c in self.job.schema.columns]
        constraint = self.options.primary_key_constraint
        if key_type:
            columns.insert(0, f"id {key_type}")
            constraint = constraint or self.KEY_CONSTRAINT
        return [*columns, constraint] if constraint else columns

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if self._ask("SELECT to_regclass(%s)", [quoted(table)])[0][0] is None:
            raise SimulatorError(
                f"there is no table {table} to query: run insert first, with --tables single"
            )
        if self.options.create_indices:
            for statement in self._indices():
                self._do(statement)
            self._do(f"ANALYZE {quoted(table)}")

    def _indices(self) -> list[str]:
        schema = self.job.schema
        device = quoted(schema.device)
        if schema.device_path:
            device = f"({device} ->> '{schema.device_path}')"
        # YugabyteDB would hash the first column if nothing were said of its order: no help for a
        # minimum or a range.
        values = [f"{quoted(c.name)} ASC" for c in schema.columns if c.type is ColumnType.FLOAT32]
        table = quoted(schema.table)
        by_device = ", ".join(
            [f"{device} ASC", f"{quoted(schema.time)} {self.TIME_ORDER}", *values]
        )
        statements = [f"CREATE INDEX IF NOT EXISTS events_device_ts ON {table} ({by_device})"]
        if values:
            statements.append(
                f"CREATE INDEX IF NOT EXISTS events_temp ON {table} ({', '.join(values)})"
            )
        return statements

    def count(self) -> int:
        counts = [self._ask(f"SELECT count(*) FROM {quoted(t)}") for t in self.job.table_names]
        return sum(int(rows[0][0]) for rows in counts)

    def workload_queries(self) -> Mapping[str, Query]:
        names = [*self.job.schema.queries, *(f"{name}-tuned" for name in self.job.schema.queries)]
        known = {**self.QUERIES, **self._dialect.QUERIES}
        return {name: partial(self._ask, known[name]) for name in names if name in known}

    def server_info(self) -> dict[str, Any]:
        rows = self._ask(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)",
            [[*_SETTINGS, *self._dialect.SETTINGS]],
        )
        settings = dict(sorted(rows))
        for name, statement in self._dialect.FACTS.items():
            with suppress(SimulatorError):
                settings[name] = str(self._ask(statement)[0][0])
        return {"version": self._ask("SELECT version()")[0][0], "settings": settings}

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement; connects again if the connection was lost."""
        if self._connection is None or self._connection.closed:
            self.open()
        assert self._connection is not None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                return cursor.fetchall() if cursor.description else []
        except psycopg2.Error as error:
            raise translated(error, self._connection, self._dialect) from error

    def _do(self, statement: str) -> None:
        """A statement that may be repeated, as a cluster refuses DDL while it is busy with other DDL."""
        for attempt in range(self.options.max_retries):
            try:
                self._ask(statement)
            except Retryable as error:
                if error.kind == _LOST:
                    raise
                time.sleep(error.backoff_s * 2**attempt)
            else:
                return
        self._ask(statement)


class PostgresWriter(Writer):
    """Sends payloads of `PostgresEncoder`, one transaction each."""

    encoder: PostgresEncoder

    def __init__(self, encoder: PostgresEncoder, dsn: str, job: Job, dialect: Dialect) -> None:
        super().__init__(encoder)
        self._dsn = dsn
        self._job = job
        self._dialect = dialect
        self._connection: psycopg2.extensions.connection | None = None
        self._in_doubt = False
        """Whether the last request may have been committed without our knowing."""
        self._backend: Any = None
        """What tells this connection's backend from all others."""
        self._lost_backend: Any = None
        """The one that may still be at work on the request in doubt."""
        self._lost_at = 0.0
        """When it was given up, by the monotonic clock."""
        self._needs_transaction = encoder.mode is InsertMode.COPY and not dialect.COPY_IS_ATOMIC
        tables = range(len(job.table_names))
        self._copies = [encoder.copy_statement(table) for table in tables]

    def open(self) -> None:
        self._connection = connect(self._dsn, self._job.run_id)
        try:
            self._backend = self._dialect.backend(self._connection)
        except psycopg2.Error as error:
            raise translated(error, self._connection, self._dialect) from error

    def close(self) -> None:
        if self._connection is not None:
            with suppress(psycopg2.Error):
                self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        parts = payload.data
        statements = isinstance(parts[0][1], list)
        try:
            cursor = connection.cursor()
            if len(parts) == 1 and not statements and not self._needs_transaction:
                return self._send_part(cursor, *parts[0])
            cursor.execute("BEGIN")
            stored = 0
            for table, data in parts:
                for item in data if statements else (data,):
                    stored += self._send_part(cursor, table, item)
            cursor.execute("COMMIT")
            return stored
        except psycopg2.Error as error:
            meaning = translated(error, connection, self._dialect)
            self._in_doubt = isinstance(meaning, Retryable) and meaning.kind == _LOST
            raise meaning from error

    def _send_part(self, cursor: psycopg2.extensions.cursor, table: int, data: bytes) -> int:
        """Data for one table; the number of rows that it got."""
        if self.encoder.mode is InsertMode.COPY:
            # The whole payload in one read: with the default of 8 KiB psycopg2 asks Python for
            # each piece, which costs more CPU than building the payload.
            cursor.copy_expert(self._copies[table], BytesIO(data), size=len(data))
        else:
            cursor.execute(data)
        return cursor.rowcount

    def recover(self, payload: Payload) -> bool:
        if not self._in_doubt and self._rolled_back():
            return False
        # Until the request's fate is known, every further try begins here again.
        self._in_doubt = True
        if self._lost_backend is None:
            self._lost_backend, self._lost_at = self._backend, time.monotonic()
        self.close()
        try:
            self.open()
            assert self._connection is not None
            self._await_end_of_lost_backend(self._connection)
            stored = self._is_stored(self._connection, payload)
        except SimulatorError as error:
            raise Retryable(_LOST, str(error)) from error
        except psycopg2.Error as error:
            raise Retryable(_LOST, one_line(error)) from error
        self._in_doubt = False
        return stored

    def _rolled_back(self) -> bool:
        assert self._connection is not None
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
        except psycopg2.Error:
            return False
        return True

    def _await_end_of_lost_backend(self, connection: psycopg2.extensions.connection) -> None:
        """Make sure that the lost connection's transaction can't be committed any more."""
        if self._lost_backend is None:
            return
        deadline = time.monotonic() + _BACKEND_END_S
        while not self._dialect.is_gone(
            connection, self._lost_backend, time.monotonic() - self._lost_at, self._connected_to
        ):
            if time.monotonic() > deadline:
                raise Retryable(_LOST, "the old connection's backend still runs")
            # The server has no event for the end of a backend to wait for.
            time.sleep(0.02)
        self._lost_backend = None

    def _connected_to(self, host: str, port: int) -> psycopg2.extensions.connection:
        """A connection to another node of the cluster."""
        node = psycopg2.extensions.make_dsn(self._dsn, host=host, port=port, connect_timeout=3)
        return _connected(node, self._job.run_id)

    def _is_stored(self, connection: psycopg2.extensions.connection, payload: Payload) -> bool:
        """Whether the payload's last event, and so the whole transaction, is in the database."""
        schema = self._job.schema
        block, row = payload.block, payload.last
        tables = self._job.table_names
        table = tables[(block.first + row) % len(tables)]
        conditions, values = [], []
        if self._job.load.primary_key is PrimaryKey.CLIENT:
            conditions.append("id = %s")
            values.append(client_keys(block.part(row, row + 1))[0].decode())
        else:
            for name, value in block.key_of(row).items():
                column = quoted(name)
                if name == schema.device and schema.device_path:
                    column = f"{column} ->> '{schema.device_path}'"
                conditions.append(f"{column} = %s")
                values.append(value)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {quoted(table)} WHERE {' AND '.join(conditions)} LIMIT 1", values
            )
            return cursor.fetchone() is not None


def connect(dsn: str, run_id: str) -> psycopg2.extensions.connection:
    """An autocommit connection; SimulatorError with the server's name and a remedy if refused."""
    try:
        return _connected(dsn, run_id)
    except psycopg2.Error as error:
        raise SimulatorError(_connect_hint(dsn, str(error).strip())) from error


def _connected(dsn: str, run_id: str) -> psycopg2.extensions.connection:
    given = psycopg2.extensions.parse_dsn(dsn)
    defaults = {
        "connect_timeout": "10",
        "application_name": f"iot-benchmark {run_id}",
        # A vanished server is noticed within about 25 s, not after the kernel's two hours.
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
    }
    connection: psycopg2.extensions.connection = psycopg2.connect(**(defaults | given))
    connection.autocommit = True
    return connection


def _connect_hint(dsn: str, reason: str) -> str:
    """One line for a failed connection: what libpq says of its first attempt, and a remedy."""
    reason = one_line(reason.splitlines()[0])
    if "password" in reason or "authentication" in reason:
        remedy = "check user and password in connection_string"
    elif "pg_hba.conf" in reason:
        remedy = "let this host and user in by pg_hba.conf, or change user or sslmode"
    elif "too many" in reason or "remaining connection slots" in reason:
        remedy = "use fewer --workers, or raise the server's max_connections"
    elif "does not exist" in reason:
        remedy = "check dbname and user in connection_string"
    else:
        remedy = "check that the server runs and that connection_string names it"
    return f"can't connect to PostgreSQL at {server_name(dsn)}: {reason}; {remedy}"


def translated(
    error: psycopg2.Error, connection: psycopg2.extensions.connection, dialect: Dialect
) -> Retryable | SimulatorError:
    """What an error means: worth another try, or the end of the run."""
    code = error.pgcode or ""
    text = one_line(error)
    if passing := dialect.passing(text):
        return passing
    if code == _SERIALIZATION_FAILURE:
        return Retryable("serialization_failure", text, backoff_s=0.01)
    if code == _DEADLOCK:
        return Retryable("deadlock_detected", text, backoff_s=0.01)
    lost = connection.closed or code in _CONNECTION_LOST
    if lost or code.startswith(_CONNECTION_EXCEPTION_CLASS):
        return Retryable(_LOST, text)
    if code == _DISK_FULL:
        return SimulatorError(f"the database has no disk space left: {text}")
    if code == _TOO_MANY_CONNECTIONS:
        return SimulatorError(f"{text}; use fewer --workers, or raise max_connections")
    if code == _LOCK_NOT_AVAILABLE:
        return SimulatorError(
            f"another session has locked the tables: {text}; end it and try again"
        )
    if code == _UNDEFINED_TABLE:
        return SimulatorError(f"{text}; run insert first, or without --no-clean")
    return SimulatorError(f"PostgreSQL refused a statement ({code}): {text}")
