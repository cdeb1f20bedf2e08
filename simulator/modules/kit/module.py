"""What modules with a single connection share: the base class, tables of rows, indexes, and errors common to
all databases, in the same words for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BeforeValidator, Field

from ...conditions import Condition
from ...encoding.columns import KEY_COLUMN
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.schema import Tags
from ..base import Job, Module
from ..options import Options, OptionsT

CONNECTION_LOST = "connection_lost"
"""The kind under which a result counts lost connections."""


def connection_lost(detail: object) -> Retryable:
    """A connection was lost; whether the request was stored must be found out."""
    return Retryable(CONNECTION_LOST, one_line(detail))


class MissingTable(SimulatorError):
    """There is no such table."""


def missing_table(problem: str, job: Job) -> MissingTable:
    """A missing table, and the command that creates and fills it.

    `problem`: the database's message, or what was looked for.
    """
    return MissingTable(f"{problem}; run insert first ({insert_command(job)})")


def lost_table(problem: str) -> Retryable:
    """A node doesn't know a table that this run has created."""
    return Retryable(
        "missing_table",
        f"{problem}; this run created it: a node that has just started may not know it yet, or the"
        " table was dropped",
    )


def nothing_to_query(table: str, job: Job) -> MissingTable:
    """The table to query is missing."""
    return MissingTable(
        f"there is no table {table} to query: run insert first, with --tables single"
        f" ({insert_command(job)})"
    )


def made_otherwise(table: str, reason: str, remedy: str) -> SimulatorError:
    """A table from before doesn't fit the run's events; `remedy`: what to do, before `of the run that made
    it`."""
    return SimulatorError(
        f"table {table} was created for other columns: {reason}; {remedy} of the run that created it (for"
        " example tags=row or table)"
    )


INSERT_REMEDY = "run without --no-clean, or with the options"
"""The remedy of `made_otherwise` for a run that inserts."""
QUERY_REMEDY = "use the options"
"""The same for a run that queries."""


def insert_command(job: Job) -> str:
    """The command that fills the tables of the job's workload."""
    return f"{job.program} insert --target {job.target} --workload {job.workload}"


def stored_by_earlier_run(text: str) -> SimulatorError:
    """The database already has an event that no request of this run can have stored."""
    return SimulatorError(
        f"{text}; an earlier run has stored the event: run without --no-clean, or with another --seed"
    )


def unreachable(system: str, failure: Retryable) -> SimulatorError:
    """No node of the endpoint could be reached. `failure` names the last one and says why."""
    return SimulatorError(
        f"can't connect to {system} at {failure};"
        " check that the server runs and that endpoint names it"
    )


MARK = "made by iot-database-benchmark"
"""Marks a table in the database as this tool's, which may drop it."""


class Found(NamedTuple):
    """What a database has under a table's name."""

    marked: bool
    """Whether it has the tool's mark."""
    is_table: bool = True
    """Whether it is a table, and not a view."""


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Disconnect; must not fail on a broken connection."""


ConnectionT = TypeVar("ConnectionT", bound=Closable)


class ConnectedModule(Module[OptionsT], Generic[OptionsT, ConnectionT]):
    """A module that does everything except writing over one connection."""

    _connection: ConnectionT | None = None

    ELSEWHERE: ClassVar[str] = "another database"
    """The other place for tables, to suggest when someone else's are in the way."""
    OWN_COLUMNS: ClassVar[Collection[str]] = (KEY_COLUMN,)
    """Columns that tables may have besides those of rows."""

    @abstractmethod
    def connect(self) -> ConnectionT:
        """A new connection; SimulatorError if the server doesn't answer."""

    def open(self) -> None:
        self._connection = self.connect()

    def close(self) -> None:
        super().close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> ConnectionT:
        """The connection, opened on first use."""
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection

    # --- the owner of tables ----------------------------------------------------------------------

    @property
    def tables(self) -> list[str]:
        """The run's tables: those of events, and that of tags if there is one."""
        return [*self.job.table_names, *self.job.tags_tables]

    @property
    def needed_names(self) -> list[str]:
        """The names under which the run creates or writes something."""
        return self.tables

    @abstractmethod
    def read_columns(self, table: str) -> Mapping[str, str]:
        """A table's columns and their types in the server's terms; empty if there is no such table."""

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        """The columns that the run's rows need, and their types; None: any."""
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: None for column in columns}

    def fits(self, actual: str, expected: str) -> bool:
        """Whether a column of the first type is one of the second."""
        return actual.lower() == expected.lower()

    def holds(self, actual: str, expected: str) -> bool:
        """Whether a column of the first type accepts values sent for one of the second, and returns the same:
        tables that a workload creates itself may have other types."""
        return self.fits(actual, expected)

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        """What exists under these names, whoever created it."""
        return {name: Found(False) for name in names if self.read_columns(name)}

    def is_like_ours(self, table: str) -> bool:
        """Whether a table has exactly the columns that runs of this workload create: then it is one of
        theirs, from before there were marks, or on a database without room for a mark."""
        actual = self.read_columns(table)
        # Wherever the workload's tags may be.
        for tags in Tags:
            with suppress(OptionError):
                job = replace(self.job, schema=replace(self.job.schema, tags=tags))
                expected = type(self)(self.options, job).expect_columns(table)
                names = {n for n in actual if n in expected or n not in self.OWN_COLUMNS}
                if names == set(expected) and all(
                    kind is None or self.fits(actual[name], kind) for name, kind in expected.items()
                ):
                    return True
        return False

    def claim_tables(self) -> list[str]:
        """The existing tables of this workload's runs that this tool created. Raises SimulatorError if
        someone else created what the run would drop or write into."""
        job, needed = self.job, self.needed_names
        names = dict.fromkeys([*job.all_table_names, job.schema.tags_table, *needed])
        there = self.find_tables(names)
        ours = [
            name
            for name in names
            if name in there
            and there[name].is_table
            and (there[name].marked or self.is_like_ours(name))
        ]
        if others := [name for name in needed if name in there and name not in ours]:
            raise SimulatorError(
                f"the run needs the names {', '.join(others)}, but something that this tool did not make has"
                f" them, so nothing was dropped or written: use {self.ELSEWHERE}, or another name for the"
                " workload's table; or rename or drop them yourself"
            )
        return ours


