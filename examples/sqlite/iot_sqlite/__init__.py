"""SQLite, a module in a package of its own. A request is one transaction: each event is stored once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from iotbench.database import (
    FLOATS,
    Capabilities,
    ColumnType,
    Condition,
    DbapiModule,
    Durability,
    Encoding,
    Needed,
    Options,
    PrimaryKey,
    Retryable,
    Shape,
    SimulatorError,
    SqlDialect,
    Support,
    list_aliased,
    list_aliases,
    missing_table,
    stored_by_earlier_run,
    support_keys,
)

TYPES = dict.fromkeys(ColumnType, "INTEGER") | dict.fromkeys(FLOATS, "REAL")
TYPES |= dict.fromkeys((ColumnType.TEXT, ColumnType.JSON), "TEXT")


class SqliteOptions(Options):
    """Options of a target with `module: sqlite`."""

    path: Annotated[str, Condition.NONE] = Field(description="the database's file")
    busy_timeout_s: Annotated[float, Condition.CLIENT] = Field(
        30, ge=0, description="how long to wait for another worker's lock, in seconds"
    )


class SqliteDialect(SqlDialect):
    """https://www.sqlite.org/lang_select.html"""

    # There is no aggregate function for the newest event's value beside others.
    SHAPES = frozenset(Shape) - {Shape.LAST, Shape.PERCENTILE, Shape.PERCENTILE_OF_ALL}
    WIDENS = True  # a float32 is stored in 64 bits

    def select_newest(self, values: Sequence[str], time: str, source: str) -> str:
        # SQLite promises that the other columns come from the row of the maximum.
        newest = f"SELECT {list_aliased(values)}, max({time}) FROM {source} GROUP BY 1"
        return f"SELECT {list_aliases(len(values))} FROM ({newest})"


class Sqlite(DbapiModule[SqliteOptions]):
    """A file that all workers of one machine share."""

    name = "sqlite"
    options_model = SqliteOptions
    TYPES = TYPES
    KEYS: ClassVar = {PrimaryKey.DB: "INTEGER PRIMARY KEY", PrimaryKey.CLIENT: "TEXT PRIMARY KEY"}
    DIALECT = SqliteDialect()
    COLUMNS = "SELECT name, type FROM pragma_table_info({table})"
    CAPABILITIES = Capabilities(
        insert_modes={"batch": Support.FULL, "single": Support.FULL},
        primary_keys=support_keys(PrimaryKey.NONE, *KEYS),
        shapes=SqliteDialect.SHAPES,
        indices=Support.MISSING,
        column_types=frozenset(TYPES),
        durability=Durability({"synchronous": Needed(("2", "3"), "at the next checkpoint")}),
        # A connection does one thing after the other, and the file takes one writer at a time.
        in_flight=dict.fromkeys(("batch", "single"), Support.UNSUPPORTED),
    )
    ENCODINGS = (Encoding("batch", {}), Encoding("single", {}, batched=False))

    def connect_driver(self) -> sqlite3.Connection:
        path, wait_s = self.options.path, self.options.busy_timeout_s
        driver = sqlite3.connect(path, wait_s, isolation_level="IMMEDIATE", check_same_thread=False)
        driver.execute("PRAGMA journal_mode = WAL")
        return driver

    def explain(self, error: Exception) -> Retryable | SimulatorError | None:
        text = f"SQLite: {error}"
        if isinstance(error, sqlite3.IntegrityError):
            return stored_by_earlier_run(text)
        if "locked" in text:
            return Retryable("locked", str(error))
        if "no such table" in text:
            return missing_table(text, self.job)
        return SimulatorError(text) if isinstance(error, sqlite3.Error) else None

    def server_info(self) -> dict[str, Any]:
        settings = {
            name: self.ask(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")
        }
        return {"version": f"SQLite {sqlite3.sqlite_version}", "settings": settings}
