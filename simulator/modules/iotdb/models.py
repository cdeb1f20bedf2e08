"""How IoTDB's two models keep a workload's events, and the statements for that.

In the tree model a device is a path, `root.<database>.<table>.<device>`, a column a measurement of it. All
measurements of a device are aligned: they share its times. What identifies a device is in its path, and no
more: IoTDB's documentation has it so ("Only include unique identifiers in the path",
https://iotdb.apache.org/UserGuide/latest/Background-knowledge/Data-Model-and-Terminology_apache.html). The
name does that alone, so tags are measurements, stored with each event as `tags=row` says. If they were levels
of the path, whoever asks about one device would have to know them, or have them searched for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial

from ...contract import Role
from ...workloads.drawing import BoundQuery
from .._base.errors import missing_table
from .._base.row_order import Row
from .._base.sql_queries import SqlDialect, quote_name
from ..base import Job
from .options import IotdbOptions
from .queries import IotdbDialect, compile_statement
from .schema import (
    LEVEL,
    TIME,
    TableColumn,
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
Ask = Callable[[str], list[Row]]
"""Asks a statement: all rows of its answer."""

_DEVICES = 16
"""How many devices are in a table that has regions made."""


class Layout(ABC):
    """A model's statements. All methods but `compile` raise Retryable or SimulatorError."""

    DATABASE: str
    """What the server calls a database in its lists."""
    CREATE: str
    """How a database is made."""
    INTERVAL: str
    """How CREATE DATABASE has the length of a partition of time in ms."""
    DIALECT: SqlDialect
    """How queries have their parameters."""

    def __init__(self, options: IotdbOptions, job: Job, ask: Ask) -> None:
        self.options = options
        self.job = job
        self.ask = ask
        self.database = self.DATABASE.format(options.database)

    def is_there(self) -> bool:
        """Whether there is such a database."""
        return self.database in {row[0] for row in self.ask("SHOW DATABASES")}

    def create_database(self) -> str:
        """The statement that makes the database."""
        statement = self.CREATE.format(self.database)
        if self.options.time_partition_interval_s is not None:
            statement += self.INTERVAL.format(self.options.time_partition_interval_s * 1000)
        return statement

    def list_columns(self, table: str) -> list[TableColumn]:
        """The columns that rows of the job have in a table, but for the time."""
        schema = self.job.schema
        return list_columns(describe_tags(schema) if table in self.job.tags_tables else schema)

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

    @abstractmethod
    def read_types(self, table: str) -> Mapping[str, str]:
        """Types by name of what a table has as columns."""

    @abstractmethod
    def count_rows(self, table: str) -> int:
        """Events in a table."""

    @abstractmethod
    def name_events(self, table: str) -> str:
        """A table's events, as DELETE names them."""

    @abstractmethod
    def compile(self, bound: BoundQuery) -> Statement:
        """What a bound query becomes, to be asked."""


class Tables(Layout):
    """The table model: a workload's table is a table."""

    DATABASE = "{}"
    CREATE = 'CREATE DATABASE IF NOT EXISTS "{}"'
    INTERVAL = " WITH (time_partition_interval={})"
    DIALECT = IotdbDialect()

    def list_tables(self) -> set[str]:
        if not self.is_there():
            return set()
        return {row[0] for row in self.ask(f"SHOW TABLES FROM {quote_name(self.database)}")}

    def create_tables(self) -> list[str]:
        statements = []
        for table in (*self.job.table_names, *self.job.tags_tables):
            columns = [f"{TIME} TIMESTAMP TIME"]
            columns += [
                f"{quote_name(column.name)} {column.type} {'TAG' if column.is_tag else 'FIELD'}"
                for column in self.list_columns(table)
            ]
            statements.append(
                f"CREATE TABLE IF NOT EXISTS {quote_name(table)} ({', '.join(columns)})"
            )
        return statements

    def read_types(self, table: str) -> Mapping[str, str]:
        types = {row[0]: row[1] for row in self.ask(f"DESC {quote_name(table)}")}
        # It has no capital letters in names.
        own = [column.name for column in self.list_columns(table)]
        return types | {name: types[name.lower()] for name in own if name.lower() in types}

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

    DATABASE = "root.{}"
    CREATE = "CREATE DATABASE {}"
    INTERVAL = " WITH TIME_PARTITION_INTERVAL={}"
    DIALECT = TreeDialect()

    def list_tables(self) -> set[str]:
        return {split_path(row[0])[LEVEL] for row in self.ask(f"SHOW CHILD PATHS {self.database}")}

    def read_types(self, table: str) -> Mapping[str, str]:
        # A device takes the measurements that its events have.
        return {column.name: column.type for column in self.list_columns(table)}

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
        missing = (
            partial(missing_table, problem, self.job) if self.job.load.role is Role.READ else None
        )
        return compile_question(bound, self.job.schema, path, missing)

    def _path(self, table: str) -> str:
        return name_table(self.options.database, table)
