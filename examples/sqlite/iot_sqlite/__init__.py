"""SQLite, an example of a module in a package of its own.

Each event is stored exactly once: a request is one transaction of a library in the worker's own
process, so there is no answer that could get lost. One that finds the file locked by another worker for
longer than `busy_timeout_s` is rolled back and sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from simulator.conditions import Condition
from simulator.contract import PrimaryKey
from simulator.encoding import KEY_COLUMN, bounds, with_client_key
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import (
    Capabilities,
    Encoder,
    Encoding,
    Job,
    Module,
    Options,
    Payload,
    Query,
    Support,
    Writer,
)
from simulator.modules.shared.errors import missing_table, nothing_to_query, stored_by_earlier_run
from simulator.modules.shared.sql import quote_name
from simulator.modules.shared.tables import deal_rows
from simulator.workloads.base import FIRST_TIMESTAMP_MS, ColumnType, EventBlock
from simulator.workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)

COLUMN_TYPES = {
    ColumnType.TIMESTAMP_MS: "INTEGER",
    ColumnType.INT64: "INTEGER",
    ColumnType.INT32: "INTEGER",
    ColumnType.FLOAT32: "REAL",
    ColumnType.TEXT: "TEXT",
    ColumnType.JSON: "TEXT",
}
_TEXTS = (ColumnType.TEXT, ColumnType.JSON)

KEYS = {
    PrimaryKey.DB: f"{KEY_COLUMN} INTEGER PRIMARY KEY, ",
    PrimaryKey.CLIENT: f"{KEY_COLUMN} TEXT PRIMARY KEY, ",
    PrimaryKey.NONE: "",
}

_HOST = "json_extract(tags, '$.hostname')"
_METRICS = ", ".join(METRICS)
QUERIES = {
    "count-events": "SELECT count(*) FROM events",
    "temperature-min-max": "SELECT min(temperature), max(temperature) FROM events",
    "temperature-stats": "SELECT min(temperature), avg(temperature), max(temperature) FROM events",
    "temperature-stats-per-device": "SELECT device_id, min(temperature), avg(temperature),"
    " max(temperature) FROM events GROUP BY device_id",
    # SQLite promises that the other columns come from the row of the maximum.
    "newest-per-device": "SELECT device_id, temperature FROM"
    " (SELECT device_id, temperature, max(timestamp) FROM events GROUP BY device_id)",
    "cpu-max-all": f"SELECT ts / {HOUR_MS} * {HOUR_MS} AS hour,"
    f" {', '.join(f'max({name})' for name in METRICS)} FROM cpu"
    f" WHERE {_HOST} IN ({', '.join(map(repr, MAX_ALL_HOSTS))})"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {MAX_ALL_UNTIL_MS} GROUP BY hour",
    "high-cpu": f"SELECT {_HOST}, ts, {_METRICS} FROM cpu WHERE usage_user > {HIGH_CPU_ABOVE}"
    f" AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}",
    "last-point": f"SELECT host, newest, {_METRICS} FROM"
    f" (SELECT {_HOST} AS host, max(ts) AS newest, {_METRICS} FROM cpu GROUP BY host)",
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
        self._tables = job.table_names
        self._with_key = job.load.primary_key is PrimaryKey.CLIENT

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        columns, values = (
            with_client_key(block) if self._with_key else (block.schema.columns, block.columns)
        )
        lists = [
            [text.decode() for text in values[column.name].tolist()]
            if column.type in _TEXTS
            else values[column.name].tolist()
            for column in columns
        ]
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
            self._connection.database.close()
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


class Sqlite(Module[SqliteOptions, Options]):
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
        queries=dict.fromkeys(QUERIES, Support.FULL),
        indices=Support.MISSING,
        column_types=frozenset(COLUMN_TYPES),
        # A connection does one thing after the other, and the file takes one writer at a time.
        in_flight=dict.fromkeys(("batch", "single"), Support.UNSUPPORTED),
    )
    ENCODINGS = (Encoding("batch", {}), Encoding("single", {}, batched=False))

    def __init__(self, options: SqliteOptions, job: Job) -> None:
        super().__init__(options, job)
        self._connection: Connection | None = None

    @classmethod
    def encoder(cls, options: Options, job: Job, batch: int) -> SqliteEncoder:
        return SqliteEncoder(job)

    def writer(self, batch: int, prefill: bool = False) -> SqliteWriter:
        return SqliteWriter(self.encoder(self.options, self.job, batch), self.options, self.job)

    def open(self) -> None:
        self._connection = Connection(self.options, self.job)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.database.close()
            self._connection = None

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.rows(statement)

    def prepare(self) -> None:
        if self.job.clean:
            for table in self.job.all_table_names:
                self._rows(f"DROP TABLE IF EXISTS {table}")
        columns = ", ".join(
            f"{quote_name(column.name)} {COLUMN_TYPES[column.type]}"
            for column in self.job.schema.columns
        )
        key = KEYS[self.job.load.primary_key]
        for table in self.job.table_names:
            self._rows(f"CREATE TABLE IF NOT EXISTS {table} ({key}{columns})")

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if not self._rows(f"SELECT 1 FROM sqlite_master WHERE name = '{table}'"):
            raise nothing_to_query(table, self.job)

    def count(self) -> int:
        return sum(
            int(self._rows(f"SELECT count(*) FROM {table}")[0][0]) for table in self.job.table_names
        )

    def workload_queries(self) -> Mapping[str, Query]:
        names: Sequence[str] = [name for name in self.job.schema.queries if name in QUERIES]
        return {name: partial(self._rows, QUERIES[name]) for name in names}

    def server_info(self) -> dict[str, Any]:
        settings = {
            name: self._rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")
        }
        return {"version": f"SQLite {sqlite3.sqlite_version}", "settings": settings}