class CountingModule(ConnectedModule[OptionsT, ConnectionT]):
    """A module that counts table by table."""

    @abstractmethod
    def count_rows(self, table: str) -> int:
        """All rows that a reader would find now."""

    def count(self) -> int:
        return sum(map(self.count_rows, self.job.table_names))

    def count_devices(self) -> int | None:
        counts = [self.count_rows(table) for table in self.job.tags_tables]
        return counts[0] if counts else None


class TableModule(CountingModule[OptionsT, ConnectionT]):
    """A module whose tables have columns, with types."""

    def check_columns(self, tables: Sequence[str], remedy: str) -> None:
        """SimulatorError if one of these tables, or that of the tags, exists and has other columns than are
        needed now; `remedy`: see `made_otherwise`."""
        for table in [*tables, *self.job.tags_tables]:
            # A table without privileges for the user has none, either; using it reports the error.
            if not (columns := self.read_columns(table)):
                continue
            for name, kind in self.expect_columns(table).items():
                if name not in columns:
                    raise made_otherwise(table, f"it has no column {name}", remedy)
                if kind is not None and not self.holds(columns[name], kind):
                    raise made_otherwise(table, f"{name} is {columns[name]}, not {kind}", remedy)

    def prepare_queries(self) -> None:
        for table in (self.job.schema.table, *self.job.tags_tables):
            if not self.read_columns(table):
                raise nothing_to_query(table, self.job)
        self.check_columns([self.job.schema.table], QUERY_REMEDY)


class CreateIndices(StrEnum):
    """When the indexes of `Schema.indexes` are created."""

    NO = "no"
    BEFORE = "before"
    """With the tables: all inserts pay for them."""
    AFTER = "after"
    """When the events are loaded, outside of the measurement; the time this takes is kept."""


_WORDS = {
    "true": CreateIndices.BEFORE, "yes": CreateIndices.BEFORE, "on": CreateIndices.BEFORE,
    "1": CreateIndices.BEFORE,
    "false": CreateIndices.NO, "off": CreateIndices.NO, "0": CreateIndices.NO,
}  # fmt: skip
"""The option's former values true and false."""


_READ_WORDS = BeforeValidator(lambda value: _WORDS.get(text := str(value).strip().lower(), text))


class IndexOptions(Options):
    """Whether tables have indexes besides that of the primary key."""

    create_indices: Annotated[
        CreateIndices,
        _READ_WORDS,
        Condition.SCHEMA,
    ] = Field(
        CreateIndices.NO,
        description="indexes on device and time, and on columns that the workload's queries filter by: no,"
        " before (created with the tables, so that inserts maintain them; same as true) or after (built"
        " once the events are loaded, and timed); with them, queries for each device's newest event use the"
        " form that suits the indexes",
    )

    @property
    def is_indexed(self) -> bool:
        """Whether queries find indexes."""
        return self.create_indices is not CreateIndices.NO


class IndexedModule(Module[OptionsT]):
    """A module whose options are `IndexOptions`."""

    @property
    @abstractmethod
    def index_names(self) -> Collection[str]:
        """Names of the indexes that the job's tables have with `create_indices`."""

    def describe_indexes(self) -> list[str]:
        """The result of `create_indexes` for all of them, for `describe_schema`."""
        return [*self.index_names]

    @abstractmethod
    def create_indexes(self, names: Collection[str]) -> None:
        """Create these of `index_names`, and wait until they are built."""

    @abstractmethod
    def drop_indexes(self, names: Collection[str]) -> None:
        """Drop these of `index_names`."""

    @abstractmethod
    def list_indexes(self) -> Mapping[str, str]:
        """Name -> table and columns of all indexes on the job's tables, whoever created them."""
