"""Modules for databases with SQL: tables, columns, counting, described queries.

A module declares how its database differs: types and keys, the list of columns, the end of CREATE TABLE, the
dialect for queries (`sql_queries`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Protocol, TypeVar

from ...contract import PrimaryKey
from ...encoding.columns import KEY_COLUMN, quote_name
from ...errors import Retryable, SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.schema import Column, ColumnType
from ..base import Client
from ..options import LEAN, Job, OptionsT
from ..sending import CALLING, Request
from .exactly_once import ConnectedWriter
from .module import INSERT_REMEDY, MARK, Closable, Found, MissingTable, TableModule
from .official import RowsEncoder, sent_columns
from .own_tables import OwnTablesModule
from .sql_queries import SqlDialect, compile_query, fill_sql


class SqlConnection(Closable, Protocol):
    """A connection for statements."""

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""


SqlConnectionT = TypeVar("SqlConnectionT", bound=SqlConnection)


class SqlModule(OwnTablesModule[OptionsT, SqlConnectionT], TableModule[OptionsT, SqlConnectionT]):
    """A database with tables created and queried by SQL statements."""

    TYPES: ClassVar[Mapping[ColumnType, str]]
    """The type of a column in a table."""
    KEYS: ClassVar[Mapping[PrimaryKey, str]] = {}
    """Type and properties of the key column, for those kinds of key that have one."""
    DIALECT: ClassVar[SqlDialect]
    """How to quote texts, and how to compile queries unless `query_dialect` overrides it."""
    COLUMNS: ClassVar[str]
    """Selects name and type of a table's columns; the first statement of all. {table} and {place}: the
    table's name, and the value of `place`, as texts; {name}: as in `name_table`."""
    MARKS: ClassVar[str | None] = None
    """Selects name and comment of everything with one of the {names}, texts with commas between them, at
    {place}, and whether it is a table; None: tables have no comments there."""

    # --- statements -------------------------------------------------------------------------------

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; Retryable or SimulatorError if there is none."""
        return self.connection.ask(statement)

    def execute(self, statement: str) -> None:
        """Execute a statement without an answer, which may take a while."""
        self.ask(statement)

    @property
    def place(self) -> str:
        """The tables' database or schema, by its name in the server's catalogue."""
        return ""

    def name_table(self, table: str) -> str:
        """A table's name in statements."""
        return quote_name(table)

    def type_of(self, column: Column) -> str:
        """The type of a column in a table."""
        return self.TYPES[column.type]

    def define(self, column: Column) -> str:
        """A column's definition."""
        return f"{quote_name(column.name)} {self.type_of(column)}"

    def has_key(self, table: str) -> bool:
        """Whether a table's first column is a key."""
        return table not in self.job.tags_tables and self.job.load.primary_key in self.KEYS

    def define_columns(self, table: str) -> list[str]:
        """The definitions of a table's columns."""
        schema = self.job.schema
        if table in self.job.tags_tables:
            return list(map(self.define, schema.tags_row))
        columns = list(map(self.define, schema.row))
        if self.has_key(table):
            key = self.KEYS[self.job.load.primary_key]
            columns.insert(0, f"{quote_name(KEY_COLUMN)} {key}")
        return columns

    def create_table(self, table: str, definitions: Sequence[str] | None = None) -> str:
        """The statement that creates a table, of events or of tags, if it doesn't exist; only with these
        columns if they are given."""
        columns = ", ".join(definitions or self.define_columns(table))
        return f"CREATE TABLE IF NOT EXISTS {self.name_table(table)} ({columns}){self.finish_table(table)}"

    def create_tables(self, there: Collection[str] = ()) -> list[str]:
        """The statements that create all tables of the job; `there`: existing tables."""
        return list(map(self.create_table, self.tables))

    def describe_schema(self) -> list[str]:
        return self.make_statements()

    def finish_table(self, table: str) -> str:
        """What follows the columns."""
        return ""

    def drop(self, table: str) -> None:
        """Drop a table, if it exists."""
        self.execute(f"DROP TABLE IF EXISTS {self.name_table(table)}")

    # --- tables -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        self.check_server()
        self.try_own_tables()
        there = self.claim_tables()
        if self.job.clean:
            # Former partitions of a table may use its sequences, so they come first.
            for table in reversed(there):
                self.drop(table)
            there = []
        for statement in self.make_statements(there):
            self.execute(statement)
        if not self.job.clean:
            self.check_columns(self.job.table_names, INSERT_REMEDY)
            self.check_tables()

    def check_server(self) -> None:
        """SimulatorError, before anything is dropped, if the run can't work on this server."""

    def check_tables(self) -> None:
        """SimulatorError if existing tables don't fit the run for other reasons than their columns."""

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        if self.MARKS is None:
            return super().find_tables(names)
        text = self.query_dialect.text
        statement = self.MARKS.format(place=text(self.place), names=", ".join(map(text, names)))
        return {name: Found(mark == MARK, *rest) for name, mark, *rest in self.ask(statement)}

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: self.type_of(column) for column in columns}

    def read_columns(self, table: str) -> Mapping[str, str]:
        text = self.DIALECT.text
        statement = self.COLUMNS.format(
            table=text(table), place=text(self.place), name=self.name_table(table)
        )
        try:
            return {name: kind for name, kind, *_ in self.ask(statement)}
        except MissingTable:
            return {}

    # --- counting and queries ---------------------------------------------------------------------

    def show_events(self, table: str) -> None:
        """Make a table's events visible, or wait until they are."""

    def count_rows(self, table: str) -> int:
        self.show_events(table)
        return int(self.ask(f"SELECT count(*) FROM {self.name_table(table)}")[0][0])

    def answer(self, statement: str) -> list[tuple[Any, ...]]:
        return self.ask(statement)

    def compile(self, bound: BoundQuery) -> str:
        return compile_query(bound, self.job.schema, self.query_dialect)

    def take_statement(self, text: str, bound: BoundQuery) -> str:
        table = self.name_table(self.job.schema.table)
        return fill_sql(text, bound, self.job.schema, self.query_dialect, table)

    @property
    def query_dialect(self) -> SqlDialect:
        """How to compile queries, and the form of their parameters."""
        return self.DIALECT


