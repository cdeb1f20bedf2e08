"""How IoTDB's two models keep a workload's events, and the statements for that.

In the tree model a device is a path, `root.<database>.<table>.<device>`, a column a measurement of it. All
measurements of a device are aligned: they share its times. What identifies a device is in its path, and no
more: IoTDB's documentation has it so ("Only include unique identifiers in the path",
https://iotdb.apache.org/UserGuide/latest/Background-knowledge/Data-Model-and-Terminology_apache.html). The
name does that alone, so tags are measurements, stored with each event as `tags=row` says. If they were levels
of the path, whoever asks about one device would have to know them, or have them searched for.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

from ...contract import Role
from ...errors import Retryable
from ...workloads.drawing import BoundQuery
from ...workloads.schema import Schema, Tags
from .._base.errors import INSERT_REMEDY, made_otherwise, missing_table, nothing_to_query
from .._base.row_order import Row
from .._base.sql_queries import SqlDialect, quote_name
from ..base import Job
from .options import IotdbOptions
from .queries import IotdbDialect, compile_statement
from .schema import (
    LEVEL,
    TIME,
    describe_tags,
    find_steady,
    list_columns,
    name_table,
    quote,
    split_path,
)
from .tree_queries import Computation, Selection, TreeDialect, compile_question

Statement = str | Selection | Computation
"""What a query becomes: a text in the table model, what the tree has for it in the tree."""
Ask = Callable[[str, float], list[Row]]
"""Asks a statement, for so many seconds at most: all rows of its answer."""

_PROBE = "iot_database_benchmark_regions"
"""A table that is there for a moment."""
_DEVICES = 16
"""How many devices are in it."""
_REGIONS_S = 30.0


class Layout(ABC):
    """A model's statements. All methods but `compile` raise Retryable or SimulatorError."""

    database: str
    """What the server calls the database in its lists."""
    CREATE: str
    """How a database is made."""
    INTERVAL: str
    """How CREATE DATABASE has the length of a partition of time in ms."""
    DIALECT: SqlDialect
    """How queries have their parameters."""

    def __init__(self, options: IotdbOptions, job: Job, ask: Ask) -> None:
        self.options = options
        self.job = job
        self._ask_for = ask

    def ask(self, statement: str) -> list[Row]:
        """The rows of a statement."""
        return self._ask_for(statement, self.options.database_timeout_s)

    def is_there(self) -> bool:
        """Whether there is such a database."""
        return self.database in {row[0] for row in self.ask("SHOW DATABASES")}

    def prepare(self) -> None:
        """Make the database if there is none, and what the job's tables need; drop them before if the job
        cleans."""
        if not self.is_there():
            self.ask(self.create_database())
            self._make_regions()
        if self.job.clean:
            present = self.list_tables()
            for table in (*self.job.all_table_names, self.job.schema.tags_table):
                if table in present:
                    self.drop_table(table)
        for statement in self.create_tables():
            self.ask(statement)
        if not self.job.clean:
            self.check_tables()

    def create_database(self) -> str:
        """The statement that makes the database."""
        statement = self.CREATE.format(self.database)
        if self.options.time_partition_interval_s is not None:
            statement += self.INTERVAL.format(self.options.time_partition_interval_s * 1000)
        return statement

    def _make_regions(self) -> None:
        """Have a new database make its regions, which takes seconds and else would be the first events'
        time. Raises Retryable if they aren't there in time."""
        deadline = time.monotonic() + _REGIONS_S
        while True:
            try:
                self.fill_probe(_PROBE)
                break
            except Retryable:
                # There is no event for it.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        self.drop_table(_PROBE)

    @abstractmethod
    def fill_probe(self, table: str) -> None:
        """Store something of many devices in a table that isn't the job's."""

    @abstractmethod
    def list_tables(self) -> set[str]:
        """The database's tables; none if there is no such database."""

    @abstractmethod
    def drop_table(self, table: str) -> None:
        """Drop a table with its events."""

    def create_tables(self) -> list[str]:
        """The statements that make the job's tables if they aren't there; none: they come with events."""
        return []

    def check_tables(self) -> None:  # noqa: B027 - where tables come with events there is nothing to check
        """SimulatorError if tables that were there before are of other columns."""

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        """SimulatorError if one of the tables isn't there, or has other columns than events have now;
        `remedy`: as `made_otherwise` has it."""
        present = self.list_tables()
        for table in tables:
            if table not in present:
                raise nothing_to_query(table, self.job)

    def count_devices(self) -> int | None:
        """Rows of the tags' table; None if there is none."""
        return None

    def count(self) -> int:
        """Events in the job's tables."""
        return sum(map(self.count_rows, self.job.table_names))

    @abstractmethod
    def count_rows(self, table: str) -> int:
        """Events in a table."""

    def delete_older(self, before_ms: int) -> None:
        """Delete older events of the job's tables."""
        for table in self.job.table_names:
            self.ask(f"DELETE FROM {self.name_events(table)} WHERE time < {before_ms}")

    @abstractmethod
    def name_events(self, table: str) -> str:
        """A table's events, as DELETE names them."""

    @abstractmethod
    def compile(self, bound: BoundQuery) -> Statement:
        """What a bound query becomes, to be asked."""


