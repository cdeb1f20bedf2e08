"""What the contract suite must know of SQLite apart from the module, and where to run."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from simulator.encoding.columns import KEY_COLUMN, quote_name
from simulator.modules.base import Job
from simulator.testing.server import Entry, Fault, FaultHandle, Refusal, ServerUnderTest
from simulator.workloads.schema import ColumnType, Schema

from . import COLUMN_TYPES


@contextmanager
def _locked(server: SqliteUnderTest, _: Job) -> Iterator[FaultHandle]:
    """Somebody else holds the file's lock until the request is tried again."""
    with closing(server.connect()) as other:

        def release() -> None:
            if other.in_transaction:
                other.execute("ROLLBACK")

        yield FaultHandle(
            lambda: other.execute("BEGIN IMMEDIATE"), {"busy_timeout_s": 0.02}, abort=release
        )


class SqliteUnderTest(ServerUnderTest):
    """A file in a folder of its own."""

    FAULTS = (Fault("locked", {"locked": 1}, _locked, thorough=True),)
    column_types = COLUMN_TYPES
    locks = False
    in_process = True
    marks = False

    def connect(self) -> sqlite3.Connection:
        """A connection past the module."""
        return sqlite3.connect(self.options["path"], isolation_level=None)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as database:
            return database.execute(statement).fetchall()

    def read_back(self, schema: Schema, table: str) -> list[list[Any]]:
        names = ", ".join(quote_name(column.name) for column in schema.columns)
        is_json = [column.type is ColumnType.JSON for column in schema.columns]
        return [
            [
                json.loads(value) if parse and value is not None else value
                for value, parse in zip(row, is_json, strict=True)
            ]
            for row in self._rows(f"SELECT {names} FROM {quote_name(table)}")
        ]

    def keys(self, table: str) -> list[str]:
        if KEY_COLUMN not in self.columns(table):
            return []
        return [str(key) for (key,) in self._rows(f"SELECT {KEY_COLUMN} FROM {quote_name(table)}")]

    def tables(self) -> set[str]:
        return {
            name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }

    def columns(self, table: str) -> dict[str, str]:
        return {
            name: kind
            for _, name, kind, *_ in self._rows(f"PRAGMA table_info({quote_name(table)})")
        }

    def indices(self, table: str) -> set[str]:
        return set()

    def make_neighbour(self, name: str) -> object:
        self._rows(f"CREATE TABLE {quote_name(name)} (serial_number INTEGER, note TEXT)")
        self._rows(f"INSERT INTO {quote_name(name)} VALUES (7, 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self._rows(f"SELECT serial_number, note FROM {quote_name(name)}")

    def clear(self) -> None:
        for table in self.tables():
            self._rows(f"DROP TABLE {quote_name(table)}")

    def connections(self, run_id: str) -> set[str]:
        return {"the library in this process"}

    def kill_connections(self, run_id: str) -> int:
        return 0

    def refusals(self) -> Sequence[Refusal]:
        return ()  # whoever may open the file is let in


@contextmanager
def _start(_: pytest.FixtureRequest, __: list[str]) -> Iterator[SqliteUnderTest]:
    with tempfile.TemporaryDirectory() as folder:
        yield SqliteUnderTest("sqlite", {"path": str(Path(folder) / "events.sqlite")})


ENTRY = Entry("sqlite", "sqlite", SqliteUnderTest, _start)