# --- drivers with Python's usual interface -----------------------------------------------------------
# Databases with a driver that has Python's standard interface (https://peps.python.org/pep-0249/):
# statements, and a transaction for each request.
#
# A module opens the connection, and translates its driver's errors. If a connection can be lost while a
# request is in flight, it also extends the writer's `recover` to find out whether the request was stored.


Meaning = Retryable | SimulatorError | None
"""What an error of a driver means; None: it isn't the driver's."""


class DbapiConnection:
    """A driver's connection, which begins transactions by itself."""

    def __init__(self, connect: Callable[[], Any], explain: Callable[[Exception], Meaning]) -> None:
        self._explain = explain
        with self._translating():
            self.driver = connect()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if (meaning := self._explain(error)) is None:
                raise
            raise meaning from error

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor whose statements are stored as a whole or not at all."""
        with self._translating():
            cursor = self.driver.cursor()
            try:
                yield cursor
                self.driver.commit()
            except BaseException:
                with suppress(Exception):
                    self.driver.rollback()
                raise

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer, if it has any."""
        with self.transaction() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        """Disconnect."""
        self.driver.close()


class RowEncoder(RowsEncoder):
    """A payload's data: rows of Python values, by table. (A module to be measured builds bytes in bulk.)"""

    ROUNDS = False


class DbapiWriter(ConnectedWriter[DbapiConnection]):
    """Sends payloads of `RowEncoder`, each in a transaction."""

    def __init__(self, module: DbapiModule[Any]) -> None:
        super().__init__(module)
        columns = sent_columns(module.job)
        names, marks = ", ".join(map(quote_name, columns)), ", ".join([module.MARK] * len(columns))
        self._statements = [
            f"INSERT INTO {module.name_table(table)} ({names}) VALUES ({marks})"
            for table in module.job.table_names
        ]

    def send(self, payload: Request) -> int:
        with self.connection.transaction() as cursor:
            for part in payload.data:
                cursor.executemany(self._statements[part.table], part.values)
        return payload.events


class DbapiModule(SqlModule[OptionsT, DbapiConnection]):
    """A module of such a database."""

    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(writer=f"{__name__}:DbapiWriter", asker=CALLING)
    }
    MARK: ClassVar[str] = "?"
    """The placeholder for a value in a statement."""

    @classmethod
    def encoder(cls, options: OptionsT, job: Job) -> RowEncoder:
        return RowEncoder(job)

    def connect(self) -> DbapiConnection:
        return DbapiConnection(self.connect_driver, self.explain)

    @abstractmethod
    def connect_driver(self) -> Any:
        """The driver's connection; raises the driver's errors."""

    @abstractmethod
    def explain(self, error: Exception) -> Meaning:
        """What an error of the driver means: worth another attempt, or the end of the run."""
