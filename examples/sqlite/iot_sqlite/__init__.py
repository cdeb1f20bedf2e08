"""SQLite, an example of a module in a package of its own.

Each event is stored exactly once: a request is one transaction of a library in the worker's own
process, so there is no answer that could get lost. One that finds the file locked by another worker for
longer than `busy_timeout_s` is rolled back and sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from simulator.conditions import Condition
from simulator.contract import PrimaryKey
from simulator.encoding.columns import quote_name, with_client_key
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Capabilities, Encoding, Job, Support, support_keys
from simulator.modules.kit.exactly_once import ConnectedWriter
from simulator.modules.kit.module import missing_table, stored_by_earlier_run
from simulator.modules.kit.official import RowsEncoder, sent_columns
from simulator.modules.kit.sql_module import SqlModule
from simulator.modules.options import Options
from simulator.modules.sending import Payload
from simulator.workloads.schema import ColumnType, EventBlock

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


class SqliteOptions(Options):
    """Options of a target with `module: sqlite`."""

    path: Annotated[str, Condition.NONE] = Field(description="the database's file")
    busy_timeout_s: Annotated[float, Condition.CLIENT] = Field(
        30, ge=0, description="how long to wait for another worker's lock, in seconds"
    )


class SqliteEncoder(RowsEncoder):
    """Rows of Python values, by table. (A module that is to be measured builds bytes in bulk.)"""

    def list_values(self, block: EventBlock) -> list[tuple[Any, ...]]:
        if self.job.load.primary_key is PrimaryKey.CLIENT:
            columns, values = with_client_key(block)
        else:
            columns, values = block.schema.row, block.row_columns
        lists = []
        for column in columns:
            cells: list[Any] = values[column.name].tolist()
            if column.type in _TEXTS:
                cells = [text.decode() for text in cells]
            if column.name in block.missing:
                for row in np.flatnonzero(block.missing[column.name]):
                    cells[row] = None
            lists.append(cells)
        return list(zip(*lists, strict=True))


class Connection:
    """The file, as one user has it open."""

    def __init__(self, options: SqliteOptions, job: Job) -> None:
        self._job = job
        with self.translating():
            self.database = sqlite3.connect(
                options.path, options.busy_timeout_s, isolation_level=None, check_same_thread=False
            )
            self.database.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def translating(self) -> Iterator[None]:
        """SQLite's errors become ours: a run is over, or a request may be tried again."""
        try:
            yield
        except sqlite3.OperationalError as error:
            text = str(error)
            if "locked" in text:
                raise Retryable("locked", text) from error
            if "no such table" in text:
                raise missing_table(f"SQLite: {text}", self._job) from error
            raise SimulatorError(f"SQLite: {text}") from error
        except sqlite3.IntegrityError as error:
            raise stored_by_earlier_run(f"SQLite: {error}") from error
        except sqlite3.Error as error:
            raise SimulatorError(f"SQLite: {error}") from error

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of an answer."""
        with self.translating():
            return self.database.execute(statement).fetchall()

    def close(self) -> None:
        """Close the file."""
        self.database.close()


class SqliteWriter(ConnectedWriter[Connection]):
    """One worker's connection: each request is a transaction."""

    def __init__(self, encoder: SqliteEncoder, module: Sqlite) -> None:
        super().__init__(encoder, module)
        columns = sent_columns(module.job)
        names, marks = ", ".join(map(quote_name, columns)), ", ".join("?" * len(columns))
        self._statements = [
            f"INSERT INTO {quote_name(table)} ({names}) VALUES ({marks})"
            for table in module.job.table_names
        ]

    def send(self, payload: Payload) -> int:
        database = self.connection.database
        with self.connection.translating():
            database.execute("BEGIN IMMEDIATE")
            for part in payload.data:
                database.executemany(self._statements[part.table], part.values)
            database.execute("COMMIT")
        return payload.events

    def recover(self, payload: Payload) -> bool:
        with self.connection.translating():
            self.connection.database.rollback()
        return False


class Sqlite(SqlModule[SqliteOptions, Connection]):
    """A file that all workers of one machine share. `SqlModule` does what statements alone can do."""

    name = "sqlite"
    options_model = SqliteOptions
    TYPES = COLUMN_TYPES
    KEYS: ClassVar = {PrimaryKey.DB: "INTEGER PRIMARY KEY", PrimaryKey.CLIENT: "TEXT PRIMARY KEY"}
    DIALECT = SqliteDialect()
    COLUMNS = "SELECT name, type FROM pragma_table_info({table})"
    CAPABILITIES = Capabilities(
        insert_modes={"batch": Support.FULL, "single": Support.FULL},
        primary_keys=support_keys(PrimaryKey.NONE, *KEYS),
        shapes=SqliteDialect.SHAPES,
        indices=Support.MISSING,
        column_types=frozenset(COLUMN_TYPES),
        # A connection does one thing after the other, and the file takes one writer at a time.
        in_flight=dict.fromkeys(("batch", "single"), Support.UNSUPPORTED),
    )
    ENCODINGS = (Encoding("batch", {}), Encoding("single", {}, batched=False))

    @classmethod
    def encoder(cls, options: SqliteOptions, job: Job) -> SqliteEncoder:
        return SqliteEncoder(job)

    def make_writer(self) -> SqliteWriter:
        return SqliteWriter(SqliteEncoder(self.job), self)

    def connect(self) -> Connection:
        return Connection(self.options, self.job)

    def server_info(self) -> dict[str, Any]:
        settings = {
            name: self.ask(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")
        }
        return {"version": f"SQLite {sqlite3.sqlite_version}", "settings": settings}