class Tables(Layout):
    """The table model: a workload's table is a table."""

    CREATE = 'CREATE DATABASE IF NOT EXISTS "{}"'
    INTERVAL = " WITH (time_partition_interval={})"
    DIALECT = IotdbDialect()

    def __init__(self, options: IotdbOptions, job: Job, ask: Ask) -> None:
        super().__init__(options, job, ask)
        self.database = options.database

    def list_tables(self) -> set[str]:
        if not self.is_there():
            return set()
        return {row[0] for row in self.ask(f"SHOW TABLES FROM {quote_name(self.database)}")}

    def create_tables(self) -> list[str]:
        statements = []
        for table, schema in self._describe(self.job.table_names).items():
            columns = [f"{TIME} TIMESTAMP TIME"]
            columns += [
                f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
                for column in list_columns(schema)
            ]
            statements.append(
                f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})"
            )
        return statements

    def check_tables(self) -> None:
        self.check_columns(self.job.table_names, INSERT_REMEDY)

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        needed = self._describe(tables)
        super().check_columns([*needed], remedy)
        for table, schema in needed.items():
            names = {row[0] for row in self.ask(f"DESC {quote_name(table)}")}
            for column in list_columns(schema):
                if column.name.lower() not in names:
                    raise made_otherwise(table, f"it has no column {column.name}", remedy)

    def _describe(self, tables: Sequence[str]) -> dict[str, Schema]:
        """The schema of what is stored in each of these tables, and in the tags' table if there is to be
        one."""
        schema = self.job.schema
        schemas = dict.fromkeys(tables, schema)
        if schema.tags is Tags.TABLE:
            schemas[schema.tags_table] = describe_tags(schema)
        return schemas

    def drop_table(self, table: str) -> None:
        # Or rows that came out of the order of time are in the next table of that name (2.0.1).
        self.ask(f"DELETE FROM {quote_name(table)}")
        self.ask(f"DROP TABLE {quote_name(table)}")

    def fill_probe(self, table: str) -> None:
        self.ask(
            f"CREATE TABLE IF NOT EXISTS {table} ({TIME} TIMESTAMP TIME, name STRING TAG, value INT32 FIELD)"
        )
        rows = ", ".join(f"(0, '{number}', 0)" for number in range(_DEVICES))
        self.ask(f"INSERT INTO {table}({TIME}, name, value) VALUES {rows}")

    def count_devices(self) -> int | None:
        counts = [self.count_rows(table) for table in self.job.tags_tables]
        return counts[0] if counts else None

    def count_rows(self, table: str) -> int:
        return int(self.ask(f"SELECT count(*) FROM {quote_name(table)}")[0][0])

    def name_events(self, table: str) -> str:
        return quote_name(table)

    def compile(self, bound: BoundQuery) -> Statement:
        return compile_statement(bound, self.job.schema)


class Tree(Layout):
    """The tree model.

    Nothing but the database is made beforehand: a device's timeseries come with its first event, of the types
    that the tablet names, and without events there is no table.

    An event without any value is not stored at all (2.0.1), so one measurement must never be missing. Events
    are counted by that one.
    """

    CREATE = "CREATE DATABASE {}"
    INTERVAL = " WITH TIME_PARTITION_INTERVAL={}"
    DIALECT = TreeDialect()

    def __init__(self, options: IotdbOptions, job: Job, ask: Ask) -> None:
        super().__init__(options, job, ask)
        self.database = f"root.{options.database}"
        # As `Module.must_have_events`: tables come with them.
        self._must_have_events = job.load.role is Role.READ

    def list_tables(self) -> set[str]:
        return {split_path(row[0])[LEVEL] for row in self.ask(f"SHOW CHILD PATHS {self.database}")}

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        if self._must_have_events:
            super().check_columns(tables, remedy)

    def drop_table(self, table: str) -> None:
        self.ask(f"DELETE TIMESERIES {self._path(table)}.**")

    def fill_probe(self, table: str) -> None:
        for number in range(_DEVICES):
            device = f"{self._path(table)}.d{number}"
            self.ask(f"INSERT INTO {device}(timestamp, v) ALIGNED VALUES (0, 0)")

    def count_rows(self, table: str) -> int:
        steady = quote(find_steady(self.job.schema))
        rows = self.ask(
            f"SELECT count({steady}) FROM {self._path(table)}.* GROUP BY LEVEL = {LEVEL}"
        )
        return sum(int(row[0]) for row in rows)

    def name_events(self, table: str) -> str:
        return f"{self._path(table)}.**"

    def compile(self, bound: BoundQuery) -> Statement:
        path = self._path(self.job.schema.table)
        problem = f"IoTDB: there are no timeseries below {path}"
        missing = partial(missing_table, problem, self.job) if self._must_have_events else None
        return compile_question(bound, self.job.schema, path, missing)

    def _path(self, table: str) -> str:
        return name_table(self.options.database, table)
