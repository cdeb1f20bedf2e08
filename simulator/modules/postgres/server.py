"""The meaning of a server's errors, and everything except writing: the connection for it, the lock, the
server's description, indexes and storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from zlib import crc32

import numpy as np

from ...contract import Allocation, Retention, Storage
from ...encoding.columns import BIG_ENDIAN, quote_name
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.schema import ID, Schema, Tags
from ..base import Job
from ..kit.libpq import Connection, Connector, ServerError, server_name
from ..kit.module import CONNECTION_LOST, connection_lost, missing_table
from ..kit.sql_queries import SqlDialect, quote_text
from .dialects import Dialect, dialect_of
from .encoding import ServerOptions

_NO_SUCH_FUNCTION = {"0A000", "42883"}

# Any 64-bit number will do, as long as all runs use the same: "iotbench" in ASCII.
_LOCK_KEY = 0x696F7462656E6368

_SETTINGS = (
    "server_version", "server_encoding", "fsync", "synchronous_commit", "full_page_writes", "wal_level",
    "wal_compression", "synchronous_standby_names", "default_transaction_isolation",
    "shared_buffers", "effective_cache_size", "work_mem", "max_wal_size", "checkpoint_timeout",
    "max_connections", "max_parallel_workers_per_gather", "jit", "autovacuum",
)  # fmt: skip

VERSION = "SELECT version()"

# How long to wait for a table that another session has locked before reporting it.
_LOCK_TIMEOUT = "30s"


# --- errors -----------------------------------------------------------------------------------------

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = {"40003", "57P01", "57P02", "57P03"}
_CONNECTION_EXCEPTION_CLASS = "08"
_UNDEFINED_TABLE = "42P01"
_INSUFFICIENT_PRIVILEGE = "42501"
_PASSING = {"40001": "serialization_failure", "40P01": "deadlock_detected"}
"""Code -> kind of an error that leaves nothing behind."""
_NO_STATEMENT = (
    "{}; a proxy in between doesn't keep prepared statements: set prepared_statements=false"
)
_FINAL = {
    "22P05": "{}: use a database with ENCODING 'UTF8'",
    "25006": "{}: name a server that takes writes, or set default_transaction_read_only to off for"
    " this user and database",
    "53100": "the database has no disk space left: {}",
    "53300": "{}; use fewer --workers (or connections), or raise max_connections",
    "55P03": "another session has locked the tables: {}; end it and try again",
    # The statement doesn't exist, or exists already.
    "26000": _NO_STATEMENT,
    "42P05": _NO_STATEMENT,
}
"""Code -> the message for an error that ends a run."""


def code_of(error: SimulatorError) -> str | None:
    """PostgreSQL's code of the error behind one of ours."""
    cause = error.__cause__
    return cause.code if isinstance(cause, ServerError) else None


def is_lost(meaning: object) -> bool:
    """Whether an error reports a lost connection, so that a request's outcome is unknown."""
    return isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST


def repeat_refused(attempt: Callable[[], object], max_retries: int) -> None:
    """Repeat a statement while a cluster refuses DDL, and what conflicts with it, because it is busy with
    other DDL. Raises as `attempt`."""
    for number in range(max_retries):
        try:
            attempt()
        except Retryable as error:
            if is_lost(error):
                raise
            time.sleep(error.backoff_s * 2**number)
        else:
            return
    attempt()


def translate(
    error: ServerError | OSError, dialect: Dialect, job: Job
) -> Retryable | SimulatorError:
    """What an error means: worth another attempt, or the end of the run. OSError: the connection is lost."""
    text = one_line(error)
    if passing := dialect.find_passing_error(text):
        return passing
    if isinstance(error, OSError):
        return connection_lost(text)
    code = error.code
    if code in _PASSING:
        return Retryable(_PASSING[code], text, backoff_s=0.01)
    if code in _LOST or code.startswith(_CONNECTION_EXCEPTION_CLASS):
        return connection_lost(text)
    if code == _UNDEFINED_TABLE:
        return missing_table(text, job)
    form = _FINAL.get(code, f"the database refused a statement ({code}): {{}}")
    return SimulatorError(form.format(text))


# --- the module's own connection --------------------------------------------------------------------


