"""What the contract suite must know of SQLite apart from the module, and where to run."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from iotbench.testing import Entry, Fault, FaultHandle, SqlServerUnderTest

from . import TYPES


@contextmanager
def _locked(server: SqliteUnderTest, _: object) -> Iterator[FaultHandle]:
    """Somebody else holds the file's lock until the request is tried again."""
    with closing(server.connect()) as other:
        brief = {"busy_timeout_s": 0.02}
        yield FaultHandle(lambda: other.execute("BEGIN IMMEDIATE"), brief, other.rollback)


class SqliteUnderTest(SqlServerUnderTest):
    """A file in a folder of its own."""

    FAULTS = (Fault("locked", {"locked": 1}, _locked, thorough=True),)
    TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
    COLUMNS = "SELECT name, type FROM pragma_table_info({table})"
    column_types = TYPES
    locks, marks, in_process = False, False, True

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.options["path"], isolation_level=None)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as database:
            return database.execute(statement).fetchall()


@contextmanager
def _start(_: pytest.FixtureRequest, __: list[str]) -> Iterator[SqliteUnderTest]:
    with tempfile.TemporaryDirectory() as folder:
        yield SqliteUnderTest("sqlite", {"path": f"{folder}/events.sqlite"})


ENTRY = Entry("sqlite", "sqlite", SqliteUnderTest, _start)
