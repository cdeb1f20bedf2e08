"""SQLite, an example of a module in a package of its own.

Each event is stored exactly once: a request is one transaction of a library in the worker's own
process, so there is no answer that could get lost. One that finds the file locked by another worker for
longer than `busy_timeout_s` is rolled back and sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.conditions import Condition
from simulator.contract import PrimaryKey
from simulator.encoding.columns import KEY_COLUMN, bounds, with_client_key
from simulator.errors import Retryable, SimulatorError
from simulator.modules._base.connected import TableModule
from simulator.modules._base.errors import missing_table, stored_by_earlier_run
from simulator.modules._base.sql_queries import compile_query, quote_name
from simulator.modules._base.tables import deal_rows
from simulator.modules.base import (
    Capabilities,
    Encoding,
    Job,
    Query,
    Support,
    claim_queries,
)
from simulator.modules.options import Options
from simulator.modules.sending import Encoder, Payload, Writer
from simulator.workloads.events import EventBlock
from simulator.workloads.queries import BoundQuery
from simulator.workloads.schema import Column, ColumnType

from .queries import SqliteDialect

COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "INTEGER",
    ColumnType.INT64: "INTEGER",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT32: "REAL",
    ColumnType.FLOAT64: "REAL",
    ColumnType.BOOL: "INTEGER",
    ColumnType.TEXT: "TEXT",
    ColumnType.JSON: "TEXT",
}
_TEXTS = (ColumnType.TEXT, ColumnType.JSON)

KEYS = {
    PrimaryKey.DB: f"{KEY_COLUMN} INTEGER PRIMARY KEY, ",
    PrimaryKey.CLIENT: f"{KEY_COLUMN} TEXT PRIMARY KEY, ",
    PrimaryKey.NONE: "",
}


class SqliteOptions(Options):
    """Options of a target with `module: sqlite`."""

    path: Annotated[str, Condition.NONE] = Field(description="the database's file")
    busy_timeout_s: Annotated[float, Condition.CLIENT] = Field(
        30, ge=0, description="how long to wait for another worker's lock, in seconds"
    )


class SqliteEncoder(Encoder):
    """Rows of Python values, by table. (A module that is to be measured builds bytes in bulk.)"""

    overlaps = False  # making Python objects holds the interpreter's lock

    def __init__(self, job: Job) -> None:
        self._tables = [quote_name(table) for table in job.table_names]
        self._with_key = job.load.primary_key is PrimaryKey.CLIENT

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        columns, values = (
            with_client_key(block) if self._with_key else (block.schema.columns, block.columns)
        )
        lists = [_list_values(column, values[column.name], block) for column in columns]
        rows = list(zip(*lists, strict=True))
        names = ", ".join(quote_name(column.name) for column in columns)
        marks = ", ".join("?" * len(columns))
        requests = []
        for start, stop in bounds(len(block), batch or 1):
            statements = [
                (f"INSERT INTO {self._tables[share.table]} ({names}) VALUES ({marks})",
                 [rows[row] for row in share.rows])
                for share in deal_rows(block, start, stop, len(self._tables))
            ]  # fmt: skip
            requests.append(Payload(statements, stop - start, block, stop - 1))
        return requests


def _list_values(column: Column, values: NDArray[Any], block: EventBlock) -> list[Any]:
    """A column as SQLite takes it: None where an event has no value."""
    found: list[Any] = values.tolist()
    if column.type in _TEXTS:
        found = [text.decode() for text in found]
    for row in np.flatnonzero(block.missing[column.name]) if column.name in block.missing else ():
        found[row] = None
    return found


@contextmanager
def _translate(job: Job) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "locked" in text:
            raise Retryable("locked", text) from error
        if "no such table" in text:
            raise missing_table(f"SQLite: {text}", job) from error
        raise SimulatorError(f"SQLite: {text}") from error
    except sqlite3.IntegrityError as error:
        raise stored_by_earlier_run(f"SQLite: {error}") from error
    except sqlite3.Error as error:
        raise SimulatorError(f"SQLite: {error}") from error


class Connection:
    """The file, opened by one user of it."""

    def __init__(self, options: SqliteOptions, job: Job) -> None:
        self._job = job
        with _translate(job):
            self.database = sqlite3.connect(
                options.path, options.busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            self.database.execute("PRAGMA journal_mode = WAL")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        with _translate(self._job):
            return self.database.execute(statement).fetchall()

    def close(self) -> None:
        """Close the file."""
        self.database.close()


class SqliteWriter(Writer):
    """One worker's connection."""

    def __init__(self, encoder: Encoder, options: SqliteOptions, job: Job) -> None:
        super().__init__(encoder)
        self._options = options
        self._job = job
        self._connection: Connection | None = None

    def open(self) -> None:
        self._connection = Connection(self._options, self._job)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        assert self._connection is not None
        database = self._connection.database
        with _translate(self._job):
            database.execute("BEGIN IMMEDIATE")
            for statement, rows in payload.data:
                database.executemany(statement, rows)
            database.execute("COMMIT")
        return payload.events

    def recover(self, payload: Payload) -> bool:
        assert self._connection is not None
        with _translate(self._job):
            self._connection.database.rollback()
        return False


class Sqlite(TableModule[SqliteOptions, Options, Connection]):
    """A file that all workers of one machine share."""

    name = "sqlite"
    options_model = SqliteOptions
    encoding_options_model = Options
    CAPABILITIES = Capabilities(
        insert_modes={"batch": Support.FULL, "single": Support.FULL},
        primary_keys={
            **dict.fromkeys(KEYS, Support.FULL),
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(SqliteDialect.SHAPES),
        shapes=SqliteDialect.SHAPES,
        indices=Support.MISSING,
        column_types=frozenset(COLUMN_TYPES),
        # A connection does one thing after the other, and the file takes one writer at a time.
        in_flight=dict.fromkeys(("batch", "single"), Support.UNSUPPORTED),
        missing_values=True,
    )
    ENCODINGS = (Encoding("batch", {}), Encoding("single", {}, batched=False))

    @classmethod
    def encoder(cls, options: Options, job: Job, batch: int) -> SqliteEncoder:
        return SqliteEncoder(job)

    def writer(self, batch: int, prefill: bool = False) -> SqliteWriter:
        return SqliteWriter(self.encoder(self.options, self.job, batch), self.options, self.job)

    def connect(self) -> Connection:
        return Connection(self.options, self.job)

    def prepare(self) -> None:
        if self.job.clean:
            for table in self.job.all_table_names:
                self.connection.rows(f"DROP TABLE IF EXISTS {quote_name(table)}")
        columns = ", ".join(
            f"{quote_name(column.name)} {COLUMN_TYPES[column.type]}"
            for column in self.job.schema.columns
        )
        key = KEYS[self.job.load.primary_key]
        for table in self.job.table_names:
            self.connection.rows(f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({key}{columns})")

    def read_columns(self, table: str) -> dict[str, str]:
        return dict(self.connection.rows(f"SELECT name, type FROM pragma_table_info('{table}')"))

    def count_rows(self, table: str) -> int:
        return int(self.connection.rows(f"SELECT count(*) FROM {quote_name(table)}")[0][0])

    def compile(self, bound: BoundQuery) -> Query:
        return partial(self.connection.rows, compile_query(bound, self.job.schema, SqliteDialect()))

    def server_info(self) -> dict[str, Any]:
        settings = {
            name: self.connection.rows(f"PRAGMA {name}")[0][0]
            for name in ("journal_mode", "synchronous")
        }
        return {"version": f"SQLite {sqlite3.sqlite_version}", "settings": settings}
