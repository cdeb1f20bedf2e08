"""What modules that ask by one connection have in common: the module, its writers, and tables of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

from ...encoding.columns import KEY_COLUMN
from ...errors import OptionError
from ...workloads.schema import Tags
from ..base import Module
from ..options import OptionsT
from ..sending import Encoder, Writer
from .errors import QUERY_REMEDY, made_otherwise, nothing_to_query, somebody_elses

MARK = "made by iot-database-benchmark"
"""Says in the database that a table is this tool's, which may drop it."""


class Found(NamedTuple):
    """What a database has under the name of a table."""

    marked: bool
    """Whether it bears the tool's mark."""
    is_table: bool = True
    """Whether it is a table at all, and no view."""


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Disconnect; must not fail on a broken connection."""


ConnectionT = TypeVar("ConnectionT", bound=Closable)


class ConnectedModule(Module[OptionsT], Generic[OptionsT, ConnectionT]):
    """A module that does everything but writing by one connection."""

    _connection: ConnectionT | None = None

    ELSEWHERE: ClassVar[str] = "another database"
    """Where tables could be instead, for whoever finds somebody else's here."""
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
        """The connection, made if it isn't there."""
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection

    # --- whose tables there are -------------------------------------------------------------------

    @property
    def tables(self) -> list[str]:
        """The run's tables: those of events, and that of tags if there is one."""
        return [*self.job.table_names, *self.job.tags_tables]

    @property
    def needed_names(self) -> list[str]:
        """The names under which the run makes something, or writes into it."""
        return self.tables

    @abstractmethod
    def read_columns(self, table: str) -> Mapping[str, str]:
        """A table's columns and their types as the server names them; none if there is no such table."""

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        """The columns that the run's rows need, and their types; None: any."""
        schema = self.job.schema
        columns = schema.tags_row if table in self.job.tags_tables else schema.row
        return {column.name: None for column in columns}

    def fits(self, actual: str, expected: str) -> bool:
        """Whether a column of the first type is one of the second."""
        return actual.lower() == expected.lower()

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        """What there is under these names, whoever made it."""
        return {name: Found(False) for name in names if self.read_columns(name)}

    def is_like_ours(self, table: str) -> bool:
        """Whether a table has exactly the columns that runs of this workload give it: then it is one of
        theirs, from before there were marks, or where the database has no place for one."""
        actual = self.read_columns(table)
        return any(self._has_exactly(actual, form.expect_columns(table)) for form in self._forms())

    def _forms(self) -> Iterator[Self]:
        """The module for each place where the workload's tags may be."""
        for tags in Tags:
            with suppress(OptionError):
                schema = replace(self.job.schema, tags=tags)
                yield type(self)(self.options, replace(self.job, schema=schema))

    def _has_exactly(self, actual: Mapping[str, str], expected: Mapping[str, str | None]) -> bool:
        """Whether these are the expected columns, but for a key of `OWN_COLUMNS`."""
        names = {name for name in actual if name in expected or name not in self.OWN_COLUMNS}
        return names == set(expected) and all(
            kind is None or self.fits(actual[name], kind) for name, kind in expected.items()
        )

    def claim_tables(self) -> list[str]:
        """Those of the tables that runs of this workload may have left which are there and were made by this
        tool. Raises SimulatorError if somebody else made what the run would drop or write into."""
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
            raise somebody_elses(others, self.ELSEWHERE)
        return ours


class ConnectedWriter(Writer, Generic[ConnectionT]):
    """A writer with a connection like its module's, shared by the threads that have requests in flight."""

    def __init__(self, encoder: Encoder, module: ConnectedModule[Any, ConnectionT]) -> None:
        super().__init__(encoder)
        self.job = module.job
        self.max_in_flight = module.options.in_flight(module.job.load)
        self._connect = module.connect
        self._connection: ConnectionT | None = None

    def open(self) -> None:
        self._connection = self._connect()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def connection(self) -> ConnectionT:
        """The connection of an open writer."""
        assert self._connection is not None
        return self._connection


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
        """SimulatorError if one of these tables, or that of the tags, is there and has other columns than are
        needed now; `remedy`: see `made_otherwise`."""
        for table in [*tables, *self.job.tags_tables]:
            # A table that the user may not use has none, either; whoever asks for it is told.
            if not (columns := self.read_columns(table)):
                continue
            for name, kind in self.expect_columns(table).items():
                if name not in columns:
                    raise made_otherwise(table, f"it has no column {name}", remedy)
                if kind is not None and not self.fits(columns[name], kind):
                    raise made_otherwise(table, f"{name} is {columns[name]}, not {kind}", remedy)

    def prepare_queries(self) -> None:
        for table in (self.job.schema.table, *self.job.tags_tables):
            if not self.read_columns(table):
                raise nothing_to_query(table, self.job)
        self.check_columns([self.job.schema.table], QUERY_REMEDY)