class Session:
    """The connection for everything except writing: opened on first use, and reopened after a loss."""

    def __init__(self, options: ServerOptions, job: Job, dialect: Dialect) -> None:
        self._dsn = options.dsn
        settings = {**dialect.SESSION, "lock_timeout": _LOCK_TIMEOUT}
        self._connector = Connector(options.dsn, job.run_id, settings)
        self._job = job
        self._dialect = dialect
        self._max_retries = options.max_retries
        self._timeout_s = options.query_timeout_s
        self._connection: Connection | None = None

    def open(self) -> None:
        """Connect; SimulatorError if the server isn't of the configured dialect."""
        self._connection = self._connector.connect(
            lambda parameters: Connection(parameters, self._timeout_s)
        )
        version = self.ask(VERSION)[0][0]
        dialect = dialect_of(version)
        if dialect not in (None, self._dialect.name):
            self.close()
            raise SimulatorError(
                f"the server at {server_name(self._dsn)} is not {self._dialect.name}"
                f" ({version.partition(' on ')[0]}): set dialect={dialect}"
            )

    def close(self) -> None:
        """Disconnect; no error if the connection was lost already."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        if self._connection is None:
            try:
                self.open()
            except SimulatorError as error:
                # It was connected before: a server that is away for a while comes back.
                raise connection_lost(error) from error
        assert self._connection is not None
        try:
            return self._connection.ask(statement, values)
        except (OSError, ServerError) as error:
            meaning = translate(error, self._dialect, self._job)
            if is_lost(meaning):
                self.close()
                self._connector.shorten()
            raise meaning from error

    def execute(self, statement: str) -> None:
        """Execute a statement that may be repeated."""
        repeat_refused(lambda: self.ask(statement), self._max_retries)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold an advisory lock, which ends with the connection at the latest. Not every relative supports
        them."""
        if not self._dialect.ADVISORY_LOCKS:
            yield
            return
        try:
            free = self.ask("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY])[0][0]
        except SimulatorError as error:
            if code_of(error) in _NO_SUCH_FUNCTION:
                yield
                return
            raise
        if not free:
            raise SimulatorError(
                f"another run is using the database at {server_name(self._dsn)}:"
                " wait for it to end, or use another database"
            )
        try:
            yield
        finally:
            # The server may take a moment to notice the connection's end; the next run can't wait for it.
            if self._connection is not None:
                with suppress(Retryable, SimulatorError):
                    self.ask("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])


def check_encoding(session: Session, schema: Schema) -> None:
    """SimulatorError if the database's encoding lacks characters of the events, as far as these are known."""
    beyond_ascii = [
        (character, column.name)
        for column in schema.columns
        for character in sorted(set("".join(column.texts)))
        if not character.isascii()
    ]
    if not beyond_ascii:
        return
    [[encoding]] = session.ask("SELECT current_setting('server_encoding')")
    # In both, the order of bytes is that of characters, too.
    below = {"UTF8": 0x110000, "LATIN1": 0x100}.get(encoding, 0x80)
    for character, column in beyond_ascii:
        if ord(character) >= below:
            raise SimulatorError(
                f"the database has encoding {encoding}, which has no {character!r} (column"
                f" {column}): use one made with ENCODING 'UTF8' TEMPLATE template0"
            )


def describe(session: Session, dialect: Dialect) -> dict[str, Any]:
    """The server's version, and the settings that affect a result."""
    rows = session.ask(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)"
        # Settings for this database or user alone, such as a planner's, affect the measurement.
        " OR source IN ('database', 'user', 'database user') AND name NOT LIKE '%%.%%'",
        [[*_SETTINGS, *dialect.SETTINGS]],
    )
    settings = dict(sorted(rows))
    for name, statement in dialect.FACTS.items():
        with suppress(SimulatorError):
            settings[name] = str(session.ask(statement)[0][0])
    return {"version": session.ask(VERSION)[0][0], "settings": settings}


_PARTS = (
    "SELECT coalesce(sum(pg_total_relation_size(part)), 0), coalesce(sum(pg_indexes_size(part)), 0), 1"
    " FROM (SELECT {text}::regclass UNION ALL"
    " SELECT inhrelid FROM pg_inherits WHERE inhparent = {text}::regclass) AS parts (part)"
)
"""The size of a partitioned table, as `Dialect.STORAGE`."""


def read_storage(
    session: Session, dialect: Dialect, tables: Sequence[str], parted: bool = False
) -> Storage:
    """The sum over the tables, with the dialect's own statement; `parted`: over all their partitions."""
    statement = _PARTS if parted else dialect.STORAGE
    try:
        sizes = [ask_size(session, statement, table) for table in tables]
    except SimulatorError as error:
        if code_of(error) == _INSUFFICIENT_PRIVILEGE and dialect.STORAGE_RIGHT:
            raise SimulatorError(f"{error}: {dialect.STORAGE_RIGHT}") from error
        raise
    return add_up(sizes, dialect.STORED, dialect.ALLOCATION)


def ask_index_sizes(session: Session, statement: str, table: str) -> dict[str, int]:
    """Index of a table -> its bytes, from `Dialect.INDEX_SIZES`."""
    name = quote_name(table)
    rows = session.ask(statement.format(name=name, text=quote_text(name)))
    return {index: int(size or 0) for index, size in rows}


def ask_size(session: Session, statement: str, table: str) -> Sequence[Any]:
    """A statement's figures for a table: total bytes, bytes of indexes or None, copies."""
    name = quote_name(table)
    return session.ask(statement.format(name=name, text=quote_text(name)))[0]


def add_up(sizes: Sequence[Sequence[Any]], source: str, allocation: Allocation) -> Storage:
    """The sum of tables' sizes: total bytes, bytes of indexes or None, copies included. `allocation`: of each
    table."""
    total = sum(int(size) for size, _, _ in sizes)
    indexes = [int(size) for _, size, _ in sizes if size is not None]
    index = sum(indexes) if len(indexes) == len(sizes) else None
    return Storage(
        total_bytes=total,
        data_bytes=None if index is None else total - index,
        index_bytes=index,
        copies=max(int(copies) for _, _, copies in sizes),
        allocation=allocation.times(len(sizes)),
        source=source,
    )


# https://www.postgresql.org/docs/current/storage-page-layout.html
_HEADER_BYTES = 24


def check_row(schema: Schema, most: int) -> None:
    """OptionError if every row would be larger than the limit."""
    size = _HEADER_BYTES
    for column in schema.row:
        # Texts and nullable values are counted as almost nothing.
        if not column.nullable:
            # https://www.postgresql.org/docs/current/datatype.html: sizes, to which values are also aligned.
            # A text has at least a byte, and no alignment while it is short.
            width = np.dtype(BIG_ENDIAN.get(column.type, "S1")).itemsize
            size += -size % width + width
    if size > most:
        raise OptionError(
            f"a row of table {schema.table} takes {size:,} bytes at least, but PostgreSQL stores"
            f" {most:,} at most: use fewer columns, or smaller types"
        )


# --- indexes ------------------------------------------------------------------------------------------

_LONGEST_NAME = 63
"""Bytes; longer names are cut: https://www.postgresql.org/docs/current/limits.html"""


def name_index(table: str, index: str) -> str:
    """A name within the server's limit. It begins with the table: names belong to the schema, and an existing
    index with this name, on whichever table, would be taken for the new one."""
    name = f"{table}_{index}".encode()
    if len(name) > _LONGEST_NAME:
        tail = b"_%08x" % crc32(name)
        name = name[: _LONGEST_NAME - len(tail)] + tail
    return name.decode(errors="ignore")


def list_statements(
    schema: Schema,
    indexes: Mapping[str, Sequence[str]],
    tables: Sequence[str],
    dialect: SqlDialect,
    time_order: str,
) -> dict[str, str]:
    """Name -> statement of each of these indexes (see `Schema.indexes`), on the events' tables and the tags'
    table."""
    device = f"({dialect.device(schema)})" if schema.device_path else quote_name(schema.device)

    def read(name: str) -> str:
        if name in (schema.device, ID):
            return device if name == schema.device else quote_name(ID)
        column = schema.column(name)
        return f"({dialect.read(column)})" if column.path else quote_name(name)

    # By default, YugabyteDB hashes the first column, which doesn't help with a minimum or a range.
    columns = {
        index: [f"{read(name)} {time_order if name == schema.time else 'ASC'}" for name in names]
        for index, names in indexes.items()
    }
    placed = [(table, index, indexed) for table in tables for index, indexed in columns.items()]
    if schema.tags is Tags.TABLE:
        placed.append((schema.tags_table, "device", [f"{device} ASC"]))
    return {
        name_index(
            table, index
        ): f"CREATE INDEX IF NOT EXISTS {quote_name(name_index(table, index))}"
        f" ON {quote_name(table)} ({', '.join(indexed)})"
        for table, index, indexed in placed
    }


# --- partitions ---------------------------------------------------------------------------------------
#
# Ranges of time, so that old events are dropped instead of deleted row by row:
# https://www.postgresql.org/docs/current/ddl-partitioning.html
#
# All exist before the first event, since schedulers such as pg_partman create them ahead of time, too. A
# default partition would be searched whenever one is created or detached, so the first and the last partition
# take everything outside.

_AHEAD = 10
"""The number of retentions to create partitions for if a run's time span is unknown."""


def list_bounds(retention: Retention, first_ms: int) -> list[int]:
    """The ends of partitions, except the last. `first_ms`: the first time of the run's events."""
    step_ms = retention.step_ms
    until_ms = retention.until_ms or first_ms + _AHEAD * retention.period_ms
    return list(range((first_ms // step_ms + 1) * step_ms, until_ms + step_ms, step_ms))


def name_partition(table: str, end_ms: int | None) -> str:
    """The name of the partition with events before this time; None: of the last one."""
    return f"{table}_before_{end_ms}" if end_ms is not None else f"{table}_later"


def name_partitions(table: str, bounds: list[int]) -> list[str]:
    """The names of a table's partitions; none without bounds."""
    return [name_partition(table, end) for end in (*bounds, None)] if bounds else []


def create_partitions(table: str, bounds: list[int]) -> list[str]:
    """The statements that create a table's partitions."""
    begins = ["MINVALUE", *map(str, bounds)]
    ends = [*map(str, bounds), "MAXVALUE"]
    names = name_partitions(table, bounds)
    return [
        f"CREATE TABLE IF NOT EXISTS {quote_name(name)} PARTITION OF {quote_name(table)}"
        f" FOR VALUES FROM ({begin}) TO ({end})"
        for name, begin, end in zip(names, begins, ends, strict=True)
    ]


def list_older(table: str, partitions: Iterable[str], before_ms: int) -> list[str]:
    """The partitions of a table that contain only older events, oldest first."""
    prefix = name_partition(table, 0).removesuffix("0")
    ends = (int(name.removeprefix(prefix)) for name in partitions if name.startswith(prefix))
    return [name_partition(table, end) for end in sorted(ends) if end <= before_ms]
